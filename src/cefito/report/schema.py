"""What a report holds: records of every number in it, which are its JSON as well."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from cefito.evaluation.calibration import Calibration
from cefito.evaluation.record import FileRecord
from cefito.evaluation.records import RunEvaluation
from cefito.report.mistakes import Kind
from cefito.study.results import DatasetName

__all__ = [
    "ComparisonReport",
    "Confusion",
    "CostRow",
    "EnergyGap",
    "Fact",
    "GalleryFrames",
    "GalleryPlan",
    "GalleryQuery",
    "Group",
    "HorizonResults",
    "LossCurve",
    "PositionRow",
    "RowCalibration",
    "RunReport",
    "SettingChange",
    "TableRow",
    "TaskPair",
    "TextTable",
]


class Fact(FileRecord):
    """A line of a list of facts: what, and its value."""

    name: str
    value: str


class Group(FileRecord):
    """Windows that have something in common, and how many were planned right.

    Attributes:
        name: What they have in common.
        windows: How many.
        videos: Videos that they are of.
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


class TaskPair(FileRecord):
    """How many windows of one task were planned for another.

    Attributes:
        true: Id of the annotated task.
        predicted: Id of the task of the best plan.
        windows: How many.
    """

    true: int
    predicted: int
    windows: int


class Confusion(FileRecord):
    """Annotated tasks against those of the best plans.

    Attributes:
        tasks: Names of the tasks that occur, by their ids.
        pairs: All pairs that occur, right ones among them, by ids.
    """

    tasks: dict[int, str]
    pairs: list[TaskPair]


class EnergyGap(FileRecord):
    """Energy of the wrong plan of lowest energy less that of the annotated sequence.

    Known of windows whose annotated sequence and at least one other are among the plans listed.

    Attributes:
        windows: How many these are.
        of: Of how many windows.
        positive: Share of them where the annotated sequence has the lower energy, per cent.
        quartiles: 25th, 50th and 75th percentile of the gap.
        edges: Edges of the bins of the histogram [B + 1].
        counts: Windows in each bin [B]; the first and the last take what lies beyond.
    """

    windows: int
    of: int
    positive: float
    quartiles: list[float]
    edges: list[float]
    counts: list[int]


class LossCurve(FileRecord):
    """How the training of one network went.

    Attributes:
        name: Folder of its metrics.
        epochs: Epochs.
        loss: Mean training loss of each.
        scores: What was measured on validation, by its name: pairs of epoch and value.
    """

    name: str
    epochs: list[int]
    loss: list[float]
    scores: dict[str, list[tuple[int, float]]]


class SettingChange(FileRecord):
    """A setting in which a run differs from its preset."""

    name: str
    value: Any
    preset: Any


class GalleryPlan(FileRecord):
    """One plan of a query.

    Attributes:
        actions: Action ids.
        kinds: What each step is.
        right: Whether it is the annotated sequence.
        probability: Per cent; None where plans have none.
        energy: Its energy; None where the planner has no energies.
        task: Id of the task that it was found for, where there is one.
    """

    actions: list[int]
    kinds: list[Kind]
    right: bool
    probability: float | None
    energy: float | None
    task: int | None


class GalleryFrames(FileRecord):
    """What a query's video shows, as JPEG in base64.

    Attributes:
        initial: Where the first step begins.
        goal: Where the last step ends.
    """

    initial: str
    goal: str


class GalleryQuery(FileRecord):
    """A query with its best plans.

    Attributes:
        video: Id of the video.
        from_step: Number of the first step, counted from 0.
        start: Second at which the first step begins.
        end: Second at which the last step ends.
        true_task: Id of the annotated task.
        predicted_task: Id of the task of the best plan, where there is one.
        outcome: Whether the best plan is right, another of those listed, or none.
        mistakes: Kinds of mistakes of the best plan; of a query without plan "missing".
        truth: Annotated action ids.
        missing: Which of them the best plan has nowhere.
        plans: The best plans, best first.
        frames: What its video shows, where there is a file of it.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"frames"})

    video: str
    from_step: int
    start: float
    end: float
    true_task: int
    predicted_task: int | None
    outcome: Literal["right", "listed", "wrong"]
    mistakes: list[str]
    truth: list[int]
    missing: list[bool]
    plans: list[GalleryPlan]
    frames: GalleryFrames | None = None


class _Report(FileRecord):
    """What reports of all kinds begin with.

    Attributes:
        title: Its title.
        simulated: Whether observations are simulated.
        commands: The commands that repeat it: training, and the report itself.
        versions: What was trained and scored with which version.
        curves: Loss curves, of every network whose metrics are at hand.
        notes: What was left out, and why.
    """

    title: str
    simulated: bool
    commands: list[str]
    versions: dict[str, str]
    curves: list[LossCurve]
    notes: list[str]


class RunReport(_Report):
    """The report of a run.

    Attributes:
        kind: "run".
        dataset: What it was trained on.
        trained: Facts of its training.
        scores: All scores, as `cefito evaluate` keeps them.
        tasks: Names of the tasks of the gallery, by their ids.
        actions: Names of the actions of the gallery, by their ids.
        confusion: Of tasks; None where the planner has no notion of them, or was given them.
        by_candidates: Success against how many sequences the task's actions have.
        by_seen: Success against whether the sequence is one of training.
        energy_gap: Between truth and best wrong plan; None where plans have no energies.
        settings: All settings that its method reads, by dotted keys.
        changes: Those that differ from the preset.
        gallery_of: Windows that the gallery is a sample of.
        gallery: The queries.
    """

    what: ClassVar[str] = "report of a run"

    kind: Literal["run"] = "run"
    dataset: DatasetName
    trained: list[Fact]
    scores: RunEvaluation
    tasks: dict[int, str]
    actions: dict[int, str]
    confusion: Confusion | None
    by_candidates: list[Group] | None
    by_seen: list[Group] | None
    energy_gap: EnergyGap | None
    settings: dict[str, Any]
    changes: list[SettingChange]
    gallery_of: int
    gallery: list[GalleryQuery]


class TableRow(FileRecord):
    """A line of a table.

    Attributes:
        cells: What stands in it.
        ranks: 1 for the best of its column, 2 for the second best, else 0.
    """

    cells: list[str]
    ranks: list[int]


class TextTable(FileRecord):
    """A table as `cefito compare` prints it.

    Attributes:
        title: What stands above it.
        heads: Heads of the columns.
        rows: Its lines.
        below: How many of the lines stand below the rule.
        notes: What stands below it.
    """

    title: str
    heads: list[str]
    rows: list[TableRow]
    below: int
    notes: list[str]


class PositionRow(FileRecord):
    """Accuracy of each step of one row, mean over seeds, per cent."""

    row: str
    accuracy: list[float]


class RowCalibration(FileRecord):
    """How far the probabilities of one row can be trusted, for one seed."""

    row: str
    seed: int
    calibration: Calibration


class HorizonResults(FileRecord):
    """What is known of the rows at one horizon.

    Attributes:
        horizon: T.
        success: Success rate of each row, mean over seeds, its interval with videos resampled.
        positions: Accuracy of each step.
        calibrations: Of rows with probabilities, for their first seed.
    """

    horizon: int
    success: list[Group]
    positions: list[PositionRow]
    calibrations: list[RowCalibration]


class CostRow(FileRecord):
    """What a query of one row costs at each horizon, mean over seeds.

    Attributes:
        row: Title of the row.
        horizons: The horizons that it was scored at.
        seconds: Seconds of each.
        token_forwards: Token forwards of each.
        leaves: Sequences whose energy was computed.
    """

    row: str
    horizons: list[int]
    seconds: list[float]
    token_forwards: list[float]
    leaves: list[float]


class ComparisonReport(_Report):
    """The report of a comparison.

    Attributes:
        kind: "comparison".
        dataset: What was trained on.
        facts: How it was made.
        tables: The tables of the comparison.
        horizons: What is known of each horizon.
        costs: What queries cost.
        settings: Settings changed in all rows, by dotted keys.
    """

    what: ClassVar[str] = "report of a comparison"

    kind: Literal["comparison"] = "comparison"
    dataset: DatasetName
    facts: list[Fact]
    tables: list[TextTable]
    horizons: list[HorizonResults]
    costs: list[CostRow]
    settings: dict[str, Any]
