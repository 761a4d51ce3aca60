"""Causal networks that label each row from those so far, and a rule that keeps labels.

The rule (Zhong et al., arXiv 2411.01122) keeps the last label while the network's next one has a
probability below θ and the segment so far is shorter than a share of a mean one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from cefito.data.vocabulary import find_task
from cefito.recognition.chain import Floats
from cefito.recognition.recogniser import of_task
from cefito.recognition.scores import Segment, recognised_step
from cefito.recognition.settings import OnlineConfig, RecogniserConfig
from cefito.recognition.temporal import DropoutLayer, Past, Rows, TemporalNetwork, log_softmax
from cefito.recognition.video_networks import fit_on_videos
from cefito.recognition.yardsticks import VideoNetworkRecogniser
from cefito.tracks import TimedStep
from cefito.training.trainer import TrainingContext

State = Past | list[Tensor]
"""What a network keeps of the rows so far; it is changed by each row."""


class _Recurrent(nn.Module):
    """A unidirectional LSTM of one layer."""

    def __init__(self, size: int, labels: int, config: OnlineConfig) -> None:
        super().__init__()
        self.config = config
        self.inner = nn.LSTM(size, config.units)
        self.outer = nn.Linear(config.units, labels)
        self.input_dropout = DropoutLayer(config.input_dropout)
        self.dropout = DropoutLayer(config.dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits [1, K + 1, n] of rows [1, D, n]."""
        hidden = self.dropout(self.inner(self.input_dropout(rows[0].T))[0])
        return cast(Tensor, self.outer(hidden)).T[None]

    def beginning(self) -> list[Tensor]:
        """Return the state before the first row: zeros."""
        return [torch.zeros(1, self.config.units), torch.zeros(1, self.config.units)]

    @torch.inference_mode()
    def ahead(self, row: Rows, past: list[Tensor]) -> Rows:
        """Return the logits [K + 1] of the next row [D], which is added to the past."""
        given = torch.from_numpy(row[None]), (past[0], past[1])
        hidden, (past[0], past[1]) = self.inner(*given)
        logits: Rows = self.outer(hidden[0]).numpy()
        return logits


class OnlineNetwork(nn.Module):
    """A causal network of rows, and the mean length of the segments that it was trained on.

    Arguments are as of `ASFormer`.
    """

    segment: Tensor  # rows of a mean segment, pauses among them [1]

    def __init__(self, size: int, labels: int, config: OnlineConfig) -> None:
        super().__init__()
        self.register_buffer("segment", torch.ones(1))
        self.network: Any = _Recurrent(size, labels, config)
        if config.network == "tcn":
            layers = RecogniserConfig(
                temporal_layers=config.layers,
                temporal_channels=config.channels,
                temporal_input_dropout=config.input_dropout,
                temporal_dropout=config.dropout,
            )
            self.network = TemporalNetwork(size, labels, layers, causal=True)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Return log p(label | rows so far) [1, K + 1, n] of rows [1, D, n], of one stage."""
        return [self.network(rows).log_softmax(dim=1)]

    def ahead(self, row: Rows, past: State) -> Floats:
        """Return p(label) [K + 1] of the next row [D], which is added to the past."""
        return np.exp(log_softmax(self.network.ahead(row, past)))


class LabelRule:
    """Keeps the last label while the next one is unsure and the segment so far is short.

    Args:
        sure: Probability from which a label is sure, θ.
        shortest: Rows from which a segment is no longer short.
    """

    def __init__(self, sure: float, shortest: float) -> None:
        self.sure, self.shortest = sure, shortest
        self._label, self._length = -1, 0

    def kept(self, row: Floats) -> Floats:
        """Return p(label) of the next row [K + 1]; that of a label that is kept is the largest."""
        label = int(row.argmax())
        unsure = row[label] < self.sure and self._length < self.shortest
        if self._length and label != self._label and unsure:
            row = row.copy()
            row[[label, self._label]] = row[[self._label, label]]
            label = self._label
        self._length = self._length + 1 if label == self._label else 1
        self._label = label
        return row


class OnlineStream:
    """Labels rows one by one, of a task's actions or of all; only segments make it larger."""

    next_actions = None

    def __init__(self, recogniser: OnlineRecogniser, task: int | None = None) -> None:
        self._recogniser = recogniser
        self._task = None if task is None else find_task(recogniser.taxonomy, task)
        self._past: State = recogniser.fitted.network.beginning()
        self._rule = recogniser.label_rule()
        self._segments: list[tuple[Segment, float]] = []  # with the sums of their probabilities
        self._count = 0  # rows
        self.now: Floats = np.eye(len(recogniser.taxonomy.actions) + 1)[-1]

    def observe(self, row: NDArray[np.floating[Any]]) -> bool:
        """Add the next row [D] (DataError)."""
        recogniser = self._recogniser
        scaled = recogniser.standard.scaled(recogniser.checked_rows(np.asarray(row)[None], None))
        seen = recogniser.fitted.ahead(scaled[0], self._past)[None]
        self.now = of_task(seen, recogniser.taxonomy, self._task)[0]
        if self._rule is not None:
            self.now = self._rule.kept(self.now)
        label, count = int(self.now.argmax()), self._count
        last, total = self._segments[-1] if self._segments else (None, 0.0)
        if last is None or last.action != label:
            last, total = Segment(label, count, count), 0.0
            self._segments.append((last, total))
        self._segments[-1] = last._replace(end=count + 1), total + float(self.now[label])
        self._count += 1
        return True

    def steps(self) -> list[TimedStep]:
        """Return the steps so far in order, the present one among them."""
        recogniser = self._recogniser
        return [
            recognised_step(
                segment, total / (segment.end - segment.start), recogniser.taxonomy, recogniser.rate
            )
            for segment, total in self._segments
            if segment.action < len(recogniser.taxonomy.actions)
        ]


class OnlineRecogniser(VideoNetworkRecogniser):
    """A causal convolutional or recurrent network alone, or with the rule."""

    kind = OnlineConfig
    network = OnlineNetwork

    config: OnlineConfig
    fitted: OnlineNetwork

    @override
    @classmethod
    def fitted_to(
        cls,
        rows: Sequence[Rows],
        labels: Sequence[NDArray[np.int64]],
        count: int,
        config: OnlineConfig,
        seed: int,
        context: TrainingContext,
    ) -> nn.Module:
        """Train the network."""
        network = fit_on_videos(
            cls.network, rows, labels, count, config, seed=seed, context=context
        )
        segments = sum(1 + int(np.count_nonzero(np.diff(video))) for video in labels)
        assert isinstance(network, OnlineNetwork)
        network.segment.fill_(sum(map(len, labels)) / segments)
        return network

    @property
    def follows(self) -> bool:
        """Whether it recognises row by row, too."""
        return True

    @override
    def stream(self, task: int | None = None) -> OnlineStream:
        """Return a stream of rows of a video, which knows no next step."""
        return OnlineStream(self, task)

    def label_rule(self) -> LabelRule | None:
        """Return the rule before the first row; None if labels are those of the network."""
        config = self.config
        shortest = config.shortest * float(self.fitted.segment)
        return LabelRule(config.sure, shortest) if config.rule else None

    @override
    def decided(self, rows: Floats) -> Floats:
        """Return p(label) [n, K + 1] with the labels that the rule keeps."""
        rule = self.label_rule()
        return rows if rule is None else np.stack([rule.kept(row) for row in rows])
