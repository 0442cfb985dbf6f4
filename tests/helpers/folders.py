"""Where the repository is, and the public line data and spectra that are no part of it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("KAPPAFLOW_DATA", ROOT.parent / "shared" / "data"))


def needs(part=""):
    """Skip a test where the data folder, or a part of it, is absent."""
    there = DATA / part
    return pytest.mark.skipif(not there.exists(), reason=f"{part or 'data'}: not at {there}; set KAPPAFLOW_DATA")
