"""The differentiable Viterbi layer of ViterbiPlanNet (arXiv 2603.04265), and exact decoding.

At temperature 1 the published soft recursion equals the forward-backward algorithm, used here.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cefito.planners.shared.transitions import Decoded
from cefito.planners.shared.transitions import decode as over_transitions

Decoding = Literal["viterbi", "marginals"]

_FLOOR = 1e-10  # transitions are clamped there inside the layer (published)


def transition_probabilities(counts: Tensor, *, clamped: bool) -> Tensor:
    """Probabilities of the action after each action, float64 [K, K], from counts [K, K].

    If clamped, shares are raised to at least 1e-10 and each row is divided by its sum again, as the
    layer does; rows without any count become uniform. Otherwise these, and unseen transitions, are
    0.
    """
    shares = counts.double()
    shares = shares / shares.sum(dim=1, keepdim=True).clamp_min(1)
    if not clamped:
        return shares
    shares = shares.clamp_min(_FLOOR)
    return shares / shares.sum(dim=1, keepdim=True)


def log_marginals(emissions: Tensor, transitions: Tensor) -> Tensor:
    """Log-probability of each action at each step, given emissions [B, T, K] of all steps.

    p(a_1..a_T) is in proportion to Π_t exp(emissions[t, a_t]) · Π_t transitions[a_t, a_t+1]; the
    prior over the first action is uniform. Transitions [K, K] are positive. Differentiable, in the
    precision of the emissions, even under autocast.
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
    """log(exp(logs) @ transitions) [B, K]; the largest term is taken out, so no row vanishes."""
    highest = logs.amax(dim=-1, keepdim=True).detach()
    return ((logs - highest).exp() @ transitions).log() + highest


def decode(emissions: Tensor, counts: Tensor, count: int, decoding: Decoding) -> Decoded:
    """The best sequences under the layer's marginals, from log-emissions [B, T, K].

    "viterbi" (published as "DVL+VD", the reported row) maximises the product of the marginals and
    of the raw transitions; an unseen one forbids a sequence. If none is possible, the likeliest
    action of each step is taken, under clamped transitions. "marginals" (published as "DVL") takes
    the marginals as emissions of the layer once more, and maximises the product of the result.
    """
    clamped = transition_probabilities(counts, clamped=True)
    marginals = log_marginals(emissions.double(), clamped)
    if decoding == "marginals":
        marginals = log_marginals(marginals, clamped)
    raw = transition_probabilities(counts, clamped=False).log() if decoding == "viterbi" else None
    return over_transitions(marginals, raw, count, substitutes=clamped.log())
