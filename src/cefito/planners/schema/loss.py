"""The loss of SCHEMA: actions, the task, alignment with descriptions, states between the steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.schema.network import BLOCK, Encoded, SchemaNetwork
from cefito.planners.shared.descriptions import EndMeans
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.planners.shared.transitions import decode, log_guarded
from cefito.runtime import Processes
from cefito.training.trainer import Term

_LEFT_OUT = 0.3  # share of the videos left out of mean observations at each step, as of the field


class SchemaLoss(PlanLoss):
    """Cross-entropy of actions, tasks and alignment (of both ends), and errors of decoded states.

    The target of a decoded state is the mean of the encoded descriptions of the state after the
    action before it and of the state before the action behind it; no gradient flows into them. The
    true tasks are given in training, the predicted ones in validation.
    """

    def __init__(
        self,
        network: SchemaNetwork,
        train: Windows,
        val: Windows,
        text: NDArray[np.float32] | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(network, train, val)
        self.means: EndMeans | None = None
        if self.config.described == "observations":
            self.means = EndMeans(train, network.prepared, self.device)
        self.transitions = log_guarded(network.counts, smoothing=self.config.smoothing)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The losses of a batch."""
        config = self.config
        encoded = self.encoded(rows, generator, group)
        described = None
        if self.means is not None:
            described = self.means.without(rows, _LEFT_OUT, generator)
        actions, tasks = group.share(self.actions[rows]), group.share(self.tasks[rows])
        memory = self.module.memory(described, generator=generator)
        outputs = self.module.decode(encoded, tasks, memory, generator)
        errors = self.action_errors(outputs.actions.flatten(0, 1), actions.flatten())  # [B · T]
        terms = {
            "actions": mean_term(1.0, errors),
            "task": mean_term(config.task, F.cross_entropy(outputs.tasks, tasks, reduction="none")),
        }
        if memory.encoded is None:
            return terms
        if config.alignment:
            logits = self.module.alignment(outputs.aligned, memory.encoded).flatten(0, 1)
            ends = actions[:, [0, -1]].flatten()
            terms["alignment"] = mean_term(
                config.alignment, F.cross_entropy(logits, ends, reduction="none")
            )
        if config.states and outputs.between.shape[1]:
            # each [K, D]; the state after step t is after(a_t) and before(a_t+1)
            before, after = memory.encoded.detach().float().mean(dim=2).unbind(dim=1)
            target = (after[actions[:, :-1]] + before[actions[:, 1:]]) / 2
            terms["states"] = mean_term(config.states, (outputs.between.float() - target).square())
        return terms

    def encoded(self, rows: Tensor, generator: torch.Generator, group: Processes) -> Encoded:
        """The encoded observations of this process's share of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        encoded: Encoded = self.module.encode(
            group.share(initial), group.share(goal), generator=generator
        )
        return encoded

    def encoded_val(self, part: slice) -> Encoded:
        """The encoded observations of some validation windows."""
        initial, goal, _ = self.val
        encoded: Encoded = self.module.encode(initial[part], goal[part])
        return encoded

    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        """The error of each action [n] by its logits [n, K]: cross-entropy."""
        return F.cross_entropy(logits, actions, reduction="none")

    @override
    def best_sequences(self) -> Tensor:
        memory, best = self.module.memory(), []
        for first in range(0, len(self.val[-1]), BLOCK):
            encoded = self.encoded_val(slice(first, first + BLOCK))
            logits = self.module.decode(encoded, None, memory, None).actions
            best.append(decode(logits.double().log_softmax(dim=2), self.transitions, 1).sequences)
        return torch.cat(best)[:, 0]
