"""Videos whose steps are put in other orders, in a world where each step leaves a mark behind."""

import numpy as np
import pytest

from cefito.recognition.changes import (
    change_features,
    in_random_orders,
    left_behind,
    rearranged,
)
from cefito.recognition.classifier import main_directions

MARKS = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 4]], dtype=np.float32)  # of each action


def video(order, pause=1):
    """Rows of steps that hold a sign of their own and then leave a mark; label 3 is a pause."""
    rows, labels, scene = [np.zeros((pause, 3))], [3] * pause, np.zeros(3)
    for action in order:
        rows.append(np.stack([scene + 10 * (action + 1), scene + MARKS[action]]))
        scene = scene + MARKS[action]
        rows.append(np.tile(scene, (pause, 1)))
        labels += [action] * 2 + [3] * pause
    return np.concatenate(rows).astype(np.float32), np.array(labels)


VIDEOS = [video([0, 1, 2]), video([0, 2, 1])]


def test_what_a_step_leaves_behind():
    rows, labels = zip(*VIDEOS, strict=True)
    assert left_behind(rows, labels, 3) == pytest.approx(MARKS)
    shifted = [np.where(own == 3, 4, own) for own in labels]
    assert left_behind(rows, shifted, 4)[3].tolist() == [0, 0, 0]  # never done


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2], [0]])
def test_a_video_rearranged_is_that_of_the_other_order(order):
    rows, labels = video([0, 1, 2], pause=2)
    moved, names = rearranged(rows, labels, order, MARKS)
    want, truth = video(order, pause=2)
    assert names[names != 3].tolist() == truth[truth != 3].tolist()
    assert moved[names != 3] == pytest.approx(want[truth != 3])
    last = np.flatnonzero(names != 3)[-1]
    assert moved[last] == pytest.approx(
        MARKS[order].sum(axis=0)
    )  # the marks of those left out lack


def test_random_orders_of_copies_hold_the_same_steps():
    rows, labels = zip(*VIDEOS, strict=True)
    generator = np.random.default_rng(0)
    videos, names = in_random_orders(rows, labels, 3, copies=5, generator=generator)
    assert len(videos) == len(names) == 10
    orders = set()
    for own, row in zip(names, videos, strict=True):
        assert len(own) == len(row) == len(rows[0])
        assert sorted(own.tolist()) == sorted(labels[0].tolist())
        orders.add(tuple(own.tolist()))
    assert len(orders) > 3
    empty = in_random_orders(
        [rows[0]], [np.full(len(rows[0]), 3)], 3, copies=2, generator=generator
    )
    assert [len(own) for own in empty[0]] == [len(rows[0])] * 2  # a video without steps


def test_changes_do_not_hold_the_scene():
    """x − its averages is the same in a scene that is moved by any vector."""
    rng = np.random.default_rng(0)
    row, averages = rng.standard_normal((2, 5, 4)).astype(np.float32)
    features = np.concatenate([row, averages, averages + 1], axis=1)
    directions = main_directions([rng.standard_normal((20, 4)).astype(np.float32)], 2)
    assert directions.shape == (4, 2)
    assert directions.T @ directions == pytest.approx(np.eye(2), abs=1e-6)
    seen = change_features(features, directions)
    assert seen.shape == (5, 4)
    assert change_features(features + 3, directions) == pytest.approx(seen, abs=1e-5)
    assert seen[:, :2] == pytest.approx((row - averages) @ directions, abs=1e-5)
