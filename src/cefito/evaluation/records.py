"""Records of scores, as they lie in JSON files: of a planner, of a run, of a study's cells.

`FileRecord` reads and writes every file; an unknown or missing field, or one of another kind, is
refused with the name of the file.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from cefito.data.windows import Selection
from cefito.evaluation.breakdown import TaskScores, VideoIntervals
from cefito.evaluation.calibration import Answered, Calibration, calibration_heads
from cefito.evaluation.record import FileRecord
from cefito.evaluation.replies import Replies
from cefito.planners.base import Evidence
from cefito.runs.matching import OtherDataset
from cefito.search.settings import SearchConfig
from cefito.training.trainer import TrainingResult

__all__ = [
    "CellFile",
    "CellScores",
    "Evaluation",
    "FailedCell",
    "FailureFile",
    "FileRecord",
    "RunEvaluation",
    "ScoredCell",
    "TasksWithoutTraining",
]


class Evaluation(FileRecord):
    """How a planner did on some windows.

    Attributes:
        planner: Its name.
        dataset: Name of the data set; says "simulated" where it is.
        split: Split of the windows.
        horizon: T.
        windows: Number of windows.
        sampled_from: Number that they were sampled from; equal where all were taken.
        oracle_task: Whether the true task was given.
        oracle_ends: Whether the true first and last action were given; None where they were not.
        oracle_between: Whether the true observations between the steps were given; likewise.
        metrics: Per cent, by the name of the metric; `position_accuracy` is a list of T.
        shared_metrics: The same with actions taken in the taxonomy's shared vocabulary (CrossTask:
            105 ids for 133), in which equal actions of different tasks count as the same; None
            where it has none.
        without_plan: Windows without any plan, counted as wrong.
        exact: Whether every search was exact.
        seconds_per_query: Wall time of planning over windows.
        token_forwards_per_query: Mean number of tokens through the network.
        leaves_per_query: Mean number of sequences whose energy was computed.
        calibration: How far probabilities of best plans can be trusted; None where there are none.
        replies: What became of the answers of a language model; None where none was asked.
    """

    what: ClassVar[str] = "evaluation"
    optional: ClassVar[frozenset[str]] = frozenset(
        {"calibration", "oracle_between", "oracle_ends", "replies"}
    )

    planner: str
    dataset: str
    split: str
    horizon: int
    windows: int
    sampled_from: int
    oracle_task: bool
    oracle_ends: bool | None = None
    oracle_between: bool | None = None
    metrics: dict[str, float | list[float]]
    shared_metrics: dict[str, float | list[float]] | None = None
    without_plan: int
    exact: bool
    seconds_per_query: float
    token_forwards_per_query: float
    leaves_per_query: float
    calibration: Calibration | None = None
    replies: Replies | None = None

    def percent(self, metric: str) -> float | None:
        """A metric or a figure of the calibration that is a single number.

        None where the planner has no such score.
        """
        if self.calibration is not None and metric in calibration_heads():
            return float(getattr(self.calibration, metric))
        value = self.metrics.get(metric)
        return None if isinstance(value, list) else value

    @property
    def success_rate(self) -> float:
        """Share of windows whose whole sequence is right, per cent."""
        rate = self.percent("success_rate")
        assert rate is not None
        return rate

    @property
    def position_accuracy(self) -> list[float]:
        """Share of windows whose action is right at each position, per cent [T]."""
        values = self.metrics["position_accuracy"]
        assert isinstance(values, list)
        return values


class TasksWithoutTraining(FileRecord):
    """Tasks that had no training window.

    Attributes:
        tasks: The tasks.
        windows: How many of the scored windows are of them.
    """

    tasks: tuple[int, ...]
    windows: int


class RunEvaluation(Evaluation):
    """The scores of a run on a split of a data set: content of an evaluation-*.json.

    Attributes:
        fingerprint: Fingerprint of the data set.
        method: Name of the run's method.
        seed: Seed of its training; None for imported weights.
        preset: Preset of its settings.
        selection: Where epochs and weights were chosen; None for imported weights.
        actions_from: Where the actions of each task come from, of planners that keep to them.
        search: Settings of the search, of planners that have one.
        weights: Weights of the objective's terms, of planners that have such.
        tasks_without_training: Tasks without training windows, of planners that mind them.
        evidence: What was found of the energy, of planners that have one.
        answered: What answering only where it is sure would mean, where that was asked.
        parameters: Learned numbers of each network, by its name.
        intervals: How sure the metrics are, with videos resampled; None for a single video.
        per_task: The metrics on the windows of each task.
        other_dataset: What is to be known of scores on another data set than that of the run.
    """

    remedy: ClassVar[str] = "Make it again with cefito evaluate."
    optional: ClassVar[frozenset[str]] = Evaluation.optional | {
        "actions_from",
        "search",
        "weights",
        "tasks_without_training",
        "evidence",
        "answered",
        "parameters",
        "intervals",
        "per_task",
        "other_dataset",
    }

    fingerprint: str
    method: str
    seed: int | None
    preset: str
    selection: Selection | None
    actions_from: str | None = None
    search: SearchConfig | None = None
    weights: dict[str, float] | None = None
    tasks_without_training: TasksWithoutTraining | None = None
    evidence: Evidence | None = None
    answered: Answered | None = None
    parameters: dict[str, int] | None = None
    intervals: VideoIntervals | None = None
    per_task: list[TaskScores] | None = None
    other_dataset: OtherDataset | None = None


class _Place(FileRecord):
    """Which cell of a study it is.

    Attributes:
        row: Name of the row.
        horizon: T.
        seed: Seed of the training.
    """

    row: str
    horizon: int
    seed: int


class CellScores(Evaluation, _Place):
    """The scores of a cell.

    Attributes:
        method: Name of the method.
        selection: Where epochs and weights were chosen.
        parameters: Learned numbers of each network, by its name.
        training: How the training of each network went, by its name.
        success: A digit for each window, 1 where the whole sequence was right.
        weights: Weights of the objective's terms, of planners that have such.
        tasks_searched: Likeliest tasks searched for a query, of planners that search tasks.
        evidence: What was found of the energy, of planners that have one.
    """

    what: ClassVar[str] = "cell"
    remedy: ClassVar[str] = "Remove it to have the cell scored again."
    optional: ClassVar[frozenset[str]] = Evaluation.optional | {
        "weights",
        "tasks_searched",
        "evidence",
    }

    method: str
    selection: Selection
    parameters: dict[str, int]
    training: dict[str, TrainingResult]
    success: str
    weights: dict[str, float] | None = None
    tasks_searched: int | None = None
    evidence: Evidence | None = None


class CellFile(CellScores):
    """The file of a cell that was scored.

    Attributes:
        key: Digest of all that its scores depend on.
        videos: Video of each window, as its number in the data set.
        starts: Number of each window's first step in its video.
    """

    sealed: ClassVar[bool] = True

    key: str
    videos: list[int]
    starts: list[int]

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        """Its entries say the same of how many windows there are and how many were right.

        Raises:
            ValueError: They do not; the message names them.
        """
        for name in ("success", "videos", "starts"):
            if len(getattr(self, name)) != self.windows:
                raise ValueError(f"{name}: {len(getattr(self, name))} of {self.windows} windows")
        right = self.success.count("1")
        if right + self.success.count("0") != self.windows:
            raise ValueError("success: expected a digit 0 or 1 for each window")
        rate = self.percent("success_rate")
        if not self.windows or rate is None or abs(rate - 100 * right / self.windows) > 1e-6:
            raise ValueError(f"success_rate: {rate}, but {right} of {self.windows} are right")
        position = self.metrics.get("position_accuracy")
        if not isinstance(position, list) or len(position) != self.horizon:
            raise ValueError(f"position_accuracy: expected {self.horizon} numbers")
        return self


class ScoredCell(CellScores):
    """A cell in a results file.

    Attributes:
        scored: Numbers of its windows among those of the horizon; None where it has all of them.
    """

    scored: list[int] | None


class FailedCell(_Place):
    """A cell without scores.

    Attributes:
        error: Why, and what to do.
    """

    what: ClassVar[str] = "cell"
    remedy: ClassVar[str] = CellScores.remedy

    error: str


class FailureFile(FailedCell):
    """The file of a cell that could not be scored.

    Attributes:
        key: Digest of all that its scores would depend on.
        traceback: Where the error was raised, where it was a defect.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"traceback"})
    sealed: ClassVar[bool] = True

    key: str
    traceback: str | None = None
