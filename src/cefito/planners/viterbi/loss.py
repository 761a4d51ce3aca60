"""The loss of ViterbiPlanNet: marginals, alignment with descriptions, and tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.planners.viterbi.layer import decode, log_marginals, transition_probabilities
from cefito.planners.viterbi.network import ViterbiNetwork
from cefito.runtime import Processes
from cefito.training.trainer import Term

__all__ = ["ViterbiLoss"]


class ViterbiLoss(PlanLoss):
    """Errors of marginals and of task logits, and misalignment with descriptions [K, 6, W] if any.

    Published is mean squared error of the marginals to the one-hot actions, plus cross-entropy of
    the alignment, averaged over the initial and the goal observation, plus mean squared error of
    the raw task logits to the one-hot task, all of weight 1, with means over all entries.
    """

    def __init__(
        self,
        network: ViterbiNetwork,
        train: Windows,
        val: Windows,
        descriptions: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(network, train, val)
        self.transitions = transition_probabilities(network.counts, clamped=True).float()
        self.descriptions = None if descriptions is None else self.placed(descriptions)[0]

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        initial, goal, actions, tasks = (
            group.share(part) for part in (initial, goal, self.actions[rows], self.tasks[rows])
        )
        outputs = self.module(initial, goal, generator=generator)
        marginals = log_marginals(outputs.emissions, self.transitions).exp()  # [B, T, K]
        terms = {"marginals": _squared(1.0, marginals, actions)}
        if self.descriptions is not None or self.module.free is not None:
            # [B, 2, K]: initial and goal observation against the first and the last action
            logits = self.module.alignment(outputs.states, self.descriptions, generator=generator)
            ends = actions[:, [0, -1]]
            errors = F.cross_entropy(logits.flatten(0, 1), ends.flatten(), reduction="none")
            terms["alignment"] = mean_term(self.config.alignment, errors)
        if self.config.task:
            terms["task"] = _squared(self.config.task, outputs.tasks, tasks)
        return terms

    @override
    def best_sequences(self) -> Tensor:
        initial, goal, _ = self.val
        emissions = self.module(initial, goal).emissions
        return decode(emissions, self.module.counts, 1, self.config.decoding).sequences[:, 0]


def _squared(weight: float, values: Tensor, chosen: Tensor) -> Term:
    """Mean squared error of values [..., n] to one-hot vectors of the chosen places [...]."""
    return mean_term(weight, (values - F.one_hot(chosen, values.shape[-1])).square())
