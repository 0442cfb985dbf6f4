"""Equilibrium chemistry from the packaged table, and its quenching by vertical mixing.

The table holds log10 of the volume mixing ratios (VMR) over (C/O, [M/H], P, T). Layers sit at fixed pressures, so P
is gone by the time the table arrives here. What is left is interpolated

- in x = ln(T + 200 K) and in [M/H] by uniform cubic B-splines (four taps each, twice differentiable),
- in ln C/O by a monotone cubic (PCHIP) on four nodes: across the cliff near C/O = 0.96, where H2O, CO2 and CH4
  change by decades, a spline would ring.

References
----------
Fritsch, F. N., & Butland, J. 1984, SIAM J. Sci. Stat. Comput., 5, 300 (the monotone cubic)
Zahnle, K. J., & Marley, M. S. 2014, ApJ, 797, 41, equations 12-14 and 32, and the one of CO2 (the chemical times)
Beiler, S. A., et al. 2024, ApJ, 973, 60 (frozen with CO, CO2 comes out too low in T and Y dwarfs)
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kappaflow.constants import GAS, LN10, T_OFFSET
from kappaflow.parameters import GASES

__all__ = [
    "CARBON",
    "NITROGEN",
    "EquilibriumTable",
    "equilibrium",
    "ln_time_carbon",
    "ln_time_carbon_dioxide",
    "ln_time_mixing",
    "ln_time_nitrogen",
    "quench",
    "quenched_composition",
    "water_gas",
]

H2O, CO, CO2 = (GASES.index(gas) for gas in ("H2O", "CO", "CO2"))
CARBON = (0, 1, 2, 3)  # H2O, CH4, CO and CO2 freeze together; CO2 then follows CO and H2O up to its own level
NITROGEN = (4,)  # NH3 (N2 does not absorb, so is not carried)


class EquilibriumTable(NamedTuple):
    """The table at the layers' pressures, a pytree of arrays.

    `coefficients` (co, mh + 2, layer, T + 2, species) are B-spline coefficients of log10 VMR in [M/H] and in x, plain
    values in C/O; `x_grid` and `mh_grid` are (first, step); `mass` is (H + He, heavy elements without C, C at
    C/O = 1), in u per H nucleus, the last two at solar metallicity; `he` is the abundance He/H.
    """

    coefficients: Float[Array, "co mh layer T species"]
    co: Float[Array, " co"]
    mh_grid: Float[Array, " 2"]
    x_grid: Float[Array, " 2"]
    mass: Float[Array, " 3"]
    he: Float[Array, ""]


def _taps(
    position: Float[Array, " ..."], grid: Float[Array, " 2"], n: int
) -> tuple[Int[Array, " ..."], Float[Array, "... 4"]]:
    """First index and the four weights of a uniform cubic B-spline with `n` coefficients; clamped at the ends."""
    u = jnp.clip((position - grid[0]) / grid[1], 0.0, n - 3.0)  # n - 2 nodes carry n coefficients
    index = jnp.clip(jnp.floor(u).astype(jnp.int32), 0, n - 4)
    t = u - index
    s = 1.0 - t
    weights = jnp.stack(
        [s**3, 4.0 - 3.0 * t**2 * (2.0 - t), 4.0 - 3.0 * s**2 * (2.0 - s), t**3],
        axis=-1,
    )
    return index, weights / 6.0


def _monotone_slope(
    h0: Float[Array, ""], h1: Float[Array, ""], d0: Float[Array, " ..."], d1: Float[Array, " ..."]
) -> Float[Array, " ..."]:
    """PCHIP slope at a node between secants `d0` and `d1` of widths `h0`, `h1`; zero at an extremum."""
    same = d0 * d1 > 0
    # both branches of a where are differentiated: keep the unused one finite
    a, b = jnp.where(same, d0, 1.0), jnp.where(same, d1, 1.0)
    w0, w1 = 2.0 * h1 + h0, h1 + 2.0 * h0
    return jnp.where(same, (w0 + w1) / (w0 / a + w1 / b), 0.0)


def _monotone_cubic(
    x: Float[Array, ""], nodes: Float[Array, " 4"], values: Float[Array, "4 ..."], span: Int[Array, ""]
) -> Float[Array, " ..."]:
    """PCHIP between nodes[span] and nodes[span + 1]; at the ends of the axis the outer slope is the secant."""
    h = jnp.diff(nodes)
    d = jnp.diff(values, axis=0) / h.reshape((3,) + (1,) * (values.ndim - 1))
    inner = (_monotone_slope(h[0], h[1], d[0], d[1]), _monotone_slope(h[1], h[2], d[1], d[2]))
    slopes = jnp.stack([d[0], inner[0], inner[1], d[2]])
    width = h[span]
    t = (x - nodes[span]) / width
    y0, y1 = values[span], values[span + 1]
    m0, m1 = slopes[span] * width, slopes[span + 1] * width
    return y0 + t * (m0 + t * (3.0 * (y1 - y0) - 2.0 * m0 - m1 + t * (2.0 * (y0 - y1) + m0 + m1)))


def equilibrium(
    table: EquilibriumTable, T: Float[Array, " layer"], co: Float[Array, ""], mh: Float[Array, ""]
) -> tuple[Float[Array, "species layer"], Float[Array, " layer"]]:
    """Return ln VMR (species in `GASES` order, layer) and the mean molecular weight [u] (layer).

    `T` [K] at the table's layers, `co` the elemental C/O, `mh` = [M/H] in dex. Outside the table the nearest edge is
    used. Helium is inert, so the mean weight follows from its mixing ratio and the elemental mass per helium.
    """
    n_co, n_mh, n_layer, n_t, n_species = table.coefficients.shape
    j, mh_weights = _taps(mh, table.mh_grid, n_mh)
    k, t_weights = _taps(jnp.log(T + T_OFFSET), table.x_grid, n_t)
    inside = jnp.clip(co, table.co[0], table.co[-1])
    left = jnp.clip(jnp.searchsorted(table.co, inside, side="right") - 1, 0, n_co - 2)
    i = jnp.clip(left - 1, 0, n_co - 4)

    four = jnp.arange(4)
    block = table.coefficients[
        (i + four)[:, None, None, None],
        (j + four)[None, :, None, None],
        jnp.arange(n_layer)[None, None, :, None],
        (k[:, None] + four)[None, None],
    ]  # co, mh, layer, T, species
    values = jnp.einsum("cmlts,m,lt->cls", block, mh_weights, t_weights)
    nodes = jnp.log(jax.lax.dynamic_slice(table.co, (i,), (4,)))
    log_vmr = _monotone_cubic(jnp.log(inside), nodes, values, left - i)  # layer, species

    ln_vmr = LN10 * log_vmr.T
    light, heavy, carbon = table.mass
    mass = light + 10.0**mh * (heavy + co * carbon)  # u per H nucleus
    return ln_vmr, jnp.exp(ln_vmr[GASES.index("He")]) / table.he * mass


def ln_time_carbon(
    T: Float[Array, " layer"], ln_pressure: Float[Array, " layer"], mh: Float[Array, ""]
) -> Float[Array, " layer"]:
    """Ln of the CO-CH4-H2O chemical time [s]; `ln_pressure` is ln(P/bar).

    1/t = 1/t_q1 + 1/t_q2, t_q1 = 1.5e-6 P^-1 m^-0.7 exp(42000/T), t_q2 = 40 P^-2 exp(25000/T), m = 10^[M/H].
    """
    fast = jnp.log(1.5e-6) - ln_pressure - 0.7 * LN10 * mh + 42000.0 / T
    dense = jnp.log(40.0) - 2.0 * ln_pressure + 25000.0 / T
    return -jnp.logaddexp(-fast, -dense)


def ln_time_nitrogen(T: Float[Array, " layer"], ln_pressure: Float[Array, " layer"]) -> Float[Array, " layer"]:
    """Ln of the NH3-N2 chemical time [s]: t = 1e-7 P^-1 exp(52000/T); `ln_pressure` is ln(P/bar)."""
    return jnp.log(1e-7) - ln_pressure + 52000.0 / T


def ln_time_carbon_dioxide(T: Float[Array, " layer"], ln_pressure: Float[Array, " layer"]) -> Float[Array, " layer"]:
    """Ln of the chemical time of CO2 + H2 <-> CO + H2O [s]: t = 1e-10 P^-0.5 exp(38000/T); `ln_pressure` is ln(P/bar).

    Far shorter than that of CO and CH4: the exchange goes on when these have frozen.
    """
    return jnp.log(1e-10) - 0.5 * ln_pressure + 38000.0 / T


def ln_time_mixing(
    T: Float[Array, " layer"], mu: Float[Array, " layer"], log_g: Float[Array, ""], log_kzz: Float[Array, ""]
) -> Float[Array, " layer"]:
    """Ln of the mixing time H^2 / kzz [s], H = k T / (mu g); `log_g` and `log_kzz` are log10 in cgs."""
    ln_height = jnp.log(GAS * T / mu) - LN10 * log_g
    return 2.0 * ln_height - LN10 * log_kzz


def quench(ln_vmr: Float[Array, "species layer"], ln_ratio: Float[Array, " layer"]) -> Float[Array, "species layer"]:
    """Freeze `ln_vmr` where mixing beats chemistry; layers run from the top down, `ln_ratio` is ln(t_chem / t_mix).

    Going up from the bottom, a layer with ln_ratio < 0 is in equilibrium; where ln_ratio crosses zero the composition
    is taken at the crossing (linear in ln VMR between the two layers) and carried up. On a profile that falls with
    height this is the usual rule: everything above the deepest level with t_mix < t_chem is frozen. On others, a
    layer higher up that is hot enough resets the gas: wholly where t_chem < t_mix / e, in proportion to -ln_ratio
    before. That blend is linear in VMR, so that elements are conserved, and makes the result continuous in
    `ln_ratio` and `ln_vmr`. If the bottom itself is frozen, its equilibrium is what is carried up.
    """
    vmr = jnp.exp(ln_vmr)

    def rise(
        state: tuple[Array, Array, Array, Array], here: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Array, Array], Array]:
        carried, reset, below, ratio_below = state
        level, ratio = here
        crossing = (ratio_below <= 0) & (ratio > 0)
        fraction = jnp.where(crossing, ratio_below / jnp.where(crossing, ratio_below - ratio, 1.0), 0.0)
        caught = jnp.exp(below + fraction * (level - below))
        # a(1 - w) + b w, not a + w (b - a): in single precision the latter loses b where b << a
        carried = jnp.where(crossing, (1.0 - reset) * carried + reset * caught, carried)
        reset = jnp.where(
            ratio > 0,
            reset * jnp.clip(1.0 - ratio, 0.0, 1.0),
            jnp.maximum(reset, jnp.clip(-ratio, 0.0, 1.0)),
        )
        value = jnp.where(ratio > 0, carried, (1.0 - reset) * carried + reset * jnp.exp(level))
        return (carried, reset, level, ratio), value

    start = (vmr[:, -1], jnp.clip(-ln_ratio[-1], 0.0, 1.0), ln_vmr[:, -1], ln_ratio[-1])
    upward = (ln_vmr[:, :-1].T[::-1], ln_ratio[:-1][::-1])
    _, values = jax.lax.scan(rise, start, upward)
    return jnp.log(jnp.concatenate([values[::-1].T, vmr[:, -1:]], axis=1))


def water_gas(
    ln_vmr: Float[Array, "4 layer"], ln_k: Float[Array, " layer"]
) -> tuple[Float[Array, " layer"], Float[Array, " layer"], Float[Array, " layer"]]:
    """Return ln VMR of H2O, CO and CO2 with CO2 = K CO H2O, carbon and oxygen as in `ln_vmr` (the order of CARBON).

    `ln_k` is ln K = ln [CO2 / (CO H2O)], H2 being too abundant to matter. Moving x from CO and H2O to CO2,
    CO2 + x = K (CO - x) (H2O - x); the smaller root, which is 0 where the gas is in this equilibrium already.
    """
    water, monoxide, dioxide = (jnp.exp(ln_vmr[i]) for i in (H2O, CO, CO2))
    total = water + monoxide
    # Divided by 1 + K (CO + H2O): K spans tens of decades, u = K (CO + H2O) / (1 + K (CO + H2O)) does not.
    u = jax.nn.sigmoid(ln_k + jnp.log(total))
    rest = jax.nn.sigmoid(-(ln_k + jnp.log(total)))
    share = water / total  # in [0, 1]: products of two mole fractions would leave single precision
    constant = u * share * (monoxide / total) - rest * dioxide / total  # over the total
    root = jnp.sqrt(jnp.maximum(1.0 - 4.0 * u * constant, 1e-12))
    x = total * 2.0 * constant / (1.0 + root)
    # x stays below the smaller of CO and H2O and above -CO2; rounding may touch what is nearly used up.
    left = [jnp.maximum(gas, 1e-7 * whole) for gas, whole in ((water - x, water), (monoxide - x, monoxide))]
    return jnp.log(left[0]), jnp.log(left[1]), jnp.log(jnp.maximum(dioxide + x, 1e-7 * dioxide))


def quenched_composition(
    table: EquilibriumTable,
    T: Float[Array, " layer"],
    ln_pressure: Float[Array, " layer"],
    parameters: tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""], Float[Array, ""]],
) -> tuple[Float[Array, "species layer"], Float[Array, " layer"]]:
    """Return `equilibrium` with carbon (H2O, CH4, CO, CO2) and NH3 quenched.

    Above the level where CO and CH4 freeze, CO2 stays in equilibrium with the frozen CO and H2O until its own level,
    where the constant of that equilibrium is frozen: so carbon and oxygen are conserved in every layer.
    `ln_pressure` is ln(P/bar) of the layers, top first; `parameters` is (C/O, [M/H], log10 kzz, log10 g), cgs.
    """
    co, mh, log_kzz, log_g = parameters
    ln_vmr, mu = equilibrium(table, T, co, mh)
    mixing = ln_time_mixing(T, mu, log_g, log_kzz)
    carbon = quench(ln_vmr[jnp.array(CARBON)], ln_time_carbon(T, ln_pressure, mh) - mixing)
    ln_k = jnp.clip(ln_vmr[CO2] - ln_vmr[CO] - ln_vmr[H2O], -60.0, 60.0)  # where it matters it is 0 to 12
    ln_k = quench(ln_k[None], ln_time_carbon_dioxide(T, ln_pressure) - mixing)[0]
    water, monoxide, dioxide = water_gas(carbon, ln_k)
    carbon = jnp.stack([water, carbon[1], monoxide, dioxide])
    nitrogen = quench(ln_vmr[jnp.array(NITROGEN)], ln_time_nitrogen(T, ln_pressure) - mixing)
    return jnp.concatenate([carbon, nitrogen, ln_vmr[5:]]), mu
