"""Both passes of the predictor over trees of prefixes, for training: each prefix is computed once.

The gradient of a node sums over all candidates that share it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.field.predictor import Predictor, prepared_mask
from cefito.field.prefixes import PrefixTree


def latents(
    predictor: Predictor,
    tree: PrefixTree,
    root: Tensor,  # tokens of the initial observations [B, D]
    table: Tensor,  # tokens of the actions [K, D]
    *,
    read: slice | Tensor,
) -> Tensor:
    """Return the latents of pass 1 at the tokens `read`, [B, Q, D]; see `Predictor.latents`."""
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

    The packed form of `Predictor.reconstruct`, whose logits of a_t are read at the state after it.
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

    The packed form of `Predictor.reconstruct_latents`, whose logits of a_t depend on the latents of
    a_1..a_t−1 alone: they are read once for each of these prefixes.
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
