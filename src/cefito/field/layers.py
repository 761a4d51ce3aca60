"""Linear layers and MLPs for training, whose backward pass leaves out rows without a gradient.

The contrastive loss has no gradient for negatives that are far enough, so that in a trained field
most leaves of the trees of prefixes need no backward pass. In float32 on an x86 processor products
with weights run by oneDNN, whose kernels use the full vector width of all processors.
"""

from __future__ import annotations

import math
import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

X86 = platform.machine().lower() in ("x86_64", "amd64")
_PACKED = 128  # rows of a product of packed weights are a multiple of this
_MOST = 0.9  # share of rows with a gradient, above which none are left out


def linear(layer: nn.Linear, x: Tensor, outputs: slice = slice(None)) -> Tensor:
    """Apply a part of a layer's outputs to […, in]: x Wᵀ + b, in the precision of autocast.

    Args:
        layer: Linear layer.
        x: Inputs […, in].
        outputs: Which of its outputs.
    """
    return _Linear.apply(x, layer.weight[outputs], layer.bias[outputs])  # type: ignore[no-any-return, no-untyped-call]


def mlp(first: nn.Linear, second: nn.Linear, x: Tensor) -> Tensor:
    """Return W₂ gelu(W₁ x + b₁) + b₂ of […, D], with the tanh form of GELU.

    Args:
        first: Layer W₁, b₁.
        second: Layer W₂, b₂.
        x: Inputs […, D].
    """
    return _Mlp.apply(x, first.weight, first.bias, second.weight, second.bias)  # type: ignore[no-any-return, no-untyped-call]


def has_packed_product(device: torch.device) -> bool:
    """Whether oneDNN multiplies packed weights in float32 on a device."""
    return X86 and device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Dropout:
    """Inverted dropout by an explicit generator, so that a resumed run repeats it."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        self.rate, self.generator = rate, generator

    def __call__(self, x: Tensor) -> Tensor:
        """Zero a share `rate` of the entries and scale the others up."""
        if self.rate == 0:
            return x
        drawn = torch.rand(x.shape, generator=self.generator, device=x.device)
        return x * drawn.ge_(self.rate).div_(1 - self.rate).to(x.dtype)


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.dtype, dtype = x.dtype, product_dtype(x)
        rows, weight = x.reshape(-1, x.shape[-1]).to(dtype), weight.to(dtype)
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, bias.to(dtype)).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        shape = (*slope.shape[:-1], weight.shape[1])
        live, (slope, rows) = _live(slope.reshape(-1, slope.shape[-1]), rows)
        # y = x Wᵀ + b: dW = dyᵀ x, db = Σ dy, dx = dy W
        before = None
        if ctx.needs_input_grad[0]:
            before = _spread(product(slope, weight.T), live, shape).to(ctx.dtype)
        return before, *_of_weights(slope, rows)


class _Mlp(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, weight2: Tensor, bias2: Tensor
    ) -> Tensor:
        ctx.dtype, dtype = x.dtype, product_dtype(x)
        rows = x.reshape(-1, x.shape[-1]).to(dtype)
        weight, weight2 = weight.to(dtype), weight2.to(dtype)
        hidden = product(rows, weight, bias.to(dtype))
        after = F.gelu(hidden, approximate="tanh")
        ctx.save_for_backward(rows, hidden, after, weight, weight2)
        return product(after, weight2, bias2.to(dtype)).view(*x.shape[:-1], len(weight2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        *saved, weight, weight2 = ctx.saved_tensors
        shape = (*slope.shape[:-1], weight.shape[1])
        live, (slope, rows, hidden, after) = _live(slope.reshape(-1, slope.shape[-1]), *saved)
        # z = W₁ x + b₁, y = W₂ gelu(z) + b₂: dz = gelu'(z) ∘ (dy W₂), as in a linear layer above
        second = _of_weights(slope, after)
        inner = torch.ops.aten.gelu_backward(product(slope, weight2.T), hidden, approximate="tanh")
        before = _spread(product(inner, weight.T), live, shape).to(ctx.dtype)
        return before, *_of_weights(inner, rows), *second


def gathered(rows: Tensor, index: Tensor) -> Tensor:
    """Return rows [n, D] at indices […]; their gradients are added up in float32."""
    return _Gathered.apply(rows, index)  # type: ignore[no-any-return, no-untyped-call]


class _Gathered(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.dtype, ctx.count = rows.dtype, len(rows)
        return F.embedding(index, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        total = torch.ops.aten.embedding_dense_backward(
            slope.float(), index, ctx.count, padding_idx=-1, scale_grad_by_freq=False
        )
        return total.to(ctx.dtype), None


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which products of a tensor are computed: that of autocast, if enabled."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b of rows [n, in] and a weight [out, in].

    Args:
        x: Rows [n, in].
        weight: Weights [out, in].
        bias: b [out]; None for none.
    """
    with torch.autocast(x.device.type, enabled=False):
        if x.dtype != torch.float32 or len(x) < _PACKED or not has_packed_product(x.device):
            return F.linear(x, weight, bias)
        # a product is compiled for each number of rows, which takes longer than some more rows
        more = -len(x) % _PACKED
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), len(x) + more)
        padded = F.pad(x, (0, 0, 0, more)) if more else x
        rows_of_product: Tensor = torch.ops.mkldnn._linear_pointwise(
            padded, packed, bias, "none", [], ""
        )
        return rows_of_product[: len(x)]


def _of_weights(slope: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of weight and bias, in float32."""
    return (slope.T @ rows).float(), slope.sum(dim=0, dtype=torch.float32)


def _live(slope: Tensor, *saved: Tensor) -> tuple[Tensor | None, tuple[Tensor, ...]]:
    """Return the rows to go back through, None if all; and these of the tensors, [n, …] each.

    Others are added to the rows with a gradient, up to one of few numbers of rows: a product is
    compiled, and kept in memory, for each number.
    """
    parts = (slope, *saved)
    if slope.device.type != "cpu":
        return None, parts  # counting would wait for the device
    mask = slope.any(dim=1)
    count = int(mask.sum())
    more = -count % _PACKED if len(slope) > _PACKED else 0
    if count + more >= _MOST * len(slope):
        return None, parts
    if more:
        mask[(~mask).nonzero()[:more, 0]] = True
    live = mask.nonzero().squeeze(1)
    return live, tuple(tensor[live] for tensor in parts)


def _spread(values: Tensor, live: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Place the gradients of rows [l, D] among all rows of a shape […, D], the others zero."""
    if live is not None:
        total = math.prod(shape[:-1])
        values = values.new_zeros(total, shape[-1]).index_copy_(0, live, values)
    return values.view(shape)
