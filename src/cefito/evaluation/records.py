"""Records of scores, as they lie in JSON files: of a planner, of a run, of a study's cells.

Every file is read by `Record.read` and written by `Record.write`; a field that is unknown, missing
or of another kind is refused, with the name of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import SerializerFunctionWrapHandler, ValidationError, model_serializer

from cefito.data.windows import Selection
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.search.settings import SearchConfig
from cefito.settings import Frozen

__all__ = [
    "CellFile",
    "CellScores",
    "Evaluation",
    "FailedCell",
    "FailureFile",
    "Record",
    "RunEvaluation",
    "ScoredCell",
    "TasksWithoutTraining",
]


class Record(Frozen):
    """Something that is kept in a JSON file, alone or as a part.

    Attributes:
        what: What it is called in messages.
        remedy: What to do about a file that cannot be read.
        optional: Fields that are left out of the file where they are None.
    """

    what: ClassVar[str] = "record"
    remedy: ClassVar[str] = "Make it again."
    optional: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            name: value
            for name, value in handler(self).items()
            if value is not None or name not in self.optional
        }

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.model_dump(mode="json")

    def write(self, path: Path) -> None:
        """Write it into a file.

        Raises:
            RunError: The file cannot be written.
        """
        write_json(path, self.to_dict())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file.

        Raises:
            RunError: Missing, damaged, or of another version.
        """
        return cls.parse(read_json(path, cls.remedy, RunError), path)

    @classmethod
    def parse(cls, value: Any, path: Path) -> Self:
        """The record that the content of a file holds.

        Args:
            value: The content.
            path: The file, for the message.

        Raises:
            RunError: It is no such record of this version.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise RunError(
                f"{path}: not a {cls.what} of this version ({reason}). {cls.remedy}"
            ) from problem


class Evaluation(Record):
    """How a planner did on some windows.

    Attributes:
        planner: Its name.
        dataset: Name of the data set; says "simulated" where it is.
        split: Split of the windows.
        horizon: T.
        windows: Number of windows.
        sampled_from: Number that they were sampled from; equal where all were taken.
        oracle_task: Whether the true task was given.
        metrics: Per cent, by the name of the metric; `position_accuracy` is a list of T.
        shared_metrics: The same with actions taken in the taxonomy's shared vocabulary (CrossTask:
            105 ids for 133), in which equal actions of different tasks count as the same; None
            where it has none.
        without_plan: Windows without any plan, counted as wrong.
        exact: Whether every search was exact.
        seconds_per_query: Wall time of planning over windows.
        token_forwards_per_query: Mean number of tokens through the network.
        leaves_per_query: Mean number of sequences whose energy was computed.
    """

    what: ClassVar[str] = "evaluation"

    planner: str
    dataset: str
    split: str
    horizon: int
    windows: int
    sampled_from: int
    oracle_task: bool
    metrics: dict[str, float | list[float]]
    shared_metrics: dict[str, float | list[float]] | None = None
    without_plan: int
    exact: bool
    seconds_per_query: float
    token_forwards_per_query: float
    leaves_per_query: float

    def percent(self, metric: str) -> float | None:
        """A metric that is a single number; None where the planner has no such score."""
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


class TasksWithoutTraining(Record):
    """Tasks that had no training window.

    Attributes:
        tasks: The tasks.
        windows: How many of the scored windows are of them.
    """

    tasks: tuple[int, ...]
    windows: int


class RunEvaluation(Evaluation):
    """The scores of a run on a split of its data set: content of an evaluation-*.json.

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
    """

    remedy: ClassVar[str] = "Make it again with cefito evaluate."
    optional: ClassVar[frozenset[str]] = frozenset(
        {"actions_from", "search", "weights", "tasks_without_training"}
    )

    fingerprint: str
    method: str
    seed: int | None
    preset: str
    selection: Selection | None
    actions_from: str | None = None
    search: SearchConfig | None = None
    weights: dict[str, float] | None = None
    tasks_without_training: TasksWithoutTraining | None = None


class _Place(Record):
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
    """

    what: ClassVar[str] = "cell"
    remedy: ClassVar[str] = "Remove it to have the cell scored again."
    optional: ClassVar[frozenset[str]] = frozenset({"weights", "tasks_searched"})

    method: str
    selection: Selection
    parameters: dict[str, int]
    training: dict[str, dict[str, Any]]
    success: str
    weights: dict[str, float] | None = None
    tasks_searched: int | None = None


class CellFile(CellScores):
    """The file of a cell that was scored.

    Attributes:
        key: Digest of all that its scores depend on.
        videos: Video of each window, as its number in the data set.
        starts: Number of each window's first step in its video.
    """

    key: str
    videos: list[int]
    starts: list[int]


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

    key: str
    traceback: str | None = None
