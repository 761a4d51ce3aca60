"""The trials of a study: variants at one horizon with one seed, and the files of their scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cefito.data.windows import Selection
from cefito.errors import RunError
from cefito.evaluation.records import ABSENT, Evaluation, FileRecord
from cefito.files import read_json
from cefito.planners.base import Evidence
from cefito.planners.methods import RunConfig
from cefito.study.variants import PlannerVariant
from cefito.training.trainer import TrainingResult

__all__ = [
    "FailedTrial",
    "FailureFile",
    "ScoredTrial",
    "Trial",
    "TrialFile",
    "TrialScores",
    "parse_trial",
    "read_trial",
]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A row at one horizon with one seed, as `Study.trials` lists them."""

    row: PlannerVariant
    horizon: int
    seed: int
    config: RunConfig
    key: str  # digest of everything that its scores depend on
    path: Path  # of its file
    run_folder: Path  # shared by trials of equal data set, selection and training

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.row.name}, T = {self.horizon}, seed {self.seed}"

    def write(self, record: TrialFile | FailureFile) -> None:
        """Write its file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record.write(self.path)

    def write_failure(self, error: str, traceback: str | None = None) -> None:
        """Write why it has no scores, and the traceback of a defect."""
        record = FailureFile(
            key=self.key,
            row=self.row.name,
            horizon=self.horizon,
            seed=self.seed,
            error=error,
            traceback=traceback,
        )
        self.write(record)


class _Place(FileRecord):
    """Names a trial of a study: its row, horizon and seed."""

    what: ClassVar[str] = "trial"
    remedy: ClassVar[str] = "Remove it to score the trial again."

    row: str
    horizon: int
    seed: int


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
    evidence: Evidence | None = ABSENT  # whether the energy adds anything


class TrialFile(TrialScores):
    """The file of a scored trial."""

    sealed: ClassVar[bool] = True

    key: str  # `Trial.key`
    videos: list[int]  # as in `WindowList`
    starts: list[int]


class ScoredTrial(TrialScores):
    """A scored trial in a results file."""

    scored: list[int] | None  # numbers of its windows among those of the horizon; None for all


class FailedTrial(_Place):
    """A trial without scores."""

    error: str  # the error and its remedy


class FailureFile(FailedTrial):
    """The file of a trial that could not be scored."""

    sealed: ClassVar[bool] = True

    key: str  # `Trial.key`
    traceback: str | None = ABSENT  # of a defect


def read_trial(trial: Trial) -> TrialFile | FailureFile | None:
    """Read the file of a trial; None if there is none, or only one of other settings."""
    if not trial.path.exists():
        return None
    value = read_json(trial.path, TrialFile.remedy, RunError)
    if not isinstance(value, dict) or value.get("key") != trial.key:
        return None
    return parse_trial(value, trial.path)


def parse_trial(value: Any, path: Path) -> TrialFile | FailureFile:
    """Validate the content of a trial's file."""
    failed = isinstance(value, dict) and "error" in value
    return FailureFile.parse(value, path) if failed else TrialFile.parse(value, path)
