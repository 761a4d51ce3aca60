"""P3IV: probabilistic procedure planning from instructional videos (Zhao et al., CVPR 2022).

Reimplemented from its published description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.errors import DataError
from cefito.planners.base import Abilities, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.p3iv.decoding import best_sequences
from cefito.planners.p3iv.loss import P3ivLoss
from cefito.planners.p3iv.method import ABILITIES
from cefito.planners.p3iv.network import P3ivNetwork
from cefito.planners.p3iv.settings import P3ivConfig
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.descriptions import name_vectors
from cefito.search.problem import Plans, SearchCost


@dataclass(frozen=True, eq=False, repr=False)
class P3ivPlanner(NetworkPlanner[P3ivNetwork]):
    """Plans the likeliest sequences under sampled actions and the transitions of training.

    Energies and scores are minus the logarithm of the product that is maximised, and the list is
    exact; under decoding "greedy" minus the logarithm of the last action's emission. Tasks play no
    part, and nothing is drawn in planning.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    title = "P3IV"
    part = "p3iv"
    stream = 15
    own_mean = True
    build = P3ivNetwork
    loss = P3ivLoss
    config: P3ivConfig

    @override
    @classmethod
    def text_dim(cls, config: P3ivConfig, shape: Shape) -> int:
        if not config.contrastive:
            return 0
        return (
            config.name_width if config.language == "names" else shape.text_dim or config.name_width
        )

    @override
    @classmethod
    def text_vectors(cls, config: P3ivConfig, train: Windows) -> NDArray[np.float32] | None:
        if not config.contrastive:
            return None
        if config.language == "text" and train.action_text is None:
            raise DataError(
                f"data set '{train.dataset}': has no text vectors of the actions, which "
                "p3iv.language = 'text' needs. Embed their names first, or set p3iv.language to "
                "'names'.",
                setting="p3iv.language",
            )
        if not _hashes(config, train):
            return np.ascontiguousarray(train.action_text, dtype=np.float32)
        names = [action.name for action in train.taxonomy.actions]
        return name_vectors(names, config.name_width)[:, 0].copy()

    @override
    @classmethod
    def observe(cls, network: P3ivNetwork, train: Windows, *given: NDArray[np.float32]) -> None:
        network.observe(train)
        network.hashed.fill_(bool(given) and _hashes(network.config, train))
        if network.config.adversarial:
            network.add_critic()

    def __post_init__(self) -> None:
        for network in self.networks:
            network.critic = None  # it serves in training only

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name in tables; says how it departs from the paper."""
        config = self.config
        departures = (
            "" if config.noise else "no noise",
            "" if config.memory == "slots" else "one memory vector a layer",
            "" if config.decoding == "viterbi" else "greedy",
            "dropout in planning" if config.test_dropout else "",
            "" if config.contrastive else "no language",
            "name hashes" if bool(self.network.hashed) else "",
        )
        return named_departures("P3IV", departures)

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        initial, goal = self.observations(queries)
        emissions = finite_outputs(self.network.emissions(initial, goal), self.title)
        best = best_sequences(emissions, self.network.counts, top_k, self.config.decoding)
        return best.plans(SearchCost(self.config.passes * (self.horizon + 1), leaves=0))


def _hashes(config: P3ivConfig, train: Windows) -> bool:
    """Whether vectors hashed from the names take the place of text vectors."""
    return config.language == "names" or train.action_text is None
