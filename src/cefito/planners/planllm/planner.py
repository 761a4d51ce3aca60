"""PlanLLM-style planning (after Yang et al., AAAI 2025), without its language models.

The published encoder sees the true states between the steps; `LeakyPlanner` alone keeps that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Abilities, Queries
from cefito.planners.planllm.method import LEAKY
from cefito.planners.planllm.network import PlanLlmNetwork
from cefito.planners.planllm.settings import PlanLlmConfig
from cefito.planners.schema.loss import SchemaLoss
from cefito.planners.schema.network import Encoded
from cefito.planners.schema.planner import SchemaPlanner
from cefito.runtime import Processes

__all__ = ["LeakyLoss", "LeakyPlanner", "PlanLlmLoss", "PlanLlmPlanner"]


class PlanLlmLoss(SchemaLoss):
    """SCHEMA's errors with a focal one of the actions.

    Cross-entropy times (1 − p)^γ, where p is the probability of the true action; no gradient flows
    through that factor. The published losses on text are left out: they train the text branch.
    """

    @override
    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        errors = F.cross_entropy(logits, actions, reduction="none")
        gamma = self.config.focus
        return errors * (1 - torch.exp(-errors.detach())).clamp_min(0) ** gamma if gamma else errors


@dataclass(frozen=True, eq=False, repr=False)
class PlanLlmPlanner(SchemaPlanner):
    """Plans as SCHEMA does, by a network with additions."""

    method: ClassVar[str] = "PlanLLM-style"
    departures: ClassVar[tuple[str, ...]] = ("no BERT",)
    title = "PlanLLM network"
    part = "planllm"
    section = "planllm"
    stream = 12
    build = PlanLlmNetwork
    loss: ClassVar[Any] = PlanLlmLoss
    config: PlanLlmConfig


class LeakyLoss(PlanLlmLoss):
    """The same errors of a network that sees the states between, if windows have them.

    Noise changes these observations as it does the two others; they are never swapped.
    """

    def __init__(
        self,
        network: PlanLlmNetwork,
        train: Windows,
        val: Windows,
        text: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(network, train, val, text)
        self.between, self.val_between = (
            None if windows.between is None else self.placed(windows.between)[0]
            for windows in (train, self.val_windows)
        )

    @override
    def encoded(self, rows: Tensor, generator: torch.Generator, group: Processes) -> Encoded:
        if self.between is None:
            return super().encoded(rows, generator, group)
        initial, goal = self.observations.draw(rows, generator)
        between, noise = self.between[rows], self.config.training.augmentation.noise
        if noise:
            drawn = torch.randn(between.shape, generator=generator, device=between.device)
            between = between + noise * self.observations.deviation * drawn
        whole = torch.cat([initial[:, None], between, goal[:, None]], dim=1)  # [B, T + 1, E]
        encoded: Encoded = self.module.exchanged(group.share(whole), generator)
        return encoded

    @override
    def encoded_val(self, part: slice) -> Encoded:
        if self.val_between is None:
            return super().encoded_val(part)
        initial, goal, _ = self.val
        seen = [initial[part, None], self.val_between[part], goal[part, None]]
        encoded: Encoded = self.module.exchanged(torch.cat(seen, dim=1), None)
        return encoded


@dataclass(frozen=True, eq=False, repr=False)
class LeakyPlanner(PlanLlmPlanner):
    """An oracle that shows the effect of the published leak: it sees the true states between steps.

    Without them it sees the two observations alone, and plans worse than a planner that was trained
    so.
    """

    abilities: ClassVar[Abilities] = LEAKY
    departures: ClassVar[tuple[str, ...]] = ("no BERT", "sees the states between")
    title = "leaky PlanLLM network"
    part = "planllm-leaky"
    loss = LeakyLoss

    @override
    def encoded(self, queries: Queries) -> Encoded:
        if queries.between is None:
            return super().encoded(queries)
        initial, between, goal = self.on_device(queries.initial, queries.between, queries.goal)
        whole = torch.cat([initial[:, None], between, goal[:, None]], dim=1)  # [N, T + 1, E]
        return self.network.exchanged(whole, None)
