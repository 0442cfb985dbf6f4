"""Which share of an object's light leaves in 2.87-5.27 um: the assumption behind T_eff.

    python benchmarks/bolometric.py --data DIR

DIR holds `spectra` (with *_results.txt: fbol) and `models` (two Sonora Elf Owl files, 0.6-15 um).
"""

import argparse
import re
from pathlib import Path

import numpy as np
import xarray as xr

import kappaflow as kf
from kappaflow.constants import L_SUN, PARSEC, SIGMA_SB
from kappaflow.instrument import WINDOW, pixel_grid
from kappaflow.observe.resampling import on_pixels
from kappaflow.retrieval.derived import SHARE, window_luminosity

SAUMON = -5.67  # log10 L/L_sun of 2MASS J0415-0935: Saumon et al. 2007, ApJ 656, 1136


def observed(folder: Path) -> dict[str, float]:
    """Return the share of each spectrum with a published luminosity."""
    pixels = pixel_grid(2).mean(axis=0)
    shares = {}
    for path in sorted(folder.glob("*_SED.txt")):
        said = Path(str(path).replace("apparent_SED", "results")).read_text()
        fbol = float(re.search(r"fbol\s+(\S+)", said)[1])
        whole = fbol * 4 * np.pi * (10 * PARSEC) ** 2 / L_SUN  # as if at 10 pc
        shares[path.name[:21]] = _light(path, pixels, 10.0) / whole
    for path in folder.glob("*2M0415*"):
        shares["2MASS J0415-0935"] = _light(path, pixels, 5.71) / 10**SAUMON
    return shares


def _light(path: Path, pixels: np.ndarray, distance: float) -> float:
    found = window_luminosity(on_pixels(kf.read_spectrum(path), pixels, distance))
    assert found is not None, path
    return found.nrs1 + found.nrs2


def modelled(folder: Path) -> dict[str, float]:
    """Return the share of each model atmosphere, whose name states its effective temperature."""
    shares = {}
    for path in sorted(folder.glob("*teff*.nc")):
        with xr.open_dataset(path, engine="scipy") as data:
            order = np.argsort(data.wavelength.values)
            wave, flux = data.wavelength.values[order], data.flux.values[order]
        use = (wave > WINDOW[0]) & (wave < WINDOW[1])
        teff = float(re.search(r"teff_([\d.]+)", path.name)[1])
        shares[f"Elf Owl, {teff:g} K"] = np.trapezoid(flux[use], wave[use] * 1e-4) / (SIGMA_SB * teff**4)
    return shares


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    every = observed(data / "spectra") | modelled(data / "models")
    for name, share in every.items():
        print(f"| {name} | {share:.3f} |")
    ln = np.log(list(every.values()))
    print(f"ln share: mean {ln.mean():.2f}, scatter {ln.std(ddof=1):.2f}; in the package {SHARE}")
