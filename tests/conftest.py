"""Fixtures that several files share; what is no fixture lies in `helpers`."""

import sys

import pytest


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `kappaflow WORDS...` in this process; returns (exit code, stdout, stderr)."""
    from kappaflow.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["kappaflow", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


@pytest.fixture(scope="session")
def toy_shards():
    """Make a directory of made-up spectra, or let it grow; returns it."""
    from kappaflow.simulation import Backend, make_config, simulate_directory
    from kappaflow.simulation.toy import ToyModel

    def make(directory, n, *, seed=0, pixels=90, **config):
        settings = make_config(model="toy", **config)
        simulate_directory(
            directory, settings, n, seed=seed, resume=True, backend=Backend(load=lambda _: ToyModel(pixels))
        )
        return directory

    return make


@pytest.fixture(scope="module")
def one_thread():
    """Torch on one thread: small networks are no faster on two, and their bits no longer depend on the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def networks(tmp_path_factory):
    """A folder with two marginalized networks, m0 and m1, and a control, c0, of the made-up forward model."""
    from retrieval_toy import train_networks

    return train_networks(tmp_path_factory.mktemp("networks"))


@pytest.fixture
def run(networks, monkeypatch, tmp_path):
    """Run `kappaflow retrieve WORDS...` with the made-up networks and model, into tmp_path / "out"."""
    from retrieval_toy import MODEL
    from typer.testing import CliRunner

    from kappaflow.cli import app

    monkeypatch.setattr("kappaflow.retrieval.retriever.forward_for", lambda posterior, opacity: MODEL)

    def call(*words, control=True, refine=False):
        models = ["--model", str(networks / "m0"), "--model", str(networks / "m1")]
        models += ["--control", str(networks / "c0")] if control else []
        common = [*models, "--draws", "300", "--out", str(tmp_path / "out"), *([] if refine else ["--amortized"])]
        return CliRunner().invoke(app, ["retrieve", *map(str, words), *common])

    return call
