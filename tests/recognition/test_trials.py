"""Mistakes made up in videos held out, and how what is seen of them is counted."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cefito.recognition.held_out import chosen_doubt
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.trials import AlteredVideo, SeenMistakes, first_rows, made_up, score

LABELS = np.array([4, 0, 0, 4, 1, 1, 4, 2, 2, 4, 3, 3])
OTHERS = [LABELS, LABELS, np.array([0, 0, 2, 2, 1, 1])]  # 1 and 2 come in both orders


def copies(others=OTHERS, labels=LABELS, tried=None, seed=0):
    tried = Counter() if tried is None else tried
    rows = np.arange(len(labels), dtype=np.float32)[:, None]
    changes = np.zeros((4, 1), dtype=np.float32)
    return [*made_up(rows, labels, others, changes, tried, np.random.default_rng(seed))]


def test_a_usual_step_is_cut_out_and_neighbours_of_one_order_are_exchanged():
    right, cut, swapped = copies()
    assert right.skipped == ((0, False), (1, False), (2, False))  # 3 is in two of three videos
    assert right.exchanged == (((0, 1), False), ((2, 3), False))
    assert right.rows[:, 0].tolist() == [*range(12)]
    ((action, true),) = cut.skipped
    assert true
    shown = set(LABELS[cut.rows[:, 0].astype(int)].tolist()) - {4}
    assert shown == {0, 1, 2, 3} - {action}
    (((a, b), true),) = swapped.exchanged
    assert true
    steps = [*dict.fromkeys(LABELS[swapped.rows[:, 0].astype(int)].tolist())]
    assert steps.index(b) < steps.index(a)


def test_each_video_takes_the_mistakes_that_were_tried_least():
    tried = Counter()
    for seed in range(6):
        copies(tried=tried, seed=seed)
    assert tried == {0: 2, 1: 2, 2: 2, (0, 1): 3, (2, 3): 3}


def test_of_videos_without_usual_steps_nothing_is_made_up():
    for (right,) in (copies(others=[]), copies(labels=np.full(5, 4))):
        assert right.skipped == right.exchanged == ()


def test_what_is_seen_is_counted_where_half_of_the_draws_show_it():
    rows = np.zeros((4, 1), dtype=np.float32)
    right = AlteredVideo(rows, ((0, False), (1, False)), (((0, 1), False),))
    cut, swapped = AlteredVideo(rows, ((0, True),), ()), AlteredVideo(rows, (), (((0, 1), True),))
    drawn = {
        0: [[0, 0, 1, 1]] * 3 + [[1, 1, 0, 0]],
        1: [[1, 1, 1, 1]] * 3 + [[0, 1, 1, 1]],
        2: [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]],
    }
    copies = [(trial, 1) for trial in (right, cut, swapped)]
    value, (nothing, seen) = score(copies, 2, lambda number: np.array(drawn[number]))
    assert nothing == SeenMistakes()
    assert seen.model_dump() == {
        "skipped": 1,
        "of_skipped": 1,
        "exchanged": 0,  # without the first of both it is not seen
        "of_exchanged": 1,
        "false": 0,
        "right": 1,
        "unseen": ((1, 0),),
    }
    assert seen.words(["cut", "paste"]).endswith("0 of 1; not seen: 'paste' before 'cut'")
    chances = [np.sum(np.log([4.5 / 5] * 2 + [3.5 / 5])), np.mean(np.log([3.5 / 5, 1.5 / 5]))]
    assert value == pytest.approx(0.8 * chances[0] + 0.2 * chances[1])
    _, (seen,) = score([(right, 0)], 1, lambda _: np.array([[1, 1, 0, 0]]))
    assert (seen.false, seen.right) == (1, 1)
    assert first_rows(np.array(drawn[1]), [0, 2]).tolist() == [[4, 4, 4, 0], [4] * 4]


@pytest.mark.parametrize(
    ("skipped", "exchanged", "enough"),
    [
        ((10, 10), (8, 10), True),
        ((10, 10), (7, 10), False),
        ((5, 5), (4, 5), True),
        ((5, 5), (3, 5), False),
        ((3, 3), (5, 5), False),
    ],
)
def test_what_was_seen_is_enough_if_most_was_seen_of_more_than_a_few(skipped, exchanged, enough):
    names = ("skipped", "of_skipped", "exchanged", "of_exchanged")
    seen = SeenMistakes(**dict(zip(names, (*skipped, *exchanged), strict=True)))
    assert seen.enough is enough
    assert f"{skipped[0]} of {skipped[1]} were seen" in seen.words([])


def test_of_what_was_not_tried_nothing_is_counted():
    assert SeenMistakes(skipped=2, of_skipped=2, right=2).words([]) == (
        "of steps that were cut out of its videos in training, 2 of 2 were seen to be missing; no "
        "neighbours were exchanged"
    )
    assert "0 of 0" not in SeenMistakes().words([])


@pytest.mark.parametrize(
    ("seen", "tried", "more"),
    [(3, 3, 1), (4, 4, 0), (8, 10, 0), (5, 7, 21), (7, 10, None), (0, 0, None)],
)
def test_more_videos_are_said_if_most_mistakes_are_seen(seen, tried, more):
    both = {"skipped": seen, "of_skipped": tried, "exchanged": seen, "of_exchanged": tried}
    mistakes = SeenMistakes(**both, right=tried)
    assert mistakes.more == more
    if more:
        grown = {name: value * (1 + more / tried) for name, value in both.items()}
        assert SeenMistakes.model_construct(**grown).enough


@pytest.mark.parametrize(
    ("scores", "harm", "share", "doubt"),
    [
        ({0.0: -0.5, 0.5: -0.2, 1.0: -0.24}, 0.0, 1.0, 0.3),  # about as good
        ({0.0: -0.5, 0.5: -0.2, 1.0: -0.26}, 0.4, 0.5, 0.1),
        ({0.0: -0.2, 0.5: -0.5, 1.0: -0.4}, 1.0, 0.0, 0.0),
        ({0.0: -0.2, 0.5: -0.21, 1.0: -0.4}, 0.0, 0.0, 0.3),
    ],
)
def test_networks_of_no_order_are_taken_alone_if_they_are_about_as_good(
    scores, harm, share, doubt, monkeypatch
):
    """And the usual order is doubted as far as that is about as good."""

    def scored(copies, count, drawn):
        share, _, doubt = drawn.keywords["choice"]
        return scores[share] - harm * (doubt - 0.1), ()

    monkeypatch.setattr("cefito.recognition.held_out.score", scored)
    held: Any = SimpleNamespace(task=0, chain=SimpleNamespace(actions=[[0, 1]]))
    _, choice, _, leasts = chosen_doubt([(copies()[1], held)], RecogniserConfig(), 0, trust=1.0)
    assert choice == (share, 1.7, doubt)
    assert leasts == (0.0, 0.0)  # of no right copy


def test_what_right_copies_hardly_show_is_below_a_share_of_their_5th_percentile(monkeypatch):
    """Of the ratios of neighbours, and of their medians over a copy."""
    ratios = iter([[n, n + 100.0, n + 300.0] for n in range(1, 42)])
    monkeypatch.setattr("cefito.recognition.held_out.score", lambda *_: (0.0, ()))
    monkeypatch.setattr(
        "cefito.recognition.held_out.order_ratios",
        lambda *_: [(0, 1, ratio) for ratio in next(ratios)],
    )

    class Chain:
        actions = ((0, 1),)
        given = loosened = filtered = of_task = drawn = lambda self, *_: self

    held: Any = SimpleNamespace(task=0, chain=Chain(), likelihoods=lambda *_, past: past)
    trials = [(copy, held) for copy in [copies()[0]] * 41]
    *_, leasts = chosen_doubt(trials, RecogniserConfig(), 0, trust=1.0)
    assert leasts == pytest.approx((0.7 * 7, 0.7 * 103))
