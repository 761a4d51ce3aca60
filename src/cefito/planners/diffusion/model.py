"""A trained network of diffusion: how it is trained, what it scores, which plans are best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.planners.base import Queries
from cefito.planners.context import TrainingContext
from cefito.planners.diffusion.loss import DiffusionLoss
from cefito.planners.diffusion.network import BLOCK, DiffusionNetwork
from cefito.planners.network import TrainedNetwork, finite_outputs, train_network
from cefito.runtime import Stream
from cefito.search.problem import Plans, SearchCost
from cefito.search.step_costs import StepCosts
from cefito.training.trainer import TrainingResult

__all__ = ["DiffusionModel", "SavedSizes", "best_plans", "check_tasks", "saved_sizes"]

Network = TypeVar("Network", bound=DiffusionNetwork)


class DiffusionModel(TrainedNetwork[Network]):
    """A trained network of diffusion.

    Attributes:
        stream: What its weights are drawn from.
    """

    stream: ClassVar[Stream]

    @classmethod
    def train(
        cls,
        network: Network,
        train: Windows,
        val: Windows,
        *,
        known: Sequence[NDArray[np.int64]],
        val_known: Sequence[NDArray[np.int64]],
        weights: Tensor,
        seed: int,
        settings: Any,
        context: TrainingContext,
        part: str = "",
    ) -> TrainingResult:
        """Train a network on windows, keep the epoch of the best validation success rate.

        Args:
            network: The network, trained in place.
            train: Training windows.
            val: Validation windows.
            known: As of `DiffusionLoss`.
            val_known: As of `DiffusionLoss`.
            weights: What the rows weigh, [T].
            seed: Seed of weights, batches, times and noise.
            settings: All else that determines the result, for JSON.
            context: Where it is trained.
            part: What stands behind the title, where several such networks are trained.

        Raises:
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        return train_network(
            network,
            lambda network: DiffusionLoss(
                network=network,
                train=train,
                val=val,
                known=known,
                val_known=val_known,
                weights=weights,
            ),
            name=cls.title + part,
            training=network.config.training,
            stream=cls.stream,
            seed=seed,
            settings=settings,
            context=context,
            centre=network.config.centre,
        )

    @torch.inference_mode()
    def scores(self, queries: Queries, *blocks: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each action at each step of each query, [N, T, K].

        Args:
            queries: At least one.
            blocks: What the given blocks are filled from, in their order, [N, …] each.

        Raises:
            RunError: Observations of another dimension, or scores that are no numbers.
        """
        initial, goal = self.observations(queries, self.network.observation_dim)
        known = (*(torch.from_numpy(block).to(self.device) for block in blocks), initial, goal)
        parts = zip(*(part.split(BLOCK) for part in known), strict=True)
        scores = torch.cat([self.network.scores(*part) for part in parts])
        finite_outputs(scores.where(~scores.isneginf(), 0), self.title)
        return np.asarray(scores.cpu().numpy())


class SavedSizes(NamedTuple):
    """Sizes of a saved network.

    Attributes:
        horizon: T.
        action_count: K.
        observation_dim: E.
        before: Columns of all given blocks together.
    """

    horizon: int
    action_count: int
    observation_dim: int
    before: int


def saved_sizes(tensors: Mapping[str, Tensor]) -> SavedSizes:
    """The sizes of a network whose weights were saved.

    Raises:
        KeyError: A tensor is missing.
        ValueError: Tensors do not fit each other.
    """
    horizon, action_count = tensors["noise"].shape
    (observation_dim,) = tensors["mean"].shape
    before = tensors["unet.end.1.bias"].shape[0] - action_count - observation_dim
    if before < 0:
        raise ValueError(f"{before} columns of given blocks")
    return SavedSizes(horizon, action_count, observation_dim, before)


def check_tasks(tasks: NDArray[np.int64], count: int) -> None:
    """Refuse tasks that a network does not know.

    Raises:
        RunError: An id that is none of the `count` first.
    """
    unknown = tasks[(tasks < 0) | (tasks >= count)]
    if len(unknown):
        raise RunError(f"task {unknown[0]}: unknown. This run knows the tasks 0 to {count - 1}.")


def best_plans(scores: NDArray[np.float64], top_k: int, effort: SearchCost) -> Plans:
    """The sequences of the highest sums of scores [T, K], ties by action ids.

    Minus infinity forbids. Only the `top_k` best actions of a step can occur: for any other, each
    of these in its place would give a better sequence.
    """
    kept = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :top_k], axis=1)
    chain = StepCosts(costs=tuple(-np.take_along_axis(scores, kept, axis=1)))
    best = chain.cheapest(top_k)
    actions = kept[np.arange(len(kept)), best.sequences]
    return Plans(
        actions=actions, energies=best.costs, scores=best.costs, evaluated=effort, exact=False
    )
