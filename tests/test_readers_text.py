"""Columns, CSV and ECSV, with units, without, and wrong."""

import numpy as np
import pytest
from astropy import units as u
from astropy.table import QTable, Table
from astropy.time import Time
from x1d_files import NRS2, smooth

from kappaflow.errors import UserError
from kappaflow.observe import read_spectrum
from kappaflow.observe.units import air_to_vacuum, parse_unit

FLUX = 1e3 * smooth(NRS2)  # mJy
ROWS = np.column_stack([NRS2, FLUX, np.full(NRS2.size, 0.02)])


def write(path, rows=ROWS, header="", delimiter=" ", unit_of_wavelength=1.0):
    rows = rows * np.array([unit_of_wavelength, *[1.0] * (rows.shape[1] - 1)])
    body = "\n".join(delimiter.join(repr(float(v)) for v in row) for row in rows)
    path.write_text((header + "\n" if header else "") + body + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("# wl(um) flux(mJy) eflux(mJy)", " "),
        ("wavelength[um],flux[mJy],flux_error[mJy]", ","),
        ("Wavelength (micron);Flux (mJy);Unc (mJy)", ";"),
        ("wave_um\tflux_mJy\terr_mJy", "\t"),
        ("# made by hand\n# Wavelength [um], Flux Density [mJy]", " "),
        ("# wavelength in (um), flux in (mJy)", "\t"),
    ],
)
def test_units_in_any_usual_kind_of_header_are_understood(tmp_path, header, delimiter):
    spectrum = read_spectrum(write(tmp_path / "a.txt", header=header, delimiter=delimiter))
    np.testing.assert_array_equal(spectrum.wavelength, NRS2)
    np.testing.assert_allclose(spectrum.flux, FLUX)
    np.testing.assert_allclose(spectrum.error, 0.02)


@pytest.mark.parametrize("format", ["ascii.ecsv", "ascii.csv", "ascii.commented_header"])
def test_what_astropy_writes_is_read_back(tmp_path, format):
    Table({"wavelength": NRS2, "flux": FLUX, "unc": ROWS[:, 2]}, units=("um", "mJy", "mJy")).write(
        tmp_path / "a.txt", format=format
    )
    hint = {} if format == "ascii.ecsv" else {"flux_unit": "mJy"}
    np.testing.assert_allclose(read_spectrum(tmp_path / "a.txt", **hint).flux, FLUX)


def test_a_qtable_of_astropy_is_read_and_none_of_its_objects_made(tmp_path):
    """Its header holds astropy's tags, for quantities and times; names, units and numbers are beside them."""
    table = QTable([NRS2 * u.um, FLUX * u.mJy, ROWS[:, 2] * u.mJy], names=("wavelength", "flux", "unc"))
    table.meta = {"target": "made up", "observed": Time("2024-01-01")}
    table.write(tmp_path / "a.ecsv", format="ascii.ecsv")
    assert "!astropy" in (tmp_path / "a.ecsv").read_text()
    spectrum = read_spectrum(tmp_path / "a.ecsv")
    np.testing.assert_allclose(spectrum.flux, FLUX)
    assert spectrum.meta["target"] == "made up"
    assert "observed" not in spectrum.meta


def test_an_ecsv_states_units_per_column_its_medium_and_its_good_rows(tmp_path):
    good = np.ones(NRS2.size, bool)
    good[5] = False
    flux = (FLUX * u.mJy).to("W m-2 um-1", u.spectral_density(NRS2 * u.um))
    sigma = np.full(NRS2.size, 2e-5) * u.Jy
    meta = {"medium": "vacuum", "target": "made up", "nested": {"ignored": 1}}
    Table([NRS2 * 1e4 * u.AA, flux, sigma, good], names=("wave", "flux", "err", "good"), meta=meta).write(
        tmp_path / "a.ecsv", format="ascii.ecsv"
    )
    spectrum = read_spectrum(tmp_path / "a.ecsv")
    np.testing.assert_allclose(spectrum.wavelength, NRS2)
    np.testing.assert_allclose(spectrum.flux, FLUX)
    np.testing.assert_allclose(spectrum.error, 0.02)
    assert list(np.flatnonzero(~spectrum.mask)) == [5]
    assert spectrum.meta["medium"] == "vacuum"
    assert spectrum.meta["target"] == "made up"


def test_a_missing_flux_unit_is_asked_for_by_its_flag(tmp_path):
    path = write(tmp_path / "a.csv", header="wave,flux,unc", delimiter=",")
    with pytest.raises(UserError, match=r"a\.csv: column 'flux' has no unit.*--flux-unit"):
        read_spectrum(path)
    spectrum = read_spectrum(path, flux_unit="mJy")
    np.testing.assert_allclose(spectrum.flux, FLUX)
    assert "inferred" in spectrum.meta["wavelength_unit"]


def test_a_unit_that_contradicts_the_files_own_is_refused_and_the_same_one_is_not(tmp_path):
    """A catalogue's --flux-unit is for the files that are silent: 2M0415 in Jy was read as erg, without a word."""
    path = write(tmp_path / "a.csv", header="wave(um),flux(mJy),unc(mJy)", delimiter=",")
    with pytest.raises(UserError, match=r"a\.csv: column 'flux' has unit 'mJy', --flux-unit says 'Jy'; leave it out"):
        read_spectrum(path, flux_unit="Jy")
    np.testing.assert_allclose(read_spectrum(path, flux_unit="mJy").flux, FLUX)


def test_a_medium_that_contradicts_the_files_own_is_refused(tmp_path):
    table = Table([NRS2 * u.um, FLUX * u.mJy, 0.02 * FLUX * u.mJy], names=("wave", "flux", "err"))
    table.meta["medium"] = "vacuum"
    table.write(tmp_path / "a.ecsv", format="ascii.ecsv")
    with pytest.raises(UserError, match="states vacuum, --medium says air"):
        read_spectrum(tmp_path / "a.ecsv", medium="air")
    assert read_spectrum(tmp_path / "a.ecsv", medium="vacuum").meta["medium"] == "vacuum"


@pytest.mark.parametrize(("factor", "unit"), [(1e4, "Angstrom"), (1e3, "nm")])
@pytest.mark.parametrize("header", ["wave,flux(mJy),unc", "wave(um),flux(mJy),unc(mJy)"])
def test_another_wavelength_unit_is_detected_named_and_accepted_by_flag(tmp_path, factor, unit, header):
    path = write(tmp_path / "a.csv", header=header, delimiter=",", unit_of_wavelength=factor)
    with pytest.raises(UserError, match=f"looks like {unit}: pass --wavelength-unit {unit}"):
        read_spectrum(path)
    np.testing.assert_allclose(read_spectrum(path, wavelength_unit=unit).wavelength, NRS2)


def test_wavenumbers_are_a_wavelength_unit_too(tmp_path):
    rows = ROWS.copy()
    rows[:, 0] = 1e4 / NRS2
    spectrum = read_spectrum(write(tmp_path / "a.txt", rows), wavelength_unit="cm-1", flux_unit="mJy")
    np.testing.assert_allclose(spectrum.wavelength, NRS2)
    np.testing.assert_allclose(spectrum.flux, FLUX)


def test_air_wavelengths_are_moved_to_vacuum_when_the_user_says_air(tmp_path):
    """Mathar (2007) gives n - 1 = 2.726e-4 near 4 um for standard dry air: a shift of 82 km/s."""
    path = write(tmp_path / "a.txt")
    vacuum, air = read_spectrum(path, flux_unit="mJy"), read_spectrum(path, flux_unit="mJy", medium="air")
    assert vacuum.meta["medium"] == "vacuum (assumed)"
    assert air.meta["medium"] == "air"
    np.testing.assert_allclose(air.wavelength / vacuum.wavelength - 1, 2.726e-4, rtol=0.005)
    assert air_to_vacuum(np.array([0.5]))[0] == pytest.approx(0.500139, abs=1e-6)  # Ciddor (1996): n - 1 = 2.789e-4


def test_rows_in_any_order_and_repeated_wavelengths_have_one_meaning(tmp_path):
    rng = np.random.default_rng(2)
    rows = np.vstack([ROWS, ROWS[100]])
    rows[-1, 1:] = 7.0, 0.04
    spectrum = read_spectrum(write(tmp_path / "a.txt", rows[rng.permutation(len(rows))]), flux_unit="mJy")
    np.testing.assert_array_equal(spectrum.wavelength, NRS2)
    assert spectrum.flux[100] == pytest.approx((FLUX[100] * 4 + 7.0) / 5)
    assert spectrum.error[100] == pytest.approx((0.02**-2 + 0.04**-2) ** -0.5)
    assert spectrum.meta["rows"]["same wavelength"] == 1


def test_missing_values_however_written_are_masked(tmp_path):
    lines = [" ".join(map(str, row)) for row in ROWS]
    for k, word in enumerate(('""', "nan", "--", "null", "inf", "-1", "0.0")):
        lines[10 + k] = f"{ROWS[10 + k, 0]} 1.0 {word}"
    (tmp_path / "a.txt").write_text("\n".join(lines))
    spectrum = read_spectrum(tmp_path / "a.txt", flux_unit="mJy")
    assert list(np.flatnonzero(~spectrum.mask)) == list(range(10, 17))


def test_columns_are_chosen_by_name_or_number(tmp_path):
    rows = np.column_stack([ROWS[:, 2], ROWS[:, 0], ROWS[:, 1]])
    path = write(tmp_path / "a.csv", rows, header="s,x,y", delimiter=",")
    with pytest.raises(UserError, match=r"no column for.*'s', 'x', 'y'.*--columns"):
        read_spectrum(path, flux_unit="mJy")
    for columns in ("x,y,s", ("2", "3", "1")):
        np.testing.assert_allclose(read_spectrum(path, flux_unit="mJy", columns=columns).flux, FLUX)


@pytest.mark.parametrize(
    "text",
    [
        "wavelength,flux,flux_err\num,mJy,mJy\n3.0,1.5,0.1\n",
        "# wave(um) flux(mJy) err(mJy)\n3.0 1.5D+00 1.0d-1\n",
        "wave;flux(mJy);err\n3,0;1,5;0,1\n",
        "\ufeffwave_um,flux_mJy,err_mJy\r\n3.0,1.5,0.1\r\n",
        ",wave,flux_mJy,err\n0,3.0,1.5,0.1\n",
        '"wave","flux (mJy)","err"\n3.0,1.5,0.1\n',
    ],
    ids=["unit row", "Fortran", "decimal comma", "byte-order mark", "index column", "quoted"],
)
def test_the_habits_of_other_programs_are_understood(tmp_path, text):
    head, row = text.rstrip().rsplit("\n", 1)
    more = [row.replace("3.0", f"{w:.4f}").replace("3,0", f"{w:.4f}".replace(".", ",")) for w in NRS2]
    content = ("\r\n" if "\r" in text else "\n").join([head, *more])
    (tmp_path / "a.txt").write_bytes(content.encode())
    spectrum = read_spectrum(tmp_path / "a.txt")
    np.testing.assert_allclose(spectrum.wavelength, NRS2, atol=1e-4)
    assert (spectrum.flux == 1.5).all()
    assert (spectrum.error == 0.1).all()


def test_a_micro_sign_of_another_encoding_is_read(tmp_path):
    text = "# wave(µm) flux(mJy) err(mJy)\n" + "\n".join(f"{w:.4f} 1.5 0.1" for w in NRS2)
    (tmp_path / "a.txt").write_bytes(text.encode("latin-1"))
    assert (read_spectrum(tmp_path / "a.txt").flux == 1.5).all()


def test_a_mask_column_is_never_guessed_at(tmp_path):
    text = "wave_um,flux_mJy,err_mJy,mask\n" + "\n".join(f"{w:.4f},1.5,0.1,{i % 2}" for i, w in enumerate(NRS2))
    (tmp_path / "a.csv").write_text(text)
    spectrum = read_spectrum(tmp_path / "a.csv")
    assert spectrum.mask.all()
    assert "'good' or 'dq'" in spectrum.meta["notes"][0]


def test_a_column_of_words_is_no_matter_unless_it_is_needed(tmp_path):
    text = "name,wave,flux,unc\n" + "\n".join(f"x,{w},{f},{e}" for w, f, e in ROWS)
    (tmp_path / "a.csv").write_text(text)
    np.testing.assert_allclose(read_spectrum(tmp_path / "a.csv", flux_unit="mJy").flux, FLUX)
    (tmp_path / "b.csv").write_text(text.replace(f"x,{ROWS[3, 0]},", "x,three,"))
    with pytest.raises(UserError, match=r"line 5, column 'wave': 'three' is not a number"):
        read_spectrum(tmp_path / "b.csv", flux_unit="mJy")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"# only a comment\n", "no rows"),
        (b"wave,flux,unc\n", "no rows"),
        (b"3.0 1.0\n3.1 1.0\n", "2 columns.*errors are needed"),
        (b"wave,flux\n3.0,1.0\n3.1,1.0\n", "no column for error"),
        (b"3.0 1.0 0.1\n3.1 1.0\n", "line 2 has 2 columns"),
        (b"wave,wave,unc\n3.0,1.0,1\n3.1,1.0,1\n", "one name"),
        (b"\x80\x81\xff\xfe\x00", "neither FITS nor text"),
        (b"a\x00b", "neither FITS nor text"),
        (b"# [mJy]\n3.0 1.0 0.1\n", "1 usable rows"),
        (b"# [mJy]\n3.0 1.0 0.1\n3.0 1.0 0.1\n", "same wavelength"),
        (b"# [Jy] then [mJy]\n3.0 1.0 0.1\n3.1 1 1\n", "several units.*--flux-unit"),
        (b"# %ECSV 1.0\n# ---\n# !!python/object/apply:os.system ['true']\nwave flux err\n1 2 3\n", "not plain YAML"),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path, content, said):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        read_spectrum(tmp_path / "a.txt")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("a.txt: ")


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="not there"):
        read_spectrum(tmp_path / "nothing.fits")
    with pytest.raises(UserError, match="a folder"):
        read_spectrum(tmp_path)
    with pytest.raises(UserError, match="no file given"):
        read_spectrum()


@pytest.mark.parametrize(
    "hint",
    [
        {"flux_unit": "m"},
        {"wavelength_unit": "Jy"},
        {"medium": "water"},
        {"columns": "a,b"},
        {"detector_offset": 3.0},
        {"colour": "red"},
    ],
)
def test_a_wrong_hint_is_refused(tmp_path, hint):
    with pytest.raises(UserError, match=next(iter(hint)).replace("_", ".")):
        read_spectrum(write(tmp_path / "a.txt"), **hint)


def test_a_spectrum_that_barely_overlaps_is_refused_and_one_that_does_is_not(tmp_path):
    """A tenth of 2.87-5.27 um is the limit: 0.24 um."""
    for end, fine in ((3.05, False), (3.20, True)):
        wave = np.arange(1.0, end, 0.0007)
        path = write(tmp_path / "a.txt", np.column_stack([wave, wave, wave]))
        if fine:
            assert read_spectrum(path, flux_unit="mJy").meta["covered_fraction"] == pytest.approx(0.33 / 2.4, abs=0.002)
        else:
            with pytest.raises(UserError, match=r"cover 7\.\d% of 2.87-5.27 um.*at least 10%"):
                read_spectrum(path, flux_unit="mJy")


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("erg/s/cm2/A", "erg s-1 cm-2 Angstrom-1"),
        ("erg s^-1 cm^-2 um^-1", "erg s-1 cm-2 um-1"),
        ("W m-2 µm-1", "W m-2 um-1"),
        ("1e-15 erg/s/cm2/Å", "1e-15 erg s-1 cm-2 Angstrom-1"),
        ("microns", "um"),
        ("mJy", "mJy"),
        ("MJy", "MJy"),
    ],
)
def test_units_as_people_write_them(text, unit):
    assert parse_unit(text) == u.Unit(unit)


@pytest.mark.parametrize(
    "text", ["", None, "no unit", "m**99999999", "__import__('os')", "Jy" * 60, "(((((", "2", "10**(10**10)"]
)
def test_what_is_no_unit_is_none_and_takes_no_time(text):
    parsed = parse_unit(text)
    assert parsed is None or parsed.is_equivalent("")
