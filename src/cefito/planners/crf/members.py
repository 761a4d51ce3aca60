"""Networks over the same states whose scores are averaged, and planners by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cefito.errors import RunError
from cefito.files import load_tensors, load_weights, write_tensors
from cefito.planners.base import Planner, Queries, Vocabulary
from cefito.planners.base_planner import BasePlanner
from cefito.planners.checks import check_queries
from cefito.planners.crf.settings import ChainConfig
from cefito.planners.crf.states import TaskStates
from cefito.planners.crf.steps import WeightedScores, first_pairs, log_sequences
from cefito.progress import Progress, silent
from cefito.runtime import count_parameters, full_precision
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans

__all__ = ["Members", "MembersPlanner"]


class Members:
    """Trained networks whose scores are averaged; never changed."""

    title: ClassVar[str]  # name in messages, progress and records
    file: ClassVar[str]
    networks: tuple[Any, ...]  # of one class of `ObservationEncoder`

    @staticmethod
    def read(
        path: Path,
        config: ChainConfig,
        build: Callable[..., nn.Module],
        device: torch.device | str,
    ) -> tuple[tuple[Any, ...], dict[str, str]]:
        """Return the networks of a file and its metadata.

        Args:
            path: File that `write` wrote.
            config: Configuration of the networks.
            build: Returns a network for weights, by name, and metadata; given also the arguments
                config, states and observation_dim of its class.
            device: Device of the networks.

        Raises:
            RunError: A missing or damaged file.
        """
        tensors, metadata = load_tensors(path, "pt", "Train the run again.", RunError)
        networks = []
        for member in range(config.members):
            prefix = f"{member}."
            own = {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            sizes = {
                "config": config,
                "states": TaskStates.of(own["states_lookup"]),
                "observation_dim": own["encoder.weight"].shape[1],
            }
            with torch.device("meta"):  # without memory for its weights
                network = build(own, metadata, **sizes)
            load_weights(network, own, str(path), copy=False)
            networks.append(network.to(device).eval())
        return tuple(networks), metadata

    def write(self, folder: Path, calibration: str) -> None:
        """Write all networks into one file, with a calibration as its metadata."""
        tensors = {
            f"{member}.{name}": tensor
            for member, network in enumerate(self.networks)
            for name, tensor in network.state_dict().items()
        }
        # a single entry: the order of several entries would differ from file to file
        write_tensors(folder / self.file, tensors, {"calibration": calibration})

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        mean: Tensor = self.networks[0].mean
        return mean.device

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of all networks."""
        return sum(count_parameters(network) for network in self.networks)

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return int(self.networks[0].observation_dim)

    @cached_property
    def states(self) -> TaskStates:
        """The states, alike for all networks."""
        states: TaskStates = self.networks[0].states
        return states


class MembersPlanner(BasePlanner):
    """Planner by networks whose scores are averaged."""

    together: ClassVar[int] = 512  # queries whose scores are held at once
    model: Any  # of a class of `Members`

    def save(self, folder: Path | str) -> None:
        """Write all networks into one file."""
        self.model.save(Path(folder))

    @property
    def observation_dim(self) -> int:
        """E, the features of an observation."""
        return int(self.model.observation_dim)

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(*self.model.states.lookup.shape)

    @property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of all networks."""
        return {self.model.title: self.model.parameters}

    @torch.inference_mode()
    @full_precision()
    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """Return the likeliest sequences of each query."""
        check_queries(cast("Planner", self), queries, top_k, constraints)
        return [
            plans
            for block in queries.blocks(self.together)
            for plans in self.block_plans(block, top_k, constraints)
        ]

    @torch.inference_mode()
    @full_precision()
    def log_probabilities(
        self, queries: Queries, sequences: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return log p(sequence) of sequences [N, T], summed over tasks, as `plan` lists it."""
        rows = np.split(sequences, range(self.together, len(queries), self.together))
        blocks = queries.blocks(self.together) or [queries]
        return np.concatenate(
            [
                log_sequences(self.weighted_scores(block), own)
                for block, own in zip(blocks, rows, strict=True)
            ]
        )

    @torch.inference_mode()
    @full_precision()
    def first_pairs(self, queries: Queries) -> NDArray[np.floating[Any]]:
        """Return the probabilities of the first two actions, summed over all that may follow."""
        return first_pairs(self.weighted_scores(queries))

    def block_plans(self, queries: Queries, top_k: int, constraints: Constraints) -> list[Plans]:
        """Return the likeliest sequences of queries whose scores fit the memory."""
        raise NotImplementedError

    def weighted_scores(self, queries: Queries) -> list[WeightedScores]:
        """Return the scores of each length and its probability; of the given task, if any."""
        raise NotImplementedError
