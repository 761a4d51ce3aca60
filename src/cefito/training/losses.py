"""Contrastive losses as sums and counts: triplets with adaptive margins, or a softmax."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.training.settings import MarginConfig

__all__ = ["adaptive_margins", "softmax_contrastive", "triplet"]


def adaptive_margins(positives: Tensor, negatives: Tensor, config: MarginConfig) -> Tensor:
    r"""Return the margin of each triplet, larger the more actions the positive lacks.

    τ = low + (high − low) · severity, severity = |A⁻ \ A⁺| / |A⁻| over the sets of distinct actions
    (paper, Eq. 3). The released CrossTask T = 3 preset mixes in the fraction of differing
    positions, weighted by `config.order`.
    """
    # positives [B, T], negatives [B, N, T] → margins [B, N]
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
    """Return the margin triplet loss max(d⁺ − d⁻ + τ, 0) (paper, Eq. 2)."""
    # energies of positives [B] and negatives [B, N], margins [B, N] → sum of the losses, divisor:
    # the number of all triplets (paper) or of the "violating" ones (released code)
    # max(d⁺ − d⁻ + τ, 0), [B, N]
    losses = (positive[:, None] - negative + margins).clamp_min(0)
    if reduction == "violating":
        return losses.sum(), (losses > 0).sum()
    return losses.sum(), torch.tensor(losses.numel(), device=losses.device)


def softmax_contrastive(
    positive: Tensor, negative: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of the positive among all candidates (logits −E / temperature).

    With negatives drawn uniformly, −energy / temperature then estimates log p(actions |
    observations) up to a constant.
    """
    # energies of positives [B] and negatives [B, N] → sum of the losses, number of rows
    # −energy / temperature, the positive first, [B, 1 + N]
    logits = -torch.cat([positive[:, None], negative], dim=1) / temperature
    target = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    count = torch.tensor(len(logits), device=logits.device)
    return F.cross_entropy(logits, target, reduction="sum"), count
