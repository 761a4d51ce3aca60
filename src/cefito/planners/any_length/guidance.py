"""Guidance while a procedure goes on: the steps done between observations, and those that follow.

Only the steps that were done, softly, and the encoded observations are kept from one query to the
next, so that an update costs two passes through the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.planners.any_length.model import AnyLengthModel
from cefito.planners.any_length.network import History, Known
from cefito.planners.crf.inference import SequenceScores

__all__ = ["Encoded", "Guide", "Outlook", "Sighting"]

STAY = 0.4
"""Prior probability that no step was done between two observations."""
GOING = 0.5
"""Factor of the prior probability of each further step done between two observations."""
Encoded = tuple[Tensor, ...]
"""An observation as each member encodes it, as initial observation and as goal, [2, W] each."""


@dataclass(frozen=True)
class Sighting:
    """Likelihood ratios of an observation: of what it shows against any observation."""

    states: Tensor  # log p(next state | observation) − log p(next state) [S]
    tasks: Tensor  # log p(task | observation) − log p(task) [C]


@dataclass(frozen=True)
class Outlook:
    """Distribution of the sequences that follow, given all that is known."""

    scores: tuple[SequenceScores, ...]  # of each length, of one query
    log_lengths: Tensor  # log p(length) [L]
    log_tasks: Tensor  # log p(task), summed over lengths and sequences [C]

    def weighed(self, factors: Tensor) -> Outlook:
        """Return the distribution with the probability of each task multiplied by exp(factor) [C].

        A factor of −∞ forbids a task.
        """
        # Σ_c p(c | T) exp(f_c) of each length
        sums = torch.stack([scores.log_tasks()[0] + factors for scores in self.scores])
        weighed = []
        for scores in self.scores:
            emissions = scores.emissions.clone()
            emissions[:, 0] += factors[scores.states.tasks]
            weighed.append(replace(scores, emissions=emissions))
        log_lengths = (self.log_lengths + sums.logsumexp(dim=1)).log_softmax(dim=0)
        return Outlook(tuple(weighed), log_lengths, (self.log_tasks + factors).log_softmax(dim=0))

    def next_actions(self) -> Tensor:
        """Return the probability of each action to be the next step [K], summed over the rest."""
        states = self.scores[0].states
        marginals = torch.stack([scores.log_marginals()[0, 0] for scores in self.scores])
        shares = (self.log_lengths[:, None] + marginals).exp().sum(dim=0)  # [S]
        return shares.new_zeros(states.lookup.shape[1]).index_add(0, states.actions, shares)


class Guide:
    """The exact inference of a model of any length that a live session needs.

    Args:
        model: The trained model.
        lengths: Numbers of steps that may follow.
    """

    @torch.inference_mode()
    def __init__(self, model: AnyLengthModel, lengths: Sequence[int]) -> None:
        self.model, self.lengths = model, tuple(lengths)
        self.nothing = self.encode(None)
        first = self._first_states(self.nothing)  # log p(first state) [S]
        self._prior = first, self._tasks(first)

    @torch.inference_mode()
    def encode(self, observation: Tensor | None) -> Encoded:
        """Encode an observation [E]; None if it is unknown."""
        size = self.model.observation_dim
        row = torch.zeros(size) if observation is None else observation
        rows = row.to(self.model.device)[None]  # [1, E]
        seen = torch.full((1, 2), observation is not None, device=rows.device)
        history = self._history(None, self.model.networks[0].config.recency)
        return tuple(
            network.known(rows, rows, seen, history).encoded[0] for network in self.model.networks
        )

    @torch.inference_mode()
    def sighting(self, observation: Encoded) -> Sighting:
        """Return what an observation alone says of the next step and of the task."""
        first = self._first_states(observation)
        states, tasks = self._prior
        return Sighting(first - states, self._tasks(first) - tasks)

    @torch.inference_mode()
    def outlook(
        self,
        initial: Encoded | None,
        goal: Encoded | None,
        done: Tensor,  # probabilities of the actions of each step done, oldest first, [D, K]
    ) -> Outlook:
        """Return the distribution of what follows the steps done."""
        known = self._known(initial, goal, done)
        log_lengths = self.model.log_lengths_of(known)[0]
        first = self.model.lengths.index(self.lengths[0])
        log_lengths = log_lengths[first : first + len(self.lengths)].log_softmax(dim=0)
        scores = tuple(self.model.scores_of(length, known) for length in self.lengths)
        # p(c) = Σ_T p(T) p(c | T)
        tasks = torch.stack([each.log_tasks()[0] for each in scores])
        return Outlook(scores, log_lengths, (log_lengths[:, None] + tasks).logsumexp(dim=0))

    @torch.inference_mode()
    def steps_between(self, outlook: Outlook, sighting: Sighting) -> Tensor:
        """Return the steps that were probably done before an observation, after an outlook.

        If j steps were done, the observation shows the step at place j of the sequence that the
        outlook foresees: its likelihood is a factor of the state there, p(state | observation) /
        p(state), and the sum over all sequences is exact.

        Returns:
            Probabilities of actions [J, K], in order. A row's sum is the probability that so many
            steps were done or more.
        """
        posterior, steps = [], []
        for place, scores in enumerate(outlook.scores):
            length, states = scores.horizon, scores.states
            # chains of one length with the observation at each place: [J = T, T, S]
            emissions = scores.emissions.repeat(length, 1, 1)
            places = torch.arange(length)
            emissions[places, places] += sighting.states
            chains = replace(scores, emissions=emissions)
            # log p(observation | j, T) against any observation: ratio of the sums over sequences
            ratios = chains.log_partition() - scores.log_partition()
            posterior.append(outlook.log_lengths[place] + _log_prior(length) + ratios)
            shares = chains.log_marginals().exp()  # [J, T, S]
            after = torch.tril(torch.ones(length, length), -1)  # step k was done if j > k
            actions = shares.new_zeros(length, length, states.lookup.shape[1])
            actions.index_add_(2, states.actions, shares * after[:, :, None])
            steps.append(F.pad(actions, (0, 0, 0, self.lengths[-1] - length)))
        weights = torch.cat(posterior).softmax(dim=0)  # p(T, j | all)
        return torch.einsum("j,jtk->tk", weights, torch.cat(steps))

    def _known(
        self, initial: Encoded | None, goal: Encoded | None, done: Tensor
    ) -> tuple[Known, ...]:
        seen = torch.tensor([[initial is not None, goal is not None]], device=self.model.device)
        return tuple(
            Known(
                torch.stack([first[0], last[1]])[None],
                seen,
                self._history(done, network.config.recency),
            )
            for network, first, last in zip(
                self.model.networks, initial or self.nothing, goal or self.nothing, strict=True
            )
        )

    def _history(self, done: Tensor | None, recency: float) -> History:
        """Return the features of steps done [D, K], each as if it was certain that one was done."""
        device, count = self.model.device, self.model.states.lookup.shape[1]
        rows = torch.zeros(0, count, device=device) if done is None else done
        rows = rows / rows.sum(dim=1, keepdim=True).clamp_min(1e-30)
        known = torch.tensor([done is not None], device=device)
        return History.of(rows[None], known, recency)

    def _first_states(self, observation: Encoded) -> Tensor:
        """Return log p(first state | initial observation alone) [S], by the shortest chain."""
        seen = observation is not self.nothing
        known = tuple(
            Known(
                torch.stack([first[0], unknown[1]])[None],
                torch.tensor([[seen, False]], device=first.device),
                self._history(None, network.config.recency),
            )
            for network, first, unknown in zip(
                self.model.networks, observation, self.nothing, strict=True
            )
        )
        return self.model.scores_of(self.model.lengths[0], known).log_marginals()[0, 0]

    def _tasks(self, first: Tensor) -> Tensor:
        """Return log p(task) [C] of log probabilities of first states [S]."""
        return self.model.states.padded(first).logsumexp(dim=-1)


def _log_prior(length: int) -> Tensor:
    """Return log p(j) of the number of steps done between two observations [length]."""
    going = (1 - STAY) * (1 - GOING) * GOING ** torch.arange(length - 1)
    return torch.cat([torch.tensor([STAY]), going]).log()
