"""Folders of labels of frames: splits, tasks, rates and axes of the features."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cefito import open_dataset, prepare
from cefito.cli import main
from cefito.data.readers.feature_files import FeatureArray
from cefito.errors import DataError
from cefito.planners.methods import load_config
from cefito.runs.train import train_run
from row_films import SMALL
from tiny_runs import TINY_LENGTHS

RATE = 5
LABELS = {  # runs of labels, in seconds
    "P1_tea": [("SIL", 1), ("boil", 4), ("pour", 3), ("SIL", 2)],
    "P2_tea": [("boil", 3), ("pour", 3)],
    "P3_toast": [("cut", 3), ("SIL", 1), ("fry", 4)],
}
SPLITS = {"train.split1": ["P1_tea", "P3_toast"], "test.split1": ["P2_tea"]}
SPLITS |= {"train.split2": ["P2_tea", "P3_toast"], "test.split2": ["P1_tea"]}


@pytest.fixture
def folder(tmp_path):
    """The folder; column t of the features of a video is (t, −t, 1)."""
    root = tmp_path / "kitchen"
    for name in ("groundTruth", "features", "splits"):
        (root / name).mkdir(parents=True)
    for video, runs in LABELS.items():
        lines = [label for label, seconds in runs for _ in range(seconds * RATE)]
        (root / "groundTruth" / f"{video}.txt").write_text("\n".join(lines) + "\n")
        times = np.arange(len(lines), dtype=np.float32)
        np.save(root / "features" / f"{video}.npy", np.stack([times, -times, np.ones_like(times)]))
    for split, videos in SPLITS.items():
        text = "".join(f"{video}.txt\n" for video in videos)
        (root / "splits" / f"{split}.bundle").write_text(text)
    return root


ASKED: dict[str, Any] = {"frame_rate": float(RATE), "task_pattern": "_([a-z]+)$"}


def spans(dataset):
    names = dataset.taxonomy.actions
    return {
        video.video_id: (
            video.split,
            dataset.taxonomy.tasks[video.task].name,
            [(names[step.action].name, step.start, step.end) for step in video.steps],
        )
        for video in dataset.videos
    }


def test_a_folder_is_one_call(folder, tmp_path):
    dataset = prepare(folder, tmp_path / "DATA", **ASKED)
    assert dataset.name == "kitchen"
    assert spans(dataset) == {
        "P1_tea": ("train", "tea", [("boil", 1, 5), ("pour", 5, 8)]),
        "P2_tea": ("test", "tea", [("boil", 0, 3), ("pour", 3, 6)]),
        "P3_toast": ("train", "toast", [("cut", 0, 3), ("fry", 4, 8)]),
    }
    rows = dataset.timeline
    assert rows.rate == RATE
    assert [len(video) for video in rows.videos] == [50, 30, 40]
    assert rows.videos[0][7].tolist() == [7, -7, 1]
    assert dataset.provenance["observed"]["feature_rate"] == RATE


def test_rows_of_another_rate_are_those_in_the_middle(folder, tmp_path):
    dataset = prepare(folder, tmp_path / "DATA", row_rate=1.0, **ASKED)
    assert dataset.timeline.rate == 1
    assert dataset.timeline.videos[1][:, 0].tolist() == [2, 7, 12, 17, 22, 27]
    values = np.arange(30, dtype=np.float32)[:, None]
    halved = FeatureArray(folder, values, 30.0).at_rate(15.0)
    assert halved[:, 0].tolist() == [*range(1, 30, 2)]


def test_bundles_of_a_number_and_files_that_none_lists(folder, tmp_path):
    dataset = prepare(folder, tmp_path / "DATA", bundle=2, background="sil, fry", **ASKED)
    assert {video: split for video, (split, *_) in spans(dataset).items()} == {
        "P1_tea": "test",
        "P2_tea": "train",
        "P3_toast": "train",
    }
    assert spans(dataset)["P3_toast"][2] == [("cut", 0, 3)]
    (folder / "splits" / "test.split1.bundle").write_text("P9_tea.txt\n")
    fewer = prepare(folder, tmp_path / "FEWER", **ASKED)
    assert "P2_tea" not in spans(fewer)
    notes = " ".join(fewer.provenance["preparation"]["notes"])
    assert "no bundle lists them: 1 file, P2_tea.txt" in notes
    assert "Bundles list files that groundTruth lacks: 1 file, P9_tea.txt" in notes


def test_features_of_rows_and_of_another_rate(folder, tmp_path):
    for path in (folder / "features").iterdir():
        np.save(path, np.load(path).T[::5])
    for path in (folder / "groundTruth").iterdir():  # long enough to be sure
        path.write_text(path.read_text() * 9)
    with pytest.raises(DataError, match=r"neither \[D, T\] nor \[T, D\]") as caught:
        prepare(folder, tmp_path / "NONE", **ASKED)
    assert caught.value.setting == "feature_rate"
    for path in (folder / "groundTruth").iterdir():
        path.write_text(path.read_text()[: len(path.read_text()) // 9])
    dataset = prepare(folder, tmp_path / "DATA", feature_rate=1.0, **ASKED)
    assert dataset.timeline.rate == 1
    assert dataset.timeline.videos[1][:, 0].tolist() == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "tea"}, "counts frames and holds no frame rate"),
        ({"frame_rate": 5.0}, "holds no task"),
        ({"bundle": 7, **ASKED}, "has no splits/train.split7.bundle"),
    ],
)
def test_what_is_missing_is_asked_for(options, message, folder, tmp_path):
    with pytest.raises(DataError, match=message):
        prepare(folder, tmp_path / "DATA", **options)


def test_a_file_of_two_splits_and_no_labels(folder, tmp_path):
    (folder / "splits" / "test.split1.bundle").write_text("P1_tea.txt\n")
    with pytest.raises(DataError, match=r"several splits list P1_tea\.txt"):
        prepare(folder, tmp_path / "DATA", **ASKED)
    (folder / "splits" / "test.split1.bundle").write_text("P2_tea.txt\n")
    for path in (folder / "groundTruth").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="holds no files of labels"):
        prepare(folder, tmp_path / "DATA", **ASKED)


def test_the_command(folder, tmp_path, capsys):
    argv = ["data", "prepare", "custom", str(folder), str(tmp_path / "DATA"), "--frame-rate", "5"]
    assert main([*argv, "--task-pattern", "_([a-z]+)$"]) == 0
    capsys.readouterr()
    assert open_dataset(tmp_path / "DATA").timeline.rate == RATE
    assert main([*argv[:4], str(tmp_path / "OTHER"), "--task", "tea"]) == 2
    assert "(--frame-rate)" in capsys.readouterr().err
    assert main([*argv, "--videos", str(folder)]) == 2
    assert "takes no videos" in capsys.readouterr().err


def test_features_of_another_folder_and_rows_of_another_rate_by_the_command(folder, tmp_path):
    (folder / "features").rename(tmp_path / "elsewhere")
    out = tmp_path / "DATA"
    argv = ["data", "prepare", "custom", str(folder), str(out), "--task-pattern", "_([a-z]+)$"]
    argv += ["--frame-rate", "5", "--features", str(tmp_path / "elsewhere")]
    assert main([*argv, "--row-rate", "1", "--bundle", "2"]) == 0
    dataset = open_dataset(out)
    assert dataset.timeline.rate == 1
    splits = {video.video_id: video.split for video in dataset.videos}
    assert splits == {"P1_tea": "test", "P2_tea": "train", "P3_toast": "train"}


def test_a_run_reads_new_features_as_its_folder_had_them(folder, tmp_path, capsys):
    """[D, T] at five columns a second, of which a row a second is used."""
    dataset = prepare(folder, tmp_path / "DATA", **ASKED, row_rate=1.0)
    small = TINY_LENGTHS | {
        f"recogniser.{name}": value for name, value in SMALL.model_dump(exclude_unset=True).items()
    }
    config = load_config("small", method="any-length", overrides=small)
    run = train_run(dataset, tmp_path / "RUN", config=config, horizon=2, shortest=1, seed=0)
    said = []
    for source in ("P1_tea", str(folder / "features" / "P1_tea.npy")):
        assert main(["recognise", str(run.folder), source, "--json"]) == 0
        (shown,) = json.loads(capsys.readouterr().out)
        said.append((shown["seconds"], shown["steps"]))
    assert said[0] == said[1]
    assert said[0][0] == 10


@pytest.mark.parametrize("columns", [47, 48])
def test_columns_that_are_more_than_the_labels(columns, folder, tmp_path):
    """Of 30 labels, 5 % and 16 more."""
    path = folder / "features" / "P2_tea.npy"
    np.save(path, np.resize(np.load(path), (3, columns)))
    if columns == 47:
        assert len(prepare(folder, tmp_path / "DATA", **ASKED).timeline.videos[1]) == 47
        return
    with pytest.raises(DataError, match=r"P2_tea\.npy \[3, 48\] of 30 labels") as caught:
        prepare(folder, tmp_path / "DATA", **ASKED)
    assert caught.value.setting == "feature_rate"
