"""Loss of the chain: the likelihood of whole sequences, and of each end alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.planners.crf.network import ChainNetwork
from cefito.planners.crf.settings import ChainTrainingConfig
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term

__all__ = ["ChainLoss"]


class ChainLoss:
    """−log p(task, sequence | observations), and cross-entropies of the first and last action."""

    def __init__(
        self, *, network: ChainNetwork, train: Windows, val: Windows, config: ChainTrainingConfig
    ) -> None:
        self.module, self.config = network, config
        device = network.mean.device
        self.observations = Observations(train, config.augmentation, device)
        tasks, actions = (
            torch.from_numpy(part).to(device) for part in (train.tasks, train.actions)
        )
        self.sequences = network.states.find(tasks, actions)
        self.val = tuple(
            torch.from_numpy(part).to(device) for part in (val.initial, val.goal, val.actions)
        )
        self.val_sequences = network.states.find(
            torch.from_numpy(val.tasks).to(device), self.val[2]
        )

    def __len__(self) -> int:
        return len(self.sequences)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        initial, goal, sequences = (
            group.share(part) for part in (initial, goal, self.sequences[rows])
        )
        outputs = self.module(initial, goal, generator=generator)
        count = torch.tensor(len(sequences), device=sequences.device)
        terms = {"sequence": Term(1.0, -outputs.scores.log_probabilities(sequences).sum(), count)}
        if self.config.ends_weight:
            first = F.cross_entropy(outputs.first, sequences[:, 0], reduction="sum")
            last = F.cross_entropy(outputs.last, sequences[:, -1], reduction="sum")
            terms["ends"] = Term(self.config.ends_weight, (first + last) / 2, count)
        return terms

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Return the success rate over all tasks, and the mean log-likelihood of true sequences."""
        initial, goal, actions = self.val
        scores = self.module(initial, goal).scores
        best, _ = scores.best(1)
        right = (self.module.states.actions[best[:, 0]] == actions).all(dim=1).double().mean()
        logs = scores.log_probabilities(self.val_sequences)
        return {
            "success_rate": 100 * float(right),
            "log_likelihood": float(logs[logs.isfinite()].double().mean().nan_to_num()),
        }
