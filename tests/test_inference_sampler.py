"""The exact incremental sampler and the fast density, against zuko's own."""

import pytest
import torch
from zuko.flows import MAF, NSF
from zuko.transforms import MonotonicRQSTransform

from kappaflow.inference.flow import log_density
from kappaflow.inference.incremental import IncrementalSampler
from kappaflow.inference.spline import inverse_rows, spline, spline_inverse

ADJACENCY = torch.tensor(
    [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 1]], dtype=bool
)
CONTEXT = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 0]], dtype=bool)

# name -> a flow and the size of its context
FLOWS = {
    "alternating order": (lambda: NSF(15, 10, transforms=3, hidden_features=(64, 64)), 10),
    "random order": (lambda: NSF(7, 4, transforms=3, randperm=True), 4),
    "coupling": (lambda: NSF(7, 4, passes=2), 4),
    "three passes": (lambda: NSF(7, 4, passes=3), 4),
    "adjacency matrix": (lambda: NSF(5, 3, adjacency=ADJACENCY), 3),
    "adjacency of the context": (lambda: NSF(5, 3, adjacency=torch.cat((ADJACENCY, CONTEXT), dim=1)), 3),
    "another activation": (lambda: NSF(6, 3, activation=torch.nn.ELU), 3),
    "residual blocks": (lambda: NSF(6, 3, residual=True, hidden_features=(32, 32)), 3),
    "one hidden layer": (lambda: NSF(6, 3, hidden_features=(40,)), 3),
    "three hidden layers": (lambda: NSF(6, 3, hidden_features=(40, 30, 20)), 3),
    "fewer units than features": (lambda: NSF(15, 3, hidden_features=(8, 8)), 3),
    "no context": (lambda: NSF(6, 0), 0),
    "another slope": (lambda: NSF(6, 3, slope=1e-2), 3),
    "more bins": (lambda: NSF(6, 3, bins=13), 3),
    "affine": (lambda: MAF(6, 3), 3),
}


def make(name, dtype, spread=1.5):
    """A flow with weights larger than at the start, as after training."""
    build, context = FLOWS[name]
    torch.manual_seed(1)
    flow = build().to(dtype)
    with torch.no_grad():
        for p in flow.parameters():
            p.mul_(spread)
    features = flow.base().event_shape[0]
    return flow, torch.randn(2, context, dtype=dtype), 1.3 * torch.randn(2, 60, features, dtype=dtype)


def by_zuko(flow, context, noise):
    with torch.no_grad():
        return torch.stack([flow(c if len(c) else None).transform.inv(z) for c, z in zip(context, noise, strict=True)])


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize(("dtype", "spread", "tolerance"), [(torch.float32, 1.0, 1e-4), (torch.float64, 1.5, 1e-9)])
def test_draws_are_those_of_zukos_inverse_on_the_same_noise(name, dtype, spread, tolerance):
    flow, context, noise = make(name, dtype, spread)
    draws = IncrementalSampler([flow])(context[None], noise[None])[0]
    assert (draws - noise).abs().max() > 0.1  # the flow does something
    assert (draws - by_zuko(flow, context, noise)).abs().max() < tolerance


def test_the_papers_network_gives_zukos_draws():
    torch.manual_seed(0)
    flow, context, noise = (
        NSF(15, 129, transforms=10, hidden_features=(256, 256)),
        torch.randn(1, 129),
        torch.randn(1, 400, 15),
    )
    draws = IncrementalSampler([flow])(context[None], noise[None])[0]
    assert (draws - by_zuko(flow, context, noise)).abs().max() < 1e-4


def test_members_of_an_ensemble_go_through_together_as_they_do_alone():
    torch.manual_seed(0)
    flows = [NSF(6, 3, transforms=2) for _ in range(3)]
    context, noise = torch.randn(3, 5, 3), torch.randn(3, 5, 40, 6)
    together = IncrementalSampler(flows)(context, noise)
    for i, flow in enumerate(flows):
        assert torch.allclose(
            together[i], IncrementalSampler([flow])(context[i : i + 1], noise[i : i + 1])[0], atol=1e-6
        )


def test_flows_with_different_masks_are_not_stacked():
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="different masks"):
        IncrementalSampler([NSF(6, 3), NSF(6, 3, passes=2)])


def test_many_spectra_in_pieces_give_the_draws_of_one_piece(monkeypatch):
    flow, context, noise = make("alternating order", torch.float64)
    whole = IncrementalSampler([flow])(context[None], noise[None])
    monkeypatch.setattr("kappaflow.inference.incremental.ROWS", 1)
    assert torch.allclose(whole, IncrementalSampler([flow])(context[None], noise[None]), atol=1e-12)


def test_going_back_through_the_density_returns_the_noise():
    flow, context, noise = make("alternating order", torch.float64)
    draws = IncrementalSampler([flow])(context[None], noise[None])[0]
    for c, x, z in zip(context, draws, noise, strict=True):
        assert (flow(c).transform(x) - z).abs().max() < 1e-9


@pytest.mark.parametrize("bins", [2, 8])
def test_fast_density_and_its_gradient_are_zukos(bins):
    torch.manual_seed(0)
    flow = NSF(15, 9, transforms=3, hidden_features=(40, 40), bins=bins).double()
    v, context = 2 * torch.randn(50, 15, dtype=torch.double), torch.randn(50, 9, dtype=torch.double, requires_grad=True)
    gradients = []
    for density in (flow(context).log_prob(v), log_density(flow, v, context)):
        gradients.append([density.detach(), *torch.autograd.grad(density.sum(), [context, *flow.parameters()])])
    assert (v.abs() > 5).any()  # some of it outside the splines
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-8)


def test_spline_gradient_agrees_with_finite_differences():
    torch.manual_seed(0)
    x = torch.linspace(-6.3, 6.3, 13, dtype=torch.double)[None].requires_grad_()
    phi = torch.randn(1, 11, 13, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(spline, (x, phi), eps=1e-7, atol=1e-5)


def test_spline_inverse_undoes_zukos_spline_everywhere():
    torch.manual_seed(0)
    phi = 3 * torch.randn(4, 23, 200, dtype=torch.double)
    x = torch.linspace(-7, 7, 200, dtype=torch.double).expand(4, 200)
    rows = phi.mT
    y = MonotonicRQSTransform(rows[..., :8], rows[..., 8:16], rows[..., 16:])(x)
    assert (spline_inverse(y, inverse_rows(phi, 8)) - x).abs().max() < 1e-7
