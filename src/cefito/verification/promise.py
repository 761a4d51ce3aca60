"""Findings in right videos held out, and a promise of false alarms by conformal risk control.

Of n right videos, each verified by others, A_i(λ) findings of the video i have a probability of at
least λ: all of them are false alarms. The video has h_i hours, or hundreds of steps. At most N
false alarms an hour are promised by the least λ with

    Σ A_i(λ) + B(λ) ≤ N Σ h_i,    B(λ) = max(1, max A_i(λ)).

So (Σ (A_i − N h_i) + B) / (n + 1) ≤ 0: the expected number of false alarms of a new right video is
at most N times its hours, if it is as those held out (exchangeable) and has at most B of them
(Angelopoulos et al., Conformal Risk Control, ICLR 2024; by cross-validation, as each video is
verified by most of the others, not by all).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.files import Expected, Stored
from cefito.markup import counted, percent
from cefito.settings import Record

Floats = NDArray[np.float64]
_MANY = 1e300  # hours
Chance = tuple[float, bool, int]
"""Probability of a finding, whether it is of a step that was done, and its action, or −1."""
RightFindings = tuple[int, float, int, Sequence[Chance]]
"""Task, hours and steps of a right video, and its findings."""


class Promise(Record):
    """The least probability of a finding that keeps a number of false alarms."""

    false_alarms: float  # an hour, or in `per_steps` steps
    per_steps: int | None
    least: float
    videos: int  # right videos held out that it was chosen on

    @property
    def words(self) -> str:
        """The promise in words."""
        count = counted(self.videos, "right video")
        return (
            f"promised: at most {amount(self.false_alarms, self.per_steps)}, "
            f"from {percent(self.least)} on, by {count} held out"
        )


def amount(alarms: float, per_steps: int | None) -> str:
    """Return a number of false alarms in words."""
    unit = "an hour" if per_steps is None else f"in {counted(per_steps, 'step')}"
    return f"{alarms:g} false alarm{'s' * (alarms != 1)} {unit}"


@dataclass(frozen=True, eq=False)
class HeldOutFindings(Stored):
    """Findings in right videos that are not learned from, false alarms all."""

    hours: Floats  # of each video [n]
    steps: Floats  # number of steps of each video [n]
    video: NDArray[np.int64]  # place of its video, of each finding [m]
    probability: Floats  # [m]
    done: NDArray[np.bool_]  # whether it is of a step that was done, else of a missing one [m]
    action: NDArray[np.int64]  # id; −1 if it is unknown, or in runs of before [m]
    task: NDArray[np.int64]  # id of each video's; −1 in runs of before [n]

    expected: ClassVar[dict[str, Expected]] = {
        "hours": Expected(("n",), 0, _MANY),
        "steps": Expected(("n",), 0, _MANY),
        "video": Expected(("m",), 0, "n", "i"),
        "probability": Expected(("m",), 0, 1),
        "done": Expected(("m",), 0, 1, "b"),
        "action": Expected(("m",), -1, _MANY, "i"),
        "task": Expected(("n",), -1, _MANY, "i"),
    }
    later: ClassVar[dict[str, str]] = {"action": "probability", "task": "hours"}

    @classmethod
    def of(cls, videos: Sequence[RightFindings]) -> Self:
        """Collect the findings of videos."""
        rows = [(place, *row) for place, (*_, rows) in enumerate(videos) for row in rows]
        columns: Any = [*zip(*rows, strict=True)] or [(), (), (), ()]
        return cls(
            hours=np.array([hours for _, hours, _, _ in videos], dtype=np.float64),
            steps=np.array([steps for _, _, steps, _ in videos], dtype=np.float64),
            video=np.array(columns[0], dtype=np.int64),
            probability=np.array(columns[1], dtype=np.float64),
            done=np.array(columns[2], dtype=bool),
            action=np.array(columns[3], dtype=np.int64),
            task=np.array([task for task, *_ in videos], dtype=np.int64),
        )

    def shown(self, task: int) -> tuple[dict[int, list[float]], int]:
        """Return the surest finding of each action in each video of a task, and their number."""
        own, most = self.task[self.video] == task, dict[tuple[int, int], float]()
        findings = zip(self.action[own], self.video[own], self.probability[own], strict=True)
        for action, video, probability in findings:
            most[action, video] = max(most.get((action, video), 0.0), float(probability))
        by_action = defaultdict[int, list[float]](list)
        for (action, _), probability in most.items():
            by_action[action].append(probability)
        return by_action, int(np.sum(self.task == task))

    def sizes(self, per_steps: int | None) -> Floats:
        """Return what false alarms are counted by, of each video [n]: hours, or `per_steps`."""
        return self.hours if per_steps is None else self.steps / per_steps

    def alarms(self, least: float) -> Floats:
        """Return the number of findings of at least a probability, of each video [n]."""
        kept = self.video[self.probability >= least]
        return np.bincount(kept, minlength=len(self.hours)).astype(np.float64)

    def promise(self, alarms: float, per_steps: int | None = None) -> Promise:
        """Choose the least probability that keeps a number of false alarms, by the module's rule.

        Args:
            alarms: The number, an hour or in so many steps.
            per_steps: The number of steps; None for an hour.

        Raises:
            ConfigError: A number below 0, or right videos that are too few for it.
        """
        if not 0 <= alarms < np.inf or (per_steps is not None and per_steps < 1):
            problem = f"{amount(alarms, per_steps)}: expected a number of at least 0"
            raise ConfigError(f"{problem}, in at least one step.", setting="false_alarms")
        size = float(self.sizes(per_steps).sum())
        if not size:
            problem = "no right videos were held out in training to count false alarms in"
            remedy = "Learn from more of them, train the run again, or give a probability."
            raise ConfigError(f"{problem}. {remedy}", setting="false_alarms")
        above = np.nextafter(np.unique(self.probability), 2)  # the least that leaves each out
        levels = [0.0, *above[above <= 1].tolist()]
        place = bisect_left(levels, True, key=lambda least: self._cost(least) <= alarms * size)
        if place == len(levels):
            possible = amount(math.ceil(100 * self._cost(levels[-1]) / size) / 100, per_steps)
            count = counted(len(self.hours), "right video")
            problem = (
                f"{amount(alarms, per_steps)} cannot be promised: {count} held out suffice for"
            )
            raise ConfigError(
                f"{problem} {possible}. Ask for more, or give more right videos.",
                setting="false_alarms",
            )
        return Promise(
            false_alarms=alarms, per_steps=per_steps, least=levels[place], videos=len(self.hours)
        )

    def _cost(self, least: float) -> float:
        """Return Σ A_i + B."""
        alarms = self.alarms(least)
        return float(alarms.sum() + alarms.max(initial=1))
