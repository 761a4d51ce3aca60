"""What trained networks share: one way of fitting, saving and loading.

And what planners of one network share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import BasePlanner, Queries
from cefito.planners.context import TrainingContext
from cefito.runtime import generator_for, named_stream
from cefito.training.augmentation import Observations
from cefito.training.checkpoint import load_weights
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import Loss, TrainingResult

__all__ = [
    "NetworkPlanner",
    "TrainedNetwork",
    "copy_learned",
    "finite_outputs",
    "learned",
    "train_network",
]


class _Loss(Loss, Protocol):
    """A loss that draws its batches from the observations of training windows."""

    @property
    def observations(self) -> Observations:
        """The training windows' observations."""


Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def copy_learned(network: nn.Module, learned: nn.Module, *, apart: Collection[str] = ()) -> None:
    """Copy the tensors of a trained network into one with more actions or tasks.

    What is new stands behind what was there, so that the beginning of each axis is copied; the rest
    stays as drawn.

    Args:
        network: Freshly drawn; nowhere smaller than the trained one.
        learned: The trained network.
        apart: Names of tensors to leave alone.
    """
    target = network.state_dict()
    for name, tensor in learned.state_dict().items():
        if name not in apart:
            target[name][tuple(slice(size) for size in tensor.shape)] = tensor.to("cpu")


def train_network(
    network: Network,
    loss: Callable[[Network], _Loss],
    *,
    name: str,
    training: TrainingConfig,
    stream: int | None = None,
    seed: int,
    settings: Any,
    context: TrainingContext,
    centre: bool = False,
    begin: Callable[[Network], None] | None = None,
) -> TrainingResult:
    """Draw a network's weights, put it on the device and train it in place.

    Args:
        network: A network with `reset(generator)`; with `centre` also with a buffer `mean` [E].
        loss: Makes the loss of the network, which is on the device by then.
        name: Name of the network, shown in the progress.
        training: How it is trained.
        stream: Number of the seed's stream that its weights are drawn from; by default one that
            follows from the name.
        seed: Seed of weights, batches and all that is drawn.
        settings: All else that determines the result, for JSON.
        context: Where it is trained.
        centre: Keep the mean observation of the training windows in the network.
        begin: Puts learned weights into the network, the mean observation among them, once all are
            drawn; by default it stays as drawn.

    Raises:
        RunError: The checkpoint in the folder cannot be used or written, or the training diverged.
    """
    untyped: Any = network
    untyped.reset(generator_for("cpu", seed, named_stream(name) if stream is None else stream))
    if begin is not None:
        begin(network)
    network.to(context.device)
    placed_loss = loss(network)
    if centre and begin is None:
        untyped.mean.copy_(placed_loss.observations.mean)
    result = context.train(name, placed_loss, training, seed=seed, settings=settings)
    network.eval()
    return result


def finite_outputs(values: Tensor, title: str) -> Tensor:
    """What a network says of N queries [N, ...], seen to be finite numbers.

    Args:
        values: Its outputs.
        title: What it is called in the message.

    Raises:
        RunError: NaN or infinity; the message names the first query that has them.
    """
    finite = values.isfinite().flatten(1).all(dim=1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise RunError(
            f"query {row} (counted from 0): the {title} gives NaN or infinity. Give observations "
            "made as those of the run were; where they are, the run's weights are of no use: train "
            "it again."
        )
    return values


def learned(network: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(tensor.numel() for tensor in network.parameters() if tensor.requires_grad)


@dataclass(frozen=True)
class TrainedNetwork(Generic[Network]):
    """A trained network with what planning asks of it; never changed.

    Attributes:
        title: What it is called in messages, progress and records.
        file: Name of the file that its weights are saved in.
        network: The network.
    """

    title: ClassVar[str]
    file: ClassVar[str]
    network: Network

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(self.network.parameters()).device

    @property
    def parameters(self) -> int:
        """Learned numbers of the network."""
        return learned(self.network)

    def observations(self, queries: Queries, expected: int) -> tuple[Tensor, Tensor]:
        """Initial and goal observations [N, E] on the device.

        Raises:
            RunError: They have another number of features.
        """
        if queries.initial.shape[1] != expected:
            raise RunError(
                f"observations have {queries.initial.shape[1]} features; this run was trained on "
                f"{expected}."
            )
        return (
            torch.from_numpy(queries.initial).to(self.device),
            torch.from_numpy(queries.goal).to(self.device),
        )

    def save(self, folder: Path) -> None:
        """Write the weights."""
        write_tensors(folder / self.file, self.network.state_dict())

    @classmethod
    def read(
        cls,
        folder: Path,
        build: Callable[[Mapping[str, Tensor]], Network],
        *,
        device: torch.device | str,
        file: str = "",
    ) -> Network:
        """The network whose weights were saved in a folder.

        Args:
            folder: The folder.
            build: Makes an untrained network of the shape that the weights have; may raise
                KeyError, IndexError, ValueError or RuntimeError where they are of something else.
            device: Where it is to run.
            file: Name of the file, where it is not the usual one.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        path = folder / (file or cls.file)
        tensors, _ = load_tensors(path, "pt", "Train the run again.", RunError)
        try:
            network = build(tensors)
        except (KeyError, IndexError, ValueError, RuntimeError) as problem:
            raise RunError(f"{path}: holds no {cls.title}. Train the run again.") from problem
        load_weights(network, tensors, str(path))
        return network.to(device).eval()


class NetworkPlanner(BasePlanner):
    """A planner whose sizes are those of the network of its model.

    Attributes:
        model: Holds the network as `network`.
    """

    model: Any

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return int(self.model.network.horizon)

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return int(self.model.network.observation_dim)
