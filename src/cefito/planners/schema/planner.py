"""SCHEMA: procedure planning by the state changes of steps (Niu et al., ICLR 2024).

Reimplemented from its published description.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.encoders.cache import CachedText
from cefito.encoders.text import PretrainedText
from cefito.planners.base import Marginals, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.queries import finite_outputs
from cefito.planners.schema.loss import SchemaLoss
from cefito.planners.schema.network import BLOCK, Encoded, SchemaNetwork
from cefito.planners.schema.settings import Described, SchemaConfig
from cefito.planners.shared.descriptions import (
    EndMeans,
    name_vectors,
    read_descriptions,
    template_vectors,
)
from cefito.planners.shared.transitions import counted_transitions, decode, log_guarded
from cefito.search.problem import Plans, SearchCost

KINDS: dict[Described, str] = {
    "file": "",  # as published
    "templates": "template sentences",
    "observations": "mean observations",
    "names": "name hashes",
    "free": "free vectors",
    "none": "no descriptions",
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

    method: ClassVar[str] = "SCHEMA"
    departures: ClassVar[tuple[str, ...]] = ()
    title = "SCHEMA network"
    part = "schema"
    section = "schema_model"
    stream = 11
    own_mean = True
    ignored = frozenset({"descriptions", "name_width", "text_encoder", "text_layer"})
    build: ClassVar[Any] = SchemaNetwork
    loss: ClassVar[Any] = SchemaLoss
    config: SchemaConfig

    @override
    @classmethod
    def text_dim(cls, config: SchemaConfig, shape: Shape) -> int:
        widths = {"names": config.name_width, "file": _PUBLISHED_WIDTH}
        return (widths | {"templates": _PUBLISHED_WIDTH}).get(config.described, 0)

    @override
    @classmethod
    def text_vectors(cls, config: SchemaConfig, train: Windows) -> NDArray[np.float32] | None:
        taxonomy = train.taxonomy
        if config.described == "names":
            return name_vectors([action.name for action in taxonomy.actions], config.name_width)
        if config.described == "templates":
            encoder = PretrainedText(config.text_encoder, layer=config.text_layer or None)
            return template_vectors(taxonomy, CachedText(encoder))
        if config.described == "file":
            setting = f"{cls.section or cls.part}.descriptions"
            return read_descriptions(
                Path(config.descriptions), actions=len(taxonomy.actions), setting=setting
            )
        return None

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
        counts = counted_transitions(train, len(network.counts), config.transitions)
        network.counts.copy_(torch.from_numpy(counts))

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name in tables; says how it departs from the published method."""
        return named_departures(self.method, (*self.departures, KINDS[self.config.described]))

    def encoded(self, queries: Queries) -> Encoded:
        """The encoded observations of queries."""
        initial, goal = self.observations(queries)
        return self.network.encode(initial, goal)

    @override
    @torch.inference_mode()
    def marginals(self, queries: Queries) -> Marginals:
        logits = self.network.task_logits(self.encoded(queries).states)
        shares = finite_outputs(logits, self.title).double().softmax(dim=1)
        return Marginals(tasks=shares.cpu().numpy())

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        network, parts = self.network, []
        memory = network.memory()
        for block in queries.blocks(BLOCK):
            tasks = None if block.tasks is None else self.on_device(block.tasks)[0]
            parts.append(network.decode(self.encoded(block), tasks, memory, None).actions)
        emissions = finite_outputs(torch.cat(parts), self.title).double().log_softmax(dim=2)
        transitions = log_guarded(network.counts, smoothing=self.config.smoothing)
        best = decode(emissions, transitions, top_k)
        return best.plans(SearchCost(token_forwards=3 * self.horizon + 2, leaves=0))
