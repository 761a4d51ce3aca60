"""Calibrate the sets of plans of a run, on validation videos or by cross-validation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.folds import fold_view, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows, cut_windows, split_videos
from cefito.errors import RunError
from cefito.evaluation.conformal import WindowScores, conditions, quantiles, sampled, windows_for
from cefito.locks import locked
from cefito.planners.base import Planner
from cefito.planners.checks import check_probabilities
from cefito.planners.methods import RunConfig, find_method
from cefito.progress import Progress, silent
from cefito.runs.coverage import COVERAGE_FILE, LEVELS, CoverageTable, Thresholds, weights_digest
from cefito.runs.folder import MANIFEST, recorded
from cefito.runs.matching import match_dataset
from cefito.runs.run import Run
from cefito.runs.train import train_run

FEW_VIDEOS = 50
"""Number of validation videos below which runs are calibrated by cross-validation."""
FOLDS = 10
_FOLDER = "coverage"  # of the trainings of folds, in the run folder, removed at the end
_WINDOWS = 20  # of a video that are scored under one condition, at most
_DIGITS = 4  # of thresholds, rounded up


def calibrate_run(
    run: Run,
    *,
    folds: int | None = None,
    dataset: Path | str | None = None,
    device: torch.device | str | None = None,
    progress: Progress = silent,
    begin: Callable[[int], None] | None = None,
) -> CoverageTable:
    """Calibrate the sets of a run, and keep their thresholds in its folder.

    Without folds, scores are those of the run itself on validation videos (split conformal
    prediction). With K folds (cross-conformal prediction, Vovk 2015; Barber et al. 2021), its
    training is repeated K times, of one member, without a K-th of the training videos, and scores
    are those of the videos left out. An interrupted calibration continues after the last finished
    training.

    Args:
        run: An opened run whose plans have probabilities.
        folds: Number of folds; 0 for validation videos; by default 10 if there are fewer than 50
            validation videos, or the run was trained on them, else 0.
        dataset: The run's data set, if it has moved; without folds any data set with validation
            videos of the same kind.
        device: Where folds are trained.
        progress: Shows progress.
        begin: Called with the number of trainings before they begin, if there are any.

    Raises:
        ConfigError: Plans without probabilities, or a number of folds that is not possible.
        RunError: The data set is gone or does not fit, or the run cannot be trained again.
    """
    check_probabilities(run.planner, "coverage")
    data = run.dataset(dataset)
    val = split_videos(data.videos)["val"]
    known = run.trained_on(data, val)
    if folds is None:
        folds = FOLDS if len(val) < FEW_VIDEOS or known is not False else 0
    if not folds and known is not False:
        found = "was" if known else "does not say whether it was"
        raise RunError(
            f"{run.folder}: {found} trained on validation videos, so these cannot calibrate its "
            "sets. Calibrate by cross-validation, with 10 folds, or on another data set.",
            setting="folds",
        )
    run.check_own()
    with locked(run.folder / _FOLDER, "a calibration"):
        scores = (
            _fold_scores(run, data, folds, device, progress, begin)
            if folds
            else _validation_scores(run, data, progress)
        )
        table = CoverageTable(
            weights=weights_digest(run.files),
            fingerprint=data.fingerprint,
            steps=run.steps,
            folds=folds,
            thresholds=tuple(
                Thresholds(
                    condition=condition,
                    videos=len(np.unique(own.videos)),
                    plans=_rounded(own.plans, own.videos),
                    next_step=_rounded(own.next_step, own.videos),
                    next_two=_rounded(own.next_two, own.videos),
                )
                for condition, own in zip(conditions(run.planner), scores, strict=True)
                if len(own.videos)
            ),
        )
        listed = (run.folder / MANIFEST).exists()
        with recorded(run.folder) if listed else nullcontext():
            table.write(run.folder / COVERAGE_FILE)
    shutil.rmtree(run.folder / _FOLDER, ignore_errors=True)
    return table


def _validation_scores(run: Run, data: PreparedDataset, progress: Progress) -> list[WindowScores]:
    """Return the scores of validation windows for each condition."""
    windows, _ = match_dataset(run, data).windows("val")
    return _scores(run.planner, windows, "scores", progress)


def _fold_scores(
    run: Run,
    data: PreparedDataset,
    folds: int,
    device: torch.device | str | None,
    progress: Progress,
    begin: Callable[[int], None] | None,
) -> list[WindowScores]:
    """Return the scores of training windows, each by a planner trained without its video."""
    info, splits = run.info, split_videos(data.videos)
    videos = splits["train"]
    if info.started_from is not None or info.imported is not None or info.seed is None:
        raise RunError(
            f"{run.folder}: was finetuned or imported, so its training cannot be repeated. "
            "Calibrate it on validation videos, with 0 folds.",
            setting="folds",
        )
    if data.fingerprint != info.dataset.fingerprint:
        raise RunError(
            f"{data.folder}: is not the data set that {run.folder} was trained on. Give that one, "
            "or calibrate on validation videos, with 0 folds.",
            setting="folds",
        )
    parts = split_folds(data, videos, folds, least=0)
    method = find_method(info.method)
    settings = method.settings.model_validate(_single(info.config))
    config = RunConfig(method=info.method, preset=info.preset, settings=settings)
    if begin is not None:
        begin(folds)
    found = []
    for fold, held in enumerate(parts):
        train = sorted(set(videos) - set(held))
        view = fold_view(data, train=train, val=splits["val"], held=held)
        trained = train_run(
            view,
            run.folder / _FOLDER / f"{folds}-{fold}",
            config=config,
            horizon=info.horizon,
            shortest=info.shortest,
            seed=info.seed,
            device=device,
            progress=progress,
            reuse=True,
            tracker="none",
        )
        several = run.planner.abilities.any_length
        windows = cut_windows(
            view,
            horizon=info.horizon,
            shortest=(info.shortest or info.horizon) if several else None,
            split="test",
        )
        name = f"scores of fold {fold + 1} of {folds}"
        found.append(_scores(trained.planner, windows, name, progress))
    return [WindowScores.concatenate(several) for several in zip(*found, strict=True)]


def _single(settings: Any) -> Any:
    """Return settings in which every model has one member, by section."""
    if not isinstance(settings, Mapping):
        return settings
    return {name: 1 if name == "members" else _single(part) for name, part in settings.items()}


def _scores(
    planner: Planner, windows: Windows, name: str, progress: Progress
) -> list[WindowScores]:
    """Return the scores of windows for each condition."""
    found = []
    with progress(name, total=len(conditions(planner))) as advance:
        for condition in conditions(planner):
            part = sampled(windows_for(windows, condition), _WINDOWS)
            found.append(WindowScores.of(planner, part, condition))
            advance()
    return found


def _rounded(
    scores: NDArray[np.float64] | None, videos: NDArray[np.int64]
) -> tuple[float | None, ...] | None:
    """Return the thresholds of all levels, rounded up; None where no threshold reaches a level."""
    if scores is None:
        return None
    found = np.ceil(quantiles(scores, videos, LEVELS) * 10**_DIGITS) / 10**_DIGITS
    return tuple(float(value) if np.isfinite(value) else None for value in found)
