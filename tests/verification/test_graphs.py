"""Graphs of tasks by the likelihood of right videos."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.verification.order import (
    MOST,
    TaskOrder,
    cost_of,
    edge_costs,
    likeliest_order,
    log_likelihood,
    reduced,
)


def order_of(rows, size, names=()):
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
    return TaskOrder.of(videos, range(size), names)


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
    # two edges; the start has edges to 0, 1 and 3; 2 and 3 have edges to the end
    assert cost_of(precedes, np.full((4, 4), 0.25)) == 2 * 0.25 + 3 + 2


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
    two = order_of([[0, 1, 2, 3]] * 8 + [[1, 0, 2, 3], [0, 1, 3, 2]], 4)  # of ten, two orders
    assert two.edges == ((0, 1), (1, 2), (2, 3))


def test_counts_alone_and_large_tasks_keep_what_videos_keep():
    rows = [[0, 1, 2]] * 3
    assert {*order_of(rows, 3).edges} == {(0, 1), (1, 2)}
    given = order_of(rows, 3).with_edges([(2, 0)])
    assert given.edges == ((2, 0),)
    for kept, edges in ((9, ((0, 1),)), (8, ())):  # of ten, in a run that stored counts alone
        most = order_of([[0, 1]] * kept + [[1, 0]] * (10 - kept), 2)
        assert replace(most, places=most.places[:0]).edges == edges
    large = np.triu(np.ones((MOST + 1, MOST + 1), dtype=bool), 1)
    places = np.zeros((1, MOST + 1), dtype=np.int64)
    assert (likeliest_order(large, places, np.ones(large.shape)) == large).all()
    assert reduced(large).sum() == MOST


def test_an_edge_between_steps_that_share_a_word_costs_less():
    names = ["Chop 2 tomatoes", "toast the bread", "add the TOMATO", "cut bread", "whisk 2 eggs"]
    shared, others = edge_costs(names) == 0.5, edge_costs(names) == 1.5
    assert np.argwhere(np.triu(shared, 1)).tolist() == [[0, 2], [1, 3]]
    assert (shared | others).all()
    attached = ["attach wheel", "attach door", "attach wheel nut", "attach roof"]
    assert np.argwhere(np.triu(edge_costs(attached) == 0.5, 1)).tolist() == [[0, 2]]
    for alike in (["step 1", "step 2", "step 3"], ["cut", "fold", "glue"], ["1", "2"], [""], []):
        assert (edge_costs(alike) == 1).all(), (
            alike
        )  # no word, or the same word, tells no pair apart


def test_names_decide_between_an_order_and_chance():
    """Four videos happen to do 0 before 3."""
    rows = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 3, 1], [2, 0, 3, 1]]
    names = ["peel carrot", "boil water", "warm cup"]
    assert order_of(rows, 4, [*names, "grate carrot"]).edges == ((0, 1), (0, 3), (2, 3))
    assert order_of(rows, 4, [*names, "fill cup"]).edges == ((0, 1), (2, 3))
