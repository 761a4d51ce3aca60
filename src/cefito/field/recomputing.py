"""Activations that are computed again in the backward pass instead of being kept for it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cefito.field.predictor import Dropout

__all__ = ["recomputed"]


def recomputed(
    function: Callable[..., Tensor], *inputs: Tensor, dropout: Dropout | None = None
) -> Tensor:
    """A function's value, of whose activations none is kept for the backward pass.

    Args:
        function: Takes the inputs and, by name, the dropout; gives the same whenever it is called.
        inputs: What gradients go through, and all else that it needs.
        dropout: Zeroes the same entries again; the draws that follow are not shifted.
    """
    generator = dropout.generator if dropout is not None and dropout.rate else None
    begun = None if generator is None else generator.get_state()
    called = False

    def call(*inputs: Tensor) -> Tensor:
        nonlocal called
        if not called or generator is None or begun is None:
            called = True
            return function(*inputs, dropout=dropout)
        now = generator.get_state()
        generator.set_state(begun)
        try:
            return function(*inputs, dropout=dropout)
        finally:
            generator.set_state(now)

    value: Tensor = checkpoint(call, *inputs, use_reentrant=False, preserve_rng_state=False)
    return value
