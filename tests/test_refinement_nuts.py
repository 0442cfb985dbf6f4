"""Long chains: the straightened funnel, exact forces, the analytic posterior, and going on after a kill."""

import json
import warnings

import numpy as np
import pytest
from linear_toy import BRIGHT, SIGMA, bright_case, linear_case

from kappaflow.errors import UserError
from kappaflow.refinement import ReferenceSettings, nuts
from kappaflow.refinement.best_fit import Mode
from kappaflow.refinement.brightness import Brightness
from kappaflow.refinement.chain_quality import judged
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.densities import Everything, Integrated
from kappaflow.refinement.nuts import Plan, Walked, walk_chain
from kappaflow.refinement.sampling import Effort, sample


def mode_of(joint):
    (top,) = climb(joint.expand, [Climb(np.zeros(joint.coordinates.size))], steps=80)
    return Mode({}, top, joint)


def walked(density):
    return [walk_chain(density, Plan(50, 150, 6, (0, 0, i))) for i in range(2)]


@pytest.mark.parametrize(
    "coordinates",
    [
        Coordinates(BRIGHT, SIGMA),
        Coordinates(BRIGHT, SIGMA, held=(("sigma_cal", 0.03),)),
        Coordinates(BRIGHT, SIGMA, scale_free=True, held=(("R", 1.0),)),
        Coordinates(BRIGHT, SIGMA, held=(("sigma_cal", 0.0),)),
    ],
    ids=["radius", "held calibration", "scale", "no gains"],
)
def test_straightened_coordinates_go_back_and_know_their_volume(coordinates):
    bright = Brightness(coordinates)
    z = 0.7 * np.random.default_rng(0).standard_normal(coordinates.size)
    w = bright.of(z)
    here = bright.back(w)
    np.testing.assert_allclose(here.z, z, atol=1e-9)
    step = 1e-6 * np.eye(z.size)
    ends = [[bright.back(w + sign * row) for row in step] for sign in (1, -1)]
    turn = np.array([(a.z - b.z) / 2e-6 for a, b in zip(*ends, strict=True)]).T
    np.testing.assert_allclose(here.turn, turn, atol=1e-6)
    assert here.ln_volume == pytest.approx(np.linalg.slogdet(turn)[1], abs=1e-6)
    slope = [(a.ln_volume - b.ln_volume) / 2e-6 for a, b in zip(*ends, strict=True)]
    np.testing.assert_allclose(here.d_ln_volume, slope, atol=1e-6)


def test_a_radius_outside_its_prior_is_impossible():
    joint, _ = bright_case(1)
    density = Everything(mode_of(joint))
    far = density.centre.copy()
    far[density.map.level] = 2 * np.log(2.5)
    assert density(far)[0] == -np.inf


@pytest.mark.parametrize("structure", [False, True])
def test_forces_are_gradients(structure):
    """Exact where everything is sampled; where coefficients are integrated out, but for how their basis bends."""
    joint, _ = bright_case(1, bend=0.3, structure=structure)
    mode, rng = mode_of(joint), np.random.default_rng(0)
    for kind, close in ((Everything, 1e-5), (Integrated, 0.05)):
        density = kind(mode)
        root = np.linalg.cholesky(density.covariance)
        w = density.centre + 0.7 * root @ rng.standard_normal(density.centre.size)
        step = 1e-5 * root.T
        slope = np.array([density(w + row)[0] - density(w - row)[0] for row in step]) / 2e-5
        np.testing.assert_allclose(root.T @ density(w)[1], slope, rtol=close, atol=close)


def test_integrating_the_coefficients_of_a_linear_model_out_is_exact():
    joint, _, (mean, precision) = linear_case(1)
    density = Integrated(mode_of(joint))
    covariance = np.linalg.inv(precision)[:2, :2]
    np.testing.assert_allclose(density.covariance[:2, :2], covariance, rtol=1e-6)
    shift = np.zeros((3, density.centre.size))
    shift[:, :2] = np.random.default_rng(0).standard_normal((3, 2)) * 0.3
    drop = [density(density.centre)[0] - density(density.centre + row)[0] for row in shift]
    exact = [0.5 * row[:2] @ np.linalg.solve(covariance, row[:2]) for row in shift]
    np.testing.assert_allclose(drop, exact, atol=2e-3)


@pytest.fixture(scope="module", params=[Everything, Integrated])
def linear_chains(request):
    """White draws of a linear model's chains, by the exact posterior, and the quality of the chains."""
    joint, _, (mean, precision) = linear_case(0)
    chains = walked(request.param(mode_of(joint)))
    kept = np.arange(2) if request.param is Integrated else np.arange(mean.size - 2)  # without the gains
    root = np.linalg.cholesky(np.linalg.inv(precision)[np.ix_(kept, kept)])
    off = np.concatenate([chain.w for chain in chains])[:, kept] - mean[kept]
    return np.linalg.solve(root, off.T).T, judged(chains, 150)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.4, False), (1 / 1.4, False)])
def test_nuts_gives_the_analytic_posterior_neither_too_wide_nor_too_narrow(linear_chains, factor, passes):
    white, quality = linear_chains
    assert quality.shortcomings == ()
    n, k = quality.ess_bulk, white.shape[1]
    assert np.abs(white.mean(axis=0)).max() < 4.5 / np.sqrt(n)
    spread = ((white * factor) ** 2).mean()
    assert (abs(spread - 1) < 4.5 * np.sqrt(2 / (n * k))) == passes


def test_nuts_and_refinement_agree_on_a_bent_model_with_radius_gains_and_structure():
    joint, _ = bright_case(5, bend=0.3, structure=True)
    mode = mode_of(joint)
    density = Everything(mode)
    chains = walked(density)
    assert judged(chains, 150).r_hat < 1.1
    z = np.array([density.whole(w) for chain in chains for w in chain.w])
    found = sample(joint, mode.climb.z, mode.covariance, np.random.default_rng(0), effort=Effort())
    weight = np.exp(found.weights.ln)
    mean = weight @ found.z
    spread = np.sqrt(weight @ (found.z - mean) ** 2)
    assert (np.abs(z.mean(axis=0) - mean) < 0.35 * spread).all()
    assert (np.abs(np.log(z.std(axis=0) / spread)) < 0.35).all()


def test_a_killed_chain_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(nuts, "SAVED", 0.0)
    joint, _, _ = linear_case(0)
    density, plan = Integrated(mode_of(joint)), Plan(12, 12, 4, (3, 0, 0))
    whole = walk_chain(density, plan, tmp_path / "whole.npz")
    for stop in (5, 16):
        count = iter(range(100))

        def kill(stop=stop, count=count):
            if next(count) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            walk_chain(density, plan, tmp_path / "killed.npz", kill)
        assert Walked.load(tmp_path / "killed.npz").done == stop + 1
    again = walk_chain(density, plan, tmp_path / "killed.npz")
    assert again.w.tobytes() == whole.w.tobytes()
    assert again.forces == whole.forces
    more = walk_chain(density, Plan(12, 20, 4, (3, 0, 0)), tmp_path / "killed.npz")  # a longer run goes on too
    assert more.w[:12].tobytes() == whole.w.tobytes()
    assert len(more.w) == 20
    (tmp_path / "killed.npz").write_bytes(b"no chain")
    with pytest.raises(UserError, match="unreadable"):
        walk_chain(density, plan, tmp_path / "killed.npz")


def test_chains_that_disagree_are_noticed():
    def chain(shift):
        w = np.random.default_rng(int(shift)).standard_normal((200, 2)) + shift
        return Walked(w, np.zeros(200), np.ones(200, int), np.ones(200), np.zeros(200, bool))

    assert judged([chain(0.0), chain(0.001)], 200).shortcomings == ()
    assert "chains disagree" in judged([chain(0), chain(3)], 200).shortcomings[0]


def test_wrong_settings_and_a_missing_extra_are_one_line(monkeypatch):
    with pytest.raises(UserError, match="expected one of fixed, marginal, sampled, lists"):
        ReferenceSettings(opacity="free")
    with pytest.raises(UserError, match="expected at least 2, 1 and 4"):
        ReferenceSettings(chains=1)
    monkeypatch.setattr(nuts.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"numpyro is not installed; run pip install 'kappaflow\[reference\]'"):
        nuts.need_numpyro()


@pytest.fixture(scope="module")
def tiny_set(tmp_path_factory):
    """A few spectra of the tiny preset."""
    from kappaflow.simulation import make_config, simulate_directory

    folder = tmp_path_factory.mktemp("tiny") / "set"
    simulate_directory(folder, make_config(preset="tiny", parameters="full"), 128, seed=77)
    return folder


def test_the_command_samples_a_simulated_spectrum_and_goes_on_after_a_kill(tiny_set, tmp_path, command, monkeypatch):
    import xarray as xr

    words = ["reference", "--data", tiny_set, "--opacity", "fixed", "--chains", 2, "--warmup", 4, "--samples", 5]
    words += ["--depth", 2, "--starts", 1, "--json"]
    code, out, _ = command(*words, "--out", tmp_path / "whole")
    assert code == 0
    (summary,) = json.loads(out)
    assert summary["name"] == "row-000000"
    assert not summary["converged"]  # ten draws
    assert summary["shortcomings"]
    assert len(summary["truth"]["theta"]) == len(summary["parameters"])
    assert summary == json.loads((tmp_path / "whole" / "row-000000" / "summary.json").read_text())
    with xr.open_dataset(tmp_path / "whole" / "row-000000" / "posterior.nc", group="posterior") as draws:
        assert draws["C_O"].shape == (2, 5)
        assert ((draws["C_O"] > 0.1) & (draws["C_O"] < 1.5)).all()
    with xr.open_dataset(tmp_path / "whole" / "row-000000" / "posterior.nc", group="truth") as truth:
        assert float(truth["C_O"]) == pytest.approx(summary["truth"]["theta"][5])

    monkeypatch.setattr(nuts, "SAVED", 0.0)
    saves, save = iter(range(100)), Walked.save

    def killing(self, path):
        if next(saves) == 7:
            raise KeyboardInterrupt
        save(self, path)

    monkeypatch.setattr(Walked, "save", killing)
    code, _, err = command(*words, "--out", tmp_path / "killed")
    assert code == 130
    assert "interrupted" in err
    assert not (tmp_path / "killed" / "row-000000" / "posterior.nc").exists()
    monkeypatch.setattr(Walked, "save", save)
    assert command(*words, "--out", tmp_path / "killed")[0] == 0
    bytes_of = [(tmp_path / name / "row-000000" / "posterior.nc").read_bytes() for name in ("whole", "killed")]
    assert bytes_of[0] == bytes_of[1]

    code, _, err = command(*words, "--seed", 1, "--out", tmp_path / "whole")
    assert code == 2
    assert "holds another run (other seed" in err


def test_what_cannot_be_sampled_is_refused_in_one_line(command, tiny_set, toy_shards, tmp_path):
    code, _, err = command("reference")
    assert (code, err.count("\n")) == (2, 1)
    assert "give either FILE... or --data DIR" in err
    code, _, err = command("reference", "--data", tiny_set, "--rows", "a:b", "--out", tmp_path / "o")
    assert code == 2
    assert "expected places in the set, as 0:4 or 3,7,9" in err
    code, _, err = command("reference", "--data", tiny_set, "--rows", "500", "--out", tmp_path / "o")
    assert code == 2
    assert "no spectrum 500; the set has 128" in err
    toy = toy_shards(tmp_path / "toy", 128)
    code, _, err = command("reference", "--data", toy, "--out", tmp_path / "o")
    assert code == 2
    assert "made-up model" in err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, _ = command("reference", "--help")
    assert code == 0
    assert "Example" in out
