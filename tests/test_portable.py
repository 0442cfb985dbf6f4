"""kappaflow imports, reads and retrieves where POSIX's own modules are missing, as on Windows and (some) on macOS."""

import re
import subprocess
import sys
from pathlib import Path

import kappaflow

ROOT = Path(kappaflow.__file__).parent
# Everything but the makers of the packaged tables and the cluster, which need packages of their own.
MODULES = sorted(
    ".".join(("kappaflow", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] not in {"build", "experiments", "__main__.py"} and path.stem != "cluster"
)
ELSEWHERE = """
import importlib, mmap, os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None  # importing it raises
del os.sched_getaffinity, mmap.MADV_RANDOM
"""


def run_elsewhere(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE + script, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


def test_every_module_on_the_way_of_a_retrieval_imports_without_posix():
    done = run_elsewhere("for name in sys.argv[1:]: importlib.import_module(name)", *MODULES)
    assert done.returncode == 0, done.stderr
    assert {"kappaflow.retrieval", "kappaflow.report", "kappaflow.simulation.run"} <= set(MODULES)


def test_the_elsewhere_of_these_tests_has_no_posix():
    done = run_elsewhere("import fcntl")
    assert "ModuleNotFoundError" in done.stderr


def test_a_set_of_spectra_is_made_and_read_and_a_spectrum_retrieved_without_posix(tmp_path):
    script = """
import kappaflow as kf
from kappaflow.observe import resample
from kappaflow.observe.example import example_spectrum
from kappaflow.simulation import Shards, make_config, simulate_directory
simulate_directory(sys.argv[1], make_config(model="toy"), 128)
assert Shards(sys.argv[1]).train(0, 0, 8).flux.shape == (8, 90)
posterior = kf.Posterior.load()
draws = posterior.sample(resample(example_spectrum(), posterior.wavelength), n=9)
assert draws.shape == (9, len(posterior.box))
"""
    done = run_elsewhere(script, tmp_path)
    assert done.returncode == 0, done.stderr


def test_text_is_opened_in_the_same_encoding_everywhere():
    """Windows reads and writes another one unless told; bytes have none."""
    careless = re.compile(r"\.(?:read_text|write_text)\((?![^\n]*encoding=)|part\.open\((?![^\n]*(?:b\"|encoding=))")
    for path in sorted(ROOT.rglob("*.py")):
        code = re.sub(r'(?m)^\s*(?:>>>|\.\.\.) .*$|"""[\s\S]*?"""', "", path.read_text(encoding="utf-8"))
        assert not careless.findall(code), path
