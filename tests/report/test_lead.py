"""The first sentences of reports, and the run among published results."""

from typing import Any

import pytest

from cefito.evaluation.records import RunEvaluation, VideoIntervals, WindowPlans
from cefito.inference.answer import PlannedSequence
from cefito.parts.matching import OtherDataset
from cefito.report.breakdowns import surest
from cefito.report.page import comparison_lead, run_lead
from cefito.report.schema import ComparisonReport, Group, Lead, RunReport
from cefito.study.tables import published_table

MEANING = (
    "A window is a stretch of a video. Its steps are planned from what is seen before and, with a "
    "goal, after them; the plan is right if every step is, in order."
)


def made(kind: Any, **values: Any) -> Any:
    """A record of these values alone, which nothing checks."""
    return kind.model_construct(**values)


def scores(rate=30.0, *, windows=400, ends=(25.0, 36.0), videos=40, **more):
    intervals = made(
        VideoIntervals,
        level=0.9,
        videos=videos,
        low={"success_rate": ends[0]},
        high={"success_rate": ends[1]},
    )
    values = {"split": "test", "horizon": 3, "oracle_task": False, "windows": windows}
    values |= {"metrics": {"success_rate": rate, "mean_accuracy": 50.0}, "intervals": intervals}
    return made(RunEvaluation, **values | more)


def said(found, *, sure=None, simulated=False):
    return run_lead(made(RunReport, scores=found, sure=sure, simulated=simulated))


def group(rate, windows, low=None, high=None):
    return Group(
        name="", windows=windows, videos=9, success_rate=rate, low=low, high=high, listed=0
    )


def test_of_a_run():
    assert said(scores(), sure=group(48.4, 80, 40, 57.25)) == [
        "Of 100 new windows of 3 steps, 30 are planned right; where the run is sure (the most "
        "certain fifth), 48.",
        "Scored on 400 windows of 40 videos: 90 % interval 25.0 to 36.0; for its most certain 80, "
        f"40.0 to 57.2. {MEANING}",
    ]
    first, _ = said(scores(), sure=group(48.4, 120), simulated=True)
    assert first.startswith("Of 100 new simulated windows of 3 steps")
    assert "(the most certain 30 %)" in first
    other = made(OtherDataset, known_windows=7)
    first, second = said(scores(other_dataset=other))
    assert first.startswith("Of 100 windows of 3 steps")
    assert "36.0. 7 windows are of videos that it has learned. A window" in second


@pytest.mark.parametrize(
    ("found", "first", "second"),
    [
        (
            scores(40, windows=50, videos=5),
            "Of 50 new windows of 3 steps, 20 are planned right.",
            "So few videos make the intervals themselves uncertain.",
        ),
        (
            scores(0.2, shortest=1, split="val", without_goal=True),
            "Of 100 validation windows of 1-3 steps (predicted task, no goal), fewer than 1 is "
            "planned right.",
            "400 windows of 40 videos",
        ),
        (
            scores(1, horizon=1, split="train", ends=(1.0, 1.0)),
            "Of 100 training windows of 1 step, 1 is planned right.",
            "90 % interval 1.0 in every video.",
        ),
        (
            scores(0, intervals=None),
            "Of 100 new windows of 3 steps, 0 are planned right.",
            "Scored on 400 windows of one video, which says little of others.",
        ),
    ],
)
def test_small_counts_and_other_conditions(found, first, second):
    assert said(found)[0] == first
    assert second in said(found)[1]


def lead(difference=2.83, low=1.1, high=4.64, behind="B, exact", **more):
    values = {"horizon": 3, "ahead": "A", "success_rate": 18.84, "behind": behind, "level": 0.9}
    values |= {"difference": difference, "low": low, "high": high, "windows": 1324, "videos": 109}
    return Lead(**values | more)


def test_of_a_comparison():
    def of(*leads, simulated=False):
        steps = {3: "3", 4: "1-4"}
        return comparison_lead(
            made(ComparisonReport, leads=list(leads), steps=steps, simulated=simulated)
        )

    assert of(lead(), lead(horizon=4, low=-0.04, videos=5), simulated=True) == [
        "“A” is ahead of “B, exact” by 2.8 of 100 new simulated windows of 3 steps (18.8 planned "
        "right); the 90 % interval, 1.1 to 4.6, excludes 0.",
        "“A” is ahead of “B, exact” by 2.8 of 100 new simulated windows of 1-4 steps (18.8 planned "
        "right); the 90 % interval, 0.0 to 4.6, includes 0, so the order may be chance.",
        "Scored on 1,324 and 1,324 windows of 5 videos, which were resampled for the intervals; "
        "these do not cover the chance of training. So few videos make the intervals themselves "
        f"uncertain. {MEANING}",
    ]
    assert "4 groups, which were resampled" in of(lead(videos=4, kind="group"))[1]
    assert "So few groups make" in of(lead(videos=4, kind="group"))[1]
    alone = of(lead(difference=None, low=None, high=None, behind=None))[0]
    assert alone == (
        "Of 100 new windows of 3 steps, “A” plans 18.8 right; there is no other planner to "
        "compare it with."
    )
    assert of() == []


def windows(probabilities, right):
    def plan(probability):
        return made(PlannedSequence, actions=[0], probability=probability)

    return [
        made(
            WindowPlans,
            video=f"v{number % 3}",
            plans=[plan(probability)],
            success=success,
            rank=None,
        )
        for number, (probability, success) in enumerate(zip(probabilities, right, strict=True))
    ]


def test_the_surest_fifth_holds_all_windows_of_equal_probability():
    falling = [1 - number / 100 for number in range(50)]
    found = surest(windows(falling, [number < 8 for number in range(50)]))
    assert (found.windows, found.videos, found.success_rate) == (10, 3, 80)
    ties = [0.9] * 13 + [0.1] * 37
    assert surest(windows(ties, [True] * 50)).windows == 13
    assert surest(windows([0.9] * 26 + [0.1] * 24, [True] * 50)) is None  # most are as sure
    assert surest(windows(falling[:40], [True] * 40)) is None  # too few
    assert surest(windows([None] * 50, [True] * 50)) is None


def test_a_run_among_published_results_by_success_rate():
    found = scores(35.0, dataset="crosstask", planner="mine")
    table = published_table(found)
    rates = [float(line[1].text.split()[0]) for line in table.lines]
    assert rates == sorted(rates, reverse=True)
    assert table.lines[table.own][0].text == "mine (this run)"
    assert table.lines[table.own][1].text == "35.00"
    assert 0 < table.own < len(rates) - 1
    assert "not comparable" not in " ".join(table.notes[:1])
    simulated = published_table(scores(dataset="crosstask-simulated", planner="mine"))
    assert "not comparable" in simulated.notes[0]
    for other in ({"dataset": "mine"}, {"split": "val"}, {"shortest": 1}, {"horizon": 9}):
        assert (
            published_table(scores(**{"dataset": "crosstask", "planner": "mine"} | other)) is None
        )
