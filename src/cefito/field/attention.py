"""Attention under a mask, computed in the fastest way of the processor."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["as_computed", "attend", "mask_for", "prepared_mask"]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q Kᵀ / √d + mask) V.

    By PyTorch's kernel, except for bfloat16 on a CPU: there its backward pass takes about three
    times as long as plain matrix products, for which the CPU has instructions.
    """
    # query [B, heads, L, d], key and value [B, heads, M, d] → [B, heads, L, d]; mask of
    # `prepared_mask`, broadcastable to [B, heads, L, M]; None if every query may see every key
    if not _by_products(query.dtype, query.device):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    query, key, value = (part.contiguous() for part in (query, key, value))
    scores = (query * query.shape[-1] ** -0.5) @ key.mT  # [B, heads, L, M]
    if mask is not None:
        scores += mask
    mixed: Tensor = scores.softmax(dim=-1) @ value
    return mixed


def prepared_mask(mask: Tensor) -> Tensor:
    """Return a mask, True if a query may see a key, as `attend` takes it under autocast."""
    kind = mask.device.type
    if not torch.is_autocast_enabled(kind):
        return mask
    return mask_for(mask, torch.get_autocast_dtype(kind))


def mask_for(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask, True if a query may see a key, as `attend` takes it for a dtype."""
    if not _by_products(dtype, mask.device):
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def as_computed(x: Tensor) -> Tensor:
    """Cast to the autocast precision once, if several products would each cast it."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _by_products(dtype: torch.dtype, device: torch.device) -> bool:
    return dtype == torch.bfloat16 and device.type == "cpu"
