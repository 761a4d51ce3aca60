"""Cross-validation by video: a run for each fold, trained without its videos and scored on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from cefito.data.folds import fold_view, known_videos, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.evaluation.orders import training_orders
from cefito.evaluation.plan_files import save_plans, window_plans
from cefito.evaluation.records import FoldScores, RunEvaluation
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.evaluation.score import (
    evaluate_planner,
    evaluate_plans,
    planned_tasks,
    task_scores,
    video_intervals,
)
from cefito.files import file_digest
from cefito.inference.plan_tables import check_plan_file
from cefito.locks import locked
from cefito.planners.base import Queries
from cefito.planners.checks import check_task_given
from cefito.planners.given import Given
from cefito.planners.methods import RunConfig, find_method
from cefito.progress import Progress, prefixed, silent
from cefito.runs.train import train_run
from cefito.search.problem import Plans

FOLD_SCORES = "folds.json"
"""File of the scores, in the folder of the runs."""


def cross_validate(
    dataset: PreparedDataset,
    *,
    config: RunConfig,
    horizon: int,
    folds: int = 5,
    shortest: int | None = None,
    seed: int = 0,
    all_videos: bool = False,
    out: Path | str | None = None,
    sample: int | None = None,
    plans_file: Path | str | None = None,
    device: torch.device | str | None = None,
    progress: Progress = silent,
    **given: bool,
) -> RunEvaluation:
    """Train a run for each fold on the videos of all others, and score all of them as one.

    Folds split the training and validation videos of each task evenly. Each training holds out a
    part of its videos for validation, as `split_videos` does. Every window is planned by the run
    that was trained without its video. Means are over all windows; intervals resample videos. The
    order-tolerant success rate takes the orders that all these videos keep.

    Args:
        dataset: An opened data set.
        config: The method and its settings.
        horizon: T.
        folds: Number of folds.
        shortest: As in `cefito.runs.train.train_run`.
        seed: Seed of everything drawn, of the folds as well.
        all_videos: Also use the videos of the test split.
        out: Folder that keeps the runs and the scores; finished runs in it are used again. By
            default nothing is kept.
        sample: Score a fixed random sample of this many windows.
        plans_file: Also save the plans of every window there, as `save_plans` does.
        device: Where to train and plan.
        progress: Shows progress.
        given: What the planner is given, by fields of `Given`.

    Raises:
        ConfigError: An invalid argument, or one that the planner makes no use of.
        DataError: The videos give no windows.
        RunError: The folder holds something else.
    """
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.", setting="sample")
    if plans_file is not None:
        check_plan_file(Path(plans_file), "save_plans")
    conditions = Given.of(**given)
    videos = known_videos(dataset, test=all_videos)
    parts = split_folds(dataset, videos, folds, seed=seed)
    several = find_method(config.method).planner.abilities.any_length
    every = cut_windows(
        fold_view(dataset, train=(), held=videos),
        horizon=horizon,
        shortest=(shortest or horizon) if several else None,
        split="test",
    )
    windows = every.sample(sample, SAMPLE_SEED)
    plans: dict[int, Plans] = {}  # of each window, by row
    tasks: dict[int, int] = {}
    scored: list[FoldScores] = []
    seconds = 0.0
    with _folder(out) as place:
        for fold, held in enumerate(parts):
            rows = np.flatnonzero(np.isin(windows.video, held))
            if not len(rows):
                continue
            own = windows.subset(rows)
            run = train_run(
                fold_view(dataset, train=sorted(set(videos) - set(held)), held=held),
                place / f"fold-{fold + 1}-of-{folds}",
                config=config,
                horizon=horizon,
                shortest=shortest,
                seed=seed,
                device=device,
                progress=prefixed(progress, f"fold {fold + 1} of {folds}"),
                reuse=True,
                tracker="none",
            )
            planner = run.planner
            if conditions.oracle_task:
                check_task_given(planner)
            evaluation, found = evaluate_planner(
                planner,
                own,
                progress=progress,
                **given,  # type: ignore[arg-type]
            )
            queries = Queries.from_windows(own, **given)
            predicted = planned_tasks(planner, queries, found)
            plans |= zip(rows.tolist(), found, strict=True)
            if predicted is not None:
                tasks |= zip(rows.tolist(), predicted.tolist(), strict=True)
            seconds += evaluation.seconds_per_query * len(own)
            scored.append(
                FoldScores(
                    videos=tuple(dataset.videos[video].video_id for video in held),
                    windows=len(own),
                    training=run.info.windows["train"],
                    metrics=evaluation.metrics,
                )
            )
        listed = [plans[row] for row in range(len(windows))]
        known = np.array([tasks[row] for row in range(len(windows))]) if tasks else None
        orders = training_orders(dataset, videos=videos)
        if plans_file is not None:
            save_plans(window_plans(dataset, windows, listed, tasks=known), Path(plans_file))
        pooled = evaluate_plans(
            listed,
            windows,
            planner=planner.name,
            tasks=known,
            seconds=seconds,
            orders=orders,
            sampled_from=len(every),
            given=conditions,
        )
        description = planner.describe()
        scores = RunEvaluation(
            **{**dict(pooled), "split": f"{folds} folds"},
            fingerprint=dataset.fingerprint,
            method=config.method,
            seed=seed,
            preset=config.preset,
            selection="held-out",
            actions_from=description.actions_from,
            search=description.search,
            parameters=description.parameters,
            intervals=video_intervals(listed, windows, tasks=known, orders=orders),
            per_task=task_scores(listed, windows, tasks=known, orders=orders),
            plans_sha256=None if plans_file is None else file_digest(Path(plans_file)),
            folds=scored,
        )
        scores.write(place / FOLD_SCORES)
    return scores


@contextmanager
def _folder(out: Path | str | None) -> Iterator[Path]:
    """Lock and yield the folder of the runs, one that is removed at the end by default."""
    if out is not None:
        with locked(Path(out), "a cross-validation"):
            yield Path(out)
        return
    with TemporaryDirectory(prefix="cefito-") as temporary:
        yield Path(temporary)
