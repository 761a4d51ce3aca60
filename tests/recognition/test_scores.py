"""Scores of recognised steps, by hand."""

import numpy as np
import pytest

from cefito.recognition.scores import Segment, VideoScores, segments, summary

NOTHING = 9


def rows(*parts):
    """Labels of (action, rows)."""
    return np.concatenate([np.full(count, action) for action, count in parts])


def test_segments():
    labels = rows((9, 2), (1, 3), (2, 1), (9, 1), (2, 2))
    assert segments(labels, NOTHING) == [Segment(1, 2, 5), Segment(2, 5, 6), Segment(2, 7, 9)]
    assert segments(rows((9, 4)), NOTHING) == []
    assert segments(np.array([], int), NOTHING) == []
    assert segments(rows((3, 1)), NOTHING) == [Segment(3, 0, 1)]


def test_scores_by_hand():
    truth = rows((0, 10), (9, 2), (1, 4), (2, 4))
    ours = rows((0, 5), (9, 5), (2, 2), (1, 4), (2, 4))
    one = VideoScores.of(ours, truth, NOTHING)
    assert (one.rows, one.right) == (20, 5 + 2 + 2 + 4)
    assert one.edit == pytest.approx(1 - 1 / 4)  # 0 2 1 2 against 0 1 2
    # 0: 5 / 10; 1: 12–16 of ours against 12–16; 2: 16–20 against 16–20
    assert one.found == (3, 3, 3)
    assert (one.recognised, one.annotated) == (4, 3)
    found = summary([one])
    assert found["frame"] == pytest.approx(65)
    assert found["f1_50"] == pytest.approx(100 * 6 / 7)
    assert found["count"] == pytest.approx(400 / 3)


def test_an_overlap_at_the_border_counts():
    for ours, found in ((5, (1, 1, 1)), (4, (1, 1, 0)), (1, (1, 0, 0)), (0, (0, 0, 0))):
        one = VideoScores.of(rows((1, ours), (9, 10 - ours)), rows((1, 10)), NOTHING)
        assert one.found == found


def test_each_annotated_segment_is_found_once():
    truth = rows((1, 10), (9, 2))
    ours = rows((1, 5), (9, 1), (1, 4), (9, 2))
    assert VideoScores.of(ours, truth, NOTHING).found == (1, 1, 1)
    # another action never counts
    assert VideoScores.of(rows((2, 10), (9, 2)), truth, NOTHING).found == (0, 0, 0)


def test_nothing_recognised_and_nothing_annotated():
    truth, empty = rows((1, 3), (2, 3)), rows((9, 6))
    found = summary([VideoScores.of(empty, truth, NOTHING)])
    assert set(found.values()) == {0.0}
    both = VideoScores.of(empty, empty, NOTHING)
    assert (both.edit, both.right) == (1.0, 6)
    assert summary([both])["f1_50"] == 0
    assert set(summary([]).values()) == {0.0}


def test_edit_is_a_mean_over_videos_and_the_others_are_sums():
    truth = rows((1, 3), (2, 3))
    right = VideoScores.of(truth, truth, NOTHING)
    wrong = VideoScores.of(rows((3, 60)), rows((1, 60)), NOTHING)
    found = summary([right, wrong])
    assert found["edit"] == pytest.approx(50)
    assert found["frame"] == pytest.approx(100 * 6 / 66)
    assert found["f1_10"] == pytest.approx(100 * 4 / 6)
