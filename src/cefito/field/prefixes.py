"""Packing the candidates of a query into the tree of their prefixes, for training.

With causal attention, sequences that begin alike share every activation of the shared part. The M
candidates of a query are sorted; each distinct prefix becomes one node of two tokens (its last
action and the state after it), laid out level by level:

    [x_s | actions of level 1 | states of level 1 | … | actions of level T | states of level T (the
    goals)]

A token sees x_s, its ancestors and itself. Levels are padded to the widest query of the batch; no
token sees the padding.

Where the next action of each prefix is read at a token of its own, that token is the second of its
node, and x_s is followed by the token of the first action (`PrefixTree.parents`):

    [x_s, slot of a_1 | states of level 1 | slots of a_2 | … | states of level T − 1 | slots of a_T]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.predictor import Predictor, prepared_mask


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


# the tokens of a level's nodes: each its own [B, N_t, D], all alike [D], or rows of a table [K, D]
# and their numbers [B, N_t]
Tokens: TypeAlias = "Tensor | tuple[Tensor, Tensor]"


@dataclass(frozen=True)
class PrefixTree:
    """The prefixes of B sets of M candidates."""

    order: Tensor  # candidate at each sorted place [B, M]
    # for each level the action of each node, [B, N_t]; padding repeats action 0
    actions: tuple[Tensor, ...]
    # for each level t the node numbers on the levels 1..t of each node's path, [B, N_t, t]
    ancestors: tuple[Tensor, ...]
    roots: int = 1  # R, number of tokens before level 1; each sees itself and the earlier ones

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

    def parents(self) -> PrefixTree:
        """Return the tree without its last level, the root having two tokens as every node."""
        return replace(self, actions=self.actions[:-1], ancestors=self.ancestors[:-1], roots=2)

    @property
    def widths(self) -> list[int]:
        """N_t, the nodes of each level."""
        return [level.shape[1] for level in self.actions]

    @property
    def starts(self) -> list[int]:
        """Place of each level's first token, and the length."""
        return list(accumulate((2 * width for width in self.widths), initial=self.roots))

    @property
    def length(self) -> int:
        """L, the tokens of one packed row."""
        return self.starts[-1]

    def pack(self, roots: Tensor, nodes: Iterable[tuple[Tokens, Tokens]]) -> tuple[Tensor, Tensor]:
        """Return the distinct tokens [n, D], and which of them each packed token is [B, L].

        `roots` [B, R, D]; `nodes` has for each level its first and second tokens. All tokens
        include their positions.
        """
        device, batch = self.order.device, len(self.order)
        rows, places = [roots.flatten(0, 1)], []
        count = batch * roots.shape[1]
        places.append(torch.arange(count, device=device).view(batch, roots.shape[1]))
        for level, tokens in zip(self.actions, nodes, strict=True):
            for token in tokens:
                if isinstance(token, tuple):
                    table, ids = token
                    used, place = ids.unique(return_inverse=True)
                    rows.append(F.embedding(used, table))
                elif token.ndim == 1:
                    rows.append(token[None])
                    place = torch.zeros_like(level)
                else:
                    rows.append(token.flatten(0, 1))
                    place = torch.arange(level.numel(), device=device).view_as(level)
                places.append(place + count)
                count += len(rows[-1])
        return torch.cat(rows), torch.cat(places, dim=1)

    def second_tokens(self) -> Tensor:
        """Return the places of all nodes' second tokens [S], the root's first if it has two."""
        places = [torch.arange(1, self.roots)]
        for start, width in zip(self.starts, self.widths, strict=False):
            places.append(torch.arange(start + width, start + 2 * width))
        return torch.cat(places).to(self.order.device)

    def paths(self) -> Tensor:
        """Return the nodes on each candidate's path [B, M, T], counted through all levels."""
        begin = torch.tensor([0, *accumulate(self.widths[:-1])], device=self.order.device)
        path = self.ancestors[-1] + begin
        return path.gather(1, self.order.argsort(dim=1)[..., None].expand_as(path))

    def mask(self) -> Tensor:
        """Return which token sees which, [B, 1, L, L]."""
        batch, device, roots = len(self.order), self.order.device, self.roots
        widths, starts = self.widths, self.starts
        mask = torch.zeros(batch, self.length, self.length, dtype=torch.bool, device=device)
        mask[:, :, :roots] = True
        mask[:, :roots, :roots] = mask[:, :roots, :roots].tril()
        for level, width in enumerate(widths):
            path = self.ancestors[level]  # [B, width, level + 1], the last being the node itself
            above = [starts[upper] + path[..., upper] for upper in range(level)]
            above += [starts[upper] + widths[upper] + path[..., upper] for upper in range(level)]
            first = starts[level] + torch.arange(width, device=device).expand(batch, -1)
            for begin, seen in (
                (starts[level], [*above, first]),
                (starts[level] + width, [*above, first, first + width]),
            ):
                mask[:, begin : begin + width].scatter_(2, torch.stack(seen, dim=-1), True)
        return mask[:, None]


def latents(
    predictor: Predictor, tree: PrefixTree, root: Tensor, table: Tensor, *, read: slice | Tensor
) -> Tensor:
    """Return the latents of pass 1 at the tokens `read`, [B, Q, D]; see `Predictor.latents`.

    Args:
        predictor: Predictor of the field.
        tree: Tree of the candidates.
        root: Tokens of the initial observations [B, D].
        table: Tokens of the actions [K, D].
        read: Places of the tokens that are computed.
    """
    place = predictor.pos_embed
    nodes = [
        ((table + place[2 * level + 1], actions), predictor.state_mask_token + place[2 * level + 2])
        for level, actions in enumerate(tree.actions)
    ]
    tokens = tree.pack((root + place[0])[:, None], nodes)
    return _blocks(predictor, tree, *tokens, read=read)


def reconstruct(
    predictor: Predictor, tree: PrefixTree, root: Tensor, states: Tensor, actions: Tensor
) -> Tensor:
    """Return −log p(a_t) of the candidates [B, M, T] given the states of all nodes [B, S, E].

    In this second pass (paper, Supp. A) actions hold the action-mask token, and the logits of a_t
    are read at the state after it: attention is causal, so that a_t itself would see neither that
    state nor the goal.

    Args:
        predictor: Predictor of the field.
        tree: Tree of the candidates.
        root: Tokens of the initial observations [B, D].
        states: States of all nodes [B, S, E].
        actions: Action ids of the candidates [B, M, T].
    """
    place = predictor.pos_embed
    levels = predictor.state_token(states).split(tree.widths, dim=1)
    nodes = [
        (predictor.action_mask_token + place[2 * level + 1], tokens + place[2 * level + 2])
        for level, tokens in enumerate(levels)
    ]
    tokens = tree.pack((root + place[0])[:, None], nodes)
    read = tree.second_tokens()
    x = _blocks(predictor, tree, *tokens, read=read)
    return _cross_entropies(predictor.action_head(predictor.norm(x)), tree.paths(), actions)


def reconstruct_latents(
    predictor: Predictor, tree: PrefixTree, root: Tensor, states: Tensor, actions: Tensor
) -> Tensor:
    """Return −log p(a_t) of the candidates [B, M, T] given the latents of all nodes [B, S, D].

    In the released code states are the latents of pass 1, unchanged, and the logits of a_t are read
    at its own token, without the final norm. They depend on the latents of a_1..a_t−1 alone, so
    that they are read once for each of these prefixes. The other arguments are as of `reconstruct`.
    """
    place, parents = predictor.pos_embed, tree.parents()
    slot = predictor.action_mask_token
    levels = states.split(tree.widths, dim=1)[:-1]  # the goals' latents are not used
    nodes = [
        (tokens + place[2 * level + 2], slot + place[2 * level + 3])
        for level, tokens in enumerate(levels)
    ]
    roots = torch.stack([root, slot.expand_as(root)], dim=1) + place[:2]  # [B, 2, D]
    tokens = parents.pack(roots, nodes)
    read = parents.second_tokens()
    x = _blocks(predictor, parents, *tokens, read=read)
    before = F.pad(tree.paths()[..., :-1] + 1, (1, 0))  # nodes of a_1..a_t−1; the root is node 0
    return _cross_entropies(predictor.action_head(x), before, actions)


def _cross_entropies(logits: Tensor, nodes: Tensor, actions: Tensor) -> Tensor:
    """Return −log p(a) of actions at their nodes, both [B, M, T]; logits [B, S, K]."""
    place = nodes * logits.shape[-1] + actions  # among the logits of a row, [B, M, T]
    log = logits.float().log_softmax(dim=-1).flatten(1)
    return -log.gather(1, place.flatten(1)).view_as(actions)


def _blocks(
    predictor: Predictor, tree: PrefixTree, rows: Tensor, index: Tensor, *, read: slice | Tensor
) -> Tensor:
    """Apply all blocks to tokens [n, D], packed by their numbers [B, L].

    The first projects each distinct token once; the last computes the tokens `read` alone.
    """
    mask = prepared_mask(tree.mask())
    x = rows
    for number, block in enumerate(predictor.blocks):
        x = block(
            x,
            index=index if number == 0 else None,
            mask=mask,
            read=read if number == len(predictor.blocks) - 1 else slice(None),
        )
    return x
