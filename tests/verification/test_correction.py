"""Corrections of recognised steps by the order of their task, on videos made by hand."""

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.tracks import TimedStep
from cefito.verification.correction import NONE, corrected_steps, likelier_done, parted
from cefito.verification.order import TaskOrder


def video(actions):
    steps = [Step(10.0 * at, 10.0 * at + 5, action) for at, action in enumerate(actions)]
    return Video("v", "train", 0, tuple(steps))


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


@pytest.mark.parametrize(
    ("seen", "seconds", "names", "notes"),
    [
        ([0, 1, 2, 3], [5, 5, 5, 5], "abcd", []),
        (
            [0, 1, 1, 3],
            [5, 5, 5, 5],
            "acbd",
            ["'b' was seen twice in a row and 'c' never; most likely they were exchanged"],
        ),
        (
            [0, 1, 3],
            [5, 10, 5],
            "acbd",
            ["'b' lasted 10 s, as it and 'c' do together; most likely they were exchanged"],
        ),
        (
            [0, 1, 2, 3, 1],
            [5, 5, 5, 5, 1],
            "abcd",
            ["'b' was seen again for 1.0 s, too short for a repetition"],
        ),
    ],
)
def test_corrected_steps_have_names_and_words_for_what_was_seen(seen, seconds, names, notes):
    usual, taxonomy = (
        TaskOrder.of([video([0, 1, 2, 3])] * 8, [0, 1, 2, 3]),  # of 5 s each
        Taxonomy.from_names("made", [("tea", range(4))], [*"abcd"]),
    )
    ends = np.cumsum(seconds).tolist()
    steps = [
        TimedStep(action=action, name="abcd"[action], start=end - own, end=end, probability=0.5)
        for end, own, action in zip(ends, seconds, seen, strict=True)
    ]
    kept, said = corrected_steps(steps, usual, taxonomy, finished=True)
    assert ("".join(step.name for step in kept), said) == (names, notes)
    assert [step.action for step in kept] == ["abcd".index(name) for name in names]
    assert {step.probability for step in kept} == {0.5}
