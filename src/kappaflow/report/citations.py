"""What to cite and what to write: citations.bib and methods.md of a result, from its summary alone.

Entries come from `references.bib`, by first author and year, as the tables' own headers name them. What is named there
and has no entry is listed as a comment, so that nothing is dropped in silence.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from kappaflow.parameters import NAMED
from kappaflow.storage import written_whole

__all__ = ["bibliography", "methods_paragraph", "software_versions", "write_citations"]

SOFTWARE = ("jax", "numpy", "scipy", "torch", "zuko", "astropy", "xarray", "matplotlib")
METHOD = ("heraty2026", "durkan2019")
ATMOSPHERE = ("zahnle2014", "ackerman2001", "visscher2010")
_NAMED = re.compile(
    r"([A-Z][A-Za-z'-]+)(?:(?:, [A-Z][a-z]+)* & [A-Z][a-z]+| et al\.)? ((?:19|20)\d\d(?:, (?:19|20)\d\d)*)"
)
_ENTRY = re.compile(r"^@\w+\{([^,]+),.*?^\}\n", re.MULTILINE | re.DOTALL)


@cache
def _book() -> dict[str, str]:
    """Return every entry of references.bib by its key."""
    text = (resources.files("kappaflow.report") / "references.bib").read_text(encoding="utf-8")
    return {found.group(1): found.group(0) for found in _ENTRY.finditer(text)}


def software_versions() -> dict[str, str]:
    """Return the versions of what computes a result.

    Examples
    --------
    >>> sorted(software_versions())[:3]
    ['astropy', 'jax', 'kappaflow']
    """
    import kappaflow

    found = {"kappaflow": kappaflow.__version__}
    for name in SOFTWARE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _keys(said: str) -> tuple[list[str], bool]:
    """Keys of what a table's header names, and whether all of it was found.

    Examples
    --------
    >>> _keys("Gordon et al. 2017, 2022")
    (['gordon2017', 'gordon2022'], True)
    >>> _keys("Borysow & Frommhold 1989, ApJ 341, 549")
    (['borysow1989a', 'borysow1989b'], True)
    >>> _keys("Nobody et al. 1901")
    ([], False)
    """
    named = _NAMED.findall(said)
    wanted = [f"{name.lower()}{year}" for name, years in named for year in years.split(", ")]
    keys = [[key for key in _book() if re.fullmatch(f"{re.escape(want)}[a-z]?", key)] for want in wanted]
    return [key for found in keys for key in found], bool(keys) and all(keys)


def bibliography(summary: Mapping[str, Any]) -> str:
    """Return the BibTeX of a result: method, atmosphere, line lists, chemistry, CIA, software with versions."""
    versions = summary.get("software", {})
    keys, missing = [*METHOD, *ATMOSPHERE], []
    keys += ["vehtari2024"] if summary.get("source") == "refined" else []
    keys += ["saumon2007"] if "T_eff" in summary.get("derived", {}) else []
    for what, parts in summary.get("sources", {}).items():
        for part in filter(None, parts):
            found, whole = _keys(part)
            keys += found
            missing += [] if whole else [f"{what}: {part}"]
    data = summary.get("spectrum", {}).get("citation")
    missing += [f"the spectrum: {data}"] if data else []
    head = [f"% What the result on {_plain(summary['title'])} stands on, written by kappaflow."]
    if missing:
        head += ["% Not in our book, to be added by hand:", *(f"%   {_plain(line)}" for line in dict.fromkeys(missing))]
    entries = [_book()[key] for key in dict.fromkeys(keys)]
    entries += [_versioned(name, version) for name, version in versions.items() if name in _book()]
    ours = "@misc{kappaflow,\n  author = {{The kappaflow developers}},\n  title = {kappaflow},\n"
    ours += f"  note = {{version {versions.get('kappaflow', 'unknown')}}},\n}}\n"
    return "\n".join(["\n".join(head) + "\n", ours, *entries])


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _latex(text: Any) -> str:
    r"""Text that means itself in LaTeX, where a % would end the paragraph and a _ the compilation.

    Examples
    --------
    >>> print(_latex("WISE_J1541: 97% of R^2"))
    WISE\_J1541: 97\% of R\textasciicircum{}2
    """
    return "".join(_LATEX.get(c, f"\\{c}" if c in "%&_#${}" else c) for c in _plain(text))


def _plain(text: Any) -> str:
    """One line: a comment must not end where a name has a line break."""
    return " ".join(str(text).split())


def _versioned(name: str, version: str) -> str:
    """Return the entry of a package with its version as a note."""
    return _book()[name].rstrip().removesuffix("}") + f"  note = {{version {version}}},\n}}\n"


def methods_paragraph(summary: Mapping[str, Any]) -> str:
    """Return a paragraph for a paper: what was done, with which settings, data and versions, and what came out."""
    versions, spectrum = summary.get("software", {}), summary["spectrum"]
    c_o = summary["parameters"]["C_O"]
    distance = spectrum.get("distance_pc")
    far = f"scaled with a distance of {distance:g} pc" if distance else "without a distance, so that R was not measured"
    gases = [name for name in summary.get("sources", {}) if name not in ("chemistry", "CIA")]
    made = summary.get("provenance", {})
    sentences = [
        f"We retrieved the JWST/NIRSpec G395H spectrum of {_latex(summary['title'])} (median SNR {summary['snr']:.0f} "
        f"per pixel, {100 * summary['covered_fraction']:.0f}\\,\\% of the model's pixels, {far}) with kappaflow "
        f"{versions.get('kappaflow', '')} \\citep{{heraty2026}}.",
        f"The model has {len(summary['parameters'])} parameters with uniform priors ({_priors(summary)}): temperatures "
        "at five pressures joined by a monotone cubic; gas-phase equilibrium chemistry without condensates "
        "\\citep{stock2018,stock2022,kitzmann2024,asplund2009}, quenched by the chemical times of \\citet{zahnle2014}; "
        "a grey cloud of enstatite \\citep{ackerman2001,visscher2010}; gain per detector.",
        f"Line lists: {_latex(', '.join(gases))}." if gases else "",
        _posterior(summary, made),
        f"We find C/O = {c_o['q50']:.2f} (68\\,\\% interval {c_o['q16']:.2f} to {c_o['q84']:.2f}; 90\\,\\% "
        f"{c_o['q05']:.2f} to {c_o['q95']:.2f}). Checks of the result: {_checks(summary)}.",
        _temperature(summary),
        f"Software: {_latex(', '.join(f'{name} {version}' for name, version in versions.items()))}.",
    ]
    return " ".join(filter(None, sentences))


def _priors(summary: Mapping[str, Any]) -> str:
    ends = summary.get("priors", {})
    return (
        ", ".join(f"{_named(name)} {low:g} to {high:g}" for name, (low, high) in ends.items())
        or "see the documentation"
    )


def _named(name: str) -> str:
    """Return a parameter as a paper writes it."""
    return NAMED[name].label if name in NAMED else _latex(name)


def _posterior(summary: Mapping[str, Any], made: Mapping[str, str]) -> str:
    networks = _latex(made.get("networks", ""))
    start = (
        f"The posterior is {summary['draws']:,} draws of neural posterior estimators, neural spline flows "
        f"\\citep{{durkan2019}} trained on simulated spectra whose opacities were randomized ({networks}; seed "
        f"{made.get('seed', '')})"
    )
    if summary.get("source") != "refined":
        return f"{start}, not refined by the likelihood."
    done = summary.get("refinement") or {}
    return (
        f"The posterior is {summary['draws']:,} draws of the likelihood with the opacities marginalized, found from "
        f"proposals of neural posterior estimators \\citep{{durkan2019}} ({networks}) by importance weights "
        f"\\citep{{vehtari2024}} (seed {made.get('seed', '')}). {_latex(done.get('sentence', ''))}"
    )


def _checks(summary: Mapping[str, Any]) -> str:
    counts: dict[str, list[str]] = {}
    for check in summary["trust"]:
        counts.setdefault(check["verdict"], []).append(check["name"])
    words = {"fail": "failed", "warn": "with care", "pass": "passed"}
    return "; ".join(f"{words[grade]}: {', '.join(counts[grade])}" for grade in words if grade in counts)


def _temperature(summary: Mapping[str, Any]) -> str:
    found = summary.get("derived", {}).get("T_eff")
    return "" if found is None else f"The effective temperature is {_latex(found['how'])}."


def write_citations(summary: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write citations.bib and methods.md into `folder`; return their paths."""
    texts: Iterable[tuple[str, str]] = (
        ("citations.bib", bibliography(summary)),
        ("methods.md", methods_paragraph(summary) + "\n"),
    )
    paths = []
    for name, text in texts:
        with written_whole(folder / name) as part:
            part.write_text(text, encoding="utf-8")
        paths.append(folder / name)
    return paths
