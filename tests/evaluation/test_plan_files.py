"""Plans of windows in files, metrics of each task, and intervals over videos."""

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation import (
    RunEvaluation,
    ScoredWindows,
    WindowPlans,
    evaluate_run,
    metrics,
    read_plans,
    save_plans,
)
from cefito.evaluation.score import successes
from cefito.inference.answer import PlannedSequence, answer
from cefito.inference.query import query_from_video
from cefito.runs.run import open_run
from cefito.search.problem import Plans, SearchCost


@pytest.fixture
def run(nearest_run, tmp_path):
    return open_run(shutil.copytree(nearest_run.folder, tmp_path / "run"))


def plans_of(sequences, tasks=None):
    """Plans of these sequences, best first."""
    count = len(sequences)
    return Plans(
        actions=np.array(sequences, dtype=np.int64).reshape(count, 3),
        energies=np.arange(count, dtype=float),
        scores=np.arange(count, dtype=float),
        evaluated=SearchCost(token_forwards=0, leaves=0),
        exact=True,
        tasks=None if tasks is None else np.array(tasks),
    )


@pytest.fixture
def given(world):
    """Test windows and plans for them: right, second best right, wrong, none, and so on."""
    windows = cut_windows(world, horizon=3, split="test")
    plans = []
    for row, truth in enumerate(windows.actions):
        wrong = (truth[::-1] + 1) % len(world.taxonomy.actions)
        cases = ([truth], [wrong, truth], [wrong], [], [truth, wrong])
        plans.append(plans_of(cases[row % 5]))
    return windows, plans


def test_metrics_of_tasks_against_the_metrics_themselves(given):
    windows, plans = given
    tasks = np.roll(windows.tasks, 1)
    found = ScoredWindows(plans, windows, tasks=tasks).per_task()
    assert [part.task for part in found] == sorted(set(windows.tasks.tolist()))
    best = np.array([plan.actions[0] if len(plan) else [-1] * 3 for plan in plans])
    for part in found:
        rows = windows.tasks == part.task
        assert part.name == windows.taxonomy.tasks[part.task].name
        assert part.windows == rows.sum()
        assert part.videos == len(set(windows.video[rows].tolist()))
        right = (best[rows], windows.actions[rows])
        known = {"tasks": tasks[rows], "actual_tasks": windows.tasks[rows]}
        for name in ("success_rate", "mean_accuracy", "mean_iou", "position_accuracy"):
            expected = metrics.metric_value(name, *right)
            assert part.metrics[name] == pytest.approx(expected), name
        expected = metrics.metric_value("task_accuracy", *right, **known)
        assert part.metrics["task_accuracy"] == expected


@pytest.mark.parametrize("groups", [None, 3])
def test_intervals_against_a_slow_bootstrap(given, groups):
    windows, plans = given
    windows = replace(windows, groups=windows.video % groups) if groups else windows
    found = ScoredWindows(plans, windows).intervals()
    best = np.array([plan.actions[0] if len(plan) else [-1] * 3 for plan in plans])
    videos, units = np.unique(windows.video), np.unique(windows.units)
    assert (found.videos, found.draws, found.level) == (len(videos), 2000, 0.9)
    assert len(units) == (groups or len(videos))
    generator = np.random.default_rng(0)
    rates, seconds = [], []
    for _ in range(2000):
        drawn = units[generator.integers(len(units), size=len(units))]
        rows = np.concatenate([np.flatnonzero(windows.units == unit) for unit in drawn])
        rates.append(metrics.metric_value("success_rate", best[rows], windows.actions[rows]))
        seconds.append(
            metrics.metric_value("position_accuracy", best[rows], windows.actions[rows])[1]
        )
    expected = np.percentile(rates, [5, 95])
    assert [found.low["success_rate"], found.high["success_rate"]] == pytest.approx(expected)
    ends = [found.low["position_accuracy"][1], found.high["position_accuracy"][1]]
    assert ends == pytest.approx(np.percentile(seconds, [5, 95]))
    inapplicable = {"task_accuracy", "length_accuracy", "order_tolerant_success"}
    assert set(found.low) == set(found.high) == {*metrics.METRICS} - inapplicable
    one = windows.subset(np.flatnonzero(windows.video == videos[0]))
    assert ScoredWindows(plans[: len(one)], one).intervals() is None


def test_plans_of_other_lengths_than_the_windows(given):
    """Windows of one, two and three steps, with a plan that is right, and every fourth too long."""
    windows, _ = given
    rows = np.arange(len(windows))
    actions = np.where(np.arange(3) <= rows[:, None] % 3, windows.actions, -1)
    plans = []
    for row, truth in enumerate(actions.tolist()):
        steps = [action for action in truth if action >= 0] + [0] * (row % 4 == 0)
        plans.append(replace(plans_of([truth]), actions=np.array([[*steps, -1]])))
    windows = replace(windows, actions=actions)
    right = rows % 4 != 0
    assert successes(plans, windows).tolist() == right.tolist()
    scores, low = (
        ScoredWindows(plans, windows, orders={}).per_task(),
        ScoredWindows(plans, windows).intervals().low,
    )
    for name in ("success_rate", "length_accuracy", "order_tolerant_success"):
        found = sum(part.windows * np.array(part.metrics[name]) for part in scores)
        assert found == pytest.approx(100 * right.sum()), name
    assert low["length_accuracy"] == low["success_rate"] < low["edit_similarity"]
    # no position beyond the annotated ones, where all plans are right
    assert low["position_accuracy"] == [100, 100, 100]
    assert all(np.all(np.array(part.metrics["position_accuracy"]) == 100) for part in scores)
    ones = windows.subset(np.flatnonzero(rows % 3 == 0))
    ones_plans = [plan for row, plan in enumerate(plans) if row % 3 == 0]
    assert ScoredWindows(ones_plans, ones).per_task()[0].metrics["position_accuracy"] == [100]
    assert ScoredWindows(ones_plans, ones).intervals().low["position_accuracy"] == [100]


def test_padding_is_not_written(given, world):
    windows, _ = given
    first = windows.subset([0])
    truth = first.actions[0].tolist()
    first = replace(first, actions=np.array([[truth[0], truth[1], -1]]))
    plans = plans_of([truth, [truth[1], -1, -1], [truth[0], truth[1], -1]])
    (found,) = ScoredWindows([plans], first).window_plans(world)
    assert found.true_actions == truth[:2]
    assert found.true_names == world.taxonomy.names(truth[:2])
    assert found.end == world.videos[first.video[0]].steps[first.start[0] + 1].end
    assert [plan.actions for plan in found.plans] == [truth, truth[1:2], truth[:2]]
    assert [len(plan.names) for plan in found.plans] == [3, 1, 2]
    assert (found.rank, found.success) == (3, False)


def test_a_registered_metric_is_taken_apart_too(given, monkeypatch):
    def first(scored):
        return float((scored.best == scored.actual)[:, 0].sum()), len(scored.actual)

    monkeypatch.setitem(metrics.METRICS, "first_step", metrics.Metric(first, meaning="first step"))
    windows, plans = given
    assert "first_step" in ScoredWindows(plans, windows).per_task()[0].metrics
    found = ScoredWindows(plans, windows).intervals()
    assert found.low["first_step"] == found.low["position_accuracy"][0]


def test_plans_that_are_saved_are_read_again(given, world, tmp_path):
    windows, plans = given
    plans[0] = replace(plans[0], tasks=np.array([1]), probabilities=np.array([0.25]))
    plans[1] = replace(plans[1], scores=np.array([-3.0, 7.0]), exact=False)
    for tasks in (None, windows.tasks):
        made = ScoredWindows(plans, windows, tasks).window_plans(world)
        path = tmp_path / "plans.jsonl"
        save_plans(made, path)
        assert read_plans(path) == made
    assert len(made) == len(windows)
    assert [window.rank for window in made[:5]] == [1, 2, None, None, 1]
    assert [window.success for window in made[:5]] == [True, False, False, False, True]
    assert made[0].plans[0].probability == 0.25
    assert (made[0].plans[0].task_id, made[1].plans[0].task_id) == (1, windows.tasks[1])
    assert made[3].plans == []
    assert [window.exact for window in made[:3]] == [True, False, True]
    assert [(plan.energy, plan.score) for plan in made[1].plans] == [(0, -3), (1, 7)]
    assert made[0].predicted_task_name == world.taxonomy.tasks[windows.tasks[0]].name
    for window, video, first in zip(made, windows.video, windows.start, strict=True):
        steps = world.videos[video].steps[first : first + 3]
        assert window.video == world.videos[video].video_id
        assert (window.start, window.end) == (steps[0].start, steps[-1].end)
        assert window.true_actions == [step.action for step in steps]
        assert window.true_names == world.taxonomy.names(window.true_actions)
        assert window.true_task_name == world.taxonomy.tasks[window.true_task].name


def test_a_run_is_scored_with_its_plans(run, world, tmp_path):
    scores, path = evaluate_run(run, plans_file=tmp_path / "plans.jsonl")
    assert path is not None
    assert RunEvaluation.read(path) == scores
    saved = read_plans(tmp_path / "plans.jsonl")
    assert len(saved) == scores.windows
    assert 100 * np.mean([window.success for window in saved]) == pytest.approx(scores.success_rate)
    ranked = 100 * np.mean([window.rank is not None for window in saved])
    assert ranked == pytest.approx(scores.metrics["top_5_success_rate"])
    right = 100 * np.mean([window.true_task == window.predicted_task for window in saved])
    assert right == pytest.approx(scores.metrics["task_accuracy"])
    for window in saved[::7]:  # what is saved is what is planned for that video and step
        query, truth = query_from_video(run, window.video, window.from_step)
        assert window.true_actions == truth.tolist()
        planned = answer(run, query).plans
        assert [plan.names for plan in window.plans] == [plan.names for plan in planned]
        energies = [plan.energy for plan in planned]
        assert [plan.energy for plan in window.plans] == pytest.approx(energies, rel=1e-5)
    counts = Counter(window.true_task for window in saved)
    assert {part.task: part.windows for part in scores.per_task} == counts
    assert set(scores.intervals.low) == set(scores.metrics)
    for name in ("success_rate", "mean_accuracy", "mean_iou", "task_accuracy"):
        assert scores.intervals.low[name] <= scores.metrics[name] <= scores.intervals.high[name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plans.csv", r"plans\.csv: expected a file that ends in \.jsonl"),
        ("gone/plans.jsonl", "the folder does not exist"),
        ("taken.jsonl", "is a folder"),
    ],
)
def test_files_that_plans_cannot_be_saved_in(run, tmp_path, name, message):
    (tmp_path / "taken.jsonl").mkdir()
    with pytest.raises(ConfigError, match=message):
        evaluate_run(run, plans_file=tmp_path / name)
    assert not list(run.folder.glob("evaluation*"))


def test_damaged_files_of_plans(given, world, tmp_path):
    windows, plans = given
    path = tmp_path / "plans.jsonl"
    save_plans(ScoredWindows(plans, windows).window_plans(world), path)
    lines = path.read_text().splitlines()
    for line, message in (
        (lines[1][:-3], "cannot be read"),
        (lines[1].replace('"video"', '"vidoe"'), r"plans\.jsonl, line 2: not a plan of a window"),
        ("[1]", r"line 2: not a plan"),
    ):
        path.write_text("\n".join([lines[0], line, *lines[2:]]))
        with pytest.raises(RunError, match=message):
            read_plans(path)
    with pytest.raises(RunError, match=r"gone\.jsonl: no such file"):
        read_plans(tmp_path / "gone.jsonl")
    assert WindowPlans.parse(json.loads(lines[0]), Path("x")).from_step == windows.start[0] + 1


def test_the_python_of_the_page_runs(nearest_run, tmp_path, monkeypatch, capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "evaluate.md").read_text("utf-8")
    (listed,) = re.findall(r"\| `plans` \| the five best: (.*) \|", page)
    assert {*re.findall(r"`(\w+)`", listed)} == PlannedSequence.model_fields.keys()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shutil.copytree(nearest_run.folder, tmp_path / "RUN")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(names["scores"].per_task)
    assert all(not window.success for window in names["wrong"])
