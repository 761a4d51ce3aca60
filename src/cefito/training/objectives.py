"""What each network is trained towards.

Losses on training windows, scores on validation windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.predictor import Dropout, normalise
from cefito.field.proposal import ProposalNetwork
from cefito.training.config import ClassifierTrainingConfig, FieldTrainingConfig
from cefito.training.distributed import Processes
from cefito.training.losses import adaptive_margins, softmax_contrastive, triplet
from cefito.training.negatives import ActionSets, NegativeSampler
from cefito.training.observations import ActionMeans, Observations
from cefito.training.parts import TrainingConfig
from cefito.training.trainer import Term

__all__ = ["ClassifierObjective", "FieldObjective", "FieldScore", "ProposalObjective"]

_LEFT_OUT = 0.3  # share of the videos left out of the actions' mean observations at each step

FieldScore = Callable[[EnergyField, Processes], Mapping[str, float]]


class FieldObjective:
    """The contrastive loss and the auxiliary reconstruction (paper, Sec. 3.2).

    Args:
        field: The field to train.
        train: Training windows.
        actions: Action ids of each task, from which negatives are drawn.
        config: Losses, negatives, changes of the observations.
        score: Plans validation windows with a field and gives its scores.
    """

    def __init__(
        self,
        *,
        field: EnergyField,
        train: Windows,
        actions: Mapping[int, tuple[int, ...]],
        config: FieldTrainingConfig,
        score: FieldScore,
    ) -> None:
        self.module, self.config, self.score = field, config, score
        device = next(field.parameters()).device
        self.observations = Observations(train, config.augmentation, device)
        self.means = (
            ActionMeans(train, field.mean) if field.config.action_encoding == "observed" else None
        )
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.sampler = NegativeSampler(
            config=config.negatives,
            actions=ActionSets.build(actions, device),
            action_count=len(train.taxonomy.actions),
            horizon=train.horizon,
        )

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Contrastive and auxiliary loss of a batch.

        Everything is drawn for the whole batch, then shared out.
        """
        initial, goal = self.observations.draw(rows, generator)
        negatives = self.sampler.sample(self.actions[rows], self.tasks[rows], generator)
        vectors = self.means.without(rows, _LEFT_OUT, generator) if self.means else None
        initial, goal, positives, negatives = (
            group.share(part) for part in (initial, goal, self.actions[rows], negatives)
        )
        dropout = (
            Dropout(self.module.config.dropout, generator) if self.module.config.dropout else None
        )
        with self.module.predictor.using(vectors):
            return self._terms(initial, goal, positives, negatives, dropout)

    def _terms(
        self,
        initial: Tensor,
        goal: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dropout: Dropout | None,
    ) -> Mapping[str, Term]:
        candidates = torch.cat([positives[:, None], negatives], dim=1)
        weight = self.config.auxiliary.weight
        terms: dict[str, Term] = {}
        if weight and self.config.auxiliary.negatives:
            states = self._states(
                initial, candidates, dropout
            )  # every candidate's states are needed in full
            energies = self.module.distance(states[:, :, -1], self.module.target(goal)[:, None])
            terms["auxiliary"] = self._auxiliary(
                initial, goal, states[:, :1], candidates[:, :1], weight / 2, dropout
            )
            terms["auxiliary_negatives"] = self._auxiliary(
                initial, goal, states[:, 1:], negatives, weight / 2, dropout
            )
        else:
            energies = self.module.candidate_energies(initial, goal, candidates, dropout=dropout)
            if weight:
                states = self._states(initial, candidates[:, :1], dropout)
                terms["auxiliary"] = self._auxiliary(
                    initial, goal, states, candidates[:, :1], weight, dropout
                )
        return {"contrastive": self._contrastive(energies, positives, negatives), **terms}

    def validate(self, group: Processes) -> Mapping[str, float]:
        """Success rate and mean accuracy of plans, by the given function."""
        return self.score(self.module, group)

    def _contrastive(self, energies: Tensor, positives: Tensor, negatives: Tensor) -> Term:
        loss = self.config.loss
        if loss.kind == "softmax":
            return Term(
                1.0, *softmax_contrastive(energies[:, 0], energies[:, 1:], loss.temperature)
            )
        if loss.kind == "regression":
            return Term(
                1.0,
                energies[:, 0].sum(),
                torch.tensor(float(len(energies)), device=energies.device),
            )
        margins = adaptive_margins(positives, negatives, loss.margin)
        return Term(1.0, *triplet(energies[:, 0], energies[:, 1:], margins, loss.reduction))

    def _states(self, initial: Tensor, candidates: Tensor, dropout: Dropout | None) -> Tensor:
        """Pass 1 for [B, E] and [B, M, T] → [B, M, T, E]."""
        count = candidates.shape[1]
        centred = self.module.centred(initial).repeat_interleave(count, dim=0)
        states = self.module.predictor.states(centred, candidates.flatten(0, 1), dropout=dropout)
        return states.unflatten(0, (-1, count))  # type: ignore[no-any-return]

    def _auxiliary(
        self,
        initial: Tensor,
        goal: Tensor,
        states: Tensor,
        actions: Tensor,
        weight: float,
        dropout: Dropout | None,
    ) -> Term:
        """Pass 2: cross-entropy of the actions [B, M, T] given the states [B, M, T, E]."""
        count = states.shape[1]
        if self.config.auxiliary.goal == "true":
            true = normalise(self.module.centred(goal))[:, None, None].expand(-1, count, -1, -1)
            states = torch.cat([states[:, :, :-1], true], dim=2)
        centred = self.module.centred(initial).repeat_interleave(count, dim=0)
        logits = self.module.predictor.reconstruct(centred, states.flatten(0, 1), dropout=dropout)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), actions.flatten(), reduction="sum")
        return Term(weight, loss, torch.tensor(actions.numel(), device=loss.device))


class ClassifierObjective:
    """Cross-entropy of the task (paper, Sec. 3.3).

    Args:
        classifier: The classifier to train.
        train: Training windows.
        val: Validation windows.
        config: Changes of the observations, label smoothing, which pairs.
    """

    def __init__(
        self,
        *,
        classifier: TaskClassifier,
        train: Windows,
        val: Windows,
        config: ClassifierTrainingConfig,
    ) -> None:
        self.module, self.config = classifier, config
        device = next(classifier.parameters()).device
        self.observations = Observations(train, config.augmentation, device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        later = (
            _later_windows(train)
            if config.pairs == "all"
            else torch.ones(len(train), dtype=torch.int64)
        )
        self.later = later.to(device)
        self.val = tuple(
            torch.from_numpy(part).to(device) for part in (val.initial, val.goal, val.tasks)
        )

    def __len__(self) -> int:
        return len(self.tasks)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Cross-entropy of a batch."""
        draw = torch.rand(len(rows), generator=generator, device=rows.device)
        ends = (
            rows + (draw * self.later[rows]).long()
        )  # the windows of a video stand together, in order
        initial, goal = self.observations.draw(rows, generator, ends)
        initial, goal, tasks = (group.share(part) for part in (initial, goal, self.tasks[rows]))
        dropout = (
            Dropout(self.module.config.dropout, generator) if self.module.config.dropout else None
        )
        logits = self.module(initial, goal, dropout=dropout)
        loss = F.cross_entropy(
            logits.float(), tasks, reduction="sum", label_smoothing=self.config.label_smoothing
        )
        return {"cross_entropy": Term(1.0, loss, torch.tensor(len(tasks), device=loss.device))}

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Task accuracy and negative cross-entropy on all validation windows.

        Every process computes the same.
        """
        initial, goal, tasks = self.val
        logits = self.module(initial, goal).float()
        accuracy = (logits.argmax(dim=1) == tasks).double().mean()
        return {
            "task_accuracy": 100 * float(accuracy),
            "log_likelihood": -float(F.cross_entropy(logits, tasks)),
        }


class ProposalObjective:
    """Cross-entropy of each step's action among those that the window's true task may use.

    Averaged over steps.

    Steps whose action the task may not use (as validation videos can have them) are left out of the
    loss and of the likelihood; in the accuracy they count as wrong.

    Args:
        proposal: The network to train.
        train: Training windows.
        val: Validation windows.
        actions: Action ids of each task, at least one; a task that is absent may use all.
        config: Changes of the observations.
    """

    def __init__(
        self,
        *,
        proposal: ProposalNetwork,
        train: Windows,
        val: Windows,
        actions: Mapping[int, tuple[int, ...]],
        config: TrainingConfig,
    ) -> None:
        self.module, self.config = proposal, config
        device = proposal.bias.device
        self.observations = Observations(train, config.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        allowed = torch.ones(
            len(train.taxonomy.tasks), len(train.taxonomy.actions), dtype=torch.bool
        )
        for task, own in actions.items():
            allowed[task] = False
            allowed[task, list(own)] = True
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
        """Cross-entropy of a batch."""
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
        """Mean log-likelihood and accuracy of the steps of all validation windows.

        Every process computes the same.
        """
        initial, goal, actions, tasks = self.val
        chances = self._log_probabilities(self.module(initial, goal), tasks)
        true, counted = self._true(chances, actions, tasks)
        accuracy = (chances.argmax(dim=2) == actions).double().mean()
        return {
            "step_log_likelihood": float(true.double().sum() / counted.sum().clamp_min(1)),
            "step_accuracy": 100 * float(accuracy),
        }

    def _log_probabilities(self, logits: Tensor, tasks: Tensor) -> Tensor:
        """Over the actions that each window's task may use, −∞ for the others, [B, T, K]."""
        return (
            logits.float().masked_fill(~self.allowed[tasks][:, None], -torch.inf).log_softmax(dim=2)
        )

    def _true(self, chances: Tensor, actions: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the true actions, 0 where the task may not use them, and whether it may.

        Both [B, T].
        """
        counted = self.allowed[tasks].gather(1, actions)
        true = chances.gather(2, actions[:, :, None]).squeeze(2)
        return torch.where(counted, true, 0.0), counted


def _later_windows(windows: Windows) -> Tensor:
    """How many windows of the same video stand at or behind each window, itself counted, [N]."""
    later = torch.ones(len(windows), dtype=torch.int64)
    for row in range(len(windows) - 2, -1, -1):
        if windows.video[row] == windows.video[row + 1]:
            later[row] = later[row + 1] + 1
    return later
