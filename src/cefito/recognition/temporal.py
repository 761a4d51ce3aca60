"""A temporal network of dilated convolutions over the rows of videos, and how it is trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.recognition.settings import RecogniserConfig

Rows = NDArray[np.float32]
Past = list[deque[Rows]]
"""What a causal network keeps of each layer's rows."""


def affine(layer: Any) -> tuple[Rows, Rows]:
    """Return weights [O, k I] and bias [O] of a layer that sees k rows, as arrays."""
    weight = layer.weights if isinstance(layer, RowConvolution) else layer.weight
    return np.ascontiguousarray(weight.detach().numpy()), layer.bias.detach().numpy()


def log_softmax(logits: Rows) -> NDArray[np.float64]:
    """Return log p of the last axis."""
    scaled = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
    logs: NDArray[np.float64] = scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    return logs


class DropoutLayer(nn.Module):
    """Dropout by uniform numbers, in less than half the time of PyTorch's own on a processor."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Return values, in training a share of them zero and the others scaled up."""
        if not (self.training and self.rate):
            return values
        return values * torch.rand_like(values).ge_(self.rate).div_(1 - self.rate)


class RowConvolution(nn.Conv1d):
    """A convolution over rows by one matrix product, in less time than PyTorch's own.

    Args:
        inputs: Numbers of a row, I.
        outputs: Numbers of a row that it makes, O.
        dilation: d of a convolution that sees rows t − d, t and t + d; 0 for one that sees row t.
        causal: Whether it sees rows t − 2 d, t − d and t instead.
    """

    bias: Tensor

    def __init__(
        self, inputs: int, outputs: int, dilation: int = 0, *, causal: bool = False
    ) -> None:
        super().__init__(inputs, outputs, 3 if dilation else 1, dilation=max(dilation, 1))
        self.causal = causal

    @property
    def weights(self) -> Tensor:
        """Weights [O, k I] of the k rows that it sees."""
        return self.weight.transpose(1, 2).flatten(1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return W [x_t−d; x_t; x_t+d] + b, [O, …, n], of rows x [I, …, n]; x is 0 outside."""
        if self.kernel_size[0] > 1:
            count = rows.shape[-1]
            span = min(self.dilation[0], count)
            padded = F.pad(rows, (2 * span, 0) if self.causal else (span, span))
            seen = [padded[..., place : place + count] for place in (0, span, 2 * span)]
            rows = torch.cat(seen)
        made = torch.addmm(self.bias[:, None], self.weights, rows.flatten(1))
        return made.view(-1, *rows.shape[1:])


class TemporalNetwork(nn.Module):
    """One stage of a dilated temporal convolution (MS-TCN, Abu Farha and Gall, arXiv 1903.01945).

    Layer l, of dilation d = 2^l, is h ← h + W ReLU(V_d * h); a causal one sees h at t, t − d and
    t − 2 d, another one at t − d, t and t + d.

    Args:
        size: Numbers of a row, P.
        labels: K + 1.
        config: Its settings, those that begin with `temporal_`.
        causal: Whether later rows are not seen.
    """

    def __init__(self, size: int, labels: int, config: RecogniserConfig, *, causal: bool) -> None:
        super().__init__()
        self.causal, self.config = causal, config
        self.input_dropout = DropoutLayer(config.temporal_input_dropout)
        self.dropout = DropoutLayer(config.temporal_dropout)
        width, layers = config.temporal_channels, range(config.temporal_layers)
        self.inner = RowConvolution(size, width)
        self.dilated = nn.ModuleList(
            RowConvolution(width, width, 2**layer, causal=causal) for layer in layers
        )
        self.joined = nn.ModuleList(RowConvolution(width, width) for _ in layers)
        self.outer = RowConvolution(width, labels)

    @property
    def _layers(self) -> list[tuple[Any, Any]]:
        """Both convolutions of each layer."""
        return [*zip(self.dilated, self.joined, strict=True)]

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits [B, K + 1, n] of rows [B, P, n]."""
        hidden = self.inner(self.input_dropout(rows.transpose(0, 1)))  # [channels, B, n]
        for dilated, joined in self._layers:
            hidden = hidden + self.dropout(joined(dilated(hidden).relu()))
        logits: Tensor = self.outer(hidden.relu()).transpose(0, 1)
        return logits

    def beginning(self) -> Past:
        """Return what a causal network has seen before the first row: zeros."""
        spans = [2 * dilated.dilation[0] + 1 for dilated, _ in self._layers]
        nothing = np.zeros(self.config.temporal_channels, dtype=np.float32)
        return [deque([nothing] * span, maxlen=span) for span in spans]

    @cached_property
    def _arrays(self) -> tuple[Any, ...]:
        """Weights of a trained network: of one row, calls of torch cost more than products."""
        layers = [(*affine(dilated), *affine(joined)) for dilated, joined in self._layers]
        return affine(self.inner), layers, affine(self.outer)

    def ahead(self, row: Rows, past: Past) -> Rows:
        """Return the logits [K + 1] of the next row [P], which is added to the past."""
        (inner, inner_bias), layers, (outer, outer_bias) = self._arrays
        hidden = inner @ row + inner_bias
        for (dilated, dilated_bias, joined, joined_bias), seen in zip(layers, past, strict=True):
            seen.append(hidden)
            taps = np.concatenate([seen[0], seen[len(seen) // 2], hidden])  # t − 2 d, t − d, t
            made = np.maximum(dilated @ taps + dilated_bias, 0)
            hidden = hidden + joined @ made + joined_bias
        logits: Rows = outer @ np.maximum(hidden, 0) + outer_bias
        return logits


def row_steps(rows: int, config: RecogniserConfig) -> int:
    """Number of batches that each network of single rows sees, for videos of so many rows."""
    return max(config.training_steps, -(-config.row_passes * rows // config.batch_size))


def temporal_steps(rows: int, config: RecogniserConfig) -> int:
    """Number of batches that the temporal network is trained on, for videos of so many rows."""
    if not config.temporal_layers:
        return 0
    seen = config.temporal_rows * config.temporal_parts  # rows of a batch
    return max(config.temporal_steps, -(-config.temporal_passes * rows // seen))


class TemporalLoss:
    """Cross-entropy and smoothing of random parts of videos, features [n, F ≥ P] and labels [n].

    Args:
        network: Network that is trained.
        videos: Features of each video [n, F ≥ P].
        labels: Label of each row [n].
        generator: Draws the parts.
    """

    def __init__(
        self,
        network: TemporalNetwork,
        videos: Sequence[Rows],
        labels: Sequence[NDArray[np.integer]],
        generator: torch.Generator,
    ) -> None:
        self.network, self.generator = network, generator
        size = network.inner.in_channels
        self.rows = [torch.from_numpy(video[:, :size]) for video in videos]
        self.labels = [torch.from_numpy(label.astype(np.int64)) for label in labels]
        self.weights = torch.tensor([float(len(video)) for video in videos])

    def __call__(self) -> Tensor:
        """Return the loss of the next random parts."""
        config, generator = self.network.config, self.generator
        device = self.network.inner.weight.device
        chosen = torch.multinomial(self.weights, config.temporal_parts, True, generator=generator)
        rows, labels = [], []
        for video in chosen.tolist():
            last = max(len(self.rows[video]) - config.temporal_rows, 0)
            start = int(torch.randint(last + 1, (1,), generator=generator))
            part = slice(start, start + config.temporal_rows)
            rows.append(self.rows[video][part])
            labels.append(self.labels[video][part])
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True).transpose(1, 2)
        truth = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-1).to(device)
        logits = self.network(padded.to(device))
        logs, most = logits.log_softmax(dim=1), config.temporal_jump
        change = (logs[..., 1:] - logs[..., :-1].detach()).clamp(-most, most).square()
        smooth = (change * (truth[:, None, 1:] >= 0)).mean() if change.numel() else change.sum()
        wrong = F.cross_entropy(logits, truth, ignore_index=-1)
        loss: Tensor = wrong + config.temporal_smoothing * smooth
        return loss
