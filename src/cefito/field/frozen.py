"""The layers of a block frozen for search, in float32.

On an x86 processor products run by oneDNN on packed weights, GELU included. PyTorch's other kernels
use half the vector width of some processors, and GELU takes them as long as a product.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.layers import has_packed_product
from cefito.field.predictor import TransformerBlock, normalise

_TYPICAL = 1024  # rows of a product, for which weights are packed


class FrozenLinear:
    """A linear layer, whose output may pass a tanh-form GELU."""

    def __init__(self, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> None:
        self._weight, self._bias, self._gelu = weight, bias, gelu

    def __reduce__(self) -> tuple[object, ...]:
        """Copy without the packed weights, which cannot be copied."""
        return FrozenLinear, (self._weight, self._bias, self._gelu)

    def __call__(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        if self._packed is None:
            x = F.linear(x, self._weight, self._bias)
            return F.gelu(x, approximate="tanh") if self._gelu else x
        name, form = ("gelu", "tanh") if self._gelu else ("none", "")
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, name, [], form)  # type: ignore[no-any-return]

    @cached_property
    def _packed(self) -> Tensor | None:
        """The weight in oneDNN's layout; None where it has no fast product."""
        if not has_packed_product(self._weight.device):
            return None
        return torch.ops.mkldnn._reorder_linear_weight(self._weight, _TYPICAL)  # type: ignore[no-any-return]


class FrozenBlock:
    """A transformer block: its projections, and the branch after attention."""

    def __init__(self, block: TransformerBlock) -> None:
        self.split = block.attn.split
        weight, bias = block.attn.qkv.weight.detach(), block.attn.qkv.bias.detach()
        width = weight.shape[1]
        self._qkv = FrozenLinear(weight, bias)
        self._query = FrozenLinear(weight[:width], bias[:width])
        self._key_value = FrozenLinear(weight[width:], bias[width:])
        self._proj, self._fc1, self._fc2 = (
            FrozenLinear(layer.weight.detach(), layer.bias.detach(), gelu)
            for layer, gelu in (
                (block.attn.proj, False),
                (block.mlp.fc1, True),
                (block.mlp.fc2, False),
            )
        )

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of tokens […, D]."""
        query, key, value = self._qkv(normalise(x)).chunk(3, dim=-1)
        return query, key, value

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values alone."""
        key, value = self._key_value(normalise(x)).chunk(2, dim=-1)
        return key, value

    def queries(self, x: Tensor) -> Tensor:
        """Return queries alone."""
        return self._query(normalise(x))

    def after(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the branches to tokens, given what their attention mixed, both […, D]."""
        # x + W_o attention(LN(x)), then x + MLP(LN(x))
        x = self._proj(mixed).add_(x)
        return self._fc2(self._fc1(normalise(x))).add_(x)
