"""The parameters, the absorbers and the layout of the perturbation, as data: each said once, here.

Two sets. `paper`: the fifteen parameters and uniform priors of the paper's appendix, six absorbers, nine Fourier
coefficients per species. `full`: the fifteen with wider priors where real objects pile up at the paper's, the
abundance of PH3, the structure that no model has (`log_f`), and a temperature slope among the coefficients.
`T1`..`T5` are the temperatures at log10(P/bar) = -5, -3, -1, 1, 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from kappaflow.errors import UserError

__all__ = [
    "COEFFICIENTS",
    "DRAWS",
    "GASES",
    "INDEX",
    "KNOT_LOG_PRESSURE",
    "MODES",
    "NAMED",
    "PARAMETERS",
    "PARAMETER_SETS",
    "SNR",
    "SPECIES",
    "TRACES",
    "Parameter",
    "ParameterSet",
    "bounds",
    "parameter_set",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One retrieved quantity with its uniform prior [low, high]."""

    name: str
    unit: str
    low: float
    high: float
    label: str

    @property
    def width(self) -> float:
        """Width of the prior, in `unit`."""
        return self.high - self.low


@dataclass(frozen=True)
class ParameterSet:
    """What is retrieved, which absorbers the atmosphere has, and which coefficients randomize their opacities."""

    name: str
    parameters: tuple[Parameter, ...]
    species: tuple[str, ...]
    slopes: bool  # is a temperature slope the last coefficient of every species?

    def __len__(self) -> int:
        return len(self.parameters)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in their order."""
        return tuple(p.name for p in self.parameters)

    @cached_property
    def low(self) -> np.ndarray:
        """Lower prior bounds, (D,)."""
        return np.array([p.low for p in self.parameters])

    @cached_property
    def high(self) -> np.ndarray:
        """Upper prior bounds, (D,)."""
        return np.array([p.high for p in self.parameters])

    @property
    def coefficients(self) -> int:
        """Number of coefficients per species."""
        return COEFFICIENTS + self.slopes

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a table of spectra: parameters, coefficients, combination of lists, SNR."""
        modes = range(1, MODES + 1)
        each = ("c0", *(f"a{m}" for m in modes), *(f"b{m}" for m in modes), *(("slope",) if self.slopes else ()))
        return (*self.names, *(f"{s}_{name}" for s in self.species for name in each), "combination", SNR.name)

    def check(self, theta: ArrayLike) -> np.ndarray:
        """Return `theta` as float64 of shape (..., D), or raise naming the parameter, its value and its bounds."""
        try:
            values = np.asarray(theta, dtype=float)
        except (TypeError, ValueError) as error:
            raise UserError(f"theta: not an array of numbers ({error}); expected shape (..., {len(self)})") from None
        if values.ndim == 0 or values.shape[-1] != len(self):
            raise UserError(
                f"theta: shape {values.shape}; expected (..., {len(self)}), the parameters of the set "
                f"{self.name!r} in the order {', '.join(self.names)}"
            )
        for i, p in enumerate(self.parameters):
            column = values[..., i]
            bad = ~((column >= p.low) & (column <= p.high))  # NaN is bad too
            if bad.any():
                first = column[bad].flat[0]
                raise UserError(
                    f"theta: {p.name} = {first:g} {p.unit}".rstrip()
                    + f" is outside its prior [{p.low:g}, {p.high:g}] ({int(bad.sum())} of {column.size} values)"
                )
        return values


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("T1", "K", 150.0, 1500.0, r"$T_1$"),
    Parameter("T2", "K", 200.0, 2000.0, r"$T_2$"),
    Parameter("T3", "K", 300.0, 2500.0, r"$T_3$"),
    Parameter("T4", "K", 500.0, 3000.0, r"$T_4$"),
    Parameter("T5", "K", 800.0, 3500.0, r"$T_5$"),
    Parameter("C_O", "", 0.1, 1.5, "C/O"),
    Parameter("M_H", "dex", -1.0, 1.5, "[M/H]"),
    Parameter("log_kzz", "dex(cm2 s-1)", 6.0, 10.0, r"$\log k_{zz}$"),
    Parameter("log_g", "dex(cm s-2)", 3.0, 5.5, r"$\log g$"),
    Parameter("R", "R_Jup", 0.5, 2.0, r"$R$"),
    Parameter("f_sed", "", 0.5, 8.0, r"$f_\mathrm{sed}$"),
    Parameter("sigma_c", "", 1.2, 2.5, r"$\sigma_c$"),
    Parameter("v_r", "km s-1", -100.0, 100.0, r"$v_r$"),
    Parameter("v_sin_i", "km s-1", 0.0, 30.0, r"$v\sin i$"),
    Parameter("sigma_cal", "", 0.0, 0.05, r"$\sigma_\mathrm{cal}$"),
)
SNR = Parameter("SNR", "", 10.0, 200.0, "SNR")  # conditioning, not retrieved: median per pixel

KNOT_LOG_PRESSURE = (-5.0, -3.0, -1.0, 1.0, 3.0)  # log10(P/bar) of T1..T5
SPECIES = ("H2O", "CH4", "CO", "CO2", "NH3", "H2S")  # absorbers that the chemistry gives
TRACES = ("PH3",)  # absorbers of one mole fraction in all layers, the parameter log_NAME; after SPECIES, where present
GASES = (*SPECIES, "H2", "He")  # the species axis of the chemistry
DRAWS = 2000  # of a posterior, wherever nobody asks for another number
MODES = 4
COEFFICIENTS = 1 + 2 * MODES  # of the field, per species: c0, a_1..a_4 (cos), b_1..b_4 (sin)

# Late-T and Y dwarfs reach some 100 K at a millibar and 200 K at 0.1 bar (Sonora Bobcat, 400 K), where the opacity
# table's coldest temperature, 150 K, stands in; and their mixing is weaker, or stronger, than the paper's range allows.
_WIDER = {
    "T1": (80.0, 1500.0),
    "T2": (80.0, 2000.0),
    "T3": (150.0, 2500.0),
    "T4": (400.0, 3000.0),
    "log_kzz": (3.0, 11.0),
}
_MORE = (
    Parameter("log_PH3", "dex", -11.0, -5.0, r"$\log\mathrm{PH_3}$"),
    Parameter("log_f", "dex", -3.0, -0.7, r"$\log f$"),
)


def _widened(p: Parameter) -> Parameter:
    low, high = _WIDER.get(p.name, (p.low, p.high))
    return replace(p, low=low, high=high)


PARAMETER_SETS: Mapping[str, ParameterSet] = MappingProxyType(
    {
        "paper": ParameterSet("paper", PARAMETERS, SPECIES, slopes=False),
        "full": ParameterSet("full", (*map(_widened, PARAMETERS), *_MORE), (*SPECIES, *TRACES), slopes=True),
    }
)
# The sets share their order, so that a name has one place, one unit and one label in all of them.
NAMED = MappingProxyType({p.name: p for p in PARAMETER_SETS["full"].parameters})
INDEX = MappingProxyType({name: i for i, name in enumerate(NAMED)})


def bounds() -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper prior bounds of the paper's parameters, each of shape (15,)."""
    return PARAMETER_SETS["paper"].low, PARAMETER_SETS["paper"].high


def parameter_set(name: str) -> ParameterSet:
    """Look up a parameter set by name.

    Examples
    --------
    >>> len(parameter_set("paper")), parameter_set("full").names[-2:]
    (15, ('log_PH3', 'log_f'))
    """
    try:
        return PARAMETER_SETS[name]
    except KeyError:
        raise UserError(f"parameters: unknown set {name!r}; expected one of {', '.join(PARAMETER_SETS)}") from None
