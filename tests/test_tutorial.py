"""docs/tutorial.md runs as it stands, from the file to the methods paragraph."""

import json
import re
import shlex
from pathlib import Path

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"


def blocks():
    return re.findall(r"^```(python|sh)\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.S | re.M)


def test_the_tutorial_runs_from_the_file_to_the_methods_paragraph(tmp_path, monkeypatch, command, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    ran = {"python": 0, "sh": 0}
    for kind, text in blocks():
        if kind == "python":
            exec(text, names)  # noqa: S102
        else:
            for line in text.strip().splitlines():
                words = shlex.split(line)
                assert words[0] == "kappaflow"
                code, _, err = command(*words[1:])
                assert code == 0, err
        ran[kind] += 1
    assert ran == {"python": 6, "sh": 2}
    assert (tmp_path / "result" / "report.html").is_file()
    assert 0.1 <= names["c_o"]["q16"] < names["c_o"]["q84"] < 0.6
    assert names["draws"].size >= 2000
    verdict = json.loads((tmp_path / "verdict" / "verdict.json").read_text())
    assert verdict["methods"]["npe"]["calibrated"] is False
    assert set(verdict["methods"]["npe"]["readings"].values()) == {"covers too little"}
    assert "Not calibrated" in (tmp_path / "verdict" / "verdict.html").read_text(encoding="utf-8")
    assert "kappaflow" in names["paragraph"]
    assert names["references"].count("@") >= 5


def test_what_the_tutorial_links_to_is_there():
    links = re.findall(r"\]\(((?!https?:)[^)]+)\)", TUTORIAL.read_text(encoding="utf-8"))
    assert len(links) >= 4
    assert [link for link in links if not (TUTORIAL.parent / link).exists()] == []
