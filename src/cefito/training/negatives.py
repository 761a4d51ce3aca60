"""Mixed negatives (paper, Sec. 3.2): wrong sequences to learn from, drawn for whole batches.

Each positive gets N distinct other sequences, in exact shares or, as in the released code, with a
kind drawn for each. *Hard* negatives draw every step uniformly from the actions of the true task,
*easy* ones from the actions of another task, chosen uniformly; *permuted* ones reorder the positive
and *edited* ones change it at one position (both absent from the paper). If a kind has too few
members, the missing ones become hard (permuted, edited) or easy (hard), and finally any sequences
that are left; without another task easy ones are hard. In small worlds with fewer sequences than
N + 1, every positive gets all others. Sequences are coded as numbers in base K:
code = Σ_t a_t K^(T − t).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cefito.errors import SamplingError
from cefito.training.settings import NegativesConfig

logger = logging.getLogger(__name__)

_TABLE_HORIZON = 6  # up to here all permutations are listed (720), beyond a random selection
_ROUNDS = 500
_VAIN = 200  # vain draws in a row after which no more permutations are tried (released code)
_DENSE = 4  # spaces of fewer than so many times the wanted number are listed, not rejection-sampled
FEW = 256
"""Most sequences of all tasks of which all are taken if more negatives are wanted."""
_LISTED = 1 << 20  # most sequences that are listed


@dataclass(frozen=True)
class ActionSets:
    """The actions of each task as one padded table."""

    table: Tensor  # action ids [C, widest]; rows of fewer actions repeat their first one at the end
    sizes: Tensor  # number of actions of each task [C]

    @classmethod
    def build(
        cls, actions: Mapping[int, Sequence[int]], device: torch.device | str = "cpu"
    ) -> ActionSets:
        """Make the table from the ascending action ids, at least one, of tasks 0..C−1."""
        rows = [list(actions[task]) for task in range(len(actions))]
        widest = max(len(row) for row in rows)
        table = torch.tensor([row + row[:1] * (widest - len(row)) for row in rows], device=device)
        return cls(table=table, sizes=torch.tensor([len(row) for row in rows], device=device))


class NegativeSampler:
    """Draws negatives for batches, on the device of the action sets.

    Args:
        config: Number and kinds; the number is reduced to the sequences of a small world.
        actions: Actions of each task.
        action_count: Number K of actions.
        horizon: Number T of steps.
    """

    def __init__(
        self, *, config: NegativesConfig, actions: ActionSets, action_count: int, horizon: int
    ) -> None:
        if action_count**horizon >= 2**63:
            raise SamplingError(
                f"{action_count} actions at horizon {horizon} give more than 2^63 sequences; "
                "choose a shorter horizon."
            )
        self.actions, self.horizon, self.action_count = actions, horizon, action_count
        self.device = actions.table.device
        self.weights = torch.tensor(
            [action_count ** (horizon - 1 - level) for level in range(horizon)], device=self.device
        )
        self._universe: Tensor | None = None
        most = sum(int(size) ** horizon for size in actions.sizes.tolist())
        if most <= _LISTED:
            self._universe = self._listed()
            most = len(self._universe)
        self.config = config.model_copy(update={"count": _given(config.count, most, horizon)})
        self._all = self._universe is not None and self.config.count == most - 1
        self._permutations = (
            torch.tensor(list(itertools.permutations(range(horizon))), device=self.device)
            if horizon <= _TABLE_HORIZON
            else None
        )

    def sample(self, positives: Tensor, tasks: Tensor, generator: torch.Generator) -> Tensor:
        """Draw negatives [B, N, T]: of each positive permuted, then edited, hard and easy ones.

        With `exact = false` they are in the order of the draws.

        Args:
            positives: Action ids [B, T].
            tasks: Their tasks [B].
            generator: Draws them.
        """
        if not self.config.exact and not self._all:
            return self._decode(self._one_by_one(positives, tasks, generator))
        return self._decode(self.sample_codes(positives, tasks, generator)[0])

    def sample_codes(
        self, positives: Tensor, tasks: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return codes [B, N], drawn as of `sample`, and the number of each kind [B, 4]."""
        truth = positives @ self.weights  # codes of the positives [B]
        if self._all and self._universe is not None:
            return self._others(self._universe, truth, tasks)
        n_permuted, n_edited, n_hard, n_easy = self.config.shares()
        if len(self.actions.sizes) < 2:  # no other task to draw easy ones from
            n_hard, n_easy = n_hard + n_easy, 0
        batch, count = len(positives), self.config.count
        codes = torch.full((batch, count), -1, dtype=torch.int64, device=self.device)
        counts = torch.zeros(batch, 4, dtype=torch.int64, device=self.device)
        if n_permuted:
            counts[:, 0] = self._place(
                codes, counts, *self._permuted(positives, truth, generator), n_permuted, generator
            )
        if n_edited:
            counts[:, 1] = self._place(
                codes, counts, *self._edited(positives, tasks, truth), n_edited, generator
            )
        # hard ones [B] make up for missing kinds, as far as the A^T sequences of the task last
        wanted = n_hard + n_permuted + n_edited - counts.sum(dim=1)
        space = self.actions.sizes[tasks].double() ** self.horizon
        room = (space - 1 - counts.sum(dim=1)).clamp(max=2.0**40).long()
        hard = torch.minimum(wanted, room)
        dense = (room < _DENSE * hard) & (hard > 0)
        if dense.any():
            self._place_dense(codes, counts, tasks, truth, dense, hard, generator)
        counts[:, 2] = hard
        counts[:, 3] = count - counts.sum(dim=1)
        self._fill(codes, counts, tasks, truth, generator)
        return codes, counts

    def _decode(self, codes: Tensor) -> Tensor:
        return codes[..., None] // self.weights % self.action_count

    def _place(
        self,
        codes: Tensor,
        counts: Tensor,
        candidates: Tensor,
        valid: Tensor,
        count: Tensor | int,
        generator: torch.Generator,
    ) -> Tensor:
        """Append up to `count` random valid candidates to each row; return how many, [B]."""
        keys = torch.rand(candidates.shape, generator=generator, device=self.device).masked_fill(
            ~valid, 2.0
        )
        order = keys.argsort(dim=1)
        number = torch.minimum(valid.sum(dim=1), torch.as_tensor(count, device=self.device))
        place = torch.arange(order.shape[1], device=self.device)
        row, column = (place < number[:, None]).nonzero(as_tuple=True)
        codes[row, counts.sum(dim=1)[row] + column] = candidates[row, order[row, column]]
        return number

    def _permuted(
        self, positives: Tensor, truth: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        if self._permutations is not None:
            candidates = positives[:, self._permutations] @ self.weights
        else:
            keys = torch.rand(
                len(positives), 720, self.horizon, generator=generator, device=self.device
            )
            candidates = (
                positives[:, None].expand(-1, 720, -1).gather(2, keys.argsort(dim=2)) @ self.weights
            )
        return candidates, ~_repeated(torch.cat([truth[:, None], candidates], dim=1))[:, 1:]

    def _edited(self, positives: Tensor, tasks: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        table = self.actions.table[tasks][:, None]  # [B, 1, widest]
        change = table - positives[..., None]  # [B, T, widest]
        inside = (
            torch.arange(table.shape[2], device=self.device)
            < self.actions.sizes[tasks][:, None, None]
        )
        candidates = truth[:, None, None] + change * self.weights[:, None]
        return candidates.flatten(1), ((change != 0) & inside).flatten(1)

    def _place_dense(
        self,
        codes: Tensor,
        counts: Tensor,
        tasks: Tensor,
        truth: Tensor,
        dense: Tensor,
        hard: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Pick hard negatives for rows whose space is nearly used up, from a list of the rest."""
        size = self.actions.sizes[tasks[dense]]
        ranks = torch.arange(int(size.max()) ** self.horizon, device=self.device)
        # digits of all ranks to the base of each row's task size: [R, ranks, T]
        powers = size[:, None] ** torch.arange(self.horizon - 1, -1, -1, device=self.device)
        digits = ranks[None, :, None] // powers[:, None] % size[:, None, None]
        candidates = (
            self.actions.table[tasks[dense]]
            .gather(1, digits.flatten(1))
            .unflatten(1, digits.shape[1:])
        )
        candidates = candidates @ self.weights
        taken = torch.cat([truth[dense][:, None], codes[dense]], dim=1)
        free = (candidates[..., None] != taken[:, None]).all(dim=2) & (
            ranks < (size**self.horizon)[:, None]
        )
        dense_codes = codes[dense]
        self._place(dense_codes, counts[dense], candidates, free, hard[dense], generator)
        codes[dense] = dense_codes

    def _fill(
        self,
        codes: Tensor,
        counts: Tensor,
        tasks: Tensor,
        truth: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Draw the remaining hard and the easy negatives; redraw repeated ones."""
        last_hard = counts[:, :3].sum(dim=1)[:, None]
        place = torch.arange(codes.shape[1], device=self.device)
        rows = torch.arange(len(codes), device=self.device)
        redraw = codes < 0
        # the last ones of few sequences are rarely drawn; they are picked from a list
        few = self._universe is not None and len(self._universe) <= FEW
        for _ in range(_ROUNDS // 10 if few else _ROUNDS):
            proposed = self._propose(tasks[rows], place >= last_hard[rows], generator)
            codes[rows] = torch.where(redraw, proposed, codes[rows])
            repeated = _repeated(torch.cat([truth[rows][:, None], codes[rows]], dim=1))[:, 1:]
            still = repeated.any(dim=1)
            if not bool(still.any()):
                return
            rows, redraw = rows[still], repeated[still]
        if self._universe is not None:
            self._pick(self._universe, codes, truth, rows, redraw, generator)
            return
        raise self._exhausted(int(tasks[rows[0]]))

    def _one_by_one(self, positives: Tensor, tasks: Tensor, generator: torch.Generator) -> Tensor:
        """Return the first N distinct sequences of a stream of draws, without the truth, [B, N].

        The kind of each draw is drawn separately. After `_VAIN` vain draws in a row a positive gets
        no more permutations. Streams are drawn in blocks, and most end within the first.
        """
        count, batch = self.config.count, len(positives)
        truth = positives @ self.weights
        codes = torch.full((batch, count), -1, dtype=torch.int64, device=self.device)
        numbers = torch.zeros(batch, dtype=torch.int64, device=self.device)
        vain = torch.zeros_like(numbers)
        shuffled = (positives != positives[:, :1]).any(dim=1)  # a single action has no permutation
        rows = torch.arange(batch, device=self.device)
        for _ in range(_ROUNDS):
            drawn = self._stream(positives[rows], tasks[rows], shuffled[rows], generator)
            width = drawn.shape[1]
            taken = torch.cat([truth[rows][:, None], codes[rows]], dim=1)
            new = ~_repeated(torch.cat([taken, drawn], dim=1))[:, taken.shape[1] :]
            place = torch.arange(1, width + 1, device=self.device).expand_as(new)
            last = torch.where(new, place, 0).cummax(dim=1).values  # place of the last new one
            idle = place - last + torch.where(last == 0, vain[rows][:, None], 0)
            # without permutations kinds are drawn differently: the rest of the block is dropped
            spent = (idle >= _VAIN) & shuffled[rows][:, None]
            ends = torch.where(spent.any(dim=1), spent.int().argmax(dim=1) + 1, width)
            new &= place <= ends[:, None]
            rank = new.cumsum(dim=1) - 1 + numbers[rows][:, None]
            row, column = (new & (rank < count)).nonzero(as_tuple=True)
            codes[rows[row], rank[row, column]] = drawn[row, column]
            numbers[rows] = (numbers[rows] + new.sum(dim=1)).clamp(max=count)
            vain[rows] = idle.gather(1, ends[:, None] - 1)[:, 0]
            shuffled[rows[spent.any(dim=1)]] = False
            rows = rows[numbers[rows] < count]
            if not len(rows):
                return codes
        if self._universe is not None:
            self._pick(self._universe, codes, truth, rows, codes[rows] < 0, generator)
            return codes
        raise self._exhausted(int(tasks[rows[0]]))

    def _stream(
        self, positives: Tensor, tasks: Tensor, shuffled: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Return a block of independent draws for each row, as codes [B, 2 N + 16]."""
        shape = (len(positives), 2 * self.config.count + 16)

        def chance(share: float) -> Tensor:
            drawn = torch.rand(shape, generator=generator, device=self.device)
            return drawn < share

        permuted = chance(self.config.permuted) & shuffled[:, None]
        drawn = self._propose(tasks, chance(1 - self.config.hard), generator)
        if self.config.permuted:
            keys = torch.rand(*shape, self.horizon, generator=generator, device=self.device)
            order = keys.argsort(dim=2)
            moved = positives[:, None].expand(*shape, -1).gather(2, order) @ self.weights
            drawn = torch.where(permuted, moved, drawn)
        return drawn

    def _exhausted(self, task: int) -> SamplingError:
        return SamplingError(
            f"task {task} has fewer than {self.config.count} distinct negatives at horizon "
            f"{self.horizon}, with its own {int(self.actions.sizes[task])} actions and the actions "
            "of other tasks. Choose fewer negatives."
        )

    def _pick(
        self,
        universe: Tensor,
        codes: Tensor,
        truth: Tensor,
        rows: Tensor,
        wanted: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Fill the wanted slots of some rows with any sequences that the rows do not hold yet."""
        for row, slots in zip(rows.tolist(), wanted, strict=True):
            taken = torch.cat([codes[row][~slots], truth[row : row + 1]])
            free = universe[~torch.isin(universe, taken)]
            order = torch.randperm(len(free), generator=generator, device=self.device)
            codes[row, slots] = free[order[: int(slots.sum())]]

    def _others(self, universe: Tensor, truth: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Return all sequences but the true ones [B, N], and the number of each kind [B, 4]."""
        last = (universe == truth[:, None]).to(torch.int8).argsort(dim=1, stable=True)
        codes = universe[last][:, :-1]
        counts = torch.zeros(len(truth), 4, dtype=torch.int64, device=self.device)
        counts[:, 2] = self.actions.sizes[tasks] ** self.horizon - 1
        counts[:, 3] = codes.shape[1] - counts[:, 2]
        return codes, counts

    def _listed(self) -> Tensor:
        """Return the codes of the sequences of all tasks, ascending, each once."""
        powers = torch.arange(self.horizon - 1, -1, -1, device=self.device)
        parts = []
        for row, size in zip(self.actions.table, self.actions.sizes.tolist(), strict=True):
            ranks = torch.arange(size**self.horizon, device=self.device)
            parts.append(row[ranks[:, None] // size**powers % size] @ self.weights)
        codes: Tensor = torch.cat(parts).unique()
        return codes

    def _propose(self, tasks: Tensor, easy: Tensor, generator: torch.Generator) -> Tensor:
        """Return a uniform draw for each slot, from the row's task or, if `easy`, from another."""
        shape = easy.shape
        others = len(self.actions.sizes) - 1
        source = tasks[:, None].expand(shape)
        if others:
            other = torch.randint(others, shape, generator=generator, device=self.device)
            source = torch.where(easy, other + (other >= tasks[:, None]), source)
        digits = torch.rand(
            *shape, self.horizon, generator=generator, device=self.device, dtype=torch.float64
        )
        digits = (digits * self.actions.sizes[source][..., None]).long()
        return self.actions.table[source].gather(2, digits) @ self.weights


def check_negatives(
    config: NegativesConfig,
    actions: Mapping[int, Sequence[int]],
    *,
    action_count: int,
    horizon: int,
) -> None:
    """Refuse a number of negatives that cannot be drawn; warn if a small world has fewer.

    Args:
        config: Number and kinds of negatives.
        actions: Allowed actions by task.
        action_count: K.
        horizon: T.
    """
    sampler = NegativeSampler(
        config=config, actions=ActionSets.build(actions), action_count=action_count, horizon=horizon
    )
    if sampler.config.count < config.count:
        logger.warning(
            "%d negatives are configured, but all tasks together have only %d sequences of %d "
            "actions: every window is compared with all others",
            config.count,
            sampler.config.count + 1,
            horizon,
        )


def _given(count: int, sequences: int, horizon: int) -> int:
    """Return the number of negatives of each positive, given the number of sequences."""
    if sequences < 2:
        raise SamplingError(
            f"all tasks together have a single sequence of {horizon} actions: there is nothing to "
            "learn. Annotate more actions."
        )
    if count >= sequences > FEW:
        raise SamplingError(
            f"{count} negatives are configured, but all tasks together have only "
            f"{sequences:,} sequences of {horizon} actions. Choose fewer.",
            setting="training.negatives.count",
        )
    return min(count, sequences - 1)


def _repeated(codes: Tensor) -> Tensor:
    """Return True for codes that occur further left in the row, [B, M] → [B, M]."""
    ordered, order = codes.sort(dim=1, stable=True)
    again = torch.zeros_like(codes, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)
