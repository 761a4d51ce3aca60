"""The cells of a study: where each lies, what its scores depend on, and how it is scored."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cefito.data.action_space import action_space
from cefito.data.windows import Windows, cut_windows, with_between
from cefito.errors import CefitoError, RunError
from cefito.evaluation.records import CellFile, FailureFile
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.evaluation.score import evaluate_planner, successes
from cefito.files import read_json
from cefito.precision import determining
from cefito.progress import Advance, Progress, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.runtime import pick_device
from cefito.study.variants import PlannerVariant

if TYPE_CHECKING:
    from cefito.study.study import Study

__all__ = ["Trial", "TrialScorer", "read_cell", "scored_windows", "write_failure"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A row at one horizon with one seed."""

    row: PlannerVariant
    horizon: int
    seed: int

    @property
    def place(self) -> str:
        """Which one it is, for messages."""
        return f"{self.row.name}, T = {self.horizon}, seed {self.seed}"

    def path(self, study: Study) -> Path:
        """The file that keeps its scores."""
        return study.folder(self.horizon, self.seed) / "cells" / f"{self.row.name}.json"

    def run_folder(self, study: Study) -> Path:
        """The run that it plans with: one for each data set, selection and settings of a method."""
        digest = _digest([study.dataset.fingerprint, study.selection, self._method_settings(study)])
        return study.folder(self.horizon, self.seed) / "runs" / f"{self.row.method}-{digest}"

    def key(self, study: Study) -> str:
        """A digest of all that its scores depend on."""
        row = self.row
        return _digest(
            [
                study.dataset.fingerprint,
                row.method,
                self._method_settings(study),
                dict(row.search),
                row.true_task,
                row.exhaustive and [study.costly, study.costly_sample],
                study.sample,
                study.selection,
                self.horizon,
                self.seed,
                *["true ends"] * row.true_ends,
                *["states between"] * row.true_between,
            ]
        )

    def _method_settings(self, study: Study) -> dict[str, Any]:
        settings = study.config(self.row, self.horizon).sections
        # so that cells of before precisions could be chosen count on
        kept: dict[str, Any] = determining(settings, "float32")
        return kept


def read_cell(study: Study, cell: Trial) -> CellFile | FailureFile | None:
    """What is kept of a cell; None where there is nothing, or something of other settings.

    Raises:
        RunError: The file is damaged, or holds another cell.
    """
    path = cell.path(study)
    if not path.exists():
        return None
    value = read_json(path, CellFile.remedy, RunError)
    if not isinstance(value, dict) or value.get("key") != cell.key(study):
        return None
    kind = FailureFile if "error" in value else CellFile
    record: CellFile | FailureFile = kind.parse(value, path)
    for name, ours, theirs in (
        ("row", cell.row.name, record.row),
        ("horizon", cell.horizon, record.horizon),
        ("seed", cell.seed, record.seed),
    ):
        if ours != theirs:
            raise RunError(f"{path}: {name}: {theirs}; expected {ours}. {CellFile.remedy}")
    return record


def write_failure(study: Study, cell: Trial, error: str, trace: str | None = None) -> None:
    """Keep why a cell has no scores.

    Args:
        study: The study.
        cell: The cell.
        error: What went wrong and what to do, in one line.
        trace: Traceback of a defect.
    """
    _write(
        study,
        cell,
        FailureFile(
            key=cell.key(study),
            row=cell.row.name,
            horizon=cell.horizon,
            seed=cell.seed,
            error=error,
            traceback=trace,
        ),
    )


def scored_windows(study: Study, row: PlannerVariant, horizon: int) -> tuple[Windows, int]:
    """The test windows that a row is scored on, and the number of all.

    Raises:
        DataError: There are none.
    """
    test = cut_windows(study.dataset, horizon=horizon, split="test")
    windows = test.sample(study.sample, SAMPLE_SEED)
    if row.exhaustive:
        train = cut_windows(study.dataset, horizon=horizon, split="train")
        sizes = np.array(
            [len(actions) for actions in action_space(train, "training").actions], dtype=float
        )
        if (sizes[windows.tasks] ** horizon).mean() > study.costly:
            # some of the other rows' windows, so that the row can be compared with them on these
            windows = windows.sample(study.costly_sample, SAMPLE_SEED)
    if row.true_between:
        windows = with_between(study.dataset, windows)
    return windows, len(test)


@dataclass(frozen=True)
class TrialScorer:
    """Scores cells and writes what became of them into their files.

    It can be sent to another process, where nothing is shown of its progress.

    Attributes:
        study: The study.
        progress: Shows progress.
    """

    study: Study
    progress: Progress = silent

    def __reduce__(self) -> tuple[Callable[..., TrialScorer], tuple[Study]]:
        return TrialScorer, (self.study,)

    def __call__(self, cell: Trial) -> None:
        """Train what the cell needs, score it and write its file.

        Raises:
            RunError: The file cannot be written.
        """
        try:
            scores = self._scores(cell)
        except CefitoError as problem:
            write_failure(self.study, cell, _line(problem))
        except Exception as problem:  # a planner that fails must not take the others with it
            logger.error("%s failed", cell.place)
            error = (
                f"{type(problem).__name__}: {_line(problem)}. This is a defect of the planner; the "
                "others are not concerned. Its traceback is kept in "
                f"{cell.path(self.study)}. Repeat the command once it is mended."
            )
            write_failure(self.study, cell, error, traceback.format_exc())
        else:
            _write(self.study, cell, scores)

    def _scores(self, cell: Trial) -> CellFile:
        study, row = self.study, cell.row

        def progress(
            description: str, *, total: int | None = None
        ) -> AbstractContextManager[Advance]:
            return self.progress(f"{cell.place}: {description}", total=total)

        run = _trained(study, cell, progress)
        planner = row.apply(run.planner)
        windows, whole = scored_windows(study, row, cell.horizon)
        evaluation, plans = evaluate_planner(
            planner,
            windows,
            oracle_task=row.true_task,
            oracle_ends=row.true_ends,
            oracle_between=row.true_between,
            sampled_from=whole,
            progress=progress,
        )
        description = planner.describe()
        return CellFile(
            **dict(evaluation),
            key=cell.key(study),
            row=row.name,
            seed=cell.seed,
            method=row.method,
            selection=study.selection,
            parameters=description.parameters,
            training=run.info.training,
            success="".join("01"[right] for right in successes(plans, windows).astype(int)),
            videos=windows.video.tolist(),
            starts=windows.start.tolist(),
            weights=description.weights,
            tasks_searched=description.tasks,
            evidence=description.evidence,
        )


def _trained(study: Study, cell: Trial, progress: Progress) -> Run:
    """The run of a cell, trained where there is none.

    Raises:
        RunError: A damaged run, or a training that diverged; the message says what to do.
    """
    folder = cell.run_folder(study)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        return train_run(
            study.dataset,
            folder,
            config=study.config(cell.row, cell.horizon),
            horizon=cell.horizon,
            seed=cell.seed,
            selection=study.selection,
            device=pick_device(study.device),
            progress=progress,
            trainings=folder.parents[1] / "trainings",
            reuse=True,
        )
    except RunError as problem:
        if str(folder) not in str(problem):
            raise
        raise RunError(
            f"{problem} Here: remove {folder} and repeat the command, which makes it again."
        ) from problem


def _write(study: Study, cell: Trial, record: CellFile | FailureFile) -> None:
    path = cell.path(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    record.write(path)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
