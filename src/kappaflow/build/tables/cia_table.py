"""Build the CIA table: Borysow's files in pyratbay's layout, and petitRADTRANS's in photochem's, onto one grid."""

from pathlib import Path

import h5py
import numpy as np
from scipy.interpolate import PchipInterpolator

from kappaflow.constants import LOSCHMIDT
from kappaflow.errors import UserError
from kappaflow.tables.cia import FAMILIES, PAIRS, CIAFamilies, save_cia

__all__ = ["NU", "TEMPERATURE", "build_cia", "read_borysow", "read_petitradtrans"]

NU = np.arange(1840.0, 3561.0, 20.0)  # cm-1: the window and a margin for Doppler shifts; Borysow's own step
TEMPERATURE = np.array([150, 200, 250, 300, 350, 400, *range(500, 2000, 100), 2000, 2250, 2500, 2750, 3000, 3500.0])

SOURCES = {
    "borysow": (
        "pyratbay_CIA_Borysow_H2H2_0060-7000K_0.6-500um.dat",
        "pyratbay_CIA_Borysow_H2He_0050-3000K_0.3-030um.dat",
    ),
    "petitradtrans": ("photochem_H2-H2.h5", "photochem_H2-He.h5"),
}
# Borysow's H2-H2 at 700 K dips by up to 0.39 dex below its neighbours around 3000 cm-1, where absorption rises with T
# at every other temperature: a flaw of the merged file. 600 and 800 K stand in.
LEFT_OUT = {"pyratbay_CIA_Borysow_H2H2_0060-7000K_0.6-500um.dat": (700.0,)}
META = {
    "what": "H2-H2 and H2-He collision-induced absorption, log10 cm5 molecule-2",
    "interpolation": "log k linear in nu, then monotone cubic in ln T; the edge where a family ends",
    "citations": {
        "borysow": [
            "Borysow, Frommhold & Birnbaum 1988, ApJ 326, 509",
            "Borysow, Frommhold & Moraldi 1989, ApJ 336, 495",
            "Borysow & Frommhold 1989, ApJ 341, 549",
            "Borysow, Jorgensen & Fu 2001, JQSRT 68, 235",
            "Borysow 2002, A&A 390, 779",
        ],
        "petitradtrans": ["Molliere et al. 2019, A&A 627, A67"],
    },
    "validity": {
        "nu [cm-1]": [1840.0, 3560.0],
        "T [K]": [150.0, 3500.0],
        "above 3000 K": "only borysow H2-H2 has data; the others stay at 3000 K",
    },
}


def read_borysow(path: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nu [cm-1], T [K], log10 k [cm5 molecule-2] (T, nu) of a pyratbay CIA file (cm-1 amagat-2)."""
    path = Path(path)
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    try:
        temperature = np.array(lines[lines.index("@TEMPERATURES") + 1].split(), dtype=float)
        rows = [line.split() for line in lines[lines.index("@DATA") + 1 :]]
    except (ValueError, IndexError):
        raise UserError(f"{path}: no @TEMPERATURES and @DATA blocks; expected a pyratbay CIA file") from None
    for n, row in enumerate(rows):
        if len(row) != temperature.size + 1:
            raise UserError(
                f"{path}: data row {n + 1} has {len(row)} columns; expected {temperature.size + 1} "
                "(wavenumber and one coefficient per temperature): is the file truncated?"
            )
    try:
        table = np.array(rows, dtype=float)
    except ValueError as error:
        raise UserError(f"{path}: a coefficient is not a number ({error})") from None
    coefficients = np.maximum(table[:, 1:].T, 1e-99) / LOSCHMIDT**2
    return table[:, 0], temperature, np.log10(coefficients)


def read_petitradtrans(path: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nu [cm-1], T [K], log10 k [cm5 molecule-2] (T, nu) of photochem's HDF5 copy of a petitRADTRANS table."""
    try:
        with h5py.File(path, "r") as file:
            wavelength, temperature, values = (np.asarray(file[n], float) for n in ("wavelengths", "T", "log10xs"))
    except (OSError, KeyError) as error:
        raise UserError(f"{path}: not a photochem CIA file ({error}); expected wavelengths, T and log10xs") from error
    if values.shape != (wavelength.size, temperature.size):
        raise UserError(f"{path}: log10xs is {values.shape}; expected {(wavelength.size, temperature.size)}")
    order = np.argsort(-wavelength)
    return 1e4 / wavelength[order], temperature, values[order].T


def _regridded(path: Path, nu: np.ndarray, temperature: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` (T, nu) on TEMPERATURE x NU: linear in nu, then monotone cubic in ln T, the edge outside in T."""
    if nu[0] > NU[0] or nu[-1] < NU[-1]:
        raise UserError(f"{path}: covers {nu[0]:.0f}-{nu[-1]:.0f} cm-1; expected {NU[0]:.0f}-{NU[-1]:.0f} cm-1")
    if temperature[0] > TEMPERATURE[0]:
        raise UserError(f"{path}: starts at {temperature[0]:.0f} K; expected {TEMPERATURE[0]:.0f} K or colder")
    in_nu = np.stack([np.interp(NU, nu, row) for row in values])
    kept = ~np.isin(temperature, LEFT_OUT.get(path.name, ()))
    wanted = np.clip(TEMPERATURE, temperature[0], temperature[-1])
    return PchipInterpolator(np.log(temperature[kept]), in_nu[kept], axis=0)(np.log(wanted))


def build_cia(data_dir: str | Path, out: str | Path) -> CIAFamilies:
    """Read `data_dir`/cia, write the table to `out` and return it."""
    folder = Path(data_dir) / "cia"
    families = {}
    for family in FAMILIES:
        read = read_borysow if family == "borysow" else read_petitradtrans
        pairs = []
        for name in SOURCES[family]:
            if not (folder / name).is_file():
                raise UserError(f"{folder / name}: no such file; --data must hold the cia folder")
            pairs.append(_regridded(folder / name, *read(folder / name)))
        families[family] = np.stack(pairs).astype(np.float32)
    meta = {**META, "pairs": list(PAIRS), "files": {k: list(v) for k, v in SOURCES.items()}}
    meta["temperatures left out [K]"] = {name: list(kelvin) for name, kelvin in LEFT_OUT.items()}
    table = CIAFamilies(nu=NU, temperature=TEMPERATURE, families=families, meta=meta)
    save_cia(table, out)
    return table
