"""Prefixes of any length that are kept, and the sequences below them evaluated in one pass.

All new prefixes of a call, whatever their lengths, go through the network together with the
sequences that they lead to: every weight matrix is read once. In each block the keys and values of
all new tokens are computed first, then each token attends to those on its own path.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.children import Children, Prefixes


class PrefixCache:
    """Prefixes of Q queries: number q < Q is the empty one of query q, others follow as added.

    Besides the row of its query's initial observation, a prefix has two rows of keys and values for
    each action: of the action, and of the state after it. Prefixes share the rows of common parts.
    """

    def __init__(self, children: Children, roots: Prefixes, horizon: int) -> None:
        self._children, self._horizon, self._empty = children, horizon, len(roots)
        self.target, self.offsets = roots.target, roots.offsets  # of each query
        # keys and values of each block, [rows, D]; there may be more rows than are used
        self._keys = [key[:, 0].contiguous() for key in roots.keys]
        self._values = [value[:, 0].contiguous() for value in roots.values]
        # rows of each prefix, from its query's on, padded by zeros: [prefixes, 2T − 1]
        self._paths = roots.query.new_zeros(self._empty, 2 * horizon - 1)
        self._paths[:, 0] = roots.query

    @property
    def kept_bytes(self) -> int:
        """Memory of the keys and values."""
        return sum(part.numel() * part.element_size() for part in (*self._keys, *self._values))

    def clear(self) -> None:
        """Keep the empty prefixes alone."""
        self._paths = self._paths[: self._empty]
        self._keys = [key[: self._empty].clone() for key in self._keys]
        self._values = [value[: self._empty].clone() for value in self._values]

    def goals(self, levels: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Add prefixes, and end sequences.

        `levels` has for each number of actions, 1 to T, the prefixes to continue, by number, and
        the actions that continue them, both [n]. Sequences of T actions are not kept.

        Returns:
            The tokens of their goals [m, 1, D], behind them padding, and their queries [m].
        """
        # In each level a path ends by its own two rows; sequences have rows until the next call.
        first, paths = self._rows, []  # the latter of each level [n, 2 depth + 3]
        for depth, (parents, _) in enumerate(levels):
            own = self._rows + torch.arange(2 * len(parents), device=parents.device).view(-1, 2)
            paths.append(torch.cat([self._paths[parents, : 2 * depth + 1], own], dim=1))
            if depth < self._horizon - 1:
                more = self._paths.shape[1] - paths[-1].shape[1]
                self._paths = torch.cat([self._paths, F.pad(paths[-1], (0, more))])
        # Tokens of sequences come first, then those of prefixes of one action, two actions, …
        order = [self._horizon - 1, *range(self._horizon - 1)]
        sizes = [len(paths[depth]) for depth in order]
        leaves, total = sizes[0], sum(sizes)
        groups = [
            (slice(end - size, end), paths[depth])
            for depth, size, end in zip(order, sizes, accumulate(sizes), strict=True)
            if size
        ]
        inner, ends = slice(first, self._rows), slice(self._rows, self._rows + 2 * leaves)
        self._keys, self._values = (
            [_with_room(part, ends.stop) for part in parts] for parts in (self._keys, self._values)
        )

        def attention(index: int, query: Tensor | None, key: Tensor, value: Tensor) -> Tensor:
            # keys and values of all pairs [N, 2, D]; queries too, in the last block [m, 1, D]
            assert query is not None  # since there are goals
            keys, values = self._keys[index], self._values[index]
            for kept, new in ((keys, key), (values, value)):
                kept[ends] = new[:leaves].flatten(0, 1)
                kept[inner] = new[leaves:total].flatten(0, 1)
            mixed = torch.zeros_like(query)  # padding stays zero
            for own, rows in groups if query.shape[1] == 2 else groups[:1]:
                mixed[own] = self._children.attend_each(query[own], keys, values, rows)
            return mixed

        goals = self._children.of_nodes(
            torch.cat([torch.full_like(levels[depth][1], depth) for depth in order]),
            torch.cat([levels[depth][1] for depth in order]),
            attention,
            leaves=sizes[0],
        )
        return goals, paths[-1][:, 0]

    @property
    def _rows(self) -> int:
        """Number of rows in use."""
        return 2 * len(self._paths) - self._empty


def _with_room(rows: Tensor, count: int) -> Tensor:
    """Return rows [n, D] with room for `count`, doubled at least so that they are seldom copied."""
    if count <= len(rows):
        return rows
    larger = rows.new_empty(max(count, 2 * len(rows)), rows.shape[1])
    larger[: len(rows)] = rows
    return larger
