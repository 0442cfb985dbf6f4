"""The fifteen parameters, the six absorbers and the layout of the perturbation: each said once, here.

Priors are uniform; ranges are those of the paper's appendix. `T1`..`T5` are the temperatures at
log10(P/bar) = -5, -3, -1, 1, 3.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    "PARAMETERS",
    "SNR",
    "SPECIES",
    "Parameter",
    "bounds",
    "check_theta",
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

INDEX = MappingProxyType({p.name: i for i, p in enumerate(PARAMETERS)})
KNOT_LOG_PRESSURE = (-5.0, -3.0, -1.0, 1.0, 3.0)  # log10(P/bar) of T1..T5

SPECIES = ("H2O", "CH4", "CO", "CO2", "NH3", "H2S")
GASES = (*SPECIES, "H2", "He")  # the species axis of the chemistry
DRAWS = 2000  # of a posterior, wherever nobody asks for another number
MODES = 4
COEFFICIENTS = 1 + 2 * MODES  # per species: c0, a_1..a_4 (cos), b_1..b_4 (sin); 54 in all


def bounds() -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper prior bounds, each of shape (15,)."""
    return np.array([p.low for p in PARAMETERS]), np.array([p.high for p in PARAMETERS])


def check_theta(theta: ArrayLike) -> np.ndarray:
    """Return `theta` as float64 of shape (..., 15), or raise naming the parameter, its value and its bounds."""
    try:
        values = np.asarray(theta, dtype=float)
    except (TypeError, ValueError) as error:
        raise UserError(f"theta: not an array of numbers ({error}); expected shape (..., 15)") from None
    if values.ndim == 0 or values.shape[-1] != len(PARAMETERS):
        raise UserError(
            f"theta: shape {values.shape}; expected (..., {len(PARAMETERS)}), "
            f"in the order {', '.join(p.name for p in PARAMETERS)}"
        )
    for i, p in enumerate(PARAMETERS):
        column = values[..., i]
        bad = ~((column >= p.low) & (column <= p.high))  # NaN is bad too
        if bad.any():
            first = column[bad].flat[0]
            raise UserError(
                f"theta: {p.name} = {first:g} {p.unit}".rstrip()
                + f" is outside its prior [{p.low:g}, {p.high:g}] ({int(bad.sum())} of {column.size} values)"
            )
    return values
