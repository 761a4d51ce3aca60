"""What was promised of false alarms and kept on test videos, and the mistakes missed meanwhile.

A promise is kept on right videos, each resampled for the interval. Of videos with mistakes, those
missed are counted at each number of false alarms, at the best threshold that keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Video
from cefito.errors import ConfigError
from cefito.evaluation.statistics import video_interval
from cefito.settings import Record
from cefito.verification.promise import HeldOutFindings, amount
from cefito.verification.verifier import Verifier

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HOURLY = 1, 3, 10
"""False alarms an hour that are promised, and at which missed mistakes are counted."""
_POINTS = 60  # of a curve, about


class KeptPromise(Record):
    """A number of false alarms that training videos promise, and what test videos had."""

    promised: float  # an hour, or in `per_steps` steps
    per_steps: int | None
    least: float | None  # probability; None if it cannot be promised, as are those below
    kept: float | None
    low: float | None  # 90 % interval, test videos resampled
    high: float | None
    videos: int  # right test videos

    @property
    def words(self) -> str:
        """What was promised and kept, in words."""
        said = f"promised {amount(self.promised, self.per_steps)}"
        if self.kept is None:
            return f"{said}: training videos are too few"
        videos = f"{self.videos:,} right test video{'s' * (self.videos != 1)}"
        return f"{said}, kept {self.kept:.1f} ({self.low:.1f} to {self.high:.1f}) on {videos}"


class VerifiedSplit(Record):
    """How a run's verifier does on the annotated steps of a split."""

    videos: int
    mistakes: int  # that are labelled
    promises: tuple[KeptPromise, ...]
    missed: tuple[tuple[float, float], ...]  # false alarms an hour, mistakes missed in per cent


def kept_promises(
    training: HeldOutFindings, test: HeldOutFindings, per_steps: int | None = None
) -> list[KeptPromise]:
    """Promise numbers of false alarms by training videos, and count them in test videos.

    Args:
        training: Findings in right videos of training, held out.
        test: Findings in right test videos.
        per_steps: Number of steps that false alarms are counted in; None for an hour.
    """
    promises, sizes = list[KeptPromise](), test.sizes(per_steps)
    for alarms in HOURLY if len(sizes) else ():
        kept: tuple[float | None, ...] = (None,) * 4
        try:
            least = training.promise(alarms, per_steps).least
        except ConfigError:
            pass
        else:
            counts = test.alarms(least)
            kept = least, float(counts.sum() / sizes.sum()), *video_interval(counts, sizes)
        values = dict(zip(("least", "kept", "low", "high"), kept, strict=True))
        fields = {"promised": alarms, "per_steps": per_steps, "videos": len(sizes)}
        promises.append(KeptPromise.model_validate(fields | values))
    return promises


def verified_split(verifier: Verifier, videos: Iterable[Video]) -> VerifiedSplit:
    """Verify the annotated steps of test videos, each as a whole.

    Mistakes are the steps with an error and the actions that were not done, if videos name any;
    every other finding is a false alarm.
    """
    right, chances, wrong = [], list[float](), list[bool]()
    hours, count = 0.0, 0
    for video in videos:
        if not video.steps or not verifier.knows(video.task):
            continue
        verification = verifier.verify(video.steps, video.task, least=0.0)
        length = max(step.end for step in video.steps) / 3600
        hours, count = hours + length, count + 1
        if video.clean:
            right.append((video.task, length, len(video.steps), verification.chances))
        of_step = {finding.step: finding.probability for finding in verification.deviations}
        omitted = {f.action: f.probability for f in verification.deviations if f.step is None}
        for number, step in enumerate(video.steps, 1):
            chances.append(of_step.get(number, 0.0))
            wrong.append(bool(step.errors))
        for action in dict.fromkeys((*omitted, *video.missing)):
            chances.append(omitted.get(action or 0, 0.0))
            wrong.append(action in video.missing)
    curve = missed_curve(np.array(chances), np.array(wrong, dtype=bool), hours)
    return VerifiedSplit(
        videos=count,
        mistakes=sum(wrong),
        promises=tuple(kept_promises(verifier.whole, HeldOutFindings.of(right))),
        missed=tuple((alarms, share) for alarms, share in curve),
    )


def missed(chances: Floats, wrong: Bools, alarms: int) -> float:
    """Return the least share of mistakes missed with at most so many false alarms, in per cent.

    Args:
        chances: p(mistake) of each step [n].
        wrong: Whether it is one [n].
        alarms: Number of false alarms.
    """
    right = np.sort(chances[~wrong])[::-1]
    below = right[alarms] if alarms < len(right) else -np.inf
    return round(float(100 * (chances[wrong] <= below).mean()), 1)


def missed_curve(chances: Floats, wrong: Bools, hours: float) -> list[list[float]]:
    """Return false alarms an hour and mistakes missed in per cent; nothing without a mistake.

    Args:
        chances: p(mistake) of each step [n].
        wrong: Whether it is one [n].
        hours: Length of all videos.
    """
    if not wrong.any() or not hours:
        return []
    right = max(int((~wrong).sum()), 1)
    alarms = np.unique(np.geomspace(1, right, _POINTS).astype(int)) - 1
    return [[round(n / hours, 3), missed(chances, wrong, n)] for n in alarms.tolist()]


def right_part(errors: Sequence[Sequence[str]]) -> int:
    """Return the number of steps before the first mistake, by the kinds of errors of each step."""
    return next((place for place, kinds in enumerate(errors) if kinds), len(errors))
