"""Calibration of a run's sets of plans by conformal prediction, each video as one observation.

Split conformal prediction (Vovk et al. 2005; Angelopoulos and Bates, arXiv 2107.07511) for
hierarchical data. Windows of a video are not exchangeable, videos are: scores are pooled with
weight 1 / n_v in a video of n_v windows (CDF pooling of Dunn, Wasserman and Ramdas, arXiv
1809.07441), and the new video counts as one more whose score is infinite (hierarchical conformal
prediction of Lee, Barber and Willett, arXiv 2306.06342). A set at level 1 − α then holds the truth
of a random window of a new video with probability at least 1 − α.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.folds import fold_view, folds_of, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows, cut_windows, split_videos
from cefito.errors import RunError
from cefito.inference.sets import LARGEST_SET, first_steps
from cefito.locks import locked
from cefito.parts.coverage import Condition, Coverage, Reals, WindowScores, weights_digest
from cefito.parts.folder import recorded, window_sizes
from cefito.parts.matching import match_dataset
from cefito.planners.base import Planner, Queries
from cefito.planners.base_planner import check_probabilities, plans_lengths
from cefito.planners.methods import RunConfig, find_method
from cefito.planners.shared.settings import CoverageConfig
from cefito.progress import Progress, prefixed, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.search.problem import Plans

_FOLDER = "coverage"  # of the trainings of folds, in the run folder, removed at the end
_TOGETHER = 32  # queries whose pairs of first steps are held at once


def calibrate_run(
    run: Run,
    *,
    folds: int | None = None,
    dataset: Path | str | None = None,
    device: torch.device | str | None = None,
    progress: Progress = silent,
) -> Coverage:
    """Calibrate the sets of a run, and keep their thresholds in its folder.

    Without folds, scores are those of the run itself on validation videos (split conformal
    prediction). With K folds (cross-conformal prediction, Vovk 2015; Barber et al. 2021), its
    training is repeated K times, of one member, without a K-th of the training videos (whole groups
    of these, if there are any), and scores are those of the videos left out. An interrupted
    calibration continues after the last finished training.

    Args:
        run: An opened run whose plans have probabilities.
        folds: Number of folds; 0 for validation videos; by default as the setting `coverage.folds`
            of the run says.
        dataset: The run's data set, if it has moved; without folds any data set with validation
            videos of the same kind.
        device: Where folds are trained.
        progress: Shows progress.

    Raises:
        ConfigError: Plans without probabilities, or a number of folds that is not possible.
        RunError: The data set is gone or does not fit, or the run cannot be trained again.
    """
    check_probabilities(run.planner, "coverage")
    data = run.dataset(dataset)
    splits = split_videos(data.videos)
    val, train = splits["val"], [data.videos[video] for video in splits["train"]]
    known = run.trained_on(data, val)
    config = run.config.parts.get("coverage") or CoverageConfig()
    if folds is None and config.folds != "auto":
        folds = config.folds
    if folds is None:
        held = len(val) < config.few_videos or known is not False
        folds = int(folds_of(train, config.most_folds).max()) + 1 if held else 0
    if not folds and known is not False:
        found = "was" if known else "does not say whether it was"
        raise RunError(
            f"{run.place}: {found} trained on validation videos, so these cannot calibrate its "
            "sets. Calibrate by cross-validation, with 10 folds, or on another data set.",
            setting="folds",
        )
    run.check_own()
    with locked(run.folder / _FOLDER, "a calibration"):
        if folds:
            scores = _fold_scores(run, data, folds, config.windows, device, progress)
        else:
            windows = match_dataset(run, data).windows("val")[0]
            scores = _all_scores(run.planner, windows, config.windows, "scores", progress)
        coverage = Coverage.fit(
            dict(zip(conditions(run.planner), scores, strict=True)),
            weights=weights_digest(run.files),
            fingerprint=data.fingerprint,
            steps=run.steps,
            folds=folds,
        )
        with recorded(run.folder):
            coverage.save(run.folder)
    shutil.rmtree(run.folder / _FOLDER, ignore_errors=True)
    return coverage


def _fold_scores(
    run: Run,
    data: PreparedDataset,
    folds: int,
    most: int,
    device: torch.device | str | None,
    progress: Progress,
) -> list[WindowScores]:
    """Return the scores of training windows, each by a planner trained without its video."""
    info, splits = run.info, split_videos(data.videos)
    videos = splits["train"]
    if info.started_from is not None or info.imported is not None or info.seed is None:
        raise RunError(
            f"{run.place}: was finetuned or imported, so its training cannot be repeated. "
            "Calibrate it on validation videos, with 0 folds.",
            setting="folds",
        )
    if data.fingerprint != info.dataset.fingerprint:
        raise RunError(
            f"{data.folder}: is not the data set that {run.place} was trained on. Give that one, "
            "or calibrate on validation videos, with 0 folds.",
            setting="folds",
        )
    parts = split_folds(data, videos, folds, least=0)
    method = find_method(info.method)
    settings = method.settings.model_validate(_single(run.config.settings.model_dump(mode="json")))
    config = RunConfig(method=info.method, preset=info.preset, settings=settings)
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
            progress=prefixed(progress, f"fold {fold + 1} of {folds}"),
            reuse=True,
            parts=(),
        )
        windows = cut_windows(
            view, **window_sizes(trained.planner, info.horizon, info.shortest), split="test"
        )
        name = f"scores of fold {fold + 1} of {folds}"
        found.append(_all_scores(trained.planner, windows, most, name, progress))
    return [WindowScores.concatenate(several) for several in zip(*found, strict=True)]


def _single(settings: Any) -> Any:
    """Return settings in which every model has one member, by section."""
    if not isinstance(settings, Mapping):
        return settings
    return {name: 1 if name == "members" else _single(part) for name, part in settings.items()}


def _all_scores(
    planner: Planner, windows: Windows, most: int, name: str, progress: Progress
) -> list[WindowScores]:
    """Return the scores for each condition, of at most so many windows of a video."""
    found = []
    with progress(name, total=len(conditions(planner))) as advance:
        for condition in conditions(planner):
            part = sampled(windows_for(windows, condition), most)
            found.append(window_scores(planner, part, condition))
            advance()
    return found


def window_scores(planner: Planner, windows: Windows, condition: Condition) -> WindowScores:
    """Score the windows of a condition; see `windows_for`.

    Args:
        planner: Fitted planner.
        windows: Windows with their true sequences.
        condition: What is known when planning.
    """
    planner, windows = planner_for(planner, condition), windows_for(windows, condition)
    queries = Queries.from_windows(windows, **dict(condition.given))
    next_step, next_two = _step_scores(planner, queries, windows.actions)
    return WindowScores(
        videos=windows.video,
        plans=_plan_scores(planner, queries, windows.actions),
        next_step=next_step,
        next_two=next_two,
    )


def conditions(planner: Planner) -> list[Condition]:
    """Return all conditions that a planner can be calibrated for."""
    several = plans_lengths(planner)
    lengths: list[int | None] = [*planner.lengths] if plans_lengths(planner) else [planner.horizon]
    if len(lengths) > 1:
        lengths.append(None)
    return [
        Condition(steps=steps, goal=goal, done=done, task=task)
        for steps in lengths
        for goal in ((True, False) if several else (True,))
        for done in ((False, True) if several else (False,))
        for task in ((False, True) if planner.abilities.true_task else (False,))
    ]


def sampled(windows: Windows, most: int, seed: int = 0) -> Windows:
    """Return at most `most` windows of each video, drawn at random, in their order.

    The guarantee is for a random window of a video, so that it stays.

    Args:
        windows: Windows of one split.
        most: Number of windows of a video.
        seed: Seed of the draw.
    """
    drawn = np.random.default_rng(seed).permutation(len(windows))
    ranked = drawn[np.argsort(windows.video[drawn], kind="stable")]
    _, first, counts = np.unique(windows.video[ranked], return_index=True, return_counts=True)
    place = np.arange(len(windows)) - np.repeat(first, counts)  # in the windows of its video
    return windows.subset(np.sort(ranked[place < most]))


def planner_for(planner: Planner, condition: Condition) -> Planner:
    """Return the planner of the number of steps of a condition."""
    if condition.steps is None or not plans_lengths(planner):
        return planner
    return planner.with_lengths(condition.steps, condition.steps)


def windows_for(windows: Windows, condition: Condition) -> Windows:
    """Return the windows of a condition.

    Without a goal and a number of steps, the plan reaches to the end of the video, or is as long as
    the longest.
    """
    if condition.steps is not None:
        return windows.of_length(condition.steps)
    if condition.goal:
        return windows
    assert windows.remaining is not None
    ends = np.minimum(windows.remaining, windows.horizon)
    return windows.subset(np.flatnonzero(windows.lengths == ends))


def _plan_scores(planner: Planner, queries: Queries, actions: NDArray[np.int64]) -> Reals:
    """Return the scores of true plans [N, T].

    If a planner gives probabilities only to the plans that it lists, others have a score of ∞.
    """
    logs = planner.log_probabilities(queries, actions) if len(queries) else np.zeros(0)
    listed = planner.plan(queries, LARGEST_SET if logs is None else 1)
    places = [_place(plans, truth) for plans, truth in zip(listed, actions, strict=True)]
    if logs is None:
        logs = np.full(len(queries), -np.inf)
        for row, (plans, place) in enumerate(zip(listed, places, strict=True)):
            if place is not None and plans.probabilities is not None:
                logs[row] = np.log(plans.probabilities[place])
    best = np.array([place == 0 for place in places], dtype=np.bool_)
    return np.where(best, 0.0, -logs)


def _place(plans: Plans, truth: NDArray[np.int64]) -> int | None:
    """Return the place of the true plan among those listed; None if it is not listed."""
    found = np.flatnonzero((plans.actions == truth[: plans.actions.shape[1]]).all(axis=1))
    return int(found[0]) if len(found) else None


def _step_scores(
    planner: Planner, queries: Queries, actions: NDArray[np.int64]
) -> tuple[Reals | None, Reals | None]:
    """Return the scores of first steps, and of first pairs, of true plans [N, T]; None if unknown.

    There are no pairs if all plans have one step.
    """
    none = planner.vocabulary.actions or 0  # in the place of the second action if there is none
    second = np.where(actions[:, 1:2] < 0, none, actions[:, 1:2])
    one: list[Reals] = []
    two: list[Reals] = []
    for number, block in enumerate(queries.blocks(_TOGETHER)):
        rows = slice(number * _TOGETHER, (number + 1) * _TOGETHER)
        steps, pairs = first_steps(planner, block)
        if steps is not None:
            one.append(_scores(steps, actions[rows, 0]))
        if pairs is not None and second.size:
            places = actions[rows, 0] * (none + 1) + second[rows, 0]
            two.append(_scores(pairs.reshape(len(block), -1), places))
    return np.concatenate(one) if one else None, np.concatenate(two) if two else None


def _scores(probabilities: NDArray[np.floating[Any]], truth: NDArray[np.int64]) -> Reals:
    """Return the scores of true places [N] among probabilities [N, …]."""
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities[np.arange(len(truth)), truth])
    return np.where(probabilities.argmax(axis=1) == truth, 0.0, -logs)
