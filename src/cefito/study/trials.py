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
from cefito.planners.settings import RunConfig
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
    """A row at one horizon with one seed, as `Study.trials` lists them.

    Attributes:
        row: The row.
        horizon: T.
        seed: Seed of the training.
        config: All settings.
        key: Digest of everything that its scores depend on.
        path: File of its scores.
        run_folder: Folder of its run, shared by trials of equal data set, selection and training.
    """

    row: PlannerVariant
    horizon: int
    seed: int
    config: RunConfig
    key: str
    path: Path
    run_folder: Path

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.row.name}, T = {self.horizon}, seed {self.seed}"

    def write(self, record: TrialFile | FailureFile) -> None:
        """Write its file.

        Raises:
            RunError: The file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record.write(self.path)

    def write_failure(self, error: str, traceback: str | None = None) -> None:
        """Write why it has no scores.

        Args:
            error: The error and its remedy, in one line.
            traceback: Traceback of a defect.

        Raises:
            RunError: The file cannot be written.
        """
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
    """The scores of a trial.

    Attributes:
        method: Name of the method.
        selection: Windows that epochs and weights were chosen on.
        parameters: Parameters of each network, by its name.
        training: Result of each network's training, by its name.
        success: A digit for each window, 1 if the whole sequence was right.
        weights: Weights of the objective's terms, of planners that have any.
        tasks_searched: Number of likeliest tasks searched, of planners that search tasks.
        evidence: Test of whether the energy adds anything, of planners that have one.
    """

    what: ClassVar[str] = _Place.what
    remedy: ClassVar[str] = _Place.remedy

    method: str
    selection: Selection
    parameters: dict[str, int]
    training: dict[str, TrainingResult]
    success: str
    weights: dict[str, float] | None = ABSENT
    tasks_searched: int | None = ABSENT
    evidence: Evidence | None = ABSENT


class TrialFile(TrialScores):
    """The file of a scored trial.

    Attributes:
        key: `Trial.key`.
        videos: Video of each window, as its number in the data set.
        starts: Number of each window's first step in its video.
    """

    sealed: ClassVar[bool] = True

    key: str
    videos: list[int]
    starts: list[int]


class ScoredTrial(TrialScores):
    """A scored trial in a results file.

    Attributes:
        scored: Numbers of its windows among those of the horizon; None if it has all of them.
    """

    scored: list[int] | None


class FailedTrial(_Place):
    """A trial without scores.

    Attributes:
        error: The error and its remedy.
    """

    error: str


class FailureFile(FailedTrial):
    """The file of a trial that could not be scored.

    Attributes:
        key: `Trial.key`.
        traceback: Traceback of a defect; None for other errors.
    """

    sealed: ClassVar[bool] = True

    key: str
    traceback: str | None = ABSENT


def read_trial(trial: Trial) -> TrialFile | FailureFile | None:
    """Read the file of a trial; None if there is none, or only one of other settings.

    Raises:
        RunError: The file is damaged.
    """
    if not trial.path.exists():
        return None
    value = read_json(trial.path, TrialFile.remedy, RunError)
    if not isinstance(value, dict) or value.get("key") != trial.key:
        return None
    return parse_trial(value, trial.path)


def parse_trial(value: Any, path: Path) -> TrialFile | FailureFile:
    """Validate the content of a trial's file.

    Raises:
        RunError: It is damaged.
    """
    failed = isinstance(value, dict) and "error" in value
    return FailureFile.parse(value, path) if failed else TrialFile.parse(value, path)
