"""Statistics of real G395H spectra that the mask and error families are built on; no mask itself is kept.

    python -m kappaflow.build.tables.mask_statistics SPECTRA [--out masks.json]

measures a folder of spectra and writes the packaged `masks.json`. For each spectrum, between 2.87 and 5.27 micron:

- the good fraction of the pixels outside the nominal gap;
- edges and detector gap from the first, last and largest missing stretch of pixels;
- runs of missing or invalid pixels, apart where the spectrum is bright (defects) and where it is faint (a smoothed
  signal-to-noise ratio below 3: pixels lost because their flux came out negative);
- the error array as e^2 = A(x)^2 [1 - w + w F/median(F)]: photon weight w in [0, 1], and ln A a sum of three Legendre
  polynomials in wavelength and a step between the detectors.
"""

import argparse
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import median_filter
from scipy.special import ndtr

from kappaflow.errors import UserError
from kappaflow.instrument import GAP, PIXEL, WINDOW
from kappaflow.simulation.noise import error_basis
from kappaflow.storage import write_json

__all__ = ["RealSpectrum", "error_fit", "measure", "read_spectra"]

FAINT = 3.0  # smoothed signal-to-noise ratio below which a missing pixel counts as a clipped trough
CLIP_SHARE = 0.02  # a spectrum with fewer non-positive pixels than this, relative to expectation, was clipped


@dataclass(frozen=True)
class RealSpectrum:
    """One telescope spectrum on the regular pixel ladder of its window; NaN where there is no valid pixel."""

    name: str
    wavelength: np.ndarray  # micron, step PIXEL
    flux: np.ndarray  # per unit frequency, any scale
    error: np.ndarray

    @property
    def good(self) -> np.ndarray:
        """True at valid pixels."""
        return np.isfinite(self.flux)


def _columns(path: Path) -> np.ndarray:
    """Wavelength, flux and error of a text spectrum, shape (n, 3); an empty error becomes NaN."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.replace(",", " ").replace('""', "nan").split()
        try:
            rows.append([float(word) for word in words[:3]])
        except ValueError:
            continue  # a header
    return np.array([row for row in rows if len(row) == 3])


def read_spectra(folder: str | Path) -> list[RealSpectrum]:
    """Read the spectra of the data folder and put each on the pixel ladder."""
    spectra = []
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: no such folder; give the one with the real spectra")
    for path in sorted(Path(folder).iterdir()):
        if path.name.endswith("_results.txt") or path.suffix not in {".txt", ".dat", ".csv"}:
            continue
        wavelength, flux, error = _columns(path).T
        if path.suffix != ".dat":  # per unit wavelength; the .dat is in Jy, as the forward model is
            flux, error = flux * wavelength**2, error * wavelength**2
        inside = (wavelength > WINDOW[0]) & (wavelength < WINDOW[1]) & np.isfinite(error) & (error > 0)
        wavelength, flux, error = wavelength[inside], flux[inside], error[inside]
        slot = np.round((wavelength - WINDOW[0]) / PIXEL).astype(int)
        n = int((WINDOW[1] - WINDOW[0]) / PIXEL)
        ladder = WINDOW[0] + PIXEL * np.arange(n)
        values = np.full((2, n), np.nan)
        values[:, slot[slot < n]] = np.stack([flux, error])[:, slot < n]
        # Pixels are 0.0006685 wide on average: the ladder now and then skips a slot that the spectrum does have.
        fill = _rounding_holes(wavelength, ladder, np.isfinite(values[0]))
        values[:, fill] = [np.interp(ladder[fill], wavelength, v) for v in (flux, error)]
        spectra.append(RealSpectrum(path.stem, ladder, *values))
    if not spectra:
        raise UserError(f"{folder}: no spectra (.txt, .dat, .csv) found")
    return spectra


def _rounding_holes(wavelength: np.ndarray, ladder: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Empty slots of the ladder that lie between two neighbouring pixels of the spectrum."""
    right = np.clip(np.searchsorted(wavelength, ladder), 1, wavelength.size - 1)
    narrow = wavelength[right] - wavelength[right - 1] < 1.5 * PIXEL
    inside = (ladder > wavelength[0]) & (ladder < wavelength[-1])
    return ~filled & narrow & inside


def runs(bad: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and lengths of the runs of True in a one-dimensional array."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], bad.astype(np.int8), [0]])))
    return edges[::2], edges[1::2] - edges[::2]


def error_fit(spectrum: RealSpectrum) -> tuple[float, np.ndarray, float]:
    """Photon weight w, the four coefficients of ln A, and the rms of what is left of ln(error)."""
    good = spectrum.good
    flux = np.clip(median_filter(spectrum.flux[good], 15), 0, None)
    relative = flux / np.median(flux)
    design = np.vstack([np.ones(good.sum()), error_basis(spectrum.wavelength[good])]).T
    best = (np.inf, 0.0, np.zeros(4))
    for weight in np.linspace(0, 0.99, 100):
        target = np.log(spectrum.error[good]) - 0.5 * np.log(1 - weight + weight * relative)
        solution = np.linalg.lstsq(design, target, rcond=None)[0]
        residual = float(np.std(target - design @ solution))
        if residual < best[0]:
            best = (residual, float(weight), solution[1:])
    return best[1], best[2], best[0]


def _one(spectrum: RealSpectrum) -> dict[str, Any]:
    """Everything that is measured on one spectrum."""
    w, good = spectrum.wavelength, spectrum.good
    first, last = np.flatnonzero(good)[[0, -1]]
    start, length = runs(~good[first : last + 1])
    start = start + first
    gap = length > 0.05 / PIXEL
    ladder = np.arange(w.size)
    ratio = np.interp(ladder, ladder[good], (spectrum.flux / spectrum.error)[good])
    smooth = median_filter(ratio, 101)
    faint = (smooth < FAINT) & (ladder > first) & (ladder < last)
    gapped = np.zeros(w.size, bool)
    for s, n in zip(start[gap], length[gap], strict=True):
        gapped[s : s + n] = True
    faint &= ~gapped
    defect = ~gap & ~faint[start]
    bright = ~faint & ~gapped & (ladder >= first) & (ladder <= last)
    weight, shape, scatter = error_fit(spectrum)
    return {
        "edges": [float(w[first]), float(w[last])],
        "gap": [[float(w[s]), float(w[s + n - 1])] for s, n in zip(start[gap], length[gap], strict=True)],
        "defect_runs_per_pixel": float(defect.sum() / bright.sum()),
        "defect_lengths": [int(n) for n in length[defect]],
        "faint_pixels": int(faint.sum()),
        "faint_missing": int((faint & ~good).sum()),
        "faint_nonpositive_expected": float(ndtr(-smooth[faint]).sum()),
        "nonpositive": int((spectrum.flux[good] <= 0).sum()),
        "good_fraction": float(good[(w < GAP[0]) | (w > GAP[1])].mean()),
        "snr": float(np.median((spectrum.flux / spectrum.error)[good])),
        "photon_weight": weight,
        "error_shape": shape.tolist(),
        "error_scatter": scatter,
    }


def measure(spectra: list[RealSpectrum]) -> dict[str, Any]:
    """Return the statistics of the packaged file, from the spectra together."""
    found = [_one(s) for s in spectra]
    gaps = np.array([g for one in found for g in one["gap"]])
    edges = np.array([one["edges"] for one in found])
    rates = np.array([one["defect_runs_per_pixel"] for one in found])
    lengths = np.array([n for one in found for n in one["defect_lengths"]])
    shapes = np.array([one["error_shape"] for one in found])
    clipped = [one["nonpositive"] <= CLIP_SHARE * max(one["faint_nonpositive_expected"], 1) for one in found]
    return {
        "schema": "kappaflow-masks/1",
        "provenance": {
            "what": "statistics of bad pixels and error arrays of real JWST/NIRSpec G395H spectra, 2.87-5.27 micron",
            "by": "python -m kappaflow.build.tables.mask_statistics",
            "spectra": [s.name for s in spectra],
            "cite": "Hood et al. 2024; Alejandro Merchan et al. 2025; Faherty et al. 2024; Burgasser et al. 2025",
            "paper_median_good_fraction": "Heraty (2026): 105 real masks, median good-pixel fraction 0.468",
        },
        "spectra": len(found),
        "snr": [one["snr"] for one in found],
        "good_fraction": {"real": [one["good_fraction"] for one in found], "paper_median": 0.468},
        "edges": {"low": edges[:, 0].tolist(), "high": edges[:, 1].tolist()},
        "gap": {"share": len(gaps) / len(found), "low": gaps[:, 0].tolist(), "high": gaps[:, 1].tolist()},
        "defects": {
            "runs_per_pixel": rates.tolist(),
            "single_share": float(np.mean(lengths == 1)),
            "cluster_mean_length": float(lengths[lengths > 1].mean()),
        },
        "clipped": {
            "share": float(np.mean(clipped)),
            "missing_of_faint": [one["faint_missing"] / max(one["faint_pixels"], 1) for one in found],
            "expected_nonpositive_of_faint": [
                one["faint_nonpositive_expected"] / max(one["faint_pixels"], 1) for one in found
            ],
        },
        "error": {
            "photon_weight": [one["photon_weight"] for one in found],
            "shape_mean": shapes.mean(axis=0).tolist(),
            "shape_covariance": np.cov(shapes.T).tolist(),
            "scatter": [one["error_scatter"] for one in found],
        },
    }


def main(words: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spectra", type=Path, help="folder of text spectra")
    packaged = Path(str(resources.files("kappaflow.data") / "masks.json"))
    parser.add_argument("--out", type=Path, default=packaged, help="file to write; default: the packaged one")
    given = parser.parse_args(words)
    write_json(given.out, measure(read_spectra(given.spectra)))


if __name__ == "__main__":
    main()
