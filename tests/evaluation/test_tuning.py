"""Tuning: what folds over videos say of changes of a preset, and what is chosen within a budget."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import count
from zlib import crc32

import numpy as np
import pytest

from cefito.cli import main
from cefito.errors import ConfigError, RunError
from cefito.evaluation.tuning import (
    Tuning,
    luck,
    read_tuning,
    single_changes,
    tune,
    tuned_config,
)
from cefito.planners.methods import METHODS, Method, RunConfig, load_config
from cefito.planners.simple.nearest import NearestPlanner
from cefito.runs.folder import TUNING_FILE, RunInfo
from cefito.settings import Settings, Times, flattened
from tiny_runs import TINY_RUN, as_arguments


class DrawnConfig(Settings):
    """Settings that change drawn log-probabilities by known amounts, or by nothing."""

    good: float = 0
    other: float = 0
    bad: float = 0
    broken: bool = False
    noise: int = 0
    many: int = 1
    draw: int = 0
    shown: bool = True


class DrawnSettings(Settings):
    drawn: DrawnConfig = DrawnConfig()


@dataclass(frozen=True, eq=False, repr=False)
class DrawnPlanner(NearestPlanner):
    """A planner whose log-probabilities are drawn, alike for equal settings and windows."""

    config: DrawnConfig = field(default_factory=DrawnConfig)

    @classmethod
    def fit(cls, train, val, *, settings, **_):
        if settings.drawn.broken:
            raise RunError("the training diverged.")
        fitted = NearestPlanner.fit(train, val)
        planner = cls(**vars(fitted.planner), config=settings.drawn)
        return replace(fitted, planner=planner)

    def log_probabilities(self, queries, _):
        if not self.config.shown:
            return None
        text = self.config.model_dump_json() + str(queries.initial.sum())
        drawn = np.random.default_rng(crc32(text.encode())).normal(-4, 0.5, len(queries))
        return drawn + self.config.good + self.config.other - self.config.bad


@pytest.fixture
def drawn(monkeypatch):
    """Register the method, whose changes are set; return its configuration of some settings."""

    def registered(*tunable, **settings):
        monkeypatch.setattr(DrawnSettings, "tunable", tunable)
        method = Method(name="drawn", planner=DrawnPlanner, settings=DrawnSettings)
        monkeypatch.setitem(METHODS, "drawn", method)
        return RunConfig("drawn", "small", DrawnSettings(drawn=DrawnConfig(**settings)))

    return registered


def tuned(world, folder, config, budget=1000):
    return tune(world, folder, config=config, horizon=3, budget=budget)


def test_a_large_gain_is_taken_and_a_loss_ends_early(world, tmp_path, drawn):
    config = drawn(("drawn.bad", 2.0), ("drawn.good", 2.0))
    found = tuned(world, tmp_path, config)
    assert found.chosen == {"drawn.good": 2.0}
    preset, bad, good = found.tried
    assert (bad.stopped, bad.folds, good.stopped, good.folds) == ("worse", 1, None, 3)
    assert good.gain == pytest.approx(2.0, abs=4 * good.error)
    assert found.score == "log-likelihood"
    assert (preset.settings, preset.gain) == ({}, 0)
    assert f"{good.gain:.3f}" in found.reason
    assert tuned_config(config, found.chosen).settings.drawn.good == 2.0
    assert read_tuning(tmp_path) == found
    assert [path.name for path in tmp_path.iterdir()] == [TUNING_FILE]


def test_changes_that_helped_are_combined(world, tmp_path, drawn):
    changes = ("drawn.good", 1.0), ("drawn.noise", 1), ("drawn.other", 1.0), ("drawn.good", 0.5)
    found = tuned(world, tmp_path, drawn(*changes))
    assert found.chosen.items() >= {"drawn.good": 1.0, "drawn.other": 1.0}.items()
    singles = [one for one in found.tried if len(one.settings) == 1]
    assert len(singles) == 4
    assert all(
        both.gain > max(one.gain for one in singles)
        for both in found.tried
        if both.settings == found.chosen
    )


@pytest.mark.nightly
def test_noise_keeps_the_preset(world, tmp_path, drawn):
    changes = [("drawn.noise", number) for number in range(1, 9)]
    kept = lucky = 0
    for draw in range(20):
        found = tuned(world, tmp_path / str(draw), drawn(*changes, draw=draw))
        kept += found.chosen == {}
        lucky += any(one.error and one.gain > one.error for one in found.tried)
    assert lucky >= 5  # more than one standard error is not rare among eight
    assert kept >= 17


def test_the_threshold_is_a_standard_error_beyond_the_luckiest_of_equals():
    drawn = np.random.default_rng(0).normal(size=(20000, 12))
    for size in (1, 2, 5, 12):
        assert luck(size) == pytest.approx(drawn[:, :size].max(axis=1).mean(), abs=0.05)


def test_planners_without_probabilities_are_compared_by_success(world, tmp_path, drawn):
    found = tuned(world, tmp_path, drawn(("drawn.good", 2.0), shown=False))
    assert found.score == "success rate"
    assert found.chosen == {}  # the same plans


def test_what_cannot_be_trained_is_left_out(world, tmp_path, drawn, caplog):
    found = tuned(world, tmp_path, drawn(("drawn.broken", True), ("drawn.good", 2.0)))
    assert found.chosen == {"drawn.good": 2.0}
    assert [one.settings for one in found.tried] == [{}, {"drawn.good": 2.0}]
    assert "drawn.broken = True cannot be trained" in caplog.text


@pytest.mark.parametrize("folds", [1, 3, 5, 6, 8])
def test_the_budget_ends_the_search(world, tmp_path, drawn, folds, monkeypatch):
    monkeypatch.setattr("cefito.evaluation.tuning.process_time", count().__next__)
    changes = ("drawn.good", 2.0), ("drawn.other", 2.0)
    found = tuned(world, tmp_path, drawn(*changes), budget=folds + 1)
    assert sum(one.folds for one in found.tried) == folds
    assert found.chosen == ({"drawn.good": 2.0} if folds >= 6 else {})
    if folds == 1:
        assert "the time is enough only for 1 of 3 folds of the preset" in found.reason
    if folds == 5:
        assert [one.stopped for one in found.tried] == [None, "budget"]


def test_test_videos_are_never_read(world, tmp_path, drawn):
    test = [video.split == "test" for video in world.videos for _ in video.steps]
    start, end = world.start.copy(), world.end.copy()
    start[test] = end[test] = np.nan
    config = drawn(("drawn.good", 2.0))
    spoiled = tuned(replace(world, start=start, end=end), tmp_path / "a", config)
    assert spoiled.tried == tuned(world, tmp_path / "b", config).tried
    assert spoiled.videos == 36


@pytest.mark.parametrize("method", ["chain", "any-length", "viterbi", "pkg", "cefito"])
@pytest.mark.parametrize("preset", ["small", "paper"])
def test_declared_changes_are_settings_that_can_be(method, preset):
    config = load_config(preset, method=method)
    changes = single_changes(config)
    assert len(changes) >= 5
    for change in changes:
        values = flattened(tuned_config(config, change).sections)
        before = flattened(config.sections)
        assert {key for key in values if values[key] != before[key]} == set(change)


def test_factors_and_values_of_the_preset():
    class Own(DrawnSettings):
        tunable = (
            ("drawn.noise", Times(0.5)),
            ("drawn.many", Times(0.5)),
            ("drawn.good", Times(0.5)),
            ("drawn.bad", 0.0),
        )

    config = RunConfig("own", "", Own(drawn=DrawnConfig(noise=7, good=3)))
    assert single_changes(config) == [{"drawn.noise": 4}, {"drawn.good": 1.5}]


def test_a_tuning_of_these_arguments_is_kept(world, tmp_path, drawn):
    config = drawn(("drawn.good", 2.0))
    found = tuned(world, tmp_path, config)
    assert tuned(world, tmp_path, config) == found
    assert tuned(world, tmp_path, config, budget=90).key != found.key


@pytest.mark.nightly
def test_train_command(world, tmp_path, capsys, monkeypatch):
    """The change is trained with all members; a chain of cefito is tuned in its place."""
    from cefito.planners.chain.settings import ChainSettings

    rate = "chain_training.optimiser.learning_rate"
    monkeypatch.setattr(ChainSettings, "tunable", ((rate, 0.02),))
    settings = TINY_RUN | {rate: 1e-6, "chain_training.optimiser.epochs": 12, "chain.members": 2}
    out = tmp_path / "run"
    command = ["train", str(world.folder), "--horizon", "3", "--out", str(out), "--seed", "1"]
    command += ["--method", "chain", "--preset", "paper", "--tune", "10m"]
    command += as_arguments({key: value for key, value in settings.items() if "chain" in key})
    assert main(command) == 0
    assert f"{rate} = 0.02; gains " in capsys.readouterr().err
    found = Tuning.read(out / TUNING_FILE)
    assert found.chosen == {rate: 0.02}
    info = RunInfo.read(out)
    assert info.config["chain_training"]["optimiser"]["learning_rate"] == 0.02
    assert list(info.training) == ["chain", "chain-1"]
    assert main(command) == 0
    assert capsys.readouterr().err.endswith("is finished already and nothing was done\n")
    assert main(["report", str(out), "--out", str(tmp_path / "r.html"), "--queries", "0"]) == 0
    assert f"{rate} = 0.02" in (tmp_path / "r.html").read_text()


@pytest.mark.nightly
def test_compare_command(world, tmp_path, capsys, monkeypatch):
    from cefito.planners.chain.settings import ChainSettings

    rate = "chain_training.optimiser.learning_rate"
    monkeypatch.setattr(ChainSettings, "tunable", ((rate, 0.02),))
    out = tmp_path / "cmp"
    command = ["compare", str(world.folder), "--planners", "chain,nearest", "--horizons", "3"]
    command += ["--seeds", "2", "--out", str(out), "--tune", "1h", "--json"]
    chain = {key: value for key, value in TINY_RUN.items() if "chain" in key}
    settings = chain | {rate: 1e-6, "chain_training.optimiser.epochs": 12, "chain.members": 1}
    assert main([*command, *as_arguments(settings)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tuned"] == {"chain, T = 3": f"{rate} = 0.02"}
    assert (
        "Settings chosen by folds over videos, not on test: chain:"
        in (out / "tables.md").read_text()
    )
    runs = [RunInfo.read(path.parent) for path in out.rglob("run.json")]
    chains = [run.config["chain_training"] for run in runs if run.method == "chain"]
    assert [one["optimiser"]["learning_rate"] for one in chains] == [0.02, 0.02]


def test_refusals(world, tmp_path, capsys):
    with pytest.raises(ConfigError, match="nearest declares no settings to tune"):
        tuned(world, tmp_path, load_config("small", method="nearest"))
    out = ["--out", str(tmp_path / "out")]
    train = ["train", str(world.folder), "--horizon", "3", *out, "--tune"]
    for given in ("0s", "-3", "ten", "5d", "1e400m"):
        assert main([*train, given]) == 2
        assert "is not a duration" in capsys.readouterr().err
    compare = ["compare", str(world.folder), "--planners", "nearest", "--steps", "1-3", *out]
    assert main([*compare, "--tune", "10m"]) == 2
    assert "cannot be tuned" in capsys.readouterr().err


def test_a_planner_that_cannot_be_tuned_does_not_stop_the_others(world, tmp_path, capsys):
    chain = {key: value for key, value in TINY_RUN.items() if "chain" in key}
    settings = chain | {"chain_training.optimiser.learning_rate": 1e30}
    command = ["compare", str(world.folder), "--planners", "chain,nearest", "--horizons", "3"]
    command += ["--seeds", "1", "--out", str(tmp_path / "cmp"), "--tune", "1m", "--json"]
    assert main([*command, *as_arguments(settings)]) == 1
    said = capsys.readouterr()
    assert "chain, T = 3, seed 0 is not tuned: " in said.err
    assert "failed: chain, T = 3, seed 0: " in said.err
    assert said.err.endswith("\nerror: 1 of 2 trials failed.\n")
    rows = {trial["row"]: "error" in trial for trial in json.loads(said.out)["trials"]}
    assert rows == {"chain": True, "nearest": False}
