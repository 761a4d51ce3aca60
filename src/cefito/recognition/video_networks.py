"""Networks that read whole videos in stages, each of which refines the one before: their training.

Of rows [1, D, n] they return log p(label | rows) [1, K + 1, n] of each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.recognition.chain import Floats
from cefito.recognition.settings import VideoNetworkConfig
from cefito.recognition.temporal import Rows
from cefito.runtime import resolve
from cefito.training.steps import NetworkTraining, Steps, take_steps
from cefito.training.trainer import OpenLog, TrainingContext


def stage_loss(stages: Sequence[Tensor], truth: Tensor, config: VideoNetworkConfig) -> Tensor:
    """Return Σ over stages of −log p(label) + w min(|log p_t − log p_t−1|, j)², means over rows.

    Args:
        stages: log p(label) [1, K + 1, n] of each stage.
        truth: Labels [n].
        config: Settings, with w and j.
    """
    total, most = torch.zeros((), device=truth.device), config.jump
    for logs in stages:
        change = (logs[..., 1:] - logs[..., :-1].detach()).clamp(-most, most)
        total = total + F.nll_loss(logs, truth[None])
        if change.numel():
            total = total + config.smoothing * change.square().mean()
    return total


def fit_on_videos(
    kind: type[nn.Module],
    videos: Sequence[Rows],
    labels: Sequence[NDArray[np.int64]],
    label_count: int,
    config: VideoNetworkConfig,
    *,
    seed: int,
    context: TrainingContext,
) -> nn.Module:
    """Train on standardised rows and labels of videos, one of them a batch.

    Args:
        kind: Class of the network, made of D, K + 1 and the settings.
        videos: Standardised rows [n, D] of each video.
        labels: Labels [n] of these rows.
        label_count: Number of labels, K + 1.
        config: Settings.
        seed: Seed of weights and of the order of videos.
        context: Device, and who is told of the progress.
    """
    count = config.epochs * len(videos)
    with context.progress(config.method, total=count) as advance:
        training = NetworkTraining(context=context, advance=advance, seed=seed, name=config.method)
        with training.seeded() as device:
            network = kind(videos[0].shape[1], label_count, config)
            order = np.random.default_rng(seed)
            places = (
                place
                for _ in range(config.epochs)
                for place in order.permutation(len(videos)).tolist()
            )

            def loss() -> Tensor:
                place = next(places)
                stages = network(torch.from_numpy(videos[place]).T[None].to(device))
                return stage_loss(stages, torch.from_numpy(labels[place]).to(device), config)

            steps = Steps(
                count=count,
                learning_rate=config.learning_rate,
                setting="recogniser.learning_rate",
                weight_decay=config.weight_decay,
                clip=config.clip,
                one_cycle=config.one_cycle,
                precision=resolve(config.precision, device),
            )
            train_or_take(network, loss, steps, training, config.model_dump(mode="json"))
    return network


def train_or_take(
    network: nn.Module,
    loss: Callable[[], Tensor],
    steps: Steps,
    training: NetworkTraining,
    settings: Any,
) -> None:
    """Train a network in place, or take the weights that an earlier call has kept.

    Args:
        network: The network, which is then on the CPU.
        loss: Is called once a step; returns a scalar.
        steps: Number of steps, learning rate and the rest.
        training: Where, and from which seed.
        settings: Its settings, as plain values.

    Raises:
        RunError: The training diverged, or what was kept is of another one.
    """

    def train(log: OpenLog) -> None:
        device = torch.device(training.context.device)
        take_steps(network.to(device), loss, steps, training.advance, log())
        network.cpu()

    training.keep(network, train, [settings, steps.precision], steps.count)


@torch.inference_mode()
def video_probabilities(network: nn.Module, rows: Rows) -> Floats:
    """Return p(label) [n, K + 1] of the standardised rows [n, D], those of the last stage."""
    logs = network(torch.from_numpy(rows).T[None])[-1][0]
    probabilities: Floats = logs.T.double().exp().numpy()
    return probabilities
