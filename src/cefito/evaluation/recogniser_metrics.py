"""Metrics of recognised steps; scores of rows and segments as in Lea et al., arXiv 1611.05267.

Each is a sum over videos and a divisor. A metric that is registered in `RECOGNISER_METRICS`, or by
another package as an entry point of the group `cefito.recogniser_metrics`, appears in all
comparisons of recognisers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Step
from cefito.evaluation.metrics import Metric, metric_fault
from cefito.plugins import Registry
from cefito.recognition.scores import OVERLAPS, VideoScores


@dataclass(frozen=True)
class FollowedRows:
    """What was known of a video after each of its n rows."""

    now: NDArray[np.int64]  # likeliest label of the row [n]
    next_actions: NDArray[np.int64] | None  # likeliest next action [n]; None if none are told
    done: int  # steps that count as done at the end


@dataclass(frozen=True, kw_only=True)
class ScoredVideo:
    """Input of a metric: what was recognised in the rows of a video, and its annotation."""

    labels: NDArray[np.int64]  # likeliest label of each row [n]; K is the background
    truth: NDArray[np.int64]  # annotated label of each row [n]
    background: int  # K
    rate: float  # rows a second
    steps: tuple[Step, ...]  # annotated, in the order of their starts
    task_right: bool | None = None  # None if no task was recognised
    followed: FollowedRows | None = None  # None if the recogniser does not follow

    def __post_init__(self) -> None:
        for array in (self.labels, self.truth):  # a metric of a package shall not change them
            array.flags.writeable = False

    @cached_property
    def counts(self) -> VideoScores:
        """Counts of rows and segments."""
        return VideoScores.of(self.labels, self.truth, self.background)

    @cached_property
    def delays(self) -> list[float]:
        """Seconds from the start of each step detected in its rows to the first that shows it."""
        delays, now = [], [] if self.followed is None else self.followed.now.tolist()
        for step in self.steps:
            start, end = round(step.start * self.rate), round(step.end * self.rate)
            shown = now[start : max(start + 1, end)]
            if step.action in shown:  # a row is known at its end
                delays.append((start + shown.index(step.action) + 1) / self.rate - step.start)
        return delays


def _f1(video: ScoredVideo, place: int) -> tuple[float, float]:
    counts = video.counts
    return counts.found[place], (counts.recognised + counts.annotated) / 2


def _task(video: ScoredVideo) -> tuple[float, float] | None:
    return None if video.task_right is None else (video.task_right, 1)


def _following(
    total: Callable[[ScoredVideo, FollowedRows], tuple[float, float] | None],
) -> Callable[[ScoredVideo], tuple[float, float] | None]:
    """Return a metric of recognisers that follow; it does not apply to others."""
    return lambda video: None if video.followed is None else total(video, video.followed)


def _now(video: ScoredVideo, rows: FollowedRows) -> tuple[float, float]:
    return int((rows.now == video.truth).sum()), len(video.truth)


def _next(video: ScoredVideo, rows: FollowedRows) -> tuple[float, float] | None:
    if rows.next_actions is None:
        return None
    right = asked = 0
    for count, action in enumerate(rows.next_actions.tolist()):
        later = [step.action for step in video.steps if step.start > (count + 0.5) / video.rate]
        asked += bool(later)
        right += later[:1] == [action]
    return right, asked


def _done(video: ScoredVideo, rows: FollowedRows) -> tuple[float, float]:
    return rows.done, video.counts.annotated


def _done_difference(video: ScoredVideo, rows: FollowedRows) -> tuple[float, float]:
    annotated = video.counts.annotated
    return abs(rows.done - annotated) / max(annotated, 1), 1


def _detected(video: ScoredVideo, _: FollowedRows) -> tuple[float, float]:
    return len(video.delays), len(video.steps)


def _delay(video: ScoredVideo, _: FollowedRows) -> tuple[float, float]:
    return sum(video.delays), len(video.delays)


RECOGNISER_METRICS: Registry[Metric[ScoredVideo]] = Registry(
    "cefito.recogniser_metrics",
    "metric",
    {
        "frame": Metric(
            lambda video: (video.counts.right, video.counts.rows),
            "frame",
            "rows labelled right, of all rows",
        ),
        "frame_video": Metric(
            lambda video: (video.counts.right / video.counts.rows, 1),
            "frame/video",
            "rows labelled right of a video, mean of videos",
        ),
        "edit": Metric(
            lambda video: (video.counts.edit, 1), "edit", "1 − edit distance / longer length"
        ),
        **{
            f"f1_{least}": Metric(
                partial(_f1, place=place), f"F1@{least}", f"segments overlapping by {least} %"
            )
            for place, least in enumerate(OVERLAPS)
        },
        "count": Metric(
            lambda video: (video.counts.recognised, video.counts.annotated),
            "steps",
            "recognised, for each annotated one",
        ),
        "task": Metric(_task, "task", "videos whose task is right"),
        "current": Metric(_following(_now), "now", "rows labelled right from those so far"),
        "next": Metric(_following(_next), "next", "rows after which the next step is right"),
        "done": Metric(
            _following(_done), "done", "steps believed done at the end, for each annotated one"
        ),
        "done_difference": Metric(
            _following(_done_difference), "done off", "mean difference of these"
        ),
        "detected": Metric(_following(_detected), "detected", "steps shown in their own rows"),
        "delay_seconds": Metric(
            _following(_delay), "delay (s)", "seconds to the first row that shows it", percent=False
        ),
    },
    lambda _, entry: (
        metric_fault(entry, RECOGNISER_METRICS) or ("" if entry.head else "it has no head")
    ),
)
"""All metrics by name, in the order of tables."""
