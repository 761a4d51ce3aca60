"""Trials of a study: its rows at one horizon with one seed, and the files of their scores.

The horizon may also be a range of lengths, which planners are not told: see `Trial.shortest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Selection, steps_text
from cefito.errors import ConfigError, RunError
from cefito.evaluation.records import ABSENT, Evaluation
from cefito.files import FileRecord, read_json
from cefito.planners.methods import (
    METHODS,
    STORED_TASK,
    TRUE_TASK,
    PlannerVariant,
    RunConfig,
    find_method,
    methods_with,
)
from cefito.training.settings import TrainingResult

ALL = "all"
"""Name of all rows but ablations."""
ROWS: dict[str, PlannerVariant] = {
    row.name: row for method in METHODS.values() for row in method.variants
}
"""Rows by their names; `find_rows` also takes names with `-true-task` or `-stored-task` behind."""


def check_variant(row: PlannerVariant) -> None:
    """Refuse a row that asks for what its method cannot do."""
    method = find_method(row.method)
    if (row.true_task or row.stored_task) and not method.planner.abilities.true_task:
        raise ConfigError(
            f"'{row.name}': {method.title or method.name} makes no use of the task; of the "
            f"methods only {methods_with('true_task')} do.",
            setting="planners",
        )
    if row.search and not method.planner.abilities.search:
        raise ConfigError(
            f"'{row.name}': the method '{row.method}' has no search to choose; of the methods only "
            f"{methods_with('search')} can.",
            setting="planners",
        )


def find_rows(names: Sequence[str]) -> tuple[PlannerVariant, ...]:
    """Return rows by their names; "all" stands for the rows that `ALL` describes."""
    rows: list[PlannerVariant] = []
    for name in names:
        if name == ALL:
            rows += [
                row
                for row in ROWS.values()
                if not (row.true_task or row.ablation or row.name in names)
            ]
            continue
        end = next((end for end in (TRUE_TASK, STORED_TASK) if name.endswith(end)), "")
        base = name.removesuffix(end)
        if base not in ROWS:
            raise ConfigError(
                f"no planner '{name}'; there are {', '.join(ROWS)}, each also with '{TRUE_TASK}' "
                f"or '{STORED_TASK}' behind it, and '{ALL}'.",
                setting="planners",
            )
        row = ROWS[base].with_task(end) if end else ROWS[base]
        check_variant(row)
        rows.append(row)
    if len({row.name for row in rows}) < len(rows):
        raise ConfigError(f"planners {', '.join(names)}: one is named twice.", setting="planners")
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A row at one horizon with one seed, as `Study.trials` lists them."""

    row: PlannerVariant
    horizon: int
    shortest: int | None  # if windows of all lengths from this one to the horizon are scored
    seed: int
    config: RunConfig
    key: str  # digest of everything that its scores depend on
    path: Path  # of its file, if that holds no scores of other settings
    run_folder: Path  # shared by trials of equal data set, selection and training
    # of each length, if the row's runs plan one length each; then `config` and `run_folder` are of
    # the any-length run that predicts it
    of_lengths: tuple[Trial, ...]

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.row.name}, T = {steps_text(self.horizon, self.shortest)}, seed {self.seed}"

    @property
    def place(self) -> dict[str, Any]:
        """Entries of its records that name it."""
        return {
            "row": self.row.name,
            "horizon": self.horizon,
            "shortest": self.shortest,
            "seed": self.seed,
        }

    @property
    def file(self) -> Path:
        """Its file; beside `path` if that is of another data set, selection, or other settings."""
        with suppress(RunError):
            if self.path.exists() and not _is_of(self, _read(self.path)):
                return self.path.with_name(f"{self.row.name}.{self.key}.json")
        return self.path

    def write(self, record: TrialFile | FailureFile) -> None:
        """Write its file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record.write(self.file)

    @property
    def result(self) -> TrialFile | FailedTrial:
        """Its scores; a failure if its file says so, or is missing or damaged."""
        try:
            record = read_trial(self)
        except RunError as problem:
            return FailedTrial(**self.place, error=str(problem))
        if isinstance(record, TrialFile):
            return record
        error = "not scored yet. Repeat the command." if record is None else record.error
        return FailedTrial(**self.place, error=error)

    @property
    def is_of_others(self) -> bool:
        """Whether it has no file, but those of another data set, selection, or other settings."""
        return not self.file.exists() and self.path.exists()

    def write_failure(self, error: str, traceback: str | None = None) -> None:
        """Write why it has no scores, and the traceback of a defect."""
        self.write(FailureFile(**self.place, key=self.key, error=error, traceback=traceback))


class _Place(FileRecord):
    """Base of the records of a trial: the row, the horizon and the seed that name it."""

    what: ClassVar[str] = "trial"
    remedy: ClassVar[str] = "Remove it to score the trial again."

    row: str
    horizon: int
    shortest: int | None = ABSENT  # as in `Trial`
    seed: int

    @property
    def steps(self) -> str:
        """Numbers of steps of its windows, such as "3" or "1-6"."""
        return steps_text(self.horizon, self.shortest)


class TrialScores(Evaluation, _Place):
    """The scores of a trial."""

    what: ClassVar[str] = _Place.what
    remedy: ClassVar[str] = _Place.remedy

    method: str
    selection: Selection  # windows that epochs and weights were chosen on
    parameters: dict[str, int]  # by network
    training: dict[str, TrainingResult]  # by network
    success: str  # a digit for each window, 1 if the whole sequence was right
    weights: dict[str, float] | None = ABSENT  # of the objective's terms
    tasks_searched: int | None = ABSENT  # number of likeliest tasks
    evidence: dict[str, Any] | None = ABSENT  # of the energy, in published results files


class TrialFile(TrialScores):
    """The file of a scored trial."""

    sealed: ClassVar[bool] = True

    key: str  # `Trial.key`
    videos: list[int]  # as in `WindowList`
    starts: list[int]
    lengths: list[int] | None = ABSENT
    # sums of each metric over the windows of each video, ascending, and their divisors if these
    # are not numbers of windows; None in files of earlier versions
    video_sums: dict[str, list[float]] | None = ABSENT
    video_counts: dict[str, list[float]] | None = ABSENT

    @property
    def by_video(self) -> dict[str, NDArray[np.float64]]:
        """Sum, in per cent, and divisor of each metric by video [V, 2]."""
        _, windows = np.unique(self.videos, return_counts=True)
        counts = self.video_counts or {}
        return {
            name: np.stack([100 * np.array(sums), counts.get(name, windows)], axis=1)
            for name, sums in (self.video_sums or {}).items()
        }


class ScoredTrial(TrialScores):
    """A scored trial in a results file."""

    scored: list[int] | None  # row numbers of its windows; None if it has all of the horizon


class FailedTrial(_Place):
    """A trial without scores."""

    error: str  # the error and its remedy


class FailureFile(FailedTrial):
    """The file of a trial that could not be scored."""

    sealed: ClassVar[bool] = True

    key: str  # `Trial.key`
    traceback: str | None = ABSENT  # of a defect


def read_trial(trial: Trial) -> TrialFile | FailureFile | None:
    """Read the file of a trial; None if there is none, or only those of other settings."""
    if not trial.file.exists() or not _is_of(trial, value := _read(trial.file)):
        return None
    kind: type[TrialFile | FailureFile] = FailureFile if "error" in value else TrialFile
    return kind.parse(value, trial.file)


def _read(path: Path) -> Any:
    return read_json(path, TrialFile.remedy, RunError)


def _is_of(trial: Trial, value: Any) -> bool:
    return isinstance(value, dict) and value.get("key") == trial.key
