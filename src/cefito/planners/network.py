"""Trained networks, and planners made of one: built, trained, saved and loaded in one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from cefito.data.windows import Windows, joined_windows
from cefito.errors import RunError
from cefito.files import load_tensors, load_weights, write_tensors
from cefito.planners.base import Fitted, Queries, Shape, Vocabulary
from cefito.planners.base_planner import BasePlanner
from cefito.runtime import (
    count_parameters,
    derived_seed,
    full_precision,
    generator_for,
    named_stream,
)
from cefito.training.augmentation import Observations
from cefito.training.result import TrainingResult
from cefito.training.settings import PlannerTrainingConfig, StoppingConfig, TrainingConfig
from cefito.training.trainer import Loss, TrainingContext

__all__ = [
    "NetworkPlanner",
    "Sized",
    "TrainedNetwork",
    "copy_learned",
    "data_shape",
    "ends_on_all",
    "final_windows",
    "train_further",
    "train_network",
]

_REMEDY = "Train the run again."
Network = TypeVar("Network", bound=nn.Module)


class _Loss(Loss, Protocol):
    """A loss that draws its batches from the observations of training windows."""

    @property
    def observations(self) -> Observations:
        """The training windows' observations."""


def data_shape(windows: Windows, text: NDArray[Any] | None = None) -> Shape:
    """The sizes of training windows, and of text vectors [..., W] if there are any."""
    return Shape(
        observation_dim=windows.initial.shape[1],
        tasks=len(windows.taxonomy.tasks),
        actions=len(windows.taxonomy.actions),
        horizon=windows.horizon,
        text_dim=0 if text is None else text.shape[-1],
    )


@torch.no_grad()
def copy_learned(network: nn.Module, learned: nn.Module, *, apart: Collection[str] = ()) -> None:
    """Copy the tensors of a trained network, except `apart`, into one with more actions or tasks.

    New actions and tasks follow the known ones, so the beginning of each axis is copied; the rest
    stays as drawn.
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
    """Draw a network's weights by its `reset(generator)`, move it to the device, train it in place.

    The `loss` is made of the network on the device; `settings` are all else that determines the
    result, for JSON. With `centre` the buffer `mean` [E] keeps the mean training observation.
    `begin` puts learned weights, the mean among them, into the drawn network.
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


def ends_on_all(training: TrainingConfig, val: Windows) -> bool:
    """Return whether a training ends on training and validation windows together.

    None does if the latter are of test videos, as in published selection.
    """
    asked = isinstance(training, PlannerTrainingConfig) and training.all_videos > 0
    return asked and val.split != "test"


def final_windows(train: Windows, val: Windows, training: TrainingConfig) -> Windows:
    """Return the windows that a training ends with."""
    return joined_windows(train, val) if ends_on_all(training, val) else train


def train_further(
    network: Network,
    loss: Callable[[Network], _Loss],
    *,
    name: str,
    training: PlannerTrainingConfig,
    seed: int,
    settings: Any,
    context: TrainingContext,
) -> None:
    """Train a trained network further, in place, for the share `all_videos` of the epochs.

    Arguments as of `train_network`, with a loss on `final_windows`; the last epoch is kept.
    """
    optimiser = training.optimiser
    epochs = max(1, round(training.all_videos * optimiser.epochs))
    changes = {
        "optimiser": optimiser.model_copy(update={"epochs": epochs}),
        "stopping": StoppingConfig(every=0, patience=0),
    }
    context.part(f"{context.name}-all-videos").train(
        f"{name} on all videos",
        loss(network),
        training.model_copy(update=changes),
        seed=derived_seed(seed, named_stream("all videos")),
        settings=[settings, training.model_dump()],
    )
    network.eval()


class Sized:
    """Properties of anything that knows the sizes of its data."""

    shape: Shape

    @property
    def horizon(self) -> int:
        """T, the actions of a plan."""
        return self.shape.horizon

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return self.shape.observation_dim

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(self.shape.tasks, self.shape.actions)


class _OfNetwork(Sized, Generic[Network]):
    """A trained network and the sizes of its data; never changed."""

    title: ClassVar[str]  # name in messages, progress and records
    part: ClassVar[str]  # name of its file and of its training's folder
    stream: ClassVar[int | None] = None  # of the seed; None: by the title
    build: ClassVar[Any]  # (settings, shape) → untrained network
    loss: ClassVar[Any]  # (network on the device, train, val, *given arrays) → loss
    own_mean: ClassVar[bool] = False  # whether `observe` sets the mean observation
    ignored: ClassVar[frozenset[str]] = frozenset()  # settings that do not change the weights
    network: Network
    shape: Shape

    @classmethod
    def training(cls, config: Any) -> TrainingConfig:
        """How it is trained, among its settings."""
        training: TrainingConfig = config.training
        return training

    @classmethod
    def observe(cls, network: Network, train: Windows, *given: Any) -> None:
        """Store in an untrained network what it takes from training windows directly."""

    @classmethod
    def train(
        cls,
        train: Windows,
        val: Windows,
        config: Any,
        *given: NDArray[Any],
        seed: int,
        context: TrainingContext,
        text: NDArray[np.float32] | None = None,
        suffix: str = "",
    ) -> tuple[Network, Shape, TrainingResult]:
        """Build a network and train it; the epoch of the best validation score is kept.

        With `all_videos` it is trained further from there.

        `given` are the arrays, beside windows, that it is trained with, `text` [..., W] among them.
        A `suffix` distinguishes several trainings of such networks.
        """
        shape = data_shape(train, text)
        network = cls.build(config, shape)
        cls.observe(network, train, *given)
        digests = [sha256(np.ascontiguousarray(array).data).hexdigest() for array in given]
        training, both = cls.training(config), final_windows(train, val, cls.training(config))
        ignored: Any = {**dict.fromkeys(cls.ignored, True), "training": {"all_videos"}}
        shared: dict[str, Any] = {
            "name": cls.title + suffix,
            "training": training,
            "seed": seed,
            "settings": [suffix, asdict(shape), config.model_dump(exclude=ignored), digests],
            "context": context.part(cls.part + suffix),
        }
        result = train_network(
            network,
            lambda network: cls.loss(network, train, val, *given),
            stream=cls.stream,
            centre=not cls.own_mean and getattr(network.config, "centre", False),
            **shared,
        )
        if both is not train:
            cls.observe(network, both, *given)
            train_further(network, lambda network: cls.loss(network, both, val, *given), **shared)
        return network, shape, result

    @classmethod
    def size(cls, config: Any, shape: Shape) -> int:
        """Number of trainable parameters for data of a shape, counted without memory."""
        with torch.device("meta"):
            return count_parameters(cls.build(config, shape))

    @classmethod
    def read(
        cls, folder: Path, config: Any, device: torch.device | str, *, suffix: str = ""
    ) -> tuple[Network, Shape]:
        """Read the network that was saved in a folder, and its shape."""
        path = folder / f"{cls.part}{suffix}.safetensors"
        tensors, metadata = load_tensors(path, "pt", _REMEDY, RunError)
        shape = Shape(**json.loads(metadata["shape"]))
        network = cls.build(config, shape)
        load_weights(network, tensors, str(path))
        return network.to(device).eval(), shape

    def save(self, folder: Path | str) -> None:
        """Write the weights, with the sizes of the data in the file's metadata."""
        self.write(Path(folder), self.network)

    def write(self, folder: Path, network: Network, suffix: str = "") -> None:
        """Write the weights of a network of these sizes."""
        metadata = {"shape": json.dumps(asdict(self.shape))}
        write_tensors(folder / f"{self.part}{suffix}.safetensors", network.state_dict(), metadata)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(self.network.parameters()).device

    def on_device(self, *arrays: NDArray[Any]) -> tuple[Tensor, ...]:
        """Arrays as tensors on the network's device."""
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)

    def observations(self, queries: Queries) -> tuple[Tensor, ...]:
        """Initial and goal observations, each [N, E], on the network's device."""
        return self.on_device(queries.initial, queries.goal)


@dataclass(frozen=True)
class TrainedNetwork(_OfNetwork[Network]):
    """A trained network that is a part of a planner."""

    network: Network
    shape: Shape

    @classmethod
    def load(cls, folder: Path, *, config: Any, device: torch.device | str = "cpu") -> Self:
        """Load the network that was saved in a folder."""
        return cls(*cls.read(folder, config, device))

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return count_parameters(self.network)


@dataclass(frozen=True, eq=False, repr=False)
class NetworkPlanner(_OfNetwork[Network], BasePlanner):
    """A planner that is one network: `build`, `loss` and `decode` are all that a method adds.

    The network has `reset(generator)` and `config`, its settings with `training` among them.
    """

    section: ClassVar[str] = ""  # of the method's settings; by default named as the `part`
    network: Network
    shape: Shape
    config: Any

    @classmethod
    def text_vectors(cls, config: Any, train: Windows) -> NDArray[np.float32] | None:  # noqa: ARG003
        """Text vectors [K, ..., W] that the network is trained with, if any."""
        return None

    @classmethod
    def text_dim(cls, config: Any, shape: Shape) -> int:  # noqa: ARG003
        """W of such vectors for data of a shape, where only sizes are counted."""
        return 0

    @classmethod
    def config_of(cls, settings: Any) -> Any:
        """The section of the method's settings."""
        return getattr(settings, cls.section or cls.part)

    @override
    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:
        config = cls.config_of(settings)
        return {cls.title: cls.size(config, replace(shape, text_dim=cls.text_dim(config, shape)))}

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: Any,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the network; the epoch of the best validation score is kept."""
        config = cls.config_of(settings)
        text = cls.text_vectors(config, train)
        given = () if text is None else (text,)
        network, shape, result = cls.train(
            train, val, config, *given, text=text, seed=seed, context=context
        )
        return Fitted(
            cls(network, shape, config), {cls.title: result}, ends_on_all(cls.training(config), val)
        )

    @classmethod
    def load(
        cls, folder: Path | str, *, settings: Any, context: TrainingContext = TrainingContext()
    ) -> Self:
        """Load the planner that was saved in a folder."""
        config = cls.config_of(settings)
        return cls(*cls.read(Path(folder), config, context.device), config)

    @property
    def parameters(self) -> dict[str, int]:
        """Number of trainable parameters of each network, by its name."""
        return {self.title: count_parameters(self.network)}

    plan = torch.inference_mode()(full_precision()(BasePlanner.plan))


def named_departures(name: str, departures: Sequence[str]) -> str:
    """The name of a planner in tables, with how it departs from the published one."""
    named = ", ".join(departure for departure in departures if departure)
    return f"{name} ({named})" if named else name
