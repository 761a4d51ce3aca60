"""Orders that training keeps."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.evaluation.metrics import MIN_VIDEOS, keeps_orders, training_orders
from cefito.parts.matching import VocabularyMatch


def dataset(*videos, split="train"):
    """A data set of videos (task, actions); one more of task 9 keeps the others in training."""
    entries = [
        SimpleNamespace(
            task=task,
            split=split,
            in_protocol=True,
            steps=[SimpleNamespace(action=action) for action in actions],
        )
        for task, actions in videos
    ]
    held = SimpleNamespace(task=9, split="val", in_protocol=True, steps=[])
    return SimpleNamespace(videos=[*entries, held])


def test_by_hand():
    found = training_orders(
        dataset(
            (0, [1, 2, 3]),
            (0, [1, 3, 2, 5]),  # 2 and 3 in both orders; 5 in one video only
            (0, [4, 1, 1, 2]),  # 4 in one video only
            (1, [2, 1]),
            (1, [2, 2, 1]),
            (1, [7, 8]),
        )
    )
    assert MIN_VIDEOS == 2
    assert found == {0: {(1, 2), (1, 3)}, 1: {(2, 1)}}


def test_only_training_videos_of_the_protocol_count():
    data = dataset((0, [1, 2]), (0, [1, 2]), (0, [2, 1]))
    data.videos[2].split = "test"
    assert training_orders(data) == {0: {(1, 2)}}
    data.videos[1].in_protocol = False
    assert training_orders(data) == {0: set()}


def test_in_the_ids_of_a_run():
    """Tasks 0 and 1 are the run's task 4, where actions 1, 2 are 6, 5; the rest is new."""
    actions = np.full((3, 4), -1)
    actions[:2, 1:3] = [6, 5]
    nobody: Any = None  # vocabularies are not asked
    match = VocabularyMatch(known=nobody, other=nobody, tasks=np.array([4, 4, -1]), actions=actions)
    data = dataset((0, [1, 2, 3]), (1, [3, 1, 2]), (2, [1, 2]), (2, [1, 2]))
    assert training_orders(data, match) == {4: {(6, 5)}}


videos = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=5)


@given(videos=videos)
def test_against_a_slow_reference(videos):
    found = training_orders(dataset(*((0, video) for video in videos)))
    expected = {
        (a, b)
        for a in range(5)
        for b in range(5)
        if a != b
        and len(both := [video for video in videos if a in video and b in video]) >= 2
        and all(
            before < after
            for video in both
            for before, action in enumerate(video)
            if action == a
            for after, other in enumerate(video)
            if other == b
        )
    }
    assert found.get(0, set()) == expected
    for video in videos:  # and so does every part of it
        assert keeps_orders(video, found.get(0, ()))


@pytest.mark.parametrize(
    ("plan", "kept"), [([1, 2], True), ([2, 1], False), ([2, 3, 1], False), ([3, -1], True)]
)
def test_plans_keep_orders(plan, kept):
    assert keeps_orders(plan, {(1, 2)}) is kept
