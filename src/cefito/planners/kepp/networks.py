"""The two networks of KEPP: one restores the ends of a plan, the other plans along walks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Queries, Shape
from cefito.planners.diffusion.loss import DiffusionLoss
from cefito.planners.diffusion.matrix import ColumnBlock, Layout
from cefito.planners.diffusion.network import BLOCK, DiffusionNetwork, end_weights
from cefito.planners.diffusion.planner import sampled_scores
from cefito.planners.kepp.settings import KeppConfig, KeppSettings
from cefito.planners.network import TrainedNetwork
from cefito.planners.shared.graph import likeliest_walks, transition_probabilities
from cefito.planners.shared.transitions import counted_transitions
from cefito.training.settings import TrainingConfig


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
        found = [self._between(first, last) for first, last in pairs.tolist()]
        walks = np.array(found, dtype=np.int64).reshape(len(pairs), self.count, self.horizon)
        return walks[place.reshape(-1)]

    def _between(self, first: int, last: int) -> NDArray[np.int64]:
        walks = likeliest_walks(
            self.probabilities, first=first, last=last, horizon=self.horizon, count=self.count
        )
        if not len(walks):
            half = self.horizon // 2
            walks = np.array([[first] * (self.horizon - half) + [last] * half])
        return np.concatenate([walks, np.repeat(walks[-1:], self.count - len(walks), axis=0)])


def walk_block(walks: Tensor, action_count: int, *, summed: bool = False) -> Tensor:
    """Walks [B, R, T], likeliest first, as columns of a plan's matrix, float32 [B, T, K].

    Weights fall in equal steps and add up to one: 2/3 and 1/3 for two walks. If walks agree, their
    weights are `summed`, or the last one is taken.
    """
    batch, count, horizon = walks.shape
    block = torch.zeros(batch, horizon, action_count, device=walks.device)
    for place, actions in enumerate(walks.unbind(1)):
        weight = 2 * (count - place) / (count * (count + 1))
        if summed:
            block.scatter_add_(2, actions[:, :, None], torch.full_like(block[:, :, :1], weight))
        else:
            block.scatter_(2, actions[:, :, None], weight)
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

    @override
    def observe(self, train: Windows) -> None:
        counts = counted_transitions(train, self.action_count, "videos")
        self.counts.copy_(torch.from_numpy(counts))


class PlanNetwork(DiffusionNetwork):
    """Denoises plans, given the observations and walks between the predicted ends.

    Walks, int64 [B, R, T], fill two blocks: the block of the graph, and the block of plans by a
    language model, which repeats the graph's without such plans, as published.
    """

    def __init__(self, config: KeppConfig, shape: Shape) -> None:
        actions = shape.actions
        fill = partial(walk_block, action_count=actions, summed=config.agreement == "sum")
        blocks = (ColumnBlock("graph", actions, fill), ColumnBlock("language", actions, fill))
        layout = Layout(shape=shape, before=blocks)
        super().__init__(config=config.plan, layout=layout, last_skip=False)


@dataclass(frozen=True)
class StepModel(TrainedNetwork[KeppStepNetwork]):
    """A trained step network, and walks of the graph between the ends that it predicts."""

    title: ClassVar[str] = "KEPP step network"
    part: ClassVar[str] = "kepp_step"
    stream: ClassVar[int] = 20
    ignored = frozenset({"plan", "paths", "folds", "agreement", "walks", "knowledge"})
    build = KeppStepNetwork
    loss = DiffusionLoss

    @override
    @classmethod
    def training_of(cls, settings: KeppSettings) -> TrainingConfig:
        return settings.kepp.step.training

    @override
    @classmethod
    def config_of(cls, settings: KeppSettings) -> KeppConfig:
        return settings.kepp

    @override
    @classmethod
    def observe(cls, network: KeppStepNetwork, train: Windows, *given: Any) -> None:
        network.observe(train)

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
