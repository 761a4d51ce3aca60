"""Coverage, a part of a run: thresholds of sets of plans, fitted on scores of held-out windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from cefito.errors import ConfigError
from cefito.files import FileRecord, value_digest
from cefito.parts.folder import RUN_FILE, VIDEOS_FILE
from cefito.planners.given import Given
from cefito.settings import Record

COVERAGE_FILE = "coverage.json"
_DIGITS = 4  # of thresholds, rounded up
Reals = NDArray[np.float64]
LEVELS = tuple(percent / 100 for percent in range(50, 100))
"""Levels that thresholds are kept for; a level between two has the threshold of the upper one."""


class Condition(Record):
    """What is known of a query; thresholds hold for one condition."""

    steps: int | None  # number of steps; None if all lengths of the run are ranked together
    goal: bool = True  # whether the goal is known
    done: bool = False  # whether the steps done before are known
    task: bool = False  # whether the task is given

    @property
    def given(self) -> Given:
        """What is given of such queries."""
        return Given(oracle_task=self.task, without_goal=not self.goal, after_done=self.done)

    def __str__(self) -> str:
        steps = "any number of" if self.steps is None else str(self.steps)
        words = [f"{steps} step{'s' * (self.steps != 1)}", "goal" if self.goal else "no goal"]
        words += ["steps done before"] * self.done + ["task given"] * self.task
        return ", ".join(words)


@dataclass(frozen=True)
class WindowScores:
    """Conformal scores of the truth of N windows, for sets of plans and of first steps.

    The score is −log p (least ambiguous sets of Sadinle, Lei and Wasserman, arXiv 1609.00451), but
    0 for the likeliest entry: a set holds at least that one.
    """

    videos: NDArray[np.int64]  # [N]
    plans: Reals  # [N]
    next_step: Reals | None  # [N]; None if the planner has no such sums
    next_two: Reals | None

    @classmethod
    def concatenate(cls, several: Sequence[WindowScores]) -> WindowScores:
        """Return the scores of windows of several folds; None in one of them means no windows."""
        return cls(
            videos=np.concatenate([one.videos for one in several]),
            plans=np.concatenate([one.plans for one in several]),
            next_step=_joined([one.next_step for one in several]),
            next_two=_joined([one.next_two for one in several]),
        )


def _joined(several: Sequence[Reals | None]) -> Reals | None:
    known = [scores for scores in several if scores is not None]
    return np.concatenate(known) if known else None


class Thresholds(Record):
    """Thresholds of −log p at each level, for queries of one condition.

    A set holds the likeliest entry, and all with −log p up to the threshold. None if no threshold
    reaches the level.
    """

    condition: Condition
    videos: int = Field(ge=0)  # that they were calibrated on
    plans: tuple[float | None, ...]
    next_step: tuple[float | None, ...] | None = None  # None if the method has no such sums
    next_two: tuple[float | None, ...] | None = None

    def reaches(self, level: float) -> bool:
        """Whether this number of videos can guarantee a level: at most n / (n + 1)."""
        return level <= self.videos / (self.videos + 1)


class Coverage(FileRecord):
    """Thresholds of the sets of plans of a run; the content of `coverage.json`."""

    what: ClassVar[str] = "table of thresholds"
    remedy: ClassVar[str] = "Calibrate the run again: cefito calibrate RUN."
    format_version: Literal[1] = 1
    weights: str  # `weights_digest` of the run that it was made for
    fingerprint: str  # of the data set that it was calibrated on
    steps: str  # of the run, such as "1-6"; see `Run.steps`
    folds: int = Field(ge=0)  # 0 if calibrated on validation videos with the run itself
    levels: tuple[float, ...] = Field(LEVELS, min_length=1, max_length=1000)
    thresholds: tuple[Thresholds, ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse levels that do not ascend in [0, 1], and other numbers of thresholds."""
        if (
            list(self.levels) != sorted({*self.levels})
            or not 0 <= self.levels[0] <= self.levels[-1] <= 1
        ):
            raise ValueError("levels do not ascend from 0 to 1")
        for thresholds in self.thresholds:
            for values in (thresholds.plans, thresholds.next_step, thresholds.next_two):
                if values is not None and len(values) != len(self.levels):
                    raise ValueError(f"{len(values)} thresholds of {len(self.levels)} levels")
        return self

    @classmethod
    def fit(
        cls,
        scores: Mapping[Condition, WindowScores],
        *,
        weights: str,
        fingerprint: str,
        steps: str,
        folds: int,
    ) -> Self:
        """Return the thresholds of the scores of each condition that has any.

        Args:
            scores: Scores of windows of videos that the planner has not seen, by condition.
            weights: `weights_digest` of the run.
            fingerprint: That of the data set.
            steps: Numbers of steps that the run plans, such as "1-6".
            folds: Folds of the training videos; 0 for validation videos.
        """
        thresholds = tuple(
            Thresholds(
                condition=condition,
                videos=len(np.unique(own.videos)),
                plans=_rounded(own.plans, own.videos),
                next_step=_rounded(own.next_step, own.videos),
                next_two=_rounded(own.next_two, own.videos),
            )
            for condition, own in scores.items()
            if len(own.videos)
        )
        return cls(
            weights=weights,
            fingerprint=fingerprint,
            steps=steps,
            folds=folds,
            thresholds=thresholds,
        )

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        self.write(folder / COVERAGE_FILE)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote into a run folder (RunError)."""
        return cls.read(folder / COVERAGE_FILE)

    def of(self, condition: Condition, level: float, *, place: str) -> tuple[Thresholds, int]:
        """Return the thresholds of a condition, and the place of a level in them (ConfigError)."""
        if not self.levels[0] <= level <= self.levels[-1]:
            raise ConfigError(
                f"coverage {level:g}: expected a share from {self.levels[0]:g} to "
                f"{self.levels[-1]:g}, such as 0.9.",
                setting="coverage",
            )
        thresholds = next(
            (candidate for candidate in self.thresholds if candidate.condition == condition), None
        )
        if thresholds is None:
            raise ConfigError(
                f"{place}: its sets are not calibrated for queries with {condition}. Ask with "
                "the initial observation, and for one number of steps or for all of the run.",
                setting="coverage",
            )
        if not thresholds.reaches(level):
            most = thresholds.videos / (thresholds.videos + 1)
            raise ConfigError(
                f"coverage {level:g}: {thresholds.videos} videos can guarantee at most {most:.3f} "
                f"for {condition}. Ask for less, or calibrate {place} on more videos, with 10 "
                "folds.",
                setting="coverage",
            )
        return thresholds, next(
            at for at, calibrated in enumerate(self.levels) if calibrated >= level - 1e-9
        )


def quantiles(scores: ArrayLike, videos: ArrayLike, levels: ArrayLike) -> Reals:
    """Return the conformal quantiles [L] of the scores [N] of windows of videos [N].

    The least s with Σ_v Σ_i 1[s_vi ≤ s] / (n_v (V + 1)) ≥ level, over the n_v windows of V videos;
    ∞ if there is none.

    Args:
        scores: Score of each window [N].
        videos: Video of each window [N].
        levels: Levels of coverage [L], from 0 to 1.
    """
    values = np.asarray(scores, dtype=np.float64)
    _, place, counts = np.unique(np.asarray(videos), return_inverse=True, return_counts=True)
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(1 / (counts[place[order]] * (len(counts) + 1)))
    found = np.searchsorted(mass, np.asarray(levels) - 1e-9)
    return np.append(values[order], np.inf)[found]


def _rounded(
    scores: NDArray[np.float64] | None, videos: NDArray[np.int64]
) -> tuple[float | None, ...] | None:
    """Return the thresholds of all levels, rounded up; None where no threshold reaches a level."""
    if scores is None:
        return None
    found = np.ceil(quantiles(scores, videos, LEVELS) * 10**_DIGITS) / 10**_DIGITS
    return tuple(float(value) if np.isfinite(value) else None for value in found)


def weights_digest(files: Mapping[str, str]) -> str:
    """Return a digest of the files of a run's planner, given all by name; empty without any."""
    others = (RUN_FILE, VIDEOS_FILE, COVERAGE_FILE)
    kept = {
        name: digest
        for name, digest in files.items()
        if name not in others and not name.startswith("evaluation-")
    }
    return value_digest(kept) if files else ""
