"""Uploads that mean no good, and some that are only broken: a name, a body and whether it is a real spectrum."""

import gzip
import io
import pickle
import zipfile
from functools import cache

import numpy as np
from astropy.io import fits

NAMES = [
    "../../../../etc/passwd",
    "..\\..\\windows\\system32\\evil.fits",
    "/etc/cron.d/evil",
    "C:\\evil.csv",
    "....//....//x",
    "a/../../job.json",
    "job.json",
    "everything.zip",
    "x\x00.fits",
    "x\r\nSet-Cookie: a=b",
    "<img src=x onerror=alert(1)>.csv",
    "'; DROP TABLE jobs; --.csv",
    "=HYPERLINK(1).csv",
    "{{7*7}}.csv",
    "${jndi:ldap://x}",
    "CON",
    "nul.txt",
    "\u202efits.exe",
    "😀" * 300,
    "x" * 5000,
    ".",
    "..",
    "",
    " ",
    "~root/.ssh/authorized_keys",
    "%2e%2e%2fevil",
    "file:///etc/passwd",
    "λ µm — spectrum.csv",
]
WAVE = np.arange(2.9, 5.2, 0.0015)


class Explosive:
    """What a pickle could do: make a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def good_text(rng=None):
    flux = 1 + 0.3 * np.sin(9 * WAVE) + (0 if rng is None else 0.02 * rng.standard_normal(WAVE.size))
    rows = "\n".join(f"{w:.5f} {f:.5f} 0.02" for w, f in zip(WAVE, flux, strict=True))
    return f"# wave(um) flux(mJy) err(mJy)\n{rows}\n".encode()


@cache
def good_fits():
    columns = [
        fits.Column("WAVELENGTH", "D", unit="um", array=WAVE),
        fits.Column("FLUX", "D", unit="Jy", array=1e-3 * (1 + 0.3 * np.sin(9 * WAVE))),
        fits.Column("FLUX_ERROR", "D", unit="Jy", array=np.full(WAVE.size, 2e-5)),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="EXTRACT1D")
    primary = fits.PrimaryHDU()
    primary.header["TARGNAME"] = "made up"
    primary.header["GRATING"] = "G395H"
    stream = io.BytesIO()
    fits.HDUList([primary, table]).writeto(stream)
    return stream.getvalue()


@cache
def gzip_bomb(megabytes):
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as packed:
        packed.write(b"SIMPLE  =                    T" + b" " * 50)
        for _ in range(megabytes):
            packed.write(bytes(1_000_000))
    return stream.getvalue()


@cache
def zip_bomb():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(20):
            archive.writestr(f"../../evil-{k}", bytes(1_000_000))
    return stream.getvalue()


def pickled(evil):
    return pickle.dumps(Explosive(evil))


def npz_of_objects(evil):
    stream = io.BytesIO()
    np.savez(stream, flux=np.array([Explosive(evil)], dtype=object))
    return stream.getvalue()


def ecsv_that_calls(evil):
    return (
        f"# %ECSV 1.0\n# ---\n# datatype: !!python/object/apply:builtins.open ['{evil}', 'w']\nwave flux err\n".encode()
    )


def huge_header(cards):
    card = b"COMMENT" + b"x" * 73
    return b"SIMPLE  =                    T".ljust(80) + card * cards


def damaged(rng):
    data = bytearray(good_fits())
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, min(len(data), 9000)))
        kind = rng.integers(0, 3)
        if kind == 0:
            data = data[: max(1, int(rng.integers(1, len(data))))]
        elif kind == 1:
            piece = rng.bytes(int(rng.integers(1, 30)))
            data[at : at + len(piece)] = piece
        else:
            start = at // 80 * 80 + 10
            data[start : start + 20] = b"%20d" % int(rng.choice([-1, 0, 10**6, 10**12, 2**62]))
    return bytes(data)


def odd_table(rng):
    words = ["nan", "inf", "-inf", "1e400", "", "--", "=1+1", "1_000", "0x10", "3.5", "4.2", "1e-320", "'", "\x0b"]
    rows = [",".join(rng.choice(words, 3)) for _ in range(int(rng.integers(1, 400)))]
    head = str(rng.choice(["wave,flux,err", "wavelength[um],flux(mJy),err", "a,b,c", "# wave flux err"]))
    return "\n".join([head, *rows]).encode()


def all_nan():
    rows = "\n".join(f"{w:.4f} nan nan" for w in WAVE)
    return f"# wave(um) flux(mJy) err(mJy)\n{rows}\n".encode()


def hostile(k, evil, *, bomb=30):
    """The k-th upload: (name, body, whether it must be read). `evil` is a path that must never come to be."""
    rng = np.random.default_rng(k)
    kinds = [
        lambda: good_text(rng),
        good_fits,
        lambda: damaged(rng),
        lambda: odd_table(rng),
        lambda: pickled(evil),
        lambda: npz_of_objects(evil),
        lambda: ecsv_that_calls(evil),
        lambda: gzip_bomb(bomb),
        zip_bomb,
        lambda: huge_header(int(rng.integers(100, 20_000))),
        lambda: good_fits()[: int(rng.integers(1, len(good_fits())))],
        all_nan,
        lambda: rng.bytes(int(rng.integers(1, 4000))),
        lambda: b"SIMPLE  =" + rng.bytes(400),
        lambda: b"\x1f\x8b\x08" + rng.bytes(400),
        lambda: b"# %ECSV 1.0\n# ---\n# " + b"[" * 4000 + b"\nwave\n1\n",
        lambda: b",".join([b"1"] * 50_000),
        lambda: b"<html><script>alert(1)</script></html>",
        lambda: damaged(rng)[::-1],
        lambda: gzip.compress(good_fits()),
    ]
    which = k % len(kinds)
    name = str(NAMES[int(rng.integers(len(NAMES)))]) if rng.random() < 0.7 else f"spectrum-{k}.fits"
    return name, kinds[which](), which in (0, 1, 19)
