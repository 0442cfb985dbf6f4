"""Files of posterior draws: what `kappaflow calibrate` reads from any method and writes from its own networks.

An `.npz` or HDF5 (`.h5`, `.hdf5`) file with the entries, n objects, s draws, p parameters:

| entry | shape | |
|---|---|---|
| `truth` | (n, p) | required |
| `draws` | (n, s, p) | required |
| `names` | (p,) text | of the parameters |
| `low`, `high` | (p,) | bounds of the uniform prior, both or neither |
| `log_prob` | (n,) | log density of the posterior at the truth, for the NLL |
| `log_prob_draws` | (n, s) | log density at the draws, for highest-density coverage (needs `log_prob`) |
| `covariates/NAME` | (n,) | further quantities to break down by, such as SNR |

Any other entry is refused, so that no misspelt one is overlooked. Nothing is ever unpickled. `foreign_draws` reads what
other tools leave: sbi's `thetas` and `posterior_samples` (s, n, p), ArviZ's `.nc`, long `.csv`, and the folders of
`kappaflow retrieve`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from kappaflow.calibrate import Draws, check_draws
from kappaflow.calibrate.quintiles import check_covariates
from kappaflow.errors import UserError
from kappaflow.evaluate.foreign_draws import Truth, from_sbi, read_csv, read_folder, read_netcdf
from kappaflow.storage import digest_arrays, written_whole

__all__ = ["DrawsFile", "Method", "read_method", "write_method"]

_ENTRIES = ("truth", "draws", "names", "low", "high", "log_prob", "log_prob_draws")
_COVARIATE = "covariates/"
_KINDS = ".npz, .h5, .hdf5, .nc (ArviZ), .csv, or a folder of kappaflow retrieve"
_PICKLED = {".pkl", ".pickle", ".pt", ".pth", ".joblib"}


@dataclass(frozen=True, eq=False)
class Method:
    """One posterior to judge: its draws, what else is known of the objects, and where they come from."""

    name: str
    draws: Draws
    covariates: dict[str, np.ndarray] = field(default_factory=dict)
    log_prob: np.ndarray | None = None
    log_prob_draws: np.ndarray | None = None
    origin: str = ""

    def objects(self, index: np.ndarray) -> Method:
        """Return the objects `index` alone."""
        return Method(
            self.name,
            self.draws.objects(index),
            {name: values[index] for name, values in self.covariates.items()},
            None if self.log_prob is None else self.log_prob[index],
            None if self.log_prob_draws is None else self.log_prob_draws[index],
            self.origin,
        )

    def digest(self) -> str:
        """Sixteen hex digits of the truths and draws."""
        return digest_arrays({"truth": self.draws.truth, "draws": self.draws.draws})


@dataclass(frozen=True, eq=False)
class DrawsFile:
    """A file of draws to judge, and the truths where it has none."""

    path: Path
    truth: Truth | None = None

    @property
    def name(self) -> str:
        """What the method is called."""
        return self.path.stem

    def method(self, seed: int) -> Method:
        """Read it; nothing in it depends on `seed`."""
        return read_method(self.path, self.truth)


def read_method(path: Path, truth: Truth | None = None) -> Method:
    """Read a file of draws (see the module's table), or raise saying what is wrong with it.

    `truth` (object -> parameter -> value) are the truths of draws that come without: a folder, .nc or CSV.
    """
    entries = _read(path, truth)
    unknown = [name for name in entries if name not in _ENTRIES and not name.startswith(_COVARIATE)]
    if unknown:
        raise UserError(
            f"{path}: unknown entry {unknown[0]!r}; expected {', '.join(_ENTRIES)} or {_COVARIATE}NAME, see `kappaflow "
            "calibrate --help`"
        )
    for name in ("truth", "draws"):
        if name not in entries:
            raise UserError(f"{path}: no entry {name!r}; it has {', '.join(sorted(entries)) or 'none'}")
    if ("low" in entries) != ("high" in entries):
        raise UserError(f"{path}: only one of the prior's bounds 'low' and 'high'; give both or neither")
    if "log_prob_draws" in entries and "log_prob" not in entries:
        raise UserError(f"{path}: 'log_prob_draws' without 'log_prob'; give the density at the truth too")
    try:
        draws = check_draws(
            entries["truth"],
            entries["draws"],
            prior=(entries["low"], entries["high"]) if "low" in entries else None,
            names=None if "names" not in entries else [str(name) for name in np.ravel(entries["names"])],
        )
        found = {name[len(_COVARIATE) :]: values for name, values in entries.items() if name.startswith(_COVARIATE)}
        covariates = check_covariates(found, len(draws.truth))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return Method(path.stem, draws, covariates, entries.get("log_prob"), entries.get("log_prob_draws"), str(path))


def write_method(path: Path, method: Method) -> None:
    """Write the draws as a file that `read_method` reads, whole or not at all."""
    draws = method.draws
    entries: dict[str, np.ndarray] = {"truth": draws.truth, "draws": draws.draws, "names": np.array(draws.names)}
    optional = {"low": draws.low, "high": draws.high, "log_prob": method.log_prob}
    optional |= {"log_prob_draws": method.log_prob_draws}
    entries |= {name: values for name, values in optional.items() if values is not None}
    entries |= {f"{_COVARIATE}{name}": values for name, values in method.covariates.items()}
    with written_whole(path) as part:
        if path.suffix in (".h5", ".hdf5"):
            with h5py.File(part, "w") as file:
                for name, values in entries.items():
                    text = values.dtype.kind == "U"
                    file.create_dataset(name, data=values.astype(h5py.string_dtype()) if text else values)
        elif path.suffix == ".npz":
            with part.open("wb") as stream:
                # Not unpacked as keywords: NumPy's own parameter names must not collide with an entry's.
                _savez(stream, entries)
        else:
            raise UserError(f"{path}: unknown ending {path.suffix!r}; expected .npz, .h5 or .hdf5")


def _savez(stream: object, entries: Mapping[str, np.ndarray]) -> None:
    with zipfile.ZipFile(stream, "w", allowZip64=True) as archive:  # type: ignore[arg-type]
        for name, values in entries.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(values), allow_pickle=False)


def _read(path: Path, truth: Truth | None) -> dict[str, np.ndarray]:
    if path.is_dir():
        return read_folder(path, truth)
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected draws in {_KINDS}")
    if path.suffix not in _READERS:
        pickled = path.suffix in _PICKLED
        more = "; it is a pickle, which could run anything: save arrays with numpy.savez" if pickled else ""
        raise UserError(f"{path}: unknown ending {path.suffix!r}; expected {_KINDS}{more}")
    try:
        return _READERS[path.suffix](path, truth)
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: unreadable ({reason}); write it again, arrays of numbers and text only") from None


def _read_npz(path: Path, truth: Truth | None) -> dict[str, np.ndarray]:
    with path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise UserError(f"{path}: not an .npz archive; write it with numpy.savez")
    with np.load(path, allow_pickle=False) as archive:
        return from_sbi({name: archive[name] for name in archive.files})


def _read_hdf5(path: Path, truth: Truth | None) -> dict[str, np.ndarray]:
    entries: dict[str, np.ndarray] = {}

    def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            text = h5py.check_string_dtype(item.dtype) is not None
            entries[name] = np.asarray(item.asstr()[()]) if text else np.asarray(item[()])

    with h5py.File(path, "r") as file:
        file.visititems(take)
    return from_sbi(entries)


_READERS = {".npz": _read_npz, ".h5": _read_hdf5, ".hdf5": _read_hdf5, ".nc": read_netcdf, ".csv": read_csv}
