"""Loss of the proposal network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.field.classifier import ProposalNetwork
from cefito.field.predictor import Dropout
from cefito.runtime import Processes
from cefito.training.augmentation import Observations
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import Term

__all__ = ["ProposalLoss"]


class ProposalLoss:
    """Mean over steps of the cross-entropy of the action."""

    def __init__(
        self, *, proposal: ProposalNetwork, train: Windows, val: Windows, config: TrainingConfig
    ) -> None:
        self.module, self.config = proposal, config
        device = proposal.bias.device
        self.observations = Observations(train, config.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.val = tuple(
            torch.from_numpy(part).to(device) for part in (val.initial, val.goal, val.actions)
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Return the cross-entropy of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        initial, goal, actions = (group.share(part) for part in (initial, goal, self.actions[rows]))
        rate = self.module.config.dropout
        dropout = Dropout(rate, generator) if rate else None
        true, _ = self._true(self.module(initial, goal, dropout=dropout), actions)
        count = torch.tensor(true.numel(), device=true.device)
        return {"cross_entropy": Term(1.0, -true.sum(), count)}

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Return mean log-likelihood and accuracy of the steps of all validation windows."""
        initial, goal, actions = self.val
        true, right = self._true(self.module(initial, goal), actions)
        return {
            "step_log_likelihood": float(true.double().sum() / max(true.numel(), 1)),
            "step_accuracy": 100 * float(right.double().mean()),
        }

    def _true(self, logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p of true actions and whether they are the likeliest; both [B, T]."""
        chances = logits.float().log_softmax(dim=2)  # [B, T, K]
        return chances.gather(2, actions[:, :, None]).squeeze(2), chances.argmax(dim=2) == actions
