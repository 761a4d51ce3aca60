"""MS-TCN++ beside the recognisers of `cefito compare --recognisers`, under the same scores.

    python benchmarks/recognition.py --data FOLDER --out FOLDER [--methods recogniser mstcn]

FOLDER holds taxonomy.json, videos.jsonl and timeline.npz. The networks are trained on the training
and validation videos, and score the test videos. Results that --out holds are kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import common
from cefito.data.readers.custom import prepare
from cefito.progress import bar
from cefito.study.recognition import RECOGNISERS, Predict, compare_recognisers
from cefito.study.rendering import markdown

EPOCHS = 50  # as published


class Layer(nn.Module):  # of MS-TCN++, Li et al., arXiv 2006.09220
    """H + W ReLU([W_d * H]_d), with one or two dilations d."""

    def __init__(self, channels: int, dilations: Sequence[int]) -> None:
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(channels, channels, 3, padding=one, dilation=one) for one in dilations
        )
        self.joined = nn.Conv1d(channels * len(dilations), channels, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, before: Tensor) -> Tensor:
        """H of the next layer [1, 64, n]."""
        parts = []
        for one in self.dilated:
            if one.dilation[0] < before.shape[2]:
                parts.append(one(before))
            else:  # the outer weights meet padding alone
                parts.append(F.conv1d(before, one.weight[..., 1:2], one.bias))
        return before + self.dropout(self.joined(torch.cat(parts, dim=1).relu()))


class Stage(nn.Sequential):
    """Layers between a convolution of width 1 to their channels and one to the labels."""

    def __init__(self, size: int, labels: int, dilations: Sequence[Sequence[int]]) -> None:
        channels = 64
        layers = (Layer(channels, each) for each in dilations)
        super().__init__(nn.Conv1d(size, channels, 1), *layers, nn.Conv1d(channels, labels, 1))


class MSTCN(nn.Module):
    """A prediction stage of dual dilated layers and stages that refine its probabilities."""

    def __init__(self, size: int, labels: int, *, layers: int = 11, refined: int = 10) -> None:
        super().__init__()
        dual = [(2**place, 2 ** (layers - 1 - place)) for place in range(layers)]
        single = [(2**place,) for place in range(refined)]
        self.first = Stage(size, labels, dual)
        self.rest = nn.ModuleList(Stage(labels, labels, single) for _ in range(3))

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Logits [1, K + 1, n] of each stage, of rows [1, D, n]."""
        found = [self.first(rows)]
        for stage in self.rest:
            found.append(stage(found[-1].softmax(dim=1)))
        return found


def _loss(stages: list[Tensor], truth: Tensor) -> Tensor:
    total = torch.zeros(())
    for logits in stages:
        logs = logits.log_softmax(dim=1)
        change = logs[..., 1:] - logs[..., :-1].detach()
        total = total + F.nll_loss(logs, truth[None])
        if truth.numel() > 1:
            total = total + 0.15 * change.square().clamp(max=4.0**2).mean()
    return total


def mstcn(
    videos: Sequence[NDArray[np.float32]],
    labels: Sequence[NDArray[np.int64]],
    label_count: int,
    seed: int,
) -> Predict:
    """Train on standardised rows [n, D] and labels [n], one video a batch."""
    torch.manual_seed(seed)
    rows = [torch.from_numpy(one).T[None] for one in videos]
    network = MSTCN(rows[0].shape[1], label_count)
    optimiser, order = torch.optim.Adam(network.parameters(), lr=5e-4), np.random.default_rng(seed)
    with bar()(f"mstcn, seed {seed}", total=EPOCHS) as advance:
        for _ in range(EPOCHS):
            for place in order.permutation(len(rows)):
                loss = _loss(network(rows[place]), torch.from_numpy(labels[place]))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            advance()
    network.eval()

    @torch.inference_mode()
    def predict(own: NDArray[np.float32]) -> NDArray[np.float64]:
        logits = network(torch.from_numpy(own).T[None])[-1][0]
        return logits.T.double().softmax(dim=1).numpy()

    return predict


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=[*RECOGNISERS, "mstcn"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data = prepare(given.data, Path(folder) / "data")
        out = given.out or Path(folder)
        table, _ = compare_recognisers(
            data, out, given.methods, given.seeds, bar(), {"mstcn": mstcn}
        )
    print(markdown(table))


if __name__ == "__main__":
    main()
