"""A transformer of ASFormer's kind (Yi et al., arXiv 2110.08568): in a run, and a yardstick.

An encoder reads rows; decoders refine the probabilities of the stage before. Block l of each is

    f = ReLU(V_d * h), d = 2^l,    h ← h + W (f + α · attention(f̂)),

where f̂ is f with mean 0 and deviation 1 over the rows of the video, and attention reaches 2^l / 2
rows to both sides. In decoders its values are rows that the encoder made, and α is exp(−3 d) in
decoder d, from 0.
"""

from __future__ import annotations

from math import exp
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.recognition.settings import ASFormerConfig
from cefito.recognition.temporal import DropoutLayer, RowConvolution

_SMALLEST = 32  # rows of a block; smaller ones take longer
_FEW = 256  # rows that all meet all in less time than in blocks
UNSEEN = -1e4
"""Logarithm of the weight of rows out of reach; finite, since a row of padding sees nothing."""


def window_attention(queries: Tensor, keys: Tensor, values: Tensor, reach: int) -> Tensor:
    """Return the means of values, weighted by softmax(q · k / √C), of rows at most `reach` away.

    Blocks of queries meet the keys near them: time and memory are linear in n · reach.

    Args:
        queries: Queries of each row [n, C].
        keys: Keys [n, C].
        values: Values [n, C].
        reach: Rows to each side.
    """
    count, queries = len(queries), queries * queries.shape[1] ** -0.5
    if reach >= count - 1 or count <= _FEW:
        # 0 of rows within reach, else −1 [n, n]; scores are q · k / √C + that · −UNSEEN
        away = queries.new_ones(count, count).tril_(reach).triu_(-reach).sub_(1)
        scores = torch.addmm(away, queries, keys.T, beta=-UNSEEN)
        return scores.softmax(dim=1) @ values
    size = min(max(2 * reach, _SMALLEST), count)
    blocks = -(-count // size)
    missing, width = blocks * size - count, size + 2 * reach

    def near(rows: Tensor) -> Tensor:  # [blocks, C, width]
        return F.pad(rows, (0, 0, reach, reach + missing)).unfold(0, width, size)

    places = torch.arange(width, device=queries.device) - reach  # from the block's first row
    away = places - torch.arange(size, device=queries.device)[:, None]
    rows = places + size * torch.arange(blocks, device=queries.device)[:, None]
    seen = (away.abs() <= reach) & ((rows >= 0) & (rows < count))[:, None]
    asked = F.pad(queries, (0, 0, 0, missing)).view(blocks, size, -1)
    scores = (asked @ near(keys)).masked_fill(~seen, UNSEEN)
    means: Tensor = scores.softmax(dim=2) @ near(values).transpose(1, 2)
    return means.flatten(0, 1)[:count]


class _Block(nn.Module):
    """A dilated convolution and attention, of h [channels, n]."""

    def __init__(self, layer: int, share: float, config: ASFormerConfig) -> None:
        super().__init__()
        size, inner = config.channels, max(1, config.channels // config.reduction)
        self.reach, self.share = 2**layer // 2, share
        self.dilated = RowConvolution(size, size, 2**layer)
        self.dropout = DropoutLayer(config.dropout)
        self.queries, self.keys, self.values = (nn.Linear(size, inner) for _ in range(3))
        self.attended = nn.Linear(inner, size)
        self.joined = RowConvolution(size, size)

    def forward(self, hidden: Tensor, encoded: Tensor | None) -> Tensor:
        made = self.dilated(hidden).relu()
        rows = F.layer_norm(made, made.shape[1:]).T  # [n, channels]
        of_values = rows if encoded is None else encoded.T
        means = window_attention(
            self.queries(rows), self.keys(rows), self.values(of_values), self.reach
        )
        made = self.joined(torch.add(made, self.attended(means).T, alpha=self.share))
        return hidden + cast(Tensor, self.dropout(made))


class _Stage(nn.Module):
    """The encoder, or a decoder."""

    def __init__(self, size: int, labels: int, share: float, config: ASFormerConfig) -> None:
        super().__init__()
        self.inner = RowConvolution(size, config.channels)
        self.blocks = nn.ModuleList(_Block(layer, share, config) for layer in range(config.layers))
        self.outer = RowConvolution(config.channels, labels)

    def forward(self, rows: Tensor, encoded: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return log p(label) [K + 1, n] and the last block's rows, of rows [D, n]."""
        hidden = self.inner(rows)
        for block in self.blocks:
            hidden = block(hidden, encoded)
        return self.outer(hidden).log_softmax(dim=0), hidden


class ASFormer(nn.Module):
    """An encoder and decoders that refine its probabilities.

    Args:
        size: Numbers of a row, D.
        labels: K + 1.
        config: Its settings.
    """

    def __init__(self, size: int, labels: int, config: ASFormerConfig) -> None:
        super().__init__()
        self.config, self.dropout = config, nn.Dropout1d(config.input_dropout)
        self.encoder = _Stage(size, labels, 1.0, config)
        shares = [exp(-config.decay * place) for place in range(config.decoders)]
        self.decoders = nn.ModuleList(_Stage(labels, labels, share, config) for share in shares)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Return log p(label | rows) [1, K + 1, n] of each stage, of rows [1, D, n]."""
        logs, encoded = self.encoder(self.dropout(rows)[0])
        stages = [logs]
        for decoder in self.decoders:
            stages.append(decoder(stages[-1].exp(), encoded)[0])
        return [logs[None] for logs in stages]
