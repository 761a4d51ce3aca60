"""KEPP: knowledge-enhanced procedure planning (Nagasinghe et al., CVPR 2024).

Reimplemented from its published description; plans by a language model are not released.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.data.windows import Windows, video_folds
from cefito.errors import ConfigError
from cefito.planners.base import Abilities, Fitted, Queries, Shape
from cefito.planners.diffusion.network import (
    BLOCK,
    ColumnBlock,
    DiffusionNetwork,
    Layout,
    check_horizon,
    end_weights,
)
from cefito.planners.diffusion.planner import DiffusionLoss, best_plans, sampled_scores
from cefito.planners.kepp.method import ABILITIES, KeppConfig, KeppSettings
from cefito.planners.network import NetworkPlanner, TrainedNetwork, named_departures
from cefito.planners.shared.transitions import (
    counted_transitions,
    likeliest_walks,
    transition_probabilities,
)
from cefito.search.problem import Plans
from cefito.training.settings import TrainingResult


@dataclass(frozen=True, eq=False)
class WalkGraph:
    """Counted transitions, with the likeliest walks between two actions."""

    counts: NDArray[np.int64]  # [K, K]
    horizon: int  # T ≥ 2, the actions of a walk
    count: int  # R, walks for each pair of ends

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability of each next action, zero after actions that nothing follows, [K, K]."""
        return transition_probabilities(self.counts)

    def between(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """The likeliest walks [N, R, T] between first and last actions [N, 2], likeliest first.

        Without any walk, the first action fills the first half of the plan (the longer one at odd
        T) and the last action the second; with fewer than R, the last walk is repeated.
        """
        pairs, place = np.unique(ends, axis=0, return_inverse=True)
        pair_walks = [self._between(first, last) for first, last in pairs.tolist()]
        walks = np.array(pair_walks, dtype=np.int64).reshape(len(pairs), self.count, self.horizon)
        return walks[place.reshape(-1)]

    def _between(self, first: int, last: int) -> NDArray[np.int64]:
        walks = likeliest_walks(
            self.probabilities, first=first, last=last, horizon=self.horizon, count=self.count
        )
        if not len(walks):
            half = self.horizon // 2
            walks = np.array([[first] * (self.horizon - half) + [last] * half])
        return np.concatenate([walks, np.repeat(walks[-1:], self.count - len(walks), axis=0)])


def walk_block(walks: Tensor, action_count: int) -> Tensor:
    """Walks [B, R, T], likeliest first, as columns of a plan's matrix, float32 [B, T, K].

    Weights fall in equal steps and add up to one: 2/3 and 1/3 for two walks. Where walks agree, the
    last one's is taken, so 1/3 means that two walks agree (published).
    """
    batch, count, horizon = walks.shape
    block = torch.zeros(batch, horizon, action_count, device=walks.device)
    for place, actions in enumerate(walks.unbind(1)):
        block.scatter_(2, actions[:, :, None], 2 * (count - place) / (count * (count + 1)))
    return block


class KeppStepNetwork(DiffusionNetwork):
    """Denoises the first and the last action, given the observations; between them all is zero.

    PDPP's network without the task and the last skip connection has the published size, here as
    below.
    """

    counts: Tensor  # transitions of training videos, each counted once, [K, K]

    def __init__(self, config: KeppConfig, shape: Shape) -> None:
        actions = shape.actions
        layout = Layout(shape=shape, ends_only=True)
        super().__init__(config=config.step, layout=layout, last_skip=False)
        self.walks, self.knowledge = config.walks, config.knowledge
        self.register_buffer("counts", torch.zeros(actions, actions, dtype=torch.int64))

    @override
    def row_weights(self) -> Tensor:
        return end_weights(self.horizon, self.config.ends, between=0.0)

    def observe(self, train: Windows) -> None:
        """Count the transitions of training windows."""
        counts = counted_transitions(train, self.action_count)
        self.counts.copy_(torch.from_numpy(counts))


class PlanNetwork(DiffusionNetwork):
    """Denoises plans, given the observations and walks between the predicted ends.

    Walks, int64 [B, R, T], fill two blocks: that of the graph, and that of plans by a language
    model, which repeats the graph's where there are no such plans, as published.
    """

    def __init__(self, config: KeppConfig, shape: Shape) -> None:
        actions = shape.actions
        fill = partial(walk_block, action_count=actions)
        blocks = (ColumnBlock(actions, fill),) * 2  # of the graph and of a language model
        layout = Layout(shape=shape, before=blocks)
        super().__init__(config=config.plan, layout=layout, last_skip=False)


@dataclass(frozen=True)
class StepModel(TrainedNetwork[KeppStepNetwork]):
    """A trained step network, and walks of the graph between the ends that it predicts."""

    title: ClassVar[str] = "KEPP step network"
    part: ClassVar[str] = "kepp_step"
    section: ClassVar[str] = "kepp"
    trained: ClassVar[str] = "kepp.step.training"
    stream: ClassVar[int] = 20
    ignored = frozenset({"plan", "paths", "folds", "walks", "knowledge"})
    build = KeppStepNetwork
    loss = DiffusionLoss

    @cached_property
    def graph(self) -> WalkGraph:
        """The graph of transitions; without any for the ends alone."""
        counts = self.network.counts.cpu().numpy()
        counts = counts if self.network.knowledge == "graph" else np.zeros_like(counts)
        return WalkGraph(counts, self.horizon, self.network.walks)

    def ends(self, queries: Queries) -> NDArray[np.int64]:
        """The first and the last action of each query, each the highest of its row, [N, 2]."""
        parts = [
            sampled_scores(self, block)[:, [0, -1]].argmax(axis=2)
            for block in queries.blocks(BLOCK)
        ]
        return np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts])

    def walks(self, queries: Queries) -> NDArray[np.int64]:
        """Walks of queries [N, R, T], likeliest first."""
        return self.graph.between(self.ends(queries))


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
    trained = "kepp.plan.training"
    stream = 21
    ignored = frozenset({"step", "paths", "folds", "walks", "knowledge"})
    build = PlanNetwork
    loss = DiffusionLoss
    config: KeppConfig
    step: StepModel

    @override
    @classmethod
    def sizes(cls, settings: KeppSettings, shape: Shape) -> dict[str, int]:
        return StepModel.size(settings, shape) | super().sizes(settings, shape)

    @override
    @classmethod
    def fit(
        cls, train: Windows, val: Windows, *, settings: KeppSettings, **options: Any
    ) -> Fitted[Self]:
        config = settings.kepp
        _check_horizon(config, train.horizon)
        step, trainings = StepModel.train(train, val, settings, **options)
        val_walks = step.walks(Queries.from_windows(val))  # as when planning
        walks = None
        if config.paths == "out-of-fold":
            walks, results = _out_of_fold_walks(train, val, settings, **options)
            trainings |= results
        if walks is None:
            walks = step.walks(Queries.from_windows(train))
        parts: dict[str, Any] = {"config": config, "step": step}
        planner, plan_results = cls.train(
            train, val, settings, walks, val_walks, **parts, **options
        )
        return Fitted(planner, trainings | plan_results)

    @override
    @classmethod
    def load(cls, folder: Path | str, *, settings: KeppSettings, **options: Any) -> Self:
        step = StepModel.load(folder, settings=settings, **options)
        return super().load(folder, settings=settings, step=step, **options)

    @override
    def save(self, folder: Path | str) -> None:
        super().save(folder)
        self.step.save(folder)

    @property
    def name(self) -> str:
        """Name in tables; says which knowledge it lacks, and whether walks are in-sample."""
        departures = (
            "ends alone" if self.config.knowledge == "ends" else "",
            "in-sample paths" if self.config.paths == "in-sample" else "",
        )
        return named_departures("KEPP", departures)

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of both networks; the graph is counted, not learned."""
        return self.step.parameters | super().parameters

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        sampling = self.config.plan.sampling + self.config.step.sampling
        plans = []
        for block in queries.blocks(BLOCK):
            scores = sampled_scores(self, block, self.step.walks(block))
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
    check_horizon(config.step, horizon, method="KEPP", section="kepp.step")
    check_horizon(config.plan, horizon, method="KEPP", section="kepp.plan")


def _out_of_fold_walks(
    train: Windows, val: Windows, settings: KeppSettings, **options: Any
) -> tuple[NDArray[np.int64] | None, dict[str, TrainingResult]]:
    """Walks of training windows [N, R, T], each by a step network and a graph of other videos.

    With a single video the result is None, after a warning.
    """
    config = settings.kepp
    count = min(config.folds, len(np.unique(train.units)))
    if count < 2:
        logger.warning(
            "there is a single training video: the walks that KEPP's plan network learns from come "
            "from that video itself; annotate more videos"
        )
        return None, {}
    folds = video_folds(train.units, count)
    walks = np.empty((len(train), config.walks, train.horizon), dtype=np.int64)
    results: dict[str, TrainingResult] = {}
    for fold in range(count):
        held, others = (np.flatnonzero(mask) for mask in (folds == fold, folds != fold))
        parts = train.subset(others), val, settings
        step, step_results = StepModel.train(*parts, suffix=f"-fold{fold + 1}of{count}", **options)
        results |= step_results
        walks[held] = step.walks(Queries.from_windows(train.subset(held)))
    return walks, results
