"""Graphs of tasks by the likelihood of right videos."""

from itertools import permutations

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.verification.order import (
    MOST,
    TaskOrder,
    edges_of,
    likeliest_order,
    log_likelihood,
    reduced,
)


def order_of(rows, size):
    """The order of a task, counted in videos of the given actions."""
    videos = [
        Video(
            f"v{n}",
            "train",
            0,
            tuple(Step(10.0 * at, 10.0 * at + 5, a) for at, a in enumerate(row)),
        )
        for n, row in enumerate(rows)
    ]
    return TaskOrder.of(videos, range(size))


def slow_log_likelihood(precedes, rows, rare=0.02):
    """The sum over steps as the module says it, one by one."""
    total = 0.0
    for row in rows:
        for place, action in enumerate(row):
            left = row[place:]
            free = [b for b in left if not any(precedes[a, b] for a in left)]
            total += np.log(1 / len(free) if action in free else rare / len(left))
    return total


def test_the_likelihood_is_that_of_free_choices():
    precedes = np.zeros((4, 4), dtype=bool)
    precedes[0, 2] = precedes[1, 2] = True
    rows = [[0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 1], [0, 2], []]
    places = order_of(rows, 4).places
    assert log_likelihood(precedes, places) == pytest.approx(slow_log_likelihood(precedes, rows))
    assert edges_of(precedes) == 2 + 3 + 2  # the start has edges to 0, 1 and 3; 2 and 3 to the end


def test_few_videos_that_agree_by_chance_make_no_order():
    """Two pairs, 0 → 1 and 2 → 3, that are mixed freely: five videos happen to have 0 before 3."""
    order = order_of([[0, 2, 3, 1]] * 2 + [[0, 1, 2, 3]] * 2 + [[2, 0, 3, 1]], 4)
    assert order.kept[0, 3]
    assert order.edges == ((0, 1), (2, 3))


def test_one_video_that_breaks_an_order_does_not_end_it():
    rows = [[0, *rest, 4] for rest in permutations([1, 2, 3])] * 2 + [[1, 0, 2, 3, 4]]
    order = order_of(rows, 5)
    assert not order.kept[0, 1]
    assert {*order.edges} == {(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)}


def test_counts_alone_and_large_tasks_keep_what_videos_keep():
    rows = [[0, 1, 2]] * 3
    assert {*order_of(rows, 3).edges} == {(0, 1), (1, 2)}
    given = order_of(rows, 3).with_edges([(2, 0)])
    assert given.edges == ((2, 0),)
    large = np.triu(np.ones((MOST + 1, MOST + 1), dtype=bool), 1)
    places = np.zeros((1, MOST + 1), dtype=np.int64)
    assert (likeliest_order(large, places) == large).all()
    assert reduced(large).sum() == MOST
