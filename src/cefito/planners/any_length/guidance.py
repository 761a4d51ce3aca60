"""Guidance while a procedure goes on: the steps done between observations, and those that follow.

Only the steps that were done, softly, and the encoded observations are kept from one query to the
next, so that an update costs two passes through the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.planners.any_length.model import AnyLengthModel
from cefito.planners.any_length.network import History, Known
from cefito.planners.base import Planner, PlannerOfLengths
from cefito.planners.base_planner import plans_lengths
from cefito.planners.chain.inference import SequenceScores, TransitionSums
from cefito.planners.chain.states import TaskStates
from cefito.planners.queries import Queries
from cefito.search.problem import Plans

GOING = 0.3
"""Factor of the prior probability of each further step done between two observations."""
LEFT_OUT = 0.02
"""Prior probability that the step before what an observation shows was left out."""
Encoded = tuple[Tensor, ...]
"""An observation as each member encodes it, as initial observation and as goal, [2, W] each."""


@dataclass(frozen=True)
class SequencePosterior:
    """Distribution of the sequences of L lengths that follow, given all that is known."""

    emissions: Tensor  # e [T, L, C, A], −∞ at places without a state, 0 after the last step
    messages: Tensor  # β, log of the sum over all that follows each state [T, L, C, A]
    log_lengths: Tensor  # log p(length) [L]
    chains: Chains

    @cached_property
    def log_joint(self) -> Tensor:
        """Joint log p(length, first state) [L, C, A]."""
        sums = self.emissions[0] + self.messages[0]
        return sums + (self.log_lengths - self._log_partition)[:, None, None]

    @property
    def log_first(self) -> Tensor:
        """Marginal log p(first state) [S]."""
        return self.chains.states.flat(self.log_joint.logsumexp(dim=0))

    @property
    def log_tasks(self) -> Tensor:
        """Marginal log p(task) [C]."""
        return self.log_joint.logsumexp(dim=(0, 2))

    @property
    def scores(self) -> tuple[SequenceScores, ...]:
        """Scores of the sequences of each length, of one query."""
        states = self.chains.states
        sums = (self.emissions[0] + self.messages[0]).logsumexp(dim=2)  # of each task [L, C]
        return tuple(
            SequenceScores(
                states,
                states.flat(self.emissions[:length, place])[None],
                transitions,
                sums[place][None],
            )
            for place, (length, transitions) in enumerate(
                zip(self.chains.lengths, self.chains.transitions, strict=True)
            )
        )

    def weighed(self, factors: Tensor) -> SequencePosterior:
        """Return the distribution with the probability of each first state times exp(factor) [S].

        A factor of −∞ forbids a state.
        """
        padded = self.chains.states.padded(factors)
        log_lengths = (self.log_joint + padded).logsumexp(dim=(1, 2)).log_softmax(dim=0)
        emissions = torch.cat([self.emissions[:1] + padded, self.emissions[1:]])
        return replace(self, emissions=emissions, log_lengths=log_lengths)

    def next_actions(self) -> Tensor:
        """Return the probability of each action to be the next step [K], summed over the rest."""
        states, shares = self.chains.states, self.log_first.exp()
        return shares.new_zeros(states.lookup.shape[1]).index_add(0, states.actions, shares)

    def after(self, action: int) -> Tensor | None:
        """Return log p(second state | first action) [S]; None if no sequence has two steps.

        An action that is impossible says that some step was done.
        """
        states = self.chains.states
        if len(self.emissions) < 2:
            return None
        # α_0(a) = e_0(a) of the action's states, α_1(b) = log Σ_a exp(α_0(a) + w(a, b)) + e_1(b)
        log_mask = states.padded((states.actions == action).log())  # [C, A]
        first = self.emissions[0] + log_mask
        if not bool(first.isfinite().any()):
            first = self.emissions[0]
        joint = self.chains.forward(first) + self.emissions[1] + self.messages[1]
        joint = joint + (self.log_lengths - self._log_partition)[:, None, None]
        joint = joint.masked_fill(self.chains.ended(1), -torch.inf)
        return states.flat(joint.logsumexp(dim=0)).log_softmax(dim=0)

    def seen_later(self, log_ratios: Tensor, stay: float, same: float = 0.0) -> Update:
        """Return what an observation says that was made after none, one or several of the steps.

        If j steps were done, the observation shows the step at place j of the sequence that
        follows, or the one after it, where the step at place j was left out: its likelihood is a
        factor of the state shown, p(state | observation) / p(state), and the sums over all
        sequences are exact.

        Args:
            log_ratios: Logarithms of these factors [S].
            stay: Prior probability that no step was done.
            same: Probability that the observation then says nothing new.
        """
        states, chains = self.chains.states, self.chains
        shown = states.padded(log_ratios)  # [C, A]
        first = states.padded((1 - same) * log_ratios)
        # log p(j) of the number of steps done between two observations [length]
        going = (1 - stay) * (1 - GOING) * GOING ** torch.arange(len(self.emissions) - 1)
        prior = torch.cat([torch.tensor([stay]), going]).log()
        scale = (self.log_lengths - self._log_partition)[:, None, None]
        # log p(b | a) of the transitions, Σ_b = 1; log Σ_b p(b | a) p(observation | b), [L, C, A]
        among = chains.backward(torch.zeros_like(self.messages[0]))
        among = among.masked_fill(among == -torch.inf, 0.0)  # places without a state
        ahead = chains.backward(shown.expand_as(among)) - among
        # log p(j) p(observation | state at j), times the sum over what follows the state
        reached = [
            (prior[place] + self.messages[place]).masked_fill(chains.ended(place), -torch.inf)
            for place in range(len(self.emissions))
        ]
        kept, left = math.log(1 - LEFT_OUT), math.log(LEFT_OUT)
        seen = [
            reach + torch.logaddexp(kept + (shown if place else first), left + ahead)
            for place, reach in enumerate(reached)
        ]
        alphas = [self.emissions[0] + scale]
        for emissions in self.emissions[1:]:
            alphas.append(chains.forward(alphas[-1]) + emissions)
        joint = torch.stack(
            [alpha + likelihood for alpha, likelihood in zip(alphas, seen, strict=True)]
        )
        total = joint.logsumexp(dim=(0, 1, 2, 3))
        # steps before what is shown: at places before j, or left out at place j
        later, rows = torch.full_like(shown, -torch.inf).expand_as(alphas[0]), []
        for place in range(len(alphas) - 1, -1, -1):
            before = torch.logaddexp(later, reached[place] + left + ahead)
            rows.append(states.flat((alphas[place] + before - total).logsumexp(dim=0)).exp())
            # the sum over j ≥ place and over what lies between
            later = chains.backward(torch.logaddexp(later, seen[place]) + self.emissions[place])
        steps = torch.zeros(len(rows), states.lookup.shape[1], device=shown.device)
        steps.index_add_(1, states.actions, torch.stack(rows[::-1]))
        # the next state: the one at place j, or its successor
        places = torch.stack([alpha + reach for alpha, reach in zip(alphas, reached, strict=True)])
        at_place = torch.cat([places[:1] + first, places[1:] + shown]).logsumexp(dim=0)
        after = chains.forward(places.logsumexp(dim=0) - among) + shown
        following = torch.logaddexp(kept + at_place, left + after).logsumexp(dim=0)
        moved = places[1:].logsumexp(dim=(0, 1)) if len(places) > 1 else places[0, 0]
        return Update(
            steps=steps,
            log_next=states.flat(following - total),
            stayed=float(((kept + places[0] + first).logsumexp(dim=(0, 1, 2)) - total).exp()),
            log_usual=states.flat(moved).log_softmax(dim=0),
        )

    @cached_property
    def _log_partition(self) -> Tensor:
        """Logarithm of the sum over all sequences of each length [L]."""
        return (self.emissions[0] + self.messages[0]).logsumexp(dim=(1, 2))


@dataclass(frozen=True)
class Update:
    """What an observation says of the steps done before it and of the next one."""

    # probabilities of the actions done, in order, the last of which may have been left out [J, K];
    # a row's sum is the probability that there are so many or more
    steps: Tensor
    log_next: Tensor  # log p(next state) [S]
    stayed: float  # probability that no step was done
    log_usual: Tensor  # log p(next state), if steps were done, without what the observation shows


class Chains:
    """Transitions of all lengths together, for recursions over [L, C, A].

    Args:
        states: States of each task.
        lengths: The L numbers of steps, ascending.
        transitions: Scores of transitions of each length, [C, A, A] each.
    """

    def __init__(
        self, states: TaskStates, lengths: Sequence[int], transitions: Sequence[Tensor]
    ) -> None:
        self.states, self.lengths, self.transitions = states, tuple(lengths), tuple(transitions)
        self._sums = TransitionSums(
            torch.cat(self.transitions), states.real.repeat(len(lengths), 1)
        )

    def posterior(self, scores: Sequence[SequenceScores], log_lengths: Tensor) -> SequencePosterior:
        """Return the distribution by the scores of each length, of one query."""
        states, longest = self.states, self.lengths[-1]
        emissions = torch.stack(
            [
                F.pad(
                    states.padded(length_scores.emissions[0]),
                    (0, 0, 0, 0, 0, longest - length_scores.horizon),
                )
                for length_scores in scores
            ],
            dim=1,
        )  # [T, L, C, A]
        messages = [torch.zeros_like(emissions[0])]
        for place in range(longest - 1, 0, -1):
            # β_t−1(a) = log Σ_b exp(w(a, b) + e_t(b) + β_t(b)), 0 at the last step
            before = self.backward(emissions[place] + messages[0])
            messages.insert(0, before.masked_fill(self.ended(place), 0.0))
        return SequencePosterior(emissions, torch.stack(messages), log_lengths, self)

    def forward(self, values: Tensor) -> Tensor:
        """Return log Σ_a exp(values[a] + w(a, b)) for each b: [L, C, A] → [L, C, A]."""
        return self._sums.forward(values.flatten(0, 1)[None])[0].view_as(values)

    def backward(self, values: Tensor) -> Tensor:
        """Return log Σ_b exp(w(a, b) + values[b]) for each a: [L, C, A] → [L, C, A]."""
        return self._sums.backward(values.flatten(0, 1)[None])[0].view_as(values)

    def ended(self, place: int) -> Tensor:
        """Whether the sequences of each length have ended before a place, bool [L, 1, 1]."""
        device = self.states.actions.device
        return torch.tensor(self.lengths, device=device)[:, None, None] <= place


class SessionPlanner(PlannerOfLengths, Protocol):
    """A planner whose model guides live sessions."""

    if TYPE_CHECKING:

        @property
        def model(self) -> AnyLengthModel:
            """Its trained model."""

        @property
        def mean_observation(self) -> NDArray[np.float32] | None:
            """Mean observation of its training windows [E]; None if it is unknown."""

    def ranked(
        self,
        queries: Queries,
        every: Sequence[SequenceScores],
        log_lengths: Tensor,
        log_tasks: Tensor,
        top_k: int,
    ) -> list[Plans]:
        """Return the likeliest sequences; see `AnyLengthPlanner.ranked`."""


def guides_sessions(planner: Planner) -> TypeGuard[SessionPlanner]:
    """Return whether a planner guides live sessions."""
    return plans_lengths(planner) and isinstance(getattr(planner, "model", None), AnyLengthModel)


class SessionModel:
    """The exact inference of a model of any length, for lengths that a live session needs."""

    @torch.inference_mode()
    def __init__(self, model: AnyLengthModel, lengths: Sequence[int]) -> None:
        self.model, self.lengths = model, tuple(lengths)
        self.nothing = self.encode(None)
        self._prior = self._first_states(self.nothing)  # log p(first state) [S]
        nothing = self._known(None, None, None)
        _, scores = model.parts(nothing, self.lengths)
        self._chains = Chains(
            model.states, self.lengths, [length_scores.transitions for length_scores in scores]
        )

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
    def log_ratios(self, observation: Encoded) -> Tensor:
        """Return log p(next state | observation alone) − log p(next state) [S]."""
        return self._first_states(observation) - self._prior

    @torch.inference_mode()
    def posterior(
        self,
        initial: Encoded | None,
        goal: Encoded | None,
        # probabilities of the actions of each step done, oldest first, [D, K]; None if unknown
        done: Tensor | None,
    ) -> SequencePosterior:
        """Return the distribution of what follows the steps done.

        Args:
            initial: Initial observation, if it is known.
            goal: Goal observation, if it is known.
            done: Probabilities of the actions of each step done, oldest first [D, K]; None if
                unknown.
        """
        inputs = self._known(initial, goal, done)
        log_lengths, scores = self.model.parts(inputs, self.lengths)
        return self._chains.posterior(scores, log_lengths[0])

    def _known(
        self, initial: Encoded | None, goal: Encoded | None, done: Tensor | None
    ) -> tuple[Known, ...]:
        seen = torch.tensor([[initial is not None, goal is not None]], device=self.model.device)
        usual, told = None, done is not None or goal is None
        if self.model.usual is not None and initial is None and told:
            ids = None if done is None else done.argmax(dim=1)[None].cpu().numpy()
            usual = self.model.usual.log_states(ids, 1)
        return tuple(
            Known(
                torch.stack([first[0], last[1]])[None],
                seen,
                self._history(done, network.config.recency),
                usual=usual,
            )
            for network, first, last in zip(
                self.model.networks, initial or self.nothing, goal or self.nothing, strict=True
            )
        )

    def _history(self, done: Tensor | None, recency: float) -> History:
        """Return the features of the steps done, of whose rows [D, K] each is made to sum to 1."""
        device, count = self.model.device, self.model.states.lookup.shape[1]
        rows = torch.zeros(0, count, device=device) if done is None else done.to(device)
        rows = rows / rows.sum(dim=1, keepdim=True).clamp_min(1e-30)
        is_known = torch.tensor([done is not None], device=device)
        return History.of(rows[None], is_known, recency)

    def _first_states(self, observation: Encoded) -> Tensor:
        """Return log p(first state | initial observation alone) [S], by the shortest chain."""
        initial = None if observation is self.nothing else observation
        inputs = tuple(
            replace(member_inputs, usual=None) for member_inputs in self._known(initial, None, None)
        )
        return self.model.parts(inputs, self.model.lengths[:1])[1][0].log_marginals()[0, 0]
