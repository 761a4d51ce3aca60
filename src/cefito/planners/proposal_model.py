"""Proposing actions for each step of a query: the proposal network with its training, saving and loading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.field.config import ProposalConfig
from cefito.field.proposal import ProposalNetwork
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Queries
from cefito.progress import Progress, silent
from cefito.training.checkpoint import load_weights
from cefito.training.config import ProposalTrainingConfig
from cefito.training.distributed import Processes
from cefito.training.objectives import ProposalObjective
from cefito.training.trainer import TrainingResult, generator_for, train

__all__ = ["ProposalModel"]

_FILE = "proposal.safetensors"


class ProposalModel:
    """A proposal network that can be fitted, saved and loaded.

    Args:
        config: The network.
        training: How it is trained.
        device: Where it runs.
        folder: Where checkpoints and metrics of the training go; None keeps none.
        progress: Shows progress of the training.
        group: The processes that train together.
    """

    def __init__(self, *, config: ProposalConfig, training: ProposalTrainingConfig, device: torch.device | str = "cpu",
                 folder: Path | None = None, progress: Progress = silent, group: Processes | None = None) -> None:
        self.config, self.training, self.device = config, training, torch.device(device)
        self.folder, self.progress, self.group = folder, progress, group or Processes()
        self.network: ProposalNetwork | None = None
        self.result: TrainingResult | None = None

    @property
    def fitted(self) -> bool:
        """Whether there is a network to propose with."""
        return self.network is not None

    def fit(self, train_windows: Windows, val: Windows, *, actions: Mapping[int, tuple[int, ...]], seed: int, key: str = ""
            ) -> None:
        """Train the network on windows, keep the epoch of the best validation likelihood.

        Args:
            train_windows: Training windows.
            val: Validation windows.
            actions: Action ids that each task may use, among which a step's action is told apart.
            seed: Seed of weights, batches, noise and dropout.
            key: What else determines the result (the data set's fingerprint); guards checkpoints.
        """
        network = ProposalNetwork(config=self.config, observation_dim=train_windows.initial.shape[1],
                                  action_count=len(train_windows.taxonomy.actions), horizon=train_windows.horizon)
        network.reset(generator_for("cpu", seed, 5))
        network.to(self.device)
        objective = ProposalObjective(proposal=network, train=train_windows, val=val, actions=actions, config=self.training)
        if self.config.centre:
            network.mean.copy_(objective.observations.mean)
        settings = [self.config.model_dump(), self.training.model_dump(), sorted(actions.items())]
        self.result = train(objective, optimiser=self.training.optimiser, ema=self.training.ema,
                            stopping=self.training.stopping, seed=seed, folder=self.folder, label="proposal network",
                            key=json.dumps(["proposal", key, seed, train_windows.horizon, settings]),
                            progress=self.progress, group=self.group)
        self.network = network

    @torch.inference_mode()
    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Logits of each step's action over all actions, whichever the task, [N, T, K].

        Raises:
            RunError: Not fitted, or observations of another dimension.
        """
        if self.network is None:
            raise RunError("the proposal network has not been trained; call fit or load first.")
        expected = self.network.observation_dim
        if queries.initial.shape[1] != expected:
            raise RunError(f"observations have {queries.initial.shape[1]} features; this run was trained on {expected}.")
        logits = self.network(torch.from_numpy(queries.initial).to(self.device),
                              torch.from_numpy(queries.goal).to(self.device))
        return np.asarray(logits.float().cpu().numpy())

    def save(self, folder: Path) -> None:
        """Write the weights."""
        if self.network is None:
            raise RunError("the proposal network has not been trained; there is nothing to save.")
        write_tensors(folder / _FILE, self.network.state_dict())

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        tensors, _ = load_tensors(folder / _FILE, "pt", "Train the run again.", RunError)
        if "mean" not in tensors or "bias" not in tensors or tensors["mean"].ndim != 1 or tensors["bias"].ndim != 2:
            raise RunError(f"{folder / _FILE}: holds no proposal network. Train the run again.")
        horizon, action_count = tensors["bias"].shape
        network = ProposalNetwork(config=self.config, observation_dim=len(tensors["mean"]), action_count=action_count,
                                  horizon=horizon)
        load_weights(network, tensors, str(folder / _FILE))
        self.network = network.to(self.device).eval()
