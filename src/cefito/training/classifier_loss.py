"""Loss of the task classifier."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.classifier import TaskNetwork
from cefito.field.predictor import Dropout
from cefito.runtime import Processes
from cefito.training.augmentation import Observations
from cefito.training.settings import ClassifierTrainingConfig
from cefito.training.trainer import Term

__all__ = ["ClassifierLoss"]


class ClassifierLoss:
    """Cross-entropy of the task (paper, Sec. 3.3)."""

    def __init__(
        self,
        *,
        classifier: TaskNetwork,
        train: Windows,
        val: Windows,
        config: ClassifierTrainingConfig,
    ) -> None:
        self.module, self.config = classifier, config
        device = next(classifier.parameters()).device
        self.observations = Observations(train, config.augmentation, device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        alone = torch.ones(len(train), dtype=torch.int64)
        self.later = (_later_windows(train) if config.pairs == "all" else alone).to(device)
        self.val = tuple(
            torch.from_numpy(part).to(device) for part in (val.initial, val.goal, val.tasks)
        )

    def __len__(self) -> int:
        return len(self.tasks)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Return the cross-entropy of a batch."""
        draw = torch.rand(len(rows), generator=generator, device=rows.device)
        # the windows of a video are adjacent, in order
        ends = rows + (draw * self.later[rows]).long()
        initial, goal = self.observations.draw(rows, generator, ends)
        initial, goal, tasks = (group.share(part) for part in (initial, goal, self.tasks[rows]))
        dropout = Dropout(self.module.dropout, generator) if self.module.dropout else None
        logits = self.module(initial, goal, dropout=dropout)
        loss = F.cross_entropy(
            logits.float(), tasks, reduction="sum", label_smoothing=self.config.label_smoothing
        )
        return {"cross_entropy": Term(1.0, loss, torch.tensor(len(tasks), device=loss.device))}

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Return task accuracy and log-likelihood on all validation windows."""
        initial, goal, tasks = self.val
        logits = self.module(initial, goal).float()
        accuracy = (logits.argmax(dim=1) == tasks).double().mean()
        return {
            "task_accuracy": 100 * float(accuracy),
            "log_likelihood": -float(F.cross_entropy(logits, tasks)),
        }


def _later_windows(windows: Windows) -> Tensor:
    """Return the number of windows of the same video from each window on, [N]."""
    later = torch.ones(len(windows), dtype=torch.int64)
    for row in range(len(windows) - 2, -1, -1):
        if windows.video[row] == windows.video[row + 1]:
            later[row] = later[row + 1] + 1
    return later
