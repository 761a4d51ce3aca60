"""Records of scores as JSON files hold them.

`FileRecord` reads and writes every file. It refuses an unknown or missing field, or one of another
type, and names the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, ValidationError

from cefito.data.windows import Selection
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.hashes import unsealed, value_sealed
from cefito.planners.base import Evidence
from cefito.runs.matching import OtherDataset
from cefito.search.settings import SearchConfig
from cefito.settings import Record

__all__ = [
    "ABSENT",
    "CALIBRATION_HEADS",
    "Answered",
    "Calibration",
    "Evaluation",
    "FileRecord",
    "Reliability",
    "Replies",
    "RiskCoverage",
    "RunEvaluation",
    "TaskScores",
    "TasksWithoutTraining",
    "VideoIntervals",
]

ABSENT: Any = Field(default=None, exclude_if=lambda value: value is None)
"""Default of fields that files omit if they are None."""
CALIBRATION_HEADS = {"expected_calibration_error": "ECE", "success_at_half_coverage": "SR at 50 %"}
"""Heads of the columns of tables for numbers of a `Calibration`, by the names of its fields."""


class FileRecord(Record):
    """A record in a JSON file, alone or as a part.

    Attributes:
        what: Its name in messages.
        remedy: How to repair a file that cannot be read.
        sealed: Whether the file also holds a digest of its entries, verified on reading.
    """

    what: ClassVar[str] = "record"
    remedy: ClassVar[str] = "Make it again."
    sealed: ClassVar[bool] = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.model_dump(mode="json")

    def write(self, path: Path) -> None:
        """Write it into a file.

        Raises:
            RunError: The file cannot be written.
        """
        write_json(path, value_sealed(self.to_dict()) if self.sealed else self.to_dict())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file.

        Raises:
            RunError: Missing, damaged, or of another version.
        """
        return cls.parse(read_json(path, cls.remedy, RunError), path)

    @classmethod
    def parse(cls, value: Any, path: Path) -> Self:
        """Validate the content of a file.

        Args:
            value: The content.
            path: The file, for the message.

        Raises:
            RunError: Not a record of this version, or changed since it was written.
        """
        if cls.sealed and isinstance(value, dict):
            value, whole = unsealed(value)
            if not whole:
                raise RunError(
                    f"{path}: has changed since it was written (its entries differ from their own "
                    f"SHA-256). {cls.remedy}"
                )
        try:
            # as JSON: accepts lists for tuples, but neither 3.0 for an int nor "3" for a number
            return cls.model_validate_json(json.dumps(value), strict=True)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise RunError(
                f"{path}: not a {cls.what} of this version ({reason}). {cls.remedy}"
            ) from problem


class Reliability(FileRecord):
    """Windows by ascending probability, in bins of equal counts.

    Attributes:
        windows: Windows of each bin.
        probability: Their mean probability, per cent.
        success: Their success rate, per cent.
    """

    windows: list[int]
    probability: list[float]
    success: list[float]


class RiskCoverage(FileRecord):
    """Success if only the most probable windows are answered.

    Attributes:
        coverage: Share of windows answered, per cent; 0 stands for the most probable one alone.
        success: Success rate among them, per cent.
        min_probability: Lowest probability among them.
    """

    coverage: list[float]
    success: list[float]
    min_probability: list[float]


class Calibration(FileRecord):
    """Calibration of the probabilities of best plans.

    Attributes:
        expected_calibration_error: Mean over bins, weighted by their windows, of the distance
            between success rate and mean probability, percentage points (Naeini et al., 2015, with
            bins of equal counts).
        success_at_half_coverage: Success rate among the more probable half of the windows, per
            cent.
        risk_coverage_area: Area under the curve of the share of wrong plans against coverage
            (Geifman et al., 2019): mean over n of the share of wrong plans among the n most
            probable, per cent.
        mean_probability: Per cent; above the success rate if the planner is overconfident.
        searched_mass: Mean share of the probability mass that was searched, per cent; None if it is
            not known for every window.
        reliability: The bins.
        risk_coverage: Points of the curve.
    """

    expected_calibration_error: float
    success_at_half_coverage: float
    risk_coverage_area: float
    mean_probability: float
    searched_mass: float | None
    reliability: Reliability
    risk_coverage: RiskCoverage


class Answered(FileRecord):
    """Coverage and success if only sufficiently probable best plans are answered.

    Attributes:
        min_probability: Lowest probability of an answer.
        windows: Windows answered.
        coverage: Their share, per cent.
        success_rate: Success rate among them, per cent; None without any.
    """

    min_probability: float
    windows: int
    coverage: float
    success_rate: float | None


class Replies(FileRecord):
    """Summary of a language model's replies to some queries.

    Attributes:
        model: Name of the requested model.
        host: Its server.
        served: Names of the models that replied, as the server gives them.
        first: Day of the first reply, UTC; empty without any.
        last: Day of the last one.
        queries: Number of queries.
        repaired: Queries whose first reply was invalid and could be repaired.
        replaced: Queries without a usable reply, answered by other plans.
        unasked: Queries that were not sent, answered by other plans.
        requests: Different requests, with their repairs; queries may share one.
        prompt_tokens: Tokens that these read.
        completion_tokens: Tokens that they wrote.
    """

    model: str
    host: str
    served: tuple[str, ...]
    first: str
    last: str
    queries: int
    repaired: int
    replaced: int
    unasked: int
    requests: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def days(self) -> str:
        """The day of the replies, or the first and the last one."""
        if not self.first:
            return "not asked"
        return self.first if self.first == self.last else f"{self.first} to {self.last}"

    def in_words(self) -> str:
        """All of it in one line."""
        unasked = f", {self.unasked:,} were not asked" if self.unasked else ""
        return (
            f"{self.model} at {self.host}, {self.days}: of {self.queries:,} queries "
            f"{self.repaired:,} had to be repaired and {self.replaced:,} replaced{unasked}; "
            f"{self.requests:,} requests, {self.prompt_tokens:,} tokens read, "
            f"{self.completion_tokens:,} written"
        )


class Evaluation(FileRecord):
    """Scores of a planner on some windows.

    Attributes:
        planner: Its name.
        dataset: Name of the data set; contains "simulated" if observations are simulated.
        split: Split of the windows.
        horizon: T.
        windows: Number of windows.
        sampled_from: Number of windows that they were sampled from; equal if all were taken.
        oracle_task: Whether the true task was given.
        oracle_ends: Whether the true first and last action were given; None if not.
        oracle_between: Whether the true observations between the steps were given; None if not.
        metrics: Per cent, by the name of the metric; `position_accuracy` is a list of T.
        shared_metrics: The same with actions mapped to the taxonomy's shared vocabulary (CrossTask:
            105 ids for 133), in which equal actions of different tasks count as the same; None if
            the taxonomy has none.
        without_plan: Windows without any plan, counted as wrong.
        exact: Whether every search was exact.
        seconds_per_query: Wall time of planning over windows.
        token_forwards_per_query: Mean number of tokens through the network.
        leaves_per_query: Mean number of sequences whose energy was computed.
        calibration: Calibration of the best plans' probabilities; None without probabilities.
        replies: Summary of a language model's replies; None if none was asked.
    """

    what: ClassVar[str] = "evaluation"

    planner: str
    dataset: str
    split: str
    horizon: int
    windows: int
    sampled_from: int
    oracle_task: bool
    oracle_ends: bool | None = ABSENT
    oracle_between: bool | None = ABSENT
    metrics: dict[str, float | list[float]]
    shared_metrics: dict[str, float | list[float]] | None = None
    without_plan: int
    exact: bool
    seconds_per_query: float
    token_forwards_per_query: float
    leaves_per_query: float
    calibration: Calibration | None = ABSENT
    replies: Replies | None = ABSENT

    def percent(self, metric: str) -> float | None:
        """A metric or calibration number that is a single value; None if there is none."""
        if self.calibration is not None and metric in CALIBRATION_HEADS:
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


class VideoIntervals(FileRecord):
    """Confidence intervals of metrics, with videos resampled.

    Windows of one video overlap and are not independent, so whole videos are drawn (percentile
    bootstrap). The intervals cover the choice of videos, not the randomness of training.

    Attributes:
        level: Confidence level, 0.9 for 90 %.
        videos: Number of videos.
        draws: Number of bootstrap draws.
        low: Lower ends by the name of the metric, per cent; a list of T for `position_accuracy`.
        high: Upper ends.
    """

    level: float
    videos: int
    draws: int
    low: dict[str, float | list[float]]
    high: dict[str, float | list[float]]

    def ends(self, metric: str) -> tuple[float, float] | None:
        """Both ends for a metric that is a single number; None if there are none."""
        low, high = self.low.get(metric), self.high.get(metric)
        return (low, high) if isinstance(low, float) and isinstance(high, float) else None


class TaskScores(FileRecord):
    """The metrics on the windows of one task.

    Attributes:
        task: Id of the true task.
        name: Its name.
        windows: Number of its windows.
        videos: Number of their videos.
        metrics: Per cent, by the name of the metric, as in `Evaluation`.
    """

    task: int
    name: str
    windows: int
    videos: int
    metrics: dict[str, float | list[float]]

    @property
    def success_rate(self) -> float:
        """Share of windows whose whole sequence is right, per cent."""
        rate = self.metrics["success_rate"]
        assert isinstance(rate, float)
        return rate


class TasksWithoutTraining(FileRecord):
    """Tasks without any training window.

    Attributes:
        tasks: The tasks.
        windows: Number of scored windows of these tasks.
    """

    tasks: tuple[int, ...]
    windows: int


class RunEvaluation(Evaluation):
    """Scores of a run on a split of a data set: content of an evaluation-*.json.

    Attributes:
        fingerprint: Fingerprint of the data set.
        method: Name of the run's method.
        seed: Seed of its training; None for imported weights.
        preset: Preset of its settings.
        selection: Windows that epochs and weights were chosen on; None for imported weights.
        actions_from: Source of each task's actions, of planners that keep to these.
        search: Settings of the search, of planners that have one.
        weights: Weights of the objective's terms, of planners that have any.
        tasks_without_training: Tasks without training windows, of planners that depend on them.
        evidence: Test of whether the energy adds anything, of planners that have one.
        answered: Coverage and success at a minimum probability, if one was given.
        parameters: Parameters of each network, by its name.
        intervals: Confidence intervals of the metrics; None for a single video.
        per_task: The metrics on the windows of each task.
        other_dataset: Differences to the run's own data set, if scored on another one.
    """

    remedy: ClassVar[str] = "Make it again with cefito evaluate."

    fingerprint: str
    method: str
    seed: int | None
    preset: str
    selection: Selection | None
    actions_from: str | None = ABSENT
    search: SearchConfig | None = ABSENT
    weights: dict[str, float] | None = ABSENT
    tasks_without_training: TasksWithoutTraining | None = ABSENT
    evidence: Evidence | None = ABSENT
    answered: Answered | None = ABSENT
    parameters: dict[str, int] | None = ABSENT
    intervals: VideoIntervals | None = ABSENT
    per_task: list[TaskScores] | None = ABSENT
    other_dataset: OtherDataset | None = ABSENT
