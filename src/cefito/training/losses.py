"""Losses: contrastive ones as sums and counts; of classifier, proposals and whole plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.classifier import TaskClassifier
from cefito.field.layers import Dropout
from cefito.training.augmentation import Observations
from cefito.training.settings import ClassifierTrainingConfig, MarginConfig, TrainingConfig
from cefito.training.trainer import Term


def adaptive_margins(positives: Tensor, negatives: Tensor, config: MarginConfig) -> Tensor:
    r"""Return the margin of each triplet [B, N], larger the more actions the positive lacks.

    τ = low + (high − low) · severity, severity = |A⁻ \ A⁺| / |A⁻| over the sets of distinct actions
    (paper, Eq. 3). The released CrossTask T = 3 preset mixes in the fraction of differing
    positions, weighted by `config.order`.

    Args:
        positives: Action ids [B, T].
        negatives: Action ids [B, N, T].
        config: Lowest and highest margin, and the weight of the order.
    """
    inside = (negatives[..., None] == positives[:, None, None]).any(dim=-1)  # [B, N, T]
    equal = negatives[..., None] == negatives[..., None, :]
    again = equal.tril(diagonal=-1).any(dim=-1)  # repeats an earlier action, [B, N, T]
    # severity = |A⁻ \ A⁺| / |A⁻|, [B, N]
    severity = (~again & ~inside).sum(dim=-1) / (~again).sum(dim=-1)
    if config.order:
        differing = (negatives != positives[:, None]).float().mean(dim=-1)
        severity = (1 - config.order) * severity + config.order * differing
    return config.low + (config.high - config.low) * severity


def triplet(
    positive: Tensor, negative: Tensor, margins: Tensor, reduction: str
) -> tuple[Tensor, Tensor]:
    """Return the sum of the triplet losses max(d⁺ − d⁻ + τ, 0) (paper, Eq. 2), and a divisor.

    Args:
        positive: Energies d⁺ [B].
        negative: Energies d⁻ [B, N].
        margins: Margins τ [B, N].
        reduction: The divisor: "mean" for the number of all triplets (paper),
            "violating" for that of positive losses (released code).
    """
    # max(d⁺ − d⁻ + τ, 0), [B, N]
    losses = (positive[:, None] - negative + margins).clamp_min(0)
    if reduction == "violating":
        return losses.sum(), (losses > 0).sum()
    return losses.sum(), torch.tensor(losses.numel(), device=losses.device)


def softmax_contrastive(
    positive: Tensor, negative: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of the positive among all candidates, and their number B.

    Logits are −E / temperature. With negatives drawn uniformly, they then estimate log p(actions |
    observations) up to a constant.

    Args:
        positive: Energies [B].
        negative: Energies [B, N].
        temperature: Divides the energies.
    """
    # −energy / temperature, the positive first, [B, 1 + N]
    logits = -torch.cat([positive[:, None], negative], dim=1) / temperature
    target = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    count = torch.tensor(len(logits), device=logits.device)
    return F.cross_entropy(logits, target, reduction="sum"), count


class WindowLoss:
    """Base of losses: windows on the device of the network, `val` with their actions [N, T].

    Args:
        module: Network that is trained.
        train: Training windows.
        val: Validation windows; None without any.
        training: Settings.
    """

    def __init__(
        self, module: Any, train: Windows, val: Windows | None, training: TrainingConfig
    ) -> None:
        self.module, self.config = module, cast(Any, training)
        self.device = next(module.parameters()).device
        self.observations = Observations(train, training.augmentation, self.device)
        self.actions, self.tasks = self.placed(train.actions, train.tasks)
        if val is not None:
            self.val = self.placed(val.initial, val.goal, val.actions)

    def placed(self, *arrays: NDArray[Any]) -> tuple[Tensor, ...]:
        """Return arrays as tensors on the device."""
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)

    def __len__(self) -> int:
        return len(self.actions)


class ClassifierLoss(WindowLoss):
    """Cross-entropy of the task (paper, Sec. 3.3). Arguments are as of `WindowLoss`."""

    def __init__(
        self,
        module: TaskClassifier,
        train: Windows,
        val: Windows,
        training: ClassifierTrainingConfig,
    ) -> None:
        super().__init__(module, train, val, training)
        alone = torch.ones(len(train), dtype=torch.int64)
        self.later = (_later_windows(train) if training.pairs == "all" else alone).to(self.device)
        self.val = self.placed(val.initial, val.goal, val.tasks)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """Return the cross-entropy of a batch."""
        draw = torch.rand(len(rows), generator=generator, device=rows.device)
        # the windows of a video are adjacent, in order
        ends = rows + (draw * self.later[rows]).long()
        initial, goal = self.observations.draw(rows, generator, ends)
        rate = self.module.config.dropout
        dropout = Dropout(rate, generator) if rate else None
        logits = self.module(initial, goal, dropout=dropout)
        loss = F.cross_entropy(
            logits.float(),
            self.tasks[rows],
            reduction="sum",
            label_smoothing=self.config.label_smoothing,
        )
        return {"cross_entropy": Term(1.0, loss, torch.tensor(len(rows), device=loss.device))}

    def validate(self) -> Mapping[str, float]:
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


class ProposalLoss(WindowLoss):
    """Mean over steps of the cross-entropy of the action."""

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """Return the cross-entropy of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        rate = self.module.config.dropout
        dropout = Dropout(rate, generator) if rate else None
        true, _ = self._true(self.module(initial, goal, dropout=dropout), self.actions[rows])
        return {"cross_entropy": mean_term(1.0, -true)}

    def validate(self) -> Mapping[str, float]:
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


class PlanLoss(WindowLoss):
    """Base of losses that are validated by the best plan of each window of a fixed sample.

    The network's `config` has the settings `training`; `rows` are the steps compared in validation.
    Arguments are as of `WindowLoss`.
    """

    def __init__(self, network: Any, train: Windows, val: Windows) -> None:
        training = network.config.training
        self.chosen = val.sample_rows(training.stopping.windows or None, seed=0)
        super().__init__(network, train, val.subset(self.chosen), training)
        self.config = network.config
        self.rows: Tensor | slice = slice(None)

    def best_sequences(self) -> Tensor:
        """The best plan of each validation window [N, T], as planning gives it."""
        raise NotImplementedError

    def validate(self) -> Mapping[str, float]:
        """Success rate and mean accuracy of the best plans, in per cent."""
        right = (self.best_sequences() == self.val[-1])[:, self.rows]
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }


def mean_term(weight: float, errors: Tensor) -> Term:
    """The weighted mean of errors, as a term of a loss."""
    return Term(weight, errors.sum(), torch.tensor(errors.numel(), device=errors.device))
