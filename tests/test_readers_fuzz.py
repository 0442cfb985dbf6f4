"""Two thousand malformed files: one clear line each, no hang, nothing run, nothing written."""

import functools
import signal
import sys
import tempfile
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import stdatamodels.jwst.datamodels as dm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from x1d_files import save_x1d, table

from kappaflow.errors import UserError
from kappaflow.observe import Spectrum, read_spectrum

WAVE = np.arange(3.0, 3.8, 0.002)
HANG = 300  # seconds, far beyond any file: a reader that loops is ended, not measured
EXAMPLES = 500  # for each of four kinds of damage
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
HINTS = st.sampled_from(
    [
        {},
        {"flux_unit": "mJy"},
        {"flux_unit": "erg/s/cm2/A", "wavelength_unit": "Angstrom"},
        {"flux_unit": "W/m2/um", "medium": "air"},
        {"columns": "1,2,3", "flux_unit": "Jy"},
        {"source": "S200A1"},
    ]
)
FORBIDDEN = ("subprocess", "os.system", "os.exec", "os.remove", "os.rename", "os.mkdir", "socket", "pickle", "shutil")
_events: list | None = None


def _listen(event, arguments):
    """Note what must not happen while a file is read: writing, deleting, running, unpickling, calling out."""
    if _events is None:
        return
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        _events.append((event, arguments[0]))
    elif event.startswith(FORBIDDEN):
        _events.append((event, arguments[:1]))


sys.addaudithook(_listen)


class Hung(BaseException):
    """Not an Exception, lest the reader take it for a damaged file."""


def _hung(*_):
    raise Hung("a file kept the reader busy")


@contextmanager
def watched():
    global _events
    _events = []
    previous = signal.signal(signal.SIGALRM, _hung)
    signal.alarm(HANG)
    try:
        yield _events
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
        _events = None


def survives(name, content, hints):
    """Read `content`: a spectrum that makes sense, or a UserError of one line; no event that must not happen."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with watched() as events:
            try:
                spectrum = read_spectrum(path, **hints)
                line = name
            except UserError as error:
                spectrum, line = None, str(error)
        assert name in line
        assert "\n" not in line
        assert len(line) < 600
        assert events == []
        assert [p.name for p in Path(folder).iterdir()] == [name]
        assert path.read_bytes() == content
    if spectrum is not None:
        assert isinstance(spectrum, Spectrum)
        good = spectrum.mask
        assert good.any()
        assert np.isfinite(spectrum.flux[good]).all()
        assert (spectrum.error[good] > 0).all()
        assert (np.diff(spectrum.wavelength) > 0).all()


@functools.cache
def x1d():
    with tempfile.TemporaryDirectory() as folder:
        rows = [table(dm.SpecModel, WAVE), table(dm.SpecModel, WAVE)]
        return save_x1d(Path(folder) / "a_x1d.fits", *rows).read_bytes()


@st.composite
def damaged(draw, whole):
    """Cut, overwrite, repeat or swap pieces of a good file, mostly in its headers."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        at = (
            draw(st.integers(0, len(data) - 1))
            if draw(st.booleans())
            else draw(st.integers(0, min(8640, len(data) - 1)))
        )
        kind = draw(st.sampled_from(["cut", "write", "digits", "insert", "repeat"]))
        if kind == "cut":
            del data[at : at + draw(st.sampled_from([1, 80, 2880, 10**6]))]
        elif kind == "write":
            piece = draw(st.binary(min_size=1, max_size=16))
            data[at : at + len(piece)] = piece
        elif kind == "digits":
            start = at // 80 * 80 + 10
            data[start : start + 20] = b"%20d" % draw(st.sampled_from([-1, 0, 1, 3, 10**6, 10**12, 2**62]))
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=100))
        else:
            data[at:at] = data[at : at + 2880]
        if not data:
            data = bytearray(b"S")
    return bytes(data)


@fuzz
@given(st.data(), HINTS)
def test_damaged_fits(data, hints):
    survives("a_x1d.fits", data.draw(damaged(x1d())), hints)


GOOD_TEXT = (
    "# %ECSV 1.0\n# ---\n# datatype:\n# - {name: wavelength, unit: um, datatype: float64}\n"
    "# - {name: flux, unit: mJy, datatype: float64}\n# - {name: unc, unit: mJy, datatype: float64}\n"
    "# meta: !!omap\n# - {medium: vacuum}\n# schema: astropy-2.0\nwavelength flux unc\n"
    + "\n".join(f"{w:.4f} {np.sin(9 * w):.5f} 0.01" for w in WAVE)
).encode()


@fuzz
@given(damaged(GOOD_TEXT), HINTS)
def test_damaged_ecsv(content, hints):
    survives("a.ecsv", content, hints)


NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.floats(2.8, 5.3).map(repr),
    st.integers(-(10**30), 10**30).map(str),
    st.sampled_from(["", "nan", "--", '""', "1e400", "0x10", "1_000", "١", "True", "None", "1d5", "=1+1", "-0"]),
)
NAMES = st.sampled_from(
    [
        "wave",
        "wavelength[um]",
        "flux",
        "flux(mJy)",
        "err",
        "unc [W/m2/um]",
        "dq",
        "good",
        "",
        "f\x0blux",
        "λ",
        "m**9[m^9]",
    ]
)


@st.composite
def odd_tables(draw):
    """Tables of odd numbers under odd names, in odd shapes."""
    delimiter = draw(st.sampled_from([",", " ", "\t", ";", "|", ", "]))
    columns = draw(st.integers(0, 5))
    lines = draw(st.lists(st.sampled_from(["# flux [Jy]", "#", "# (um) (erg/s/cm2/A)", "\\", "% [[[((("]), max_size=3))
    if draw(st.booleans()):
        lines.append(delimiter.join(draw(st.lists(NAMES, min_size=columns, max_size=columns))))
    if draw(st.booleans()):
        lines += [delimiter.join([f"{w:.3f}", "1.0", "0.1", *["0"] * (columns - 3)]) for w in WAVE]
    for _ in range(draw(st.integers(0, 8))):
        width = columns if draw(st.integers(0, 3)) else draw(st.integers(0, 6))
        row = delimiter.join(draw(st.lists(NUMBERS, min_size=width, max_size=width)))
        lines.insert(draw(st.integers(0, len(lines))), row)
    return draw(st.sampled_from(["\n", "\r\n", "\r", "\x0c"])).join(lines).encode("utf-8", "surrogatepass")


@fuzz
@given(odd_tables(), HINTS)
def test_odd_tables(content, hints):
    survives("a.csv", content, hints)


@fuzz
@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=200).map(lambda b: b"SIMPLE  =" + b),
        st.binary(max_size=200).map(lambda b: b"\x1f\x8b\x08" + b),
        st.binary(max_size=200).map(lambda b: b"\x80\x04\x95" + b),  # how a pickle begins
        st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")),
        st.text(max_size=200).map(
            lambda t: b"# %ECSV 1.0\n# ---\n# " + t.encode("utf-8", "surrogatepass") + b"\n1 2 3\n"
        ),
    ),
    HINTS,
)
def test_anything_at_all(content, hints):
    survives("a.bin", content, hints)


def test_the_watcher_sees_what_it_watches_for(tmp_path):
    with watched() as events:
        (tmp_path / "x").write_text("x")
        (tmp_path / "x").unlink()
    assert [event for event, _ in events] == ["open", "os.remove"]


def test_a_header_that_claims_a_trillion_columns_or_axes_takes_no_memory():
    for card in (b"TFIELDS =", b"NAXIS   ="):
        for claim in (3, 10**6, 2**62):
            content = bytearray(x1d())
            at = content.index(card)
            content[at + 10 : at + 30] = b"%20d" % claim
            tracemalloc.start()
            try:
                survives("a_x1d.fits", bytes(content), {})
                assert tracemalloc.get_traced_memory()[1] < 50e6
            finally:
                tracemalloc.stop()


def test_a_long_unit_a_deep_header_and_a_wide_table_come_to_an_end():
    deep = b"# %ECSV 1.0\n# ---\n# " + b"[" * 5000 + b"\nwave\n1\n"
    bomb = b"# %ECSV 1.0\n# ---\n# a: &a [1,1]\n# b: &b [*a,*a,*a]\n# c: &c [*b,*b,*b]\n# d: [*c,*c]\nwave\n1\n"
    for content in (deep, bomb, b"# [" + b"m*" * 5000 + b"]\n1 2 3\n", b",".join([b"1"] * 100_000), b"1 " * 10**6):
        survives("a.txt", content, {})
