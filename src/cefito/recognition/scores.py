"""Scores of recognised steps against annotated ones, in per cent (Lea et al., arXiv 1611.05267)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.data.vocabulary import Taxonomy
from cefito.markup import counted
from cefito.settings import Record
from cefito.tracks import TimedStep

OVERLAPS = (10, 25, 50)
"""Least intersections over union, in per cent, of a segment that counts as found."""


class Segment(NamedTuple):
    """Rows from `start` to before `end` that show one action."""

    action: int
    start: int
    end: int


def segments(labels: NDArray[np.integer], background: int) -> list[Segment]:
    """Return the runs of equal labels [n] but those of the background."""
    if not len(labels):
        return []
    edges = (np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist()
    starts, ends = [0, *edges], [*edges, len(labels)]
    runs = zip(labels[starts].tolist(), starts, ends, strict=True)
    return [Segment(*run) for run in runs if run[0] != background]


def recognised_step(
    segment: Segment, probability: float, taxonomy: Taxonomy, rate: float
) -> TimedStep:
    """Return a segment of rows in seconds and with the name of its action.

    Args:
        segment: The rows.
        probability: Probability of the step.
        taxonomy: Names of the actions.
        rate: Rows a second.
    """
    return TimedStep(
        action=segment.action,
        name=taxonomy.actions[segment.action].name,
        start=segment.start / rate,
        end=segment.end / rate,
        probability=probability,
    )


def recognised_steps(
    rows: NDArray[np.floating[Any]], shown: Sequence[Segment], taxonomy: Taxonomy, rate: float
) -> list[TimedStep]:
    """Return segments as `recognised_step` does, with the mean probability over their rows.

    Args:
        rows: p(label of each row) [n, K + 1].
        shown: The segments.
        taxonomy: Names of the actions.
        rate: Rows a second.
    """
    return [
        recognised_step(
            segment, float(rows[segment.start : segment.end, segment.action].mean()), taxonomy, rate
        )
        for segment in shown
    ]


class VideoScores(NamedTuple):
    """Parts of the scores of one video, that add up over videos."""

    rows: int
    right: int  # rows whose label is right
    edit: float  # 1 − Levenshtein distance / length of the longer sequence of steps
    found: tuple[int, ...]  # segments found, at each of OVERLAPS
    recognised: int  # segments
    annotated: int

    @classmethod
    def of(
        cls, ours: NDArray[np.integer], truth: NDArray[np.integer], background: int
    ) -> VideoScores:
        """Compare labels [n] of a video with the annotated ones [n]."""
        from rapidfuzz.distance import Levenshtein

        mine, theirs = segments(ours, background), segments(truth, background)
        names = [[segment.action for segment in side] for side in (mine, theirs)]
        return cls(
            rows=len(truth),
            right=int((ours == truth).sum()),
            edit=Levenshtein.normalized_similarity(*names),
            found=tuple(_found(mine, theirs, overlap / 100) for overlap in OVERLAPS),
            recognised=len(mine),
            annotated=len(theirs),
        )


def summary(videos: Iterable[VideoScores]) -> dict[str, float]:
    """Return the scores of several videos.

    `frame` is over all rows, `edit` the mean over videos, `f1_10`, `f1_25` and `f1_50` are of the
    segments of all videos: 2 · found / (recognised + annotated). `count` is the number of
    recognised segments over that of annotated ones.
    """
    listed = list(videos)
    recognised = sum(video.recognised for video in listed)
    annotated = sum(video.annotated for video in listed)
    scores = {
        "frame": sum(video.right for video in listed) / max(sum(video.rows for video in listed), 1),
        "edit": float(np.mean([video.edit for video in listed])) if listed else 0.0,
    }
    for place, overlap in enumerate(OVERLAPS):
        right = sum(video.found[place] for video in listed)
        scores[f"f1_{overlap}"] = 2 * right / max(recognised + annotated, 1)
    scores["count"] = recognised / max(annotated, 1)
    return {name: 100 * value for name, value in scores.items()}


_ENOUGH = 70.0  # edit score
_MOST_VIDEOS = 10_000  # beyond which a number is a guess
_LEVEL = 0.05  # power of the number of videos below which errors do not fall


class HeldOutScores(Record):
    """Scores of training videos that were held out in turn, in per cent."""

    videos: int = Field(ge=1)
    frame: float = Field(ge=0, le=100)
    edit: float = Field(ge=0, le=100)
    f1_50: float = Field(ge=0, le=100)
    present: float = Field(ge=0, le=100)  # rows labelled right by those up to them
    # of few videos: those that the first fold was recognised by, half as many of each task, and by
    # how much the edit score of the first fold is higher than by these
    learned: int | None = Field(None, ge=1)
    half: int | None = Field(None, ge=1)
    gain: float | None = Field(None, ge=-100, le=100)

    @property
    def half_edit(self) -> float | None:
        """Edit score by half as many videos; None if it is not known."""
        return None if self.gain is None else min(max(self.edit - self.gain, 0.0), 100.0)

    @property
    def enough(self) -> bool:
        """Whether recognised steps are more than proposals."""
        return self.edit >= _ENOUGH

    @property
    def more(self) -> int | None:
        """Videos to label before recognised steps are more than proposals, about.

        The error 100 − edit is as a power of the number of videos, n^(−α). None if it is not known,
        or does not fall.
        """
        if self.learned is None or self.half is None or self.half_edit is None:
            return None
        if self.enough or self.half >= self.learned:
            return None
        error, of_half = 100 - self.edit, 100 - self.half_edit
        power = np.log(of_half / error) / np.log(self.learned / self.half) if of_half else 0.0
        if power < _LEVEL:
            return None
        needed = self.learned * (error / (100 - _ENOUGH)) ** (1 / power)
        return max(1, round(float(needed)) - self.learned) if needed < _MOST_VIDEOS else None

    @property
    def remedy(self) -> str:
        """What helps, as a sentence without its full stop."""
        if self.more is None:
            return "label more videos, how many is not known (cefito annotate)"
        return f"label about {counted(self.more, 'more video')} (cefito annotate)"

    @property
    def limit(self) -> str:
        """Why recognised steps are proposals, and what helps; empty if they are more."""
        return "" if self.enough else f"check these steps: {self.words}; {self.remedy}"

    @property
    def words(self) -> str:
        """The scores, as a sentence without its full stop."""
        halved = ""
        if self.half is not None and self.half != self.learned and self.half_edit is not None:
            fewer = f"learning from {self.half} videos instead of {self.learned}"
            halved = f"; {fewer} gave an edit score of about {self.half_edit:.0f}"
        return (
            f"of {counted(self.videos, 'training video')} held out in turn, {self.frame:.0f} % of "
            f"the rows were recognised correctly, and {self.present:.0f} % when later rows were "
            f"withheld; F1@50 {self.f1_50:.0f}, edit score {self.edit:.0f}{halved}"
        )


def _found(ours: Sequence[Segment], theirs: Sequence[Segment], least: float) -> int:
    """Count our segments that match a segment of theirs, each of which is used once.

    Each takes the unused one of its action that it overlaps most.
    """
    free, count = set(range(len(theirs))), 0
    for segment in ours:
        overlap, best = max(
            (
                (_overlap(segment, theirs[place]), -place)
                for place in free
                if theirs[place].action == segment.action
            ),
            default=(0.0, 0),
        )
        if overlap >= least and overlap > 0:
            free.remove(-best)
            count += 1
    return count


def _overlap(segment: Segment, other: Segment) -> float:
    """Return the intersection over union of two segments."""
    inside = max(0, min(segment.end, other.end) - max(segment.start, other.start))
    return inside / (max(segment.end, other.end) - min(segment.start, other.start))
