"""Runs of several horizons in one folder."""

from pathlib import Path

import pytest

from cefito import open_run, train_runs
from cefito.data.readers.custom import prepare_custom
from cefito.errors import ConfigError, DataError, RunError
from cefito.parts.folder import folders_for, horizons_in
from cefito.planners.methods import load_config
from tiny_runs import small_run


@pytest.fixture
def dataset(make_source, tiny_videos, tmp_path):
    tiny_videos[-1]["split"] = "val"
    return prepare_custom(make_source(videos=tiny_videos), tmp_path / "data")


@pytest.fixture
def train(dataset, tmp_path):
    """Train runs of some horizons into a folder; says of which horizon, and whether it was new."""

    def call(*horizons, folder=tmp_path / "runs", **more):
        told = []
        runs = train_runs(
            dataset,
            folder,
            configs={
                horizon: load_config("paper", method="nearest", horizon=horizon)
                for horizon in horizons
            },
            each=lambda run, trained: told.append((run.horizon, trained)),
            **{"seed": 0} | more,
        )
        assert [horizon for horizon, _ in told] == list(runs) == list(horizons)
        return told

    return call


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_several_horizons(train, tmp_path):
    folder = tmp_path / "runs"
    assert train(3, 2) == [(3, True), (2, True)]
    assert names(folder) == ["T2", "T3"]
    before = (folder / "T2" / "run.json").stat().st_mtime_ns
    assert train(2, 3, 4) == [(2, False), (3, False), (4, True)]
    assert (folder / "T2" / "run.json").stat().st_mtime_ns == before
    assert train(1) == [(1, True)]  # one more takes its place beside the others
    assert list(horizons_in(folder)) == [1, 2, 3, 4]
    for horizon in (1, 2, 3, 4):
        run = open_run(folder, horizon=horizon)
        assert (run.folder, run.horizon) == (folder / f"T{horizon}", horizon)
        assert run.planner.horizon == horizon
    with pytest.raises(RunError, match=r"the horizons 1, 2, 3, 4\.") as e:
        open_run(folder)
    assert e.value.setting == "horizon"
    with pytest.raises(RunError, match=r"1, 2, 3, 4, not of 6\.") as absent:
        open_run(str(folder), horizon=6)
    assert absent.value.setting == "horizon"


def test_one_horizon_is_a_run_itself(train, tmp_path, dataset):
    folder = tmp_path / "one"
    assert train(3, folder=folder) == [(3, True)]
    assert (folder / "run.json").exists()
    assert open_run(folder).horizon == open_run(folder, horizon=3).horizon == 3
    with pytest.raises(RunError, match=r"one: plans 3 actions, not 4\.") as wrong:
        open_run(folder, horizon=4)
    assert wrong.value.setting == "horizon"
    with pytest.raises(RunError, match=r"is the run of one horizon"):
        train(3, 4, folder=folder)
    (tmp_path / "moved").mkdir()
    folder.rename(tmp_path / "moved" / "T3")
    assert open_run(tmp_path / "moved").horizon == 3  # the only one there


def test_what_is_refused_is_refused_before_any_training(train, tmp_path, dataset):
    folder = tmp_path / "runs"
    with pytest.raises(DataError, match="gives no windows of horizon 40"):
        train(3, 40)
    with pytest.raises(ConfigError, match="seed -1"):
        train(3, 4, seed=-1)
    with pytest.raises(ConfigError, match="no horizon to train"):
        train()
    assert not folder.exists()
    small_run(dataset, folder / "T4", horizon=4, seed=1)
    with pytest.raises(RunError, match=r"T4: .*another seed"):
        train(3, 4)
    assert names(folder) == ["T4"]
    (tmp_path / "file").write_text("keep")
    with pytest.raises(RunError, match="is not a folder"):
        train(3, 4, folder=tmp_path / "file")


def test_what_lies_beside_runs_is_no_run(tmp_path):
    for name in ("T3", "T04", "T5x", "t6", "T7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    (tmp_path / "T7" / "run.json").unlink()
    (tmp_path / "T9").write_text("a file")
    assert horizons_in(tmp_path) == {3: tmp_path / "T3"}
    assert horizons_in(tmp_path / "gone") == {}
    assert folders_for(tmp_path / "new", [5]) == {5: tmp_path / "new"}
    assert folders_for(tmp_path, [5]) == {5: tmp_path / "T5"}
    with pytest.raises(RunError, match=r"T3/run\.json"):
        open_run(tmp_path)
    with pytest.raises(RunError, match=r"gone/run\.json: no such file"):
        open_run(tmp_path / "gone", horizon=3)


def test_an_interrupted_training_goes_on(train, dataset, tmp_path):
    def interrupt(run, trained):
        raise KeyboardInterrupt

    configs = dict.fromkeys((2, 3), load_config("paper", method="nearest"))
    with pytest.raises(KeyboardInterrupt):
        train_runs(dataset, tmp_path / "runs", configs=configs, seed=0, each=interrupt)
    assert names(tmp_path / "runs") == ["T2"]
    assert train(2, 3) == [(2, False), (3, True)]
    path = tmp_path / "runs" / "T3" / "run.json"
    path.write_text(path.read_text().replace('"finished": true', '"finished": false'))
    (path.parent / "manifest.json").unlink()
    with pytest.raises(RunError, match="its training has not finished"):
        open_run(tmp_path / "runs", horizon=3)
    assert train(2, 3) == [(2, False), (3, True)]
    assert open_run(tmp_path / "runs", horizon=3).info.finished
