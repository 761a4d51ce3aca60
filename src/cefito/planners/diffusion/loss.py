"""What networks of diffusion are trained for: restoring the actions of noised plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.predictor import Dropout
from cefito.planners.diffusion.network import BLOCK, DiffusionNetwork
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term

__all__ = ["DiffusionLoss", "end_weights"]


def end_weights(horizon: int, ends: float, *, between: float = 1.0) -> Tensor:
    """Weights of rows: that of the first and the last, and that of those between, [T]."""
    weights = torch.full((horizon,), between)
    weights[[0, -1]] = ends
    return weights


class DiffusionLoss:
    """Squared error of the restored actions at random times, each row weighted, summed over a plan.

    The error is averaged over a batch, where it was published as summed: AdamW's steps do not
    depend on the factor.

    Args:
        network: The network to train.
        train: Training windows.
        val: Validation windows.
        known: What the given blocks of training windows are filled from, in their order, [N, …]
            each: the true tasks, say.
        val_known: The same of the validation windows, as it is known when planning: the predicted
            tasks, say.
        weights: What the rows weigh, [T].
    """

    def __init__(
        self,
        *,
        network: DiffusionNetwork,
        train: Windows,
        val: Windows,
        known: Sequence[NDArray[np.int64]],
        val_known: Sequence[NDArray[np.int64]],
        weights: Tensor,
    ) -> None:
        self.module, self.config = network, network.config
        device, training = network.mean.device, self.config.training
        self.observations = Observations(train, training.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.known = tuple(torch.from_numpy(part).to(device) for part in known)
        self.weights, self.rows = weights.to(device), network.layout.rows(device)
        sample = val.sample_rows(training.stopping.windows or None, seed=0)
        planned = val.subset(sample)
        self.val_known = tuple(
            torch.from_numpy(part).to(device)
            for part in (*(part[sample] for part in val_known), planned.initial, planned.goal)
        )
        self.val_actions = torch.from_numpy(planned.actions).to(device)

    def __len__(self) -> int:
        return len(self.actions)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The weighted squared error of a batch.

        Everything is drawn for the whole batch, then shared out.
        """
        initial, goal = self.observations.draw(rows, generator)
        times = torch.randint(
            1, self.config.steps + 1, (len(rows),), generator=generator, device=rows.device
        )
        clean = F.one_hot(self.actions[rows], self.module.action_count).float()
        noise = torch.randn(clean.shape, generator=generator, device=rows.device)
        *known, times, clean, noise = (
            group.share(part)
            for part in (*(part[rows] for part in self.known), initial, goal, times, clean, noise)
        )
        dropout = Dropout(self.config.dropout, generator) if self.config.dropout else None
        project = self.module.projection(*known, dropout=dropout)
        matrix = self.module.diffusion.noised(project.filled(clean), project.filled(noise), times)
        latents = self.module.latents(project, generator=generator)
        # of the projected prediction all but the actions has no error
        restored = self.module(project(matrix), times, latents)[..., project.actions]
        with torch.autocast(clean.device.type, enabled=False):
            errors = project.open(restored.float() - clean).square().sum(dim=2) @ self.weights
        count = torch.tensor(len(errors), device=errors.device)
        return {"squared_error": Term(1.0, errors.sum(), count)}

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Success rate and mean accuracy of the plans of the validation windows, in per cent.

        Only the rows that are predicted count. Every process does the same.
        """
        parts = zip(*(part.split(BLOCK) for part in self.val_known), strict=True)
        best = torch.cat([self.module.scores(*part).argmax(dim=2) for part in parts])
        right = (best == self.val_actions)[:, self.rows]
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }
