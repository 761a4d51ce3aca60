"""A trained network of SCHEMA, or of a method built on it: its training, its files, its scores."""

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
from cefito.planners.base import Queries, Shape
from cefito.planners.context import TrainingContext
from cefito.planners.network import TrainedNetwork, finite_outputs, learned, train_network
from cefito.planners.schema.described import (
    PUBLISHED_WIDTH,
    SIZES,
    fixed_descriptions,
    vectors_digest,
)
from cefito.planners.schema.loss import SchemaLoss
from cefito.planners.schema.network import BLOCK, Encoded, SchemaNetwork
from cefito.planners.schema.settings import SchemaConfig
from cefito.planners.shared.descriptions import EndMeans
from cefito.planners.shared.transitions import counted_transitions
from cefito.runtime import Stream
from cefito.training.trainer import TrainingResult

__all__ = ["SchemaModel"]

_NOT_TRAINED_WITH = {"descriptions", "name_width", "text_encoder", "text_layer"}


@dataclass(frozen=True)
class SchemaModel(TrainedNetwork[SchemaNetwork]):
    """A trained network, which holds descriptions and counts of transitions.

    Methods that are built on it name a section, a network and a loss of their own.
    """

    title: ClassVar[str] = "SCHEMA network"
    file: ClassVar[str] = "schema.safetensors"
    part: ClassVar[str] = "schema"
    section: ClassVar[str] = "schema_model"
    stream: ClassVar[Stream] = Stream.SCHEMA
    network_class: ClassVar[type[SchemaNetwork]] = SchemaNetwork
    loss_class: ClassVar[type[SchemaLoss]] = SchemaLoss

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: SchemaConfig,
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train on windows, keep the epoch of the best validation success rate, then mean accuracy.

        Args:
            train: Training windows; transitions are counted in them.
            val: Validation windows.
            config: The network and how it is trained.
            seed: Seed of weights, batches, noise and dropout.
            context: Where it is trained.

        Raises:
            ConfigError: A text encoder is asked for and cannot be had.
            DataError: The file of descriptions is missing, damaged, or has another shape.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        taxonomy = train.taxonomy
        vectors = fixed_descriptions(config, taxonomy, setting=f"{cls.section}.descriptions")
        width = train.initial.shape[1] if vectors is None else vectors.shape[2]
        size = SIZES.get(config.described)
        network = cls.network_class(
            config=config,
            observation_dim=train.initial.shape[1],
            task_count=len(taxonomy.tasks),
            action_count=len(taxonomy.actions),
            horizon=train.horizon,
            described=None if size is None else (size, width),
        )
        if config.centre:
            both = np.concatenate([train.initial, train.goal])
            network.mean.copy_(torch.from_numpy(both.mean(axis=0, dtype=np.float64)))
        if vectors is not None:
            network.descriptions.copy_(torch.from_numpy(vectors))
        elif size is not None:
            network.descriptions.copy_(EndMeans(train, network.prepared).all())
        counts = counted_transitions(train, len(taxonomy.actions), config.transitions)
        network.counts.copy_(torch.from_numpy(counts))
        result = train_network(
            network,
            lambda network: cls.loss_class(network=network, train=train, val=val),
            name=cls.title,
            training=config.training,
            stream=cls.stream,
            seed=seed,
            settings=[
                train.horizon,
                config.model_dump(exclude=_NOT_TRAINED_WITH),
                config.described,
                vectors_digest(vectors),
            ],
            context=context.part(cls.part),
        )
        return cls(network), result

    @classmethod
    def size(cls, config: SchemaConfig, shape: Shape) -> int:
        """How many numbers the network learns, for data of a shape."""
        kind = config.described
        widths = {"names": config.name_width, "observations": shape.observation_dim}
        network = cls.network_class(
            config=config,
            observation_dim=shape.observation_dim,
            task_count=shape.tasks,
            action_count=shape.actions,
            horizon=shape.horizon,
            described=(SIZES[kind], widths.get(kind, PUBLISHED_WIDTH)) if kind in SIZES else None,
        )
        return learned(network)

    @classmethod
    def load(
        cls, folder: Path, *, config: SchemaConfig, device: torch.device | str = "cpu"
    ) -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(cls._build, config), device=device))

    @classmethod
    def _build(cls, config: SchemaConfig, tensors: Mapping[str, Tensor]) -> SchemaNetwork:
        """A network for weights of its sizes."""
        action_count, _ = tensors["counts"].shape
        (observation_dim,) = tensors["mean"].shape
        described: tuple[int, int] | None = None
        if config.described in SIZES:
            _, count, width = tensors["descriptions"].shape
            described = count, width
        horizon = len(tensors["state_positions"]) - 1
        if horizon < 1:
            raise ValueError("no steps")
        return cls.network_class(
            config=config,
            observation_dim=observation_dim,
            task_count=len(tensors["task.weight"]),
            action_count=action_count,
            horizon=horizon,
            described=described,
        )

    def encoded(self, queries: Queries) -> Encoded:
        """The encoded observations of queries: the initial and the goal one, and no other.

        Raises:
            RunError: Observations of another dimension.
        """
        initial, goal = self.observations(queries, self.network.observation_dim)
        return self.network.encode(initial, goal)

    @torch.inference_mode()
    def tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks, else the likeliest by the task head, [N].

        Raises:
            RunError: Observations of another dimension.
        """
        if queries.tasks is not None:
            return queries.tasks
        logits = self.network.task_logits(self.encoded(queries).states)
        likeliest = finite_outputs(logits, self.title).argmax(dim=1)
        return np.asarray(likeliest.cpu().numpy())

    @torch.inference_mode()
    def emissions(self, queries: Queries) -> Tensor:
        """Log p(action) at each step of each query, float64 [N, T, K].

        Args:
            queries: At least one; their tasks are predicted where they are not given.

        Raises:
            DataError: A task that it does not know.
            RunError: Observations of another dimension.
        """
        network = self.network
        queries.check_tasks(network.task_count)
        memory, parts = network.memory(), []
        for block in queries.blocks(BLOCK):
            tasks = None if block.tasks is None else torch.from_numpy(block.tasks).to(self.device)
            parts.append(network.decode(self.encoded(block), tasks, memory, None).actions)
        return finite_outputs(torch.cat(parts), self.title).double().log_softmax(dim=2)
