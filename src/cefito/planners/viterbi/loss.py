"""What ViterbiPlanNet is trained for: marginals, alignment with descriptions, and tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.planners.viterbi.layer import decode, log_marginals, transition_probabilities
from cefito.planners.viterbi.network import ViterbiNetwork
from cefito.planners.viterbi.settings import ViterbiConfig
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term

__all__ = ["ViterbiLoss"]

_SAMPLE_SEED = 0  # of the fixed sample of validation windows


class ViterbiLoss:
    """Errors of marginals and of task logits, and misalignment with descriptions.

    Published is mean squared error of the marginals to the one-hot actions, plus cross-entropy of
    the alignment, plus mean squared error of the raw task logits to the one-hot task, all of weight
    1. Here means are over all entries, and the cross-entropies of the initial and of the goal
    observation are added; neither is stated.

    Args:
        network: The network to train, with its counts of transitions.
        train: Training windows.
        val: Validation windows.
        descriptions: Embeddings of descriptions [K, 6, W], where the network has an encoder for
            them. Without, its free vectors are aligned with, where it has such.
        config: Weights of the losses, decoding, changes of the observations, which validation
            windows.
    """

    def __init__(
        self,
        *,
        network: ViterbiNetwork,
        train: Windows,
        val: Windows,
        descriptions: NDArray[np.float32] | None,
        config: ViterbiConfig,
    ) -> None:
        self.module, self.config = network, config
        device = network.mean.device
        self.observations = Observations(train, config.training.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.transitions = transition_probabilities(network.counts, clamped=True).float()
        self.descriptions = (
            None if descriptions is None else torch.from_numpy(descriptions).to(device)
        )
        val = val.sample(config.training.stopping.windows or None, _SAMPLE_SEED)
        self.val = tuple(
            torch.from_numpy(part).to(device) for part in (val.initial, val.goal, val.actions)
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        initial, goal, actions, tasks = (
            group.share(part) for part in (initial, goal, self.actions[rows], self.tasks[rows])
        )
        outputs = self.module(initial, goal, generator=generator)
        marginals = log_marginals(outputs.emissions, self.transitions).exp()
        terms = {"marginals": _squared(1.0, marginals, actions)}
        if self.descriptions is not None or self.module.free is not None:
            logits = self.module.alignment(outputs.states, self.descriptions, generator=generator)
            ends = actions[:, [0, -1]]
            loss = F.cross_entropy(logits.flatten(0, 1), ends.flatten(), reduction="sum")
            count = torch.tensor(len(actions), device=loss.device)
            terms["alignment"] = Term(self.config.alignment, loss, count)
        if self.config.task:
            terms["task"] = _squared(self.config.task, outputs.tasks, tasks)
        return terms

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Success rate and mean accuracy of the best plan of each validation window, in per cent.

        The best plan is the one that `ViterbiPlanner.plan` gives. Every process computes the same.
        """
        initial, goal, actions = self.val
        emissions = self.module(initial, goal).emissions
        best = decode(emissions, self.module.counts, 1, self.config.decoding)
        right = best.sequences[:, 0] == actions
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }


def _squared(weight: float, values: Tensor, chosen: Tensor) -> Term:
    """Mean squared error of values […, n] to one-hot vectors of the chosen places […]."""
    errors = values - F.one_hot(chosen, values.shape[-1])
    return Term(weight, errors.square().sum(), torch.tensor(errors.numel(), device=errors.device))
