import json
import shutil
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.data import open_dataset
from cefito.files import value_sealed
from cefito.planners.methods import load_config
from cefito.runs.train import train_run
from cefito.study.results import RESULTS, gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):
    """A data set, a run and a study, in folders of these names."""
    root = tmp_path_factory.mktemp("check")
    world = open_dataset(shutil.copytree(world.folder, root / "data"))
    config = load_config(
        "small", method="frequent", overrides={"classifier_training.optimiser.epochs": 3}
    )
    train_run(world, root / "run", config=config, horizon=3, seed=0)
    study = Study(
        dataset=world, out=root / "study", rows=find_rows(["nearest"]), horizons=(2,), seeds=(0,)
    )
    assert run_study(study) == []
    gather(study).write(study.out / RESULTS)
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
        ("study", "study", ["T2/seed0/trials/nearest.json"]),
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
        ("study", "T2/seed0/trials/nearest.json"),
        ("study", "T2/seed0/runs/*/windows.safetensors"),
    ],
)
def test_a_change_is_refused_by_name(folder, capsys, name, file):
    (path,) = (folder / name).glob(file)
    data = path.read_bytes()
    digit = next(place for place in range(len(data) - 1, 0, -1) if data[place : place + 1] in b"34")
    path.write_bytes(data[:digit] + b"5" + data[digit + 1 :])
    err = found(capsys, folder / name, code=2)
    assert err.startswith(f"error: {path}")
    assert err.count("\n") == 1


def test_results_that_are_not_of_the_trials_are_refused(folder, capsys):
    study = folder / "study"
    path = study / "results.json"
    value = json.loads(path.read_text())
    value["trials"][0]["metrics"]["success_rate"] = 99.5
    path.write_text(json.dumps(value))
    assert "results.json: has changed since it was written" in found(capsys, study, code=2)
    path.write_text(json.dumps(value_sealed(value)))
    err = found(capsys, study, code=2)
    assert "the scores of nearest, T = 2, seed 0 are not those of its trial" in err


def test_lost_epochs_are_noted(folder, capsys):
    metrics = folder / "run" / "classifier" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().partition("\n")[0] + "\n")
    (note,) = json.loads(found(capsys, folder / "run", "--json"))["notes"]
    assert note.startswith("classifier/metrics.jsonl has 1 of ")
    assert note.endswith("epochs; its curves are incomplete")


def test_a_trial_in_the_place_of_another_is_refused(folder, capsys):
    trials = folder / "study" / "T2" / "seed0" / "trials"
    (trials / "nearest.json").rename(trials / "frequent.json")
    err = found(capsys, folder / "study", code=2)
    assert "frequent.json: is the trial of nearest, T = 2, seed 0" in err


def test_runs_of_several_horizons(folder, capsys):
    both = folder / "both"
    both.mkdir()
    (folder / "run").rename(both / "T3")
    value = json.loads(found(capsys, both, "--json"))
    assert (value["kind"], value["facts"]["T3, horizon"]) == ("runs", 3)
    assert "T3/run.json" in value["files"]


def test_a_run_without_manifest_cannot_be_verified(folder, capsys):
    (folder / "run" / "manifest.json").unlink()
    assert "manifest.json" in found(capsys, folder / "run", code=2)
    (run,) = (folder / "study").glob("T2/seed0/runs/*")
    (run / "manifest.json").unlink()
    assert f"{run}/manifest.json: no such file" in found(capsys, folder / "study", code=2)


def test_nothing_that_can_be_checked(tmp_path, capsys):
    err = found(capsys, tmp_path, code=2)
    assert "is not a data set (dataset.json), a run (run.json) or a study" in err
    assert "no such file" in found(capsys, tmp_path / "nowhere", code=2)
