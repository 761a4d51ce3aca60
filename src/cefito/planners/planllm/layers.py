"""Layers in which few tokens see each other: the exchange of states, and the query transformer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.planners.schema.decoder import Drop, nothing_dropped

__all__ = ["Exchange", "QueryTransformer"]

_TOKEN_DEVIATION = 0.02  # of the learned queries at first


class Exchange(nn.Module):
    """An encoder over a query's states, without positions: post-norm layers with ReLU.

    Args:
        width: D, also of the feed-forward layers, as published.
        heads: Attention heads.
        layers: Number of layers; 0 leaves states as they are.
    """

    def __init__(self, *, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            _Layer(width, heads, width, activation=F.relu) for _ in range(layers)
        )

    def forward(self, states: Tensor, drop: Drop = nothing_dropped) -> Tensor:
        """[B, S, D] → [B, S, D]."""
        for layer in self.layers:
            states = layer(states, drop)
        return states


class QueryTransformer(nn.Module):
    """Learned queries that look at the two states in every second layer, from the first one.

    Args:
        width: D.
        heads: Attention heads.
        hidden: Width of the feed-forward layers.
        layers: Number of layers.
        queries: Number of learned queries.
    """

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

    def forward(self, states: Tensor, drop: Drop = nothing_dropped) -> Tensor:
        """What the queries found in states [B, S, D], as [B, queries, D]."""
        seen = self.norm(states)
        tokens = drop(self.queries.expand(len(states), -1, -1))
        for layer in self.layers:
            tokens = layer(tokens, drop, seen)
        return self.out(tokens)  # type: ignore[no-any-return]


class _Attention(nn.Module):
    """Multi-head attention whose weights are dropped as well."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, others: Tensor, drop: Drop) -> Tensor:
        """Tokens [B, L, D] look at others [B, S, D]."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), self.key(others), self.value(others))
        )
        weights = drop((query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1))
        return self.out((weights @ value).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _Layer(nn.Module):
    """A post-norm layer; with `crossing` it looks at further tokens after its own."""

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
        self.among = _Attention(width, heads)
        self.norm_among = nn.LayerNorm(width)
        self.crossing = _Attention(width, heads) if crossing else None
        self.norm_crossing = nn.LayerNorm(width) if crossing else None
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, drop: Drop, seen: Tensor | None = None) -> Tensor:
        x = self.norm_among(x + drop(self.among(x, x, drop)))
        if self.crossing is not None and self.norm_crossing is not None:
            x = self.norm_crossing(x + drop(self.crossing(x, seen, drop)))
        return self.norm(x + drop(self.fc2(drop(self.activation(self.fc1(x))))))  # type: ignore[no-any-return]
