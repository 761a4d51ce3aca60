"""MS-TCN++ (Li et al., arXiv 2006.09220), a yardstick beside the recogniser of a run.

A first stage reads rows by layers of two dilations each; three further ones refine the
probabilities of the stage before. Sizes and training are as published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.recognition.chain import Floats
from cefito.recognition.classifier import Rows
from cefito.recognition.settings import MSTCNConfig
from cefito.runtime import resolve
from cefito.training.steps import Steps, take_steps
from cefito.training.trainer import TrainingContext


class _Layer(nn.Module):
    """h + W ReLU([V_d * h]_d), with one or two dilations d, of h [1, channels, n]."""

    def __init__(self, dilations: Sequence[int], config: MSTCNConfig) -> None:
        super().__init__()
        self.dilations, self.dropout, size = dilations, config.dropout, config.channels
        self.dilated = nn.ModuleList(
            nn.Conv1d(size, size, 3, padding=span, dilation=span) for span in dilations
        )
        self.joined = nn.Conv1d(size * len(dilations), size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        parts, layers = [], cast(Sequence[nn.Conv1d], self.dilated)
        for one, span in zip(layers, self.dilations, strict=True):
            if span < hidden.shape[2]:
                parts.append(one(hidden))
            else:  # the outer weights meet padding alone
                parts.append(F.conv1d(hidden, one.weight[..., 1:2], one.bias))
        made = self.joined(torch.cat(parts, dim=1).relu())
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


def _loss(stages: Sequence[Tensor], truth: Tensor, config: MSTCNConfig) -> Tensor:
    """Σ over stages of −log p(label) + w min(|log p_t − log p_t−1|, j)², means over rows."""
    total, most = torch.zeros((), device=truth.device), config.jump
    for logs in stages:
        change = (logs[..., 1:] - logs[..., :-1].detach()).clamp(-most, most)
        total = total + F.nll_loss(logs, truth[None])
        if change.numel():
            total = total + config.smoothing * change.square().mean()
    return total


def fit_mstcn(
    videos: Sequence[Rows],
    labels: Sequence[NDArray[np.int64]],
    label_count: int,
    config: MSTCNConfig,
    *,
    seed: int,
    context: TrainingContext,
) -> MSTCN:
    """Train on standardised rows and labels of videos, one of them a batch.

    Args:
        videos: Standardised rows [n, D] of each video.
        labels: Labels [n] of these rows.
        label_count: Number of labels, K + 1.
        config: Settings.
        seed: Seed of weights and of the order of videos.
        context: Device, and who is told of the progress.
    """
    device, count = torch.device(context.device), config.epochs * len(videos)
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        context.progress("mstcn", total=count) as advance,
    ):
        torch.manual_seed(seed)
        network = MSTCN(videos[0].shape[1], label_count, config)
        order = np.random.default_rng(seed)
        places = (one for _ in range(config.epochs) for one in order.permutation(len(videos)))

        def loss() -> Tensor:
            place = next(places)
            stages = network(torch.from_numpy(videos[place]).T[None].to(device))
            return _loss(stages, torch.from_numpy(labels[place]).to(device), config)

        def train() -> None:
            rate, setting = config.learning_rate, "recogniser.learning_rate"
            steps = Steps(
                count=count,
                learning_rate=rate,
                setting=setting,
                one_cycle=False,
                precision=resolve(config.precision, device),
            )
            take_steps(network.to(device), loss, steps, advance)
            network.cpu()

        settings = [config.model_dump(mode="json"), resolve(config.precision, device)]
        if not context.keep("mstcn", network, train, seed=seed, settings=settings):
            advance(count)
    return network.eval()


@torch.inference_mode()
def mstcn_probabilities(network: MSTCN, rows: Rows) -> Floats:
    """Return p(label) [n, K + 1] of the standardised rows [n, D] of a video."""
    logs = network(torch.from_numpy(rows).T[None])[-1][0]
    probabilities: Floats = logs.T.double().exp().numpy()
    return probabilities
