"""SCHEMA: procedure planning by the state changes of steps (Niu et al., ICLR 2024).

Reimplemented from its published description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Marginals, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.queries import finite_outputs
from cefito.planners.schema.method import Described, SchemaConfig
from cefito.planners.schema.network import BLOCK, SchemaNetwork
from cefito.planners.shared.descriptions import EndMeans, description_vectors
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.planners.shared.transitions import counted_transitions, decode, log_guarded
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import Term

_LEFT_OUT = 0.3  # share of the videos left out of mean observations at each step, as of the field


class SchemaLoss(PlanLoss):
    """Cross-entropy of actions, tasks and alignment (of both ends), and errors of decoded states.

    The target of a decoded state is the mean of the encoded descriptions of the state after the
    action before it and of the state before the action behind it; no gradient flows into them. The
    true tasks are given in training, the predicted ones in validation.
    """

    def __init__(
        self,
        network: SchemaNetwork,
        train: Windows,
        val: Windows,
        text: NDArray[np.float32] | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(network, train, val)
        self.means: EndMeans | None = None
        if self.config.described == "observations":
            self.means = EndMeans(train, network.prepared, self.device)
        self.transitions = log_guarded(network.counts, smoothing=self.config.smoothing)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """The losses of a batch."""
        config = self.config
        states = self.module.encode(*self.observations.draw(rows, generator), generator=generator)
        described = None
        if self.means is not None:
            described = self.means.without(rows, _LEFT_OUT, generator)
        actions, tasks = self.actions[rows], self.tasks[rows]
        memory = self.module.memory(described, generator=generator)
        outputs = self.module.decode(states, tasks, memory, generator)
        logits = outputs.actions.flatten(0, 1)  # [B · T, K]
        terms = {
            "actions": mean_term(1.0, F.cross_entropy(logits, actions.flatten(), reduction="none")),
            "task": mean_term(config.task, F.cross_entropy(outputs.tasks, tasks, reduction="none")),
        }
        if config.alignment:
            logits = self.module.alignment(states, memory.encoded).flatten(0, 1)
            ends = actions[:, [0, -1]].flatten()
            terms["alignment"] = mean_term(
                config.alignment, F.cross_entropy(logits, ends, reduction="none")
            )
        if config.states and outputs.between.shape[1]:
            # each [K, D]; the state after step t is after(a_t) and before(a_t+1)
            before, after = memory.encoded.detach().float().mean(dim=2).unbind(dim=1)
            target = (after[actions[:, :-1]] + before[actions[:, 1:]]) / 2
            terms["states"] = mean_term(config.states, (outputs.between.float() - target).square())
        return terms

    @override
    def best_sequences(self) -> Tensor:
        memory, best = self.module.memory(), []
        initial, goal, _ = self.val
        for ends in zip(initial.split(BLOCK), goal.split(BLOCK), strict=True):
            logits = self.module.decode(self.module.encode(*ends), None, memory, None).actions
            best.append(decode(logits.double().log_softmax(dim=2), self.transitions, 1).sequences)
        return torch.cat(best)[:, 0]


KINDS: dict[Described, str] = {
    "file": "",  # as published
    "observations": "mean observations",
    "names": "name hashes",
}
"""Names of the kinds of descriptions in tables."""
_PUBLISHED_WIDTH = 768  # of embeddings of CLIP ViT-L/14 at 336 pixels


@dataclass(frozen=True, eq=False, repr=False)
class SchemaPlanner(NetworkPlanner[SchemaNetwork]):
    """Plans the sequences of the largest products of the actions' probabilities and transitions.

    Energies and scores are minus the logarithm of the product, and the list is exact. Tasks are
    predicted by the network's head; the true task is given in training, the predicted one in
    planning.
    """

    title = "SCHEMA network"
    part = "schema"
    section = "schema_model"
    stream = 11
    own_mean = True
    ignored = frozenset({"descriptions", "name_width"})
    build = SchemaNetwork
    loss: ClassVar[Any] = SchemaLoss
    config: SchemaConfig

    @override
    @classmethod
    def text_dim(cls, config: SchemaConfig, shape: Shape) -> int:
        return {"names": config.name_width, "file": _PUBLISHED_WIDTH}.get(config.described, 0)

    @override
    @classmethod
    def text_vectors(cls, config: SchemaConfig, train: Windows) -> NDArray[np.float32] | None:
        if config.described == "observations":
            return None
        setting = "schema_model.descriptions"
        return description_vectors(config.descriptions, train, config.name_width, setting=setting)

    @override
    @classmethod
    def observe(cls, network: SchemaNetwork, train: Windows, *given: NDArray[np.float32]) -> None:
        config = network.config
        if config.centre:
            both = np.concatenate([train.initial, train.goal])
            network.mean.copy_(torch.from_numpy(both.mean(axis=0, dtype=np.float64)))
        if given:
            network.descriptions.copy_(torch.from_numpy(given[0]))
        elif config.described == "observations":
            network.descriptions.copy_(EndMeans(train, network.prepared).all())
        counts = counted_transitions(train, len(network.counts))
        network.counts.copy_(torch.from_numpy(counts))

    @property
    def name(self) -> str:
        """Name in tables; says how it departs from the published method."""
        return named_departures("SCHEMA", [KINDS[self.config.described]])

    @override
    @torch.inference_mode()
    def marginals(self, queries: Queries) -> Marginals:
        logits = self.network.task_logits(self.network.encode(*self.observations(queries)))
        shares = finite_outputs(logits, self.title).double().softmax(dim=1)
        return Marginals(tasks=shares.cpu().numpy())

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        network, parts = self.network, []
        memory = network.memory()
        for block in queries.blocks(BLOCK):
            tasks = None if block.tasks is None else self.on_device(block.tasks)[0]
            states = network.encode(*self.observations(block))
            parts.append(network.decode(states, tasks, memory, None).actions)
        emissions = finite_outputs(torch.cat(parts), self.title).double().log_softmax(dim=2)
        transitions = log_guarded(network.counts, smoothing=self.config.smoothing)
        best = decode(emissions, transitions, top_k)
        return best.plans(SearchCost(token_forwards=3 * self.horizon + 2, leaves=0))
