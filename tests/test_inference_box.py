"""The map onto the prior box: Jacobian, normalization, walls."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from kappaflow.errors import UserError
from kappaflow.inference import flow as flow_module
from kappaflow.inference.box import MAPS
from kappaflow.inference.flow import BoundedFlow
from kappaflow.inference.incremental import IncrementalSampler
from kappaflow.inference.recipes import Flow
from kappaflow.parameters import bounds

maps = pytest.mark.parametrize("name", MAPS)

standards = pytest.mark.parametrize("standard", [0, 8])


def bounded(name, features=2, spread=1.0, standard=0):
    torch.manual_seed(3)
    flow = BoundedFlow(Flow(transforms=2, hidden=(16, 16), box=name, standard=standard), features, 4)
    if flow.standard is not None:
        torch.nn.init.normal_(flow.standard.out.weight, std=0.2)
    with torch.no_grad():
        for p in flow.parameters():
            p.mul_(spread)
    return flow


@maps
def test_log_slope_is_the_derivative_of_the_map(name):
    v = torch.linspace(-6, 6, 41, dtype=torch.double, requires_grad=True)
    (slope,) = torch.autograd.grad(MAPS[name].to_unit(v).sum(), v)
    assert torch.allclose(MAPS[name].log_slope(v), slope.log(), atol=1e-8)
    assert torch.allclose(MAPS[name].from_unit(MAPS[name].to_unit(v)), v, atol=1e-6)


@maps
@standards
@pytest.mark.parametrize("spread", [1.0, 0.8])
def test_density_on_the_box_integrates_to_one(name, standard, spread):
    flow, n = bounded(name, spread=2.0, standard=standard).double(), 400
    nodes = (torch.arange(n, dtype=torch.double) + 0.5) / n
    # A grid uniform in the normal quantile would favour one map; this one resolves the walls for both.
    t = nodes**2 * (3 - 2 * nodes)
    weight = 6 * nodes * (1 - nodes) / n
    grid = torch.cartesian_prod(t, t)
    context = torch.randn(4, dtype=torch.double)
    with torch.no_grad():
        density = flow(grid, context.expand(len(grid), 4), spread).exp()
    assert float((density * torch.cartesian_prod(weight, weight).prod(-1)).sum()) == pytest.approx(1, abs=2e-3)


@maps
def test_draws_have_the_density_that_is_told_of_them(name):
    """The splines' density, over the derivative of the way to the cube by autodiff."""
    flow = bounded(name, features=3, standard=8).double()
    v, context = torch.randn(3, dtype=torch.double), torch.randn(1, 4, dtype=torch.double)
    jacobian = torch.autograd.functional.jacobian(lambda u: flow.to_unit(u[None, None], context)[0, 0], v)
    expected = flow.nsf(context).log_prob(v[None]) - torch.linalg.slogdet(jacobian).logabsdet
    assert torch.allclose(flow(flow.to_unit(v[None, None], context)[0], context), expected)


@maps
def test_log_density_is_zukos_plus_the_jacobian_by_autodiff(name):
    flow = bounded(name, features=3).double()
    t, context = torch.rand(3, dtype=torch.double), torch.randn(4, dtype=torch.double)
    jacobian = torch.autograd.functional.jacobian(flow.map.from_unit, t)
    expected = flow.nsf(context).log_prob(flow.map.from_unit(t)) + torch.linalg.slogdet(jacobian).logabsdet
    assert torch.allclose(flow(t[None], context[None])[0], expected)
    flow._fast = False  # zuko's own way, for flows of other layouts
    assert torch.allclose(flow(t[None], context[None])[0], expected)


@maps
@standards
def test_draws_from_extreme_noise_stay_strictly_inside_the_box(name, standard):
    """Eight standard deviations: no generator of normals in single or double precision gets there in a lifetime."""
    flow, (low, high) = bounded(name, features=15, spread=5.0, standard=standard), bounds()
    corners = torch.tensor([-8.0, -5.0, 0.0, 5.0, 8.0]).repeat_interleave(15).reshape(1, 1, 5, 15)
    context = torch.randn(1, 1, 4)
    v = IncrementalSampler([flow.nsf])(context, corners)
    theta = low + (high - low) * flow.to_unit(v[0], context[0]).detach()[0].numpy()
    assert np.isfinite(theta).all()
    assert ((theta > low) & (theta < high)).all()


@maps
@standards
def test_a_truth_on_the_wall_has_a_finite_density(name, standard):
    flow = bounded(name, standard=standard)
    walls = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 1.0]])
    assert torch.isfinite(flow(walls, torch.zeros(3, 4))).all()


def test_under_a_uniform_prior_the_probit_variable_is_normal_and_the_logistic_one_leaves_the_splines():
    t = torch.from_numpy(np.random.default_rng(0).random(100_000))
    probit, logistic = (MAPS[n].from_unit(t).numpy() for n in ("probit", "logistic"))
    assert stats.kstest(probit, "norm").pvalue > 0.01
    assert (np.abs(probit) > 5).mean() < 1e-4
    assert (np.abs(logistic) > 5).mean() == pytest.approx(2 / (1 + np.exp(5)), rel=0.1)  # 1.3 %


@pytest.mark.parametrize("other", [{"slope": 1e-2}, {"residual": True}])
def test_a_flow_that_zuko_builds_otherwise_is_refused_not_misread(other, monkeypatch):
    monkeypatch.setattr(flow_module, "NSF", partial(flow_module.NSF, **other))
    with pytest.raises(UserError, match=r"zuko .* pip install 'zuko>=1.6,<1.7'"):
        bounded("logistic")
