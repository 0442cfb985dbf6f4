"""Fixtures that several files share; what is no fixture lies in `helpers`."""

import gc
import os
import sys

import pytest


def pytest_configure(config):
    """Before torch and JAX are imported here, in xdist's workers and in the processes that tests start.

    One thread each: there is a worker per core, and threads that wait for one another spin. A program that one process
    compiled is read by the others; `pytest --cache-clear` forgets them all.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if hasattr(config, "cache"):  # else -p no:cacheprovider
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("compiled")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_this_file():
    """Collect it before the next file begins: what was left open is reported here, not wherever it is found later."""
    yield
    gc.collect()


@pytest.fixture
def garbage_of_this_test():
    """The same after each test: for those that start what runs beside them, and ignore the warnings of others' code."""
    yield
    gc.collect()


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


@pytest.fixture
def empty_figures(monkeypatch):
    """Figures are files with nothing in them: half the time of a retrieval, for tests that look at no figure."""

    def save(figure, path):
        paths = tuple(path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf"))
        for one in paths:
            one.write_bytes(b"")
        return paths

    monkeypatch.setattr("kappaflow.plots.save_figure", save)


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
