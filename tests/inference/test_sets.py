"""Sets of plans and of first steps in answers, against their thresholds and lists of all plans."""

from __future__ import annotations

import numpy as np
import pytest

from cefito.data import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation.conformal import window_scores, windows_for
from cefito.inference.answer import answer
from cefito.inference.sets import LARGEST_SET
from cefito.parts.coverage import LEVELS, Condition
from cefito.planners.base import Queries
from cefito.search.constraints import Constraints


@pytest.fixture(scope="module")
def windows(world):
    return cut_windows(world, horizon=4, shortest=1, split="test")


def inside(part, truth, *, ends=0):
    wanted = truth.tolist()
    return any(one.actions == wanted and one.ends == (len(wanted) < ends) for one in part.steps)


@pytest.mark.parametrize(
    ("condition", "level"),
    [
        (Condition(steps=2), 0.8),
        (Condition(steps=1, goal=False, done=True, task=True), 0.9),
        (Condition(steps=None), 0.5),
        (Condition(steps=None, goal=False), 0.8),
    ],
    ids=str,
)
def test_sets_hold_the_truth_iff_its_score_is_below_the_threshold(
    calibrated, windows, condition, level
):
    part = windows_for(windows, condition)
    part = part.subset(range(0, len(part), max(1, len(part) // 5)))
    scores = window_scores(calibrated.planner, part, condition)
    run = calibrated
    if condition.steps is not None:
        run = calibrated.with_steps(condition.steps, condition.steps)
    queries = Queries.from_windows(part, **dict(condition.given))
    table = calibrated.calibrated()
    thresholds, place = table.of(condition, level, place=calibrated.place)
    for row in range(len(part)):
        found = answer(run, queries.subset([row]), coverage=level, top_k=2)
        sets, truth = found.sets, part.actions[row][part.actions[row] >= 0]
        assert (sets.coverage, sets.videos, sets.folds) == (level, 12, 0)
        assert len(found.plans) == 2
        for name, steps, ends in (("plans", 99, 0), ("next_step", 1, 0), ("next_two", 2, 2)):
            own = getattr(sets, name)
            if own is None:  # of plans of one step
                assert (name, condition.steps) == ("next_two", 1)
                continue
            limit = getattr(thresholds, name)[place]
            if own.size is None or own.size > LARGEST_SET:
                assert own.steps == []
                continue
            assert own.size == len(own.steps) >= 1
            values = [one.probability for one in own.steps]
            assert values == sorted(values, reverse=True)
            covered = limit is None or getattr(scores, name)[row] <= limit
            assert inside(own, truth[:steps], ends=ends) == covered
        if sets.plans.size is not None:
            (plans,) = run.planner.plan(queries.subset([row]), LARGEST_SET + 1)
            assert sets.plans.steps[0].actions == plans.sequences[0].tolist()
            least = np.exp(-thresholds.plans[place])
            expected = max(1, int((plans.probabilities >= least * (1 - 1e-6)).sum()))
            assert sets.plans.size == expected


def test_sets_grow_with_the_coverage(calibrated, windows):
    query = Queries.from_windows(windows.subset([3]))
    sizes = []
    for level in (0.5, 0.6, 0.7, 0.8, 0.9):
        sets = answer(calibrated, query, coverage=level).sets
        sizes.append((sets.plans.size or 1000, sets.next_step.size, sets.next_two.size))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    words = answer(calibrated, query, coverage=0.9).sets.in_words()
    assert words.startswith("the set for 90 % has ")
    assert f"the next step alone: {sizes[-1][1]}" in words


def test_a_level_between_two_has_the_threshold_of_the_upper_one(calibrated):
    table = calibrated.calibrated()
    for level, place in ((0.5, 0), (0.501, 1), (0.9, 40), (0.905, 41)):
        assert table.of(Condition(steps=1), level, place=calibrated.place)[1] == place
    assert LEVELS[40] == 0.9


def test_what_has_no_guarantee_is_refused(calibrated, run_of_lengths, windows):
    query = Queries.from_windows(windows.subset([0]))
    for level in (0.49, 0.995):
        with pytest.raises(ConfigError, match=r"from 0\.5 to 0\.99"):
            answer(calibrated, query, coverage=level)
    with pytest.raises(ConfigError, match=r"12 videos .* at most 0\.923"):
        answer(calibrated, query, coverage=0.95)
    with pytest.raises(ConfigError, match="without constraints"):
        answer(calibrated, query, coverage=0.8, constraints=Constraints(no_repeats=True))
    with pytest.raises(ConfigError, match="without the time between observations"):
        answer(calibrated, query, coverage=0.8, elapsed=30)
    with pytest.raises(ConfigError, match="or for all of 1-4"):
        answer(calibrated.with_steps(2, 3), query, coverage=0.8)
    goal = Queries.partial(size=query.initial.shape[1], goal=query.goal[0])
    with pytest.raises(ConfigError, match="initial observation"):
        answer(calibrated, goal, coverage=0.8)
    with pytest.raises(RunError, match="cefito calibrate"):
        answer(run_of_lengths, query, coverage=0.8)
