"""What `import kappaflow as kf` offers: all of it listed, nothing loaded before use, no name hiding a module."""

import importlib
import pkgutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import kappaflow as kf

ROOT = Path(kf.__file__).parent
PACKAGES = sorted(p.parent.relative_to(ROOT.parent).as_posix().replace("/", ".") for p in ROOT.rglob("__init__.py"))


def run(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", kf.__all__)
def test_every_public_name_is_listed_and_there(name):
    assert name in dir(kf)
    assert getattr(kf, name) is not None


def test_the_names_of_the_design_are_public():
    assert {
        "ForwardModel",
        "Posterior",
        "Spectrum",
        "coverage",
        "read_spectrum",
        "resample",
        "retrieve",
        "simulate",
    } <= {*kf.__all__}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_exported_name_hides_a_module(package):
    module = importlib.import_module(package)
    inside = {m.name for m in pkgutil.iter_modules(module.__path__)}
    assert not inside & set(getattr(module, "__all__", ()))


def test_importing_costs_neither_jax_nor_torch_nor_matplotlib():
    code = "import sys, kappaflow; dir(kappaflow); print({'jax', 'torch', 'matplotlib', 'arviz'} & set(sys.modules))"
    assert run("-c", code).stdout.strip() == "set()"


def test_a_retrieval_loads_no_plotting_until_it_draws():
    code = "import sys, kappaflow.retrieval.retriever, kappaflow.report.files; print('matplotlib' in sys.modules)"
    assert run("-c", code).stdout.strip() == "False"


def test_an_unknown_name_says_so():
    with pytest.raises(AttributeError, match="no attribute 'retreive'"):
        kf.retreive  # noqa: B018


def test_the_version_is_the_installed_one_and_the_package_runs_as_a_module():
    assert kf.__version__ == version("kappaflow")
    shown = run("-m", "kappaflow", "--help")
    assert shown.returncode == 0
    assert "retrieve" in shown.stdout
