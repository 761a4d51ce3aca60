from collections import defaultdict
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.evaluation.metrics import METRICS, Metric, MetricSums, metric_value

PAIRED = (
    *("success_rate", "mean_accuracy", "mean_iou", "mean_iou_bitwise"),
    *("edit_similarity", "next_step_accuracy", "length_accuracy"),
)
"""Metrics of one plan and the annotated sequence of each window, each a single number."""


def task_accuracy(predicted, actual):
    plans, known = [[0]] * len(actual), {"tasks": predicted, "actual_tasks": actual}
    known = {name: np.asarray(tasks) for name, tasks in known.items()}
    return metric_value("task_accuracy", plans, plans, **known)


def order_tolerant_success(predicted, actual, tasks, orders):
    known = {"actual_tasks": np.asarray(tasks), "orders": orders}
    return metric_value("order_tolerant_success", predicted, actual, **known)


def test_other_lengths_by_hand():
    """Plans and annotations: 3 and 3 steps, 2 and 3, 3 and 1, none and 2."""
    actual = [[1, 2, 3], [4, 5, 6], [7, -1, -1], [2, 0, -1]]
    predicted = [[1, 2, 3], [4, 6, -1], [5, 7, 7], [-1, -1, -1]]
    found = {name: metric_value(name, predicted, actual) for name in PAIRED}
    assert found["success_rate"] == 25
    assert found["mean_accuracy"] == pytest.approx(100 * (3 + 1 + 0 + 0) / (3 + 3 + 3 + 2))
    assert found["mean_iou"] == pytest.approx(100 * (1 + 2 / 3 + 1 / 2 + 0) / 4)
    # distances 0; 1 (insert 5); 2 (remove 5 and a 7); 2 (insert both)
    edit = (1 + (1 - 1 / 3) + (1 - 2 / 3) + 0) / 4
    assert found["edit_similarity"] == pytest.approx(100 * edit)
    assert found["next_step_accuracy"] == 50
    assert found["length_accuracy"] == 25
    # annotated: four first steps, three second ones, two third ones
    places = metric_value("position_accuracy", predicted, actual)
    assert places == pytest.approx([100 * 2 / 4, 100 / 3, 100 / 2])
    # AND over OR, padding as 0: 1; 4 + 4 + 0 over 4 + 7 + 6; 5 over 7 + 7 + 7; 0
    bitwise = (1 + 8 / 17 + 5 / 21 + 0) / 4
    assert found["mean_iou_bitwise"] == pytest.approx(100 * bitwise, abs=1e-3)
    plans = [[row, [2, 0, -1]] for row in predicted]
    assert metric_value("top_5_success_rate", plans, actual) == 50
    assert metric_value("mean_iou", [[1, 2, 2]], [[2, 3, 4]]) == 25
    assert task_accuracy([0, 1, 2, 2], [0, 2, 2, 2]) == 75


def test_wider_and_narrower_plans_are_padded():
    actual = np.array([[1, 2, -1], [3, 4, 5], [6, -1, -1]])
    plans = [
        np.array([[1, 2]]),  # right
        np.array([[3, 4, 5, 6], [3, 4, 5, -1]]),  # too long, then right
        np.array([[7], [6]]),  # wrong, then right
    ]
    sums = MetricSums(lengths_given=False, orders={})
    sums.add(plans, actual, actual_tasks=np.zeros(3, int))
    best = [[1, 2, -1, -1], [3, 4, 5, 6], [7, -1, -1, -1]]
    padded = np.pad(actual, ((0, 0), (0, 1)), constant_values=-1)
    value = sums.percents()
    for name in PAIRED:
        assert value[name] == pytest.approx(metric_value(name, best, padded)), name
    assert value["order_tolerant_success"] == value["success_rate"] == pytest.approx(100 / 3)
    assert value["top_5_success_rate"] == 100
    assert value["position_accuracy"] == pytest.approx([100 * 2 / 3, 100, 100])


ORDERS = {0: frozenset({(1, 2), (2, 3)})}


@pytest.mark.parametrize(
    ("plan", "truth", "task", "expected"),
    [
        ([1, 2, 4], [1, 2, 4], 0, 100),
        ([4, 1, 2], [1, 2, 4], 0, 100),  # 4 is free
        ([2, 1, 4], [1, 2, 4], 0, 0),  # training puts 1 before 2
        ([2, 1, 4], [1, 2, 4], 1, 100),  # not in the other task
        ([1, 4, 4], [1, 2, 4], 0, 0),  # other actions
        ([1, 1, 4], [1, 4, 4], 0, 0),  # not as often
        ([2, 1, 4], [2, 1, 4], 0, 100),  # as annotated, although training differs
        ([2, 4, 1], [2, 1, 4], 0, 0),  # the same breach elsewhere
        ([1, 2, 1], [1, 1, 2], 0, 0),  # 2 before the second 1
        ([1, 2, -1], [1, 2, 4], 0, 0),
        ([3, 1, -1], [1, 3, -1], 0, 100),  # orders are not chained: 1 before 3 is not among them
        ([-1, -1, -1], [1, 2, 4], 0, 0),
    ],
)
def test_order_tolerant_success_by_hand(plan, truth, task, expected):
    assert order_tolerant_success([plan], [truth], [task], ORDERS) == expected


sequences = st.lists(st.integers(0, 3), max_size=6)


def padded(rows):
    return np.array([[*row, *[-1] * (7 - len(row))] for row in rows])


def levenshtein(first, second):
    """By the recursion over prefixes, without any table."""
    if not first or not second:
        return len(first) + len(second)
    if first[-1] == second[-1]:
        return levenshtein(first[:-1], second[:-1])
    shorter = (first[:-1], second), (first, second[:-1]), (first[:-1], second[:-1])
    return 1 + min(levenshtein(*pair) for pair in shorter)


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


KEPT = {0: {(1, 2), (3, 1)}, 1: {(2, 1)}}
"""Orders of the tasks of cases."""


def slow(plans, actual, tasks, actual_tasks):
    """Every metric by plain loops over windows."""
    count, horizon = len(actual), len(actual[0])
    values: defaultdict[str, float] = defaultdict(float)
    positions = [0.0] * horizon
    for k_plans, truth, task, true_task in zip(
        plans.tolist(), actual.tolist(), tasks, actual_tasks, strict=True
    ):
        best = k_plans[0]
        values["success_rate"] += best == truth
        values["top_5_success_rate"] += truth in k_plans
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
        values["edit_similarity"] += 1 - levenshtein(best, truth) / horizon
        values["next_step_accuracy"] += best[0] == truth[0]
        values["length_accuracy"] += 1
        values["order_tolerant_success"] += sorted(best) == sorted(truth) and (
            best == truth or not any((b, a) in KEPT[true_task] for a, b in combinations(best, 2))
        )
    names = (*PAIRED, "top_5_success_rate", "task_accuracy", "order_tolerant_success")
    percents = {name: 100 * float(values[name]) / count for name in names}
    return {**percents, "position_accuracy": [100 * value / count for value in positions]}


def all_metrics(plans, actual, tasks, actual_tasks):
    best = plans[:, 0]
    return {
        **{name: metric_value(name, best, actual) for name in (*PAIRED, "position_accuracy")},
        "top_5_success_rate": metric_value("top_5_success_rate", plans, actual),
        "task_accuracy": task_accuracy(tasks, actual_tasks),
        "order_tolerant_success": order_tolerant_success(best, actual, actual_tasks, KEPT),
    }


@given(case=cases())
def test_against_slow_loops_bounds_and_relations(case):
    values = all_metrics(*case)
    expected = slow(*case)
    positions = values["position_accuracy"]
    for name, value in values.items():
        assert value == pytest.approx(expected[name]), name
    assert all(0 <= value <= 100 for name, value in values.items() if name != "position_accuracy")
    assert values["success_rate"] <= min(positions) + 1e-9
    for name in ("mean_accuracy", "mean_iou", "top_5_success_rate", "order_tolerant_success"):
        assert values["success_rate"] <= values[name] + 1e-9, name
    assert values["mean_accuracy"] <= values["edit_similarity"] + 1e-9
    assert values["next_step_accuracy"] == pytest.approx(positions[0])
    assert values["mean_accuracy"] == pytest.approx(np.mean(positions))


@given(case=cases(), parts=st.lists(st.integers(0, 6), max_size=3))
def test_sums_added_in_parts_equal_one_whole(case, parts):
    plans, actual, tasks, actual_tasks = case
    whole, split = (MetricSums(orders=KEPT, lengths_given=False) for _ in range(2))
    whole.add(list(plans), actual, tasks=tasks, actual_tasks=actual_tasks)
    bounds = [0, *sorted(min(part, len(actual)) for part in parts), len(actual)]
    for rows in (slice(*ends) for ends in pairwise(bounds)):
        known = {"tasks": tasks[rows], "actual_tasks": actual_tasks[rows]}
        split.add(list(plans[rows]), actual[rows], **known)
    expected = all_metrics(*case)
    for sums in (whole, split):
        assert sums.without_plan == 0
        assert set(sums.percents()) == set(expected)
        for name, value in sums.percents().items():
            assert value == pytest.approx(expected[name]), name


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_goes_from_no_plan_to_the_truth(name):
    """Whoever registers a metric is held to this: per cent, more is better, parts add up."""
    actual, tasks = np.arange(1, 13).reshape(4, 3), np.arange(4)

    def percent(plans, tasks, parts=((0, 4),)):
        sums = MetricSums(orders={}, lengths_given=False)
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


@pytest.mark.parametrize(
    ("predicted", "actual"),
    [
        ([[1, 2]], [[1, 2, 3]]),
        ([[1.0, 2.0]], [[1, 2]]),
        ([1, 2], [1, 2]),
        (np.empty((0, 3), int), np.empty((0, 3), int)),
        ([[1, -2]], [[1, 2]]),
        ([[-1, 2]], [[1, 2]]),
        ([[1, 2]], [[1, -2]]),
        ([[1, 2]], [[-1, -1]]),
        ([[1, 2, 3]], [[1, -1, 3]]),
        (np.empty((2, 0, 3), int), [[1, 2, 3]] * 2),
        ([[[1, 2]]], [[1, 2], [3, 4]]),
        ([[[1.0, 2.0]]], [[1, 2]]),
    ],
)
def test_invalid_sequences(predicted, actual):
    for name in (*PAIRED, "position_accuracy", "top_5_success_rate"):
        with pytest.raises(ValueError, match=r"expected integers|equal in shape|only -1 after the"):
            metric_value(name, predicted, actual)


def test_a_metric_without_a_meaning_cannot_be_declared():
    with pytest.raises(TypeError, match="total"):
        Metric(head="SR", meaning="every step is right")  # type: ignore[call-arg]
    for head, meaning in (("SR", ""), ("", ""), ("SR", " \n")):
        with pytest.raises(TypeError, match=f"'{head}' has no meaning"):
            Metric(lambda scored: (0.0, len(scored.actual)), head, meaning)
