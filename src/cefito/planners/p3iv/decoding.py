"""From P3IV's emissions to sequences: Viterbi, or step by step backwards as released."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cefito.planners.shared.graph import transition_probabilities
from cefito.planners.shared.transitions import Decoded, decode, log_guarded


def best_sequences(
    emissions: Tensor, counts: Tensor, count: int, decoding: Literal["viterbi", "greedy"]
) -> Decoded:
    """The best sequences of B queries, by exact "viterbi" or as `greedy`."""
    if decoding == "viterbi":
        return decode(emissions, log_guarded(counts), count)
    return greedy(emissions, counts, count)


def greedy(emissions: Tensor, counts: Tensor, count: int) -> Decoded:
    """Sequences from their last action backwards, as the released code chooses the best one.

    The last action is the likeliest of its step; each action before it has the highest product of
    its own emission and of the transition to its successor. Transitions are the softmax, over the
    earlier actions, of transition probabilities. Further sequences begin with the next likeliest
    last actions; all are ordered by these alone, and none is optimal.
    """
    shares = torch.from_numpy(transition_probabilities(counts.cpu().numpy())).to(emissions.device)
    transitions = shares.log_softmax(dim=0)
    emissions = emissions.double()
    sums, last = emissions[:, -1].sort(dim=1, descending=True, stable=True)
    chosen = [last[:, :count]]
    for step in range(emissions.shape[1] - 2, -1, -1):
        following = transitions.T[chosen[0]]  # [B, k, K]
        chosen.insert(0, (emissions[:, step, None] + following).argmax(dim=2))
    return Decoded(
        sequences=torch.stack(chosen, dim=2),
        sums=sums[:, :count],
        possible=torch.zeros(len(emissions), dtype=torch.bool, device=emissions.device),
    )
