from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.evaluation.metrics import (
    METRICS,
    MetricSums,
    mean_accuracy,
    mean_iou,
    mean_iou_bitwise,
    position_accuracy,
    success_rate,
    task_accuracy,
    top_k_success_rate,
)

PAIRED = [success_rate, mean_accuracy, mean_iou, mean_iou_bitwise]
ACTUAL = [[1, 2, 3], [4, 5, 6], [7, 7, 1], [2, 0, 2]]
PREDICTED = [[1, 2, 3], [4, 6, 5], [7, 1, 1], [8, 9, 10]]


def test_by_hand():
    assert success_rate(PREDICTED, ACTUAL) == 25
    assert mean_accuracy(PREDICTED, ACTUAL) == pytest.approx(100 * (3 + 1 + 2 + 0) / 12)
    assert mean_iou(PREDICTED, ACTUAL) == pytest.approx(100 * (1 + 1 + 1 + 0) / 4)
    assert mean_iou([[1, 2, 2]], [[2, 3, 4]]) == 25
    assert position_accuracy(PREDICTED, ACTUAL).tolist() == [75, 25, 50]
    assert task_accuracy([0, 1, 2, 2], [0, 2, 2, 2]) == 75


def test_bitwise_by_hand():
    assert mean_iou_bitwise([[6]], [[7]]) == pytest.approx(100 * 6 / 7, abs=1e-3)
    assert mean_iou_bitwise([[8]], [[7]]) == 0
    # sums over positions come before the quotient: (1 + 6) / (1 + 7), then the mean over windows
    assert mean_iou_bitwise([[1, 6]], [[1, 7]]) == pytest.approx(100 * 7 / 8, abs=1e-3)
    assert mean_iou_bitwise([[1, 6], [8, 8]], [[1, 7], [7, 7]]) == pytest.approx(
        100 * 7 / 16, abs=1e-3
    )
    assert mean_iou_bitwise([[0, 0]], [[0, 0]]) == 0


@st.composite
def cases(draw):
    """Plans [N, k, T], true sequences [N, T], tasks [N] twice; few ids, so that some are right."""
    count, top_k, horizon, ids = (draw(st.integers(1, high)) for high in (6, 4, 4, 5))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    shift = draw(st.integers(0, 3))
    return (
        generator.integers(shift, ids + shift, (count, top_k, horizon)),
        generator.integers(shift, ids + shift, (count, horizon)),
        generator.integers(0, 2, count),
        generator.integers(0, 2, count),
    )


def slow(plans, actual, tasks, actual_tasks):
    """Every metric by plain loops over windows."""
    count, horizon = len(actual), len(actual[0])
    values = Counter()
    positions = [0.0] * horizon
    for k_plans, truth, task, true_task in zip(
        plans.tolist(), actual.tolist(), tasks, actual_tasks, strict=True
    ):
        best = k_plans[0]
        values["success_rate"] += best == truth
        values["top_k"] += truth in k_plans
        values["task_accuracy"] += task == true_task
        both = either = 0
        for place in range(horizon):
            right = best[place] == truth[place]
            positions[place] += right
            values["mean_accuracy"] += right / horizon
            both += best[place] & truth[place]
            either += best[place] | truth[place]
        values["mean_iou_bitwise"] += both / (either + 1e-6)
        values["mean_iou"] += sum(action in best for action in set(truth)) / len(set(best + truth))
    names = [function.__name__ for function in (*PAIRED, task_accuracy)]
    percents = {name: 100 * float(values[name]) / count for name in (*names, "top_k")}
    return {**percents, "position_accuracy": [100 * value / count for value in positions]}


def all_metrics(plans, actual, tasks, actual_tasks):
    best = plans[:, 0]
    return {
        **{function.__name__: function(best, actual) for function in PAIRED},
        "top_k": top_k_success_rate(plans, actual),
        "task_accuracy": task_accuracy(tasks, actual_tasks),
        "position_accuracy": position_accuracy(best, actual).tolist(),
    }


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_against_slow_loops_bounds_and_relations(case):
    values = all_metrics(*case)
    expected = slow(*case)
    positions = values["position_accuracy"]
    for name, value in values.items():
        assert value == pytest.approx(expected[name]), name
    assert all(0 <= value <= 100 for name, value in values.items() if name != "position_accuracy")
    assert values["success_rate"] <= min(positions) + 1e-9
    assert values["success_rate"] <= values["mean_accuracy"] + 1e-9
    assert values["success_rate"] <= values["mean_iou"] + 1e-9
    assert values["success_rate"] <= values["top_k"] + 1e-9
    assert values["mean_accuracy"] == pytest.approx(np.mean(positions))


@settings(max_examples=30, deadline=None)
@given(case=cases(), parts=st.lists(st.integers(0, 6), max_size=3))
def test_sums_added_in_parts_equal_one_whole(case, parts):
    plans, actual, tasks, actual_tasks = case
    top_k = plans.shape[1]
    whole, split = MetricSums(top_k=top_k), MetricSums(top_k=top_k)
    whole.add(list(plans), actual, tasks=tasks, actual_tasks=actual_tasks)
    bounds = [0, *sorted(min(part, len(actual)) for part in parts), len(actual)]
    for rows in (slice(*ends) for ends in pairwise(bounds)):
        known = {"tasks": tasks[rows], "actual_tasks": actual_tasks[rows]}
        split.add(list(plans[rows]), actual[rows], **known)
    expected = all_metrics(*case)
    expected[f"top_{top_k}_success_rate"] = expected.pop("top_k")
    for sums in (whole, split):
        assert sums.without_plan == 0
        assert set(sums.percents()) == set(expected)
        for name, value in sums.percents().items():
            assert value == pytest.approx(expected[name]), name


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_goes_from_no_plan_to_the_truth(name):
    """Whoever registers a metric is held to this: per cent, more is better, parts add up."""
    actual, tasks = np.arange(1, 13).reshape(4, 3), np.arange(4)
    name = name.replace("top_k", "top_2")

    def percent(plans, tasks, parts=((0, 4),)):
        sums = MetricSums(top_k=2)
        for rows in (slice(*ends) for ends in parts):
            known = {"tasks": tasks[rows], "actual_tasks": np.arange(4)[rows]}
            sums.add(plans[rows], actual[rows], **known)
        return np.asarray(sums.percents()[name])

    right = [row[None] for row in actual]
    none = [np.empty((0, 3), np.int64)] * 4
    half = right[:2] + none[2:]
    assert np.allclose(percent(right, tasks), 100, atol=1e-3)
    assert np.allclose(percent(none, tasks + 1), 0)
    some = percent(half, np.array([0, 1, 0, 0]))
    assert np.allclose(some, 50, atol=1e-3)
    parts = percent(half, np.array([0, 1, 0, 0]), parts=((0, 1), (1, 3), (3, 4)))
    assert np.allclose(parts, some)


def test_no_plan_counts_as_wrong():
    actual = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])
    none = np.empty((0, 2), np.int64)
    sums = MetricSums(top_k=3)
    sums.add([actual[:1], none, np.array([[5, 4], [4, 5]]), none], actual)
    value = sums.percents()
    assert sums.without_plan == 2
    assert value["success_rate"] == 25
    assert value["mean_accuracy"] == 25
    assert value["mean_iou"] == 50
    assert value["top_3_success_rate"] == 50
    assert value["position_accuracy"] == [25, 25]
    assert value["mean_iou_bitwise"] == pytest.approx(100 * (1 + 8 / 10) / 4, abs=1e-3)
    assert "task_accuracy" not in value


@pytest.mark.parametrize(("top_k", "expected"), [(2, 0), (3, 100), (5, 100)])
def test_sums_look_at_no_more_than_k_plans(top_k, expected):
    sums = MetricSums(top_k=top_k)
    sums.add([np.array([[0, 0], [0, 1], [1, 1]])], np.array([[1, 1]]))
    assert sums.percents()[f"top_{top_k}_success_rate"] == expected


@pytest.mark.parametrize("metric", [*PAIRED, position_accuracy])
@pytest.mark.parametrize(
    ("predicted", "actual"),
    [
        ([[1, 2]], [[1, 2, 3]]),
        ([[1.0, 2.0]], [[1, 2]]),
        ([1, 2], [1, 2]),
        (np.empty((0, 3), int), np.empty((0, 3), int)),
    ],
)
def test_invalid_sequences(metric, predicted, actual):
    with pytest.raises(ValueError, match=r"expected integers|equal in shape"):
        metric(predicted, actual)


@pytest.mark.parametrize(
    ("predicted", "actual"),
    [
        ([[1, 2]], [[1, 2]]),
        (np.empty((2, 0, 3), int), [[1, 2, 3]] * 2),
        ([[[1, 2]]], [[1, 2], [3, 4]]),
        ([[[1.0, 2.0]]], [[1, 2]]),
    ],
)
def test_invalid_plans(predicted, actual):
    with pytest.raises(ValueError, match=r"expected|equal in shape"):
        top_k_success_rate(predicted, actual)


def test_bitwise_needs_ids_that_are_not_negative():
    for predicted, actual in (([[-1, 2]], [[1, 2]]), ([[1, 2]], [[1, -2]])):
        with pytest.raises(ValueError, match="not negative"):
            mean_iou_bitwise(predicted, actual)
