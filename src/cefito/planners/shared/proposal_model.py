"""Proposing actions for each step of a query: the network with its training and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.field.proposal import ProposalNetwork
from cefito.field.settings import ProposalConfig
from cefito.planners.base import Queries
from cefito.planners.context import TrainingContext
from cefito.planners.network import TrainedNetwork, finite_outputs, train_network
from cefito.runtime import Stream
from cefito.training.proposal_loss import ProposalLoss
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import TrainingResult

__all__ = ["ProposalModel"]


@dataclass(frozen=True)
class ProposalModel(TrainedNetwork[ProposalNetwork]):
    """A trained proposal network."""

    title: ClassVar[str] = "proposal network"
    file: ClassVar[str] = "proposal.safetensors"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: ProposalConfig,
        training: TrainingConfig,
        actions: Mapping[int, tuple[int, ...]],
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train the network on windows, keep the epoch of the best validation likelihood.

        Args:
            train: Training windows.
            val: Validation windows.
            config: The network.
            training: How it is trained.
            actions: Action ids that each task may use, among which it learns to tell a step's
                action; tasks that are left out may use all.
            seed: Seed of weights, batches, noise and dropout.
            context: Where it is trained.
        """
        network = ProposalNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            action_count=len(train.taxonomy.actions),
            horizon=train.horizon,
        )
        result = train_network(
            network,
            lambda network: ProposalLoss(
                proposal=network, train=train, val=val, actions=actions, config=training
            ),
            name=cls.title,
            training=training,
            stream=Stream.PROPOSALS,
            seed=seed,
            settings=[
                train.horizon,
                config.model_dump(),
                training.model_dump(),
                sorted(actions.items()),
            ],
            context=context,
            centre=config.centre,
        )
        return cls(network), result

    @classmethod
    def load(
        cls, folder: Path, *, config: ProposalConfig, device: torch.device | str = "cpu"
    ) -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(_build, config), device=device))

    @torch.inference_mode()
    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Logits of each step's action over all actions, whichever the task, [N, T, K].

        Raises:
            RunError: Observations of another dimension.
        """
        logits = self.network(*self.observations(queries, self.network.observation_dim))
        return np.asarray(finite_outputs(logits, self.title).float().cpu().numpy())


def _build(config: ProposalConfig, tensors: Mapping[str, Tensor]) -> ProposalNetwork:
    """A proposal network for weights of its sizes."""
    horizon, action_count = tensors["bias"].shape
    (observation_dim,) = tensors["mean"].shape
    return ProposalNetwork(
        config=config, observation_dim=observation_dim, action_count=action_count, horizon=horizon
    )
