"""Runs of every format that was released plan as they did.

A version that changes the format adds a folder of runs of the small world, exported by it, with
questions and what it answered; none is written anew.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cefito
from cefito.cli import main
from cefito.errors import RunError
from cefito.parts.folder import recorded

RELEASES = sorted(Path(__file__).with_name("releases").glob("*/*.zip"))
FILMS = [path for path in RELEASES if path.stem == "films"]  # with a recogniser and a verifier
ARCHIVES = [path for path in RELEASES if path not in FILMS]


def check_answers(run, archive):
    """The steps of each plan are the same, and probabilities but for rounding."""
    for line in json.loads(archive.with_suffix(".json").read_text()):
        asked = line["question"]
        ends = {end: np.array(asked.pop(end)) for end in ("start", "goal") if end in asked}
        found = run.plan(**ends, **asked, top_k=len(line["plans"])).plans
        assert [list(plan.steps) for plan in found] == [plan["steps"] for plan in line["plans"]]
        theirs = [plan["probability"] or 0 for plan in line["plans"]]  # none of some methods
        assert [plan.probability or 0 for plan in found] == pytest.approx(
            theirs, rel=1e-3, abs=1e-5
        )


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_released_run_plans_the_same(archive):
    check_answers(cefito.open_run(archive), archive)


def near(value):
    """The value, with numbers that may differ by rounding."""
    if isinstance(value, dict):
        return {name: near(part) for name, part in value.items()}
    if isinstance(value, list):
        return [near(part) for part in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


@pytest.mark.parametrize("archive", FILMS, ids=lambda path: path.parent.name)
def test_a_released_run_recognises_and_follows_the_same(archive, tmp_path, capsys):
    """Of commit ec07608a, whose streams named the step that goes on among the next ones, too."""

    def printed(*call):
        assert main([*call, "--json"]) == 0
        return capsys.readouterr().out

    for film in json.loads(archive.with_suffix(".json").read_text()):
        np.save(path := tmp_path / "film.npy", np.array(film["rows"]))
        (recognised,) = json.loads(printed("recognise", str(archive), str(path)))
        for name, value in film["recognised"].items():
            assert recognised[name] == near(value)
        lines = printed("follow", str(archive), "--features", str(path)).splitlines()
        *followed, over = map(json.loads, lines)
        assert over["over"]
        for line, theirs in zip(followed, film["followed"], strict=True):
            for name in ("seconds", "now", "done", "task", "findings"):
                assert line[name] == near(theirs[name])
            ahead = [
                step for step in theirs["next"] if step["id"] != (line["now"] or {}).get("action")
            ]
            for step, their_step in zip(line["next"], ahead, strict=False):
                share = step["probability"] / line["next"][0]["probability"]
                assert step["id"] == their_step["id"]
                assert share == pytest.approx(
                    their_step["probability"] / ahead[0]["probability"], abs=1e-3
                )


def test_settings_that_are_gone(tmp_path, caplog):
    """What training alone read is passed over; what planning needs is not."""
    archive = next(path for path in ARCHIVES if path.stem == "chain")
    shutil.unpack_archive(archive, tmp_path)
    info = json.loads((tmp_path / "run.json").read_text())

    def written(section):
        config = {**info["config"], section: {**info["config"][section], "fused": True}}
        with recorded(tmp_path):
            (tmp_path / "run.json").write_text(json.dumps({**info, "config": config}))

    written("chain_training")
    check_answers(cefito.open_run(tmp_path), archive)
    assert "passed over chain_training.fused, which training alone read" in caplog.text
    written("chain")
    with pytest.raises(RunError, match=r"run\.json: .*lacks settings .*'chain\.f"):
        cefito.open_run(tmp_path)
