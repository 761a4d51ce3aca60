"""A layer of P3IV's decoder: attention over the tokens, then over memory."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Attention", "DecoderLayer"]

_Drop = Callable[[Tensor], Tensor]


class Attention(nn.Module):
    """Multi-head attention.

    Args:
        width: D.
        heads: H, a divisor of D.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, sources: Tensor, drop: _Drop) -> Tensor:
        """[…, L, D] attending to […, S, D] → […, L, D].

        Over a single source all weights are one: what comes out does not depend on x.
        """
        queries = self._split(self.query(x))
        keys, values = self._split(self.key(sources)), self._split(self.value(sources))
        weights = (queries @ keys.mT / queries.shape[-1] ** 0.5).softmax(dim=-1)
        mixed = drop(weights) @ values
        return self.out(mixed.transpose(-3, -2).flatten(-2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        """[…, L, D] → […, H, L, D / H]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """A post-norm layer: attention over the tokens, over memory, and a ReLU MLP.

    With one slot of memory the second step adds a learned constant, as the released code does.

    Args:
        width: D.
        heads: Attention heads.
        hidden: Width of the MLP.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.tokens = Attention(width, heads)
        self.memory = Attention(width, heads)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, drop: _Drop) -> Tensor:
        """Apply the layer.

        Args:
            x: Tokens [B, L, D].
            memory: Slots [M, D], the same for the whole batch.
            drop: Zeroes parts of attention weights, hidden units and branches.

        Returns:
            Tokens [B, L, D].
        """
        x = self.norms[0](x + drop(self.tokens(x, x, drop)))
        recalled = self.memory(x.flatten(0, 1), memory, drop)  # one batch: memory is shared
        x = self.norms[1](x + drop(recalled.view_as(x)))
        mixed = self.fc2(drop(F.relu(self.fc1(x))))
        return self.norms[2](x + drop(mixed))  # type: ignore[no-any-return]
