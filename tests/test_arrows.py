"""The arrows between the stations: an import that points backwards fails here."""

import ast
from pathlib import Path

import pytest

import kappaflow

ROOT = Path(kappaflow.__file__).parent
FOUNDATION = {"parameters", "errors", "storage", "config", "progress", "tables", "data"}

# Each station and what of kappaflow it may import besides itself and the foundation.
MAY_SEE = {
    "parameters": {"errors"},
    "errors": set(),
    "storage": {"errors"},
    "config": {"errors", "storage"},
    "progress": set(),
    "tables": {"parameters", "errors", "storage", "config", "data"},
    "data": set(),
    "build": FOUNDATION,
    "physics": {"parameters"},
    "forward": FOUNDATION | {"physics"},
    "simulate": FOUNDATION | {"physics", "forward"},
    "inference": FOUNDATION,
    "calibrate": {"errors"},
    "observe": FOUNDATION | {"forward", "simulate", "inference"},
    "reference": FOUNDATION | {"physics", "forward"},
    "plots": FOUNDATION,
    "report": FOUNDATION | {"plots"},
}
MUST_NOT_IMPORT = {
    "physics": {"torch", "h5py", "rich", "matplotlib", "typer", "pathlib", "os"},
    "inference": {"jax"},
    "calibrate": {"jax", "torch", "h5py", "rich", "typer"},
    "simulate": {"torch"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "kappaflow")


def station(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(p for p in ROOT.rglob("*.py") if station(p) not in {"__init__", "__main__", "cli", "experiments"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_arrow_points_backwards(path):
    here = station(path)
    assert here in MAY_SEE, f"{here} has no place in the arrows: add it to MAY_SEE"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "kappaflow" and len(parts) > 1:
            there = parts[1]
            if not (ROOT / there).exists() and not (ROOT / f"{there}.py").exists():
                continue  # a public name of the package itself
            assert there == here or there in MAY_SEE[here], f"{path.name} imports {name}"
        assert parts[0] not in MUST_NOT_IMPORT.get(here, set()), f"{path.name} imports {name}"


def test_jax_and_torch_never_share_a_module():
    for path in ROOT.rglob("*.py"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not {"jax", "torch"} <= roots, path


def test_the_arrow_walker_sees_an_import(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("import torch\nfrom kappaflow import cli\nfrom kappaflow.physics.transfer import flux\n")
    assert set(imports(file)) >= {"torch", "kappaflow", "kappaflow.cli", "kappaflow.physics.transfer"}
