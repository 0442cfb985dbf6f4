"""Masks and error arrays: the families contain the real ones."""

import json
from importlib import resources

import numpy as np
import pytest
from folders import DATA, needs

from kappaflow.build.tables.mask_statistics import error_fit, main, read_spectra, runs
from kappaflow.errors import UserError
from kappaflow.simulation import Shards
from kappaflow.simulation.masks import LOWEST_GOOD_FRACTION, MaskModel, read_masks
from kappaflow.simulation.noise import ErrorFamily, statistics
from kappaflow.spectra import masked_median

SPECTRA = DATA / "spectra"
real_data = needs("spectra")

# The detector's own pixels on either side of the gap, and the same two by two.
FINE = np.concatenate([np.arange(2.87, 3.684, 0.000668), np.arange(3.788, 5.27, 0.000668)])
PIXELS = FINE[::2]


def trough(wavelength):
    """A spectrum with the methane trough of a cold dwarf between 3.1 and 3.6 micron."""
    return (1 - 0.97 * np.exp(-(((wavelength - 3.35) / 0.25) ** 2))).astype(np.float32)


def draw(n, wavelength=PIXELS, flux=None, user=None, seed=0):
    rng = np.random.default_rng(seed)
    flux = np.tile(trough(wavelength) if flux is None else flux, (n, 1))
    uniform = rng.random((n, MaskModel.UNIFORMS), dtype=np.float32)
    model = MaskModel(wavelength, user)
    good = model.draw(flux, uniform, rng.random(flux.shape, dtype=np.float32))
    noisy = flux + 0.05 * rng.standard_normal(flux.shape, dtype=np.float32)
    return model.clip(good, noisy, uniform), uniform, noisy


def test_good_fractions_span_0_3_to_1_with_the_median_of_the_paper_s_masks():
    mask, _, _ = draw(6000)
    fraction = mask.mean(axis=1)
    assert fraction.min() >= LOWEST_GOOD_FRACTION
    assert fraction.min() < 0.31
    assert fraction.max() == 1
    assert abs(np.median(fraction[fraction < 1]) - 0.468) < 0.03
    assert np.histogram(fraction, bins=np.linspace(0.3, 1, 8))[0].min() > 100  # nothing in between is left out


def test_one_spectrum_in_ten_keeps_every_pixel():
    mask, _, _ = draw(4000)
    assert abs(mask.all(axis=1).mean() - 0.1) < 0.02


@pytest.mark.parametrize("wavelength", [FINE, PIXELS, FINE[::18]], ids=["paper", "laptop", "tiny"])
def test_a_whole_detector_is_missing_now_and_then(wavelength):
    mask, _, _ = draw(3000, wavelength)
    blue = wavelength < 3.736
    without_nrs1 = ~mask[:, blue].any(axis=1)
    without_nrs2 = ~mask[:, ~blue].any(axis=1)
    assert 0.06 < without_nrs1.mean() < 0.2
    assert 0.03 < without_nrs2.mean() < 0.2
    assert not (without_nrs1 & without_nrs2).any()


def test_edges_are_cut_and_the_gap_masked_where_a_grid_has_it():
    ladder = np.arange(2.87, 5.27, 0.001336)
    mask, uniform, _ = draw(2000, ladder)
    masked = uniform[:, 0] >= 0.1
    gap = (ladder > 3.689) & (ladder < 3.784)
    assert abs((~mask[masked][:, gap].any(axis=1)).mean() - statistics()["gap"]["share"]) < 0.12
    assert not mask[masked][:, ladder > 5.265].any(axis=1).mean() > 0.1
    assert mask[masked][:, (ladder > 5.0) & (ladder < 5.1)].any(axis=1).mean() > 0.5


def test_faint_pixels_are_lost_more_often_and_clipped_ones_are_the_non_positive():
    mask, uniform, noisy = draw(4000)
    bottom = (PIXELS > 3.3) & (PIXELS < 3.4)
    peak = (PIXELS > 4.0) & (PIXELS < 4.1)
    assert mask[:, bottom].mean() < 0.75 * mask[:, peak].mean()
    clipped = (uniform[:, 15] < statistics()["clipped"]["share"]) & (uniform[:, 0] >= 0.1) & (mask.mean(axis=1) > 0.4)
    assert (noisy[clipped][mask[clipped]] > 0).all()
    kept = uniform[:, 15] >= statistics()["clipped"]["share"]
    assert (noisy[kept][mask[kept]] <= 0).any()


def test_thinning_takes_single_pixels_short_blocks_and_wide_ones():
    """On a flat spectrum with both detectors, what is lost is from one to hundreds of pixels long."""
    mask, uniform, _ = draw(3000, flux=np.ones_like(PIXELS))
    both = (uniform[:, 7] > 0.12) & (uniform[:, 7] < 0.88) & (uniform[:, 0] >= 0.1)
    half = both & (np.abs(mask.mean(axis=1) - 0.5) < 0.1)
    inner = mask[half][:, (PIXELS > 3.0) & (PIXELS < 5.0)]
    longest = np.array([runs(~row)[1].max() for row in inner]) * np.diff(PIXELS).mean()  # [um]
    assert (longest < 0.02).mean() > 0.1
    assert ((longest > 0.05) & (longest < 0.2)).mean() > 0.1
    assert (longest > 0.3).mean() > 0.03
    starts = np.concatenate([runs(~row)[0] for row in inner[longest > 0.2]])
    assert np.histogram(starts, bins=8)[0].min() > 0.3 * starts.size / 8  # anywhere


def test_bad_pixels_come_singly_and_in_clusters():
    model = MaskModel(FINE)
    rng = np.random.default_rng(1)
    pixel = rng.random((400, FINE.size), dtype=np.float32)
    bad = model.defects(np.full(400, 0.5, np.float32), pixel)
    lengths = np.concatenate([runs(row)[1] for row in bad])
    found = statistics()["defects"]
    assert abs((lengths == 1).mean() - found["single_share"]) < 0.03
    assert abs(lengths[lengths > 1].mean() - found["cluster_mean_length"]) < 0.4
    assert abs(lengths.size / bad.size / max(found["runs_per_pixel"]) - 1) < 0.1


def test_user_masks_are_used_for_half_of_the_masked_spectra(tmp_path):
    own = np.zeros((2, PIXELS.size), bool)
    own[0, :900], own[1, 800:] = True, True
    mask, uniform, _ = draw(3000, user=own)
    chosen = (uniform[:, 13] < 0.5) & (uniform[:, 0] >= 0.1)
    is_one = (~mask[chosen] | own[0]).all(axis=1)
    is_other = (~mask[chosen] | own[1]).all(axis=1)
    assert (is_one | is_other).all()
    assert 0.4 < is_one.mean() < 0.6


def test_masks_in_a_folder_reach_the_batches(tmp_path, toy_shards):
    folder, out = tmp_path / "masks", tmp_path / "set"
    folder.mkdir()
    wavelength = np.linspace(2.87, 5.27, 3000)
    good = (wavelength > 3) & (wavelength < 4.5)
    np.savetxt(folder / "mine.txt", np.column_stack([wavelength, good]), header="wavelength good")
    toy_shards(out, 1024, pixels=200)
    batch = Shards(out, masks=folder).evaluation()
    pixels = Shards(out).wavelength
    mine = (pixels > 3.01) & (pixels < 4.49)
    exact = (batch.mask[:, (pixels > 3.01) & (pixels < 3.1)].all(axis=1)) & ~batch.mask[:, ~mine].any(axis=1)
    assert 0.1 < exact.mean() < 0.6


def test_a_mask_is_read_onto_coarser_and_finer_pixels(tmp_path):
    (tmp_path / "m.csv").write_text(
        "wavelength,good\n" + "".join(f"{3 + i / 100},{int(i != 50)}\n" for i in range(101))
    )
    coarse = np.arange(2.95, 4.1, 0.05)
    mask = read_masks(tmp_path, coarse)[0]
    assert not mask[np.argmin(np.abs(coarse - 3.5))]
    assert mask[np.argmin(np.abs(coarse - 3.3))]
    assert not mask[0]
    assert not mask[-1]
    fine = np.arange(3.2, 3.8, 0.002)
    mask = read_masks(tmp_path, fine)[0]
    assert np.allclose(fine[~mask], 3.5, atol=0.006)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("3.0 1\n3.1 maybe\n", "line 2"),
        ("3.0 1\n3.1 2\n", "1 (good) or 0 (bad)"),
        ("3.1 1\n3.0 1\n", "ascending"),
        ("9.0 1\n9.1 1\n", "no good pixel"),
        ("", "ascending"),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused_by_name(tmp_path, content, words):
    (tmp_path / "bad.txt").write_text(content)
    with pytest.raises(UserError) as caught:
        read_masks(tmp_path, PIXELS)
    assert words in str(caught.value)
    assert "bad.txt" in str(caught.value)


def test_a_folder_without_masks_is_refused(tmp_path):
    with pytest.raises(UserError, match="no masks"):
        read_masks(tmp_path, PIXELS)
    with pytest.raises(UserError, match="no such folder"):
        read_masks(tmp_path / "nowhere", PIXELS)


def errors(flux, n=3000, wavelength=PIXELS, seed=0):
    rng = np.random.default_rng(seed)
    flux = np.tile(flux, (n, 1)).astype(np.float32)
    kinds = rng.random((n, ErrorFamily.UNIFORMS), dtype=np.float32)
    normal = rng.standard_normal((n, ErrorFamily.NORMALS), dtype=np.float32)
    return ErrorFamily(wavelength).draw(flux, kinds, normal, rng.random(flux.shape, dtype=np.float32)), kinds


def test_error_arrays_are_constant_photon_like_and_in_between():
    flux = trough(PIXELS)
    error, kinds = errors(flux)
    constant, photon = kinds[:, 0] < 0.25, (kinds[:, 0] >= 0.25) & (kinds[:, 0] < 0.5)
    assert np.ptp(error[constant], axis=1).max() < 1e-6
    bright = flux > np.median(flux) / 2
    power = np.polyfit(np.log(flux[bright]), np.log(error[photon][0][bright]), 1)[0]
    assert abs(power - 0.5) < 0.02
    assert error[photon].min() > 0.09  # the floor: a tenth of the median
    between = error[kinds[:, 0] >= 0.5]
    contrast = between[:, flux.argmin()] / between[:, flux.argmax()]
    assert contrast.min() < 0.35
    assert contrast.max() > 0.9


def test_the_masked_median_is_numpy_s():
    rng = np.random.default_rng(0)
    values, mask = rng.normal(size=(50, 31)), rng.random((50, 31)) < 0.6
    mask[0] = True
    mask[1, 1:] = False
    mask[1, 0] = True
    expected = [np.median(v[m]) for v, m in zip(values, mask, strict=True)]
    assert np.allclose(masked_median(values, mask), expected)
    assert np.isnan(masked_median(values, np.zeros_like(mask))).all()


def test_the_packaged_statistics_name_their_origin_and_copy_no_mask():
    text = resources.files("kappaflow.data").joinpath("masks.json").read_text()
    provenance = json.loads(text)["provenance"]
    assert len(provenance["spectra"]) == 7
    assert "Hood" in provenance["cite"]
    assert len(text) < 8000  # summary numbers, not pixels


@real_data
def test_the_packaged_statistics_are_those_of_the_real_spectra(tmp_path):
    main([str(SPECTRA), "--out", str(tmp_path / "masks.json")])
    measured = json.loads((tmp_path / "masks.json").read_text())
    packaged = statistics()
    assert measured["provenance"] == packaged["provenance"]
    for part in ("edges", "gap", "defects", "clipped", "error", "good_fraction"):
        for name, value in packaged[part].items():
            assert np.allclose(measured[part][name], value, rtol=1e-6), (part, name)


@real_data
def test_real_error_arrays_lie_inside_the_family():
    """Per bin of 0.2 micron, the real error lies within the drawn 0.5-99.5 %, both at the same SNR."""
    for spectrum in read_spectra(SPECTRA):
        good = spectrum.good
        wavelength = spectrum.wavelength[good]
        smooth = np.convolve(np.pad(spectrum.flux[good], 7, mode="edge"), np.ones(15) / 15, "valid")
        flux = np.clip(smooth, 1e-3 * np.median(smooth), None)
        drawn, _ = errors(flux, 1500, wavelength)
        scale = np.median(flux / drawn, axis=1, keepdims=True) / np.median(flux / spectrum.error[good])
        ratio = np.log(drawn * scale / spectrum.error[good])
        for low in np.arange(2.9, 5.2, 0.2):
            inside = (wavelength > low) & (wavelength < low + 0.2)
            if inside.sum() < 20:
                continue
            difference = np.median(ratio[:, inside], axis=1)
            assert np.quantile(difference, 0.005) < 0 < np.quantile(difference, 0.995), (spectrum.name, low)


@real_data
def test_the_error_fit_describes_real_arrays_to_a_tenth():
    residuals = [error_fit(s)[2] for s in read_spectra(SPECTRA)]
    assert np.median(residuals) < 0.1


@real_data
def test_real_masks_lie_inside_the_family():
    """Good fraction, number of bad runs and bad share of NRS1 of a real mask are within what is drawn."""
    for spectrum in read_spectra(SPECTRA):
        outside = (spectrum.wavelength < 3.684) | (spectrum.wavelength > 3.788)
        wavelength, good = spectrum.wavelength[outside], spectrum.good[outside]
        full = np.interp(wavelength, spectrum.wavelength[spectrum.good], spectrum.flux[spectrum.good])
        flux = np.clip(full, 1e-2 * np.median(full), None).astype(np.float32)
        mask, _, _ = draw(800, wavelength, flux / np.median(flux))
        blue = wavelength < 3.684
        drawn = np.array([(m.mean(), runs(~m)[0].size, (~m[blue]).mean()) for m in mask])
        found = (good.mean(), runs(~good)[0].size, (~good[blue]).mean())
        assert (drawn.min(axis=0) <= found).all(), spectrum.name
        assert (drawn.max(axis=0) >= found).all(), spectrum.name
