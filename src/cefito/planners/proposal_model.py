"""Proposing actions for each step of a query.

The proposal network with its training, saving and loading.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.field.config import ProposalConfig
from cefito.field.proposal import ProposalNetwork
from cefito.planners.base import Queries
from cefito.planners.trained import TrainedNetwork, TrainingContext
from cefito.training.objectives import ProposalObjective
from cefito.training.parts import TrainingConfig
from cefito.training.trainer import generator_for

__all__ = ["ProposalModel"]


class ProposalModel(TrainedNetwork[ProposalNetwork]):
    """A proposal network that can be fitted, saved and loaded.

    Args:
        config: The network.
        training: How it is trained.
        context: Where it is trained.
    """

    title = "proposal network"
    file = "proposal.safetensors"

    def __init__(
        self,
        *,
        config: ProposalConfig,
        training: TrainingConfig,
        context: TrainingContext = TrainingContext(),
    ) -> None:
        super().__init__(context=context)
        self.config, self.training = config, training

    def fit(
        self,
        train_windows: Windows,
        val: Windows,
        *,
        actions: Mapping[int, tuple[int, ...]],
        seed: int,
    ) -> None:
        """Train the network on windows, keep the epoch of the best validation likelihood.

        Args:
            train_windows: Training windows.
            val: Validation windows.
            actions: Action ids that each task may use, among which a step's action is told apart;
                all of them for tasks left out.
            seed: Seed of weights, batches, noise and dropout.
        """
        network = ProposalNetwork(
            config=self.config,
            observation_dim=train_windows.initial.shape[1],
            action_count=len(train_windows.taxonomy.actions),
            horizon=train_windows.horizon,
        )
        network.reset(generator_for("cpu", seed, 5))
        network.to(self.device)
        objective = ProposalObjective(
            proposal=network, train=train_windows, val=val, actions=actions, config=self.training
        )
        if self.config.centre:
            network.mean.copy_(objective.observations.mean)
        self.result = self.context.train(
            self.title,
            objective,
            self.training,
            seed=seed,
            settings=[
                train_windows.horizon,
                self.config.model_dump(),
                self.training.model_dump(),
                sorted(actions.items()),
            ],
        )
        self.network = network

    @torch.inference_mode()
    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Logits of each step's action over all actions, whichever the task, [N, T, K].

        Raises:
            RunError: Not fitted, or observations of another dimension.
        """
        network = self.ready()
        logits = network(*self.observations(queries, network.observation_dim))
        return np.asarray(logits.float().cpu().numpy())

    def build(self, tensors: Mapping[str, Tensor]) -> ProposalNetwork:
        """A proposal network for weights of its sizes."""
        horizon, action_count = tensors["bias"].shape
        (observation_dim,) = tensors["mean"].shape
        return ProposalNetwork(
            config=self.config,
            observation_dim=observation_dim,
            action_count=action_count,
            horizon=horizon,
        )
