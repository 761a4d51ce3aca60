"""What is proposed next: the likeliest step, and what was undone."""

import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.verification.evidence import StepEvidence
from cefito.verification.findings import repair
from cefito.verification.order import TaskOrder, present
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import Verifier

NAMES = ["attach base", "attach wheel", "attach roof", "paint", "detach base", "detach_wheel"]
NAMES += ["take lid off", "put lid on", "detach base slowly", "close", "open"]
TOY = Taxonomy.from_names("toy", [("car", range(4))], NAMES)


def steps_of(actions):
    return tuple(Step(10.0 * k, 10.0 * k + 5, a) for k, a in enumerate(actions))


def order_of(*rows, actions=range(4)):
    videos = [Video(f"v{n}", "train", 0, steps_of(row)) for n, row in enumerate(rows)]
    return TaskOrder.of(videos, [*actions])


# the wheel or the roof follows the base; the roof follows the base more often
CAR = order_of([0, 2, 1, 3], [0, 2, 1, 3], [0, 2, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3])


def test_the_likeliest_next_step_comes_first_of_those_that_the_graph_allows():
    assert CAR.edges == ((0, 1), (0, 2), (1, 3), (2, 3))
    assert repair(CAR, [0], TOY) == (2, 1, 3)  # 3 of 5 videos
    assert repair(CAR, [0, 1], TOY) == (2, 3)
    assert repair(CAR, [], TOY) == (0, 2, 1, 3)
    assert repair(CAR, [3], TOY) == (0, 2, 1)  # painting does not come first
    given = repair(CAR.with_edges([(1, 0), (3, 2)]), [], TOY)
    assert given.index(1) < given.index(0)
    assert given.index(3) < given.index(2)


def test_what_others_need_comes_before_what_followed_the_last_step():
    order = order_of(*[[0, 1, 2, 3]] * 5, [3, 1, 2, 0])
    assert repair(order, [3], TOY) == (0, 1, 2)  # a wheel followed the paint, but needs the base


def test_what_was_undone_is_done_again_first():
    assert repair(CAR, [0, 2, 1, 5], TOY) == (1, 3)
    assert repair(CAR, [0, 2, 1, 5, 4], TOY) == (0, 1, 3)  # the base comes before the wheel
    assert repair(CAR, [0, 2, 1, 5, 4, 0], TOY) == (1, 3)
    assert repair(CAR, [0, 1, 5], TOY) == (1, 2, 3)  # although a roof follows a base more often
    assert repair(CAR, [0, 2, 5], TOY) == (1, 3)  # there was no wheel to detach
    rare = order_of(*[[0, 1]] * 3, *[[0, 1, 3]] * 2, actions=range(4))  # fewer than half have 3
    assert repair(rare, [0], TOY) == (1,)
    assert 3 not in repair(rare, [0, 3], TOY)


@pytest.mark.parametrize(
    ("done", "then", "undoes"),
    [
        (0, 4, True),  # attach, detach
        (1, 5, True),  # whatever separates the words
        (7, 6, True),  # put on, take off
        (10, 9, True),  # open, close
        (0, 5, False),  # another part
        (0, 8, False),  # another number of words
        (0, 3, False),
    ],
)
def test_opposite_names_undo_each_other(done, then, undoes):
    order = order_of([done], actions=[done])
    assert present(order, [done, then], TOY) == (([], [0]) if undoes else ([0], []))


def test_a_step_of_right_videos_undoes_nothing():
    """Nuts are loosened and tightened again; neither is left to do."""
    order = order_of([10, 9], actions=[9, 10])
    assert present(order, [10, 9], TOY) == ([1, 0], [])
    assert repair(order, [10, 9], TOY) == ()


@pytest.mark.parametrize("online", [False, True])
def test_a_right_repair_is_no_repetition(online):
    """What was undone is done again: only detaching is strange, not to attach again."""
    rows = [[0, 1, 2, 3], [0, 2, 1, 3]] * 6
    videos = [Video(f"v{n}", "train", 0, steps_of(row)) for n, row in enumerate(rows)]
    verifier = Verifier.fit(videos, TOY, config=VerifierConfig(online=online))

    def repeated(*actions):
        found = verifier.verify(steps_of(actions), 0, online=online)
        rows = [(one.step, one.evidence) for one in found.deviations if one.kind == "repeated"]
        assert [place for place, one in enumerate(found.steps, 1) if one.kinds["repeated"]] == [
            place for place, _ in rows
        ]
        return rows

    assert repeated(0, 1, 5, 1, 2, 3) == []
    assert repeated(0, 1, 4, 1, 2, 3) == [(4, "done 2 times")]  # another part
    assert repeated(0, 1, 5, 1, 1, 2, 3) == [(5, "done 2 times")]
    steps = [*steps_of([0, 1, 5, 1])]
    assert StepEvidence.of(verifier.orders[0], steps, TOY).repetitions.tolist() == [0, 0, 0, 0]
