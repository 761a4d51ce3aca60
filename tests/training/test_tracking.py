"""Trackers of runs, by stand-ins for their modules: what they get, and what happens without."""

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from cefito.errors import ConfigError, RunError
from cefito.training.log import TRACKERS, MetricsLog, check_tracker, open_tracker, read_metrics

RUNS = ("wandb", "trackio")


@pytest.fixture
def calls(monkeypatch):
    """What the stand-ins of all trackers were called with."""
    made = []
    for name in RUNS:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.init = lambda **given: made.append(("init", given))
        module.log = lambda values, *, step: made.append(("log", values, step))
        module.finish = lambda: made.append(("finish",))
        monkeypatch.setitem(sys.modules, name, module)
    return made


@pytest.mark.parametrize("name", RUNS)
def test_a_training_as_a_tracker_sees_it(name, calls, tmp_path):
    folder = tmp_path / "run" / "chain"
    folder.mkdir(parents=True)
    log = MetricsLog(folder, 0, tracker=name)
    log.write({"epoch": 1, "loss": 0.5})
    log.write({"epoch": 2, "loss": 0.25})
    log.close()
    (_, begun), *rest = calls
    assert (begun["project"], begun["name"], begun["resume"]) == ("cefito", "run/chain", "allow")
    assert rest == [("log", {"loss": 0.5}, 1), ("log", {"loss": 0.25}, 2), ("finish",)]
    assert [line["loss"] for line in read_metrics(folder / "metrics.jsonl")] == [0.5, 0.25]
    assert not (folder / "tensorboard").exists()


def test_a_folder_is_one_run_of_wandb_however_often_it_is_resumed(calls, tmp_path):
    for folder in (tmp_path / "one", tmp_path / "one", tmp_path / "other"):
        open_tracker("wandb", folder, epoch=0)
    first, again, other = (given["id"] for _, given in calls)
    assert first == again != other


def test_tensorboard_is_left_out_where_it_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert open_tracker("tensorboard", tmp_path, epoch=0) is None
    assert open_tracker("none", tmp_path, epoch=0) is None
    log = MetricsLog(tmp_path, 0)
    log.write({"epoch": 1, "loss": 0.5})
    log.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"epoch": 1, "loss": 0.5}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlflow", "no tracker 'mlflow'; there are tensorboard, wandb, trackio and none"),
        ("wandb", r"tracker 'wandb' is not installed. Install it: pip install 'cefito\[wandb\]'"),
    ],
)
def test_trackers_that_there_are_not(name, message, monkeypatch):
    monkeypatch.setattr("cefito.training.log.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=message) as caught:
        check_tracker(name)
    assert caught.value.setting == "tracker"


def test_a_tracker_that_cannot_begin(calls, monkeypatch, tmp_path):
    def init(**_):
        raise PermissionError("no account")

    monkeypatch.setattr(sys.modules["wandb"], "init", init)
    with pytest.raises(RunError, match=r"could not begin \(PermissionError: no account\)"):
        open_tracker("wandb", tmp_path, epoch=0)


def test_every_tracker_but_tensorboard_is_an_extra_of_its_name():
    import tomllib
    from pathlib import Path

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert set(TRACKERS) <= set(tomllib.loads(text)["project"]["optional-dependencies"])
