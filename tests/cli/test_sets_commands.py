"""Sets of plans through the command line: cefito calibrate, and cefito plan --coverage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cefito.inference.answer import answer
from cefito.inference.query import query_from_video
from cefito.runs.run import open_run

VIDEO = "world-0036"  # the first test video


def test_calibrate(ran, refused, run_of_lengths, tmp_path):
    folder = shutil.copytree(run_of_lengths.folder, tmp_path / "run")
    assert "cefito calibrate" in refused("plan", folder, "--video", VIDEO, "--coverage", 0.8)
    assert "folds 100: expected 0, or from 2" in refused("calibrate", folder, "--folds", 100)
    out, err = ran("calibrate", folder, "--folds", 0, "--json")
    value = json.loads(out)
    assert (value["videos"], value["folds"]) == (12, 0)
    assert value["most_coverage"] == pytest.approx(12 / 13)
    assert Path(value["file"]).is_file()
    assert "calibrated on 12 videos (validation videos), for a coverage of at most 0.923" in err
    assert (table := open_run(folder).calibrated()).folds == 0
    assert {one.condition.steps for one in table.thresholds} == {None, 1, 2, 3, 4}


@pytest.mark.parametrize("level", [0.6, 0.9])
def test_plan_with_coverage(ran, calibrated, level):
    asked = ("plan", calibrated.folder, "--video", VIDEO, "--coverage", level, "--top-k", 1)
    out, err = ran(*asked)
    sets = answer(calibrated, query_from_video(calibrated, VIDEO)[0], coverage=level).sets
    assert sets.in_words() in " ".join(err.split())
    shown = sets.plans if sets.plans.steps else sets.next_step
    for one in shown.steps:
        assert one.names[0] in out
    assert f"{100 * shown.steps[0].probability:.1f} %" in out
    value = json.loads(ran(*asked, "--json").out)
    assert value["sets"] == sets.model_dump(mode="json")
    assert len(value["plans"]) == 1
