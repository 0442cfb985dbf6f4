"""Draws as other tools leave them: ArviZ netCDF, sbi's arrays, long CSV; each becomes truths and draws.

A reader returns the entries of `draws_file`'s table. Nothing is ever unpickled.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.errors import UserError

__all__ = ["Truth", "from_sbi", "read_csv", "read_folder", "read_netcdf", "read_truth", "sample_axes"]

Entries = dict[str, np.ndarray]
Truth = Mapping[str, Mapping[str, float]]  # object -> parameter -> value
_TRUTH_GROUPS = ("truth", "constant_data")  # the first that is there
_SAMPLES = ("chain", "draw", "sample", "network", "member")  # dimensions of draws, where no truth tells
_TRUE = "true_"
_LONG = {"object", "parameter", "value"}


def from_sbi(entries: Entries) -> Entries:
    """Return sbi's layout, thetas (n, p) and posterior_samples (s, n, p), as ours; anything else as it is.

    The names say which layout it is: with as many draws as objects the shapes could not.
    """
    if "thetas" not in entries or "posterior_samples" not in entries:
        return entries
    kept = {name: values for name, values in entries.items() if name not in ("thetas", "posterior_samples")}
    thetas, samples = entries["thetas"], entries["posterior_samples"]
    if thetas.ndim != 2 or samples.ndim != 3 or samples.shape[1:] != thetas.shape:
        raise UserError(
            f"posterior_samples: shape {samples.shape}; expected (s, n, p) = (s, *{thetas.shape}), as sbi samples them "
            "for thetas (n, p)"
        )
    return kept | {"truth": thetas, "draws": samples.transpose(1, 0, 2)}


def read_netcdf(path: Path, truth: Truth | None = None) -> Entries:
    """Read ArviZ's layout (InferenceData, DataTree): the group `posterior`, and the truths beside it or in `truth`.

    Truths are variables of the same names in a group `truth` (or `constant_data`): their dimensions are those
    of the objects, and all others of a posterior's variable, chains and draws, are pooled. Where truths come from a
    table the file is one object, named as its folder or file.
    """
    posterior, known = _groups(path)
    if truth is not None:
        name = path.parent.name if path.stem == "posterior" else path.stem
        return _one_object(path, name, posterior, truth)
    if known is None:
        raise UserError(
            f"{path}: no truths; expected a group {_TRUTH_GROUPS[0]!r} with the variables of 'posterior', or a table "
            "of them with --truth"
        )
    names = [name for name in posterior if name in known]
    if not names:
        raise UserError(f"{path}: 'posterior' has {_listed(posterior)}, the truths {_listed(known)}; none in common")
    truths, draws, labels = [], [], []
    for name in names:
        axes = known[name][0]
        drawn = _pooled(f"{path}: {name}", posterior[name], axes)  # (s, *objects)
        flat = np.reshape(known[name][1], (_size(known[name], axes[:1]), -1))
        truths.append(flat)
        draws.append(drawn.reshape(drawn.shape[0], flat.shape[0], -1).transpose(1, 0, 2))
        more = flat.shape[1]
        labels += [name] if more == 1 else [f"{name}[{k}]" for k in range(more)]
    _same(path, names, [(len(t), d.shape[1]) for t, d in zip(truths, draws, strict=True)])
    return {"truth": np.hstack(truths), "draws": np.concatenate(draws, axis=2), "names": np.array(labels)}


def _groups(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Variables of the posterior and of the truths: name -> (dimensions, values)."""
    import h5py

    with h5py.File(path, "r") as file:
        groups = {name for name, item in file.items() if isinstance(item, h5py.Group)}
    if "posterior" not in groups:
        raise UserError(f"{path}: no group 'posterior' (it has {_listed(groups)}); expected ArviZ's layout")
    posterior = _variables(path, "posterior")
    for group in _TRUTH_GROUPS:
        if group in groups:
            found = _variables(path, group)
            if group == _TRUTH_GROUPS[0] or set(found) & set(posterior):
                return posterior, found
    return posterior, None


def _variables(path: Path, group: str) -> dict[str, Any]:
    import xarray as xr

    # decode_times: a unit called "days" is no reason to make dates of a parameter
    with xr.open_dataset(path, group=group, engine="h5netcdf", decode_times=False) as data:
        return {
            str(name): (tuple(map(str, values.dims)), np.asarray(values.values))
            for name, values in data.data_vars.items()
            if values.dtype.kind in "fiub"
        }


def sample_axes(dimensions: Sequence[str], objects: Sequence[str] | None = None) -> tuple[list[int], list[int]]:
    """Places of a variable's dimensions: those pooled as draws, and those of objects (or components), in order."""
    if objects is None:
        pooled = [k for k, name in enumerate(dimensions) if name in _SAMPLES]
        return pooled, [k for k in range(len(dimensions)) if k not in pooled]
    return [k for k, name in enumerate(dimensions) if name not in objects], [dimensions.index(name) for name in objects]


def _pooled(where: str, variable: tuple[tuple[str, ...], np.ndarray], objects: Sequence[str] | None) -> np.ndarray:
    """Draws first, pooled over chains: (s, ...)."""
    dimensions, values = variable
    if objects is not None and not set(objects) < set(dimensions):
        raise UserError(
            f"{where}: dimensions {dimensions}, the truth's {tuple(objects)}; expected those and the draws'"
        )
    samples, others = sample_axes(dimensions, objects)
    moved = values.transpose([*samples, *others])
    return moved.reshape(-1, *moved.shape[len(samples) :])


def _size(variable: tuple[tuple[str, ...], np.ndarray], dimensions: Sequence[str]) -> int:
    return int(np.prod([variable[1].shape[variable[0].index(name)] for name in dimensions], dtype=int))


def _one_object(path: Path, name: str, posterior: dict[str, Any], truth: Truth) -> Entries:
    if name not in truth:
        raise UserError(f"{path}: no row for {name!r} in --truth; it has {_listed(truth)}")
    names = [key for key in posterior if key in truth[name]]
    if not names:
        raise UserError(f"{path}: parameters {_listed(posterior)}, in --truth {_listed(truth[name])}; none in common")
    columns = [_pooled(f"{path}: {key}", posterior[key], None) for key in names]
    if any(column.ndim != 1 for column in columns):
        raise UserError(f"{path}: a parameter has more dimensions than {', '.join(_SAMPLES)}; give truths in the file")
    return {
        "truth": np.array([[truth[name][key] for key in names]]),
        "draws": np.stack(columns, axis=-1)[None],
        "names": np.array(names),
    }


def read_folder(path: Path, truth: Truth | None) -> Entries:
    """Read a folder of `kappaflow retrieve`, OBJECT/posterior.nc, or of .nc files, one object each."""
    files = sorted(path.glob("*/posterior.nc")) or sorted(path.glob("*.nc"))
    if not files:
        raise UserError(f"{path}: neither OBJECT/posterior.nc nor .nc files in it; expected one for each object")
    if truth is None:
        raise UserError(f"{path}: a folder of posteriors has no truths; give a table of them with --truth FILE")
    each = [read_netcdf(file, truth) for file in files]
    _same(
        path, [str(file.relative_to(path)) for file in files], [(e["draws"].shape[1], tuple(e["names"])) for e in each]
    )
    return {key: np.concatenate([e[key] for e in each]) for key in ("truth", "draws")} | {"names": each[0]["names"]}


def read_csv(path: Path, truth: Truth | None = None) -> Entries:
    """Read long CSV: rows of `object, parameter, value, truth`, or of `object, NAME..., true_NAME...`, one per draw.

    A column `draw` may be there and is not needed. Truths may be in a table of their own instead.
    """
    names, rows = _rows(path)
    known = {name.lower(): name for name in names}
    if "object" not in known:
        raise UserError(
            f"{path}: columns {_listed(names)}; expected 'object', and 'parameter', 'value' or names of them"
        )
    at = {name: k for k, name in enumerate(names)}
    found: dict[str, dict[str, list[float]]] = {}
    own: dict[str, dict[str, float]] = {}
    number = _number(path)
    if set(known) >= _LONG:
        keys, values = at[known["parameter"]], at[known["value"]]
        true = at.get(known.get("truth", ""))
        for line, row in rows:
            one, key = row[at[known["object"]]], row[keys]
            found.setdefault(one, {}).setdefault(key, []).append(number(line, row[values]))
            if true is not None:
                _agree(path, line, own.setdefault(one, {}), key, number(line, row[true]))
    else:
        kept = [n for n in names if n.lower() not in ("object", "draw", "chain") and not n.startswith(_TRUE)]
        for line, row in rows:
            one = row[at[known["object"]]]
            for key in kept:
                found.setdefault(one, {}).setdefault(key, []).append(number(line, row[at[key]]))
                if f"{_TRUE}{key}" in at:
                    _agree(path, line, own.setdefault(one, {}), key, number(line, row[at[f"{_TRUE}{key}"]]))
    return _stacked(path, found, truth if truth is not None else own)


def _stacked(path: Path, found: dict[str, dict[str, list[float]]], truth: Truth) -> Entries:
    first = next(iter(found), None)
    if first is None:
        raise UserError(f"{path}: a header but no rows; expected draws")
    names = [key for key in found[first] if key in truth.get(first, {})]
    if not names:
        raise UserError(
            f"{path}: no truths of {_listed(found[first])}; add a column 'truth' (or true_NAME), or --truth"
        )
    counts: dict[Any, Any] = {}
    for one, columns in found.items():
        for key in names:
            if key not in columns or key not in truth.get(one, {}):
                raise UserError(
                    f"{path}: object {one[:40]!r} has no {'truth' if key in columns else 'draws'} of {key!r}"
                )
            counts.setdefault(len(columns[key]), (one, key))
    if len(counts) > 1:
        (a, (one, key)), (b, (other, its)) = list(counts.items())[:2]
        raise UserError(f"{path}: {a} draws of {key} of {one[:40]!r}, {b} of {its} of {other[:40]!r}; expected as many")
    return {
        "truth": np.array([[truth[one][key] for key in names] for one in found]),
        "draws": np.array([[columns[key] for key in names] for columns in found.values()]).transpose(0, 2, 1),
        "names": np.array(names),
    }


def read_truth(path: Path) -> dict[str, dict[str, float]]:
    """Read a table of truths, CSV: a row per object, `object` and the parameters' names as columns."""
    names, rows = _rows(path)
    if "object" not in names or len(names) < 2:
        raise UserError(f"--truth {path}: columns {_listed(names)}; expected 'object' and names of parameters")
    number, at = _number(path), names.index("object")
    found: dict[str, dict[str, float]] = {}
    for line, row in rows:
        if row[at] in found:
            raise UserError(f"--truth {path}: line {line}: a second row of {row[at][:40]!r}; expected one each")
        found[row[at]] = {name: number(line, row[k]) for k, name in enumerate(names) if k != at}
    return found


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            table = [(line, row) for line, row in enumerate(csv.reader(stream), start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}); expected CSV") from None
    if not table:
        raise UserError(f"{path}: empty; expected CSV with a row of names")
    names = [name.strip() for name in table[0][1]]
    if len(set(names)) < len(names):
        raise UserError(f"{path}: two columns have one name ({_listed(names)})")
    for line, row in table[1:]:
        if len(row) != len(names):
            raise UserError(f"{path}: line {line} has {len(row)} columns; expected {len(names)}, as in its first row")
    return names, table[1:]


def _number(path: Path) -> Callable[[int, str], float]:
    def number(line: int, word: str) -> float:
        try:
            return float(word)
        except ValueError:
            raise UserError(f"{path}: line {line}: {word[:24]!r} is not a number") from None

    return number


def _agree(path: Path, line: int, known: dict[str, float], key: str, value: float) -> None:
    if known.setdefault(key, value) != value:
        raise UserError(
            f"{path}: line {line}: truth of {key} is {value:g}, above {known[key]:g}; expected one per object"
        )


def _same(path: Path, names: Sequence[str], kinds: Sequence[Any]) -> None:
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise UserError(f"{path}: {name} has (draws, parameters) {kind}, {names[0]} {kinds[0]}; expected the same")


def _listed(names: Any) -> str:
    shown = [str(name)[:24] for name in names]
    return ", ".join(shown[:8]) + (" ..." if len(shown) > 8 else "") if shown else "nothing"
