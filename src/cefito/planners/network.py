"""Trained networks, and planners made of them: built, trained, saved and loaded in one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from cefito.data.windows import Windows, joined_windows
from cefito.errors import RunError
from cefito.executors.base import Done, Failed
from cefito.executors.processes import ProcessExecutor
from cefito.files import load_tensors, load_weights, write_tensors
from cefito.planners.base import Fitted, Queries, Shape, Vocabulary
from cefito.planners.base_planner import BasePlanner
from cefito.progress import silent
from cefito.runtime import (
    count_parameters,
    derived_seed,
    full_precision,
    generator_for,
    named_stream,
    weights_to_come,
)
from cefito.training.settings import (
    PlannerTrainingConfig,
    StoppingConfig,
    TrainingConfig,
    TrainingResult,
)
from cefito.training.trainer import TrainingContext

Network = TypeVar("Network", bound=nn.Module)


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

    Args:
        network: Network to be filled.
        learned: Trained network of fewer actions or tasks.
        apart: Names of tensors that stay.
    """
    target = network.state_dict()
    for name, tensor in learned.state_dict().items():
        if name not in apart:
            target[name][tuple(slice(size) for size in tensor.shape)] = tensor.to("cpu")


def ends_on_all(training: TrainingConfig, val: Windows) -> bool:
    """Return whether a training ends on training and validation windows together.

    Windows of test videos, on which published work chooses epochs, are never trained on.
    """
    asked = isinstance(training, PlannerTrainingConfig) and training.all_videos > 0
    return asked and val.split != "test"


def final_windows(train: Windows, val: Windows, training: TrainingConfig) -> Windows:
    """Return the windows that a training ends with.

    Args:
        train: Training windows.
        val: Validation windows.
        training: Settings, of which `all_videos` decides.
    """
    return joined_windows(train, val) if ends_on_all(training, val) else train


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


class Ensemble(Sized, Generic[Network]):
    """Trained networks that differ in their seeds alone; one network for most methods.

    Networks have `reset(generator)`, which draws their weights, and `config`, their settings. An
    ensemble is never changed.
    """

    title: ClassVar[str]  # name in messages, progress and records
    part: ClassVar[str]  # name of the file and of the folders of trainings
    stream: ClassVar[int | None] = None  # random stream of the seed; None to derive it from title
    own_mean: ClassVar[bool] = False  # networks set their mean observation themselves
    numbered: ClassVar[bool] = False  # names of tensors begin with a number even for one network
    loss: ClassVar[Any]  # (network on the device, train, val, *given arrays) → loss
    section: ClassVar[str] = ""  # of the method's settings; empty if it is named as the part
    trained: ClassVar[str] = ""  # place of the training's settings; empty if in that section
    networks: tuple[Network, ...]

    @classmethod
    def config_of(cls, settings: Any) -> Any:
        """Return the section of the method's settings that is the networks' own."""
        return getattr(settings, cls.section or cls.part)

    @classmethod
    def training_of(cls, settings: Any) -> TrainingConfig:
        """Return the settings of their training, among those of the method."""
        place = cls.trained or f"{cls.section or cls.part}.training"
        training: TrainingConfig = attrgetter(place)(settings)
        return training

    @classmethod
    def members(cls, config: Any) -> int:
        """Return the number of networks."""
        return int(getattr(config, "members", 1))

    @classmethod
    def make_loss(
        cls,
        network: Network,
        train: Windows,
        val: Windows,
        settings: Any,  # noqa: ARG003
        *arrays: Any,
    ) -> Any:
        """Return the loss of a network on the device; arguments as of `train_networks`."""
        return cls.loss(network, train, val, *arrays)

    @classmethod
    def begin(cls, network: Network, learned: Network) -> None:
        """Put the weights of a learned network, the mean among them, into a drawn one."""
        copy_learned(network, learned)

    @classmethod
    def learning(
        cls,
        network: Network,  # noqa: ARG003
        train: Windows,  # noqa: ARG003
    ) -> AbstractContextManager[None]:
        """Return a context that is entered while a network is trained."""
        return nullcontext()

    @classmethod
    def further_seed(cls, seed: int, member: int) -> int:
        """Return the seed that the training on all videos derives its own from."""
        return cls._seed(seed, member)

    @classmethod
    def _stream(cls) -> int:
        return named_stream(cls.title) if cls.stream is None else cls.stream

    @classmethod
    def _seed(cls, seed: int, member: int) -> int:
        return derived_seed(seed, cls._stream(), member) if member else seed

    @classmethod
    def train_networks(
        cls,
        networks: Sequence[Network],
        train: Windows,
        val: Windows,
        settings: Any,
        *arrays: Any,
        determining: Any,
        seed: int,
        context: TrainingContext = TrainingContext(),
        start: Self | None = None,
        suffix: str = "",
        further: bool = False,
    ) -> dict[str, TrainingResult]:
        """Draw the weights of networks and train them in place; return the results by name.

        Each keeps the epoch of the best validation score. If they are trained `further` (see
        `final_windows`), no weights are drawn. They are trained for the share `all_videos` of the
        epochs, and the last epoch is kept.

        Args:
            networks: Networks to be trained.
            train: Training windows.
            val: Validation windows.
            settings: Settings of the method.
            determining: All else that determines the weights, for JSON.
            seed: Seed of the first network, from which those of others are derived.
            context: Device, folder and progress.
            start: Trained networks to begin with.
            suffix: Distinguishes several trainings of such networks.
            further: Train them further; no weights are drawn.
            arrays: What else the loss is made of.
        """
        training: Any = cls.training_of(settings)
        if further:
            determining = [determining, training.model_dump()]
            epochs = max(1, round(training.all_videos * training.optimiser.epochs))
            changes = {
                "optimiser": training.optimiser.model_copy(update={"epochs": epochs}),
                "stopping": StoppingConfig(every=0, patience=0),
            }
            training = training.model_copy(update=changes)
        parts = train, val, settings, *arrays
        members = [
            (member, f"{suffix}-{member}" if member else suffix, network)
            for member, network in enumerate(networks)
        ]
        results = side_by_side(
            partial(cls._train_member, parts, training, determining, seed, start, further),
            members,
            context,
            training.optimiser.epochs * len(train),
            " on all videos" * further,
        )
        return {
            cls.title + name: result for (_, name, _), result in zip(members, results, strict=True)
        }

    @classmethod
    def _train_member(
        cls,
        parts: tuple[Any, ...],  # of the loss, beside the network
        training: TrainingConfig,
        determining: Any,
        seed: int,
        start: Self | None,
        further: bool,
        context: TrainingContext,
        member: int,
        name: str,
        network: Any,
    ) -> TrainingResult:
        member_seed, folder, title = cls._seed(seed, member), cls.part + name, cls.title + name
        if further:
            member_seed = derived_seed(cls.further_seed(seed, member), named_stream("all videos"))
            folder, title = f"{folder}-all-videos", f"{title} on all videos"
        with cls.learning(network, parts[0]):
            if not further:
                network.reset(generator_for("cpu", member_seed, cls._stream()))
                if start is not None:
                    cls.begin(network, start.networks[member])
                network.to(context.device)
            loss = cls.make_loss(network, *parts)
            centred = not cls.own_mean and getattr(network.config, "centre", False)
            if centred and start is None and not further:
                network.mean.copy_(loss.observations.mean)
            return context.part(folder).train(
                title, loss, training, seed=member_seed, settings=determining
            )

    @classmethod
    def rebuild(
        cls, config: Any, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
    ) -> Network:
        """Return a network for the tensors and the metadata of a file, which are not loaded yet.

        Args:
            config: Settings of the network.
            tensors: Tensors of the file by name.
            metadata: Texts of the file by name.
        """
        raise NotImplementedError

    @classmethod
    def read(
        cls, folder: Path | str, settings: Any, device: torch.device | str
    ) -> tuple[tuple[Network, ...], dict[str, str]]:
        """Return the networks saved in a folder, and the metadata of their file (RunError).

        Args:
            folder: Folder.
            settings: Settings of the method.
            device: A torch device.
        """
        path, config = Path(folder) / f"{cls.part}.safetensors", cls.config_of(settings)
        tensors, metadata = load_tensors(path, "pt", "Train the run again.", RunError)
        count, networks = cls.members(config), []
        for member in range(count):
            member_tensors, prefix = tensors, f"{member}."
            if cls.numbered or count > 1:
                member_tensors = {
                    name.removeprefix(prefix): tensor
                    for name, tensor in tensors.items()
                    if name.startswith(prefix)
                }
            network = cls.rebuild(config, member_tensors, metadata)
            load_weights(network, member_tensors, str(path), copy=False)
            networks.append(network.to(device).eval())
        return tuple(networks), metadata

    @property
    def metadata(self) -> dict[str, str]:
        """What is saved beside the weights; a single entry, for the order of several may vary."""
        return {"shape": json.dumps(asdict(self.shape))}

    def save(self, folder: Path | str) -> None:
        """Write the weights into one file, `metadata` with them."""
        numbered = self.numbered or len(self.networks) > 1
        tensors = {
            f"{member}.{name}" if numbered else name: tensor
            for member, network in enumerate(self.networks)
            for name, tensor in network.state_dict().items()
        }
        write_tensors(Path(folder) / f"{self.part}.safetensors", tensors, self.metadata)

    @property
    def network(self) -> Network:
        """The only network, or the first one."""
        return self.networks[0]

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Number of trainable parameters of all networks, by their title."""
        return {self.title: sum(map(count_parameters, self.networks))}

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return next(self.network.parameters()).device

    def on_device(self, *arrays: NDArray[Any]) -> tuple[Tensor, ...]:
        """Arrays as tensors on the networks' device."""
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)

    def observations(self, queries: Queries) -> tuple[Tensor, ...]:
        """Initial and goal observations, each [N, E], on the networks' device."""
        return self.on_device(queries.initial, queries.goal)


@dataclass(frozen=True, eq=False, repr=False)
class TrainedNetwork(Ensemble[Network]):
    """An ensemble that is built of settings and the sizes of its data alone."""

    build: ClassVar[Any]  # (settings, shape) → untrained network
    ignored: ClassVar[frozenset[str]] = frozenset()  # settings that do not change the weights
    networks: tuple[Network, ...]
    shape: Shape

    @classmethod
    def observe(cls, network: Network, train: Windows, *arrays: Any) -> None:  # noqa: ARG003
        """Store in an untrained network what it takes from training windows directly.

        By default that is what the network's own `observe` takes, if it has one.

        Args:
            network: Untrained network.
            train: Training windows.
            arrays: What else the loss is made of.
        """
        if take := getattr(network, "observe", None):
            take(train)

    @classmethod
    def determining(
        cls, settings: Any, shape: Shape, suffix: str, digests: Sequence[str]
    ) -> list[Any]:
        """Return what determines the weights beside seed and windows, for JSON.

        Args:
            settings: Settings of the method.
            shape: Sizes of the data set.
            suffix: Distinguishes several trainings of such networks.
            digests: Digests of the given arrays.
        """
        ignored: Any = {**dict.fromkeys(cls.ignored, True), "training": {"all_videos"}}
        config = cls.config_of(settings).model_dump(exclude=ignored)
        return [suffix, asdict(shape), config, digests]

    @classmethod
    def train(
        cls,
        train: Windows,
        val: Windows,
        settings: Any,
        *arrays: NDArray[Any],
        seed: int,
        context: TrainingContext = TrainingContext(),
        text: NDArray[np.float32] | None = None,
        start: Self | None = None,
        suffix: str = "",
        **parts: Any,
    ) -> tuple[Self, dict[str, TrainingResult]]:
        """Build and train all networks; with `all_videos` they are trained further from there.

        Args:
            train: Training windows.
            val: Validation windows.
            settings: Settings of the method.
            seed: Seed of the first network.
            context: Device, folder and progress.
            text: Text vectors [..., W], for the sizes.
            start: Trained networks to begin with.
            suffix: Distinguishes several trainings of such networks.
            arrays: What else the loss is made of, text vectors among them.
            parts: Fields beside the networks.
        """
        config, shape = cls.config_of(settings), data_shape(train, text)
        networks = tuple(cls.build(config, shape) for _ in range(cls.members(config)))
        digests = [sha256(np.ascontiguousarray(array).data).hexdigest() for array in arrays]
        shared: dict[str, Any] = {
            "determining": cls.determining(settings, shape, suffix, digests),
            "seed": seed,
            "context": context,
            "suffix": suffix,
        }
        for network in networks:
            cls.observe(network, train, *arrays)
        results = cls.train_networks(networks, train, val, settings, *arrays, start=start, **shared)
        both = final_windows(train, val, cls.training_of(settings))
        if both is not train:
            for network in networks:
                cls.observe(network, both, *arrays)
            cls.train_networks(networks, both, val, settings, *arrays, further=True, **shared)
        return cls(networks, shape, **parts), results

    @classmethod
    def size(cls, settings: Any, shape: Shape) -> dict[str, int]:
        """Number of trainable parameters for data of a shape, counted without memory."""
        config = cls.config_of(settings)
        with weights_to_come():
            return {cls.title: cls.members(config) * count_parameters(cls.build(config, shape))}

    @override
    @classmethod
    def rebuild(
        cls, config: Any, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
    ) -> Network:
        network: Network = cls.build(config, Shape(**json.loads(metadata["shape"])))
        return network

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: Any,
        context: TrainingContext = TrainingContext(),
        **parts: Any,
    ) -> Self:
        """Load what was saved, as of `Planner.load`; parts are fields beside the networks."""
        networks, metadata = cls.read(folder, settings, context.device)
        return cls(networks, Shape(**json.loads(metadata["shape"])), **parts)


@dataclass(frozen=True, eq=False, repr=False)
class NetworkPlanner(TrainedNetwork[Network], BasePlanner):
    """A planner of one network, or several: a method adds `build`, `loss` and `decode` alone."""

    config: Any

    @classmethod
    def text_vectors(cls, config: Any, train: Windows) -> NDArray[np.float32] | None:  # noqa: ARG003
        """Text vectors [K, ..., W] that the network is trained with, if any."""
        return None

    @classmethod
    def text_dim(cls, config: Any, shape: Shape) -> int:  # noqa: ARG003
        """W of such vectors for data of a shape, where only sizes are counted."""
        return 0

    @override
    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:
        width = cls.text_dim(cls.config_of(settings), shape)
        return cls.size(settings, replace(shape, text_dim=width))

    @classmethod
    def fit(cls, train: Windows, val: Windows, *, settings: Any, **options: Any) -> Fitted[Self]:
        """Train the network; the epoch of the best validation score is kept."""
        config = cls.config_of(settings)
        text = cls.text_vectors(config, train)
        arrays = () if text is None else (text,)
        parts: dict[str, Any] = {"text": text, "config": config}
        planner, results = cls.train(train, val, settings, *arrays, **parts, **options)
        return Fitted(planner, results, ends_on_all(cls.training_of(settings), val))

    @override
    @classmethod
    def load(cls, folder: Path | str, *, settings: Any, **options: Any) -> Self:
        return super().load(folder, settings=settings, config=cls.config_of(settings), **options)

    plan = torch.inference_mode()(full_precision()(BasePlanner.plan))


def named_departures(name: str, departures: Sequence[str]) -> str:
    """The name of a planner in tables, with how it departs from the published one."""
    named = ", ".join(departure for departure in departures if departure)
    return f"{name} ({named})" if named else name


WORTH_A_PROCESS = 50_000  # examples of a training


def side_by_side(
    train: Callable[..., TrainingResult],
    members: Sequence[tuple[int, str, Any]],
    context: TrainingContext,
    examples: int,
    again: str = "",
) -> list[TrainingResult]:
    """Return the results of `train(context, *member)`, which trains the last of a member in place.

    With several workers, each is trained in a process of its own, with equal results, unless its
    training takes hardly longer than the start of a process: on fewer `examples` in all epochs.

    Args:
        train: Trains one member.
        members: Number, name and network of each.
        context: Device, folder, progress and workers.
        examples: Windows of all epochs.
        again: End of the title of the progress.

    Raises:
        RunError: A process was ended, or failed.
    """
    if min(context.workers, len(members)) == 1 or examples < WORTH_A_PROCESS:
        results = [train(context, *member) for member in members]
    else:
        apart = partial(
            _trained_apart, partial(train, replace(context, progress=silent, workers=1))
        )
        with context.progress(f"networks{again}", total=len(members)) as advance:
            executor = ProcessExecutor(context.workers)
            outcomes = executor.map(apart, members, advance=advance)
        results = []
        for (member, name, network), outcome in zip(members, outcomes, strict=True):
            if not isinstance(outcome, Done):
                said = "its process was killed, perhaps for memory; repeat the command to go on"
                if isinstance(outcome, Failed):
                    said = outcome.error
                raise RunError(f"network {member + 1} of {len(members)} was not trained: {said}.")
            weights, result = outcome.value
            load_weights(
                network, {key: torch.from_numpy(array) for key, array in weights.items()}, name
            )
            results.append(result)
    for _, _, network in members:
        network.eval()
    return results


def _trained_apart(
    train: Callable[..., TrainingResult], member: tuple[int, str, Any]
) -> tuple[dict[str, NDArray[Any]], TrainingResult]:
    """Train a copy of a network; return its weights, and the result."""
    result = train(*member)
    return {name: tensor.numpy() for name, tensor in member[2].state_dict().items()}, result
