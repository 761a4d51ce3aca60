from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.evaluation import evaluate_planner
from cefito.planners.base import Queries, Shape
from cefito.planners.shared.settings import ClassifierSettings
from cefito.planners.simple.planners import FrequentPlanner, NearestPlanner
from made_windows import taxonomy_of, windows_of

TASKS, ACTIONS = 3, 5
TAXONOMY = taxonomy_of(TASKS, ACTIONS)


def make_windows(initial, goal, actions, tasks):
    return windows_of(actions, np.stack([initial, goal]), TAXONOMY, tasks=tasks)


def random_windows(count, seed, *, tasks=TASKS, horizon=2, width=3, grid=False):
    """Windows of random observations; on a grid, of unit vectors, with repeats and ties."""
    generator = np.random.default_rng(seed)
    initial, goal = (
        np.eye(width)[generator.integers(0, width, count)]
        if grid
        else generator.standard_normal((count, width))
        for _ in range(2)
    )
    actions = generator.integers(0, ACTIONS, (count, horizon))
    return make_windows(initial, goal, actions, generator.integers(0, tasks, count))


class KnowsTask:
    """A task model that says what it is told."""

    def __init__(self, tasks=(), width=3, horizon=2):
        self.tasks = np.array(tasks, np.int64)
        self.shape = Shape(observation_dim=width, tasks=TASKS, actions=ACTIONS, horizon=horizon)

    def probabilities(self, queries):
        shares = np.full((len(queries), TASKS), 0.25)
        shares[np.arange(len(queries)), self.tasks] = 0.5
        return shares


def counted(train):
    """The planner of what occurs most, with a stand-in of a task model."""
    task_model: Any = KnowsTask()
    return FrequentPlanner.counted(train, task_model)


def fit_nearest(train):
    return NearestPlanner.fit(train, train).planner


def unit_ends(windows, row):
    """Both observations, each of length one."""
    ends = np.stack([windows.initial[row], windows.goal[row]]).astype(np.float64)
    return ends / np.maximum(np.linalg.norm(ends, axis=1, keepdims=True), 1e-30)


def nearest_by_loop(train, queries, row, top_k):
    """All windows by distance, then by place; the first of each sequence."""
    ranked = sorted(
        (float(np.linalg.norm(unit_ends(train, index) - unit_ends(queries, row))), index)
        for index in range(len(train))
        if queries.tasks is None or train.tasks[index] == queries.tasks[row]
    )
    nearest: dict[tuple[int, ...], float] = {}
    for distance, index in ranked:
        nearest.setdefault(tuple(train.actions[index].tolist()), distance)
    return [(distance, list(actions)) for actions, distance in nearest.items()][:top_k]


@given(
    count=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    top_k=st.integers(1, 6),
    oracle=st.booleans(),
    grid=st.booleans(),
)
def test_nearest_against_a_loop(count, seed, top_k, oracle, grid):
    train, queried = random_windows(count, seed, grid=grid), random_windows(4, seed + 1, grid=grid)
    planner = NearestPlanner.fit(train, queried).planner
    queries = Queries.from_windows(queried, oracle_task=oracle)
    plans = planner.plan(queries, top_k)
    for row, plan in enumerate(plans):
        expected = nearest_by_loop(train, queries, row, top_k)
        assert plan.actions.tolist() == [actions for _, actions in expected]
        assert plan.actions.shape == (len(expected), train.horizon)
        distances = [distance for distance, _ in expected]
        np.testing.assert_allclose(plan.energies, distances, rtol=1e-4, atol=1e-3)
        assert plan.exact


@given(count=st.integers(1, 25), seed=st.integers(0, 10_000), top_k=st.integers(1, 4))
def test_frequent_against_a_counter(count, seed, top_k):
    train = random_windows(count, seed)
    planner = counted(train)
    observations = np.zeros((TASKS, 3), np.float32)
    queries = Queries(initial=observations, goal=observations, tasks=np.arange(TASKS))
    for task, plan in enumerate(planner.plan(queries, top_k)):
        rows = [tuple(row) for row in train.actions[train.tasks == task].tolist()]
        counter = Counter(rows)
        order = sorted(counter, key=lambda row: (-counter[row], rows.index(row)))[:top_k]
        assert plan.actions.tolist() == [list(row) for row in order]
        shares = [counter[row] / len(rows) for row in order]
        np.testing.assert_allclose(plan.energies, -np.log(shares))


@pytest.mark.parametrize("fit", [fit_nearest, counted])
def test_tasks_without_training_windows_get_no_plan(fit):
    train, queried = random_windows(10, 1, tasks=2), random_windows(8, 2)
    planner = fit(train)
    plans = planner.plan(Queries.from_windows(queried, oracle_task=True), 3)
    for task, plan in zip(queried.tasks, plans, strict=True):
        assert plan.actions.shape[1] == 2
        assert len(plan) == len(plan.energies)
        assert (len(plan) == 0) == (task == 2)
    evaluation, _ = evaluate_planner(planner, queried, oracle_task=True)
    assert evaluation.without_plan == (queried.tasks == 2).sum() > 0
    assert evaluation.metrics["task_accuracy"] == 100


def test_of_one_task_nothing_is_learned_of_tasks():
    windows = windows_of([[0, 1], [0, 1], [2, 1]], np.ones((2, 3, 3)), taxonomy_of(1, 3))
    fitted = FrequentPlanner.fit(windows, windows, settings=ClassifierSettings(), seed=0)
    assert [one.epochs for one in fitted.trainings.values()] == [1]
    (plans,) = fitted.planner.plan(Queries.from_windows(windows.subset([0])), 2)
    assert plans.actions.tolist() == [[0, 1], [2, 1]]
    np.testing.assert_allclose(np.asarray(plans.probabilities), np.array([2, 1]) / 3)
