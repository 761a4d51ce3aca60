"""Packing the candidates of a query into the tree of their prefixes, for training.

With causal attention, sequences that begin alike share every activation of the shared part. The M
candidates of a query are sorted; each distinct prefix becomes one node of two tokens (its last
action and the state after it), laid out level by level:

    [x_s | actions of level 1 | states of level 1 | … | actions of level T | states of level T (the
    goals)]

A token sees x_s, its ancestors and itself. Levels are padded to the widest query of the batch; no
token sees the padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["PrefixTree", "prefix_counts"]


def prefix_counts(actions: Tensor, *, action_count: int) -> Tensor:
    """Return the number of distinct prefixes of sets of candidates [B, M, T], as [B]."""
    # K^T must stay below 2^63
    code = torch.zeros_like(actions[..., 0])
    total = torch.zeros_like(code[:, 0])
    for level in range(actions.shape[2]):
        code = code * action_count + actions[..., level]
        ordered = code.sort(dim=1).values
        total += 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(dim=1)
    return total


@dataclass(frozen=True)
class PrefixTree:
    """The prefixes of B sets of M candidates."""

    order: Tensor  # candidate at each sorted place [B, M]
    # for each level the action of each node, [B, N_t]; padding repeats action 0
    actions: tuple[Tensor, ...]
    # for each level t the node numbers on the levels 1..t of each node's path, [B, N_t, t]
    ancestors: tuple[Tensor, ...]

    @classmethod
    def build(cls, actions: Tensor, *, action_count: int) -> PrefixTree:
        """Build the tree from action ids [B, M, T], candidates of a row distinct; K^T < 2^63."""
        batch, size, horizon = actions.shape
        # code = Σ_t a_t K^(T − t), [B, M]: sorting by it makes sequences of one prefix adjacent
        code = torch.zeros(batch, size, dtype=torch.int64, device=actions.device)
        for level in range(horizon):
            code = code * action_count + actions[..., level]
        order = code.argsort(dim=1, stable=True)
        ordered = actions.gather(1, order[..., None].expand_as(actions))
        new = torch.zeros(batch, size, dtype=torch.bool, device=actions.device)
        new[:, 0] = True
        ranks: list[Tensor] = []  # node number on each level, for each sorted candidate
        node_actions, ancestors = [], []
        for level in range(horizon):
            if level == horizon - 1:
                # one leaf for each candidate, so that goals are in sorted order
                new = torch.ones_like(new)
            else:
                new = new.clone()
                new[:, 1:] |= ordered[:, 1:, level] != ordered[:, :-1, level]
            rank = new.cumsum(dim=1) - 1
            ranks.append(rank)
            width = size if level == horizon - 1 or not batch else int(rank[:, -1].max()) + 1
            # any candidate below a node has its path; scatter keeps one of them, [B, N_t]
            member = torch.zeros(batch, width, dtype=torch.int64, device=actions.device)
            member.scatter_(1, rank, torch.arange(size, device=actions.device).expand(batch, -1))
            node_actions.append(ordered[..., level].gather(1, member))
            ancestors.append(torch.stack([above.gather(1, member) for above in ranks], dim=-1))
        return cls(order=order, actions=tuple(node_actions), ancestors=tuple(ancestors))

    @property
    def length(self) -> int:
        """L, the tokens of one packed row."""
        return 1 + 2 * sum(level.shape[1] for level in self.actions)

    def pack(self, root: Tensor, table: Tensor, mask_token: Tensor, position: Tensor) -> Tensor:
        """Return the packed tokens."""
        # root [B, D] without position, tokens of actions [K, D], position [2T + 1, D] → [B, L, D]
        parts = [(root + position[0])[:, None]]
        for level, actions in enumerate(self.actions):
            parts.append(F.embedding(actions, table + position[2 * level + 1]))
            parts.append((mask_token + position[2 * level + 2]).expand(*actions.shape, -1))
        return torch.cat(parts, dim=1)

    def mask(self) -> Tensor:
        """Return which token sees which, [B, 1, L, L]."""
        batch, device = len(self.order), self.order.device
        widths = [level.shape[1] for level in self.actions]
        starts = [1]
        for width in widths:
            starts.append(starts[-1] + 2 * width)
        mask = torch.zeros(batch, self.length, self.length, dtype=torch.bool, device=device)
        mask[:, :, 0] = True
        for level, width in enumerate(widths):
            path = self.ancestors[level]  # [B, width, level + 1], the last being the node itself
            above = [starts[upper] + path[..., upper] for upper in range(level)]
            above += [starts[upper] + widths[upper] + path[..., upper] for upper in range(level)]
            action = starts[level] + torch.arange(width, device=device).expand(batch, -1)
            for first, seen in (
                (starts[level], [*above, action]),
                (starts[level] + width, [*above, action, action + width]),
            ):
                mask[:, first : first + width].scatter_(2, torch.stack(seen, dim=-1), True)
        return mask[:, None]

    def unsort(self, leaves: Tensor) -> Tensor:
        """Return leaf values [B, M] in the order of the candidates."""
        return leaves.gather(1, self.order.argsort(dim=1))
