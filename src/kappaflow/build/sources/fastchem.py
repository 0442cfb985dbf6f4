"""FastChem at one elemental composition: where its data are, the abundance recipe, the mixing ratios."""

from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import GASES

__all__ = ["FastChemData", "Solver", "find_data"]

HILL = {"H2O": "H2O1", "CH4": "C1H4", "CO": "C1O1", "CO2": "C1O2", "NH3": "H3N1", "H2S": "H2S1", "H2": "H2", "He": "He"}
INSTALL = "python -m pip install pyfastchem && python -m pip install --no-deps exogibbs"


@dataclass(frozen=True)
class FastChemData:
    """Paths of the elemental abundances and the equilibrium constants, and what to call them."""

    abundances: Path
    constants: Path
    versions: dict[str, str]


def find_data() -> FastChemData:
    """Find the files that exogibbs installs, without importing it (it would bring JAX and more)."""
    if util.find_spec("pyfastchem") is None:
        raise UserError(f"chemistry build: pyfastchem is not installed; run `{INSTALL}`")
    spec = util.find_spec("exogibbs")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if not folders:
        raise UserError(f"chemistry build: exogibbs, which carries FastChem's data, is not installed; run `{INSTALL}`")
    root = Path(folders[0]) / "data" / "FastChem4"
    abundances, constants = root / "element_abundances" / "asplund_2009.dat", root / "logK" / "logK.dat"
    for file in (abundances, constants):
        if not file.is_file():
            raise UserError(
                f"chemistry build: exogibbs has no {file.relative_to(root.parent)}; "
                "run `python -m pip install --no-deps 'exogibbs>=0.7'`"
            )
    return FastChemData(abundances, constants, {n: metadata.version(n) for n in ("pyfastchem", "exogibbs")})


class Solver:
    """Gas-phase equilibrium (no condensates) at C/O = `co`, [M/H] = `mh`.

    Every element heavier than He is scaled by 10^[M/H]; O stays there; C is set to C/O times that O. Each composition
    gets its own FastChem, whose iterations start from nothing: the result does not depend on what was solved before.
    """

    def __init__(self, data: FastChemData, co: float, mh: float, *, sweeps: int = 5) -> None:
        import pyfastchem

        self._module = pyfastchem
        self._chem: Any = pyfastchem.FastChem(str(data.abundances), str(data.constants), 0)
        # Newton on all elements after 5 fixed-point sweeps, not FastChem's 400: near C/O = 1 the sweeps crawl (50 ms a
        # point against 4), and the answers agree to 0.001 dex
        self._chem.setParameter("nbSwitchToNewton", sweeps)
        self.symbols = [self._chem.getElementSymbol(i) for i in range(self._chem.getElementNumber())]
        self.weights = np.array([self._chem.getElementWeight(i) for i in range(len(self.symbols))])
        self.solar = np.array(self._chem.getElementAbundances())
        heavy = np.array([s not in ("e-", "H", "He") for s in self.symbols])
        abundances = np.where(heavy, self.solar * 10.0**mh, self.solar)
        abundances[self.symbols.index("C")] = co * abundances[self.symbols.index("O")]
        self._chem.setElementAbundances(list(abundances))
        self._columns = [self._chem.getGasSpeciesIndex(HILL[name]) for name in GASES]

    def log_vmr(self, temperature: np.ndarray, pressure: np.ndarray) -> np.ndarray:
        """log10 VMR, shape (point, species), of `temperature` [K] and `pressure` [bar]; NaN where not converged."""
        question, answer = self._module.FastChemInput(), self._module.FastChemOutput()
        question.temperature, question.pressure = temperature.astype(float), pressure.astype(float)
        self._chem.calcDensities(question, answer)
        densities = np.array(answer.number_densities)
        vmr = densities[:, self._columns] / densities.sum(axis=1, keepdims=True)
        converged = np.array(answer.fastchem_flag) == self._module.FASTCHEM_SUCCESS
        converged &= np.array(answer.element_conserved).astype(bool).all(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log10(np.maximum(vmr, 1e-99))
        return np.where(converged[:, None] & np.isfinite(logs), logs, np.nan)

    def masses(self) -> tuple[np.ndarray, float]:
        """Elemental masses as `ChemistryTable.mass` [u per H], and He/H."""
        index = {s: i for i, s in enumerate(self.symbols)}
        each = self.solar * self.weights
        light = each[index["H"]] + each[index["He"]]
        heavy = sum(each[i] for s, i in index.items() if s not in ("e-", "H", "He", "C"))
        carbon = self.solar[index["O"]] * self.weights[index["C"]]
        return np.array([light, heavy, carbon]), float(self.solar[index["He"]])
