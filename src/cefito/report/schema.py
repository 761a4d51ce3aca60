"""Records of reports: every number of a page, and its JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from cefito.evaluation.plan_files import WindowPlans
from cefito.evaluation.records import ABSENT, Calibration, FileRecord, RunEvaluation
from cefito.report.mistakes import Kind
from cefito.runs.matching import DatasetName
from cefito.runs.settings_export import Difference
from cefito.study.rendering import Table

__all__ = [
    "ComparisonReport",
    "Confusion",
    "EnergyGap",
    "GalleryQuery",
    "Group",
    "LossCurve",
    "RowResults",
    "RunReport",
    "command",
]


class Group(FileRecord):
    """Success of a group of windows.

    Attributes:
        name: Its name.
        windows: Number of windows.
        videos: Number of their videos.
        success_rate: Per cent.
        low: Lower end of its interval with videos resampled; None for a single video.
        high: Upper end.
        listed: Share of windows whose annotated sequence is among the plans listed, per cent.
    """

    name: str
    windows: int
    videos: int
    success_rate: float
    low: float | None
    high: float | None
    listed: float


class Confusion(FileRecord):
    """Annotated tasks against the tasks of the best plans.

    Attributes:
        tasks: Names of the tasks that occur, by their ids.
        pairs: All pairs that occur, by ids: annotated task, planned task, number of windows.
    """

    tasks: dict[int, str]
    pairs: list[tuple[int, int, int]]

    def totals(self) -> Mapping[int, int]:
        """Number of windows of each annotated task."""
        totals = dict.fromkeys(self.tasks, 0)
        for true, _, windows in self.pairs:
            totals[true] += windows
        return totals


class EnergyGap(FileRecord):
    """Energy of the wrong plan of lowest energy less that of the annotated sequence.

    Known for windows whose annotated sequence and at least one other are among the plans listed.

    Attributes:
        windows: Number of these windows.
        of: Number of all windows.
        positive: Share of them in which the annotated sequence has the lower energy, per cent.
        quartiles: 25th, 50th and 75th percentile of the gap.
        edges: Edges of the bins of the histogram [B + 1].
        counts: Windows in each bin [B]; the outermost bins include all values beyond them.
    """

    windows: int
    of: int
    positive: float
    quartiles: list[float]
    edges: list[float]
    counts: list[int]


class LossCurve(FileRecord):
    """Losses and validation scores of one network's training.

    Attributes:
        name: Folder of its metrics.
        epochs: Epochs.
        loss: Mean training loss of each.
        scores: Validation scores by their names: pairs of epoch and value.
    """

    name: str
    epochs: list[int]
    loss: list[float]
    scores: dict[str, list[tuple[int, float]]]


class GalleryQuery(WindowPlans):
    """A window with its best plans.

    Attributes:
        outcome: Whether the best plan is right, another of the listed ones, or none.
        mistakes: Kinds of mistakes of the best plan; "missing" without any plan.
        missing: Whether each annotated step is missing from the best plan.
        kinds: Kind of each step of each plan.
        frames: Frames at the start of the first and the end of the last step, as JPEG in base64;
            None without a video file.
    """

    outcome: Literal["right", "listed", "wrong"]
    mistakes: list[str]
    missing: list[bool]
    kinds: list[list[Kind]]
    frames: tuple[str, str] | None = ABSENT


class _Report(FileRecord):
    """Common parts of reports.

    Attributes:
        title: Its title.
        dataset: The data set of the training.
        simulated: Whether observations are simulated.
        commands: The commands that repeat it: training or comparison, and the report itself.
        versions: Versions of the libraries of training and scoring.
        facts: Facts of training, by name.
        curves: Loss curves of every network whose metrics are available.
        settings: Settings by dotted keys: of a run all that its method reads, of a comparison those
            changed in all rows.
        notes: Parts that were left out, and why.
    """

    title: str
    dataset: DatasetName
    simulated: bool
    commands: list[str]
    versions: dict[str, str]
    facts: dict[str, str]
    curves: list[LossCurve]
    settings: dict[str, Any]
    notes: list[str]


class RunReport(_Report):
    """The report of a run.

    Attributes:
        kind: "run".
        scores: All scores, as `cefito evaluate` keeps them.
        confusion: Confusion of tasks; None if the planner has no notion of tasks.
        by_candidates: Success against the number of sequences of the task's actions.
        by_seen: Success against whether the sequence occurs in training.
        energies: Whether plans have energies.
        energy_gap: Gap between truth and best wrong plan; None without energies.
        changes: Settings that differ from the preset.
        gallery_of: Number of windows that the gallery is a sample of.
        gallery: The queries.
    """

    what: ClassVar[str] = "report of a run"

    kind: Literal["run"] = "run"
    scores: RunEvaluation
    confusion: Confusion | None
    by_candidates: list[Group] | None
    by_seen: list[Group] | None
    energies: bool
    energy_gap: EnergyGap | None
    changes: list[Difference]
    gallery_of: int
    gallery: list[GalleryQuery]


class RowResults(FileRecord):
    """Results of one row at one horizon, means over seeds unless stated otherwise.

    Attributes:
        horizon: T.
        success: Success rate, with its interval with videos resampled.
        position_accuracy: Accuracy of each step, per cent [T].
        seconds_per_query: Wall time of planning over windows.
        token_forwards_per_query: Tokens through the network.
        leaves_per_query: Sequences whose energy was computed.
        seed: The first seed.
        calibration: Calibration for that seed; None without probabilities.
    """

    horizon: int
    success: Group
    position_accuracy: list[float]
    seconds_per_query: float
    token_forwards_per_query: float
    leaves_per_query: float
    seed: int
    calibration: Calibration | None


class ComparisonReport(_Report):
    """The report of a comparison.

    Attributes:
        kind: "comparison".
        tables: The tables of the comparison.
        rows: Results of each row at each horizon.
    """

    what: ClassVar[str] = "report of a comparison"

    kind: Literal["comparison"] = "comparison"
    tables: list[Table]
    rows: dict[int, list[RowResults]]


def command(*words: str, **options: Any) -> str:
    """A shell command of cefito, without options that are None or False; tuples repeat theirs."""
    parts = ["cefito", *words]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            parts.append(option)
        elif value is not None and value is not False:
            for one in value if isinstance(value, tuple) else (value,):
                parts += [option, str(one)]
    return shlex.join(parts)
