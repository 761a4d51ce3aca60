"""The two networks of KEPP: one restores the ends of a plan, the other plans with walks beside it.

Both are PDPP's network with other blocks, without the task, and without the last connection past
the U-Net: only so are they of the published sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.planners.base import Queries
from cefito.planners.context import TrainingContext
from cefito.planners.diffusion.loss import end_weights
from cefito.planners.diffusion.matrix import Block, Layout
from cefito.planners.diffusion.model import DiffusionModel, saved_sizes
from cefito.planners.diffusion.network import BLOCK, DiffusionNetwork, check_horizon
from cefito.planners.diffusion.settings import DiffusionConfig
from cefito.planners.kepp.settings import KeppConfig
from cefito.planners.kepp.walks import walk_block
from cefito.runtime import Stream
from cefito.training.trainer import TrainingResult

__all__ = ["PlanModel", "PlanNetwork", "StepModel", "StepNetwork", "check_kepp_horizon"]


class StepNetwork(DiffusionNetwork):
    """Denoises the first and the last action, given the observations; between them all is zero.

    Args:
        config: Widths, steps, treatment of the observations.
        observation_dim: E.
        action_count: K.
        horizon: T.
    """

    def __init__(
        self, *, config: DiffusionConfig, observation_dim: int, action_count: int, horizon: int
    ) -> None:
        layout = Layout(
            action_count=action_count,
            observation_dim=observation_dim,
            horizon=horizon,
            ends_only=True,
        )
        super().__init__(config=config, layout=layout, last_skip=False)


class PlanNetwork(DiffusionNetwork):
    """Denoises plans, given the observations and walks between the predicted ends.

    Walks, int64 [B, R, T], fill two blocks: that of the graph, and that of plans by a language
    model, which repeats the graph's where there are none, as published.

    Args:
        config: Settings of KEPP.
        observation_dim: E.
        action_count: K.
        horizon: T.
    """

    def __init__(
        self, *, config: KeppConfig, observation_dim: int, action_count: int, horizon: int
    ) -> None:
        fill = partial(walk_block, action_count=action_count, summed=config.agreement == "sum")
        layout = Layout(
            before=(Block("graph", action_count, fill), Block("language", action_count, fill)),
            action_count=action_count,
            observation_dim=observation_dim,
            horizon=horizon,
        )
        super().__init__(config=config.plan, layout=layout, last_skip=False)


def check_kepp_horizon(config: KeppConfig, horizon: int) -> None:
    """See that there is a first and a last action, and that time does not shrink to nothing.

    Raises:
        ConfigError: T = 1, or more levels than the horizon has steps.
    """
    if horizon < 2:
        raise ConfigError(
            "horizon 1: KEPP plans between a first and a last action. Choose a horizon of 2 or "
            "more.",
            setting="horizon",
        )
    if config.knowledge != "none":
        check_horizon(config.step, horizon, method="KEPP", section="kepp.step")
    check_horizon(config.plan, horizon, method="KEPP", section="kepp.plan")


@dataclass(frozen=True)
class StepModel(DiffusionModel[StepNetwork]):
    """A trained step network."""

    title: ClassVar[str] = "KEPP step network"
    file: ClassVar[str] = "kepp-step.safetensors"
    stream: ClassVar[Stream] = Stream.KEPP_STEP

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: DiffusionConfig,
        seed: int,
        context: TrainingContext,
        fold: str = "",
    ) -> tuple[Self, TrainingResult]:
        """Train on windows, keep the epoch with most pairs of right ends on validation windows.

        Args:
            train: Training windows.
            val: Validation windows.
            config: The network and how it is trained.
            seed: Seed of weights, batches, times and noise.
            context: Where it is trained.
            fold: Name of the part of the training videos that is left out, if any.
        """
        network = StepNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            action_count=len(train.taxonomy.actions),
            horizon=train.horizon,
        )
        result = cls.train(
            network,
            train,
            val,
            known=(),
            val_known=(),
            weights=end_weights(train.horizon, config.ends, between=0.0),
            seed=seed,
            settings=[train.horizon, config.model_dump(), fold],
            context=context.part(f"kepp_step{fold}"),
            part=fold,
        )
        return cls(network), result

    @classmethod
    def load(cls, folder: Path, *, config: KeppConfig, device: str | torch.device = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """

        def build(tensors: Mapping[str, Tensor]) -> StepNetwork:
            return StepNetwork(config=config.step, **_sizes(tensors))

        return cls(cls.read(folder, build, device=device))

    def ends(self, queries: Queries) -> NDArray[np.int64]:
        """The first and the last action of each query, each the highest of its row, [N, 2].

        Raises:
            RunError: Observations of another dimension.
        """
        parts = [self.scores(block)[:, [0, -1]].argmax(axis=2) for block in queries.blocks(BLOCK)]
        return np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts])


@dataclass(frozen=True)
class PlanModel(DiffusionModel[PlanNetwork]):
    """A trained plan network."""

    title: ClassVar[str] = "KEPP plan network"
    file: ClassVar[str] = "kepp-plan.safetensors"
    stream: ClassVar[Stream] = Stream.KEPP_PLAN

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: KeppConfig,
        walks: NDArray[np.int64],
        val_walks: NDArray[np.int64],
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train on windows, keep the epoch of the best validation success rate.

        Args:
            train: Training windows.
            val: Validation windows.
            config: The network and how it is trained.
            walks: What is told of training windows, [N, R, T].
            val_walks: What is told of validation windows, as it is when planning.
            seed: Seed of weights, batches, times and noise.
            context: Where it is trained.
        """
        network = PlanNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            action_count=len(train.taxonomy.actions),
            horizon=train.horizon,
        )
        told = [sha256(part.tobytes()).hexdigest() for part in (walks, val_walks)]
        result = cls.train(
            network,
            train,
            val,
            known=(walks, walks),
            val_known=(val_walks, val_walks),
            weights=end_weights(train.horizon, config.plan.ends),
            seed=seed,
            settings=[train.horizon, config.plan.model_dump(), config.agreement, told],
            context=context.part("kepp_plan"),
        )
        return cls(network), result

    @classmethod
    def load(cls, folder: Path, *, config: KeppConfig, device: str | torch.device = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """

        def build(tensors: Mapping[str, Tensor]) -> PlanNetwork:
            return PlanNetwork(config=config, **_sizes(tensors))

        return cls(cls.read(folder, build, device=device))


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Sizes of the data set that a network was trained for."""
    found = saved_sizes(tensors)
    return {
        "observation_dim": found.observation_dim,
        "action_count": found.action_count,
        "horizon": found.horizon,
    }
