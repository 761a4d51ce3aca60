"""Loss of the proposal network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.field.predictor import Dropout
from cefito.field.proposal import ProposalNetwork
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import Term

__all__ = ["ProposalLoss"]


class ProposalLoss:
    """Mean over steps of the cross-entropy of the action among those that the true task may use.

    Steps whose action the task may not use (as validation videos can have them) are left out of the
    loss and of the likelihood; in the accuracy they count as wrong.
    """

    def __init__(
        self,
        *,
        proposal: ProposalNetwork,  # the network to train
        train: Windows,  # training windows
        val: Windows,  # validation windows
        actions: Mapping[int, tuple[int, ...]],
        config: TrainingConfig,  # changes of the observations
    ) -> None:
        self.module, self.config = proposal, config
        device = proposal.bias.device
        self.observations = Observations(train, config.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        allowed = torch.ones(
            len(train.taxonomy.tasks), len(train.taxonomy.actions), dtype=torch.bool
        )
        for task, usable in actions.items():
            allowed[task] = False
            allowed[task, list(usable)] = True
        self.allowed = allowed.to(device)
        self.val = tuple(
            torch.from_numpy(part).to(device)
            for part in (val.initial, val.goal, val.actions, val.tasks)
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Return the cross-entropy of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        initial, goal, actions, tasks = (
            group.share(part) for part in (initial, goal, self.actions[rows], self.tasks[rows])
        )
        dropout = (
            Dropout(self.module.config.dropout, generator) if self.module.config.dropout else None
        )
        chances = self._log_probabilities(self.module(initial, goal, dropout=dropout), tasks)
        true, counted = self._true(chances, actions, tasks)
        return {"cross_entropy": Term(1.0, -true.sum(), counted.sum())}

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Return mean log-likelihood and accuracy of the steps of all validation windows."""
        initial, goal, actions, tasks = self.val
        chances = self._log_probabilities(self.module(initial, goal), tasks)
        true, counted = self._true(chances, actions, tasks)
        accuracy = (chances.argmax(dim=2) == actions).double().mean()
        return {
            "step_log_likelihood": float(true.double().sum() / counted.sum().clamp_min(1)),
            "step_accuracy": 100 * float(accuracy),
        }

    def _log_probabilities(self, logits: Tensor, tasks: Tensor) -> Tensor:
        """Return log p over the actions of each window's task, −∞ for others, [B, T, K]."""
        return (
            logits.float().masked_fill(~self.allowed[tasks][:, None], -torch.inf).log_softmax(dim=2)
        )

    def _true(self, chances: Tensor, actions: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p of true actions, 0 if not of their task, and if they are; both [B, T]."""
        counted = self.allowed[tasks].gather(1, actions)
        true = chances.gather(2, actions[:, :, None]).squeeze(2)
        return torch.where(counted, true, 0.0), counted
