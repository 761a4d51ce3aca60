"""What PDPP is trained for: restoring the actions of noised plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.predictor import Dropout
from cefito.planners.pdpp.network import BLOCK, PdppNetwork
from cefito.planners.pdpp.settings import PdppConfig
from cefito.training.augmentation import Observations
from cefito.training.distributed import Processes
from cefito.training.trainer import Term

__all__ = ["PdppLoss"]


class PdppLoss:
    """Squared error of the restored actions at random times, summed over a plan.

    The first and the last action weigh more. The error is averaged over a batch, where it was
    published as summed: AdamW's steps do not depend on the factor.

    Args:
        network: The network to train.
        train: Training windows, whose true tasks are given.
        val: Validation windows.
        tasks: The tasks that validation windows are planned for [N], as predicted when planning.
        config: Weights, changes of the observations, size of the sample of validation windows.
    """

    def __init__(
        self,
        *,
        network: PdppNetwork,
        train: Windows,
        val: Windows,
        tasks: NDArray[np.int64],
        config: PdppConfig,
    ) -> None:
        self.module, self.config = network, config
        device = network.mean.device
        self.observations = Observations(train, config.training.augmentation, device)
        self.actions = torch.from_numpy(train.actions).to(device)
        self.tasks = torch.from_numpy(train.tasks).to(device)
        self.weights = torch.ones(train.horizon, device=device)
        self.weights[[0, -1]] = config.ends
        sample = replace(val, tasks=tasks).sample(config.training.stopping.windows or None, seed=0)
        self.val = tuple(
            torch.from_numpy(part).to(device)
            for part in (sample.tasks, sample.initial, sample.goal, sample.actions)
        )

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
        tasks, initial, goal, times, clean, noise = (
            group.share(part) for part in (self.tasks[rows], initial, goal, times, clean, noise)
        )
        dropout = Dropout(self.config.dropout, generator) if self.config.dropout else None
        project = self.module.projection(tasks, initial, goal, dropout=dropout)
        matrix = self.module.diffusion.noised(project.filled(clean), project.filled(noise), times)
        # of the projected prediction all but the actions has no error
        restored = self.module(project(matrix), times)[..., project.actions]
        with torch.autocast(clean.device.type, enabled=False):
            errors = (restored.float() - clean).square().sum(dim=2) @ self.weights
        count = torch.tensor(len(errors), device=errors.device)
        return {"squared_error": Term(1.0, errors.sum(), count)}

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Success rate and mean accuracy of the plans of the validation windows, in per cent.

        Every process does the same.
        """
        tasks, initial, goal, actions = self.val
        parts = zip(*(part.split(BLOCK) for part in (tasks, initial, goal)), strict=True)
        right = torch.cat([self.module.scores(*part).argmax(dim=2) for part in parts]) == actions
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }
