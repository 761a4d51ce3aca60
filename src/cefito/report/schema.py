"""Records of reports: every number of a page, and its JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, ClassVar, Literal

from cefito.evaluation.records import ABSENT, Calibration, RunEvaluation, WindowPlans
from cefito.files import FileRecord
from cefito.parts.matching import DatasetName
from cefito.runs.settings_export import SettingDifference
from cefito.study.promises import VerifiedSplit
from cefito.study.rendering import Table
from cefito.tracks import Track

Kind = Literal["right", "order", "repetition", "substitution"]
"""A planned step: right; annotated in another place; planned before; another action."""
CHOSEN_ON = {
    "held-out": "validation split",
    "published": "TEST split, as published work does",
    None: "unknown (imported weights)",
}
"""Windows that epochs and weights were chosen on, in words."""


class Group(FileRecord):
    """Success of a group of windows."""

    name: str
    windows: int
    videos: int
    success_rate: float  # per cent
    low: float | None  # ends of its interval with videos resampled; None for a single video
    high: float | None
    listed: float  # share of windows whose annotated sequence is among the plans listed, per cent


class Confusion(FileRecord):
    """Annotated tasks against the tasks of the best plans."""

    tasks: dict[int, str]  # names of the tasks that occur
    pairs: list[tuple[int, int, int]]  # annotated task, planned task, number of windows


Unit = Literal["epoch", "step"]
"""What a curve of a training counts."""


class LossCurve(FileRecord):
    """Losses and validation scores of one network's training."""

    name: str
    unit: Unit = "epoch"
    epochs: list[int]  # or steps
    loss: list[float]  # mean of each epoch, or of the steps since the one before
    scores: dict[str, list[tuple[int, float]]]  # of validation: pairs of epoch and value


class GalleryQuery(WindowPlans):
    """A window with its best plans."""

    outcome: Literal["right", "listed", "wrong"]  # of the best plan, or of all
    mistakes: list[str]  # kinds of mistakes of the best plan; "missing" without any plan
    missing: list[bool]  # whether each annotated step is missing from the best plan
    kinds: list[list[Kind]]  # of each step of each plan
    frames: tuple[str, str] | None = ABSENT  # of start and goal, JPEG in base64


class Lead(FileRecord):
    """The planner of the highest success rate at one horizon, against the next best.

    Oracles do not take part. The interval resamples videos, or groups; percentage points.
    """

    horizon: int
    ahead: str  # title of the row
    success_rate: float  # its own, mean over seeds, per cent
    behind: str | None  # title of the next best row; None without any, as are the fields below
    difference: float | None  # over common windows and, if there are any, common seeds
    low: float | None
    high: float | None
    level: float
    windows: int
    videos: int  # that are resampled, or groups
    kind: str = "video"  # or "group"

    @property
    def certain(self) -> bool:
        """Whether the interval of the difference excludes 0."""
        return self.low is not None and self.low > 0


class _Report(FileRecord):
    """Common parts of reports."""

    title: str
    dataset: DatasetName  # of the training
    simulated: bool  # whether observations are simulated
    commands: list[str]  # that repeat the training or comparison, and the report itself
    versions: dict[str, str]  # of libraries
    facts: dict[str, str]  # of the training
    curves: list[LossCurve]
    settings: dict[str, Any]  # of a run all; of a comparison those changed in all rows
    notes: list[str]  # parts that were left out, and why


class RunReport(_Report):
    """The report of a run."""

    what: ClassVar[str] = "report of a run"

    kind: Literal["run"] = "run"
    scores: RunEvaluation | None  # None if no video was kept for test
    sure: Group | None  # the most probable fifth of the windows; None if too few, or unknown
    published: Table | None  # the run among published rows of its data set and horizon
    confusion: Confusion | None  # None if the planner has no notion of tasks
    by_seen: list[Group] | None  # success against whether the sequence occurs in training
    energies: bool  # whether plans have energies
    changes: list[SettingDifference]  # to the preset
    gallery_of: int  # number of windows that the gallery is a sample of
    gallery: list[GalleryQuery]
    recognised: list[Track]  # steps in whole videos
    verified: VerifiedSplit | None = ABSENT  # annotated steps of the split; None without a verifier
    graph: str | None = ABSENT  # picture of the orders of steps, SVG; None without a verifier
    # how steps and mistakes were recognised in training videos held out; None without a recogniser
    held_out: list[str] | None = ABSENT


class RowResults(FileRecord):
    """Results of one row at one horizon."""

    name: str
    position_accuracy: list[float]  # mean over seeds, per cent [T]
    seed: int  # the first one
    calibration: Calibration | None  # for that seed; None without probabilities


class ComparisonReport(_Report):
    """The report of a comparison."""

    what: ClassVar[str] = "report of a comparison"

    kind: Literal["comparison"] = "comparison"
    tables: list[Table]
    leads: list[Lead]  # of each horizon with scores
    steps: dict[int, str]  # numbers of steps of the windows of each horizon, such as "3" or "1-6"
    rows: dict[int, list[RowResults]]  # by horizon, by descending success rate


def command(*words: str | Path, **options: Any) -> str:
    """A shell command of cefito, without options that are None or False; tuples repeat theirs.

    Paths are whole ones, so that it can be copied into any folder.
    """
    parts = ["cefito", *map(_word, words)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            parts.append(option)
        elif value is not None and value is not False:
            for one in value if isinstance(value, tuple) else (value,):
                parts += [option, _word(one)]
    return shlex.join(parts)


def _word(value: Any) -> str:
    return str(value.absolute() if isinstance(value, Path) else value)
