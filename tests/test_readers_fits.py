"""JWST products, written with the pipeline's own data models, become one spectrum."""

import gzip

import numpy as np
import pytest
import stdatamodels.jwst.datamodels as dm
from astropy.io import fits
from astropy.table import Table
from x1d_files import NRS1, NRS2, save_c1d, save_x1d, save_x1dints, smooth, table

from kappaflow.errors import UserError
from kappaflow.observe import read_spectrum


def mjy(wavelength):
    return 1e3 * smooth(wavelength)


def test_an_x1d_file_gives_its_own_numbers_in_mjy(tmp_path):
    spectrum = read_spectrum(save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1)))
    np.testing.assert_array_equal(spectrum.wavelength, NRS1)
    np.testing.assert_allclose(spectrum.flux, mjy(NRS1))
    np.testing.assert_allclose(spectrum.error, 0.02)
    assert spectrum.mask.all()
    assert spectrum.meta["medium"] == "vacuum"
    assert spectrum.meta["detector"] == "NRS1"
    assert spectrum.meta["target"] == "2MASS J04151954-0935066"


def test_do_not_use_masks_and_other_dq_bits_do_not(tmp_path):
    dq = np.zeros(NRS1.size, dtype=np.uint32)
    dq[10], dq[11], dq[12] = 1, 4, 5  # DO_NOT_USE, JUMP_DET, both
    spectrum = read_spectrum(save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1, DQ=dq)))
    assert list(np.flatnonzero(~spectrum.mask)) == [10, 12]
    assert spectrum.meta["rows"]["flagged"] == 2


def test_nan_flux_and_zero_or_missing_errors_are_masked_and_negative_flux_kept(tmp_path):
    rows = table(dm.SpecModel, NRS1)
    rows["FLUX"][3], rows["FLUX_ERROR"][4], rows["FLUX_ERROR"][5] = np.nan, 0.0, np.nan
    spectrum = read_spectrum(save_x1d(tmp_path / "a_x1d.fits", rows))
    assert list(np.flatnonzero(~spectrum.mask)) == [3, 4, 5]
    assert (spectrum.flux[spectrum.mask] < 0).any()


def test_two_detectors_in_two_files_join_and_keep_the_gap(tmp_path):
    first = save_x1d(tmp_path / "nrs1_x1d.fits", table(dm.SpecModel, NRS1))
    second = save_x1d(tmp_path / "nrs2_x1d.fits", table(dm.SpecModel, NRS2), detector="NRS2")
    for paths in ((first, second), (second, first)):
        spectrum = read_spectrum(*paths)
        np.testing.assert_array_equal(spectrum.wavelength, np.concatenate([NRS1, NRS2]))
        assert spectrum.meta["covered_fraction"] == pytest.approx(1 - 0.104 / 2.4, abs=0.003)
    assert set(spectrum.meta["detector"]) == {"NRS1", "NRS2"}


def test_the_detector_offset_scales_the_second_detector_alone(tmp_path):
    paths = [
        save_x1d(tmp_path / f"{name}_x1d.fits", table(dm.SpecModel, wave), detector=name)
        for name, wave in (("NRS1", NRS1), ("NRS2", NRS2))
    ]
    plain, scaled = read_spectrum(*paths), read_spectrum(*paths, detector_offset=0.03)
    ratio = scaled.flux / plain.flux
    np.testing.assert_allclose(ratio[: NRS1.size], 1.0)
    np.testing.assert_allclose(ratio[NRS1.size :], 1.03)
    np.testing.assert_allclose(scaled.error[NRS1.size :], 1.03 * plain.error[NRS1.size :])


def test_dithers_on_one_grid_average_with_inverse_variance(tmp_path):
    a = table(dm.SpecModel, NRS1, FLUX=1.0, FLUX_ERROR=0.1)
    b = table(dm.SpecModel, NRS1, FLUX=2.0, FLUX_ERROR=0.2)
    b["DQ"][7] = 1
    a["DQ"][8] = 1
    spectrum = read_spectrum(save_x1d(tmp_path / "a_x1d.fits", a, b))  # weights 100 and 25
    assert spectrum.flux[0] == pytest.approx(1e3 * (100 * 1 + 25 * 2) / 125)
    assert spectrum.error[0] == pytest.approx(1e3 * 125**-0.5)
    assert spectrum.flux[7] == pytest.approx(1e3)
    assert spectrum.flux[8] == pytest.approx(2e3)
    assert spectrum.error[8] == pytest.approx(200.0)
    assert spectrum.mask.all()
    assert spectrum.meta["repeat_rms"] == pytest.approx(1 / np.hypot(0.1, 0.2))


def test_dithers_off_by_half_a_pixel_agree_with_the_truth_and_gain_precision(tmp_path):
    rng = np.random.default_rng(0)
    grids = [NRS1, NRS1 + 0.000334]
    tables = [table(dm.SpecModel, w, FLUX=smooth(w) + rng.normal(0, 2e-5, w.size)) for w in grids]
    spectrum = read_spectrum(save_x1d(tmp_path / "a_x1d.fits", *tables))
    np.testing.assert_array_equal(spectrum.wavelength, NRS1)  # the pixels of the first stay
    pull = (spectrum.flux - mjy(spectrum.wavelength)) / spectrum.error
    assert np.std(pull) == pytest.approx(1.0, abs=0.06)
    assert np.median(spectrum.error) == pytest.approx(0.02 / np.sqrt(3), rel=0.01)  # 1/s2, and 2/s2 from two halves
    assert 0.8 < spectrum.meta["repeat_rms"] < 1.2


def test_exposures_that_disagree_leave_a_note(tmp_path):
    a = table(dm.SpecModel, NRS1)
    b = table(dm.SpecModel, NRS1, FLUX=smooth(NRS1) + 2e-3)
    assert "differ by" in read_spectrum(save_x1d(tmp_path / "a_x1d.fits", a, b)).meta["notes"][0]


def test_a_time_series_is_averaged_over_its_integrations_without_the_padding(tmp_path):
    rng = np.random.default_rng(1)
    integrations = [smooth(NRS1) + rng.normal(0, 1e-4, NRS1.size) for _ in range(25)]
    spectrum = read_spectrum(save_x1dints(tmp_path / "a_x1dints.fits", NRS1, integrations))
    np.testing.assert_array_equal(spectrum.wavelength, NRS1)
    np.testing.assert_allclose(spectrum.flux, 1e3 * np.mean(integrations, axis=0))
    np.testing.assert_allclose(spectrum.error, 0.1 / 5)


def test_an_integration_that_is_all_nan_does_not_spoil_the_others(tmp_path):
    integrations = [smooth(NRS1), np.full(NRS1.size, np.nan)]
    spectrum = read_spectrum(save_x1dints(tmp_path / "a_x1dints.fits", NRS1, integrations))
    np.testing.assert_allclose(spectrum.flux, mjy(NRS1))


def test_a_combined_product_is_read_too(tmp_path):
    spectrum = read_spectrum(save_c1d(tmp_path / "a_c1d.fits", table(dm.CombinedSpecModel, NRS2)))
    np.testing.assert_allclose(spectrum.flux, mjy(NRS2))


def test_two_slits_are_never_blended_unasked(tmp_path):
    rows = [table(dm.SpecModel, NRS1), table(dm.SpecModel, NRS1, FLUX=5.0)]
    path = save_x1d(tmp_path / "a_x1d.fits", *rows, slits=("S200A1", "S1600A1"))
    with pytest.raises(UserError, match=r"S1600A1.*S200A1.*--source"):
        read_spectrum(path)
    np.testing.assert_allclose(read_spectrum(path, source="S1600A1").flux, 5e3)
    assert read_spectrum(path, source="all").flux[0] == pytest.approx(0.5 * (5e3 + mjy(NRS1)[0]))
    with pytest.raises(UserError, match="--source"):
        read_spectrum(path, source="S400A1")


def test_files_of_two_targets_are_never_merged_unasked(tmp_path):
    paths = [
        save_x1d(tmp_path / f"{i}_x1d.fits", table(dm.SpecModel, wave), target=name)
        for i, (wave, name) in enumerate(((NRS1, "2M0415"), (NRS2, "Wolf 1130C")))
    ]
    with pytest.raises(UserError, match=r"several targets \(2M0415, Wolf 1130C\).*--source all"):
        read_spectrum(*paths)
    assert len(read_spectrum(*paths, source="all")) == NRS1.size + NRS2.size


@pytest.mark.parametrize(("unit", "factor"), [("mJy", 1.0), ("Jy", 1e3), ("MJy", 1e9), ("uJy", 1e-3)])
def test_flux_units_per_frequency_are_scaled(tmp_path, unit, factor):
    path = save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1), units=("um", unit))
    np.testing.assert_allclose(read_spectrum(path).flux, factor * smooth(NRS1))


@pytest.mark.parametrize(
    ("unit", "cgs"), [("erg / (s cm2 um)", 1.0), ("erg / (s cm2 Angstrom)", 1e4), ("W / (m2 um)", 1e3)]
)
def test_flux_per_wavelength_follows_lambda_squared_over_c(tmp_path, unit, cgs):
    """f_nu = f_lambda lambda^2 / c, with everything in cm and seconds: written out here without astropy."""
    path = save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1), units=("um", unit))
    per_um = (NRS1 * 1e-4) ** 2 / 2.99792458e10 * 1e4 / 1e-26  # mJy per erg/s/cm2/um
    np.testing.assert_allclose(read_spectrum(path).flux, cgs * per_um * smooth(NRS1), rtol=1e-9)


@pytest.mark.parametrize(
    ("unit", "said"), [(None, "--flux-unit"), (("um", "MJy / sr"), "flux density"), (("um", "DN / s"), "flux density")]
)
def test_a_missing_or_impossible_flux_unit_is_an_error_that_names_the_flag(tmp_path, unit, said):
    path = save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1), units=unit)
    with pytest.raises(UserError, match=said):
        read_spectrum(path)
    np.testing.assert_allclose(read_spectrum(path, flux_unit="Jy").flux, mjy(NRS1))


def test_another_codes_table_with_the_usual_names_is_read(tmp_path):
    Table(
        {"wave": NRS1, "flux": 1e6 * smooth(NRS1), "err": np.full(NRS1.size, 20.0)}, units=("um", "uJy", "uJy")
    ).write(tmp_path / "a.spec.fits")
    np.testing.assert_allclose(read_spectrum(tmp_path / "a.spec.fits").flux, mjy(NRS1))


def test_gzipped_fits_is_read_and_a_gzip_of_anything_else_refused(tmp_path):
    path = save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1))
    (tmp_path / "a_x1d.fits.gz").write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_allclose(read_spectrum(tmp_path / "a_x1d.fits.gz").flux, mjy(NRS1))
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"2.9 1 1\n3.0 1 1\n"))
    with pytest.raises(UserError, match="not FITS"):
        read_spectrum(tmp_path / "b.gz")


def test_an_image_is_refused_with_what_was_expected(tmp_path):
    fits.PrimaryHDU(np.zeros((4, 4))).writeto(tmp_path / "image.fits")
    with pytest.raises(UserError, match=r"neither an EXTRACT1D.*x1d or c1d"):
        read_spectrum(tmp_path / "image.fits")


def test_a_truncated_download_says_so(tmp_path):
    path = save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1))
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(UserError, match="truncated|damaged"):
        read_spectrum(path)


def test_the_asdf_extension_is_never_opened(tmp_path):
    path = save_x1d(tmp_path / "a_x1d.fits", table(dm.SpecModel, NRS1))
    with fits.open(path, mode="update") as hdus:
        hdus["ASDF"].data["ASDF_METADATA"][:] = 255  # no ASDF any more: opening it would fail
    np.testing.assert_allclose(read_spectrum(path).flux, mjy(NRS1))
