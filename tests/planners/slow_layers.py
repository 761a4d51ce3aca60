"""Layers by plain loops, one vector at a time, from the modules that hold the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def linear(x: Tensor, layer: Any) -> Tensor:
    """One vector through a linear layer."""
    found = torch.stack([row @ x for row in layer.weight])
    return found if layer.bias is None else found + layer.bias


def norm(x: Tensor, layer: Any) -> Tensor:
    """One vector, layer-normalised."""
    centred = x - x.mean()
    return centred / (centred.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def attention(tokens: Sequence[Tensor], others: Sequence[Tensor], part: Any) -> list[Tensor]:
    """Each token attends to all others, head by head."""
    size = len(tokens[0]) // part.heads
    keys, values = [linear(x, part.key) for x in others], [linear(x, part.value) for x in others]
    found = []
    for token in tokens:
        query, mixed = linear(token, part.query), []
        for head in range(part.heads):
            own = slice(head * size, (head + 1) * size)
            scores = [float(query[own] @ key[own]) / math.sqrt(size) for key in keys]
            weights = [math.exp(score - max(scores)) for score in scores]
            weighted = [w * value[own] for w, value in zip(weights, values, strict=True)]
            mixed.append(torch.stack(weighted).sum(0) / sum(weights))
        found.append(linear(torch.cat(mixed), part.out))
    return found


def added(tokens: Sequence[Tensor], others: Sequence[Tensor], layer: Any) -> list[Tensor]:
    """Sums of pairs, layer-normalised."""
    return [norm(x + y, layer) for x, y in zip(tokens, others, strict=True)]


def position(place: int, width: int) -> Tensor:
    """Sines and cosines of a place."""
    angles = [place / 10_000 ** (k / (width // 2)) for k in range(width // 2)]
    return torch.tensor([*map(math.sin, angles), *map(math.cos, angles)])
