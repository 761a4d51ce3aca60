"""Exact probabilities of given sequences and of first pairs, under chains of several lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.planners.crf.inference import SequenceScores

__all__ = ["WeightedScores", "first_pairs", "log_sequences"]


@dataclass(frozen=True)
class WeightedScores:
    """Scores of the sequences of one length, and the probability of this length."""

    log_weight: Tensor  # log p(T) of each query [B]
    scores: SequenceScores


def log_sequences(
    parts: Sequence[WeightedScores],  # of all lengths
    sequences: NDArray[np.int64],  # actions of one sequence of each query [B, T], −1 after the last
) -> NDArray[np.float64]:
    """Return log p(T) + log Σ_c p(c, sequence | T) [B]; −∞ for impossible sequences."""
    given = torch.from_numpy(sequences).to(parts[0].log_weight.device)
    lengths = (given >= 0).sum(dim=1)
    found = given.new_full((len(given),), -torch.inf, dtype=torch.float64)
    for part in parts:
        rows = (lengths == part.scores.horizon).nonzero()[:, 0]
        if len(rows):
            own = given[rows, : part.scores.horizon]
            logs = part.scores.rows(rows).log_sequence_probabilities(own)
            found[rows] = (part.log_weight[rows] + logs).double()
    return np.asarray(found.cpu().numpy())


def first_pairs(parts: Sequence[WeightedScores]) -> NDArray[np.floating[Any]]:
    """Return the probabilities of the first two actions, summed over lengths, tasks and the rest.

    Of B queries [B, K, K + 1]; in the last column, of sequences that end after the first action.
    """
    states = parts[0].scores.states
    batch, actions = len(parts[0].log_weight), states.lookup.shape[1]
    found = parts[0].log_weight.new_zeros(batch, actions, actions + 1)
    # action of each place of each task; `actions` at places without a state, [C, A]
    ids = torch.cat([states.actions, states.actions.new_tensor([actions])])[states.grid]
    pairs = (ids[:, :, None] * (actions + 1) + ids[:, None]).flatten()  # [C · A · A]
    real = ((ids[:, :, None] < actions) & (ids[:, None] < actions)).flatten()
    for part in parts:
        weight = part.log_weight.exp()[:, None]  # p(T)
        if part.scores.horizon == 1:
            first = weight * part.scores.log_marginals()[:, 0].exp()  # [B, S]
            found[:, :, actions].index_add_(1, states.actions, first)
        else:
            joint = weight * part.scores.log_pairs().flatten(1).exp()  # [B, C · A · A]
            found.flatten(1).index_add_(1, pairs[real], joint[:, real])
    return np.asarray(found.cpu().numpy())
