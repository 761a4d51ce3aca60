"""MTID's latents: vectors between two observations, and how a residual block takes them in."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.planners.shared.layers import PostNormLayer, draw_layers, dropping

__all__ = ["Interpolation", "LatentAttention"]


class Interpolation(nn.Module):
    """A latent vector for each residual block, between the initial observation and the goal.

    Both observations are encoded by the same maps, mixed in a learned share for each latent, and
    the latents of a query attend to each other (in the released code, to other queries' latents).
    The maps are convolutions of width 3 over a single position, of which only the middle tap acts.
    There are three, as published; the middle one is repeated, or skipped, for `encodings` maps.
    """

    def __init__(
        self,
        *,
        dim: int,
        count: int,
        encodings: int,
        layers: int,
        heads: int,
        feedforward: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.encodings, self.dropout = encodings, dropout
        self.encoders = nn.ModuleList(nn.Conv1d(dim, dim, 3, padding=1) for _ in range(3))
        self.share = nn.Linear(1, count)
        heads = max(number for number in range(1, min(heads, dim) + 1) if dim % number == 0)
        self.layers = nn.ModuleList(
            PostNormLayer(dim, heads, feedforward, F.relu) for _ in range(layers)
        )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform, zero biases."""
        draw_layers(self, generator)

    def encoded(self, x: Tensor) -> Tensor:
        """Encode observations, [..., E] → [..., E]."""
        first, between, last = self.encoders
        for encoder in (first, *[between] * (self.encodings - 2), last):
            x = F.relu(F.linear(x, encoder.weight[:, :, 1], encoder.bias))  # type: ignore[index, arg-type]
        return x

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Initial and goal observations, each [B, E] → the latents of B queries [B, N, E]."""
        drop = dropping(self.dropout, generator)
        # the goal's share in each latent, α [N, 1]
        share = torch.sigmoid(self.share(self.share.weight.new_ones(1)))[:, None]
        start, end = self.encoded(torch.stack([initial, goal]))[:, :, None]
        mixed: Tensor = (1 - share) * start + share * end  # [B, N, E]
        x = mixed
        for layer in self.layers:
            x = layer(x, drop)
        return mixed + x


class LatentAttention(nn.Module):
    """Features attend to a latent [B, E], inside a residual block.

    There is a single key, so attention adds one projected vector at every position. The projections
    of queries and keys are never learned; they are held because published sizes count them.
    """

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.latent = nn.Linear(dim, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, latent: Tensor) -> Tensor:
        """Features [B, c, T] and latents [B, E] → features [B, c, T].

        With z = x + attention they become x + LN(z) + MLP(LN'(z)); that there are two norms is
        concluded from the published sizes.
        """
        said = self.out(self.value(self.latent(latent)))
        attended = (x + said[:, :, None]).transpose(1, 2)
        added = self.norm1(attended) + self.fc2(F.mish(self.fc1(self.norm2(attended))))
        return x + added.transpose(1, 2)  # type: ignore[no-any-return]
