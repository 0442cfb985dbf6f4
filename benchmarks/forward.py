"""Speed of the forward model beside ExoJAX in one run: 10,000 points, 60 layers, six species, everything included.

    python benchmarks/forward.py [--json] [--batch 128] [--scaling]

Ours: parameters to pixels (chemistry, quenching, cloud, perturbed opacities, transfer, Doppler, line-spread function).
ExoJAX, two ways: `OpaPremodit.xsmatrix` of six species at its default settings (20,000 made-up lines each; the cost
hardly depends on them) with its own transfer; and its transfer alone on ready-made cross sections, with as many angles
as ours.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import time
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from kappaflow.model.forward import ForwardModel
from kappaflow.parameters import SPECIES, bounds
from kappaflow.presets import preset
from kappaflow.tables.opacity import load_opacity

POINTS, LAYERS, ANGLES = 10_000, 60, 6


def draws(n):
    low, high = bounds()
    rng = np.random.default_rng(0)
    return rng.uniform(low, high, (n, low.size)), rng.normal(0, 0.15, (n, 54))


def seconds(run, repeats=3):
    """Best wall time and best CPU time of `run`, after one call to compile."""
    run()
    wall, cpu = [], []
    for _ in range(repeats):
        w, c = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - w)
        cpu.append(time.process_time() - c)
    return min(wall), min(cpu)


def model(table, stride=2, layers=LAYERS):
    sizes = preset("paper").model_copy(update={"stride": stride, "layers": layers})
    return ForwardModel.load(sizes, opacity=table)


def time_ours(forward, batch):
    theta, field = draws(batch)
    wall, cpu = seconds(lambda: forward(theta, field))
    return {"ms_per_spectrum": 1e3 * wall / batch, "core_ms_per_spectrum": 1e3 * cpu / batch}


def line_parameters(nu, seed):
    """Look like an ExoMol database to `OpaPremodit`: 20,000 lines with a usual spread of widths and exponents."""
    rng = np.random.default_rng(seed)
    count = 20_000
    temperature = np.linspace(100.0, 4000.0, 400)
    return SimpleNamespace(
        dbtype="exomol",
        molmass=18.0,
        T_gQT=temperature,
        gQT=(temperature / 296) ** 1.5,
        qr_interp=lambda t, t_ref: (t / t_ref) ** 1.5,
        line_strength_ref_original=10 ** rng.uniform(-28, -20, count),
        n_Texp=rng.uniform(0.4, 0.8, count),
        alpha_ref=rng.uniform(0.03, 0.1, count),
        nu_lines=np.sort(rng.uniform(nu[0], nu[-1], count)),
        elower=rng.uniform(0, 5000, count),
    )


def time_premodit():
    """Time one spectrum whose six cross-section matrices ExoJAX computes itself, in double precision as it asks."""
    from exojax.opacity import OpaPremodit
    from exojax.rt import ArtEmisPure
    from exojax.utils.grids import wavenumber_grid

    with jax.enable_x64(True):
        nu, _, _ = wavenumber_grid(1850.0, 3550.0, POINTS, xsmode="premodit", unit="cm-1")
        # One operator serves six times: the species differ in their numbers, not in their cost.
        opa = OpaPremodit(line_parameters(nu, 0), nu, auto_trange=[300.0, 2000.0])
        art = ArtEmisPure(
            pressure_top=1e-5, pressure_btm=1e3, nlayer=LAYERS, nu_grid=nu, rtsolver="ibased", nstream=2 * ANGLES
        )
        pressure = jnp.asarray(art.pressure)

        def spectrum(scale):
            temperature = scale * jnp.linspace(400.0, 1900.0, LAYERS)
            dtau = jnp.zeros((LAYERS, POINTS))
            for _ in SPECIES:
                xs = opa.xsmatrix(temperature, pressure)
                dtau = dtau + art.opacity_profile_xs(xs, jnp.full(LAYERS, 1e-4), 18.0, 1e4)
            return art.run(dtau, temperature).block_until_ready()

        wall, cpu = seconds(lambda: spectrum(1.01), repeats=1)
    return {"ms_per_spectrum": 1e3 * wall, "core_ms_per_spectrum": 1e3 * cpu}


def time_transfer():
    """Seconds of ExoJAX's transfer when it is handed six cross-section matrices, single precision, jit-compiled."""
    from exojax.rt import ArtEmisPure

    nu = np.geomspace(1850.0, 3550.0, POINTS)
    art = ArtEmisPure(
        pressure_top=1e-5, pressure_btm=1e3, nlayer=LAYERS, nu_grid=nu, rtsolver="ibased", nstream=2 * ANGLES
    )
    xs = jnp.asarray(10 ** np.random.default_rng(0).uniform(-26, -19, (6, LAYERS, POINTS)), jnp.float32)

    @jax.jit
    def spectrum(xs, temperature):
        dtau = sum(art.opacity_profile_xs(x, jnp.full(LAYERS, 1e-4), 18.0, 1e4) for x in xs)
        return art.run(dtau, temperature)

    temperature = jnp.linspace(400.0, 1900.0, LAYERS)
    wall, cpu = seconds(lambda: spectrum(xs, temperature).block_until_ready(), repeats=5)
    return {"ms_per_spectrum": 1e3 * wall, "core_ms_per_spectrum": 1e3 * cpu}


def time_exponentials():
    """Core-milliseconds that the exponentials alone of one spectrum cost when nothing leaves the cache: the bound."""
    slab = jnp.asarray(np.random.default_rng(0).normal(size=(6, 32, 256)), jnp.float32)
    start = jnp.zeros((32, 256))

    @jax.jit
    def run(slab, shifts):
        return lax.scan(lambda c, x: (c + jnp.sum(jnp.exp(slab + x), axis=0), None), start, shifts)[0]

    shifts = jnp.linspace(-1.0, 1.0, 200)
    _, cpu = seconds(lambda: run(slab, shifts).block_until_ready(), repeats=5)
    each = cpu / (200 * slab.size)
    return 1e3 * each * (len(SPECIES) + 1) * LAYERS * POINTS


def scaling(table, batch):
    """Core-milliseconds per spectrum against points, layers and spectra."""
    out = {"points": {}, "layers": {}, "spectra": {}}
    for stride in (8, 4, 2):
        out["points"][20_000 // stride] = time_ours(model(table, stride), 64)["core_ms_per_spectrum"]
    for layers in (30, 60, 120):
        out["layers"][layers] = time_ours(model(table, 8, layers), 64)["core_ms_per_spectrum"]
    small = model(table, 8)
    for n in (32, 64, 128, 256)[: 3 if batch < 256 else 4]:
        out["spectra"][n] = time_ours(small, n)["core_ms_per_spectrum"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--scaling", action="store_true", help="also the cost against points, layers and spectra")
    options = parser.parse_args()
    table = load_opacity()
    result = {"points": POINTS, "layers": LAYERS, "angles": ANGLES, "batch": options.batch}
    result["ours"] = time_ours(model(table), options.batch)
    result["peak_memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result["exponentials_bound_core_ms"] = time_exponentials()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        result["exojax_transfer_alone"] = time_transfer()
        result["exojax_premodit"] = time_premodit()
    for rival in ("exojax_transfer_alone", "exojax_premodit"):
        mine, theirs = result["ours"]["ms_per_spectrum"], result[rival]["ms_per_spectrum"]
        result[f"times_faster_than_{rival}"] = theirs / mine
    if options.scaling:
        result["scaling_core_ms"] = scaling(table, options.batch)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
