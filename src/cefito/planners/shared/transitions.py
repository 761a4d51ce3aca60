"""The procedural knowledge graph: counted transitions between actions, and cheap paths.

Also exact best sequences under emissions and transitions (Viterbi), computed as sums of logarithms.

Rows of counts that nothing follows are uniform here; in published code they are 0/0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.search.problem import Plans, SearchCost

_DECIMALS = 9


def transition_counts(windows: Windows, action_count: int) -> NDArray[np.int64]:
    """How often each action (row) follows each other one within windows, [K, K].

    A transition that several overlapping windows of a video share counts once for each of them, as
    in ViterbiPlanNet (arXiv 2603.04265).
    """
    pairs = windows.actions[:, :-1] * action_count + windows.actions[:, 1:]
    return (
        np.bincount(pairs.ravel(), minlength=action_count**2)
        .astype(np.int64)
        .reshape(action_count, action_count)
    )


def transition_probabilities(
    counts: NDArray[np.int64], *, smoothing: float = 0.0
) -> NDArray[np.float64]:
    """Probability of each next action [K, K]: counts plus smoothing, each row divided by its sum.

    Without smoothing, zero after an action that nothing follows.
    """
    raised = counts + smoothing
    sums = raised.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(raised, sums, out=np.zeros(counts.shape), where=sums > 0))


def transition_costs(
    counts: NDArray[np.int64], *, horizon: int, smoothing: float = 0.0
) -> NDArray[np.float64]:
    """Cost of each transition in a path of T actions [K, K]: −log of its probability, if positive.

    Any other costs −log of the share of all transitions that lead to its second action (by counts
    plus one), and more than any path of T actions can cost without it. So all costs are finite, and
    paths are ordered by the number of unseen transitions, then by the product.

    Args:
        counts: Number of each transition [K, K].
        horizon: T.
        smoothing: Added to each count.
    """
    probabilities = transition_probabilities(counts, smoothing=smoothing)
    entered = counts.sum(axis=0) + 1
    seen = probabilities > 0
    costs: NDArray[np.float64] = -np.log(np.where(seen, probabilities, entered / entered.sum()))
    costs[~seen] += 1 + (horizon - 1) * costs.max()
    return costs


def cheapest_paths(
    costs: NDArray[np.float64],
    *,
    first: int,
    last: int,
    horizon: int,
    count: int,
    width: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Paths of T ≥ 2 actions from one to another [k, T], cheapest first, and their costs [k].

    Costs equal to nine decimals are ties, ordered by ids. Infinite costs forbid; such paths come
    last. The `count` cheapest of all K^(T-2) are found: prefixes are kept by their cost plus the
    least cost of any continuation, which some path attains. With a `width`, only that many prefixes
    are kept, by their own cost (beam search), up to T - 1 actions, which the last action ends.

    Args:
        costs: Costs of transitions [K, K]; infinity forbids.
        first: First action.
        last: Last action.
        horizon: T ≥ 2.
        count: Number of paths.
        width: Number of prefixes that are kept; None keeps what an exact answer needs.
    """
    # least cost of a continuation after an action, at the places T - 2, T - 3, ..., 1 (from 0)
    ahead = [costs[:, last]]
    if width is None:
        for _ in range(horizon - 3):
            ahead.append((costs + ahead[-1]).min(axis=1))
    prefixes, spent = np.array([[first]], dtype=np.int64), np.zeros(1)
    for place in range(1, horizon - 1):
        after = spent[:, None] + costs[prefixes[:, -1]]
        total = after + ahead[horizon - 2 - place] if width is None else after
        # kept in the order of ids, for ties
        kept = np.sort(_lowest(total.ravel(), count if width is None else width))
        parents, actions = np.divmod(kept, len(costs))
        prefixes = np.concatenate([prefixes[parents], actions[:, None]], axis=1)
        spent = after.ravel()[kept]
    total = spent + costs[prefixes[:, -1], last]
    order = _lowest(total, count)
    paths = np.concatenate([prefixes[order], np.full((len(order), 1), last)], axis=1)
    return paths, np.round(total[order], _DECIMALS)


def likeliest_walks(
    probabilities: NDArray[np.float64], *, first: int, last: int, horizon: int, count: int
) -> NDArray[np.int64]:
    """At most `count` walks of T ≥ 2 actions along seen transitions [k, T], likeliest first.

    Scores equal to nine decimals of their logarithm are ties, ordered by ids.

    Args:
        probabilities: Probabilities of transitions [K, K]; zero if unseen.
        first: First action.
        last: Last action.
        horizon: T ≥ 2.
        count: Number of walks.
    """
    with np.errstate(divide="ignore"):  # unseen transitions cost −log 0 = ∞
        costs = -np.log(probabilities)
    walks, spent = cheapest_paths(costs, first=first, last=last, horizon=horizon, count=count)
    return walks[np.isfinite(spent)]


def _lowest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the lowest values, lowest first, ties in their order."""
    return np.round(values, _DECIMALS).argsort(kind="stable")[:count]


_FLOOR = math.log(1e-10)  # of what is impossible, where nothing possible is left
_CHUNK_BYTES = 64 * 2**20


def counted_transitions(windows: Windows, action_count: int) -> NDArray[np.int64]:
    """How often each action (row) follows each other one in training videos, [K, K].

    Each pair of neighbouring steps of a video counts once if a window shows it; `transition_counts`
    counts it once for every window.
    """
    steps = windows.start[:, None] + np.arange(windows.horizon - 1)
    places = np.stack([np.broadcast_to(windows.video[:, None], steps.shape), steps], axis=-1)
    _, first = np.unique(places.reshape(-1, 2), axis=0, return_index=True)
    counts = np.zeros((action_count, action_count), dtype=np.int64)
    earlier, later = windows.actions[:, :-1].ravel()[first], windows.actions[:, 1:].ravel()[first]
    np.add.at(counts, (earlier, later), 1)
    return counts


def log_guarded(counts: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Logarithms of the probabilities of each next action, float64 [K, K]; empty rows are uniform.

    Smoothing is added to every count first. −∞ for unseen transitions of a row with counts.
    """
    probabilities = transition_probabilities(counts.cpu().numpy(), smoothing=smoothing)
    probabilities[probabilities.sum(axis=1) == 0] = 1 / max(len(probabilities), 1)
    return torch.from_numpy(probabilities).log().to(counts.device)


@dataclass(frozen=True)
class Decoded:
    """The best sequences of B queries.

    A query without a possible sequence gets a single one: the likeliest action of each step, whose
    sum counts substitutes for impossible transitions.
    """

    sequences: Tensor  # int64 [B, k, T], best first, ties by action ids
    sums: Tensor  # logarithms of the products, float64 [B, k]; −∞ if there is no such sequence
    possible: Tensor  # whether any sequence has a positive probability [B]

    def plans(self, cost: SearchCost) -> list[Plans]:
        """The plans of each query, at `cost` each, without sequences of probability zero."""
        rows = zip(
            self.sequences.cpu().numpy(),
            -self.sums.cpu().numpy(),
            self.possible.tolist(),
            strict=True,
        )
        return [
            Plans(actions[kept], energies[kept], energies[kept], cost, exact=possible)
            for actions, energies, possible in rows
            for kept in [energies < np.inf]
        ]


def decode(
    emissions: Tensor, transitions: Tensor | None, count: int, *, substitutes: Tensor | None = None
) -> Decoded:
    """The `count` sequences of the largest products, given logarithms; −∞ forbids; exact.

    The prior over the first action is uniform; without transitions steps do not depend on each
    other. A query without a possible sequence takes finite `substitutes` for transitions, by
    default these raised to log(1e-10).

    Args:
        emissions: Logarithms [B, T, K].
        transitions: Logarithms [K, K]; None if steps do not depend on each other.
        count: Number of sequences.
        substitutes: Finite logarithms [K, K] in place of the transitions.
    """
    sequences, sums = k_best(emissions, transitions, count)
    possible = sums[:, 0] > -torch.inf
    if not bool(possible.all()):
        emitted, likeliest = emissions[~possible].double().max(dim=2)
        total = emitted.clamp_min(_FLOOR).sum(dim=1)
        if transitions is not None:
            along = transitions.double().clamp_min(_FLOOR) if substitutes is None else substitutes
            total = total + along[likeliest[:, :-1], likeliest[:, 1:]].sum(dim=1)
        sequences[~possible, 0] = likeliest
        sums[~possible, 0] = total
    return Decoded(sequences=sequences, sums=sums, possible=possible)


def k_best(emissions: Tensor, transitions: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """The k sequences of the largest sums of emissions [B, T, K] and transitions [K, K]; exact.

    Prefixes are ranked by their own sum plus the largest sum of any continuation, which some
    sequence attains, so keeping k of them is exact. Sequences are int64 [B, k, T], best first, ties
    by action ids; their sums, float64 [B, k], are −∞ if a query has fewer. There are at most K^T
    columns.

    Args:
        emissions: [B, T, K].
        transitions: [K, K]; None for zeros.
        count: k.
    """
    graph = None if transitions is None else _Graph(transitions.double())
    entries = max(len(graph.along) if graph else 1, emissions.shape[2] * count)
    chunk = max(1, _CHUNK_BYTES // (8 * entries))
    parts = [_k_best(block, graph, count) for block in emissions.double().split(chunk)]
    sequences, sums = zip(*parts, strict=True)
    return torch.cat(sequences), torch.cat(sums)


class _Graph:
    """The possible transitions of [K, K]; few, if they come from training windows."""

    def __init__(self, transitions: Tensor) -> None:
        self.transitions = transitions
        self.source, self.target = (transitions > -torch.inf).nonzero().T
        self.along = transitions[self.source, self.target]

    def best(self, following: Tensor) -> Tensor:
        """For each action the largest sum of a transition and of the value that follows, [B, K]."""
        nothing = torch.full_like(following, -torch.inf)
        return nothing.scatter_reduce(
            1,
            self.source.expand(len(following), -1),
            following[:, self.target] + self.along,
            "amax",
        )


def _k_best(emissions: Tensor, graph: _Graph | None, count: int) -> tuple[Tensor, Tensor]:
    batch, horizon, size = emissions.shape
    # for each step's actions the largest sum of all that follows
    ahead = [torch.zeros_like(emissions[:, -1])]
    for step in range(horizon - 1, 0, -1):
        following = emissions[:, step] + ahead[0]
        best = (
            graph.best(following) if graph else following.amax(dim=1, keepdim=True).expand(-1, size)
        )
        ahead.insert(0, best)
    sequences = torch.zeros(batch, 1, 0, dtype=torch.int64, device=emissions.device)
    sums = emissions.new_zeros(batch, 1)
    for step in range(horizon):
        after = sums[:, :, None] + emissions[:, None, step]
        if step and graph:
            after = after + graph.transitions[sequences[:, :, -1]]
        total = (after + ahead[step][:, None]).flatten(1)
        places = total.argsort(dim=1, descending=True, stable=True)[:, :count]
        if step < horizon - 1:
            places = places.sort(dim=1).values  # in the order of ids, for ties
        above = (places // size)[:, :, None].expand(-1, -1, step)
        sequences = torch.cat([sequences.gather(1, above), (places % size)[:, :, None]], dim=2)
        sums = after.flatten(1).gather(1, places)
    return sequences, sums
