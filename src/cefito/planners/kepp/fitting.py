"""What the plan network of KEPP is told of training windows.

A step network is right about far more of the windows that it was trained on than of any others, and
a graph that counted a video leads along it. A plan network that learns from such walks trusts them
more than they deserve when planning. So they come from step networks and graphs of other videos.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows, video_folds
from cefito.planners.base import Queries
from cefito.planners.context import TrainingContext
from cefito.planners.kepp.networks import StepModel
from cefito.planners.kepp.settings import KeppConfig
from cefito.planners.kepp.walks import WalkGraph
from cefito.planners.shared.transitions import counted_transitions
from cefito.training.trainer import TrainingResult

__all__ = ["out_of_fold_walks", "walk_graph"]

logger = logging.getLogger(__name__)


def walk_graph(windows: Windows, config: KeppConfig) -> WalkGraph:
    """The graph of transitions in videos, each counted once; without any for the ends alone.

    Args:
        windows: Training windows of T ≥ 2 actions.
        config: What is told, and how many walks.
    """
    size = len(windows.taxonomy.actions)
    counts = (
        counted_transitions(windows, size, "videos")
        if config.knowledge == "graph"
        else np.zeros((size, size), dtype=np.int64)
    )
    return WalkGraph(counts, windows.horizon, config.walks)


def out_of_fold_walks(
    train: Windows,
    val: Windows,
    *,
    config: KeppConfig,
    seed: int,
    context: TrainingContext,
) -> tuple[NDArray[np.int64], Mapping[str, TrainingResult]] | None:
    """Walks of training windows, each by a step network and a graph of other videos.

    Each part of the videos has a training, and a checkpoint folder, of its own.

    Args:
        train: Training windows.
        val: Validation windows, on which the epoch of every step network is chosen.
        config: Settings of KEPP.
        seed: Seed of every step network.
        context: Where they are trained.

    Returns:
        Walks [N, R, T], and how the training of each step network went; None where there is a
        single training video, which a warning says.
    """
    count = min(config.folds, len(np.unique(train.video)))
    if count < 2:
        logger.warning(
            "there is a single training video: the walks that KEPP's plan network learns from come "
            "from that video itself; annotate more videos"
        )
        return None
    folds = video_folds(train.video, count)
    walks = np.empty((len(train), config.walks, train.horizon), dtype=np.int64)
    results = {}
    for fold in range(count):
        held, others = (np.flatnonzero(part) for part in (folds == fold, folds != fold))
        name = f"-fold{fold + 1}of{count}"
        inside = train.subset(others)
        model, results[StepModel.title + name] = StepModel.fit(
            inside, val, config=config.step, seed=seed, context=context, fold=name
        )
        ends = model.ends(Queries.from_windows(train.subset(held)))
        walks[held] = walk_graph(inside, config).between(ends)
    return walks, results
