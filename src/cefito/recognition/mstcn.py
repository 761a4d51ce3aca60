"""MS-TCN++ (Li et al., arXiv 2006.09220), a yardstick beside the recogniser of a run.

A first stage reads rows by layers of two dilations each; three further ones refine the
probabilities of the stage before. Sizes and training are as published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.progress import Progress, silent
from cefito.recognition.chain import Floats
from cefito.recognition.classifier import Rows

CHANNELS, FIRST, REFINED, STAGES = 64, 11, 10, 3  # layers of a stage; stages that refine
EPOCHS, RATE, DROPOUT = 50, 5e-4, 0.5
SMOOTH, JUMP = 0.15, 4.0  # weight and largest part of the smoothing loss


class _Layer(nn.Module):
    """h + W ReLU([V_d * h]_d), with one or two dilations d, of h [1, 64, n]."""

    def __init__(self, dilations: Sequence[int]) -> None:
        super().__init__()
        self.dilations = dilations
        self.dilated = nn.ModuleList(
            nn.Conv1d(CHANNELS, CHANNELS, 3, padding=one, dilation=one) for one in dilations
        )
        self.joined = nn.Conv1d(CHANNELS * len(dilations), CHANNELS, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        parts, layers = [], cast(Sequence[nn.Conv1d], self.dilated)
        for one, span in zip(layers, self.dilations, strict=True):
            if span < hidden.shape[2]:
                parts.append(one(hidden))
            else:  # the outer weights meet padding alone
                parts.append(F.conv1d(hidden, one.weight[..., 1:2], one.bias))
        made = self.joined(torch.cat(parts, dim=1).relu())
        return hidden + F.dropout(made, DROPOUT, self.training)


def _stage(size: int, labels: int, dilations: Sequence[Sequence[int]]) -> nn.Sequential:
    layers = map(_Layer, dilations)
    return nn.Sequential(nn.Conv1d(size, CHANNELS, 1), *layers, nn.Conv1d(CHANNELS, labels, 1))


class MSTCN(nn.Module):
    """A prediction stage of dual dilated layers and stages that refine its probabilities.

    Args:
        size: Numbers of a row, D.
        labels: K + 1.
    """

    def __init__(self, size: int, labels: int) -> None:
        super().__init__()
        dual = [(2**place, 2 ** (FIRST - 1 - place)) for place in range(FIRST)]
        single = [(2**place,) for place in range(REFINED)]
        self.first = _stage(size, labels, dual)
        self.rest = nn.ModuleList(_stage(labels, labels, single) for _ in range(STAGES))

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Return log p(label | rows) [1, K + 1, n] of each stage, of rows [1, D, n]."""
        found = [self.first(rows).log_softmax(dim=1)]
        for stage in self.rest:
            found.append(stage(found[-1].exp()).log_softmax(dim=1))
        return found


def _loss(stages: Sequence[Tensor], truth: Tensor) -> Tensor:
    """Σ over stages of −log p(label) + 0.15 min(|log p_t − log p_t−1|, 4)², means over rows."""
    total = torch.zeros(())
    for logs in stages:
        change = (logs[..., 1:] - logs[..., :-1].detach()).clamp(-JUMP, JUMP)
        total = total + F.nll_loss(logs, truth[None])
        if change.numel():
            total = total + SMOOTH * change.square().mean()
    return total


def fit_mstcn(
    videos: Sequence[Rows],
    labels: Sequence[NDArray[np.int64]],
    label_count: int,
    seed: int,
    progress: Progress = silent,
) -> Callable[[Rows], Floats]:
    """Train on standardised rows [n, D] and labels [n] of videos, one of them a batch.

    Return a function that gives p(label) [n, K + 1] of the rows [n, D] of a video.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, order = MSTCN(videos[0].shape[1], label_count), np.random.default_rng(seed)
        optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
        with progress("mstcn", total=EPOCHS * len(videos)) as advance:
            for place in (one for _ in range(EPOCHS) for one in order.permutation(len(videos))):
                optimiser.zero_grad()
                stages = network(torch.from_numpy(videos[place]).T[None])
                _loss(stages, torch.from_numpy(labels[place])).backward()
                optimiser.step()
                advance()
    network.eval()

    @torch.inference_mode()
    def predict(rows: Rows) -> Floats:
        logs = network(torch.from_numpy(rows).T[None])[-1][0]
        found: Floats = logs.T.double().exp().numpy()
        return found

    return predict
