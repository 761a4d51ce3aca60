"""A post-norm transformer layer whose dropout is drawn from a given generator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cefito.field.predictor import Dropout

__all__ = ["Drop", "PostNormLayer", "dropping"]

Drop = Callable[[Tensor], Tensor]
"""Zeroes parts of its argument in training, nothing otherwise."""


def dropping(rate: float, generator: torch.Generator | None) -> Drop:
    """Dropout by a generator, so that a resumed run repeats it; None for none."""
    return Dropout(rate, generator) if generator is not None else lambda x: x


class PostNormLayer(nn.Module):
    """Self-attention and an MLP, each normalised after it is added.

    Dropout acts on the attention's weights, on what it gives, inside the MLP and on what that
    gives.

    Args:
        width: D, a multiple of `heads`.
        heads: Heads of the attention.
        hidden: Width inside the MLP.
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
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
        mixed = (drop(weights) @ value).transpose(1, 2).flatten(2)
        x = self.norm1(x + drop(self.proj(mixed)))
        return self.norm2(x + drop(self.fc2(drop(self.activation(self.fc1(x))))))  # type: ignore[no-any-return]
