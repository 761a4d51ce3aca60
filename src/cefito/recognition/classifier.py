"""Networks that classify rows by step, from averages of rows around each and from rows in order.

Let x_t be the standardised row t and m_t the mean of the rows so far (after L rows, an exponential
average). The mean is subtracted, since it depends on the room more than on the step:

    m_t = m_t−1 + (x_t − m_t−1) / min(t + 1, L),    u_t = x_t − m_t

A network sees u_t and its exponential averages v_t = v_t−1 + (1 − e^(−1/τ)) (u_t − v_t−1) for each
time constant τ. In whole videos, the mean is that of all rows, and later rows are averaged, too.
The next step depends on the task and the time: its network also sees m_t and log(1 + seconds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.files import Expected, check_tensors
from cefito.recognition.settings import RecogniserConfig, RowNetworksConfig
from cefito.recognition.temporal import (
    DropoutLayer,
    Past,
    Rows,
    TemporalLoss,
    TemporalNetwork,
    affine,
    log_softmax,
    temporal_steps,
)
from cefito.runtime import resolve
from cefito.training.steps import NetworkTraining, Steps, take_steps
from cefito.training.trainer import OpenLog

_CLIPPED = 5.0  # standard deviations
_LEAST_VARIANCE = 1e-9  # of a direction, as a share of the greatest
_ROWS_EACH = 4  # rows for a direction, at least
_LEAST_DEVIATION = 1e-3
_BLOCK = 64  # rows whose averages one product makes


def main_directions(videos: Sequence[NDArray[np.floating[Any]]], most: int) -> Rows:
    """Return the directions of most variance of rows [n, P] of mean 0, [P, at most `most`].

    There is at most one for four rows, and none without variance: along others, new rows differ
    from few rows of training by many of their deviations.
    """
    rows = np.concatenate(videos).astype(np.float64)
    variances, vectors = np.linalg.eigh(rows.T @ rows / len(rows))  # ascending
    varying = int((variances > _LEAST_VARIANCE * variances[-1]).sum())
    count = max(1, min(most, varying, len(rows) // _ROWS_EACH))
    return vectors[:, : -count - 1 : -1].astype(np.float32)


@dataclass(frozen=True, eq=False)
class Standard:
    """Mean and deviation of each of D features of the training rows, and their main directions."""

    mean: Rows  # [D]
    deviation: Rows  # [D]
    # the P directions of most variance, once scaled [D, P]; all of them if there are few
    directions: Rows

    @classmethod
    def of(cls, videos: Sequence[Rows], most: int) -> Standard:
        """Measure the rows [n, D] of videos; P is at most `most`."""
        rows = np.concatenate(videos).astype(np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0) + _LEAST_DEVIATION
        directions = np.eye(len(mean), dtype=np.float32)
        if len(mean) > most:
            scaled = ((rows - mean) / deviation).clip(-_CLIPPED, _CLIPPED)
            directions = main_directions([scaled], most)
        return cls(mean.astype(np.float32), deviation.astype(np.float32), directions)

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], width: int, most: int, place: str
    ) -> Standard:
        """Build from the arrays of its fields; RunError for others, whose file is `place`.

        As of `of`, P is at most `most`; `width` is D.
        """
        size = min((*arrays.get("directions", np.zeros(())).shape[1:], width, most))
        expected = {
            "mean": Expected((width,), -1e9, 1e9),
            "deviation": Expected((width,), 1e-9, 1e9),
            "directions": Expected((width, size), -1e9, 1e9),
        }
        check_tensors(arrays, expected, place)
        return cls(**{name: array.astype(np.float32) for name, array in arrays.items()})

    def scaled(self, rows: Rows) -> Rows:
        """Return rows [..., D] along the directions [..., P], with mean 0 in training."""
        scaled = ((rows - self.mean) / self.deviation).clip(-_CLIPPED, _CLIPPED)
        return scaled @ self.directions


class RowMemory:
    """The features of one row after another; its size does not grow.

    Args:
        config: The time constants τ, and L.
        rate: Rows a second.
    """

    def __init__(self, config: RecogniserConfig, rate: float) -> None:
        times = np.asarray(_times(config, rate), dtype=np.float32)
        self._longest = config.longest_mean
        self._shares = (1 - np.exp(-1 / times))[:, None]  # [M, 1]
        self._mean: Any = 0.0
        self._averages: Rows | None = None  # [M, D]
        self._rows = 0

    def features(self, row: Rows) -> Rows:
        """Return the features [(M + 1) D] of the next standardised row [D]."""
        self._rows = min(self._rows + 1, self._longest)
        self._mean = self._mean + (row - self._mean) / np.float32(self._rows)
        centred = row - self._mean
        if self._averages is None:
            self._averages = np.repeat(centred[None], len(self._shares), axis=0)
        self._averages = self._averages + self._shares * (centred - self._averages)
        return np.concatenate([centred[None], self._averages]).reshape(-1)

    def ahead(self, features: Rows, seconds: float) -> Rows:
        """Return the features of the latest row beside m_t and log(1 + t) / 4, [(M + 2) D + 1]."""
        time = np.float32(np.log1p(seconds) / 4)
        return np.concatenate([self._mean, [time], features])


def _times(config: RecogniserConfig, rate: float) -> list[float]:
    """Return the time constants of the averages, in rows."""
    return [time * rate for time in config.memories]


def past_features(rows: Rows, config: RecogniserConfig, rate: float) -> Rows:
    """Return what is known of each row [n, D] from those up to it, [n, (M + 1) D].

    Args:
        rows: Rows [n, D] of a video.
        config: Settings, M time constants among them.
        rate: Rows a second.
    """
    return _past_and_means(rows, config, rate)[0]


def ahead_features(rows: Rows, config: RecogniserConfig, rate: float) -> Rows:
    """Return what a network of next steps sees of each row [n, D], [n, (M + 2) D + 1].

    Arguments are those of `past_features`.
    """
    features, means = _past_and_means(rows, config, rate)
    times = np.log1p(np.arange(len(rows), dtype=np.float32)[:, None] / np.float32(rate)) / 4
    return np.concatenate([means, times, features], axis=1)


def _past_and_means(rows: Rows, config: RecogniserConfig, rate: float) -> tuple[Rows, Rows]:
    """Return u_t beside its averages [n, (M + 1) D], and m_t [n, D], as `RowMemory` has them."""
    longest = config.longest_mean
    counts = np.arange(1.0, min(len(rows), longest) + 1)[:, None]
    means = np.cumsum(rows[:longest], axis=0, dtype=np.float64) / counts
    later = _averages(rows[longest:], 1 - 1 / longest, means[-1])
    means = np.concatenate([means, later]).astype(np.float32)
    centred = rows - means
    averages = [_exponential(centred, time) for time in _times(config, rate)]
    return np.concatenate([centred, *averages], axis=1), means


def whole_features(rows: Rows, config: RecogniserConfig, rate: float) -> Rows:
    """Return what is known of each row [n, D] of a whole video, [n, (2 M + 1) D].

    Arguments are those of `past_features`.
    """
    centred, times = rows - rows.mean(axis=0), _times(config, rate)
    averages = [_exponential(centred, time) for time in times]
    averages += [_exponential(centred[::-1], time)[::-1] for time in times]
    return np.concatenate([centred, *averages], axis=1)


def _exponential(rows: Rows, time: float) -> Rows:
    """Return the exponential averages of rows [n, D] up to each one, of a time constant in rows."""
    return _averages(rows, np.exp(-1 / time), rows[0])


def _averages(rows: Rows, keep: float, before: Rows) -> Rows:
    """Return v_t = k v_t−1 + (1 − k) u_t of rows u [n, D], with v_−1 [D].

    By blocks of rows: v_t = k^(t + 1) v_−1 + (1 − k) Σ_i≤t k^(t − i) u_i; `keep` is k.
    """
    places = np.arange(min(len(rows), _BLOCK))[:, None]
    kernel, decay = (1 - keep) * np.tril(keep ** abs(places - places.T)), keep ** (places + 1)
    averages = np.empty(rows.shape, np.float32)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        count = len(block)
        means = kernel[:count, :count] @ block + decay[:count] * before
        averages[start : start + count], before = means, means[-1]
    return averages


class RowClassifier(nn.Module):
    """Networks of one hidden layer, whose probabilities are averaged, and a temporal network.

    With the temporal network, log p(label | rows) is the mean of both, up to a constant.

    Args:
        size: Features of a row, F; the first P are the row itself.
        labels: K + 1.
        config: Its settings.
        temporal: Settings of the temporal network; None for none.
        rows: P.
        causal: Whether the temporal network sees no later rows.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        size: int,
        labels: int,
        config: RowNetworksConfig,
        *,
        temporal: RecogniserConfig | None = None,
        rows: int = 0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))
        self.members = nn.ModuleList(
            nn.Sequential(
                DropoutLayer(config.input_dropout),
                nn.Linear(size, config.width),
                nn.ReLU(),
                DropoutLayer(config.dropout),
                nn.Linear(config.width, labels),
            )
            for _ in range(config.members)
        )
        self.rows, self.temporal = rows, None
        if temporal is not None and temporal.temporal_layers:
            self.temporal = TemporalNetwork(rows, labels, temporal, causal=causal)

    def forward(self, rows: Tensor) -> Tensor:
        """Return log p(label | row) [n, K + 1] of rows [n, F], without the temporal network."""
        scaled = (rows - self.mean) / self.deviation
        logits = torch.stack([member(scaled) for member in self.members])
        count = len(self.members)
        return logits.log_softmax(dim=2).logsumexp(dim=0) - float(np.log(count))

    @torch.inference_mode()
    def log_probabilities(self, rows: Rows) -> NDArray[np.float64]:
        """Return log p(label | rows) [n, K + 1] of all rows [n, F] of a video."""
        features = torch.from_numpy(rows)
        logs = self(features)
        if self.temporal is not None:
            seen = self.temporal(features[:, : self.rows].T[None])[0].T
            logs = (logs + seen.log_softmax(dim=1)) / 2
        return np.asarray(logs.double().numpy())

    def beginning(self) -> Past:
        """Return what a causal network has seen before the first row."""
        return [] if self.temporal is None else self.temporal.beginning()

    @cached_property
    def _arrays(self) -> tuple[Rows, ...]:
        """Weights of trained members: [M W, F], [M W], [M, K + 1, W] and [M, K + 1]."""
        members: list[Any] = [*self.members]
        inner, outer = ([affine(member[place]) for member in members] for place in (1, 4))
        mean, deviation = self.mean.numpy(), self.deviation.numpy()
        first, last = (tuple(zip(*layers, strict=True)) for layers in (inner, outer))
        joined = np.concatenate(first[0]), np.concatenate(first[1])
        return mean, deviation, *joined, np.stack(last[0]), np.stack(last[1])

    def ahead(self, row: Rows, past: Past) -> NDArray[np.float64]:
        """Return `log_probabilities` [K + 1] of the next row [F], which is added to the past."""
        mean, deviation, inner, inner_bias, outer, outer_bias = self._arrays
        hidden = np.maximum(inner @ ((row - mean) / deviation) + inner_bias, 0)
        logits = (outer @ hidden.reshape(len(outer), -1, 1))[:, :, 0] + outer_bias
        logs = np.logaddexp.reduce(log_softmax(logits), axis=0) - np.log(len(outer))
        if self.temporal is not None:
            logs = (logs + log_softmax(self.temporal.ahead(row[: self.rows], past))) / 2
        return np.asarray(logs)


def fit_classifier(
    videos: Sequence[Rows],  # features [n, F] of each
    labels: Sequence[NDArray[np.integer]],  # [n] of each
    label_count: int,
    config: RowNetworksConfig,
    training: NetworkTraining,
    *,
    section: str = "recogniser",
    steps: int | None = None,
    temporal: RecogniserConfig | None = None,
    rows: int = 0,
    causal: bool = False,
) -> RowClassifier:
    """Train on random rows of annotated videos, by the cross-entropy of the label.

    Dropout and initial weights are drawn from the seed, batches from a generator of the same seed.
    The temporal network, with `rows` = P, sees random parts of videos; a loss keeps its logarithms
    alike from row to row.

    Args:
        videos: Features [n, F] of the rows of each video.
        labels: Labels [n] of these rows.
        label_count: Number of labels.
        config: Settings of the networks of single rows.
        training: Where, and from which seed.
        section: Section of the settings, for messages.
        steps: Batches that each network of single rows is trained on; None for `training_steps`.
        temporal: Settings of a temporal network beside them; None for none.
        rows: Numbers of each row, P, that the temporal network sees.
        causal: Whether it sees the rows so far alone.
    """
    count = config.training_steps if steps is None else steps
    of_parts = 0 if temporal is None else temporal_steps(sum(map(len, videos)), temporal)
    with training.seeded() as device:
        precision = "float32" if temporal is None else resolve(temporal.precision, device)
        features = torch.from_numpy(np.concatenate(videos))
        network = RowClassifier(
            features.shape[1], label_count, config, temporal=temporal, rows=rows, causal=causal
        )

        def train(log: OpenLog) -> None:
            generator = torch.Generator().manual_seed(training.seed)
            network.mean.copy_(features.mean(dim=0))
            network.deviation.copy_(features.std(dim=0, correction=0) + 1e-3)
            network.to(device).train()
            scaled = (features.to(device) - network.mean) / network.deviation
            truth = torch.from_numpy(np.concatenate(labels).astype(np.int64)).to(device)
            of_rows = Steps(
                count=count,
                learning_rate=config.learning_rate,
                setting=f"{section}.learning_rate",
                weight_decay=config.weight_decay,
                precision=precision,
            )
            for place, member in enumerate(network.members, 1):

                def loss(member: nn.Module = member) -> Tensor:
                    batch = torch.randint(len(scaled), (config.batch_size,), generator=generator)
                    batch = batch.to(device)
                    return F.cross_entropy(member(scaled[batch]), truth[batch])

                take_steps(member, loss, of_rows, training.advance, log(f"member-{place}"))
            if network.temporal is not None:
                of_videos = Steps(
                    count=of_parts,
                    learning_rate=network.temporal.config.temporal_learning_rate,
                    setting=f"{section}.temporal_learning_rate",
                    weight_decay=network.temporal.config.temporal_weight_decay,
                    clip=network.temporal.config.temporal_clip,
                    precision=precision,
                )
                parts = TemporalLoss(network.temporal, videos, labels, generator)
                take_steps(network.temporal, parts, of_videos, training.advance, log("temporal"))
            network.cpu()

        settings = [config.model_dump(mode="json"), precision]
        training.keep(network, train, settings, config.members * count + of_parts)
    return network
