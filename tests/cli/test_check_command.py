import json
import shutil
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.data import open_dataset
from cefito.planners.methods import load_config
from cefito.runs.train import train_run


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):
    """A data set and a run, in folders of these names."""
    root = tmp_path_factory.mktemp("check")
    world = open_dataset(shutil.copytree(world.folder, root / "data"))
    config = load_config(
        "small", method="frequent", overrides={"classifier_training.optimiser.epochs": 3}
    )
    train_run(world, root / "run", config=config, horizon=3, seed=0)
    return root


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def found(capsys, *given, code=0):
    """Stdout, or stderr of an error."""
    assert main(["check", *map(str, given)]) == code
    out, err = capsys.readouterr()
    assert (err, out)[code > 0] == ""
    return err if code else out


@pytest.mark.parametrize(
    ("name", "kind", "files"),
    [
        ("data", "data set", ["features.safetensors", "taxonomy.json", "videos.jsonl"]),
        ("run", "run", ["run.json", "taxonomy.json", "classifier.safetensors"]),
    ],
)
def test_it_tells_what_it_is_and_lists_the_files(whole, capsys, name, kind, files):
    value = json.loads(found(capsys, whole / name, "--json"))
    assert (value["ok"], value["kind"], value["notes"]) == (True, kind, [])
    assert set(value["files"]) >= set(files)
    assert all(len(digest) == 64 for digest in value["files"].values())
    out = found(capsys, whole / name)
    assert out.startswith(f"{kind} '")
    assert all(file in out for file in files)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("data", "videos.jsonl"),
        ("run", "classifier.safetensors"),
    ],
)
def test_a_change_is_refused_by_name(folder, capsys, name, file):
    path = folder / name / file
    data = path.read_bytes()
    digit = next(place for place in range(len(data) - 1, 0, -1) if data[place : place + 1] in b"34")
    path.write_bytes(data[:digit] + b"5" + data[digit + 1 :])
    err = found(capsys, folder / name, code=2)
    assert err.startswith(f"error: {path}")
    assert err.count("\n") == 1


def test_lost_epochs_are_noted(folder, capsys):
    metrics = folder / "run" / "classifier" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().partition("\n")[0] + "\n")
    (note,) = json.loads(found(capsys, folder / "run", "--json"))["notes"]
    assert note.startswith("classifier/metrics.jsonl has 1 of ")
    assert note.endswith("epochs; its curves are incomplete")


def test_nothing_that_can_be_checked(tmp_path, capsys):
    err = found(capsys, tmp_path, code=2)
    assert "is neither a data set (dataset.json) nor a run (run.json)" in err
    assert "no such file" in found(capsys, tmp_path / "nowhere", code=2)
