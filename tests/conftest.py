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
    from kappaflow.simulation import make_config, simulate_directory
    from kappaflow.simulation.toy import ToyModel

    def make(directory, n, *, seed=0, pixels=90, **config):
        settings = make_config(model="toy", **config)
        simulate_directory(directory, settings, n, seed=seed, resume=True, load=lambda _: ToyModel(pixels))
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
