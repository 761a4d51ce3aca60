"""The procedural knowledge graph: counted transitions between actions, and cheap paths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows

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
    """
    costs = np.full(probabilities.shape, np.inf)
    np.log(probabilities, out=costs, where=probabilities > 0)
    np.negative(costs, out=costs, where=probabilities > 0)
    walks, spent = cheapest_paths(costs, first=first, last=last, horizon=horizon, count=count)
    return walks[np.isfinite(spent)]


def _lowest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the lowest values, lowest first, ties in their order."""
    return np.round(values, _DECIMALS).argsort(kind="stable")[:count]
