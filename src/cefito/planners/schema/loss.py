"""What SCHEMA is trained for: actions, the task, alignment with descriptions, states between."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.planners.schema.network import BLOCK, Encoded, SchemaNetwork
from cefito.planners.shared.descriptions import EndMeans
from cefito.planners.shared.transitions import decode, log_guarded
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term

__all__ = ["SchemaLoss"]

_SAMPLE_SEED = 0  # of the fixed sample of validation windows
_LEFT_OUT = 0.3  # share of the videos left out of mean observations at each step, as of the field


class SchemaLoss:
    """Errors of actions, tasks, alignment and decoded states.

    The error of actions and tasks is cross-entropy; so is that of the alignment, over initial and
    goal observations together. A decoded state is held to the mean of what describes the state
    after the action before it and the state before the action behind it, as these descriptions are
    encoded now; no gradient flows into them.

    Args:
        network: The network to train, with descriptions and counts of transitions.
        train: Training windows, whose true tasks are given.
        val: Validation windows, whose tasks the network predicts.
    """

    def __init__(self, *, network: SchemaNetwork, train: Windows, val: Windows) -> None:
        self.module, self.config = network, network.config
        training, device = self.config.training, network.mean.device
        self.observations = Observations(train, training.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.means: EndMeans | None = None
        if self.config.described == "observations":
            self.means = EndMeans(train, network.prepared, device)
        self.transitions = log_guarded(network.counts, smoothing=self.config.smoothing)
        self.chosen = val.sample(training.stopping.windows or None, _SAMPLE_SEED)
        self.val = tuple(
            torch.from_numpy(part).to(device)
            for part in (self.chosen.initial, self.chosen.goal, self.chosen.actions)
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The losses of a batch."""
        config = self.config
        encoded = self.encoded(rows, generator, group)
        described = (
            self.means.without(rows, _LEFT_OUT, generator) if self.means is not None else None
        )
        actions, tasks = group.share(self.actions[rows]), group.share(self.tasks[rows])
        memory = self.module.memory(described, generator=generator)
        outputs = self.module.decode(encoded, tasks, memory, generator)
        errors = self.action_errors(outputs.actions.flatten(0, 1), actions.flatten())
        terms = {
            "actions": _mean(1.0, errors),
            "task": _mean(config.task, F.cross_entropy(outputs.tasks, tasks, reduction="none")),
        }
        if memory.encoded is None:
            return terms
        if config.alignment:
            logits = self.module.alignment(outputs.aligned, memory.encoded).flatten(0, 1)
            ends = actions[:, [0, -1]].flatten()
            terms["alignment"] = _mean(
                config.alignment, F.cross_entropy(logits, ends, reduction="none")
            )
        if config.states and outputs.between.shape[1]:
            before, after = memory.encoded.detach().float().mean(dim=2).unbind(dim=1)
            target = (after[actions[:, :-1]] + before[actions[:, 1:]]) / 2
            terms["states"] = _mean(config.states, (outputs.between.float() - target).square())
        return terms

    def encoded(self, rows: Tensor, generator: torch.Generator, group: Processes) -> Encoded:
        """The encoded observations of this process's share of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        return self.module.encode(group.share(initial), group.share(goal), generator=generator)

    def encoded_val(self, part: slice) -> Encoded:
        """The encoded observations of some validation windows."""
        initial, goal, _ = self.val
        return self.module.encode(initial[part], goal[part])

    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        """The error of each action [n] by its logits [n, K]: cross-entropy."""
        return F.cross_entropy(logits, actions, reduction="none")

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Success rate and mean accuracy of the best plan of each validation window, in per cent.

        The best plan is the one that the planner gives. Every process computes the same.
        """
        actions = self.val[-1]
        memory, best = self.module.memory(), []
        for first in range(0, len(actions), BLOCK):
            encoded = self.encoded_val(slice(first, first + BLOCK))
            logits = self.module.decode(encoded, None, memory, None).actions
            best.append(decode(logits.double().log_softmax(dim=2), self.transitions, 1).sequences)
        right = torch.cat(best)[:, 0] == actions
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }


def _mean(weight: float, errors: Tensor) -> Term:
    """The mean of errors as a term."""
    return Term(weight, errors.sum(), torch.tensor(errors.numel(), device=errors.device))
