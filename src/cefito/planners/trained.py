"""What all trained networks share: where they train, and their fitting, saving and loading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Queries
from cefito.progress import Progress, silent
from cefito.training.checkpoint import load_weights
from cefito.training.distributed import Processes
from cefito.training.parts import TrainingConfig
from cefito.training.trainer import Objective, TrainingResult, train

__all__ = ["TrainedNetwork", "TrainingContext", "parameters_of", "results_of"]

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """Where and how a planner trains, apart from its settings.

    Attributes:
        device: Where the networks run.
        folder: Where checkpoints and metrics of the trainings go; None keeps none.
        name: Folder below it for this training; several trainings of one planner have one each.
        shared: Whether other planners train there too: folders then bear a digest of all that
            determines the result, so that equal trainings are done once and different ones keep
            apart.
        key: What else determines the result (the data set's fingerprint); guards checkpoints.
        progress: Shows progress.
        group: The processes that train together.
    """

    device: torch.device | str = "cpu"
    folder: Path | None = None
    name: str = ""
    shared: bool = False
    key: str = ""
    progress: Progress = silent
    group: Processes = field(default_factory=Processes)

    def part(self, name: str) -> TrainingContext:
        """The same for one of a planner's networks."""
        return replace(self, name=name)

    def train(
        self, name: str, objective: Objective, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        """Train an objective's network in place.

        Args:
            name: Name of the network, shown in the progress.
            objective: What to train.
            training: How.
            seed: Seed of batches and all that is drawn.
            settings: All else that determines the result, for JSON; a checkpoint made with others
                is refused.

        Raises:
            RunError: The checkpoint in the folder cannot be used or written, or the training
                diverged.
        """
        key = json.dumps([name, self.key, seed, settings])
        return train(
            objective,
            optimiser=training.optimiser,
            ema=training.ema,
            stopping=training.stopping,
            seed=seed,
            folder=self._place(key),
            label=name,
            key=key,
            progress=self.progress,
            group=self.group,
        )

    def _place(self, key: str) -> Path | None:
        if self.folder is None:
            return None
        digest = f"-{sha256(key.encode()).hexdigest()[:12]}" if self.shared else ""
        place = self.folder / f"{self.name}{digest}" if self.name else self.folder
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RunError(f"{place}: cannot be made ({problem.strerror}).") from problem
        return place


class TrainedNetwork(Generic[Network]):
    """A network that can be fitted, saved and loaded.

    Args:
        context: Where and how it trains.

    Attributes:
        network: The network; None before it is fitted or loaded.
        result: How its training went; None where it was loaded.
    """

    title: ClassVar[str]
    file: ClassVar[str]

    def __init__(self, *, context: TrainingContext) -> None:
        self.context, self.device = context, torch.device(context.device)
        self.network: Network | None = None
        self.result: TrainingResult | None = None

    @property
    def fitted(self) -> bool:
        """Whether there is a network to predict with."""
        return self.network is not None

    @property
    def parameters(self) -> int:
        """Learned numbers of the network."""
        return sum(tensor.numel() for tensor in self.ready().parameters() if tensor.requires_grad)

    def ready(self) -> Network:
        """The network.

        Raises:
            RunError: Neither fitted nor loaded.
        """
        if self.network is None:
            raise RunError(f"the {self.title} has not been trained; call fit or load first.")
        return self.network

    def observations(self, queries: Queries, expected: int) -> tuple[Tensor, Tensor]:
        """Initial and goal observations [N, E] on the device.

        Raises:
            RunError: They have not the expected number of features.
        """
        if queries.initial.shape[1] != expected:
            raise RunError(
                f"observations have {queries.initial.shape[1]} features; this run was trained on "
                f"{expected}."
            )
        return torch.from_numpy(queries.initial).to(self.device), torch.from_numpy(queries.goal).to(
            self.device
        )

    def save(self, folder: Path) -> None:
        """Write the weights."""
        write_tensors(folder / self.file, self.ready().state_dict())

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        tensors, _ = load_tensors(folder / self.file, "pt", "Train the run again.", RunError)
        try:
            network = self.build(tensors)
        except (KeyError, IndexError, ValueError, RuntimeError) as problem:
            raise RunError(
                f"{folder / self.file}: holds no {self.title}. Train the run again."
            ) from problem
        load_weights(network, tensors, str(folder / self.file))
        self.network = network.to(self.device).eval()

    def build(self, tensors: Mapping[str, Tensor]) -> Network:
        """An untrained network of the shape that these weights have.

        Raises:
            KeyError: They are those of something else. Likewise IndexError, ValueError,
                RuntimeError.
        """
        raise NotImplementedError


def parameters_of(*networks: TrainedNetwork[Any]) -> dict[str, int]:
    """Learned numbers of each network, by its title."""
    return {network.title: network.parameters for network in networks}


def results_of(*networks: TrainedNetwork[Any]) -> dict[str, TrainingResult]:
    """How each network's training went, by its title; those that were loaded are left out."""
    return {network.title: network.result for network in networks if network.result is not None}
