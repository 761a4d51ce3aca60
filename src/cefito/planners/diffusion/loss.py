"""The loss of diffusion networks: restoring the actions of noised plans."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.field.layers import Dropout
from cefito.planners.diffusion.network import BLOCK, DiffusionNetwork
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.runtime import Processes
from cefito.training.trainer import Term


class DiffusionLoss(PlanLoss):
    """Squared error of the restored actions at random times, each row weighted, summed over a plan.

    The error is averaged over a batch, where it was published as summed: AdamW's steps do not
    depend on the factor. `known` [N, ...] is the source of the given blocks of training windows,
    such as the true tasks; `val_known` the source when planning, such as predicted tasks.
    """

    def __init__(
        self,
        network: DiffusionNetwork,
        train: Windows,
        val: Windows,
        known: NDArray[np.int64] | None = None,
        val_known: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(network, train, val)
        blocks = len(network.layout.before)
        self.known = () if known is None else self.placed(known) * blocks
        self.val_known = () if val_known is None else self.placed(val_known[self.chosen]) * blocks
        self.weights = network.row_weights().to(self.device)
        self.rows = network.layout.rows(self.device)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """The weighted squared error of a batch, drawn for the whole batch and shared out."""
        initial, goal = self.observations.draw(rows, generator)
        times = torch.randint(
            1, self.config.steps + 1, (len(rows),), generator=generator, device=rows.device
        )
        clean = F.one_hot(self.actions[rows], self.module.action_count).float()  # [B, T, K]
        noise = torch.randn(clean.shape, generator=generator, device=rows.device)
        *known, times, clean, noise = (
            group.share(part)
            for part in (*(part[rows] for part in self.known), initial, goal, times, clean, noise)
        )
        dropout = Dropout(self.config.dropout, generator) if self.config.dropout else None
        project = self.module.projection(*known, dropout=dropout)
        matrix = self.module.diffusion.noised(project.filled(clean), project.filled(noise), times)
        latents = self.module.latents(project, generator=generator)
        # only the actions of the projected prediction can be wrong
        restored = self.module(project(matrix), times, latents)[..., project.actions]
        with torch.autocast(clean.device.type, enabled=False):
            errors = project.open(restored.float() - clean).square().sum(dim=2) @ self.weights
        return {"squared_error": mean_term(1.0, errors)}

    @override
    def best_sequences(self) -> Tensor:
        parts = zip(*(part.split(BLOCK) for part in (*self.val_known, *self.val[:2])), strict=True)
        return torch.cat([self.module.scores(*part).argmax(dim=2) for part in parts])
