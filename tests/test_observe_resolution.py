"""Only G395H is read as G395H: another disperser is refused by name, from its header or from its pixels."""

import numpy as np
import pytest
import stdatamodels.jwst.datamodels as dm
from astropy import units as u
from astropy.table import QTable
from x1d_files import NRS1, NRS2, save_x1d, smooth, table

import kappaflow as kf
from kappaflow.errors import UserError
from kappaflow.instrument import CALIBRATION_END, PIXEL, pixel_grid
from kappaflow.observe import Spectrum
from kappaflow.observe.resampling import on_pixels

LAPTOP, PAPER = pixel_grid(2).mean(axis=0), pixel_grid(1).mean(axis=0)
MEDIUM, PRISM = 1.79e-3, 6e-3  # um, pitch of G395M and of the prism around 4 um


def save(path, wavelength, grating, filter_="F290LP"):
    """An x1d product of another grating: `save_x1d` writes G395H."""
    from astropy.io import fits

    save_x1d(path, table(dm.SpecModel, wavelength))
    with fits.open(path, mode="update") as hdus:
        hdus[0].header["GRATING"], hdus[0].header["FILTER"] = grating, filter_
    return path


def _calibrated(wavelength):
    return (wavelength < CALIBRATION_END[0] - PIXEL) | (wavelength > CALIBRATION_END[1] + PIXEL)


def text(path, wavelength, header=""):
    rows = "\n".join(f"{w:.8f} {1e3 * smooth(w):.8e} 0.02" for w in wavelength)
    path.write_text(f"{header}# wave(um) flux(mJy) err(mJy)\n{rows}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("grating", "filter_"), [("PRISM", "CLEAR"), ("G395M", "F290LP"), ("G235H", "F170LP")])
def test_another_disperser_in_the_header_is_refused_by_name(tmp_path, grating, filter_):
    path = save(tmp_path / "x1d.fits", np.arange(2.87, 5.27, MEDIUM), grating, filter_)
    with pytest.raises(UserError, match=f"x1d.fits: a spectrum of {grating}; expected NIRSpec G395H"):
        kf.read_spectrum(path)


def test_another_instrument_in_an_ecsv_is_refused_by_name(tmp_path):
    wave = np.arange(2.87, 5.2, 0.001)
    rows = QTable([wave * u.um, smooth(wave) * u.Jy, np.full(wave.size, 1e-5) * u.Jy], names=("wave", "flux", "err"))
    rows.meta["instrument"] = "JWST NIRCam WFSS"
    rows.write(tmp_path / "x.ecsv")
    with pytest.raises(UserError, match="NIRCAM"):
        kf.read_spectrum(tmp_path / "x.ecsv")


def test_the_packaged_example_says_that_it_is_ours():
    from kappaflow.observe.example import example_spectrum

    assert "G395H" in example_spectrum().meta["instrument"]


def test_what_is_of_another_disperser_among_ours_is_masked_and_said(tmp_path):
    ours = [save_x1d(tmp_path / "nrs1.fits", table(dm.SpecModel, NRS1))]
    ours.append(save_x1d(tmp_path / "nrs2.fits", table(dm.SpecModel, NRS2), detector="NRS2"))
    other = save(tmp_path / "prism.fits", np.arange(2.87, 5.27, PRISM), "PRISM", "CLEAR")
    alone, mixed = kf.read_spectrum(*ours), kf.read_spectrum(*ours, other)
    np.testing.assert_array_equal(alone.flux, mixed.flux)
    np.testing.assert_array_equal(alone.wavelength, mixed.wavelength)
    assert any("PRISM" in note for note in mixed.meta["notes"])
    assert mixed.meta["rows"]["of PRISM"] == len(np.arange(2.87, 5.27, PRISM))
    assert mixed.meta["rows"]["read"] == alone.meta["rows"]["read"] + mixed.meta["rows"]["of PRISM"]


@pytest.mark.parametrize(("pitch", "said"), [(MEDIUM, "like G395M's"), (PRISM, "like the PRISM's"), (2.5e-3, "binned")])
def test_pixels_of_another_disperser_are_refused_where_no_header_tells(tmp_path, pitch, said):
    native = kf.read_spectrum(text(tmp_path / "x.txt", np.arange(2.87, 5.27, pitch)))
    with pytest.raises(UserError, match=said) as caught:
        on_pixels(native, LAPTOP)
    assert "x.txt" in str(caught.value)


@pytest.mark.parametrize(("binning", "pixels"), [(1, PAPER), (1, LAPTOP), (2, LAPTOP)])
def test_our_own_pixels_single_or_binned_as_the_model_does_pass(binning, pixels):
    wave = pixel_grid(binning).mean(axis=0)
    native = Spectrum(wave, smooth(wave), np.full(wave.size, 1e-5), np.ones(wave.size, bool))
    found = on_pixels(native, pixels)
    assert found.mask[_calibrated(found.wavelength)].all()
    assert "notes" not in found.meta


def test_pixels_binned_further_than_the_models_are_refused():
    wave = pixel_grid(2).mean(axis=0)
    native = Spectrum(wave, smooth(wave), np.full(wave.size, 1e-5), np.ones(wave.size, bool))
    with pytest.raises(UserError, match="know no other resolution"):
        on_pixels(native, PAPER)


def test_a_coarse_piece_of_a_file_is_masked_and_said(tmp_path):
    wave = np.concatenate([np.arange(2.87, 3.6, MEDIUM), NRS2])
    found = on_pixels(kf.read_spectrum(text(tmp_path / "x.txt", wave)), LAPTOP)
    assert not found.mask[LAPTOP < 3.5].any()
    assert found.mask[(LAPTOP > 3.8) & _calibrated(LAPTOP)].all()
    assert any("like G395M's, were masked" in note for note in found.meta["notes"])
    assert found.meta["rows"]["too coarse"] > 300


def test_rows_left_out_are_no_coarse_pixels():
    keep = np.random.default_rng(0).random(NRS2.size) > 0.4  # more than half of the spacings stay single
    wave = NRS2[keep]
    native = Spectrum(wave, smooth(wave), np.full(wave.size, 1e-5), np.ones(wave.size, bool))
    assert "notes" not in on_pixels(native, LAPTOP).meta


def test_pixels_finer_than_the_detectors_are_said():
    wave = np.arange(2.87, 5.27, PIXEL / 4)
    native = Spectrum(wave, smooth(wave), np.full(wave.size, 1e-5), np.ones(wave.size, bool))
    assert "finer than G395H" in on_pixels(native, LAPTOP).meta["notes"][0]


def test_a_range_is_left_out_where_the_user_says_so(tmp_path):
    path = text(tmp_path / "x.txt", NRS2)
    whole, cut = kf.read_spectrum(path), kf.read_spectrum(path, mask=["4.2:4.4", "5:6"])
    left = ((whole.wavelength >= 4.2) & (whole.wavelength <= 4.4)) | (whole.wavelength >= 5)
    np.testing.assert_array_equal(cut.mask, whole.mask & ~left)
    assert cut.meta["rows"]["in --mask 4.2:4.4"] == int((left & (whole.wavelength < 5)).sum())
    for wrong in ("4.4:4.2", "4.2", "a:b", "nan:5", ":"):
        with pytest.raises(UserError, match="--mask"):
            kf.read_spectrum(path, mask=wrong)
