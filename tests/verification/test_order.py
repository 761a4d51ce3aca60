"""The order of a task's steps, on videos made by hand."""

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.errors import CefitoError
from cefito.verification.order import TaskOrder, reached

NAMES = ["boil", "pour", "wait", "Käse & <b>", "cut"]
TAXONOMY = Taxonomy.from_names("made", [("tea", [0, 1, 2, 3]), ("bread", [4])], NAMES)


def video(actions):
    steps = [Step(10.0 * at, 10.0 * at + 5, action) for at, action in enumerate(actions)]
    return Video("v", "train", 0, tuple(steps))


@pytest.fixture
def order():
    rows = [0, 1, 3, 2], [0, 1, 3, 2], [0, 3, 1, 2], [0, 1, 1, 3]
    return TaskOrder.of([video(row) for row in rows], [3, 2, 1, 0])


def test_counts_probabilities_and_the_graph_that_leaves_out_what_follows(order):
    assert order.actions.tolist() == [0, 1, 2, 3]
    assert order.before.tolist() == [[0, 4, 3, 4], [0, 0, 3, 3], [0, 0, 0, 0], [0, 1, 3, 0]]
    assert (order.probability[0, 1], order.probability[3, 1]) == (4.5 / 5, 1.5 / 5)
    assert order.usual.tolist() == [4.5 / 5, 4.5 / 5, 3.5 / 5, 4.5 / 5]
    assert order.repeated.tolist() == [0.1, 0.3, 0.1, 0.1]
    assert order.edges == ((0, 1), (0, 3), (1, 2), (3, 2))
    for done, known in ((9, True), (10, False)):  # of twelve: a new step until three quarters
        new = TaskOrder.of([video([0, 1])] * done + [video([0])] * (12 - done), [0, 1])
        assert (new.omission[1] < 0.5) == known
    circle = TaskOrder.of([video(row) for row in ([0, 1], [1, 2], [2, 0], [0, 1])], [0, 1, 2])
    assert circle.edges[0] == (0, 1)  # the surest


def test_orders_that_a_person_gives(order):
    given = order.with_edges([(3, 1), (1, 0), (3, 0)])
    assert given.edges == ((1, 0), (3, 1))
    assert given.probability[3, 0] > 0.98
    assert given.probability[0, 2] == given.probability[2, 0] == 0.5
    assert TaskOrder.of([], [0, 1]).edges == order.with_edges([]).edges == ()
    with pytest.raises(CefitoError, match="in a circle through "):
        order.with_edges([(0, 1), (1, 2), (2, 0)])


def test_orders_of_hundreds_of_actions_and_those_that_follow():
    edges = [(a, a + 1) for a in range(0, 600, 2)] + [(a, a + 1) for a in range(1, 599, 2)]
    assert len(reached(edges)) == 600 * 599 // 2
    rng = np.random.default_rng(0)
    for _ in range(50):
        pairs = {(int(a), int(b)) for a, b in rng.integers(0, 9, size=(7, 2)) if a < b}
        expected = set(pairs)
        for _ in range(9):
            expected |= {(a, d) for a, b in expected for c, d in expected if b == c}
        assert reached(pairs) == expected
    assert reached([]) == frozenset()


def test_of_a_video_with_errors_the_right_steps_count():
    """Orders leave out misplaced steps, lengths all errors; what was missing is usual."""

    def tagged(*rows):
        steps = [Step(10.0 * at, 10.0 * at + s, a, tags) for at, (a, s, *tags) in enumerate(rows)]
        return Video("wrong", "train", 0, tuple(steps), missing=(3,))

    wrong = tagged((1, 5, "in wrong ORDER"), (0, 5), (2, 90, "Technique Error"), (4, 5, "Extra"))
    order = TaskOrder.of([video([0, 1, 2]), wrong], [0, 1, 2, 3, 4])
    assert order.videos == 2
    assert order.before[:3, :3].tolist() == [[0, 1, 2], [0, 0, 1], [0, 0, 0]]
    assert order.occurs.tolist() == [2, 2, 2, 0, 0]  # no video does 3 or 4 rightly
    assert order.length[2] == order.length[1]  # 5 s, not 90 s
    assert order.places.tolist() == [[0, 1, 2, -1, -1], [0, -1, 1, -1, -1]]
    unnamed = tagged((1, 5, "wrong"), (0, 5), (2, 5))  # which may be an error of order
    order = TaskOrder.of([video([0, 1, 2]), unnamed], [0, 1, 2])
    assert order.before[[0, 1, 0], [1, 0, 2]].tolist() == [1, 0, 2]
    assert TaskOrder.of([video([0, 3]), wrong], range(5)).occurs[3] == 2
