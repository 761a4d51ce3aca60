"""Gradient search: descend the field over mixtures of actions, round to sequences.

Improve these by local changes.

The paper names gradient-based inference as an untried remedy for the cost of enumeration, without
saying how. Here:

1. Several starts: mixtures near the guide's cheapest sequences, and random ones; all random where
there is no guide.
2. Adam on their logits lowers relaxed energy / temperature + expected cost of the chain, steps
   taken as independent. The softmax over the logits is cooled, so that mixtures end near single
   actions.
3. Rounding: the likeliest action of each step, at every stage of the descent, and the likeliest
   allowed sequences of the final mixtures, exactly. The field's own energies decide among them: a
   mixture's can be far below that of any sequence.
4. The best is improved by `GuidedSearch`, with the mixture it came from as guide.

A field is trained on sequences, never on mixtures, and says little between them. With a prior as
guide `GuidedSearch` alone is better for the same operations; without one, random starts that are
refined and never descend (steps = 0) do about as well. This search is here so that the comparison
can be repeated (benchmarks/gradient.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.errors import ConfigError
from cefito.search.chain import Chain
from cefito.search.guided import GuidedSearch
from cefito.search.problem import Best, Effort, Plans, Problem, RelaxedEnergies, Watch
from cefito.search.problem import ranks as ranks_of
from cefito.search.sequences import SequenceEnergies
from cefito.search.space import Space, compiled, observations

__all__ = ["GradientSearch"]

_TOGETHER = 32  # queries that advance in step, so that the network sees large batches
_BACKWARD = 3  # tokens forward that a token forward and back counts for
# what a forbidden transition costs a mixture beyond the dearest allowed one, in units of the
# objective
_FORBIDDEN = 10.0


class GradientSearch:
    """Relaxed descent from several starts, rounding, re-scoring by the field, local refinement.

    The effort counts the descent too: a mixture that goes forward and back once is 2T + 1 tokens
    that count threefold.

    Args:
        restarts: R, starts a query; half of them near the guide's cheapest sequences, where there
            is a guide.
        steps: Steps of the descent; 0 rounds the starts.
        learning_rate: Of Adam, on the logits.
        temperatures: Temperature of the softmax over the logits at the first and at the last step,
            geometric between.
        spread: Deviation of the random logits that starts are made of.
        rounded: Sequences taken from each final mixture.
        refinements: Combinations of changes a round of the refinement; 0 leaves the rounded
            sequences unrefined.
        rounds: Most rounds of refinement.
        memory_mib: Bound on the memory of what is computed at once, in MiB.
        seed: Seed of the random starts, the same for every query, so that a query's plans do not
            depend on its neighbours.

    Raises:
        ConfigError: A setting out of range.
    """

    def __init__(
        self,
        *,
        restarts: int = 8,
        steps: int = 60,
        learning_rate: float = 0.1,
        temperatures: tuple[float, float] = (1.0, 0.2),
        spread: float = 1.0,
        rounded: int = 4,
        refinements: int = 64,
        rounds: int = 20,
        memory_mib: float = 1024,
        seed: int = 0,
    ) -> None:
        if (
            restarts < 1
            or steps < 0
            or rounded < 1
            or refinements < 0
            or rounds < 0
            or not memory_mib > 0
        ):
            raise ConfigError(
                f"gradient search with {restarts} restarts, {steps} steps, {rounded} rounded "
                "sequences, "
                f"{refinements} refinements, {rounds} rounds and {memory_mib} MiB; expected at "
                "least 1, 0, 1, 0, "
                "0 and more than 0."
            )
        if not learning_rate > 0 or not min(temperatures) > 0 or not spread >= 0:
            raise ConfigError(
                f"gradient search with learning rate {learning_rate}, temperatures "
                f"{list(temperatures)} and "
                f"spread {spread}; expected positive ones, and a spread of at least 0."
            )
        self.restarts, self.steps, self.learning_rate, self.temperatures = (
            restarts,
            steps,
            learning_rate,
            temperatures,
        )
        self.spread, self.rounded, self.refinements, self.rounds = (
            spread,
            rounded,
            refinements,
            rounds,
        )
        self.memory_mib, self.seed = memory_mib, seed

    def search(
        self,
        field: RelaxedEnergies[Any],
        problems: Sequence[Problem],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """Good sequences of each problem, at most `top_k`.

        Exact where all allowed ones were evaluated.

        Raises:
            ConfigError: A problem that no search could solve, or top_k below 1.
        """
        spaces = compiled(problems, field.horizon, top_k)
        found: list[Plans] = []
        while len(found) < len(spaces):
            together = spaces[len(found) : len(found) + _TOGETHER]
            each = max(self._bytes(field, space) for space in together)
            found += self._together(
                field, together[: max(1, int(self.memory_mib * 2**20 / each))], top_k, watch
            )
        return found

    def _bytes(self, field: RelaxedEnergies[Any], space: Space) -> int:
        """Memory that the descent of one query takes."""
        chain = space.objective.chain
        return self.restarts * field.bytes_per_mixture(space.size) + sum(
            4 * cost.size * (1 + self.restarts) for cost in (chain.costs if chain else ())
        )

    def _together(
        self, field: RelaxedEnergies[Any], spaces: Sequence[Space], top_k: int, watch: Watch
    ) -> list[Plans]:
        share = len(spaces) / (self.steps + 1)
        with torch.inference_mode(False), torch.enable_grad():
            descent = _Descent(field, spaces, self)
            sequences = [descent.likeliest()]
            for step in range(self.steps):
                if watch.stop():
                    break
                descent.step(step)
                sequences.append(descent.likeliest())
                watch.advance(share)
        energies = SequenceEnergies(field, spaces, self.memory_mib)
        mixtures = descent.costs()
        wanted = [
            self._rounded(space, np.concatenate([part[row] for part in sequences]), mixtures[row])
            for row, space in enumerate(spaces)
        ]
        query = np.repeat(np.arange(len(spaces)), [len(part) for part in wanted])
        values = energies(query, np.concatenate(wanted))
        found = []
        for row, (space, part) in enumerate(zip(spaces, wanted, strict=True)):
            effort = Effort(int(energies.tokens[row]) + descent.tokens, int(energies.leaves[row]))
            found.append(_best(space, part, torch.from_numpy(values[query == row]), top_k, effort))
        if self.refinements and not watch.stop():
            found = self._refined(field, spaces, found, mixtures, top_k, watch)
        if not watch.stop():
            watch.advance(share)
        return found

    def _rounded(
        self, space: Space, passed: NDArray[np.int64], mixtures: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Distinct allowed sequences: those passed on the way [n, T].

        And the likeliest of final mixtures' costs [R, T, A].
        """
        passed = np.unique(passed, axis=0)
        last = [
            space.cheapest(_unary(costs, space.size), self.rounded).sequences for costs in mixtures
        ]
        return np.unique(np.concatenate([passed[space.allows(passed)], *last]), axis=0)

    def _refined(
        self,
        field: RelaxedEnergies[Any],
        spaces: Sequence[Space],
        found: Sequence[Plans],
        mixtures: NDArray[np.float64],
        top_k: int,
        watch: Watch,
    ) -> list[Plans]:
        """The plans found, improved by changes of the best one.

        Unless the field gave no finite energy at all.
        """
        rows = [row for row, plans in enumerate(found) if np.isfinite(plans.scores[0])]
        problems = []
        for row in rows:
            space, plans, costs = spaces[row], found[row], mixtures[row]
            best = np.searchsorted(space.problem.actions, plans.actions[0])
            nearest = costs[costs[:, np.arange(space.horizon), best].sum(axis=1).argmin()].copy()
            nearest -= nearest.min()
            nearest[np.arange(space.horizon), best] = -1.0  # the cheapest of all
            problems.append(replace(space.problem, guide=_unary(nearest, space.size)))
        guided = GuidedSearch(
            proposals=1,
            refinements=self.refinements,
            rounds=self.rounds,
            memory_mib=self.memory_mib,
        )
        result = list(found)
        for row, plans in zip(
            rows, guided.search(field, problems, top_k, Watch(stop=watch.stop)), strict=True
        ):
            result[row] = _merged(spaces[row], found[row], plans, top_k)
        return result


class _Descent:
    """The mixtures of several queries on their way down.

    [Q, R, T, A] with the actions of shorter problems padded.
    """

    def __init__(
        self, field: RelaxedEnergies[Any], spaces: Sequence[Space], settings: GradientSearch
    ) -> None:
        self.field, self.spaces, self.settings = field, spaces, settings
        device, horizon, widest = field.device, field.horizon, max(space.size for space in spaces)
        ids = np.unique(np.concatenate([space.problem.actions for space in spaces]))
        self._ids = torch.from_numpy(ids).to(device)
        place = np.zeros(
            (len(spaces), 1, 1, widest), dtype=np.int64
        )  # of each query's actions among all of them
        possible = np.zeros((len(spaces), 1, horizon, widest), dtype=np.bool_)
        logits = np.zeros((len(spaces), settings.restarts, horizon, widest), dtype=np.float32)
        for row, space in enumerate(spaces):
            place[row, 0, 0, : space.size] = np.searchsorted(ids, space.problem.actions)
            possible[row, 0, :, : space.size] = _possible(space)
            logits[row, :, :, : space.size] = _starts(space, settings)
        self._place, self._impossible = (
            torch.from_numpy(place).to(device),
            ~torch.from_numpy(possible).to(device),
        )
        self._tables = [torch.from_numpy(table).to(device) for table in _tables(spaces, widest)]
        self._initial, self._goal = (
            part.repeat_interleave(settings.restarts, dim=0)
            for part in observations(spaces, device)
        )
        self._inverse = torch.tensor(
            [1 / space.objective.temperature for space in spaces], device=device
        )[:, None]
        self._logits = torch.from_numpy(logits).to(device).requires_grad_()
        self._adam = torch.optim.Adam([self._logits], lr=settings.learning_rate)
        self.temperature = settings.temperatures[0]
        self.tokens = 0  # of each query

    def _mixture(self) -> Tensor:
        return (self._logits.masked_fill(self._impossible, -torch.inf) / self.temperature).softmax(
            dim=-1
        )

    def step(self, number: int) -> None:
        """One step down."""
        first, last = self.settings.temperatures
        self.temperature = first * (last / first) ** (number / max(1, self.settings.steps - 1))
        mixture = self._mixture()
        spread = mixture.new_zeros(*mixture.shape[:3], len(self._ids))
        spread = spread.scatter_add(-1, self._place.expand_as(mixture), mixture)
        energy = self.field.relaxed_energy(
            self._initial, self._goal, self._ids, spread.flatten(0, 1)
        )
        value = energy.view(mixture.shape[:2]) * self._inverse + _expected(self._tables, mixture)
        (self._logits.grad,) = torch.autograd.grad(value.sum(), [self._logits])
        self._logits.grad.nan_to_num_(0.0, 0.0, 0.0)  # of a field that diverged in training
        self._adam.step()
        self.tokens += _BACKWARD * self.settings.restarts * (2 * mixture.shape[2] + 1)

    def likeliest(self) -> NDArray[np.int64]:
        """The likeliest action of each step of each mixture [Q, R, T]."""
        with torch.no_grad():
            result: NDArray[np.int64] = self._mixture().argmax(dim=-1).cpu().numpy()
            return result

    def costs(self) -> NDArray[np.float64]:
        """−log of the mixtures [Q, R, T, A].

        What is impossible costs no less than what is least likely.
        """
        with torch.no_grad():
            logs: NDArray[np.float64] = (
                self._mixture().double().clamp_min(1e-30).log().cpu().numpy()
            )
            return -logs


def _possible(space: Space) -> NDArray[np.bool_]:
    """Which actions each step may take by the pins, the forbidden actions and the chain, [T, A].

    Rounding minds the rest.
    """
    actions, constraints = space.problem.actions, space.problem.constraints
    possible = np.ones((space.horizon, space.size), dtype=np.bool_)
    possible &= ~np.isin(actions, constraints.forbidden)
    for step, action in constraints.pinned:
        possible[step - 1] &= np.array(actions) == action
    chain = space.objective.chain
    if chain is not None:
        ahead = chain.to_go()
        for step, cost in enumerate(chain.costs):
            after = ahead[step + 1]  # both tables end in the axis of this step
            finite = np.isfinite(cost + after)
            possible[step] &= finite.any(axis=tuple(range(finite.ndim - 1)))
    possible[0] &= space.children(np.zeros((1, 0), dtype=np.int64))[0]
    return possible


def _starts(space: Space, settings: GradientSearch) -> NDArray[np.float64]:
    """First logits [R, T, A]: the first half favours one of the guide's cheapest sequences each.

    Where there is a guide.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    logits = (
        settings.spread
        * torch.randn(
            settings.restarts, space.horizon, space.size, generator=generator, dtype=torch.float64
        ).numpy()
    )
    if space.problem.guide is not None or space.objective.chain is not None:
        likely = space.cheapest(space.guide, (settings.restarts + 1) // 2).sequences
        for row, sequence in enumerate(likely):
            logits[row, np.arange(space.horizon), sequence] += np.log(space.size) + settings.spread
    return np.asarray(logits)


def _tables(spaces: Sequence[Space], widest: int) -> list[NDArray[np.float32]]:
    """The chains' costs of each step, of all queries together.

    [Q, A], [Q, A, A] or [Q, A, A, A], forbidden ones finite.
    """
    chains = [space.objective.chain for space in spaces]
    if not any(chains):
        return []
    tables = []
    for step in range(spaces[0].horizon):
        axes = max(chain.costs[step].ndim for chain in chains if chain is not None)
        table = np.zeros((len(spaces), *(widest,) * axes), dtype=np.float32)
        for row, chain in enumerate(chains):
            if chain is not None:
                table[row][(slice(chain.size),) * axes] = _finite(chain.costs[step])
        tables.append(table)
    return tables


def _finite(cost: NDArray[np.float64]) -> NDArray[np.float64]:
    """A table in which what is forbidden costs more than the rest, but not infinitely."""
    finite = np.isfinite(cost)
    return np.where(finite, cost, cost[finite].max(initial=0.0) + _FORBIDDEN)


def _expected(tables: Sequence[Tensor], mixture: Tensor) -> Tensor | float:
    """Expected cost [Q, R] of the chains under mixtures [Q, R, T, A].

    Steps taken as independent.
    """
    formula = {1: "qa,qra->qr", 2: "qab,qra,qrb->qr", 3: "qabc,qra,qrb,qrc->qr"}
    total: Tensor | float = 0.0
    for step, table in enumerate(tables):
        axes = table.ndim - 1
        steps = [mixture[:, :, step + 1 - axes + axis] for axis in range(axes)]
        total = total + torch.einsum(formula[axes], table, *steps)
    return total


def _unary(costs: NDArray[np.float64], size: int) -> Chain:
    """A chain of costs [T, A or more] of single steps."""
    return Chain(costs=tuple(costs[:, :size]))


def _best(
    space: Space, sequences: NDArray[np.int64], energies: Tensor, top_k: int, effort: Effort
) -> Plans:
    best = Best(top_k)
    best.add(
        energies,
        torch.from_numpy(ranks_of(sequences, space.size)),
        space.scores(energies, sequences),
    )
    everything = space.free and len(sequences) == space.size**space.horizon
    return best.plans(space.problem, space.horizon, effort, exact=everything)


def _merged(space: Space, one: Plans, other: Plans, top_k: int) -> Plans:
    """The best of two lists, whose sequences may be the same."""
    actions, first = np.unique(
        np.concatenate([one.actions, other.actions]), axis=0, return_index=True
    )
    places = np.searchsorted(space.problem.actions, actions)
    energies = torch.from_numpy(np.concatenate([one.energies, other.energies])[first])
    merged = _best(space, places, energies, top_k, one.evaluated + other.evaluated)
    return replace(merged, exact=one.exact or other.exact)
