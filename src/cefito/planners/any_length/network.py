"""The network that scores sequences of all lengths of a range, and its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.planners.any_length.method import AnyLengthConfig, AnyLengthTrainingConfig
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.network import CrfOutputs
from cefito.planners.chain.states import ObservationEncoder, TaskStates, WordSharing, dropped
from cefito.planners.shared.layers import draw_layers
from cefito.training.losses import WindowLoss
from cefito.training.trainer import Term


@dataclass(frozen=True)
class History:
    """Steps done before B queries; all zero if they are unknown."""

    done: Tensor  # whether each action was done [B, K]
    recent: Tensor  # recency of each action: γ^n if n steps were done after it [B, K]
    last: Tensor  # the last one, one-hot [B, K]
    facts: Tensor  # whether they are known, and log(1 + their number) [B, 2]

    @classmethod
    def of(cls, weights: Tensor, is_known: Tensor, recency: float) -> History:
        """Return the features of steps with weights [B, D, K], oldest first, zero after the last.

        Weights are one-hot if it is known which actions were done, otherwise their probabilities.

        Args:
            weights: Weights of the actions of each step done [B, D, K].
            is_known: Whether it is known what was done, bool [B].
            recency: Factor of a step's weight for each step after it.
        """
        weights = weights * is_known[:, None, None]
        mass = weights.sum(dim=2)  # 1 for steps, 0 for padding [B, D]
        after = mass.flip(1).cumsum(1).flip(1) - mass  # number of steps after each
        decay = torch.where(mass > 0, recency**after, 0.0)
        newest = (mass > 0) & (after < 0.5)
        number = mass.sum(dim=1)
        return cls(
            done=weights.sum(dim=1).clamp(max=1),
            recent=torch.einsum("bd,bdk->bk", decay, weights).clamp(max=1),
            last=torch.einsum("bd,bdk->bk", newest.float(), weights),
            facts=torch.stack([is_known.float(), number.log1p()], dim=1),
        )

    @classmethod
    def of_actions(cls, done: Tensor, is_known: Tensor, count: int, recency: float) -> History:
        """Return the features of action ids [B, D], oldest first, −1 for none, of `count` ids.

        Args:
            done: Action ids [B, D], oldest first, −1 for none.
            is_known: Whether it is known what was done, bool [B].
            count: K.
            recency: Factor of a step's weight for each step after it.
        """
        return cls.of(F.one_hot(done + 1, count + 1)[:, :, 1:].float(), is_known, recency)

    def rows(self, index: Tensor | slice) -> History:
        """Return the history of some queries."""
        return History(**{name: value[index] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Known:
    """What is known of B queries."""

    encoded: Tensor  # initial observation and goal, encoded [B, 2, W]
    seen: Tensor  # whether each of both is known, bool [B, 2]
    history: History
    elapsed: Tensor | None = None  # seconds between both, NaN if unknown [B]; None if all are
    usual: Tensor | None = None  # log p of the next states by n-grams [B, S]; None if not asked

    def rows(self, index: Tensor | slice) -> Known:
        """Return what is known of some queries."""
        return Known(
            self.encoded[index],
            self.seen[index],
            self.history.rows(index),
            None if self.elapsed is None else self.elapsed[index],
            None if self.usual is None else self.usual[index],
        )


class _Head(WordSharing):
    """Emissions and transitions of the sequences of one length."""

    def __init__(self, *, config: AnyLengthConfig, states: TaskStates, length: int) -> None:
        super().__init__()
        self.config = config
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
            draw_layers(layer, generator)
        nn.init.zeros_(self.before.weight)
        nn.init.normal_(self.ends, generator=generator)
        nn.init.constant_(self.scale, self.config.scale)
        nn.init.constant_(self.end_factors, self.config.ends)
        nn.init.zeros_(self.change)
        nn.init.zeros_(self.repeated)
        nn.init.constant_(self.follows, 0.5)
        if self.words is not None:
            self.words.reset(generator)

    def forward(
        self, inputs: Known, states: TaskStates, counted: Tensor, generator: torch.Generator | None
    ) -> CrfOutputs:
        """Compute the scores of all sequences of the length, and the logits of their ends."""
        history, seen = inputs.history, inputs.seen
        between = self.hidden(dropped(inputs.encoded, self.config.dropout, generator).flatten(1))
        between = F.gelu(between + self.before(torch.cat([history.done, history.recent], dim=1)))
        hidden = dropped(between, self.config.dropout, generator)
        emissions, logits = self.read(hidden, inputs.encoded)
        transitions = counted + self.change  # [C, A, A]
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


class _Elapsed(nn.Module):
    """Correction of the length's logits by the time between both observations."""

    def __init__(self, *, width: int, lengths: int) -> None:
        super().__init__()
        self.time = nn.Linear(3, width, bias=False)
        self.length = nn.Linear(width, lengths, bias=False)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights anew; at first there is no correction."""
        nn.init.kaiming_uniform_(self.time.weight, a=5**0.5, generator=generator)
        nn.init.zeros_(self.length.weight)

    def forward(self, hidden: Tensor, seconds: Tensor) -> Tensor:
        """Return what is added to the logits [B, L], zero where the seconds [B] are NaN."""
        z = ((seconds.log() - 3.5) / 1.5).clamp(-3, 3).nan_to_num()  # from 0.4 s to 50 minutes
        time = self.time(torch.stack([torch.ones_like(z), z, z**2], dim=1))
        correction: Tensor = self.length(F.gelu(hidden + time)).float()
        return torch.where(seconds.isfinite()[:, None], correction, 0.0)


class AnyLengthNetwork(ObservationEncoder):
    """One encoder of observations for all lengths; emissions and transitions of each length.

    Unknown observations are replaced by learned vectors. The length is read from the encoded
    observations, from the time between them and from the steps done before.

    Args:
        config: Sizes.
        states: States of each task.
        observation_dim: Width E of observations.
        lengths: Numbers of steps, ascending.
        timed: Whether training windows have times.
        transitions: Logarithms of smoothed counts [C, A, A]; see `smoothed_transitions`.
    """

    config: AnyLengthConfig
    counted: Tensor

    def __init__(
        self,
        *,
        config: AnyLengthConfig,
        states: TaskStates,
        observation_dim: int,
        lengths: Sequence[int],
        timed: bool,
        transitions: Tensor | None = None,
    ) -> None:
        super().__init__(config, observation_dim)
        self.lengths = tuple(lengths)
        self.horizon = self.lengths[-1]
        (tasks, actions), action_count = states.grid.shape, states.lookup.shape[1]
        self.unknown = nn.Parameter(torch.zeros(2, config.width))
        self.heads = nn.ModuleList(
            _Head(config=config, states=states, length=length) for length in self.lengths
        )
        self.length_hidden = nn.Linear(2 * config.width + 4, config.width)
        self.length_before = nn.Linear(2 * action_count, len(self.lengths), bias=False)
        self.length = nn.Linear(config.width, len(self.lengths))
        self.elapsed = _Elapsed(width=config.width, lengths=len(self.lengths)) if timed else None
        counted = torch.zeros(tasks, actions, actions) if transitions is None else transitions
        self.register_buffer("counted", counted.clone())
        self._register(states)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew."""
        for layer in (self.encoder, self.narrowing, self.length_hidden, self.length):
            draw_layers(layer, generator)
        nn.init.zeros_(self.unknown)
        nn.init.zeros_(self.length_before.weight)
        for head in self.heads:
            assert isinstance(head, _Head)
            head.reset(generator)
        if self.elapsed is not None:
            self.elapsed.reset(generator)

    def known(
        self,
        initial: Tensor,
        goal: Tensor,
        seen: Tensor,
        history: History,
        elapsed: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Known:
        """Encode what is known of queries.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            seen: Which of both is known, bool [B, 2].
            history: Features of the steps done.
            elapsed: Seconds between both observations [B], NaN if unknown.
            generator: Draws the dropout; None for none.
        """
        encoded = self.encoded(torch.stack([initial, goal], dim=1).float(), generator)
        encoded = torch.where(seen[:, :, None], encoded, self.unknown)
        return Known(encoded, seen, history, elapsed)

    def outputs(
        self, length: int, inputs: Known, generator: torch.Generator | None = None
    ) -> CrfOutputs:
        """Compute the scores of all sequences of a length.

        Args:
            length: Number of steps.
            inputs: What is known of B queries.
            generator: Draws the dropout; None for none.
        """
        head = self.heads[self.lengths.index(length)]
        outputs: CrfOutputs = head(inputs, self.states, self.counted, generator)
        return outputs

    def length_logits(
        self, inputs: Known, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the logits of the lengths [B, L], without the time between observations and with.

        The time corrects the logits without it, where it is known, and passes no gradient on to
        them: the network learns everything else as if there were no times.
        """
        history = inputs.history
        facts = torch.cat([inputs.encoded.flatten(1), inputs.seen.float(), history.facts], dim=1)
        hidden = self.length_hidden(dropped(facts, self.config.dropout, generator))
        before = self.length_before(torch.cat([history.done, history.recent], dim=1))
        logits: Tensor = (self.length(F.gelu(hidden)) + before).float()
        if self.elapsed is None or inputs.elapsed is None:
            return logits, logits
        return logits, logits.detach() + self.elapsed(hidden.detach(), inputs.elapsed)


class AnyLengthLoss(WindowLoss):
    """−log p(task, sequence | length, what is known), and cross-entropies of length and ends.

    With a goal the length is that of the window; without one it is the number of steps to the end
    of the video, at most the longest. Arguments are as of `WindowLoss`.
    """

    def __init__(
        self,
        network: AnyLengthNetwork,
        train: Windows,
        val: Windows,
        training: AnyLengthTrainingConfig,
    ) -> None:
        super().__init__(network, train, val, training)
        self.train, self.val_rows = _Rows(train, network), _Rows(val, network)
        self.val_seen = torch.ones(len(val), 2, dtype=torch.bool, device=self.device)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        config = self.config
        drawn = torch.rand(3, len(rows), generator=generator, device=rows.device)
        hidden = torch.tensor(
            [config.hide_initial, config.hide_goal, config.hide_done], device=rows.device
        )
        kept = torch.rand(
            len(rows), self.train.before.shape[1], generator=generator, device=rows.device
        )
        initial, goal = self.observations.draw(rows, generator)
        seen = (drawn >= hidden[:, None]).T
        history = self.train.history(rows, seen[:, 2], self.module, kept >= config.forget)
        # the time between both observations is used where both are known
        elapsed = self.train.elapsed[rows].masked_fill(~seen[:, :2].all(dim=1), torch.nan)
        inputs = self.module.known(initial, goal, seen[:, :2], history, elapsed, generator)
        lengths, states = self.train.lengths[rows], self.train.states[rows]
        sequence, ends = [], []
        for length in self.module.lengths:
            of_length = (lengths == length).nonzero()[:, 0]
            if not len(of_length):
                continue
            outputs = self.module.outputs(length, inputs.rows(of_length), generator)
            actual = states[of_length, :length]
            sequence.append(-outputs.scores.log_probabilities(actual).sum())
            for place, logits in ((0, outputs.first), (1, outputs.last)):
                losses = F.cross_entropy(logits, actual[:, -place], reduction="none")
                ends.append((losses * seen[of_length, place]).sum() / 2)
        count = torch.tensor(len(rows), device=rows.device)
        # to the end of the video, or the longest, if the goal is not known
        shortest = self.module.lengths[0]
        target = torch.where(seen[:, 1], lengths, self.train.remaining[rows])
        logits, timed = self.module.length_logits(inputs, generator)
        right = F.cross_entropy(logits, target - shortest, reduction="sum")
        terms = {"sequence": Term(1.0, torch.stack(sequence).sum(), count)}
        if config.length_weight:
            terms["length"] = Term(config.length_weight, right, count)
            if self.module.elapsed is not None:
                there = elapsed.isfinite().nonzero()[:, 0]
                right = F.cross_entropy(timed[there], (target - shortest)[there], reduction="sum")
                terms["timed_length"] = Term(config.length_weight, right, count)
        if config.ends_weight:
            terms["ends"] = Term(config.ends_weight, torch.stack(ends).sum(), count)
        return terms

    def validate(self) -> Mapping[str, float]:
        """Return the success rate with the length given, and how often the length is right."""
        val, (initial, goal, actual) = self.val_rows, self.val
        rows = torch.arange(len(actual), device=self.device)
        history = val.history(rows, torch.zeros_like(rows, dtype=torch.bool), self.module)
        inputs = self.module.known(initial, goal, self.val_seen, history)
        right = 0
        for length in self.module.lengths:
            of_length = (val.lengths == length).nonzero()[:, 0]
            if len(of_length):
                best, _ = self.module.outputs(length, inputs.rows(of_length)).scores.best(1)
                actions = self.module.states.actions[best[:, 0]]
                right += int((actions == actual[of_length, :length]).all(dim=1).sum())
        guessed = self.module.length_logits(inputs)[0].argmax(dim=1) + self.module.lengths[0]
        accuracy = float((guessed == val.lengths).double().mean())
        rate = 100 * right / len(rows)
        return {"success_rate_of_known_length": rate, "length_accuracy": 100 * accuracy}


class _Rows:
    """Sequences of windows of several lengths, on the device."""

    def __init__(self, windows: Windows, network: AnyLengthNetwork) -> None:
        device, longest = network.mean.device, network.lengths[-1]
        # windows of one length alone do not tell what was before and after them
        before = np.zeros((len(windows), 0), np.int64) if windows.before is None else windows.before
        remaining = windows.lengths if windows.remaining is None else windows.remaining
        elapsed = np.full(len(windows), np.nan, np.float32)
        if windows.elapsed is not None:
            elapsed = windows.elapsed
        self.elapsed = torch.from_numpy(elapsed).to(device)
        actions = torch.from_numpy(windows.actions).to(device)
        self.lengths = torch.from_numpy(windows.lengths).to(device)
        self.remaining = torch.from_numpy(remaining).to(device).clamp(max=longest)
        self.before = torch.from_numpy(before).to(device)
        tasks = torch.from_numpy(windows.tasks).to(device)
        states = network.states.find(tasks, actions.clamp_min(0))
        self.states = torch.where(actions >= 0, states, -1)  # [N, longest]

    def history(
        self,
        rows: Tensor,  # [B]
        is_known: Tensor,  # whether the steps before are known, bool [B]
        network: AnyLengthNetwork,
        remembered: Tensor | None = None,  # whether each of them is, bool [B, D]; None for all
    ) -> History:
        """Return the features of the steps before windows."""
        before = self.before[rows]
        if remembered is not None:
            before = before.masked_fill(~remembered, -1)
        count, recency = network.states.lookup.shape[1], network.config.recency
        return History.of_actions(before, is_known, count, recency)
