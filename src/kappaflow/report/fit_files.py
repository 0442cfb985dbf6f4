"""What `kappaflow fit` leaves behind: fit.json, the fitted spectrum as ECSV, and the figure."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.parameters import INDEX, NAMED
from kappaflow.refinement.best_fit import BestFit
from kappaflow.storage import write_json, written_whole

__all__ = ["fit_summary", "pixel_basis", "write_fit"]


def fit_summary(best: BestFit, name: str) -> dict[str, Any]:
    """Plain data of one fit."""
    rows = zip(best.names, best.theta, best.errors, strict=True)
    meta = best.spectrum.meta
    return {
        "name": name,
        "target": meta.get("target"),
        "distance_pc": meta.get("distance_pc"),
        "n": best.n,
        "snr": best.spectrum.snr,
        "chi2": best.chi2,
        "chi2_over_n": best.chi2 / best.n,
        "f": best.f,
        "reduced_chi2_with_f": best.reduced_chi2,
        "lists": dict(best.lists),
        "parameters": {n: {"value": float(v), "laplace_error": float(e), "unit": NAMED[n].unit} for n, v, e in rows},
        "gains": [float(g) for g in best.gains],
        "scale": best.scale,
        "line_spread": best.line_spread,
        "field": {s: [float(c) for c in row] for s, row in zip(best.species, _by_species(best), strict=True)},
        "residuals": [band.as_dict() for band in best.residuals],
        "combinations": [
            {"lists": dict(mode.lists), "ln_density": mode.climb.value, "ln_evidence": mode.log_evidence, "weight": w}
            for mode, w in zip(best.modes, best.weights.tolist(), strict=True)
        ],
        "starts": list(best.starts),
        "covariance": best.covariance.tolist(),
    }


def _by_species(best: BestFit) -> np.ndarray:
    return best.field.reshape(len(best.species), -1)


def write_fit(best: BestFit, folder: Path, name: str) -> dict[str, Any]:
    """Write fit.json, fit.ecsv, fit.png and fit.pdf into `folder`; return what the first holds."""
    from kappaflow.plots import save_figure
    from kappaflow.plots.fit_figures import best_fit as draw

    folder.mkdir(parents=True, exist_ok=True)
    summary = fit_summary(best, name)
    write_json(folder / "fit.json", summary)
    spectrum = best.spectrum
    _ecsv(best, folder / "fit.ecsv")
    i = INDEX["C_O"]
    title = (
        f"{summary['target'] or name}   χ²/n {best.chi2 / best.n:.2f}, f {100 * best.f:.1f} %, "
        f"C/O {best.theta[i]:.2f} ± {best.errors[i]:.2f}"
    )
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    field = _ln_factors(best) if best.field.any() else None
    save_figure(draw(spectrum.wavelength, data, best.flux, best.smooth, field, title=title), folder / "fit")
    return summary


def _ln_factors(best: BestFit) -> np.ndarray:
    """Ln of the factor on every species' opacity at the pixels, (species, p)."""
    basis = pixel_basis(best.spectrum.wavelength)
    return _by_species(best)[:, : len(basis)] @ basis


def pixel_basis(wavelength: np.ndarray) -> np.ndarray:
    """Return the functions of the opacity field at pixels `wavelength` [um], (coefficient, p)."""
    from kappaflow.tables.field_prior import fourier_basis

    pixels = 1e4 / wavelength
    low, high = _grid_ends()  # u of the basis runs from the first to the last point of the modelling grid
    return fourier_basis(np.concatenate([[low], pixels, [high]]))[:, 1:-1]


@cache
def _grid_ends() -> tuple[float, float]:
    from kappaflow.tables.opacity import load_opacity

    nu = load_opacity().nu
    return float(nu[0]), float(nu[-1])


def _ecsv(best: BestFit, path: Path) -> None:
    from astropy.table import QTable
    from astropy.units import Unit

    s, unit = best.spectrum, Unit("mJy")
    table = QTable(
        {
            "wavelength": s.wavelength * Unit("um"),
            "flux": np.where(s.mask, s.flux, np.nan) * unit,
            "unc": np.where(s.mask, s.error, np.nan) * unit,
            "fit": best.flux * unit,
            "smooth": best.smooth * unit,
            "fine": np.where(s.mask, s.flux - best.flux - best.smooth, np.nan) * unit,
        }
    )
    table.meta = {
        "scaled": "to 10 pc" if s.meta.get("scale_known") else "as observed",
        "residuals": "smooth: mean of 25 pixels of flux - fit; fine: what is left",
    }
    with written_whole(path) as part:
        table.write(part, format="ascii.ecsv", overwrite=True)
