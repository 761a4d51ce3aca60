"""The order of a task's steps, on videos made by hand."""

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.errors import CefitoError
from cefito.verification.order import NONE, TaskOrder, likelier_done, parted, reached

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
    circle = TaskOrder.of([video(row) for row in ([0, 1], [1, 2], [2, 0], [0, 1])], [0, 1, 2])
    assert circle.edges[0] == (0, 1)  # the surest


@pytest.mark.parametrize(
    ("seen", "done"),
    [
        ([0, 1, 1, 3], [0, 2, 1, 3]),  # 2 came too early, and was taken for the step before it
        ([0, 0, 1, 3], [0, 0, 1, 3]),  # 2 is no neighbour of 0
        ([0, 1, 3, 3], [0, 1, 3, 2]),  # 2 came too late
        ([0, 1, 1, 2, 3], [0, 1, 1, 2, 3]),  # nothing is missing
        ([0, 1, 3], [0, 1, 3]),
        ([0, 1, 3, 1], [0, 1, 3, 1]),  # not in a row
        ([0, 1, 1, 9], [0, 2, 1, 9]),  # another task's step
        ([9, 9], [9, 9]),
    ],
)
def test_a_step_seen_twice_stands_for_its_neighbour_that_is_missing(seen, done):
    usual = TaskOrder.of([video([0, 1, 2, 3])] * 3, [0, 1, 2, 3])
    steps = likelier_done(usual, video(seen).steps, finished=True)
    assert [step.action for step in steps] == done


@pytest.mark.parametrize(
    ("seconds", "actions", "done"),
    [
        ([5, 10, 5], [0, 1, 3], [0, 2, 1, 3]),  # 1 lasted as long as both
        ([5, 5, 10], [0, 1, 3], [0, 1, 3, 2]),  # 2 came too late
        ([5, 7, 5], [0, 1, 3], [0, 1, 3]),  # not so long
        ([5, 60, 5], [0, 1, 3], [0, 1, 3]),  # longer than both
        ([10, 5, 5], [0, 1, 3], [0, 1, 3]),  # 2 is no neighbour of 0
        ([5, 10, 10], [0, 1, 3], [0, 2, 1, 3]),  # 2 is missing once
        ([10, 5], [1, 3], [1, 3]),  # 0 is missing, too
        ([5, 10, 5, 5], [0, 1, 2, 3], [0, 1, 2, 3]),  # nothing is missing
        ([5, 10, 5], [0, 1, 1], [0, 2, 1]),  # twice in a row
        ([5, 10], [0, 9], [0, 9]),  # another task's step
    ],
)
def test_a_step_that_lasts_as_long_as_two_stands_for_its_neighbour_too(seconds, actions, done):
    usual = TaskOrder.of([video([0, 1, 2, 3])] * 8, [0, 1, 2, 3])  # of 5 s each
    ends = np.cumsum(seconds).tolist()
    steps = [Step(end - own, end, a) for own, end, a in zip(seconds, ends, actions, strict=True)]
    parts = [step for _, step in parted(usual, steps, finished=True)]
    assert [step.action for step in likelier_done(usual, parts, finished=True)] == done
    assert sum(step.end - step.start for step in parts) == pytest.approx(sum(seconds))
    optional = TaskOrder.of([video([0, 1, 2, 3])] * 8 + [video([0, 1, 3])], [0, 1, 2, 3])
    assert len(parted(optional, steps, finished=True)) == len(steps)


def test_a_step_seen_again_for_a_moment_was_not_repeated():
    usual = TaskOrder.of([video([0, 1, 2, 3])] * 3, [0, 1, 2, 3])  # of 5 s each

    def seen(seconds, action=1):
        steps = (*video([0, 1, 2, 3]).steps, Step(40, 40 + seconds, action))
        return [step.action for step in likelier_done(usual, steps, finished=True)]

    assert seen(1.9) == [0, 1, 2, 3, NONE]
    assert seen(2.1) == [0, 1, 2, 3, 1]
    early = likelier_done(usual, (Step(0, 1, 3), *video([0, 1, 2, 3]).steps), finished=True)
    assert [step.action for step in early] == [NONE, 0, 1, 2, 3]
    assert seen(1.9, action=9) == [0, 1, 2, 3, 9]  # of another task: not usual


@pytest.mark.parametrize(("seen", "done"), [([0, 1, 1], [0, 1, 1]), ([0, 1, 1, 3], [0, 2, 1, 3])])
def test_what_may_still_come_was_not_likelier_done(seen, done):
    usual = TaskOrder.of([video([0, 1, 2, 3])] * 3, [0, 1, 2, 3])
    steps = likelier_done(usual, video(seen).steps, finished=False)
    assert [step.action for step in steps] == done


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

    wrong = tagged((1, 5, "Order Error"), (0, 5), (2, 90, "Technique Error"), (4, 5, "Extra"))
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
