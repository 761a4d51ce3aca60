"""The differentiable Viterbi layer of ViterbiPlanNet (arXiv 2603.04265), and exact decoding.

A window of T actions is a chain: emissions of every action at every step, and transitions between
the actions of neighbouring steps, as often as training windows show them. The layer gives the
probability of every action at every step, given the whole chain. Published is a soft Viterbi
recursion (logsumexp for max, softmax for argmax, soft back-pointers multiplied backwards). With
temperature 1 its result is that of forward-backward, as which it is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Decoded", "Decoding", "decode", "k_best", "log_marginals", "transition_probabilities"]

Decoding = Literal["viterbi", "marginals"]

_FLOOR = 1e-10  # transitions are clamped there inside the layer (published)
_CHUNK_BYTES = 64 * 2**20


def transition_probabilities(counts: Tensor, *, clamped: bool) -> Tensor:
    """Shares of the actions that follow each action.

    Args:
        counts: How often each action is followed by each, [K, K].
        clamped: Raise shares to at least 1e-10 and divide each row by its sum again, as the layer
            does; rows without any count become uniform. Otherwise such rows, and transitions that
            were never seen, are zero.

    Returns:
        Probabilities, float64 [K, K].
    """
    shares = counts.double()
    shares = shares / shares.sum(dim=1, keepdim=True).clamp_min(1)
    if not clamped:
        return shares
    shares = shares.clamp_min(_FLOOR)
    return shares / shares.sum(dim=1, keepdim=True)


def log_marginals(emissions: Tensor, transitions: Tensor) -> Tensor:
    """Logarithm of the probability of each action at each step, given the emissions of all steps.

    p(a_1..a_T) is in proportion to Π_t exp(emissions[t, a_t]) · Π_t transitions[a_t, a_t+1]; the
    prior over the first action is uniform. Differentiable, in the precision of the emissions, even
    under autocast.

    Args:
        emissions: Logarithms, of any sum, [B, T, K].
        transitions: Positive probabilities [K, K].

    Returns:
        [B, T, K]; the exponentials of every step sum to one.
    """
    with torch.autocast(emissions.device.type, enabled=False):
        transitions = transitions.to(emissions.dtype)
        steps = emissions.unbind(dim=1)
        before, after = [steps[0]], [torch.zeros_like(steps[-1])]
        for step in steps[1:]:
            before.append(_mixed(before[-1], transitions) + step)
        for step in reversed(steps[1:]):
            after.insert(0, _mixed(after[0] + step, transitions.T))
        return (torch.stack(before, dim=1) + torch.stack(after, dim=1)).log_softmax(dim=-1)


def _mixed(logs: Tensor, transitions: Tensor) -> Tensor:
    """log(exp(logs) @ transitions) [B, K].

    The largest term is taken out, and no transition is zero, so no row vanishes.
    """
    highest = logs.amax(dim=-1, keepdim=True).detach()
    return ((logs - highest).exp() @ transitions).log() + highest


def k_best(emissions: Tensor, transitions: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """The k sequences of the largest sums of emissions and transitions; exact.

    Prefixes are ranked by their own sum plus the largest sum of what can follow, which some
    sequence attains. So no more than k prefixes of one length can begin the k best sequences, and
    keeping k of them is exact.

    Args:
        emissions: Logarithms [B, T, K].
        transitions: Logarithms [K, K]; −∞ forbids. None where steps do not depend on each other.
        count: k.

    Returns:
        Sequences, int64 [B, k, T], best first, ties by action ids, and their sums, float64 [B, k].
        Where a query has fewer than k sequences, the last sums are −∞. Fewer columns come back
        where there are fewer than k sequences over K actions.
    """
    graph = None if transitions is None else _Graph(transitions.double())
    entries = max(len(graph.along) if graph else 1, emissions.shape[2] * count)
    chunk = max(1, _CHUNK_BYTES // (8 * entries))
    parts = [_k_best(part, graph, count) for part in emissions.double().split(chunk)]
    sequences, sums = zip(*parts, strict=True)
    return torch.cat(sequences), torch.cat(sums)


class _Graph:
    """The possible transitions of [K, K]; few, where they come from training windows."""

    def __init__(self, transitions: Tensor) -> None:
        self.transitions = transitions
        self.source, self.target = (transitions > -torch.inf).nonzero().T
        self.along = transitions[self.source, self.target]

    def best(self, following: Tensor) -> Tensor:
        """For each action the largest sum of a transition and of the value that follows, [B, K].

        Args:
            following: Value of each action that a transition leads to, [B, K].
        """
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


@dataclass(frozen=True)
class Decoded:
    """The best sequences of B queries.

    Attributes:
        sequences: int64 [B, k, T], best first, ties by action ids.
        sums: Logarithms of what is maximised, float64 [B, k]; −∞ where there is no such sequence.
        possible: Whether any sequence has a positive probability [B]. Where not, the first sequence
            takes the likeliest action of each step, its sum counts clamped transitions, and there
            is no second.
    """

    sequences: Tensor
    sums: Tensor
    possible: Tensor


def decode(emissions: Tensor, counts: Tensor, count: int, decoding: Decoding) -> Decoded:
    """The best sequences under the layer's marginals.

    "viterbi" (published as "DVL+VD", the reported row) maximises the product of the marginals and
    of the raw transitions, so that transitions enter twice, and one that no training window shows
    forbids a sequence. "marginals" (published as "DVL") takes the marginals as emissions of the
    layer once more, and maximises the product of what comes out, step by step.

    Args:
        emissions: Logarithms [B, T, K].
        counts: How often each action is followed by each, [K, K].
        count: Sequences a query.
        decoding: Which of the two.
    """
    clamped = transition_probabilities(counts, clamped=True)
    marginals = log_marginals(emissions.double(), clamped)
    if decoding == "marginals":
        marginals = log_marginals(marginals, clamped)
    transitions = (
        transition_probabilities(counts, clamped=False).log() if decoding == "viterbi" else None
    )
    sequences, sums = k_best(marginals, transitions, count)
    possible = sums[:, 0] > -torch.inf
    if not bool(possible.all()):
        emitted, likeliest = marginals[~possible].max(dim=2)
        along = clamped.log()[likeliest[:, :-1], likeliest[:, 1:]]
        sequences[~possible, 0] = likeliest
        sums[~possible, 0] = emitted.sum(dim=1) + along.sum(dim=1)
    return Decoded(sequences=sequences, sums=sums, possible=possible)
