"""`cefito compare --recognisers`: scores of recognisers on whole test videos."""

import json

import numpy as np
import pytest

import cefito.study.recognition as recognition
from cefito.cli import main
from cefito.data.readers.custom import prepare
from cefito.errors import ConfigError, DataError
from cefito.study.recognition import compare_recognisers
from cefito.timeline.settings import RecogniserConfig

SMALL = RecogniserConfig(
    members=1, width=16, training_steps=60, temporal_layers=2, folds=2, learning_rate=0.02
)
STEPS = [[0, 4, 0], [6, 10, 1]]  # of each video: pauses show 2


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("films"), np.random.default_rng(0)
    actions = [{"id": place, "name": f"step {place}"} for place in range(2)]
    tasks = [{"id": 0, "name": "task", "actions": [0, 1]}]
    taxonomy = {"dataset": "films", "tasks": tasks, "actions": actions}
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
    shown = np.array([0] * 4 + [2] * 2 + [1] * 4 + [2] * 2)
    names = [f"v{place}" for place in range(8)]
    rows = {name: 4 * np.eye(3)[shown] + 0.1 * rng.standard_normal((12, 3)) for name in names}
    lines = [
        {"video_id": name, "split": split, "task_id": 0, "steps": STEPS}
        for name, split in zip(names, ["train"] * 6 + ["test"] * 2, strict=True)
    ]
    (folder / "videos.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    np.savez(folder / "timeline.npz", **rows)
    return prepare(folder, folder / "out")


def always_the_first(videos, labels, label_count, seed):
    assert len(videos) == len(labels) == 6
    return lambda rows: np.eye(label_count)[np.zeros(len(rows), dtype=int)]


def test_scores_of_recognisers(films, tmp_path, monkeypatch):
    names = ["recogniser", "nearest", "first"]
    more = {"first": always_the_first}
    table, found = compare_recognisers(films, tmp_path, names, [0, 1], more=more, config=SMALL)
    rows = found["rows"]
    assert rows["recogniser"]["frame"]["mean"] > 95
    assert "ece" not in rows["nearest"]
    assert (rows["recogniser"]["seeds"], rows["nearest"]["seeds"]) == (2, 1)
    assert rows["nearest"]["edit"]["mean"] == rows["nearest"]["f1_50"]["mean"] == 100
    # four of twelve rows; one segment of twelve rows, which meets a third of itself
    first = rows["first"]
    assert first["frame"]["mean"] == pytest.approx(33.33)
    assert first["edit"]["mean"] == 50
    assert [first[f"f1_{least}"]["mean"] for least in (10, 25, 50)] == [66.67, 66.67, 0]
    assert first["frame"]["recogniser_less_it"]["mean"] > 60
    assert "next" not in first
    # there is a next step until the seventh second
    online = found["videos"]["recogniser"]["0"]["columns"]
    assert online["asked"] == [6, 6]
    assert online["annotated"] == online["done"] == [2, 2]
    assert table.lines[2][0].text == "first (2 seeds)"
    assert (tmp_path / "recognition.md").read_text().count("\n|") >= 5
    # results are kept
    monkeypatch.setattr(recognition, "Recogniser", None)
    again, same = compare_recognisers(films, tmp_path, names, [0, 1], more=more, config=SMALL)
    assert (again, same) == (table, found)


def test_the_command(films, tmp_path, capsys):
    given = ["compare", str(films.folder), "--out", str(tmp_path), "--seeds", "1"]
    assert main([*given, "--recognisers", "nearest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["nearest"]["frame"]["mean"] == 100
    assert main([*given, "--recognisers", "nearest"]) == 0
    assert "nearest (1 seed)" in capsys.readouterr().out
    assert main([*given, "--recognisers", "nonsense"]) == 2
    assert "recognisers nonsense: expected some of recogniser" in capsys.readouterr().err


def test_what_cannot_be_compared(films, world, tmp_path):
    with pytest.raises(DataError, match="holds no rows of whole videos"):
        compare_recognisers(world, tmp_path, ["nearest"], [0])
    (tmp_path / "recognition.json").write_text('{"dataset": {}}')
    with pytest.raises(ConfigError, match="is of another data set"):
        compare_recognisers(films, tmp_path, ["nearest"], [0])
