"""What a refinement leaves behind: the best fit with its residuals, and the opacity field against its prior."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.parameters import COEFFICIENTS
from kappaflow.refinement.refined import Refined
from kappaflow.report.fit_files import write_fit
from kappaflow.report.page import Figure
from kappaflow.retrieval.interior import BANDS
from kappaflow.retrieval.result import Retrieval

__all__ = ["refined_figures", "write_refined"]

_MOST = 400  # draws of the field that its bands are taken from
_CAPTIONS = {
    "fit": (
        "The best fit; below, what is left of the data (pixels, and the mean of 25 of them) and the opacity field it "
        "needs. fit.ecsv has the spectrum, the fit, and smooth and fine residuals."
    ),
    "field": "The factor on each species' opacity that the spectrum asks for, against its prior (one and two sigma).",
}


def write_refined(result: Retrieval, folder: Path) -> list[Path]:
    """Write fit.json, fit.ecsv, fit.png and, where the draws are exact, field.png; return paths. Nothing unrefined."""
    if result.refined is None:
        return []
    from kappaflow.plots import save_figure
    from kappaflow.plots.field_figures import FoundField, field_against_prior

    found = result.refined.marginal
    write_fit(found.best, folder, result.name)
    paths = [folder / f"fit.{kind}" for kind in ("json", "ecsv", "png", "pdf")]
    sigma = np.asarray(found.best.mode.joint.coordinates.sigma)
    if not (found.converged and sigma.any()):
        return paths
    rows = [FoundField(*one) for one in field_bands(found, sigma)]
    figure = field_against_prior(found.best.spectrum.wavelength, rows, title=result.title)
    return [*paths, *save_figure(figure, folder / "field")]


def field_bands(
    found: Refined, sigma: np.ndarray
) -> list[tuple[str, np.ndarray, np.ndarray, tuple[float, float, float] | None]]:
    """Return, per species, the bands (5, p) of ln of its opacity's factor, its prior's sigma (p,), and its slope."""
    species = found.best.species
    widths = sigma.reshape(len(species), -1)
    draws = found.field[:: -(-len(found.field) // _MOST)].reshape(-1, *widths.shape)
    basis = _basis(tuple(found.best.spectrum.wavelength.tolist()))
    rows = []
    for i, name in enumerate(species):
        values = draws[:, i, :COEFFICIENTS] @ basis
        prior = np.sqrt((widths[i, :COEFFICIENTS, None] ** 2 * basis**2).sum(axis=0))
        slope = None
        if widths.shape[1] > COEFFICIENTS and widths[i, COEFFICIENTS] > 0:
            own = draws[:, i, COEFFICIENTS]
            slope = (float(own.mean()), float(own.std()), float(widths[i, COEFFICIENTS]))
        rows.append((name, np.quantile(values, BANDS, axis=0), prior, slope))
    return rows


@cache
def _basis(wavelength: tuple[float, ...]) -> np.ndarray:
    from kappaflow.report.fit_files import pixel_basis

    return pixel_basis(np.array(wavelength))


def refined_figures(summary: Mapping[str, Any], folder: Path) -> list[Figure]:
    """Return the figures of an object's part of the report, where they were made."""
    names = {"fit": "best fit and residuals", "field": "opacity field against its prior"}
    return [
        Figure(folder / f"{n}.png", _CAPTIONS[n], alt)
        for n, alt in names.items()
        if f"{n}.png" in summary.get("files", ())
    ]
