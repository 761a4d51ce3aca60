"""KEPP: knowledge-enhanced procedure planning (Nagasinghe et al., CVPR 2024).

Reimplemented from its published description; plans by a language model are not released.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from cefito.data.windows import Windows, video_folds
from cefito.errors import ConfigError
from cefito.planners.base import Abilities, Fitted, Queries, Shape
from cefito.planners.diffusion.loss import DiffusionLoss
from cefito.planners.diffusion.network import BLOCK, check_horizon
from cefito.planners.diffusion.planner import best_plans, sampled_scores
from cefito.planners.kepp.method import ABILITIES
from cefito.planners.kepp.networks import PlanNetwork, StepModel
from cefito.planners.kepp.settings import KeppConfig, KeppSettings
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.search.problem import Plans
from cefito.training.result import TrainingResult
from cefito.training.settings import TrainingConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class KeppPlanner(NetworkPlanner[PlanNetwork]):
    """Plans by projected diffusion with walks of a graph beside the plan; tasks play no part.

    A step network predicts the first and the last action, a graph of the transitions in training
    videos gives likely walks between them. Both are right about far more of their training windows
    than of any others, and a plan network that learns from such walks trusts them too much when
    planning. So training walks come from step networks and graphs of other videos ("out-of-fold").
    """

    abilities: ClassVar[Abilities] = ABILITIES
    title = "KEPP plan network"
    part = "kepp_plan"
    section = "kepp"
    stream = 21
    ignored = frozenset({"step", "paths", "folds", "walks", "knowledge"})
    build = PlanNetwork
    loss = DiffusionLoss
    config: KeppConfig
    step: StepModel | None = None  # None if the plan network is given no walks

    @override
    @classmethod
    def training_of(cls, settings: KeppSettings) -> TrainingConfig:
        return settings.kepp.plan.training

    @override
    @classmethod
    def sizes(cls, settings: KeppSettings, shape: Shape) -> dict[str, int]:
        walks = settings.kepp.knowledge != "none"
        step = StepModel.size(settings, shape) if walks else {}
        return step | super().sizes(settings, shape)

    @override
    @classmethod
    def fit(
        cls, train: Windows, val: Windows, *, settings: KeppSettings, **given: Any
    ) -> Fitted[Self]:
        config = settings.kepp
        _check_horizon(config, train.horizon)
        trainings: dict[str, TrainingResult] = {}
        step, walks, val_walks = None, _no_walks(train), _no_walks(val)
        if config.knowledge != "none":
            step, trainings = StepModel.train(train, val, settings, **given)
            val_walks = step.walks(Queries.from_windows(val))  # as when planning
            apart = None
            if config.paths == "out-of-fold":
                apart, results = _out_of_fold_walks(train, val, settings, **given)
                trainings |= results
            walks = step.walks(Queries.from_windows(train)) if apart is None else apart
        parts: dict[str, Any] = {"config": config, "step": step}
        planner, own = cls.train(train, val, settings, walks, val_walks, **parts, **given)
        return Fitted(planner, trainings | own)

    @override
    @classmethod
    def load(cls, folder: Path | str, *, settings: KeppSettings, **given: Any) -> Self:
        step = None
        if settings.kepp.knowledge != "none":
            step = StepModel.load(folder, settings=settings, **given)
        return super().load(folder, settings=settings, step=step, **given)

    @override
    def save(self, folder: Path | str) -> None:
        super().save(folder)
        if self.step is not None:
            self.step.save(folder)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name in tables; says which knowledge it lacks, and whether walks are in-sample."""
        config = self.config
        known = {"graph": "", "ends": "ends alone", "none": "no graph, no ends"}[config.knowledge]
        in_sample = config.knowledge != "none" and config.paths == "in-sample"
        return named_departures("KEPP", (known, "in-sample paths" if in_sample else ""))

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of both networks; the graph is counted, not learned."""
        return ({} if self.step is None else self.step.parameters) | super().parameters

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        sampling = self.config.plan.sampling + (self.config.step.sampling if self.step else 0)
        plans = []
        for block in queries.blocks(BLOCK):
            if self.step is None:
                walks = np.zeros((len(block), 0, self.horizon), dtype=np.int64)
            else:
                walks = self.step.walks(block)
            scores = sampled_scores(self, block, walks)
            plans += best_plans(scores, top_k, self.horizon * sampling)
        return plans


def _check_horizon(config: KeppConfig, horizon: int) -> None:
    """Refuse a horizon without a last action, or at which time would shrink to nothing."""
    if horizon < 2:
        raise ConfigError(
            "horizon 1: KEPP plans between a first and a last action. Choose a horizon of 2 or "
            "more.",
            setting="horizon",
        )
    if config.knowledge != "none":
        check_horizon(config.step, horizon, method="KEPP", section="kepp.step")
    check_horizon(config.plan, horizon, method="KEPP", section="kepp.plan")


def _out_of_fold_walks(
    train: Windows, val: Windows, settings: KeppSettings, **given: Any
) -> tuple[NDArray[np.int64] | None, dict[str, TrainingResult]]:
    """Walks of training windows [N, R, T], each by a step network and a graph of other videos.

    With a single video the result is None, after a warning.
    """
    config = settings.kepp
    count = min(config.folds, len(np.unique(train.video)))
    if count < 2:
        logger.warning(
            "there is a single training video: the walks that KEPP's plan network learns from come "
            "from that video itself; annotate more videos"
        )
        return None, {}
    folds = video_folds(train.video, count)
    walks = np.empty((len(train), config.walks, train.horizon), dtype=np.int64)
    results: dict[str, TrainingResult] = {}
    for fold in range(count):
        held, others = (np.flatnonzero(part) for part in (folds == fold, folds != fold))
        parts = train.subset(others), val, settings
        step, found = StepModel.train(*parts, suffix=f"-fold{fold + 1}of{count}", **given)
        results |= found
        walks[held] = step.walks(Queries.from_windows(train.subset(held)))
    return walks, results


def _no_walks(windows: Windows) -> NDArray[np.int64]:
    """No walks of windows [N, 0, T]."""
    return np.zeros((len(windows), 0, windows.horizon), dtype=np.int64)
