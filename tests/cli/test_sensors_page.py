"""docs/sensors.md works as it is written: its commands and its Python, one after another."""

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from cefito.cli import main
from tiny_runs import TINY_LENGTHS

ROOT = Path(__file__).resolve().parents[2]
RECOGNISER: dict[str, Any] = {"members": 1, "width": 16, "training_steps": 60, "temporal_steps": 20}
RECOGNISER |= {"temporal_passes": 2, "learning_rate": 0.02, "folds": 2}
SMALLER = {**TINY_LENGTHS, **{f"recogniser.{name}": each for name, each in RECOGNISER.items()}}
SETTINGS = {"train": SMALLER, "cross-validate": TINY_LENGTHS}
"""Of each command what is smaller here than on the page: trainings."""


def test_from_tables_of_three_people_to_steps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "sensors.md").read_text(encoding="utf-8")
    said = {}
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(block, {})
            continue
        for line in block.splitlines():
            program, *words = shlex.split(line)
            if program == "python":
                runpy.run_path(str(ROOT / words[0]))["main"](Path(words[1]))
            elif program == "cefito":
                changes = [
                    f"--set={key}={value}" for key, value in SETTINGS.get(words[0], {}).items()
                ]
                assert main([*words, *changes]) == 0, line
                said[words[0]] = capsys.readouterr()
    assert "groups" in said["data"].out
    assert "24 videos, held out in 3 folds" in said["compare"].out
    heads, *rows = (re.split(r"  +", line) for line in said["compare"].out.splitlines()[1:4])
    scores = [heads.index(head) for head in ("frame", "frame/video", "edit", "F1@50")]
    for name, cells in zip(("recogniser", "nearest"), rows, strict=True):
        assert cells[0].startswith(name)
        figures = re.search(rf"^\| `{name}` \| (.+) \|$", page, re.MULTILINE)
        assert figures is not None, name
        shown = [float(cells[score].split()[0]) for score in scores]
        # processors round differently
        assert shown == pytest.approx([float(one) for one in figures[1].split(" | ")], abs=1), name
    assert "(3 groups resampled). So few groups" in said["compare"].err
    assert "3 groups resampled" in said["cross-validate"].out
    steps = [line for line in said["recognise"].out.splitlines() if line.startswith("tea-1 ")]
    assert {"boil water", "pour water"} <= {line.split("  ")[1].strip() for line in steps}
    assert "now: " in said["follow"].err
    assert "tea-1: make tea" in said["verify"].err
    assert capsys.readouterr().out.count("\n") > 2  # the Python
    lines = Path("KITCHEN/steps.csv").read_text().splitlines()
    Path("two.csv").write_text("\n".join(line for line in lines if "anna" not in line))
    prepared = ["data", "prepare", "custom", "two.csv"]
    assert main([*prepared, "OTHER", "--sensors", "KITCHEN/sensors"]) == 0
    assert main(["evaluate", "RUN", "--dataset", "OTHER", "--split", "train"]) == 2
    assert "features of sensors = {" in capsys.readouterr().err
    assert main([*prepared, "LIKE", "--sensors", "KITCHEN/sensors", "--like", "DATA"]) == 0
    assert main(["evaluate", "RUN", "--dataset", "LIKE", "--split", "train"]) == 0
