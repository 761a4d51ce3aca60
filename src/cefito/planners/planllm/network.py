"""The network of PlanLLM-style planning: SCHEMA's, with two additions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cefito.planners.planllm.layers import Exchange, QueryTransformer
from cefito.planners.planllm.settings import PlanLlmConfig
from cefito.planners.schema.network import Encoded, SchemaNetwork

__all__ = ["PlanLlmNetwork"]


class PlanLlmNetwork(SchemaNetwork):
    """SCHEMA's network, in which the two states see each other, and queries look at both.

    Encoded states pass an encoder, after which they are aligned, and a second one, after which they
    are decoded from. What the learned queries find in them is added to what the decoder of states
    begins with. Without layers of either kind it is SCHEMA's network.

    Args:
        config: Widths and options.
        sizes: As of `SchemaNetwork`.
    """

    config: PlanLlmConfig

    def __init__(self, *, config: PlanLlmConfig, **sizes: Any) -> None:
        super().__init__(config=config, **sizes)
        shape = {"width": config.width, "heads": config.exchange_heads, "layers": config.exchange}
        self.first_exchange, self.second_exchange = Exchange(**shape), Exchange(**shape)
        self.asking: QueryTransformer | None = None
        if config.query_layers:
            self.asking = QueryTransformer(
                width=config.width,
                heads=config.query_heads,
                hidden=config.query_feedforward or 4 * config.width,
                layers=config.query_layers,
                queries=self.horizon + 1,
            )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew, as `SchemaNetwork.reset`, and the queries."""
        super().reset(generator)
        if self.asking is not None:
            self.asking.reset(generator)

    def encode(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Encoded:
        """Encode observations [B, E], and let the two states see each other."""
        return self.exchanged(torch.stack([initial, goal], dim=1), generator)

    def exchanged(self, observations: Tensor, generator: torch.Generator | None) -> Encoded:
        """The first and the last state of observations [B, S, E], once all have seen each other."""
        states = self.encoded(observations, generator)
        seen = self.first_exchange(states, self._drop(self.config.input_dropout, generator))
        ends = seen[:, [0, -1]]
        return Encoded(
            aligned=ends,
            states=self.second_exchange(ends, self._drop(self.config.dropout, generator)),
        )

    def added(self, states: Tensor, generator: torch.Generator | None) -> Tensor:
        """What the queries find in the states, [B, T + 1, D]."""
        if self.asking is None:
            return super().added(states, generator)
        return self.asking(states, self._drop(self.config.query_dropout, generator))  # type: ignore[no-any-return]
