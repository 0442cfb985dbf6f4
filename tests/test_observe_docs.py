"""The tutorial's Python runs as it stands."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_blocks_of_the_retrieve_tutorial_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAPPAFLOW_DATA", os.environ.get("KAPPAFLOW_DATA", str(ROOT.parent / "shared" / "data")))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "retrieve.md").read_text(), re.S)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        exec(block, names)  # noqa: S102
    assert names["binned"].mask.mean() > 0.9
    assert bool(names["objects"]) == (tmp_path / "retrieve-spectra.png").exists()
