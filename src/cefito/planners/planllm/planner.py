"""PlanLLM-style planning (after Yang et al., AAAI 2025), without its language models.

The published encoder sees the true states between the steps; this one sees both observations alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from cefito.planners.base import Shape
from cefito.planners.planllm.method import PlanLlmConfig
from cefito.planners.schema.network import Encoded, SchemaNetwork
from cefito.planners.schema.planner import SchemaLoss, SchemaPlanner
from cefito.planners.shared.layers import Drop, MultiHeadAttention, dropping, keep

_TOKEN_DEVIATION = 0.02  # of the learned queries at first


class PlanLlmNetwork(SchemaNetwork):
    """SCHEMA's network, in which the two states attend to each other, and queries to both.

    Encoded states pass an encoder, after which they are aligned, and a second one, after which they
    are decoded from. The output of the learned queries is added to the first input of the decoder
    of states. Without layers of either kind it is SCHEMA's network.
    """

    config: PlanLlmConfig

    def __init__(self, config: PlanLlmConfig, shape: Shape) -> None:
        super().__init__(config, shape)
        sizes = {"width": config.width, "heads": config.exchange_heads, "layers": config.exchange}
        self.first_exchange, self.second_exchange = Exchange(**sizes), Exchange(**sizes)
        self.asking: QueryTransformer | None = None
        if config.query_layers:
            self.asking = QueryTransformer(
                width=config.width,
                heads=config.query_heads,
                hidden=config.query_feedforward or 4 * config.width,
                layers=config.query_layers,
                queries=self.horizon + 1,
            )

    @override
    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        if self.asking is not None:
            self.asking.reset(generator)

    @override
    def encode(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Encoded:
        states = self.encoded(torch.stack([initial, goal], dim=1), generator)
        ends = self.first_exchange(states, dropping(self.config.input_dropout, generator))
        return Encoded(
            aligned=ends,
            states=self.second_exchange(ends, dropping(self.config.dropout, generator)),
        )

    @override
    def added(self, states: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.asking is None:
            return super().added(states, generator)
        # [B, T + 1, D]
        return self.asking(states, dropping(self.config.query_dropout, generator))  # type: ignore[no-any-return]


class Exchange(nn.Module):
    """An encoder over a query's states: post-norm ReLU layers of their width, no positions."""

    def __init__(self, *, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            _Layer(width, heads, width, activation=F.relu) for _ in range(layers)
        )

    def forward(self, states: Tensor, drop: Drop = keep) -> Tensor:
        """[B, S, D] → [B, S, D]."""
        for layer in self.layers:
            states = layer(states, drop)
        return states


class QueryTransformer(nn.Module):
    """Learned queries that attend to the two states in every second layer, from the first one."""

    def __init__(self, *, width: int, heads: int, hidden: int, layers: int, queries: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(queries, width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            _Layer(width, heads, hidden, activation=F.gelu, crossing=place % 2 == 0)
            for place in range(layers)
        )
        self.out = nn.Linear(width, width)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the queries anew: truncated normal."""
        nn.init.trunc_normal_(self.queries, std=_TOKEN_DEVIATION, generator=generator)

    def forward(self, states: Tensor, drop: Drop = keep) -> Tensor:
        """States [B, S, D] → outputs of the queries [B, queries, D]."""
        seen = self.norm(states)
        tokens = drop(self.queries.expand(len(states), -1, -1))
        for layer in self.layers:
            tokens = layer(tokens, drop, seen)
        return self.out(tokens)  # type: ignore[no-any-return]


class _Layer(nn.Module):
    """A post-norm layer; with `crossing` it attends to further tokens after its own."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        activation: Callable[[Tensor], Tensor],
        crossing: bool = False,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.among = MultiHeadAttention(width, heads)
        self.norm_among = nn.LayerNorm(width)
        self.crossing = MultiHeadAttention(width, heads) if crossing else None
        self.norm_crossing = nn.LayerNorm(width) if crossing else None
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, drop: Drop, seen: Tensor | None = None) -> Tensor:
        x = self.norm_among(x + drop(self.among(x, x, drop)))
        if self.crossing is not None and self.norm_crossing is not None:
            x = self.norm_crossing(x + drop(self.crossing(x, seen, drop)))
        return self.norm(x + drop(self.fc2(drop(self.activation(self.fc1(x))))))  # type: ignore[no-any-return]


class PlanLlmLoss(SchemaLoss):
    """SCHEMA's errors with a focal one of the actions.

    Cross-entropy times (1 − p)^γ, where p is the probability of the true action; no gradient flows
    through that factor. The published losses on text are left out: they train the text branch.
    """

    @override
    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        errors = F.cross_entropy(logits, actions, reduction="none")
        gamma = self.config.focus
        return errors * (1 - torch.exp(-errors.detach())).clamp_min(0) ** gamma if gamma else errors


@dataclass(frozen=True, eq=False, repr=False)
class PlanLlmPlanner(SchemaPlanner):
    """Plans as SCHEMA does, by a network with additions."""

    method: ClassVar[str] = "PlanLLM-style"
    departures: ClassVar[tuple[str, ...]] = ("no BERT",)
    title = "PlanLLM network"
    part = "planllm"
    section = "planllm"
    stream = 12
    build = PlanLlmNetwork
    loss: ClassVar[Any] = PlanLlmLoss
    config: PlanLlmConfig
