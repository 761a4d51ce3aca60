"""How long a study will take: a few steps of each training and a few plans of each row, scaled."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cefito.data.windows import fitting_windows, with_between
from cefito.errors import RunError
from cefito.evaluation.metrics import TOP_K
from cefito.planners.base import Planner, Queries
from cefito.planners.context import TrainingContext
from cefito.planners.registry import find_method
from cefito.progress import Progress, silent
from cefito.runs.info import RunInfo
from cefito.runtime import pick_device
from cefito.study.study import Study, missing_cells
from cefito.study.trials import Trial, scored_windows
from cefito.training.distributed import Processes
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import Loss, Term, TrainingResult

__all__ = ["estimate_seconds"]

_STEPS = 4
_QUERIES = 4


class _Few:
    """A loss with a few batches only, which measures itself."""

    def __init__(self, loss: Loss, batch_size: int) -> None:
        self.loss, self.length = loss, min(len(loss), _STEPS * batch_size)
        self.validating = 0.0

    @property
    def module(self) -> nn.Module:
        return self.loss.module

    def __len__(self) -> int:
        return self.length

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        return self.loss.terms(rows, generator, group)

    def validate(self, group: Processes) -> Mapping[str, float]:
        started = time.perf_counter()
        scores = self.loss.validate(group)
        self.validating = time.perf_counter() - started
        return scores


@dataclass(frozen=True, kw_only=True)
class _Rehearsal(TrainingContext):
    """Trains a few steps instead of all, and notes how long each whole training would take.

    Attributes:
        seconds: Seconds of each whole training, by what determines it.
        spent: Seconds that each rehearsal took.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    spent: list[float] = field(default_factory=list)

    def train(
        self, name: str, loss: Loss, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        optimiser, every = training.optimiser, training.stopping.every
        few = _Few(loss, optimiser.batch_size)
        short = training.model_copy(
            update={"optimiser": optimiser.model_copy(update={"epochs": 1})}
        )
        started = time.perf_counter()
        result = super().train(name, few, short, seed=seed, settings=settings)
        self.spent.append(time.perf_counter() - started)
        step = (self.spent[-1] - few.validating) / math.ceil(len(few) / optimiser.batch_size)
        steps = optimiser.epochs * math.ceil(len(loss) / optimiser.batch_size)
        validations = math.ceil(optimiser.epochs / every)
        self.seconds[json.dumps([name, settings])] = step * steps + few.validating * validations
        return result


@dataclass(frozen=True)
class _Rehearsed:
    """A planner that was trained a few steps.

    Attributes:
        planner: The planner; None where it fails.
        trainings: Seconds of each of its trainings, by what determines it.
        rest: Seconds of all else that fitting takes.
    """

    planner: Planner | None = None
    trainings: Mapping[str, float] = field(default_factory=dict)
    rest: float = 0.0


def estimate_seconds(study: Study, *, progress: Progress = silent) -> float:
    """Seconds that the missing cells of a study will take on one worker, roughly.

    Early stopping makes it less.

    Args:
        study: The study.
        progress: Shows progress.

    Raises:
        ConfigError: Settings that cannot be, or a planner that does not exist.
        DataError: The data set gives no windows.
    """
    cells = missing_cells(study)
    seconds = 0.0
    rehearsed: dict[tuple[str, int], _Rehearsed] = {}
    planning: dict[tuple[str, int], float] = {}
    done: set[Any] = set()
    with progress(
        "estimating the time", total=len({(cell.row.name, cell.horizon) for cell in cells})
    ) as advance:
        for cell in cells:
            folder = cell.run_folder(study)
            run, row = (folder.name, cell.horizon), (cell.row.name, cell.horizon)
            if run not in rehearsed:
                rehearsed[run] = _fit(study, cell)
            if row not in planning:
                planning[row] = _plan(study, cell, rehearsed[run].planner)
                advance()
            seconds += planning[row]
            if folder in done or _finished(folder):
                continue
            done.add(folder)
            seconds += rehearsed[run].rest
            for key, part in rehearsed[run].trainings.items():  # equal ones are done once
                seconds += 0 if (key, folder.parent) in done else part
                done.add((key, folder.parent))
    return seconds


def _finished(folder: Path) -> bool:
    try:
        return RunInfo.read(folder).finished
    except RunError:
        return False


def _fit(study: Study, cell: Trial) -> _Rehearsed:
    """Train a planner a few steps."""
    context = _Rehearsal(device=pick_device(study.device))
    try:
        train, val = fitting_windows(study.dataset, horizon=cell.horizon, selection=study.selection)
        method = find_method(cell.row.method)
        if method.planner.abilities.true_between:
            train, val = with_between(study.dataset, train), with_between(study.dataset, val)
        settings = study.config(cell.row, cell.horizon).settings
        started = time.perf_counter()
        fitted = method.planner.fit(train, val, settings=settings, seed=cell.seed, context=context)
        rest = time.perf_counter() - started - sum(context.spent)
    except Exception:  # it will fail in the study too, which says why
        return _Rehearsed()
    return _Rehearsed(fitted.planner, context.seconds, rest)


def _plan(study: Study, cell: Trial, planner: Planner | None) -> float:
    """Seconds of planning all windows of a row."""
    if planner is None:
        return 0.0
    row = cell.row
    windows, _ = scored_windows(study, row, cell.horizon)
    few = windows.subset(
        np.linspace(0, len(windows) - 1, min(_QUERIES, len(windows))).astype(np.int64)
    )
    started = time.perf_counter()
    try:
        queries = Queries.from_windows(
            few,
            oracle_task=row.true_task,
            oracle_ends=row.true_ends,
            oracle_between=row.true_between,
        )
        row.apply(planner).plan(queries, TOP_K)
    except Exception:  # likewise
        return 0.0
    return (time.perf_counter() - started) * len(windows) / len(few)
