"""Conformal quantiles over videos, scores of windows, and the calibration of a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cefito.data import cut_windows
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.conformal import (
    calibrate_run,
    conditions,
    sampled,
    window_scores,
    windows_for,
)
from cefito.evaluation.sharing import export_run
from cefito.inference.answer import answer
from cefito.parts.coverage import (
    COVERAGE_FILE,
    LEVELS,
    Condition,
    Coverage,
    WindowScores,
    quantiles,
)
from cefito.planners.base import Queries
from cefito.runs.run import open_run
from tiny_runs import small_run, stopping_after


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_folds_without_windows_of_a_condition(empty):
    """Such a fold has no sums over plans, and adds nothing to those of others."""
    parts = [
        WindowScores(videos=np.arange(2), plans=np.ones(2), next_step=np.full(2, n), next_two=None)
        for n in (1.0, 2.0)
    ]
    none = WindowScores(
        videos=np.zeros(0, np.int64), plans=np.zeros(0), next_step=None, next_two=None
    )
    parts.insert(empty, none)
    joined = WindowScores.concatenate(parts)
    assert joined.next_step.tolist() == [1, 1, 2, 2]
    assert (len(joined.videos), len(joined.plans), joined.next_two) == (4, 4, None)


def test_quantiles_rise_with_the_level_and_end_at_infinity():
    scores, videos = np.array([3.0, 1.0, 2.0, np.inf]), np.array([0, 0, 1, 2])
    # weights 1/8, 1/8 of video 0, 1/4 of 1, 1/4 of 2: cumulative 1/8, 3/8, 1/2, 3/4
    levels = [0.1, 0.125, 0.2, 0.375, 0.5, 0.6, 0.75, 0.76]
    expected = [1, 1, 2, 2, 3, np.inf, np.inf, np.inf]
    np.testing.assert_array_equal(quantiles(scores, videos, levels), expected)
    assert quantiles([], [], [0.5])[0] == np.inf


def test_quantiles_are_those_of_numpy():
    """The weighted inverse of the distribution, with a new video at ∞."""
    rng = np.random.default_rng(2)
    for videos in (3, 9, 40):
        place = np.sort(rng.integers(videos, size=5 * videos))
        names, index, counts = np.unique(place, return_inverse=True, return_counts=True)
        scores = rng.exponential(size=len(place))
        weights = np.append(1 / counts[index], 1.0)  # each video 1, and the new one
        levels = rng.uniform(0.3, 0.99, size=20)
        expected = np.quantile(
            np.append(scores, 1e9), levels, weights=weights, method="inverted_cdf"
        )
        found = quantiles(scores, place, levels)
        np.testing.assert_array_equal(np.where(np.isinf(found), 1e9, found), expected)
        assert (expected == 1e9).sum() == (levels > len(names) / (len(names) + 1)).sum()


def draw(rng, videos, spread):
    """Scores of windows of videos: the level of a video, and the scatter within it."""
    sizes = rng.choice([1, 2, 30], size=videos)
    means = rng.normal(scale=spread, size=videos) + 0.5 * (sizes == 30)  # long videos are harder
    place = np.repeat(np.arange(videos), sizes)
    return means[place] + rng.normal(size=len(place)), place


@pytest.mark.parametrize(
    ("videos", "spread"),
    [
        (9, 3.0),
        *(
            pytest.param(*one, marks=pytest.mark.nightly)
            for one in ((9, 0.0), (40, 0.0), (40, 3.0))
        ),
    ],
)
def test_coverage_of_a_random_window_of_a_new_video(videos, spread):
    """Within binomial bounds of the guarantee level ≤ coverage ≤ level + 2 / (V + 1)."""
    levels = np.array([0.5, 0.8, 0.9])
    rng, trials, covered = np.random.default_rng(videos), 4000, np.zeros(3)
    for _ in range(trials):
        scores, place = draw(rng, videos + 1, spread)
        new = place == videos
        thresholds = quantiles(scores[~new], place[~new], levels)
        covered += rng.choice(scores[new]) <= np.asarray(thresholds)
    error = 4 * np.sqrt(levels * (1 - levels) / trials)
    assert (levels - error <= covered / trials).all()
    assert (covered / trials <= levels + 2 / (videos + 1) + error).all()


def test_windows_of_each_video_are_sampled(world):
    windows = cut_windows(world, horizon=3, shortest=1, split="val")
    part = sampled(windows, 4)
    counts = dict(zip(*np.unique(windows.video, return_counts=True), strict=True))
    found = dict(zip(*np.unique(part.video, return_counts=True), strict=True))
    assert found == {video: min(4, count) for video, count in counts.items()}
    places, every = (
        list(zip(one.video, one.start, one.lengths, strict=True)) for one in (part, windows)
    )
    assert [place for place in every if place in set(places)] == places
    assert len(set(part.start.tolist())) > 2  # not the first ones alone
    assert len(sampled(windows, 10_000)) == len(windows)


@pytest.fixture
def run(run_of_lengths, tmp_path):
    """A run of 1 to 4 steps that is not calibrated."""
    return open_run(shutil.copytree(run_of_lengths.folder, tmp_path / "run"))


def test_thresholds_are_quantiles_of_validation_windows(calibrated, world):
    table = calibrated.calibrated()
    assert (table.folds, table.steps, table.fingerprint) == (0, "1-4", world.fingerprint)
    assert [one.condition for one in table.thresholds] == conditions(calibrated.planner)
    windows = cut_windows(world, horizon=4, shortest=1, split="val")
    for condition in (
        Condition(steps=2, goal=True, done=False, task=True),
        Condition(steps=None, goal=False, done=True, task=False),
    ):
        found = next(one for one in table.thresholds if one.condition == condition)
        assert found.videos == len(np.unique(windows.video)) == 12
        part = sampled(windows_for(windows, condition), 4)  # as its settings say
        scores = window_scores(calibrated.planner, part, condition)
        for name in ("plans", "next_step", "next_two"):
            values, own = getattr(found, name), getattr(scores, name)
            expected = quantiles(own, scores.videos, LEVELS)
            given = np.array([np.inf if value is None else value for value in values])
            np.testing.assert_allclose(given, expected, atol=1.001e-4)
            assert (given >= expected).all()
        assert found.plans[-1] is None  # 12 videos guarantee 12/13


def test_scores_follow_from_lists_of_all_plans(calibrated, world):
    windows = cut_windows(world, horizon=4, shortest=1, split="val")
    condition = Condition(steps=2, goal=False, done=True)
    part = windows_for(windows, condition).subset(range(6))
    planner = calibrated.planner.with_lengths(2, 2)
    scores = window_scores(calibrated.planner, part, condition)
    listed = planner.plan(Queries.from_windows(part, without_goal=True, after_done=True), 10_000)
    for row, plans in enumerate(listed):
        place = plans.actions.tolist().index(part.actions[row].tolist())
        expected = -np.log(plans.probabilities[place]) if place else 0
        assert scores.plans[row] == pytest.approx(expected, abs=1e-3)


def test_without_a_goal_plans_reach_the_end(world):
    windows = cut_windows(world, horizon=4, shortest=1, split="val")
    part = windows_for(windows, Condition(steps=None, goal=False))
    ends = {index: len(video.steps) for index, video in enumerate(world.videos)}
    places = [(int(video), int(start)) for video, start in zip(part.video, part.start, strict=True)]
    assert len(set(places)) == len(places)  # one window at each place
    for (video, start), length in zip(places, part.lengths, strict=True):
        assert length == min(4, ends[video] - start)


@pytest.mark.nightly
def test_folds_score_videos_that_they_were_not_trained_on(run, world, tmp_path):
    """An interrupted calibration continues to the same table."""
    stopped = open_run(shutil.copytree(run.folder, tmp_path / "stopped"))
    table = calibrate_run(run, folds=2)
    assert table.folds == 2
    assert table.thresholds[0].videos == 24  # the training videos
    assert open_run(run.folder).coverage == table
    assert not (run.folder / "coverage").exists()
    assert COVERAGE_FILE in (run.folder / "manifest.json").read_text()
    with pytest.raises(KeyboardInterrupt):
        calibrate_run(stopped, folds=2, progress=stopping_after(60))
    assert list((stopped.folder / "coverage").iterdir())
    assert not (stopped.folder / COVERAGE_FILE).exists()
    open_run(stopped.folder)
    assert calibrate_run(stopped, folds=2) == table


def test_sets_of_another_planner_are_refused(calibrated):
    other = replace(calibrated, files={**calibrated.files, "any-length.safetensors": "0"})
    for run in (other, replace(other, coverage=None)):  # the latter reads the file anew
        with pytest.raises(RunError, match="other weights"):
            run.calibrated()


def test_what_cannot_be_calibrated(run, nearest_run, world, monkeypatch):
    for folds in (1, 25, -1):
        with pytest.raises(ConfigError, match="folds"):
            calibrate_run(run, folds=folds)
    videos = tuple(replace(video, group=video.video_id[-1]) for video in world.videos)
    grouped = replace(world, annotations=replace(world.annotations, videos=videos))
    with monkeypatch.context() as patch:
        patch.setattr(type(run), "dataset", lambda *_: grouped)
        with pytest.raises(ConfigError, match=r"groups \(10\)"):
            calibrate_run(run, folds=12)
    finetuned = replace(run, info=run.info.model_copy(update={"imported": {"file": "x"}}))
    with pytest.raises(RunError, match="finetuned or imported"):
        calibrate_run(finetuned, folds=2)
    with pytest.raises(ConfigError, match="no probabilities"):
        calibrate_run(nearest_run)


def test_a_method_of_one_length(world, tmp_path):
    run = small_run(world, tmp_path / "run", "frequent")
    table = calibrate_run(run, folds=0)
    assert {one.condition.steps for one in table.thresholds} == {3}
    windows = cut_windows(world, horizon=3, split="test")
    found = answer(run, Queries.from_windows(windows.subset([0])), coverage=0.8)
    assert found.sets is not None


@pytest.mark.nightly
@pytest.mark.parametrize("level", [0.8, 0.9])
def test_a_shared_run_keeps_its_guarantee_on_new_videos(level, tmp_path):
    """Of 600 videos that neither training nor calibration saw, over all conditions."""
    knobs = WorldKnobs(train=48, val=600, test=600, dim=8)
    world = write_world(tmp_path / "world", seed=0, knobs=knobs)
    sizes = dict.fromkeys(("hidden", "width", "emission"), 16) | {"members": 1}
    changes: dict[str, Any] = {f"chain.{name}": size for name, size in sizes.items()}
    changes |= {"chain_training.optimiser.epochs": 5, "chain_training.all_videos": 0.0}
    run = small_run(world, tmp_path / "run", "chain", overrides=changes)
    calibrate_run(run, folds=0)
    export_run(run.folder, tmp_path / "run.zip")
    run = open_run(tmp_path / "run.zip")
    windows, shares = cut_windows(world, horizon=3, split="test"), []
    for condition in (one.condition for one in run.calibrated().thresholds):
        part = windows_for(windows, condition)
        scores = window_scores(run.planner, part, condition)
        found, place = run.calibrated().of(condition, level, place=run.place)
        counts = np.bincount(part.video)
        for name in ("plans", "next_step", "next_two"):
            limit = getattr(found, name)[place]
            inside = getattr(scores, name) <= (np.inf if limit is None else limit)
            shares += (np.bincount(part.video, inside)[counts > 0] / counts[counts > 0]).tolist()
    assert np.mean(shares) == pytest.approx(level, abs=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"levels": []},
        {"levels": [0.9, 0.5]},
        {"levels": [0.5, 1.5]},
        {"folds": -1},
        {"thresholds": [{"condition": {"steps": 1}, "videos": -1, "plans": [None] * 50}]},
        {"thresholds": [{"condition": {"steps": 1}, "videos": 3, "plans": [0.5]}]},
        {"thresholds": [{"condition": {"steps": 1}, "videos": 3, "plans": [float("nan")] * 50}]},
    ],
)
def test_thresholds_of_a_shared_run_are_checked(tmp_path, change):
    facts = {"format_version": 1, "weights": "", "fingerprint": "", "steps": "1-3", "folds": 0}
    path = tmp_path / COVERAGE_FILE
    path.write_text(json.dumps({**facts, "thresholds": []}))
    assert Coverage.read(path).levels == LEVELS
    path.write_text(json.dumps({**facts, "thresholds": [], **change}))
    with pytest.raises(CefitoError, match=rf"{COVERAGE_FILE}.*Calibrate the run again"):
        Coverage.read(path)
