"""What a run's verifier promises and keeps on test videos, and the mistakes that it misses."""

import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.study.promises import KeptPromise, kept_promises, right_part, verified_split
from cefito.verification.promise import HeldOutFindings
from cefito.verification.verifier import Verifier

TEA = Taxonomy.from_names("made", [("tea", range(3)), ("nail", [3])], ["boil", "pour", "wait", "x"])


def tea(actions, split="train", errors=(), missing=(), task=0):
    steps = tuple(
        Step(600.0 * n, 600.0 * n + 600, a, ("Order Error",) if n in errors else ())
        for n, a in enumerate(actions)
    )
    return Video(f"{split}-{actions}", split, task, steps, missing=missing)


def test_missed_mistakes_and_promises_of_test_videos():
    verifier = Verifier.fit([tea([0, 1, 2]) for _ in range(30)], TEA)
    swapped, lacking = tea([1, 0, 2], "test", errors=[1]), tea([0, 1], "test", missing=[2])
    new = tea([3], "test", task=1)  # of a task that nothing is known of
    split = verified_split(verifier, [tea([0, 1, 2], "test"), swapped, lacking, new])
    assert (split.videos, split.mistakes) == (3, 2)
    assert split.missed[0] == (0, 0)  # both are found before any right step
    assert [one.promised for one in split.promises] == [1, 3, 10]
    assert {(one.kept, one.videos) for one in split.promises} == {(0, 1)}
    assert not verified_split(verifier, [tea([0, 1, 2], "test")]).missed


def test_a_promise_kept_and_one_that_cannot_be_made():
    training, test = (
        HeldOutFindings.of([(0, 0.5, 5, [(chance, True, 0)]) for chance in chances])
        for chances in ([0.5] * 4, [0.9, 0.4])
    )
    hourly = kept_promises(training, test)
    assert [one.kept for one in hourly] == [1, 2, 2]
    assert (hourly[0].low, hourly[0].high) == (0, 2)
    assert hourly[0].words == (
        "promised 1 false alarm an hour, kept 1.0 (0.0 to 2.0) on 2 right test videos"
    )
    in_steps = kept_promises(training, test, 100)
    assert in_steps[0].kept is None
    assert in_steps[0].words == ("promised 1 false alarm in 100 steps: training videos are too few")
    assert kept_promises(training, HeldOutFindings.of([])) == []
    with pytest.raises(ValueError, match="promised"):
        KeptPromise.model_validate({"kept": 1})


def test_the_right_part_ends_with_the_first_mistake():
    assert [right_part(errors) for errors in ([], [[], ["x"], []], [["x"]], [[], []])] == [
        0,
        1,
        0,
        2,
    ]
