"""Recognisers of steps: their protocol, what they share, and what they recognise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from cefito.data.annotations import Step
from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import RATES, row_labels
from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import load_tensors, read_json, write_json, write_tensors
from cefito.recognition.chain import Floats
from cefito.recognition.classifier import Standard
from cefito.recognition.plan_chain import aligned
from cefito.recognition.scores import HeldOutScores, recognised_steps, segments
from cefito.recognition.settings import RecogniserSettings
from cefito.recognition.temporal import Rows
from cefito.recognition.trials import SeenMistakes
from cefito.settings import Record, read_record
from cefito.tracks import TimedStep
from cefito.training.trainer import TrainingContext

RECOGNISER_FILE = "recogniser.safetensors"
SETTINGS_FILE = "recogniser.json"
REMEDY = "Train the run again."
"""What helps if they are damaged."""


@dataclass(frozen=True, eq=False)
class Recognition:
    """What was recognised in a video."""

    rows: Floats  # p(label of each row) [n, K + 1]; the last one is the background
    begin: Floats  # p(a step of each action begins at the row) [n, K]
    tasks: Floats  # p(task) [C]
    rate: float  # rows a second
    taxonomy: Taxonomy
    plan: tuple[int, ...] | None = None  # the steps, if they were known
    # labels of sequences drawn as probable as they are [count, n], if the task was asked about
    # with doubt in the usual order; else None
    drawn: NDArray[np.int64] | None = None

    @property
    def drawn_steps(self) -> list[tuple[Step, ...]] | None:
        """The steps of each drawn sequence; None without any."""
        if self.drawn is None:
            return None
        return [
            tuple(
                Step(one.start / self.rate, one.end / self.rate, one.action)
                for one in segments(labels, self.rows.shape[1] - 1)
            )
            for labels in self.drawn
        ]

    def steps(self, least: float = 0.0) -> list[TimedStep]:
        """Return the likeliest steps in order, but those below a probability.

        If they were known, each is there once.

        Raises:
            ConfigError: A probability that is none.
        """
        if not 0 <= least <= 1:
            raise ConfigError(f"probability {least}: expected 0 to 1.", setting="least")
        shown = segments(self.rows.argmax(axis=1), self.rows.shape[1] - 1)
        if self.plan is not None:
            shown = aligned(self.rows, self.begin, self.plan)
        steps = recognised_steps(self.rows, shown, self.taxonomy, self.rate)
        return [step for step in steps if step.probability >= least]


def of_task(rows: Floats, taxonomy: Taxonomy, task: int | None) -> Floats:
    """Return p(label) of rows [n, K + 1], given that they show the task.

    Args:
        rows: p(label) of each row [n, K + 1].
        taxonomy: Tasks and actions.
        task: Id of the task; None if it is unknown.
    """
    if task is None:
        return rows
    possible = np.zeros(rows.shape[1])
    possible[[*taxonomy.tasks[task].actions, rows.shape[1] - 1]] = 1
    rows = rows * possible + 1e-12 * possible
    shares: Floats = rows / rows.sum(axis=1, keepdims=True)
    return shares


def unchained(rows: Floats, taxonomy: Taxonomy, rate: float, task: int | None) -> Recognition:
    """Return what p(label) of single rows say.

    A step of an action begins by the growth of its probability; p(task) is in proportion to the
    mean probability of its actions. If the task is known, actions of others have probability 0.

    Args:
        rows: p(label) of each row [n, K + 1].
        taxonomy: Tasks and actions.
        rate: Rows a second.
        task: Id of the task; None if it is to be recognised.
    """
    masses = np.array([rows[:, task.actions].mean(axis=0).sum() for task in taxonomy.tasks])
    tasks = (masses + 1e-9) / (masses + 1e-9).sum()
    if task is not None:
        rows, tasks = of_task(rows, taxonomy, task), np.eye(len(taxonomy.tasks))[task]
    begin = np.diff(rows[:, :-1], axis=0, prepend=0).clip(min=0)
    return Recognition(rows=rows, begin=begin, tasks=tasks, rate=rate, taxonomy=taxonomy)


class RowStream(Protocol):
    """Recognises the steps of a video row by row."""

    @property
    def now(self) -> Floats:
        """p(label of the present row) [K + 1]; the background before the first row."""

    @property
    def next_actions(self) -> Floats | None:
        """p(action of the next step to begin) [K]; None if it tells no next step."""

    def observe(self, row: NDArray[np.floating[Any]]) -> bool:
        """Add the next row [D] (DataError)."""

    def steps(self) -> list[TimedStep]:
        """Return the steps so far in order, the present one among them."""


@dataclass(frozen=True, eq=False)
class HeldFilm:
    """What was recognised in a training video by a recogniser of others, with doubt."""

    task: int
    certainty: float  # p(task)
    steps: tuple[TimedStep, ...]
    drawn: tuple[tuple[Step, ...], ...]  # sequences of steps
    hours: float

    @classmethod
    def of(cls, recognition: Recognition) -> Self:
        """Return what is verified of a recognition with drawn sequences."""
        task = int(recognition.tasks.argmax())
        return cls(
            task=task,
            certainty=float(recognition.tasks[task]),
            steps=tuple(recognition.steps()),
            drawn=tuple(recognition.drawn_steps or ()),
            hours=len(recognition.rows) / recognition.rate / 3600,
        )


class Recogniser(Protocol):
    """A fitted recogniser of the steps of one taxonomy in rows of whole videos; never changed."""

    @property
    def config(self) -> RecogniserSettings:
        """Its settings, of the class of its `RecogniserMethod`."""

    @property
    def taxonomy(self) -> Taxonomy:
        """Tasks and actions that it knows."""

    @property
    def rate(self) -> float:
        """Rows a second."""

    @property
    def width(self) -> int:
        """Numbers of a row, D."""

    @property
    def follows(self) -> bool:
        """Whether it recognises row by row, too (`stream`)."""

    @property
    def seen(self) -> tuple[SeenMistakes, ...] | None:
        """Mistakes made up in videos held out that were seen, by task; None if none were."""

    @property
    def held_out(self) -> HeldOutScores | None:
        """Scores of training videos that were held out; None if none were."""

    @property
    def films(self) -> Mapping[int, HeldFilm]:
        """What was recognised in videos held out, by place, after `fit`; it is not saved."""

    @classmethod
    def fit(
        cls,
        dataset: PreparedDataset,
        videos: Sequence[int],
        *,
        config: RecogniserSettings | None = None,
        seed: int = 0,
        context: TrainingContext | None = None,
    ) -> Self:
        """Train on some videos.

        Args:
            dataset: A data set with rows of whole videos.
            videos: Their places in the data set.
            config: Settings of its own class; the defaults if none are given.
            seed: Seed of all that is drawn.
            context: Device, folder of what is finished, and who is told of the progress.

        Raises:
            DataError: The data set holds no rows, or no video is given.
            ConfigError: Settings of another recogniser.
        """

    def save(self, folder: Path) -> None:
        """Write it into a run folder, into files whose names begin with "recogniser."."""

    @classmethod
    def load(cls, folder: Path, taxonomy: Taxonomy) -> Self:
        """Read what `save` wrote (RunError)."""

    def recognise(
        self,
        rows: NDArray[np.floating[Any]],
        *,
        rate: float | None = None,
        task: int | None = None,
        plan: Sequence[int] | None = None,
        doubt: bool = False,
    ) -> Recognition:
        """Recognise the steps of a video.

        Args:
            rows: Its rows [n, D].
            rate: Their number a second; that of the training videos if it is not given.
            task: Id of its task; None to have it inferred.
            plan: Ids of its steps in order, if they are known and only their times are not.
            doubt: Whether steps may follow in other orders than the usual one, as in a video with
                mistakes; sequences of steps are drawn, too, if the recogniser can.

        Raises:
            DataError: Rows of another width, or with NaN or infinity.
            ConfigError: An unknown task, a rate out of range, or a plan that it cannot follow.
        """

    def stream(self, task: int | None = None) -> RowStream:
        """Return a stream of rows of a video; refused if it does not follow (ConfigError)."""

    def given_orders(self, orders: Mapping[int, Iterable[tuple[int, int]]]) -> Self:
        """Return a recogniser that makes steps against the orders of their task less probable.

        For each pair (a, b) of actions of a task, it is less probable that a directly follows b.
        A recogniser that does not use orders raises a ConfigError.
        """


def refused(what: str) -> ConfigError:
    """Return the refusal of what a recogniser cannot do."""
    problem = f"the recogniser of this run cannot {what}"
    return ConfigError(f"{problem}. Train one with --set recogniser.method=segmental.")


class RecogniserHeader(Record):
    """Base of what a recogniser keeps beside its tensors."""

    config: dict[str, Any]  # of its settings
    rate: float = Field(ge=RATES[0], le=RATES[1])
    width: int = Field(ge=1, le=1 << 20)


Header = TypeVar("Header", bound=RecogniserHeader)


def write_parts(
    folder: Path, header: RecogniserHeader, parts: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write a recogniser into a run folder.

    Args:
        folder: The folder.
        header: What is kept as JSON.
        parts: Arrays or tensors of each part, by name; names of the part "" have no dot.
    """
    tensors = {
        f"{part}.{name}" if part else name: torch.as_tensor(values)
        for part, named in parts.items()
        for name, values in named.items()
    }
    write_tensors(folder / RECOGNISER_FILE, tensors)
    write_json(folder / SETTINGS_FILE, header.model_dump(mode="json"))


def read_parts(folder: Path, kind: type[Header]) -> tuple[Header, dict[str, dict[str, Tensor]]]:
    """Read what `write_parts` wrote into a run folder (RunError)."""
    path = folder / SETTINGS_FILE
    header = read_record(kind, read_json(path, REMEDY), str(path), REMEDY, RunError)
    tensors, _ = load_tensors(folder / RECOGNISER_FILE, "pt", REMEDY, RunError)
    parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        part, dot, rest = name.partition(".")
        parts[part if dot else ""][rest if dot else name] = tensor
    return header, parts


class BaseRecogniser:
    """Base of recognisers: what each of them can do."""

    standard: Standard
    rate: float
    seen: tuple[SeenMistakes, ...] | None = None
    held_out: HeldOutScores | None = None
    films: Mapping[int, HeldFilm] = MappingProxyType({})
    _refused = staticmethod(refused)

    @property
    def width(self) -> int:
        """Numbers of a row, D."""
        return len(self.standard.mean)

    @property
    def follows(self) -> bool:
        """Whether it recognises row by row, too."""
        return False

    def stream(self, task: int | None = None) -> Any:  # noqa: ARG002
        """Refuse to recognise row by row."""
        raise self._refused("recognise row by row")

    def given_orders(self, orders: Mapping[int, Iterable[tuple[int, int]]]) -> Self:  # noqa: ARG002
        """Refuse orders."""
        raise self._refused("make use of orders of steps")

    def checked_rows(self, rows: NDArray[np.floating[Any]], rate: float | None) -> Rows:
        """Return rows at the rate of the training videos (DataError, ConfigError)."""
        if rate is not None and not RATES[0] <= rate <= RATES[1]:
            problem = f"{rate}: expected {RATES[0]:g} to {RATES[1]:g} rows a second"
            raise ConfigError(f"rate {problem}.", setting="rate")
        try:
            with np.errstate(over="ignore"):
                checked = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError) as problem:
            raise DataError(f"rows: expected numbers [rows, {self.width}].") from problem
        if checked.ndim != 2 or checked.shape[1] != self.width or not len(checked):
            shape = list(checked.shape)
            raise DataError(f"rows {shape}: expected [rows, {self.width}], as in training.")
        if not np.isfinite(checked).all():
            place = int(np.argmin(np.isfinite(checked).all(axis=1)))
            raise DataError(f"row {place} (counted from 0) holds NaN or infinity. Leave it out.")
        if rate is None or rate == self.rate:
            return checked
        count = max(1, round(len(checked) / rate * self.rate))
        middle = ((np.arange(count) + 0.5) / self.rate * rate).astype(int)
        taken: Rows = checked[middle.clip(max=len(checked) - 1)]
        return taken


@dataclass(frozen=True)
class AnnotatedRows:
    """Rows of videos, with their labels and tasks."""

    rows: list[Rows]  # [n, D] of each video
    labels: list[NDArray[np.int64]]  # [n] of each video; K is the background
    tasks: list[int]
    rate: float  # rows a second

    @classmethod
    def of(cls, dataset: PreparedDataset, videos: Sequence[int]) -> Self:
        """Read those of some videos; a data set without rows, or no video, is refused."""
        timeline = dataset.timeline
        if timeline is None or not len(videos):
            problem = (
                "holds no rows of whole videos" if timeline is None else "no video to train on"
            )
            raise DataError(f"{dataset.folder}: {problem}. Prepare it with features of videos.")
        background = len(dataset.taxonomy.actions)
        chosen = [dataset.videos[video] for video in videos]
        rows = [timeline.videos[video].astype(np.float32) for video in videos]
        labels = [
            row_labels(video.steps, len(video_rows), timeline.rate, background)
            for video, video_rows in zip(chosen, rows, strict=True)
        ]
        return cls(rows, labels, [video.task for video in chosen], timeline.rate)

    def part(self, places: NDArray[np.int64]) -> Self:
        """Return those of some of the videos."""
        rows = [self.rows[place] for place in places]
        labels = [self.labels[place] for place in places]
        return type(self)(rows, labels, [self.tasks[place] for place in places], self.rate)
