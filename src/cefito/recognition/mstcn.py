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
from torch.nn import functional as F

from cefito.recognition.settings import MSTCNConfig
from cefito.recognition.video_networks import dilated, dilated_convolution


class _Layer(nn.Module):
    """h + W ReLU(V_d * h) with one dilation d, h + ReLU(W [V_d * h]_d) with two."""

    def __init__(self, dilations: Sequence[int], config: MSTCNConfig) -> None:
        super().__init__()
        self.dropout, size = config.dropout, config.channels
        self.dilated = nn.ModuleList(dilated_convolution(size, span) for span in dilations)
        self.joined = nn.Conv1d(size * len(dilations), size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        seen = [dilated(cast(nn.Conv1d, layer), hidden) for layer in self.dilated]
        if len(seen) == 1:
            made = self.joined(seen[0].relu())
        else:
            made = self.joined(torch.cat(seen, dim=1)).relu()
        return hidden + F.dropout(made, self.dropout, self.training)


def _stage(
    size: int, labels: int, dilations: Sequence[Sequence[int]], config: MSTCNConfig
) -> nn.Sequential:
    inner = nn.Conv1d(size, config.channels, 1)
    layers = [_Layer(spans, config) for spans in dilations]
    return nn.Sequential(inner, *layers, nn.Conv1d(config.channels, labels, 1))


class MSTCN(nn.Module):
    """A prediction stage of dual dilated layers and stages that refine its probabilities.

    Args:
        size: Numbers of a row, D.
        labels: K + 1.
        config: Its settings.
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
        stages = [self.first(rows).log_softmax(dim=1)]
        for stage in self.rest:
            stages.append(stage(stages[-1].exp()).log_softmax(dim=1))
        return stages
