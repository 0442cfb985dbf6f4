"""The arrows between the stations: an import that points backwards fails here."""

import ast
from pathlib import Path

import pytest

import kappaflow

ROOT = Path(kappaflow.__file__).parent
# The words that everyone uses, at the root.
WORDS = {
    "parameters",
    "errors",
    "plain_data",
    "storage",
    "processes",
    "presets",
    "progress",
    "constants",
    "instrument",
    "spectra",
    "randomness",
    "unmodelled",
}
FOUNDATION = WORDS | {"tables", "data"}

# Each station and what of kappaflow it may import besides itself; one module may have rules of its own.
MAY_SEE = {
    "parameters": {"errors"},
    "errors": set(),
    "storage": {"errors"},
    "presets": {"errors", "storage"},
    "plain_data": set(),
    "processes": set(),
    "progress": set(),
    "constants": set(),
    "instrument": set(),
    "randomness": set(),
    "spectra": {"parameters", "errors"},
    "unmodelled": {"constants"},
    "tables": WORDS | {"data"},
    "data": set(),
    "build": FOUNDATION,
    "build/tables/mask_statistics.py": FOUNDATION | {"simulation"},
    "build/tables/example_table.py": FOUNDATION | {"observe"},
    "build/tables/networks.py": FOUNDATION | {"simulation", "inference", "evaluate"},
    "physics": {"parameters", "constants", "instrument"},
    "model": FOUNDATION | {"physics"},
    "simulation": FOUNDATION | {"model"},
    "inference": FOUNDATION,
    "calibrate": {"errors", "plain_data", "randomness"},
    "evaluate": FOUNDATION | {"simulation", "inference", "calibrate", "observe", "plots", "report"},
    "observe": FOUNDATION,
    "retrieval": FOUNDATION | {"model", "simulation", "inference", "observe", "refinement", "report"},
    "refinement": FOUNDATION | {"model", "physics", "simulation", "inference", "observe"},
    "plots": FOUNDATION,
    "report": FOUNDATION | {"plots", "refinement", "retrieval"},
    "serve": FOUNDATION | {"inference", "observe", "refinement", "report", "retrieval"},
}
MUST_NOT_IMPORT = {
    "physics": {"torch", "h5py", "rich", "matplotlib", "typer", "pathlib", "os"},
    "inference": {"jax"},
    "calibrate": {"jax", "torch", "h5py", "rich", "typer"},
    "simulation": {"torch"},
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
    seen = MAY_SEE.get(str(path.relative_to(ROOT)), MAY_SEE[here])
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "kappaflow" and len(parts) > 1:
            there = parts[1]
            if not (ROOT / there).exists() and not (ROOT / f"{there}.py").exists():
                continue  # a public name of the package itself
            assert there == here or there in seen, f"{path.name} imports {name}"
        assert parts[0] not in MUST_NOT_IMPORT.get(here, set()), f"{path.name} imports {name}"


def test_jax_and_torch_never_share_a_module():
    for path in ROOT.rglob("*.py"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not {"jax", "torch"} <= roots, path


def test_the_arrow_walker_sees_an_import(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("import torch\nfrom kappaflow import cli\nfrom kappaflow.physics.transfer import flux\n")
    assert set(imports(file)) >= {"torch", "kappaflow", "kappaflow.cli", "kappaflow.physics.transfer"}
