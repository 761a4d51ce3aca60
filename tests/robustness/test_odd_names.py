"""Names like paths, numbers, formulas or markup, through all commands that write files."""

import csv
import json
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.prepared import open_dataset
from cefito.inference.recordings import open_recordings
from cefito.markup import from_csv, in_csv, plain
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.runs.run import open_run
from cefito.tracks.formats import WRITERS
from odd_names import ODD
from tiny_runs import TINY_LENGTHS, as_arguments, contents

pytestmark = pytest.mark.nightly
EACH = 5  # actions of a task
TASKS = [ODD[place : place + EACH] for place in range(0, len(ODD), EACH)]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder with a data set and a run, whose videos, tasks and actions have odd names."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "SOURCE").mkdir()
    rng, names = np.random.default_rng(0), [*ODD]
    tasks: list[dict[str, Any]] = [
        {"id": place, "name": ODD[-1 - place], "actions": [*map(names.index, actions)]}
        for place, actions in enumerate(TASKS)
    ]
    actions = [{"id": place, "name": name} for place, name in enumerate(names)]
    taxonomy = {"dataset": "../odd", "tasks": tasks, "actions": actions}
    (folder / "SOURCE" / "taxonomy.json").write_text(json.dumps(taxonomy))
    lines, rows = [], {}
    for place, name in enumerate(names):
        task = tasks[place % len(tasks)]
        steps = [[4 * at, 4 * at + 4, action] for at, action in enumerate(task["actions"])]
        split = "test" if place % 5 == 4 else "train"
        line = {"video_id": name, "split": split, "task_id": task["id"], "steps": steps}
        lines.append(json.dumps(line) + "\n")
        labels = np.repeat(task["actions"], 4)
        rows[name] = 3 * np.eye(len(names))[labels] + rng.normal(size=(len(labels), len(names)))
    (folder / "SOURCE" / "videos.jsonl").write_text("".join(lines))
    np.savez(folder / "SOURCE" / "timeline.npz", **rows)
    call("data", "prepare", "custom", folder / "SOURCE", folder / "DATA")
    train = ("train", folder / "DATA", "--steps", "1-3", "--out", folder / "RUN")
    call(*train, "--no-recogniser", *as_arguments(TINY_LENGTHS))
    return folder


@pytest.fixture(scope="module")
def seeing(odd):
    """The run with a recogniser."""
    config = RecogniserConfig(
        members=1, width=16, training_steps=30, folds=2, trusts=(0.6,), learning_rate=3e-2
    )
    run = open_run(odd / "RUN")
    recogniser = SegmentalRecogniser.fit(open_dataset(odd / "DATA"), [*range(16)], config=config)
    folder = odd / "SEEING"
    folder.mkdir()
    replace(run, folder=folder, recogniser=recogniser).written()
    return folder


def call(*argv, code=0):
    assert main([str(part) for part in argv]) == code


def test_no_video_is_dropped_or_confused(odd):
    dataset = open_dataset(odd / "DATA")
    assert [video.video_id for video in dataset.videos] == [*ODD]
    for video, rows in zip(dataset.videos, dataset.timeline.videos, strict=True):
        actions = [step.action for step in video.steps]
        assert rows.argmax(axis=1)[::4].tolist() == actions or rows.shape[0] == 4 * len(actions)


def test_graphs_are_read_again(odd, tmp_path, capsys):
    for options in ((), *(("--task", name) for name in ODD[-len(TASKS) :])):
        capsys.readouterr()
        call("graph", odd / "RUN", *options, "--out", tmp_path / "a.json")
        call("graph", odd / "RUN", *options, "--order", tmp_path / "a.json")
        assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "a.json").read_text())
        for ending in "svg", "dot":
            call("graph", odd / "RUN", *options, "--out", tmp_path / f"a.{ending}")


@pytest.mark.parametrize("form", ["csv", "eaf", "labelstudio", "via"])
def test_proposals_are_read_again(form, odd, seeing, tmp_path, capsys):
    out = tmp_path / "OUT"
    videos = [name for name in ODD if not name.startswith(("-", "@"))]  # they would be options
    call("annotate", seeing, *videos, "--dataset", odd / "DATA", "--out", out, "--format", form)
    files = [path for path in out.iterdir() if path.name not in ("proposals.jsonl", "VIDEOS.csv")]
    assert {path.parent for path in tmp_path.rglob("*.*")} <= {out, tmp_path}
    lines = [json.loads(line) for line in (out / "proposals.jsonl").read_bytes().splitlines()]
    steps = sum(len(line["steps"]) for line in lines)
    capsys.readouterr()
    corrected = [part for path in files for part in ("--corrected", path)]
    call("annotate", seeing, "--out", out, *corrected)
    said = capsys.readouterr().err
    assert (
        f"{sum(bool(line['steps']) for line in lines)} films, {steps} steps: {steps} kept" in said
    )
    if form == "csv":  # whose steps have their tasks
        call(
            "verify",
            odd / "RUN",
            *files,
            "--log",
            tmp_path / "x.jsonl",
            "--out",
            tmp_path / "x.html",
        )
        call("data", "steps", *files, "--out", tmp_path / "again.csv")
        again, first = (table(path, "video", "step") for path in (tmp_path / "again.csv", *files))
        assert [*map(str.lower, sum(again, ()))] == [*map(str.lower, sum(first, ()))]


def table(path, *columns):
    with path.open(newline="") as file:
        return sorted(
            tuple(plain(from_csv(row[name])) for name in columns) for row in csv.DictReader(file)
        )


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_folders_of_recognised_steps(form, odd, seeing, tmp_path, capsys):
    out = tmp_path / "OUT"
    run = open_run(seeing)
    recordings = [*open_recordings(run, ODD, dataset=odd / "DATA")]
    assert [one.name for one in recordings] == [*ODD]
    videos = [name for name in ODD if not name.startswith(("-", "@"))]
    choices = ("--dataset", odd / "DATA", "--out", out, "--format", form, "--frame-rate", "25")
    code = main([str(part) for part in ("recognise", seeing, *videos, *choices)])
    if form == "frames" and code:  # a step '3' was seen, whose labels would be numbers
        assert "would be read as a number" in capsys.readouterr().err
        return
    assert code == 0
    assert len([*(out / WRITERS[form].folder).iterdir()]) == len(videos)
    assert [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet", "md"])
def test_plans_of_a_batch(ending, odd, tmp_path):
    """Of queries whose ids and tasks have odd names."""
    with (tmp_path / "queries.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("id", "task"))
        rows.writerows(
            map(in_csv, (name, ODD[-1 - place % len(TASKS)])) for place, name in enumerate(ODD)
        )
    out = tmp_path / f"plans.{ending}"
    call("plan-batch", odd / "RUN", tmp_path / "queries.csv", "--out", out, "--top-k", 1)
    found = []
    if ending == "jsonl":
        found = [json.loads(line) for line in out.read_bytes().splitlines()]
    elif ending == "csv":
        assert not [name for (name,) in table(out, "query") if name not in map(plain, ODD)]
        with out.open(newline="") as file:
            found = [
                {name: from_csv(cell) for name, cell in row.items()} for row in csv.DictReader(file)
            ]
    elif ending == "parquet":
        from pyarrow import parquet

        found = parquet.read_table(out).to_pylist()
    for row in found:
        assert plain(row["task"]) == plain(ODD[-1 - ODD.index(row["query"]) % len(TASKS)])
    assert len(found) in (0, len(ODD))


def test_reports_and_archives(odd, tmp_path):
    call("export", odd / "RUN", tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert not [name for name in archive.namelist() if ".." in name or name.startswith("/")]
    call("report", odd / "RUN", "--sample", 3, "--out", tmp_path / "report.html")
    assert "<b>&amp;" not in (tmp_path / "report.html").read_text()
    assert sorted(contents(tmp_path)) == ["report.html", "run.zip"]
