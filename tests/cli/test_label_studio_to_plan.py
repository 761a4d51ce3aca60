"""From an export of Label Studio and five videos to a plan by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grey_videos import draw_greys
from tiny_models import tiny_dinov2

pytest.importorskip("av")
pytest.importorskip("transformers")
EXPORT = Path(__file__).resolve().parents[1] / "data" / "readers" / "exported" / "label_studio.json"


def test_from_an_export_to_a_plan(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("films").mkdir()
    for number in range(5):
        draw_greys(Path("films", f"tea_0{number + 1}.mp4"), 14, first=number)
    how = ("--encoder", tiny_dinov2(tmp_path / "encoder"), "--device", "cpu")
    what = ("--task", "make tea", "--frame-rate", "4")
    code, out, err = call(
        "data", "prepare", "custom", EXPORT, "DATA", "--videos", "films", *what, *how
    )
    assert code == 0, err
    assert "note: label_studio.json: Label Studio; each region of the control tag 'steps'" in err
    assert [line.split()[:3] for line in out.splitlines()[2:]] == [["prepared", "5", "20"]]
    train = ("--method", "chain", "--horizon", "3", "--device", "cpu")
    few = ("--set", "chain_training.optimiser.epochs=3")
    code, _, err = call("train", "DATA", "--out", "RUN", *train, *few)
    assert code == 0, err
    times = ("--start", "0:01", "--end", "0:08,5")
    film = ("--video", "films/tea_05.mp4", "--encoder", tmp_path / "encoder")
    names = {"Fill kettle", "Boil water", "Add tea leaves", "Pour water", "Remove leaves"}
    for query in (("--video", "tea_05", "--from-step", "1"), (*film, *times)):
        code, out, err = call("plan", "RUN", *query, "--device", "cpu", "--json")
        assert code == 0, err
        (plan, *_) = json.loads(out)["plans"]
        assert len(plan["names"]) == 3
        assert set(plan["names"]) <= names
