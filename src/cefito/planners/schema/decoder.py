"""A decoder whose queries all attend to one memory: the descriptions of all actions.

The memory is the same for all queries, so its keys and values are projected once.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.predictor import attend
from cefito.planners.shared.layers import Drop, keep

__all__ = ["Keys", "SharedMemoryDecoder"]

Keys = tuple[tuple[Tensor, Tensor], ...]
"""Of each layer the keys and the values of a memory, each [1, heads, M, D / heads]."""


class SharedMemoryDecoder(nn.Module):
    """Post-norm layers of self-attention, attention to the memory, and a feed-forward layer.

    The output of an attention is normalised before it is added, and the sum again. Attention is not
    causal, and its weights are not dropped. There is no norm after the last layer.
    """

    def __init__(
        self, *, width: int, heads: int, hidden: int, layers: int, memory: bool = True
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, heads, hidden, memory) for _ in range(layers))

    def keys(self, memory: Tensor | None) -> Keys:
        """Keys and values of a memory [M, D] for each layer; none without a memory."""
        if memory is None:
            return ()
        crossings: list[_Attention] = [layer.crossing for layer in self.layers]  # type: ignore[misc]
        return tuple(crossing.keys(memory[None]) for crossing in crossings)

    def forward(self, tokens: Tensor, keys: Keys, drop: Drop = keep) -> Tensor:
        """Decode tokens, [B, L, D] → [B, L, D], over the `keys` of a memory."""
        for place, layer in enumerate(self.layers):
            tokens = layer(tokens, keys[place] if keys else None, drop)
        return tokens


class _Attention(nn.Module):
    """Multi-head attention with a norm after it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, heads, M, D / heads] of vectors [B, M, D]."""
        return self._split(self.key(x)), self._split(self.value(x))

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor], drop: Drop) -> Tensor:
        """[B, L, D] → [B, L, D]; keys of B queries each, or of one for all."""
        query = self._split(self.query(x))
        shared = len(keys[0]) == 1 < len(x)
        if shared:  # all tokens as those of one query
            query = query.transpose(0, 1).flatten(1, 2)[None]
        mixed = attend(query, *keys)
        if shared:
            mixed = mixed[0].unflatten(1, x.shape[:2]).transpose(0, 1)
        return self.norm(drop(self.out(mixed.transpose(1, 2).flatten(2))))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, memory: bool) -> None:
        super().__init__()
        self.among = _Attention(width, heads)
        self.crossing = _Attention(width, heads) if memory else None
        self.norm_among = nn.LayerNorm(width)
        self.norm_crossing = nn.LayerNorm(width) if memory else None
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor] | None, drop: Drop) -> Tensor:
        x = self.norm_among(x + drop(self.among(x, self.among.keys(x), drop)))
        if self.crossing is not None and self.norm_crossing is not None and keys is not None:
            x = self.norm_crossing(x + drop(self.crossing(x, keys, drop)))
        return self.norm(x + drop(self.fc2(drop(F.gelu(self.fc1(x))))))  # type: ignore[no-any-return]
