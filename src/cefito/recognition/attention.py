"""An attention network of whole videos beside the recogniser's others: training and answers.

It sees rows with the mean of the video, which the others take away: where that shows what is made,
it helps, and where it shows the room, it does harm. Its share is chosen by videos held out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.recognition.asformer import ASFormer
from cefito.recognition.chain import Floats
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.temporal import Rows
from cefito.recognition.video_networks import stage_loss, train_or_take
from cefito.runtime import resolve
from cefito.training.steps import NetworkTraining, Steps

_LONGEST = 2048  # rows of a part of a video that it is trained on


def attention_steps(videos: int, config: RecogniserConfig) -> int:
    """Number of videos that the network is trained on, one a step, of so many."""
    if config.attention is None:
        return 0
    return max(3 * config.temporal_steps, -(-config.temporal_passes * videos // 3))


def fit_attention(
    videos: Sequence[Rows],
    labels: Sequence[NDArray[np.integer]],
    label_count: int,
    config: RecogniserConfig,
    training: NetworkTraining,
) -> ASFormer | None:
    """Train on videos in random order, one a step, of long ones a random part (RunError).

    Args:
        videos: Standardised rows [n, P] of each video.
        labels: Labels [n] of these rows.
        label_count: Number of labels, K + 1.
        config: Settings.
        training: Where, and from which seed of weights and of the order of videos.

    Returns:
        None if its settings have no such network.
    """
    if config.attention is None:
        return None
    rows, truth = (
        [torch.from_numpy(np.ascontiguousarray(one, dtype=kind)) for one in of_videos]
        for of_videos, kind in ((videos, np.float32), (labels, np.int64))
    )
    with training.seeded() as device:
        network = ASFormer(rows[0].shape[1], label_count, config.attention)
        generator, places = torch.Generator().manual_seed(training.seed), list[int]()

        def loss() -> Tensor:
            if not places:
                places.extend(torch.randperm(len(rows), generator=generator).tolist())
            video = places.pop()
            last = max(len(rows[video]) - _LONGEST, 0)
            start = int(torch.randint(last + 1, (1,), generator=generator))
            part = slice(start, start + _LONGEST)
            stages = network(rows[video][part].T[None].to(device))
            return stage_loss(stages, truth[video][part].to(device), network.config)

        steps = Steps(
            count=attention_steps(len(videos), config),
            learning_rate=config.temporal_learning_rate,
            setting="recogniser.temporal_learning_rate",
            weight_decay=config.temporal_weight_decay,
            clip=config.temporal_clip,
            precision=resolve(config.precision, device),
        )
        train_or_take(network, loss, steps, training, config.model_dump(mode="json"))
    return network


@torch.inference_mode()
def attended(network: ASFormer, rows: Rows) -> Floats:
    """Return log p(label) [n, K + 1] by the last stage, of standardised rows [n, P] of a video."""
    logs: Floats = network(torch.from_numpy(rows).T[None])[-1][0].T.double().numpy()
    return logs
