"""ExoMol, HITEMP and HITRAN as ExoJAX reads them, behind one door: lines of a stretch of wavenumber.

Everything that a download, a login or a damaged file does inside ExoJAX and RADIS comes out as one line that names the
files wanted and the folder to put them into.
"""

import contextlib
import gc
import io
import os
import re
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.build.lines.hitran import Lines, join_lines, mixed_widths, read_hitran
from kappaflow.build.sources.exomol_bins import ISOTOPOLOGUE
from kappaflow.build.sources.xsec_files import formula
from kappaflow.constants import ATM, T_REFERENCE
from kappaflow.errors import UserError

__all__ = ["Database", "open_database"]

HITEMP = {  # of our six
    "H2O": "Rothman et al. 2010",
    "CO2": "Hargreaves et al. 2025",
    "CO": "Li et al. 2015",
    "CH4": "Hargreaves et al. 2020",
}
EXOMOL = "https://www.exomol.com/db"
TIMEOUT = 20.0  # s
PAPERS = "Kawahara et al. 2022, 2025 (ExoJAX)"


@dataclass(frozen=True)
class Database:
    """Lines of one species: `load(low, high)` [cm-1] returns them sorted, half-widths mixed for H2 and He.

    `temperature` is the range [K] where the list holds. `partition(T)` is Q(296 K)/Q(T) where the list brings its own.
    `folder` holds its files.
    """

    name: str
    folder: Path
    load: Callable[[float, float], Lines]
    temperature: tuple[float, float]
    partition: Callable[[float], float] | None
    meta: dict[str, Any]


def open_database(species: str, database: str, folder: Path, window: tuple[float, float]) -> Database:
    """Open `database` (`ExoMol/NAME`, `HITEMP`, `HITRAN`) of `species` for lines in `window` [cm-1]."""
    kind, _, name = database.partition("/")
    if kind.lower() == "exomol" and re.fullmatch(r"[\w.+-]+", name):
        return _exomol(species, name, folder, window)
    if re.fullmatch(r"hitemp(/?\d{4})?", database.lower()):
        return _hitran(species, "HITEMP", database, folder, window)
    if re.fullmatch(r"hitran(/?\d{4})?", database.lower()):
        return _hitran(species, "HITRAN", database, folder, window)
    raise UserError(
        f"--database {database}: unknown; expected ExoMol/NAME (such as ExoMol/POKAZATEL), HITEMP or HITRAN"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep RADIS's chatter off standard output, where --json goes, and its warnings off the terminal."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            gc.collect()  # vaex holds its files and frames in cycles: let go of them now, not at some later time


def _from_exojax(module: str, name: str) -> Any:
    try:
        with _quiet():
            return getattr(import_module(f"exojax.database.{module}.api"), name)
    except ImportError as error:
        raise UserError(
            f"--source exojax: exojax is not installed ({error}); run pip install 'kappaflow[build]'"
        ) from None


def _provenance() -> str:
    return f"read by ExoJAX {metadata.version('exojax')} (RADIS {metadata.version('radis')})"


# --- ExoMol


def _exomol(species: str, name: str, folder: Path, window: tuple[float, float]) -> Database:
    isotopologue = ISOTOPOLOGUE[species]
    here = (folder / species / isotopologue / name).absolute()
    stem = f"{isotopologue}__{name}"
    wanted = f"{stem}.def, .pf, .states.bz2, .trans.bz2 and {isotopologue}__H2.broad, __He.broad"
    manager = _from_exojax("exomol", "MdbExomol")

    def read(low: float, high: float) -> Lines:
        fetch = not (here / f"{isotopologue}__H2.broad").exists()
        where = {"broadf_download": fetch, "local_databases": str(folder.absolute())}
        return _exomol_lines(species, manager(str(here), [low, high], bkgdatm="H2", gpu_transfer=False, **where))

    def load(low: float, high: float) -> Lines:
        try:
            with _translated(f"ExoMol/{name}", wanted, here), _quiet():
                return read(low, high)
        except _NoLines:
            return _none(species)

    if not (here / f"{stem}.def").exists():
        _probe(f"{EXOMOL}/{species}/{isotopologue}/{name}/{stem}.def", f"ExoMol/{name}", wanted, here)
    if not ((here / f"{stem}.def").exists() and (here / f"{stem}.pf").exists()):
        load(window[0], window[0] + 1.0)  # ExoJAX downloads them with the first lines
    partition, valid = _exomol_partition(here, stem, isotopologue)
    gases = [g for g in ("H2", "He") if (here / f"{isotopologue}__{g}.broad").exists()]
    meta = {
        "provenance": f"ExoMol {stem}, {_provenance()}",
        "citation": f"Tennyson et al. 2024 (ExoMol), and the paper of the list; {PAPERS}",
        "isotopologues": f"{isotopologue} only, standing for all of {species}",
        "half-widths": _width_words(gases),
    }
    return Database(f"ExoMol/{name} of {species}", here, load, valid, partition, meta)


def _width_words(gases: list[str]) -> str:
    if gases == ["H2", "He"]:
        return "85 % H2 + 15 % He, from the list's .broad files"
    return f"{gases[0]}, from the list's .broad file" if gases else "the list's default, no .broad file of H2 or He"


def _none(species: str) -> Lines:
    nothing = np.empty(0)
    return Lines(species, nothing, nothing, nothing, nothing, nothing, np.empty(0, np.int16))


def _lines(species: str, mdb: Any, gamma: np.ndarray, n: np.ndarray, isotope: np.ndarray) -> Lines:
    """Lines of an ExoJAX database with the given widths, sorted; strengths at 296 K."""
    nu, s, e_lower = (np.asarray(a, float) for a in (mdb.nu_lines, mdb.line_strength_ref_original, mdb.elower))
    lines = Lines(species, nu, s, e_lower, gamma, n, isotope.astype(np.int16))
    return lines.where(np.argsort(lines.nu, kind="stable"))


def _exomol_lines(species: str, mdb: Any) -> Lines:
    """Lines of an ExoJAX database, half-widths mixed from the files there are."""
    import pandas as pd

    levels = pd.DataFrame({"jlower": np.asarray(mdb.jlower), "jupper": np.asarray(mdb.jupper)})
    widths = {}
    for gas in ("H2", "He"):
        if mdb.broad_files[gas].exists():
            mdb.set_broadening_coef(levels.copy(), add_columns=False, species=gas)
            alpha, n = np.asarray(mdb.alpha_ref, float), np.asarray(mdb.n_Texp, float)
            known = np.isfinite(alpha) & np.isfinite(n)
            widths[gas] = np.where(known, alpha, mdb.alpha_ref_def), np.where(known, n, mdb.n_Texp_def)
    size = len(mdb.nu_lines)
    default = np.full(size, float(mdb.alpha_ref_def)), np.full(size, float(mdb.n_Texp_def))
    if len(widths) == 2:
        gamma, n = mixed_widths(widths["H2"], widths["He"])
    else:
        gamma, n = next(iter(widths.values()), default)
    return _lines(species, mdb, gamma, n, np.ones(size))


def _exomol_partition(here: Path, stem: str, isotopologue: str) -> tuple[Callable[[float], float], tuple[float, float]]:
    """Q(296 K)/Q(T) from the list's .pf file, and the range [K] of both that file and the list."""
    definition, path = here / f"{stem}.def", here / f"{stem}.pf"
    text = definition.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^\s*(\S+)\s+# *Iso-slug", text, re.MULTILINE)
    if match is None:
        raise UserError(f"{definition}: not an ExoMol definition file (no line '# Iso-slug'); download it again")
    if formula(match[1]) != formula(isotopologue):  # not the isotopes: published files have slips like 12C-12O
        raise UserError(f"{definition}: is of {match[1]}; expected {isotopologue}: give the list of that molecule")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty file: the shape tells
            table = np.loadtxt(path, usecols=(0, 1), ndmin=2)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read two columns, temperature and partition function ({error})") from None
    if len(table) < 2 or (np.diff(table[:, 0]) <= 0).any() or not (table[:, 1] > 0).all():
        raise UserError(f"{path}: expected ascending temperatures and positive partition functions")
    match = re.search(r"^\s*([\d.]+)\s+# *Maximum temperature of linelist", text, re.MULTILINE)
    hottest = float(match[1]) if match else np.inf
    t, q = table.T
    reference = float(np.interp(T_REFERENCE, t, q))
    valid = float(t[0]), min(float(t[-1]), hottest)
    return lambda temperature: reference / float(np.interp(temperature, t, q)), valid


# --- HITEMP and HITRAN


def _hitran(species: str, kind: str, name: str, folder: Path, window: tuple[float, float]) -> Database:
    if kind == "HITEMP" and species not in HITEMP:
        raise UserError(f"--database {name}: HITEMP has no {species}; expected one of {', '.join(HITEMP)}")
    local = _local_lines(species, kind, folder / species)
    lines, words, origin = local or _fetched_lines(species, kind, folder, window)
    meta = {
        "provenance": f"{name}, {origin}",
        "citation": f"{HITEMP[species] if kind == 'HITEMP' else 'Gordon et al. 2022'} ({kind})",
        "isotopologues": "all, terrestrial",
        "half-widths": words,
    }
    if local is None:
        meta["citation"] += f"; {PAPERS}"
    if kind == "HITRAN":
        meta["not for"] = "temperatures above about 600 K: made for 296 K, it lacks hot lines"

    def load(low: float, high: float) -> Lines:
        return lines.where((lines.nu >= low) & (lines.nu <= high))

    return Database(
        f"{name} of {species}", folder / species, load, (1.0, np.inf), None, meta
    )  # TIPS refuses what it does not reach


def _local_lines(species: str, kind: str, here: Path) -> tuple[Lines, str, str] | None:
    """Lines of 160-character files in `here`, if there are any: names with HITEMP in them for HITEMP."""
    files = sorted(f for f in here.glob("*") if f.suffix in (".par", ".data"))
    files = [f for f in files if ("HITEMP" in f.name.upper()) == (kind == "HITEMP")]
    if not files:
        return None
    parts, gases = [], set()
    for file in files:
        header = file.with_suffix(".header")
        gas = (
            "h2he" if header.exists() and "gamma_h2" in header.read_text(encoding="utf-8", errors="replace") else "air"
        )
        parts.append(read_hitran(file, species, broadener=gas))
        gases.add(gas)
    words = {"air": "air: the files have no others", "h2he": "85 % H2 + 15 % He"}
    return join_lines(parts), " and ".join(words[g] for g in sorted(gases)), ", ".join(f.name for f in files)


def _fetched_lines(species: str, kind: str, folder: Path, window: tuple[float, float]) -> tuple[Lines, str, str]:
    """Lines that ExoJAX downloads, or downloaded before."""
    manager = _from_exojax(kind.lower(), f"Mdb{kind.capitalize()}")
    here = (folder / species).absolute()
    extra: dict[str, Any] = {}
    if kind == "HITRAN":
        wanted = f"the .par (or HAPI's .data and .header) file of {species} from hitran.org"
        extra["nonair_broadening"] = True
    else:
        wanted = f"the unpacked *_HITEMP*.par files of {species} from hitran.org/hitemp"
        _check_credentials(wanted, here)
    try:
        with _translated(kind, wanted, here), _quiet():
            found = hitran_lines(species, manager(str(here), list(window), isotope=0, gpu_transfer=False, **extra))
    except _NoLines:
        return _none(species), "none", _provenance()
    return *found, _provenance()


def hitran_lines(species: str, mdb: Any) -> tuple[Lines, str]:
    """Lines of an ExoJAX HITRAN or HITEMP database, and in words what their half-widths are for."""
    names = ("gamma_h2", "n_h2", "gamma_he", "n_he")
    air = np.asarray(mdb.gamma_air, float), np.asarray(mdb.n_air, float)
    gamma, n, words = *air, "air: the database has no others"
    if all(hasattr(mdb, name) for name in names):
        g_h2, n_h2, g_he, n_he = (np.asarray(getattr(mdb, name), float) for name in names)
        mixed = mixed_widths((g_h2, n_h2), (g_he, n_he))
        known = np.isfinite(mixed[0]) & np.isfinite(mixed[1]) & (g_h2 > 0)
        gamma, n = np.where(known, mixed[0], air[0]), np.where(known, mixed[1], air[1])
        words = f"85 % H2 + 15 % He for {known.mean():.0%} of the lines, air for the others"
    return _lines(species, mdb, gamma / ATM, n, np.asarray(mdb.isoid)), words


# --- what can go wrong outside


class _NoLines(Exception):  # noqa: N818
    """ExoJAX found no line in the stretch asked for."""


@contextlib.contextmanager
def _translated(name: str, wanted: str, here: Path) -> Iterator[None]:
    """Turn what ExoJAX and RADIS raise into one line."""
    try:
        yield
    except (UserError, _NoLines):
        raise
    # They raise bare Exceptions for failed downloads, and anything at all on damaged files.
    except Exception as error:
        if "No line found" in str(error):
            raise _NoLines from None
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(
            f"{name}: ExoJAX could not download or read it ({said}); with no network, put {wanted} into {here}; "
            "remove files there that are damaged"
        ) from None


def _probe(url: str, name: str, wanted: str, here: Path) -> None:
    """Ask once whether the list is there, before RADIS tries every file of it."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise UserError(f"--database {name}: ExoMol has no such list ({url}); see www.exomol.com/data") from None
        said = f"HTTP {error.code}"
    except OSError as error:
        said = str(getattr(error, "reason", error))
    raise UserError(
        f"{name}: no network to download it ({said}); put {wanted} from {url[: url.rfind('/')]} into {here}"
    )


def _check_credentials(wanted: str, here: Path) -> None:
    """HITEMP needs an account: say so before RADIS waits for a password."""
    if os.environ.get("HITRAN_EMAIL") and os.environ.get("HITRAN_PASSWORD"):
        return
    with _quiet():
        kept = (import_module("radis.api.hitempapi").read_config() or {}).get("credentials")
    if not kept:
        raise UserError(
            "HITEMP: no credentials of hitran.org; set HITRAN_EMAIL and HITRAN_PASSWORD (the account is free), "
            f"or put {wanted} into {here}"
        )
