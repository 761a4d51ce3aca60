"""Networks that say which step a row shows, from the row and averages of the rows around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.timeline.memory import Rows
from cefito.timeline.settings import RecogniserConfig


class RowClassifier(nn.Module):
    """Networks of one hidden layer, whose probabilities are averaged.

    Args:
        size: Features of a row, F.
        labels: K + 1.
        config: Its settings.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int, labels: int, config: RecogniserConfig) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))
        self.members = nn.ModuleList(
            nn.Sequential(
                nn.Dropout(config.input_dropout),
                nn.Linear(size, config.width),
                nn.ReLU(),
                nn.Dropout(config.dropout),
                nn.Linear(config.width, labels),
            )
            for _ in range(config.members)
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return log p(label | row) [n, K + 1] of rows [n, F]."""
        scaled = (rows - self.mean) / self.deviation
        logits = torch.stack([member(scaled) for member in self.members])
        count = len(self.members)
        return logits.log_softmax(dim=2).logsumexp(dim=0) - float(np.log(count))

    @torch.inference_mode()
    def log_probabilities(self, rows: Rows) -> NDArray[np.float64]:
        """Return log p(label | row) [n, K + 1] of rows [n, F]."""
        return np.asarray(self(torch.from_numpy(rows)).double().numpy())


def fit_classifier(
    videos: Sequence[Rows],  # features [n, F] of each
    labels: Sequence[NDArray[np.integer]],  # [n] of each
    label_count: int,
    config: RecogniserConfig,
    *,
    generator: torch.Generator,
    advance: Callable[[], None] = lambda: None,
) -> RowClassifier:
    """Train on random rows of annotated videos, by the cross-entropy of the label.

    The learning rate rises over a tenth of the batches and falls as a cosine after it. Dropout and
    initial weights are drawn from the generator's seed.
    """
    rows = torch.from_numpy(np.concatenate(videos))
    truth = torch.from_numpy(np.concatenate(labels).astype(np.int64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        network = RowClassifier(rows.shape[1], label_count, config)
        network.mean.copy_(rows.mean(dim=0))
        network.deviation.copy_(rows.std(dim=0, correction=0) + 1e-3)
        network.train()
        rows = (rows - network.mean) / network.deviation
        for member in network.members:
            optimiser = torch.optim.AdamW(
                member.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
            )
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, config.learning_rate, total_steps=config.training_steps, pct_start=0.1
            )
            for _ in range(config.training_steps):
                batch = torch.randint(len(rows), (config.batch_size,), generator=generator)
                loss = F.cross_entropy(member(rows[batch]), truth[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                advance()
    return network.eval()
