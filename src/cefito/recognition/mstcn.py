"""MS-TCN++ (Li et al., arXiv 2006.09220), a yardstick beside the recogniser of a run.

A first stage reads rows by layers of two dilations each; three further ones refine the
probabilities of the stage before. The ReLU and the number of epochs are as in its authors' released
training, which differs from the paper in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from cefito.recognition.settings import MSTCNConfig
from cefito.recognition.temporal import DropoutLayer, RowConvolution


class _Layer(nn.Module):
    """h + W ReLU(V_d * h) with one dilation d, h + ReLU(W [V_d * h]_d) with two."""

    def __init__(self, dilations: Sequence[int], config: MSTCNConfig) -> None:
        super().__init__()
        self.dropout, size = DropoutLayer(config.dropout), config.channels
        self.dilated = nn.ModuleList(RowConvolution(size, size, span) for span in dilations)
        self.joined = RowConvolution(size * len(dilations), size)

    def forward(self, hidden: Tensor) -> Tensor:
        seen = [layer(hidden) for layer in self.dilated]
        if len(seen) == 1:
            made = self.joined(seen[0].relu())
        else:
            made = self.joined(torch.cat(seen)).relu()
        return hidden + cast(Tensor, self.dropout(made))


def _stage(
    size: int, labels: int, dilations: Sequence[Sequence[int]], config: MSTCNConfig
) -> nn.Sequential:
    inner = RowConvolution(size, config.channels)
    layers = [_Layer(spans, config) for spans in dilations]
    return nn.Sequential(inner, *layers, RowConvolution(config.channels, labels))


class MSTCN(nn.Module):
    """A prediction stage of dual dilated layers and stages that refine its probabilities.

    Arguments are as of `ASFormer`.
    """

    def __init__(self, size: int, labels: int, config: MSTCNConfig) -> None:
        super().__init__()
        last = config.layers - 1
        dual = [(2**place, 2 ** (last - place)) for place in range(config.layers)]
        single = [(2**place,) for place in range(config.refining_layers)]
        self.first = _stage(size, labels, dual, config)
        self.rest = nn.ModuleList(
            _stage(labels, labels, single, config) for _ in range(config.refining_stages)
        )

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Return log p(label | rows) [1, K + 1, n] of each stage, of rows [1, D, n]."""
        stages = [self.first(rows[0]).log_softmax(dim=0)]
        for stage in self.rest:
            stages.append(stage(stages[-1].exp()).log_softmax(dim=0))
        return [logs[None] for logs in stages]
