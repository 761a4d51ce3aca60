"""The layers of a block frozen for search, in one precision.

On an x86 processor products run by oneDNN on packed weights, GELU included. PyTorch's other kernels
use half the vector width of some processors, and GELU takes them as long as a product.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.layers import has_packed_product
from cefito.field.predictor import EPSILON, TransformerBlock, normalise
from cefito.runtime import capability

__all__ = ["FrozenBlock", "FrozenLinear"]

_TYPICAL = 1024  # rows of a product, for which weights are packed


class FrozenLinear:
    """A linear layer, whose output may pass a tanh-form GELU."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, *, dtype: torch.dtype, gelu: bool = False
    ) -> None:
        self._weight, self._dtype, self._gelu = weight, dtype, gelu
        self._bias = None if bias is None else bias.to(dtype)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy without the packed weights, which cannot be copied."""
        return _linear, (self._weight, self._bias, self._dtype, self._gelu)

    def __call__(self, x: Tensor) -> Tensor:
        """[…, in] → […, out]."""
        if self._packed is None:
            x = F.linear(x, self._cast, self._bias)
            return F.gelu(x, approximate="tanh") if self._gelu else x
        name, form = ("gelu", "tanh") if self._gelu else ("none", "")
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, name, [], form)  # type: ignore[no-any-return]

    @cached_property
    def _cast(self) -> Tensor:
        return self._weight.to(self._dtype)

    @cached_property
    def _packed(self) -> Tensor | None:
        """The weight in oneDNN's layout; None where it has no fast product."""
        if not has_packed_product(self._weight.device):
            return None
        if self._dtype != torch.float32 and not (
            capability(self._weight.device) != "none"
            and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        ):
            return None
        return torch.ops.mkldnn._reorder_linear_weight(self._weight.to(self._dtype), _TYPICAL)  # type: ignore[no-any-return]


def _linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, gelu: bool) -> FrozenLinear:
    return FrozenLinear(weight, bias, dtype=dtype, gelu=gelu)


class FrozenBlock:
    """A transformer block: its projections, and the branch after attention."""

    def __init__(self, block: TransformerBlock, dtype: torch.dtype) -> None:
        self._dtype, self.split = dtype, block.attn.split
        weight, bias = block.attn.qkv.weight.detach(), block.attn.qkv.bias.detach()
        width = weight.shape[1]
        self._qkv = FrozenLinear(weight, bias, dtype=dtype)
        self._query = FrozenLinear(weight[:width], bias[:width], dtype=dtype)
        self._key_value = FrozenLinear(weight[width:], bias[width:], dtype=dtype)
        self._proj, self._fc1, self._fc2 = (
            FrozenLinear(layer.weight.detach(), layer.bias.detach(), dtype=dtype, gelu=gelu)
            for layer, gelu in (
                (block.attn.proj, False),
                (block.mlp.fc1, True),
                (block.mlp.fc2, False),
            )
        )

    def normalised(self, x: Tensor) -> Tensor:
        """Apply parameter-free layer norm in the precision of the tokens (sums in float32)."""
        if self._dtype == torch.float32:
            return normalise(x)
        return F.layer_norm(x, x.shape[-1:], eps=EPSILON)

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of tokens […, D]."""
        query, key, value = self._qkv(self.normalised(x)).chunk(3, dim=-1)
        return query, key, value

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values alone."""
        key, value = self._key_value(self.normalised(x)).chunk(2, dim=-1)
        return key, value

    def queries(self, x: Tensor) -> Tensor:
        """Return queries alone."""
        return self._query(self.normalised(x))

    def after(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the branches to tokens, given what their attention mixed, both […, D]."""
        # x + W_o attention(LN(x)), then x + MLP(LN(x))
        x = self._proj(mixed).add_(x)
        return self._fc2(self._fc1(self.normalised(x))).add_(x)
