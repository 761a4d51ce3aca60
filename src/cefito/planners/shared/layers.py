"""Layers of several methods; their dropout is drawn from a given generator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cefito.field.layers import Dropout

Drop = Callable[[Tensor], Tensor]
"""Zeroes parts of its argument in training, nothing otherwise."""


def keep(x: Tensor) -> Tensor:
    """Return x as it is: the dropout outside training."""
    return x


def dropping(rate: float, generator: torch.Generator | None) -> Drop:
    """Dropout by a generator, so that a resumed run repeats it; None for no dropout."""
    return Dropout(rate, generator) if generator is not None else keep


def draw_layers(network: nn.Module, generator: torch.Generator) -> None:
    """Draw all linear layers and convolutions anew: Kaiming-uniform weights, zero biases."""
    for module in network.modules():
        if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d, nn.Linear)):
            nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class AttentionHeads(nn.Module):
    """The projections of multi-head attention; `width` is a multiple of `heads`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """[..., L, D] → [..., H, L, D / H]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)  # type: ignore[no-any-return]


class MultiHeadAttention(AttentionHeads):
    """Multi-head attention whose weights are dropped as well."""

    def forward(self, x: Tensor, sources: Tensor, drop: Drop) -> Tensor:
        """Queries [..., L, D] attending to sources [..., S, D] → [..., L, D].

        Over a single source all weights are one, so the result does not depend on x.
        """
        queries = self.split(self.query(x))  # [..., H, L, D / H]
        keys, values = self.split(self.key(sources)), self.split(self.value(sources))
        weights = (queries @ keys.mT / queries.shape[-1] ** 0.5).softmax(dim=-1)  # [..., H, L, S]
        mixed = drop(weights) @ values
        return self.out(mixed.transpose(-3, -2).flatten(-2))  # type: ignore[no-any-return]


class PostNormLayer(nn.Module):
    """Self-attention and an MLP, each normalised after it is added.

    Dropout acts on the attention's weights, on its output, inside the MLP and on the MLP's output.

    Args:
        width: Width of tokens, D.
        heads: Number of heads of the attention.
        hidden: Width of the MLP.
        activation: Of the MLP.
    """

    def __init__(self, width: int, heads: int, hidden: int, activation: Drop) -> None:
        super().__init__()
        self.heads, self.activation = heads, activation
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, drop: Drop) -> Tensor:
        """[B, L, D] → [B, L, D]; rows of the batch do not see each other."""
        query, key, value = (
            projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, L, D / H]
            for projected in self.qkv(x).chunk(3, dim=-1)
        )
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
        mixed = (drop(weights) @ value).transpose(1, 2).flatten(2)
        x = self.norm1(x + drop(self.proj(mixed)))
        return self.norm2(x + drop(self.fc2(drop(self.activation(self.fc1(x))))))  # type: ignore[no-any-return]
