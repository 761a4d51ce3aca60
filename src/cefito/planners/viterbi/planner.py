"""ViterbiPlanNet (arXiv 2603.04265): emissions of a network, decoded over known transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Abilities, Marginals, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.descriptions import description_vectors
from cefito.planners.shared.graph import transition_counts
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.planners.viterbi.method import ABILITIES, Alignment, ViterbiConfig
from cefito.planners.viterbi.network import (
    ViterbiNetwork,
    ViterbiOutputs,
    clamped_transitions,
    decode,
    log_marginals,
)
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import Term


class ViterbiLoss(PlanLoss):
    """Errors of marginals and of task logits, and misalignment with descriptions [K, 6, W] if any.

    Published is mean squared error of the marginals to the one-hot actions, plus cross-entropy of
    the alignment, averaged over the initial and the goal observation, plus mean squared error of
    the raw task logits to the one-hot task, all of weight 1, with means over all entries.
    """

    def __init__(
        self,
        network: ViterbiNetwork,
        train: Windows,
        val: Windows,
        descriptions: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(network, train, val)
        self.transitions = clamped_transitions(network.counts).float()
        self.descriptions = None if descriptions is None else self.placed(descriptions)[0]

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """The losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        actions, tasks = self.actions[rows], self.tasks[rows]
        outputs = self.module(initial, goal, generator=generator)
        marginals = log_marginals(outputs.emissions, self.transitions).exp()  # [B, T, K]
        terms = {"marginals": _squared(1.0, marginals, actions)}
        if self.descriptions is not None:
            # [B, 2, K]: initial and goal observation against the first and the last action
            logits = self.module.alignment(outputs.states, self.descriptions, generator=generator)
            ends = actions[:, [0, -1]]
            errors = F.cross_entropy(logits.flatten(0, 1), ends.flatten(), reduction="none")
            terms["alignment"] = mean_term(self.config.alignment, errors)
        if self.config.task:
            terms["task"] = _squared(self.config.task, outputs.tasks, tasks)
        return terms

    @override
    def best_sequences(self) -> Tensor:
        initial, goal, _ = self.val
        emissions = self.module(initial, goal).emissions
        return decode(emissions, self.module.counts, 1).sequences[:, 0]


def _squared(weight: float, values: Tensor, chosen: Tensor) -> Term:
    """Mean squared error of values [..., n] to one-hot vectors of the chosen places [...]."""
    return mean_term(weight, (values - F.one_hot(chosen, values.shape[-1])).square())


_KINDS: dict[Alignment, str] = {
    "file": "",  # as published
    "names": "name hashes",
    "none": "no alignment",
}


@dataclass(frozen=True, eq=False, repr=False)
class ViterbiPlanner(NetworkPlanner[ViterbiNetwork]):
    """Plans the likeliest sequences under the layer's marginals and the transitions.

    Energies and scores are minus the logarithm of the product that `decode` maximises, and
    the list is exact. Tasks are predicted by an auxiliary head, and change no plan. Without any
    sequence of positive probability, the only plan takes the likeliest action of each step.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    title = "ViterbiPlanNet"
    part = "viterbi"
    stream: ClassVar[int] = 6
    build = ViterbiNetwork
    loss = ViterbiLoss
    ignored = frozenset({"name_width", "members"})
    config: ViterbiConfig

    @override
    @classmethod
    def text_dim(cls, config: ViterbiConfig, shape: Shape) -> int:
        return config.name_width if config.aligned_with in ("file", "names") else 0

    @override
    @classmethod
    def text_vectors(cls, config: ViterbiConfig, train: Windows) -> NDArray[np.float32] | None:
        if config.aligned_with == "none":
            return None
        setting = "viterbi.descriptions"
        return description_vectors(config.descriptions, train, config.name_width, setting=setting)

    @override
    @classmethod
    def observe(cls, network: ViterbiNetwork, train: Windows, *given: NDArray[np.float32]) -> None:
        network.counts.copy_(torch.from_numpy(transition_counts(train, len(network.counts))))

    @property
    def name(self) -> str:
        """Name in tables; says how it departs from the published method."""
        members = len(self.networks)
        departures = (
            _KINDS[self.config.aligned_with],
            "" if members == 1 else f"{members} members",
        )
        return named_departures("ViterbiPlanNet", departures)

    @override
    @torch.inference_mode()
    def marginals(self, queries: Queries) -> Marginals:
        if self.network.task is None:
            return Marginals()
        logits = torch.stack([outputs.tasks for outputs in self.outputs(queries)]).mean(dim=0)
        return Marginals(tasks=logits.double().softmax(dim=1).cpu().numpy())

    def outputs(self, queries: Queries) -> list[ViterbiOutputs]:
        """The outputs of each member for queries."""
        observations = self.observations(queries)
        return [network(*observations) for network in self.networks]

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        outputs = self.outputs(queries)
        emissions = torch.stack([member.emissions for member in outputs]).mean(dim=0)
        finite_outputs(emissions, self.title)
        best = decode(emissions, self.network.counts, top_k)
        return best.plans(SearchCost(token_forwards=2, leaves=0))
