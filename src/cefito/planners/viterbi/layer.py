"""The differentiable Viterbi layer of ViterbiPlanNet (arXiv 2603.04265), and exact decoding.

A window of T actions is a chain: emissions of every action at every step, and transitions between
neighbouring steps, as counted in training windows. The layer gives the probability of every action
at every step, given the whole chain. Published is a soft Viterbi recursion (logsumexp for max,
softmax for argmax, soft back-pointers multiplied backwards). With temperature 1 it equals the
forward-backward algorithm, which is used here.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cefito.planners.shared.transitions import Decoded
from cefito.planners.shared.transitions import decode as over_transitions

__all__ = ["Decoding", "decode", "log_marginals", "transition_probabilities"]

Decoding = Literal["viterbi", "marginals"]

_FLOOR = 1e-10  # transitions are clamped there inside the layer (published)


def transition_probabilities(counts: Tensor, *, clamped: bool) -> Tensor:
    """Probabilities of the action after each action.

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


def decode(emissions: Tensor, counts: Tensor, count: int, decoding: Decoding) -> Decoded:
    """The best sequences under the layer's marginals.

    "viterbi" (published as "DVL+VD", the reported row) maximises the product of the marginals and
    of the raw transitions, so that transitions enter twice, and one that no training window shows
    forbids a sequence; where none is possible, the likeliest action of each step is taken, under
    clamped transitions. "marginals" (published as "DVL") takes the marginals as emissions of the
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
    raw = transition_probabilities(counts, clamped=False).log() if decoding == "viterbi" else None
    return over_transitions(marginals, raw, count, substitutes=clamped.log())
