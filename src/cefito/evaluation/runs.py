"""Scoring a run folder, and keeping the scores in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.windows import cut_windows
from cefito.errors import ConfigError
from cefito.evaluation.score import evaluate_planner
from cefito.files import write_json
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.run import Run
from cefito.planners.settings import RunConfig
from cefito.search.settings import changed_settings

__all__ = ["SAMPLE_SEED", "changed_search", "evaluate_run"]

SAMPLE_SEED = 0
"""Seed of the sample of windows, so that samples of one size are the same for all runs."""


def evaluate_run(
    run: Run[Any],
    *,
    split: str = "test",
    oracle_task: bool = False,
    sample: int | None = None,
    dataset: Path | None = None,
) -> tuple[dict[str, Any], Path]:
    """Score a run on a split of its data set.

    With the settings of the search that its planner has now.

    Where these are not the settings of the run itself, the file's name tells what differs. Scores
    of imported weights, which have no data set of their own, bear the beginning of the data set's
    fingerprint.

    Args:
        run: An opened run.
        split: "train", "val" or "test".
        oracle_task: Plan with the true tasks.
        sample: Score a fixed random sample of so many windows.
        dataset: Where the data set lies, if it has moved.

    Returns:
        The scores, and the file in the run folder that holds them.

    Raises:
        ConfigError: A sample below 1.
        RunError: The data set is gone or another one.
        DataError: The split gives no windows.
    """
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.")
    data = run.dataset(dataset)
    windows = cut_windows(data, horizon=run.horizon, split=split)
    chosen = windows.sample(sample, SAMPLE_SEED)
    planner = run.planner
    evaluation, _ = evaluate_planner(
        planner, chosen, oracle_task=oracle_task, sampled_from=len(windows)
    )
    value = evaluation.to_dict() | {
        "fingerprint": data.fingerprint,
        "method": run.method,
        "seed": run.info["seed"],
        "preset": run.info["preset"],
        "selection": run.info.get("selection", "held-out"),
    }
    if isinstance(planner, CefitoPlanner):
        space = planner.space
        fallback = space.fallback if space else ()
        value |= {
            "actions_from": space.source if space else None,
            "search": planner.config.search.model_dump(mode="json"),
            "weights": vars(planner.weights),
            "tasks_without_training": {
                "tasks": list(fallback),
                "windows": int(np.isin(chosen.tasks, fallback).sum()),
            },
        }
    name = "-".join(
        [
            "evaluation",
            split,
            *(["oracle-task"] if oracle_task else []),
            *([f"sample-{len(chosen)}"] if len(chosen) < len(windows) else []),
            *([] if run.info["dataset"]["fingerprint"] else [data.fingerprint[:12]]),
            *(setting.replace(" ", "-") for setting in changed_search(run)),
        ]
    )
    path = run.folder / f"{name}.json"
    write_json(path, value)
    return value, path


def changed_search(run: Run[Any]) -> list[str]:
    """The settings of the search in which a run's planner differs now from how it was trained.

    Each as "option value".
    """
    if not isinstance(run.planner, CefitoPlanner):
        return []
    return changed_settings(
        run.planner.config.search, RunConfig.model_validate(run.info["config"]).search
    )
