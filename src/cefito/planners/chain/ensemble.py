"""Networks over the same states whose scores are averaged, and planners by them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.data.windows import Windows, extended_space
from cefito.planners.base import Fitted, Queries, Shape
from cefito.planners.base_planner import BasePlanner
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.states import ObservationEncoder, TaskStates, learning_words
from cefito.planners.network import Ensemble, Sized, ends_on_all, final_windows
from cefito.runtime import full_precision
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans
from cefito.training.settings import TrainingResult

Network = TypeVar("Network", bound=ObservationEncoder)


@dataclass(frozen=True)
class WeightedScores:
    """Scores of the sequences of one length, and the probability of this length."""

    log_weight: Tensor  # log p(T) of each query [B]
    scores: SequenceScores


class ChainEnsemble(Ensemble[Network]):
    """Networks over the same states whose scores are averaged."""

    numbered = True

    @override
    @classmethod
    def learning(cls, network: Network, train: Windows) -> AbstractContextManager[None]:
        return learning_words(network, train.taxonomy)

    @classmethod
    def train_all(
        cls,
        networks: Sequence[Network],
        train: Windows,
        val: Windows,
        *,
        settings: Any,
        **options: Any,
    ) -> dict[str, TrainingResult]:
        """Train networks in place; arguments as of `train_networks`."""
        network, config = networks[0], cls.config_of(settings).model_dump(exclude={"members"})
        training = cls.training_of(settings)  # given to the loss
        settled = training.model_dump(exclude={"all_videos"})
        lengths = getattr(network, "lengths", network.horizon)
        determining = [lengths, config, settled, network.states.by_task()]
        return cls.train_networks(
            networks, train, val, settings, training, determining=determining, **options
        )

    def trained_on_all(
        self, train: Windows, val: Windows, *, settings: Any, **options: Any
    ) -> tuple[Network, ...] | None:
        """Return networks trained further with validation windows; None if not asked for.

        Args:
            train: Training windows.
            val: Validation windows.
            settings: Settings of the run.
            options: Further arguments of the training.
        """
        both = final_windows(train, val, self.training_of(settings))
        if both is train:
            return None
        networks = deepcopy(self.networks)
        self.train_all(networks, both, val, settings=settings, further=True, **options)
        return networks

    @override
    @classmethod
    def begin(cls, network: Network, learned: Network) -> None:
        network.take_over(learned)

    @cached_property
    def shape(self) -> Shape:  # type: ignore[override]
        """The sizes of the data."""
        tasks, actions = self.states.lookup.shape
        network = self.network
        return Shape(
            observation_dim=network.observation_dim,
            tasks=tasks,
            actions=actions,
            horizon=network.horizon,
        )

    @cached_property
    def states(self) -> TaskStates:
        """The states, alike for all networks."""
        return self.network.states


@dataclass(frozen=True, eq=False, repr=False)
class EnsemblePlanner(Sized, BasePlanner):
    """Planner by networks whose scores are averaged."""

    together: ClassVar[int] = 512  # queries whose scores are held at once
    ensemble: ClassVar[Any]  # class of its model, a `ChainEnsemble`
    model: Any

    @classmethod
    def fit(cls, train: Windows, val: Windows, **options: Any) -> Fitted[Self]:
        """Train the chain over the actions that training windows show of each task."""
        return cls._fitted(train, val, None, **options)

    def refit(self, train: Windows, val: Windows, **options: Any) -> Fitted[Self]:
        """Return a planner that begins with this one and is trained on further windows."""
        return self._fitted(train, val, self.model, **options)

    @classmethod
    def _fitted(cls, train: Windows, val: Windows, start: Any, **options: Any) -> Fitted[Self]:
        training = cls.ensemble.training_of(options["settings"])
        start_actions = () if start is None else start.states.by_task()
        space = extended_space(start_actions, final_windows(train, val, training), "training")
        model, trainings = cls.ensemble.fit(train, val, space=space, start=start, **options)
        planner = cls(model.on_all_videos(train, val, **options))
        return Fitted(planner, trainings, ends_on_all(training, val))

    @classmethod
    def load(cls, folder: Path | str, **options: Any) -> Self:
        """Load the planner that was saved in a folder."""
        return cls(cls.ensemble.load(folder, **options))

    def save(self, folder: Path | str) -> None:
        """Write all networks into one file."""
        self.model.save(folder)

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The sizes of the data."""
        shape: Shape = self.model.shape
        return shape

    @property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of all networks."""
        parameters: dict[str, int] = self.model.parameters
        return parameters

    plan = torch.inference_mode()(full_precision()(BasePlanner.plan))

    @override
    def decode_allowed(self, queries: Queries, top_k: int, constraints: Constraints) -> list[Plans]:
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
                _log_sequences(self.weighted_scores(block), block_sequences)
                for block, block_sequences in zip(blocks, rows, strict=True)
            ]
        )

    @torch.inference_mode()
    @full_precision()
    def first_pairs(self, queries: Queries) -> NDArray[np.floating[Any]]:
        """Return the probabilities of the first two actions, summed over all that may follow."""
        return _first_pairs(self.weighted_scores(queries))

    def log_tasks(self, queries: Queries) -> NDArray[np.float64]:
        """Return log p(task | what is known) [N, C], summed over sequences and lengths."""
        raise NotImplementedError

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """Return the likeliest tasks [N], or the given ones."""
        if queries.tasks is not None:
            return queries.tasks
        return np.asarray(self.log_tasks(queries).argmax(axis=1), dtype=np.int64)

    def block_plans(self, queries: Queries, top_k: int, constraints: Constraints) -> list[Plans]:
        """Return the likeliest sequences of queries whose scores fit the memory.

        Args:
            queries: B queries.
            top_k: Number of plans of each.
            constraints: Constraints on the plans.
        """
        raise NotImplementedError

    def weighted_scores(self, queries: Queries) -> list[WeightedScores]:
        """Return the scores of each length and its probability; of the given task, if any."""
        raise NotImplementedError


def _log_sequences(
    parts: Sequence[WeightedScores],  # of all lengths
    sequences: NDArray[np.int64],  # actions of one sequence of each query [B, T], −1 after the last
) -> NDArray[np.float64]:
    """Return log p(T) + log Σ_c p(c, sequence | T) [B]; −∞ for impossible sequences."""
    actions = torch.from_numpy(sequences).to(parts[0].log_weight.device)
    lengths = (actions >= 0).sum(dim=1)
    log_probabilities = actions.new_full((len(actions),), -torch.inf, dtype=torch.float64)
    for weighted in parts:
        rows = (lengths == weighted.scores.horizon).nonzero()[:, 0]
        if len(rows):
            unpadded = actions[rows, : weighted.scores.horizon]
            logs = weighted.scores.rows(rows).log_sequence_probabilities(unpadded)
            log_probabilities[rows] = (weighted.log_weight[rows] + logs).double()
    return np.asarray(log_probabilities.cpu().numpy())


def _first_pairs(parts: Sequence[WeightedScores]) -> NDArray[np.floating[Any]]:
    """Return the probabilities of the first two actions, summed over lengths, tasks and the rest.

    Of B queries [B, K, K + 1]; in the last column, of sequences that end after the first action.
    """
    states = parts[0].scores.states
    batch, actions = len(parts[0].log_weight), states.lookup.shape[1]
    probabilities = parts[0].log_weight.new_zeros(batch, actions, actions + 1)
    # action of each place of each task; `actions` at places without a state, [C, A]
    ids = torch.cat([states.actions, states.actions.new_tensor([actions])])[states.grid]
    pairs = (ids[:, :, None] * (actions + 1) + ids[:, None]).flatten()  # [C · A · A]
    real = ((ids[:, :, None] < actions) & (ids[:, None] < actions)).flatten()
    for weighted in parts:
        weight = weighted.log_weight.exp()[:, None]  # p(T)
        if weighted.scores.horizon == 1:
            first = weight * weighted.scores.log_marginals()[:, 0].exp()  # [B, S]
            probabilities[:, :, actions].index_add_(1, states.actions, first)
        else:
            joint = weight * weighted.scores.log_pairs().flatten(1).exp()  # [B, C · A · A]
            probabilities.flatten(1).index_add_(1, pairs[real], joint[:, real])
    return np.asarray(probabilities.cpu().numpy())
