"""Scores of recognised steps, by hand."""

import numpy as np
import pytest

from cefito.markup import counted
from cefito.recognition.chain import softened
from cefito.recognition.held_out import best_temperature
from cefito.recognition.scores import HeldOutScores, Segment, VideoScores, segments, summary

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


@pytest.mark.parametrize(
    ("edit", "half_edit", "more"),
    [
        (40.0, 20.0, 35),  # 60 = 80 · 2^−α; 30 = 60 · (n / 8)^−α
        (55.0, 10.0, 4),  # errors halve with the number
        (67.5, 48.0, 1),
        (71.0, 50.0, None),  # enough
        (50.0, 50.0, None),  # they do not fall
        (50.0, 60.0, None),
        (20.0, 18.0, None),  # they hardly fall
    ],
)
def test_how_many_more_videos_two_sizes_of_folds_promise(edit, half_edit, more):
    scores = {"videos": 12, "frame": 50.0, "edit": edit, "f1_50": 30.0, "present": 40.0}
    held_out = HeldOutScores(**scores, learned=8, half=4, gain=edit - half_edit)
    assert held_out.more == more
    fewer = f"learning from 4 videos instead of 8 gave an edit score of about {half_edit:.0f}"
    assert held_out.words.endswith(f"edit score {edit:.0f}; {fewer}")
    assert "instead" not in HeldOutScores(**scores, learned=2, half=2, gain=0.0).words
    alone = HeldOutScores(**scores)
    assert (alone.more, alone.remedy) == (
        None,
        "label more videos, how many is not known (cefito annotate)",
    )
    if more is not None:
        error = (100 - edit) * ((8 + more) / 8) ** -np.log2((100 - half_edit) / (100 - edit))
        assert error == pytest.approx(30, rel=0.01)
        assert held_out.remedy == f"label about {counted(more, 'more video')} (cefito annotate)"


@pytest.mark.parametrize(("true", "said"), [(1.0, 0), (4.0, 0), (1e3, 1)])
def test_the_temperature_is_that_of_the_rows_and_an_end_of_those_tried_is_said(true, said, caplog):
    """Labels are drawn by p(label)^(1 / T): T is found again, unless it is beyond those tried."""
    generator = np.random.default_rng(0)
    rows = generator.dirichlet(np.ones(5), size=20_000)
    chances = np.cumsum(softened(rows, true), axis=1)
    truth = (generator.random((len(rows), 1)) > chances).sum(axis=1).clip(max=4)
    assert best_temperature(rows, truth) == pytest.approx(min(true, 16), rel=0.13)
    assert len(caplog.records) == said
    assert all("16 is the highest that is tried" in line for line in caplog.messages)
