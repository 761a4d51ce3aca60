"""P3IV: probabilistic procedure planning from instructional videos (Zhao et al., CVPR 2022).

Learned anew from its published facts. A transformer decoder with learned memory gives the actions
and states of a plan in one pass; states are drawn to the names of their actions, so that no
observation between initial and goal is needed. Noise makes the decoder probabilistic: a plan is
decoded from the actions that many noises lead to, and from the transitions of training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    Fitted,
    Queries,
    Shape,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.network import (
    NetworkPlanner,
    TrainedNetwork,
    finite_outputs,
    learned,
    train_network,
)
from cefito.planners.p3iv.decoding import best_sequences
from cefito.planners.p3iv.loss import P3ivLoss
from cefito.planners.p3iv.names import language_vectors
from cefito.planners.p3iv.network import P3ivNetwork
from cefito.planners.p3iv.settings import Language, P3ivConfig, P3ivSettings
from cefito.planners.shared.transitions import counted_transitions
from cefito.progress import Progress, silent
from cefito.runtime import Stream
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import TrainingResult

__all__ = ["P3ivModel", "P3ivPlanner"]

_KINDS: dict[Language, str] = {
    "text": "",  # as published
    "names": "name hashes",
    "none": "no language",
}


@dataclass(frozen=True)
class P3ivModel(TrainedNetwork[P3ivNetwork]):
    """A trained network of P3IV, which holds the counts of transitions."""

    title: ClassVar[str] = "P3IV"
    file: ClassVar[str] = "p3iv.safetensors"

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: P3ivConfig,
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train on windows, keep the epoch of the best validation success rate, then mean accuracy.

        The critic has served then, and goes.

        Args:
            train: Training windows; transitions are counted in their videos.
            val: Validation windows.
            config: The network and how it is trained.
            seed: Seed of weights, batches and all noise.
            context: Where it is trained.

        Raises:
            ConfigError: Observations cannot be divided into the configured rows.
            DataError: Text vectors are asked for and there are none.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        action_count = len(train.taxonomy.actions)
        names, kind = language_vectors(config, train)
        digest = "" if names is None else hashlib.sha256(names.tobytes()).hexdigest()
        network = P3ivNetwork(
            config=config,
            observation_dim=train.initial.shape[1],
            action_count=action_count,
            horizon=train.horizon,
            language_dim=0 if names is None else names.shape[1],
            critic=config.adversarial > 0,
        )
        network.observe(train)
        network.counts.copy_(torch.from_numpy(counted_transitions(train, action_count, "videos")))
        network.hashed.fill_(kind == "names")
        result = train_network(
            network,
            lambda network: P3ivLoss(
                network=network, train=train, val=val, names=names, config=config
            ),
            name=cls.title,
            training=config.training,
            stream=Stream.P3IV,
            seed=seed,
            settings=[train.horizon, config.model_dump() | {"language": digest}],
            context=context.part("p3iv"),
        )
        network.critic = None
        return cls(network), result

    @classmethod
    def load(cls, folder: Path, *, config: P3ivConfig, device: torch.device | str = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(cls.read(folder, partial(_build, config), device=device))

    @property
    def language(self) -> Language:
        """What its states were drawn to."""
        if self.network.language is None:
            return "none"
        return "names" if bool(self.network.hashed) else "text"

    @torch.inference_mode()
    def emissions(self, queries: Queries) -> Tensor:
        """Logarithms of how likely each action is at each step of each query, [N, T, K].

        Raises:
            RunError: Observations of another dimension, or the network gives no numbers.
        """
        network = self.network
        emissions = network.emissions(*self.observations(queries, network.observation_dim))
        return finite_outputs(emissions, self.title)


@dataclass(frozen=True, eq=False, repr=False)
class P3ivPlanner(NetworkPlanner):
    """Plans the likeliest sequences under sampled actions and the transitions of training.

    Energies and scores are minus the logarithm of the product that is maximised, and the list is
    exact; under decoding "greedy" minus that of the last action's emission, and nothing is exact.
    Of a task it makes no use. Memory, noises and what they are decoded by are the network's own, so
    that nothing is drawn in planning.

    Attributes:
        model: The network.
    """

    abilities: ClassVar[Abilities] = Abilities(true_task=False)
    model: P3ivModel

    @classmethod
    def sizes(cls, settings: P3ivSettings, shape: Shape) -> dict[str, int]:
        """Those of encoder, decoder and all heads, without the critic."""
        config = settings.p3iv
        hashed = config.language == "names" or not shape.text_dim
        names = config.name_width if hashed else shape.text_dim
        network = P3ivNetwork(
            config=config,
            observation_dim=shape.observation_dim,
            action_count=shape.actions,
            horizon=shape.horizon,
            language_dim=names if config.contrastive else 0,
        )
        return {P3ivModel.title: learned(network)}

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: P3ivSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Count transitions and train the network.

        Raises:
            ConfigError: Observations cannot be divided into the configured rows.
            DataError: Text vectors are asked for and there are none.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        model, result = P3ivModel.fit(train, val, config=settings.p3iv, seed=seed, context=context)
        return Fitted(cls(model), {P3ivModel.title: result})

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: P3ivSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        return cls(P3ivModel.load(Path(folder), config=settings.p3iv, device=context.device))

    def save(self, folder: Path | str) -> None:
        """Write weights, noises and transitions."""
        self.model.save(Path(folder))

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called in tables; says where it is not as the paper describes it."""
        config = self.model.network.config
        departures = (
            "" if config.noise else "no noise",
            "" if config.memory == "slots" else "one memory vector a layer",
            "" if config.decoding == "viterbi" else "greedy",
            "dropout in planning" if config.test_dropout else "",
            _KINDS[self.model.language],
        )
        said = ", ".join(departure for departure in departures if departure)
        return f"P3IV ({said})" if said else "P3IV"

    @property
    def parameters(self) -> dict[str, int]:
        """Those of encoder, decoder and all heads, as published; without the critic."""
        return {P3ivModel.title: self.model.parameters}

    @property
    def vocabulary(self) -> Vocabulary:
        """The number of actions that it was fitted for."""
        return Vocabulary(None, self.model.network.action_count)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The given tasks; it predicts none."""
        return queries.tasks

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query, best first; fewer where there are not so many sequences.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension.
        """
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        config, network = self.model.network.config, self.model.network
        emissions = self.model.emissions(queries)
        best = best_sequences(emissions, network.counts, top_k, config.decoding)
        tokens = config.passes * (self.horizon + 1)
        return best.plans(SearchCost(token_forwards=tokens, leaves=0))


def _build(config: P3ivConfig, tensors: Mapping[str, Tensor]) -> P3ivNetwork:
    """A network for weights of its sizes."""
    action_count, _ = tensors["counts"].shape
    (observation_dim,) = tensors["mean"].shape
    horizon = len(tensors["positions"]) - 1
    if horizon < 1 or not action_count or observation_dim % config.rows:
        raise ValueError("no actions, or observations that are no rows")
    if int(tensors["dropout_seed"]) < 0:
        raise ValueError("a negative seed")
    return P3ivNetwork(
        config=config,
        observation_dim=observation_dim,
        action_count=action_count,
        horizon=horizon,
        language_dim=tensors["language.0.weight"].shape[1] if config.contrastive else 0,
    )
