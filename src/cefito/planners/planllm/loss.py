"""What PlanLLM-style planning is trained for: SCHEMA's errors, that of the actions focal."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.planners.planllm.network import PlanLlmNetwork
from cefito.planners.schema.loss import SchemaLoss

__all__ = ["PlanLlmLoss"]


class PlanLlmLoss(SchemaLoss):
    """SCHEMA's errors with a focal one of the actions.

    Cross-entropy times (1 − p)^γ, where p is the probability of the true action; no gradient flows
    through that factor. The published losses on text are left out: they shape what reads the text.
    """

    module: PlanLlmNetwork

    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        """The focal error of each action [n] by its logits [n, K]."""
        errors = F.cross_entropy(logits, actions, reduction="none")
        gamma = self.module.config.focus
        return errors * (1 - torch.exp(-errors.detach())).clamp_min(0) ** gamma if gamma else errors
