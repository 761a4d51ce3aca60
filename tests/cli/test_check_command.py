import json
import shutil
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.planners.settings import load_config
from cefito.runs.train import train_run
from cefito.study.study import Study, run_study
from cefito.study.variants import find_rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A data set, a run and a study, in folders of these names."""
    root = tmp_path_factory.mktemp("check")
    world = write_world(root / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    config = load_config("small", method="nearest")
    train_run(world, root / "run", config=config, horizon=3, seed=0)
    study = Study(
        dataset=world, out=root / "study", rows=find_rows(["nearest"]), horizons=(2,), seeds=(0,)
    )
    assert run_study(study) == []
    return root


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def found(capsys, *given):
    code = main(["check", *map(str, given)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("name", "kind", "files"),
    [
        ("data", "data set", ["features.safetensors", "taxonomy.json", "videos.jsonl"]),
        ("run", "run", ["run.json", "taxonomy.json", "windows.safetensors"]),
        ("study", "study", ["T2/seed0/trials/nearest.json"]),
    ],
)
def test_it_tells_what_it_is_and_lists_the_files(whole, capsys, name, kind, files):
    code, out, err = found(capsys, whole / name, "--json")
    value = json.loads(out)
    assert (code, value["ok"], value["kind"], value["notes"], err) == (0, True, kind, [], "")
    assert set(value["files"]) >= set(files)
    assert all(len(digest) == 64 for digest in value["files"].values())
    code, out, _ = found(capsys, whole / name)
    assert code == 0
    assert out.startswith(f"{kind} '")
    assert all(file in out for file in files)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("data", "videos.jsonl"),
        ("run", "windows.safetensors"),
        ("study", "T2/seed0/trials/nearest.json"),
        ("study", "T2/seed0/runs/*/windows.safetensors"),
    ],
)
def test_a_change_is_refused_by_name(folder, capsys, name, file):
    (path,) = (folder / name).glob(file)
    data = path.read_bytes()
    digit = next(place for place in range(len(data) - 1, 0, -1) if data[place : place + 1] in b"34")
    path.write_bytes(data[:digit] + b"5" + data[digit + 1 :])
    code, out, err = found(capsys, folder / name)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {path}")
    assert err.count("\n") == 1


def test_a_trial_in_the_place_of_another_is_refused(folder, capsys):
    trials = folder / "study" / "T2" / "seed0" / "trials"
    (trials / "nearest.json").rename(trials / "frequent.json")
    code, _, err = found(capsys, folder / "study")
    assert code == 2
    assert "frequent.json: is the trial of nearest, T = 2, seed 0" in err


def test_runs_of_several_horizons(folder, capsys):
    both = folder / "both"
    both.mkdir()
    (folder / "run").rename(both / "T3")
    code, out, _ = found(capsys, both, "--json")
    value = json.loads(out)
    assert (code, value["kind"], value["facts"]["T3, horizon"]) == (0, "runs", 3)
    assert "T3/run.json" in value["files"]


def test_a_run_without_manifest_cannot_be_verified(folder, capsys):
    (folder / "run" / "manifest.json").unlink()
    code, _, err = found(capsys, folder / "run")
    assert code == 2
    assert "manifest.json" in err


def test_nothing_that_can_be_checked(tmp_path, capsys):
    code, _, err = found(capsys, tmp_path)
    assert code == 2
    assert "is not a data set (dataset.json), a run (run.json) or a study" in err
    code, _, err = found(capsys, tmp_path / "nowhere")
    assert code == 2
    assert "no such file" in err
