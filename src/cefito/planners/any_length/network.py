"""The network that scores sequences of all lengths of a range, and its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.field.predictor import Dropout
from cefito.planners.any_length.settings import AnyLengthConfig, AnyLengthTrainingConfig
from cefito.planners.crf.inference import SequenceScores, TaskStates
from cefito.planners.crf.network import CrfOutputs
from cefito.runtime import Processes
from cefito.training.augmentation import Observations
from cefito.training.trainer import Term

__all__ = ["AnyLengthLoss", "AnyLengthNetwork", "History", "Known"]


@dataclass(frozen=True)
class History:
    """Steps done before B queries; all zero if they are unknown."""

    done: Tensor  # whether each action was done [B, K]
    recent: Tensor  # recency of each action: γ^n if n steps were done after it [B, K]
    last: Tensor  # the last one, one-hot [B, K]
    facts: Tensor  # whether they are known, and log(1 + their number) [B, 2]

    @classmethod
    def of(cls, weights: Tensor, known: Tensor, recency: float) -> History:
        """Return the features of steps with weights [B, D, K], oldest first, zero after the last.

        Weights are one-hot if it is known which actions were done, otherwise their probabilities.
        """
        weights = weights * known[:, None, None]
        mass = weights.sum(dim=2)  # 1 for steps, 0 for padding [B, D]
        after = mass.flip(1).cumsum(1).flip(1) - mass  # number of steps after each
        decay = torch.where(mass > 0, recency**after, 0.0)
        newest = (mass > 0) & (after < 0.5)
        number = mass.sum(dim=1)
        return cls(
            done=weights.sum(dim=1).clamp(max=1),
            recent=torch.einsum("bd,bdk->bk", decay, weights).clamp(max=1),
            last=torch.einsum("bd,bdk->bk", newest.float(), weights),
            facts=torch.stack([known.float(), number.log1p()], dim=1),
        )

    @classmethod
    def of_actions(cls, done: Tensor, known: Tensor, count: int, recency: float) -> History:
        """Return the features of action ids [B, D], oldest first, −1 for none, of `count` ids."""
        return cls.of(F.one_hot(done + 1, count + 1)[:, :, 1:].float(), known, recency)

    def rows(self, index: Tensor | slice) -> History:
        """Return the history of some queries."""
        return History(**{name: value[index] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Known:
    """What is known of B queries."""

    encoded: Tensor  # initial observation and goal, encoded [B, 2, W]
    seen: Tensor  # whether each of both is known, bool [B, 2]
    history: History

    def rows(self, index: Tensor | slice) -> Known:
        """Return what is known of some queries."""
        return Known(self.encoded[index], self.seen[index], self.history.rows(index))


class _Head(nn.Module):
    """Emissions and transitions of the sequences of one length."""

    def __init__(self, *, config: AnyLengthConfig, states: TaskStates, length: int) -> None:
        super().__init__()
        self.config, self.length = config, length
        size, actions = len(states), states.lookup.shape[1]
        self.hidden = nn.Linear(2 * config.width, config.emission)
        self.before = nn.Linear(2 * actions, config.emission, bias=False)
        self.emission = nn.Linear(config.emission, length * size)
        self.ends = nn.Parameter(torch.empty(2, size, config.width))
        self.scale = nn.Parameter(torch.tensor(config.scale))
        self.end_factors = nn.Parameter(torch.full((2,), config.ends))
        self.change = nn.Parameter(torch.zeros(*states.grid.shape, states.grid.shape[1]))
        self.repeated = nn.Parameter(torch.zeros(length))  # added where an action was done before
        self.follows = nn.Parameter(torch.tensor(0.5))  # factor of the last step's transitions

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights that do not begin at their constants."""
        for layer in (self.hidden, self.emission):
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.before.weight)
        nn.init.normal_(self.ends, generator=generator)
        nn.init.constant_(self.scale, self.config.scale)
        nn.init.constant_(self.end_factors, self.config.ends)
        nn.init.zeros_(self.change)
        nn.init.zeros_(self.repeated)
        nn.init.constant_(self.follows, 0.5)

    def forward(
        self, known: Known, states: TaskStates, counted: Tensor, generator: torch.Generator | None
    ) -> CrfOutputs:
        """Compute the scores of all sequences of the length, and the logits of their ends."""
        history, seen = known.history, known.seen
        between = self.hidden(_drop(known.encoded, self.config.dropout, generator).flatten(1))
        between = F.gelu(between + self.before(torch.cat([history.done, history.recent], dim=1)))
        emissions = self.emission(_drop(between, self.config.dropout, generator))
        emissions = emissions.unflatten(1, (self.length, -1)).float()  # [B, T, S]
        transitions = counted + self.change  # [C, A, A]
        directions = F.normalize(self.ends, dim=-1)
        encoded = F.normalize(known.encoded.float(), dim=-1)
        cosines = torch.einsum("bed,esd->bes", encoded, directions)
        logits = self.scale * cosines.float()  # of the first and the last state, [B, 2, S]
        read = torch.zeros_like(emissions)
        read[:, 0] += self.end_factors[0] * logits[:, 0] * seen[:, :1]
        read[:, -1] += self.end_factors[1] * logits[:, 1] * seen[:, 1:]
        # actions that were done before, at each step; the last one's transition to the first step
        read = read + self.repeated[:, None] * history.done[:, None, states.actions]
        last = F.pad(history.last[:, states.actions], (0, 1))[:, states.grid]  # [B, C, A]
        after = torch.einsum("bca,cad->bcd", last, transitions)
        read[:, 0] += self.follows * states.flat(after)
        scores = SequenceScores(states, emissions + read, transitions)
        return CrfOutputs(scores=scores, first=logits[:, 0], last=logits[:, 1])


class AnyLengthNetwork(nn.Module):
    """One encoder of observations for all lengths; emissions and transitions of each length.

    Unknown observations are replaced by learned vectors. The length is read from the encoded
    observations and from the steps done before.
    """

    mean: Tensor
    counted: Tensor

    def __init__(
        self,
        *,
        config: AnyLengthConfig,
        states: TaskStates,
        observation_dim: int,
        lengths: Sequence[int],
        transitions: Tensor | None = None,
    ) -> None:
        # transitions: logarithms of smoothed counts [C, A, A]; see `smoothed_transitions`
        super().__init__()
        self.config, self.lengths = config, tuple(lengths)
        self.observation_dim = observation_dim
        (tasks, actions), known = states.grid.shape, states.lookup.shape[1]
        self.encoder = nn.Linear(observation_dim, config.hidden)
        self.narrowing = nn.Linear(config.hidden, config.width)
        self.unknown = nn.Parameter(torch.zeros(2, config.width))
        self.heads = nn.ModuleList(
            _Head(config=config, states=states, length=length) for length in self.lengths
        )
        self.length_hidden = nn.Linear(2 * config.width + 4, config.width)
        self.length_before = nn.Linear(2 * known, len(self.lengths), bias=False)
        self.length = nn.Linear(config.width, len(self.lengths))
        self.register_buffer("mean", torch.zeros(observation_dim))
        counted = torch.zeros(tasks, actions, actions) if transitions is None else transitions
        self.register_buffer("counted", counted.clone())
        for part in fields(states):  # the others are derived from the saved one
            saved = part.name == "lookup"
            self.register_buffer(
                f"states_{part.name}", getattr(states, part.name), persistent=saved
            )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew."""
        for layer in (self.encoder, self.narrowing, self.length_hidden, self.length):
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.unknown)
        nn.init.zeros_(self.length_before.weight)
        for head in self.heads:
            assert isinstance(head, _Head)
            head.reset(generator)

    @property
    def states(self) -> TaskStates:
        """The states, on the device of the network."""
        return TaskStates(
            **{part.name: getattr(self, f"states_{part.name}") for part in fields(TaskStates)}
        )

    def known(
        self,
        initial: Tensor,  # [B, E]
        goal: Tensor,  # [B, E]
        seen: Tensor,  # bool [B, 2]
        history: History,
        generator: torch.Generator | None = None,
    ) -> Known:
        """Encode what is known of queries."""
        rows = torch.stack([initial, goal], dim=1).float()
        if self.config.centre:
            rows = rows - self.mean
        if self.config.normalise:
            rows = F.layer_norm(rows, rows.shape[-1:], eps=1e-6)
        rows = _drop(rows, self.config.input_dropout, generator)
        # without an activation between the two linear layers, multiplying their weights is cheaper
        weight = self.narrowing.weight @ self.encoder.weight
        encoded = F.linear(rows, weight, self.narrowing(self.encoder.bias))
        return Known(torch.where(seen[:, :, None], encoded, self.unknown), seen, history)

    def outputs(
        self, length: int, known: Known, generator: torch.Generator | None = None
    ) -> CrfOutputs:
        """Compute the scores of all sequences of a length."""
        head = self.heads[self.lengths.index(length)]
        outputs: CrfOutputs = head(known, self.states, self.counted, generator)
        return outputs

    def length_logits(self, known: Known, generator: torch.Generator | None = None) -> Tensor:
        """Compute the logits of the lengths [B, L]."""
        history = known.history
        facts = torch.cat([known.encoded.flatten(1), known.seen.float(), history.facts], dim=1)
        hidden = F.gelu(self.length_hidden(_drop(facts, self.config.dropout, generator)))
        before = self.length_before(torch.cat([history.done, history.recent], dim=1))
        logits: Tensor = (self.length(hidden) + before).float()
        return logits


class AnyLengthLoss:
    """−log p(task, sequence | length, what is known), and cross-entropies of length and ends.

    With a goal the length is that of the window; without one it is the number of steps to the end
    of the video, at most the longest.
    """

    def __init__(
        self,
        *,
        network: AnyLengthNetwork,
        train: Windows,
        val: Windows,
        config: AnyLengthTrainingConfig,
    ) -> None:
        self.module, self.config = network, config
        self.device = network.mean.device
        self.observations = Observations(train, config.augmentation, self.device)
        self.train, self.val = _Rows(train, network), _Rows(val, network)
        self.val_seen = torch.ones(len(val), 2, dtype=torch.bool, device=self.device)
        self.val_initial, self.val_goal = (
            torch.from_numpy(part).to(self.device) for part in (val.initial, val.goal)
        )

    def __len__(self) -> int:
        return len(self.train.lengths)

    def terms(
        self, rows: Tensor, generator: torch.Generator, group: Processes
    ) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        config = self.config
        drawn = torch.rand(3, len(rows), generator=generator, device=rows.device)
        hidden = torch.tensor(
            [config.hide_initial, config.hide_goal, config.hide_done], device=rows.device
        )
        kept = torch.rand(
            len(rows), self.train.before.shape[1], generator=generator, device=rows.device
        )
        initial, goal, seen, remembered, rows = (
            group.share(part)
            for part in (
                *self.observations.draw(rows, generator),
                (drawn >= hidden[:, None]).T,
                kept >= config.forget,
                rows,
            )
        )
        history = self.train.history(rows, seen[:, 2], self.module, remembered)
        known = self.module.known(initial, goal, seen[:, :2], history, generator)
        lengths, states = self.train.lengths[rows], self.train.states[rows]
        sequence, ends = [], []
        for length in self.module.lengths:
            own = (lengths == length).nonzero()[:, 0]
            if not len(own):
                continue
            outputs = self.module.outputs(length, known.rows(own), generator)
            actual = states[own, :length]
            sequence.append(-outputs.scores.log_probabilities(actual).sum())
            for place, logits in ((0, outputs.first), (1, outputs.last)):
                losses = F.cross_entropy(logits, actual[:, -place], reduction="none")
                ends.append((losses * seen[own, place]).sum() / 2)
        count = torch.tensor(len(rows), device=rows.device)
        # to the end of the video, or the longest, if the goal is not known
        target = torch.where(seen[:, 1], lengths, self.train.remaining[rows])
        logits = self.module.length_logits(known, generator)
        right = F.cross_entropy(logits, target - self.module.lengths[0], reduction="sum")
        terms = {"sequence": Term(1.0, torch.stack(sequence).sum(), count)}
        if config.length_weight:
            terms["length"] = Term(config.length_weight, right, count)
        if config.ends_weight:
            terms["ends"] = Term(config.ends_weight, torch.stack(ends).sum(), count)
        return terms

    def validate(self, group: Processes) -> Mapping[str, float]:  # noqa: ARG002
        """Return the success rate with the length given, and how often the length is right."""
        rows = torch.arange(len(self.val.lengths), device=self.device)
        history = self.val.history(rows, torch.zeros_like(rows, dtype=torch.bool), self.module)
        known = self.module.known(self.val_initial, self.val_goal, self.val_seen, history)
        right = 0
        for length in self.module.lengths:
            own = (self.val.lengths == length).nonzero()[:, 0]
            if len(own):
                best, _ = self.module.outputs(length, known.rows(own)).scores.best(1)
                actions = self.module.states.actions[best[:, 0]]
                right += int((actions == self.val.actions[own, :length]).all(dim=1).sum())
        guessed = self.module.length_logits(known).argmax(dim=1) + self.module.lengths[0]
        accuracy = float((guessed == self.val.lengths).double().mean())
        return {"success_rate": 100 * right / len(rows), "length_accuracy": 100 * accuracy}


class _Rows:
    """Sequences of windows of several lengths, on the device."""

    def __init__(self, windows: Windows, network: AnyLengthNetwork) -> None:
        device, longest = network.mean.device, network.lengths[-1]
        # windows of one length alone do not tell what was before and after them
        before = np.zeros((len(windows), 0), np.int64) if windows.before is None else windows.before
        remaining = windows.lengths if windows.remaining is None else windows.remaining
        self.actions = torch.from_numpy(windows.actions).to(device)
        self.lengths = torch.from_numpy(windows.lengths).to(device)
        self.remaining = torch.from_numpy(remaining).to(device).clamp(max=longest)
        self.before = torch.from_numpy(before).to(device)
        tasks = torch.from_numpy(windows.tasks).to(device)
        found = network.states.find(tasks, self.actions.clamp_min(0))
        self.states = torch.where(self.actions >= 0, found, -1)  # [N, longest]

    def history(
        self,
        rows: Tensor,  # [B]
        known: Tensor,  # whether the steps before are known, bool [B]
        network: AnyLengthNetwork,
        remembered: Tensor | None = None,  # whether each of them is, bool [B, D]; None for all
    ) -> History:
        """Return the features of the steps before windows."""
        before = self.before[rows]
        if remembered is not None:
            before = before.masked_fill(~remembered, -1)
        count, recency = network.states.lookup.shape[1], network.config.recency
        return History.of_actions(before, known, count, recency)


def _drop(values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    return values if generator is None else Dropout(rate, generator)(values)
