"""The graph of a task by the likelihood of right videos.

A graph is a partial order of actions. After some steps, each action whose predecessors were done is
as likely to come next, so that a video has the probability Π 1 / (number of such actions) over its
first steps, and a step before one of its predecessors, which is a mistake or a rarity, has ε over
the number of actions left. From the orders that all videos keep, that order is added or dropped,
one after another, which makes the likelihood grow most, with a prior of exp(−1) an edge (edges from
the start and to the end counted). So few videos that happen to agree make no order, and one video
that breaks an order does not end it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Places = NDArray[np.int64]
_RARE = 0.02  # ε
_LEAST = 1e-9  # growth of the logarithm
_USUAL = 0.8  # share of the videos
MOST = 60
"""Actions of a task, of which more are left to counts."""
VIDEOS = 100
"""Videos of a task that are looked at."""
_EDGE = 1.0  # −log prior of an edge


def likeliest_order(precedes: Bools, places: Places, edge: float = _EDGE) -> Bools:
    """Return the partial order of the highest likelihood near another one [A, A].

    Tasks of more than `MOST` actions keep the other one, and `VIDEOS` videos are enough.

    Args:
        precedes: Whether a comes before b: orders that all videos keep, and what follows from them.
        places: Place of the first step of each action among those of a video, or −1 [n, A].
        edge: Minus the log prior of an edge.
    """
    precedes, places = precedes.copy(), places[:VIDEOS]
    if not 0 < len(precedes) <= MOST or not len(places):
        return precedes
    both = (places[:, :, None] >= 0) & (places[:, None] >= 0)
    kept = (both & (places[:, :, None] < places[:, None])).sum(axis=0)
    usual = kept > _USUAL * both.sum(axis=0)  # pairs that may be ordered
    current = log_likelihood(precedes, places) - edge * edges_of(precedes)
    while True:
        best = None
        for a, b in np.argwhere(reduced(precedes) | (_free(precedes) & usual)):
            precedes[a, b] ^= True  # no other order follows from an edge, or from a free pair
            value = log_likelihood(precedes, places) - edge * edges_of(precedes)
            precedes[a, b] ^= True
            if value > current + _LEAST:
                current, best = value, (a, b)
        if best is None:
            return precedes
        precedes[best] ^= True


def _free(precedes: Bools) -> Bools:
    """Return the pairs without an order, from which no other order would follow [A, A]."""
    one = precedes.astype(int)
    # what comes before a, but not before b; what comes after b, but not after a
    lacking = (one.T @ (1 - one) > 0) | ((1 - one) @ one.T > 0)
    pairs: Bools = ~(precedes | precedes.T | lacking | np.eye(len(one), dtype=bool))
    return pairs


def reduced(precedes: Bools) -> Bools:
    """Return the orders that do not follow from others, the transitive reduction [A, A]."""
    edges: Bools = precedes & ~((precedes.astype(int) @ precedes.astype(int)) > 0)
    return edges


def edges_of(precedes: Bools) -> int:
    """Return the number of edges, with those from the start and to the end."""
    ends = (~precedes.any(axis=0)).sum() + (~precedes.any(axis=1)).sum()
    return int(reduced(precedes).sum() + ends)


def log_likelihood(precedes: Bools, places: Places) -> float:
    """Return the logarithm of the probability of the first steps of videos."""
    # place of the last predecessor of each action in each video, −1 without one [n, A]
    last = np.where(precedes[None], places[:, :, None], -1).max(axis=1, initial=-1)
    done, steps = places >= 0, (places >= 0).sum(axis=1)
    at = np.arange(places.shape[1])  # places [L]
    # an action is free at a place from its last predecessor on, until it is done
    free = ((last[:, :, None] < at) & (places[:, :, None] >= at)).sum(axis=1)  # [n, L]
    broken = done & (last > places)
    video, _ = np.nonzero(done)
    place, wrong = places[done], broken[done]
    chances = np.where(
        wrong,
        _RARE / np.maximum(steps[video] - place, 1),
        1 / np.maximum(free[video, place], 1),
    )
    return float(np.log(chances).sum())
