"""Exact inference in a chain over actions: sums over sequences, and the best ones.

Sums over sequences are padded to the largest of a block of tasks of similar size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cefito.planners.chain.states import TaskStates

_CHUNK = 2**20  # size of the largest intermediate array of decoding, which fits into caches
_SIDE_BY_SIDE = 32  # queries, from which on maxima over them side by side are faster


@dataclass(frozen=True)
class SequenceScores:
    """Scores of all sequences of B queries, with exact inference."""

    states: TaskStates
    emissions: Tensor  # e, the score of each state at each step [B, T, S]; −∞ forbids
    # w, the score of each transition within a task, from axis 1 to axis 2, [C, A, A]; −∞ forbids.
    # Places without a state are ignored
    transitions: Tensor
    sums: Tensor | None = None  # what `log_task_sums` returns, if that is known

    def __len__(self) -> int:
        return len(self.emissions)

    @property
    def horizon(self) -> int:
        """T."""
        return self.emissions.shape[1]

    def heated(self, temperature: float) -> SequenceScores:
        """Return the CRF with scores / temperature: p^(1 / temperature), normalised again."""
        return SequenceScores(
            self.states, self.emissions / temperature, self.transitions / temperature
        )

    def weighing_tasks(self, power: float) -> SequenceScores:
        """Return the CRF with p(task)^power, normalised again, and the same p(sequence | task)."""
        if power == 1:
            return self
        sums = self.log_task_sums()
        logs = sums - _log_sum(sums)[:, None]
        offsets = torch.where(logs.isfinite(), (power - 1) * logs, 0.0)  # [B, C]
        emissions = self.emissions.clone()
        emissions[:, 0] += offsets[:, self.states.tasks]
        return SequenceScores(self.states, emissions, self.transitions, sums + offsets)

    def rows(self, index: Tensor | slice) -> SequenceScores:
        """Return the CRF of some queries."""
        sums = None if self.sums is None else self.sums[index]
        return SequenceScores(self.states, self.emissions[index], self.transitions, sums)

    def scores(self, states: Tensor) -> Tensor:
        """Return unnormalised scores of sequences."""
        # states [B, n, T] or [B, T] → scores [B, n] or [B]; −∞ for impossible sequences: with −1,
        # or with states of several tasks
        single = states.ndim == 2
        rows = states[:, None] if single else states
        indices = rows.clamp_min(0)
        steps = torch.arange(self.horizon, device=states.device)
        queries = torch.arange(len(self), device=states.device)[:, None, None]
        total = self.emissions[queries, steps, indices].sum(dim=2)  # Σ_t e_t(a_t), [B, n]
        task, place = self.states.tasks[indices], self.states.place[indices]
        # + Σ_t w(a_t, a_t+1)
        total = total + self.transitions[task[..., :-1], place[..., :-1], place[..., 1:]].sum(dim=2)
        possible = (rows >= 0).all(dim=2) & (task == task[..., :1]).all(dim=2)
        total = torch.where(possible, total, -torch.inf)
        return total[:, 0] if single else total

    def given(self, tasks: Tensor) -> SequenceScores:
        """Return the CRF of the sequences of one known task of each query [B]."""
        return self.within(tasks[:, None])

    def within(self, tasks: Tensor) -> SequenceScores:
        """Return the CRF of the sequences of some tasks of each query, int64 [B, n]."""
        others = torch.ones(len(tasks), self.states.task_count, dtype=torch.bool).to(tasks.device)
        others.scatter_(1, tasks, False)  # [B, C]
        emissions = self.emissions.masked_fill(others[:, None, self.states.tasks], -torch.inf)
        return SequenceScores(self.states, emissions, self.transitions)

    def log_task_sums(self) -> Tensor:
        """Return log Σ exp(score) over the sequences of each task [B, C] (forward recursion)."""
        if self.sums is not None:
            return self.sums
        apply: Any = _TaskSums.apply
        sums: Tensor = apply(self.emissions, self.transitions, self.states)
        return sums

    def log_partition(self) -> Tensor:
        """Return log Z = log Σ exp(score) over all sequences of all tasks [B]."""
        return _log_sum(self.log_task_sums())

    def log_tasks(self) -> Tensor:
        """Return log p(task | observations), summed over sequences, [B, C]."""
        sums = self.log_task_sums()
        return sums - _log_sum(sums)[:, None]

    def log_probabilities(self, states: Tensor) -> Tensor:
        """Return log p(task, sequence | observations); arguments and shape as in `scores`."""
        total = self.log_partition()
        return self.scores(states) - (total if states.ndim == 2 else total[:, None])

    def sequence_scores(self, sequences: Tensor) -> Tensor:
        """Return log Σ_c exp(score) of action sequences [B, n, T] over tasks that allow them."""
        owners = self.states.owners[sequences[:, :, 0]]  # tasks of the first action [B, n, M]
        missing = owners == self.states.task_count
        tasks = owners.masked_fill(missing, 0)
        states = self.states.find(tasks, sequences[:, :, None].expand(-1, -1, tasks.shape[2], -1))
        states = states.masked_fill(missing[..., None], -1)
        values = self.scores(states.flatten(1, 2)).unflatten(1, owners.shape[1:])
        return _log_sum(values)

    def log_sequence_probabilities(self, sequences: Tensor) -> Tensor:
        """Return log p [B] of action sequences [B, T], summed over the tasks that allow them."""
        return self.sequence_scores(sequences[:, None])[:, 0] - self.log_partition()

    def log_marginals(self) -> Tensor:
        """Return the log marginals of each state at each step, [B, T, S] (forward-backward)."""
        mix = TransitionSums(self.transitions, self.states.real)
        padded = self.states.padded(self.emissions)  # [B, T, C, A]
        alpha, beta = [padded[:, 0]], [torch.zeros_like(padded[:, 0])]
        for step in range(1, self.horizon):
            alpha.append(mix.forward(alpha[-1]) + padded[:, step])
        for step in range(self.horizon - 1, 0, -1):
            # β_t−1(a) = log Σ_b exp(w(a, b) + e_t(b) + β_t(b))
            beta.insert(0, mix.backward(beta[0] + padded[:, step]))
        # log p(a_t = a) = α_t(a) + β_t(a) − log Z
        joint = torch.stack(alpha, dim=1) + torch.stack(beta, dim=1)
        return self.states.flat(joint - _log_sum(joint.flatten(2))[..., None, None])

    def log_pairs(self) -> Tensor:
        """Return log p of the first two states, by their places in each task, [B, C, A, A].

        Sequences have at least two steps.
        """
        mix = TransitionSums(self.transitions, self.states.real)
        padded = self.states.padded(self.emissions)  # [B, T, C, A]
        beta = torch.zeros_like(padded[:, 0])
        for step in range(self.horizon - 1, 1, -1):
            # β_t−1(a) = log Σ_b exp(w(a, b) + e_t(b) + β_t(b))
            beta = mix.backward(beta + padded[:, step])
        # log p(a_1 = a, a_2 = b) = e_1(a) + w(a, b) + e_2(b) + β_2(b) − log Z
        after = (padded[:, 1] + beta)[:, :, None, :]
        joint = padded[:, 0, :, :, None] + self.transitions + after
        return joint - _log_sum(joint.flatten(1))[:, None, None, None]

    def of_tasks(self, tasks: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return emissions [B, T, n, A] and transitions [B or 1, n, A, A] of tasks [B, n]."""
        padded = self.states.padded(self.emissions)  # [B, T, C, A]
        if tasks is None:
            return padded, self.transitions[None]
        queries = torch.arange(len(padded), device=padded.device)[:, None]
        return padded[queries, :, tasks].transpose(1, 2), self.transitions[tasks]

    def highest(self, tasks: Tensor | None = None) -> Tensor:
        """Return the highest score of a sequence [B] of tasks as in `best`; −∞ without any."""
        padded, transitions = self.of_tasks(tasks)
        return (padded[:, 0] + _ahead(padded, transitions)[0]).flatten(1).amax(dim=1)

    def best(self, count: int, tasks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the `count` best sequences, exactly (k-best Viterbi); ties in order of states.

        A prefix is ranked by its score plus the highest score of what can follow it, which some
        sequence attains. So at most `count` prefixes of a length can begin the best `count`
        sequences, and no more are kept.
        """
        # tasks [B, n] to search, ascending, None for all → states [B, count, T], best first, and
        # scores [B, count]; −∞ if there are fewer. Columns that no query could fill are left out
        number, width = self.states.grid.shape
        number = number if tasks is None else tasks.shape[1]
        size = max(1, _CHUNK // ((number * width + count) * width))
        parts = [
            _best(
                self.rows(slice(first, first + size)),
                count,
                None if tasks is None else tasks[first : first + size],
            )
            for first in range(0, len(self), size)
        ]
        if not parts:
            empty = self.emissions.new_zeros(0, 0, self.horizon)
            return empty.long(), empty[..., 0]
        states, scores = zip(*parts, strict=True)
        return torch.cat(states), torch.cat(scores)


class TransitionSums:
    """Sums over transitions as matrix products: exp(w − max w), one [A, A] matrix for each task.

    Args:
        transitions: w [C, A, A].
        real: Places that have a state, bool [C, A].
    """

    def __init__(self, transitions: Tensor, real: Tensor) -> None:
        logs = transitions.masked_fill(~(real[:, :, None] & real[:, None, :]), -torch.inf)
        highest = logs.detach().amax(dim=(1, 2), keepdim=True)
        self.highest = highest.masked_fill(highest == -torch.inf, 0.0)
        self.factors = (logs - self.highest).exp()

    def forward(self, values: Tensor) -> Tensor:
        """Return log Σ_a exp(values[a] + w(a, b)) for each b: [B, C, A] → [B, C, A]."""
        return self._mixed(values, self.factors)

    def backward(self, values: Tensor) -> Tensor:
        """Return log Σ_b exp(w(a, b) + values[b]) for each a: [B, C, A] → [B, C, A]."""
        return self._mixed(values, self.factors.mT)

    def _mixed(self, values: Tensor, factors: Tensor) -> Tensor:
        top = values.detach().amax(dim=2, keepdim=True)
        top = top.masked_fill(top == -torch.inf, 0.0)
        # log-sum-exp with both maxima taken out: [C, B, A] @ [C, A, A]
        with torch.autocast(values.device.type, enabled=False):
            sums = torch.bmm((values - top).exp().transpose(0, 1), factors).transpose(0, 1)
        # unreachable states are −∞ with zero gradient, since the clamp precedes the logarithm
        logs = sums.clamp_min(torch.finfo(sums.dtype).tiny).log() + top + self.highest[:, 0]
        return torch.where(sums > 0, logs, -torch.inf)


class _TaskSums(torch.autograd.Function):
    """log Σ exp(score) over the sequences of each task [B, C], and its gradient.

    Queries are the last axis, so that every operation runs along memory. The gradient, which is the
    marginals of states and of pairs of states, takes no exponential and no logarithm.
    """

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, transitions: Tensor, states: TaskStates) -> Tensor:
        batch, horizon, size = emissions.shape
        flat = emissions.new_full((horizon, size + 1, batch), -torch.inf)
        flat[:, :-1] = emissions.permute(1, 2, 0)
        totals, saved = emissions.new_empty(states.task_count, batch), []
        for tasks, grid in states.blocks:
            padded = flat.index_select(1, grid.flatten()).unflatten(1, grid.shape)
            width = grid.shape[1]
            mix = TransitionSums(transitions[tasks, :width, :width], grid < size)
            alpha = padded[0]  # log forward variable [c, a, B]
            shares, sums = [], []  # exp(α_t − max α_t) and Σ_a exp(w(a, b)) · share(a): [c, a, B]
            with torch.autocast(alpha.device.type, enabled=False):
                for step in range(horizon):
                    top = alpha.amax(dim=1, keepdim=True)
                    top = top.masked_fill_(top == -torch.inf, 0.0)
                    shares.append((alpha - top).exp_())
                    if step < horizon - 1:
                        # α_t(b) = log Σ_a exp(α_t−1(a) + w(a, b)) + e_t(b)
                        sums.append(torch.bmm(mix.factors.mT, shares[-1]))
                        alpha = sums[-1].log().add_(top.add_(mix.highest)).add_(padded[step + 1])
                sums.append(shares[-1].sum(dim=1, keepdim=True))
            totals[tasks] = (sums[-1].log() + top)[:, 0]
            saved += [mix.factors, *shares, *sums]
        ctx.save_for_backward(*saved)
        ctx.states, ctx.horizon, ctx.size = states, horizon, size
        return totals.T

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        horizon, states, saved = ctx.horizon, ctx.states, list(ctx.saved_tensors)
        # p(a_t = a), times what is given
        flat = output_gradient.new_empty(horizon, ctx.size + 1, len(output_gradient))
        count, most = states.grid.shape
        pairs = output_gradient.new_zeros(count, most, most) if ctx.needs_input_grad[1] else None
        tiny = torch.finfo(output_gradient.dtype).tiny  # sums of unreachable states are zero
        for tasks, grid in states.blocks:
            factors, *kept = (saved.pop(0) for _ in range(1 + 2 * horizon))
            shares, sums = kept[:horizon], kept[horizon:]
            gradient = shares[-1] * (output_gradient.T[tasks, None] / sums[-1].clamp_min(tiny))
            pair_sums = torch.zeros_like(factors)
            for step in range(horizon - 1, -1, -1):
                flat[step].index_copy_(0, grid.flatten(), gradient.flatten(0, 1))
                if step:
                    ratios = gradient / sums[step - 1].clamp_min(tiny)
                    pair_sums.baddbmm_(shares[step - 1], ratios.mT)
                    gradient = torch.bmm(factors, ratios).mul_(shares[step - 1])
            if pairs is not None:
                padding = most - grid.shape[1]
                pairs[tasks] = F.pad(pair_sums.mul_(factors), (0, padding, 0, padding))
        return flat[:, :-1].permute(2, 0, 1), pairs, None


def _log_sum(values: Tensor) -> Tensor:
    """Return log Σ exp over the last axis; −∞, without gradient, if all are −∞."""
    top = values.detach().amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    sums = (values - top).exp().sum(dim=-1)
    logs = sums.clamp_min(torch.finfo(sums.dtype).tiny).log() + top[..., 0]
    return torch.where(sums > 0, logs, -torch.inf)


def _ahead(padded: Tensor, transitions: Tensor) -> list[Tensor]:
    """Return the highest score of what can follow each state of each step (backward Viterbi)."""
    # h_t(a) = max_b [w(a, b) + e_t+1(b) + h_t+1(b)], h_T = 0, each [B, C, A]
    ahead = [torch.zeros_like(padded[:, 0])]
    for step in range(padded.shape[1] - 1, 0, -1):
        ahead.insert(0, _highest_sum(transitions, padded[:, step] + ahead[0]))
    return ahead


def _highest_sum(transitions: Tensor, after: Tensor) -> Tensor:
    """Return max_b [w(a, b) + after(b)]: [B or 1, C, A, A], [B, C, A] → [B, C, A]."""
    if len(transitions) > 1 or len(after) < _SIDE_BY_SIDE:
        return (transitions + after[:, :, None, :]).amax(dim=3)
    # queries are the last axis, [C, A, A, B], so that maxima run along memory
    moves = transitions[0, ..., None] + after.permute(1, 2, 0).contiguous()[:, None]
    return moves.amax(dim=2).permute(2, 0, 1).contiguous()


def _best(chain: SequenceScores, count: int, tasks: Tensor | None) -> tuple[Tensor, Tensor]:
    states = chain.states
    padded, transitions = chain.of_tasks(tasks)  # [B, T, C, A], [B or 1, C, A, A]
    batch, horizon, _, width = padded.shape
    queries = torch.arange(batch, device=padded.device)[:, None]
    ahead = _ahead(padded, transitions)
    transitions = transitions.expand(batch, -1, -1, -1)
    # Forward: keep the `count` prefixes of highest score + h_t. score, task: [B, count];
    # places: [B, count, t].
    first = padded[:, 0].flatten(1)
    chosen = _top(first + ahead[0].flatten(1), count)
    score = first.gather(1, chosen)
    task, places = chosen // width, (chosen % width)[:, :, None]
    for step in range(1, horizon):
        # score + w(a_t−1, b) + e_t(b): [B, count, A]
        moves = transitions[queries, task, places[:, :, -1]]
        longer = score[:, :, None] + moves + padded[queries, step, task]
        chosen = _top((longer + ahead[step][queries, task]).flatten(1), count)
        above = chosen // width
        score, task = longer.flatten(1).gather(1, chosen), task.gather(1, above)
        kept = places.gather(1, above[:, :, None].expand(-1, -1, step))
        places = torch.cat([kept, (chosen % width)[:, :, None]], dim=2)
    if tasks is not None:
        task = tasks.gather(1, task)
    return states.grid[task[:, :, None], places].clamp_max(len(states) - 1), score


def _top(values: Tensor, count: int) -> Tensor:
    """Return the places of the highest values of each row, best first, ties in order."""
    if count == 1:
        return values.argmax(dim=1, keepdim=True)
    return values.argsort(dim=1, descending=True, stable=True)[:, :count]


def average(chains: Sequence[SequenceScores]) -> SequenceScores:
    """Return the CRF of the mean scores of several members over the same states."""
    return SequenceScores(
        chains[0].states,
        torch.stack([chain.emissions for chain in chains]).mean(dim=0),
        torch.stack([chain.transitions for chain in chains]).mean(dim=0),
    )
