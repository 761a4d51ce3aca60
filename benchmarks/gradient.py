"""Gradient search beside guided search on a trained run: energies reached for the operations spent.

The paper names gradient-based inference as an untried remedy for the cost of enumeration, without
saying how. Here the field is descended over mixtures of actions, and what it leads to is rounded to
sequences (`GradientSearch`). It is not worth its cost: a field is trained on sequences, never on
mixtures, and says little between them. With a prior as guide `GuidedSearch` alone is better for the
same operations; without one, random starts that are refined and never descend (steps = 0) do about
as well. The search is therefore no part of the library; this script repeats the comparison.

The objective is the energy alone and the task is the true one, so that only the search is judged;
queries are validation windows. Each search runs with the prior over sequences as guide and without
any guide. "hits" is the share of queries whose energy is the lowest that any of the searches found,
"gap" the mean distance from it. Token forwards are those of `SearchCost`: a token forward and back
counts threefold. Where a search of everything is affordable, add --exhaustive.

    python benchmarks/gradient.py RUN --queries 48 > benchmarks/results/NAME.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data import cut_windows
from cefito.errors import ConfigError
from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.runs.run import open_run
from cefito.search import (
    ExhaustiveSearch,
    GuidedSearch,
    Plans,
    Problem,
    Search,
    SearchCost,
    StepCosts,
)
from cefito.search.base import Watch, observations
from cefito.search.problem import Best, Space, compiled
from cefito.search.problem import ranks as ranks_of
from cefito.search.screening import SequenceEnergies

HIT = 1e-5  # difference of energies that float rounding explains

_TOGETHER = 32  # queries that advance in step, so that the network sees large batches
_BACKWARD = 3  # tokens forward that a token forward and back counts for
_FORBIDDEN = 10.0  # what a forbidden transition costs a mixture beyond the dearest allowed one


def relaxed_energy(
    field: EnergyField, initial: Tensor, goal: Tensor, actions: Tensor, mixture: Tensor
) -> Tensor:
    """Energy of mixtures of actions; equals `field.energy` where each step is one-hot.

    The token of a step is the mixture's mean of the action tokens, and so is what the last action
    adds to the goal: the plainest relaxation of the field.

    Args:
        field: The field.
        initial: Initial observations [B, E].
        goal: Goal observations [B, E].
        actions: Action ids [A] that are mixed.
        mixture: Share of each action at each step [B, T, A], non-negative, adding up to one at
            each step.

    Returns:
        Energies [B], float32, differentiable in the mixture.
    """
    predictor = field.predictor
    steps = mixture @ predictor.action_tokens()[actions]
    states = predictor.state_mask_token.expand_as(steps)
    first = predictor.state_token(field.centred(initial))[:, None]
    x = torch.cat([first, torch.stack([steps, states], dim=2).flatten(1, 2)], dim=1)
    x = x + predictor.pos_embed[: x.shape[1]]
    for block in predictor.blocks[:-1]:
        x = block(x)
    predicted = predictor.state_head(
        predictor.norm(predictor.blocks[-1](x, read=slice(-1, None))[:, 0])
    )
    skip = predictor.skip()
    if skip is not None:
        predicted = predicted + mixture[:, -1] @ skip[actions]
    return field.distance(predicted, field.target(goal))


class RelaxedField(IncrementalField):
    """An incremental field that gives the energies of mixtures too."""

    def relaxed_energy(
        self, initial: Tensor, goal: Tensor, actions: Tensor, mixture: Tensor
    ) -> Tensor:
        """As `relaxed_energy`, differentiable even where the caller has switched gradients off.

        Differentiate by the mixture with `torch.autograd.grad`, so that no gradient is left at the
        weights.
        """
        with torch.inference_mode(False), torch.enable_grad():
            return relaxed_energy(self.field, initial, goal, actions, mixture)

    def bytes_per_mixture(self, actions: int) -> int:
        """Memory that one mixture of so many actions takes until it has been differentiated."""
        config = self.field.config
        tokens, hidden = 2 * self.horizon + 1, round(config.mlp_ratio * config.width)
        # of each block: stream twice, norms twice, q, k, v, mixed, MLP three times, attention; as
        # much again on the way back
        block = tokens * (8 * config.width + 3 * hidden + config.heads * tokens)
        return 4 * (2 * config.depth * block + 4 * self.horizon * actions)


class GradientSearch:
    """Relaxed descent from several starts, rounding, re-scoring by the field, local refinement.

    1. Several starts: mixtures near the guide's cheapest sequences, and random ones; all random
       where there is no guide.
    2. Adam on their logits lowers relaxed energy / temperature + expected cost of the chain, steps
       taken as independent. The softmax over the logits is cooled, so that mixtures end near single
       actions.
    3. Rounding: the likeliest action of each step, at every stage of the descent, and the likeliest
       allowed sequences of the final mixtures, exactly. The field's own energies decide among them:
       a mixture's can be far below that of any sequence.
    4. The best is improved by `GuidedSearch`, with the mixture it came from as guide.

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
                f"sequences, {refinements} refinements, {rounds} rounds and {memory_mib} MiB; "
                "expected at least 1, 0, 1, 0, 0 and more than 0."
            )
        if not learning_rate > 0 or not min(temperatures) > 0 or not spread >= 0:
            raise ConfigError(
                f"gradient search with learning rate {learning_rate}, temperatures "
                f"{list(temperatures)} and spread {spread}; expected positive ones, and a spread "
                "of at least 0."
            )
        self.restarts, self.steps, self.rounded = restarts, steps, rounded
        self.learning_rate, self.temperatures, self.spread = learning_rate, temperatures, spread
        self.refinements, self.rounds = refinements, rounds
        self.memory_mib, self.seed = memory_mib, seed

    def search(
        self,
        field: RelaxedField,
        problems: Sequence[Problem | Space],
        top_k: int,
        watch: Watch = Watch(),
    ) -> list[Plans]:
        """Good sequences of each problem, at most `top_k`; exact where all allowed were evaluated.

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

    def _bytes(self, field: RelaxedField, space: Space) -> int:
        """Memory that the descent of one query takes."""
        chain = space.objective.costs
        return self.restarts * field.bytes_per_mixture(space.size) + sum(
            4 * cost.size * (1 + self.restarts) for cost in (chain.costs if chain else ())
        )

    def _together(
        self, field: RelaxedField, spaces: Sequence[Space], top_k: int, watch: Watch
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
            effort = SearchCost(
                int(energies.tokens[row]) + descent.tokens, int(energies.leaves[row])
            )
            found.append(_best(space, part, torch.from_numpy(values[query == row]), top_k, effort))
        if self.refinements and not watch.stop():
            found = self._refined(field, spaces, found, mixtures, top_k, watch)
        if not watch.stop():
            watch.advance(share)
        return found

    def _rounded(
        self, space: Space, passed: NDArray[np.int64], mixtures: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Distinct allowed sequences to evaluate.

        Args:
            space: The query.
            passed: Likeliest sequences on the way down [n, T].
            mixtures: Costs under the final mixtures [R, T, A], whose cheapest sequences join them.
        """
        passed = np.unique(passed, axis=0)
        last = [
            space.cheapest(_unary(costs, space.size), self.rounded).sequences for costs in mixtures
        ]
        return np.unique(np.concatenate([passed[space.allows(passed)], *last]), axis=0)

    def _refined(
        self,
        field: RelaxedField,
        spaces: Sequence[Space],
        found: Sequence[Plans],
        mixtures: NDArray[np.float64],
        top_k: int,
        watch: Watch,
    ) -> list[Plans]:
        """The plans found, improved by changes of the best one where its energy is finite."""
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
    """The mixtures of several queries on their way down, [Q, R, T, A].

    Problems of fewer actions than the widest are padded.
    """

    def __init__(
        self, field: RelaxedField, spaces: Sequence[Space], settings: GradientSearch
    ) -> None:
        self.field, self.spaces, self.settings = field, spaces, settings
        device, horizon, widest = field.device, field.horizon, max(space.size for space in spaces)
        ids = np.unique(np.concatenate([space.problem.actions for space in spaces]))
        self._ids = torch.from_numpy(ids).to(device)
        # of each query's actions among those of all queries
        place = np.zeros((len(spaces), 1, 1, widest), dtype=np.int64)
        possible = np.zeros((len(spaces), 1, horizon, widest), dtype=np.bool_)
        logits = np.zeros((len(spaces), settings.restarts, horizon, widest), dtype=np.float32)
        for row, space in enumerate(spaces):
            place[row, 0, 0, : space.size] = np.searchsorted(ids, space.problem.actions)
            possible[row, 0, :, : space.size] = _possible(space)
            logits[row, :, :, : space.size] = _starts(space, settings)
        self._place = torch.from_numpy(place).to(device)
        self._impossible = ~torch.from_numpy(possible).to(device)
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
        possible = self._logits.masked_fill(self._impossible, -torch.inf)
        return (possible / self.temperature).softmax(dim=-1)

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
        """−log of the mixtures [Q, R, T, A]; the impossible costs no less than the least likely."""
        with torch.no_grad():
            likelihood = self._mixture().double().clamp_min(1e-30)
            return np.asarray(-likelihood.log().cpu().numpy())


def _possible(space: Space) -> NDArray[np.bool_]:
    """Which actions each step may take by the pins, the forbidden actions and the chain, [T, A].

    The other constraints are left to the rounding.
    """
    actions, constraints = space.problem.actions, space.problem.constraints
    possible = np.ones((space.horizon, space.size), dtype=np.bool_)
    possible &= ~np.isin(actions, constraints.forbidden)
    for step, action in constraints.pinned:
        possible[step - 1] &= np.array(actions) == action
    chain = space.objective.costs
    if chain is not None:
        ahead = chain.to_go()
        for step, cost in enumerate(chain.costs):
            after = ahead[step + 1]  # both tables end in the axis of this step
            finite = np.isfinite(cost + after)
            possible[step] &= finite.any(axis=tuple(range(finite.ndim - 1)))
    possible[0] &= space.children(np.zeros((1, 0), dtype=np.int64))[0]
    return possible


def _starts(space: Space, settings: GradientSearch) -> NDArray[np.float64]:
    """First logits [R, T, A], random.

    Where there is a guide, each start of the first half favours one of its cheapest sequences.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    logits = (
        settings.spread
        * torch.randn(
            settings.restarts, space.horizon, space.size, generator=generator, dtype=torch.float64
        ).numpy()
    )
    if space.problem.guide is not None or space.objective.costs is not None:
        likely = space.cheapest(space.guide, (settings.restarts + 1) // 2).sequences
        for row, sequence in enumerate(likely):
            logits[row, np.arange(space.horizon), sequence] += np.log(space.size) + settings.spread
    return np.asarray(logits)


def _tables(spaces: Sequence[Space], widest: int) -> list[NDArray[np.float32]]:
    """The chains' costs of each step, of all queries together, what is forbidden made finite.

    Each step's table is [Q, A], [Q, A, A] or [Q, A, A, A].
    """
    chains = [space.objective.costs for space in spaces]
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
    """Expected cost [Q, R] of the chains under mixtures [Q, R, T, A] of independent steps."""
    formula = {1: "qa,qra->qr", 2: "qab,qra,qrb->qr", 3: "qabc,qra,qrb,qrc->qr"}
    total: Tensor | float = 0.0
    for step, table in enumerate(tables):
        axes = table.ndim - 1
        steps = [mixture[:, :, step + 1 - axes + axis] for axis in range(axes)]
        total = total + torch.einsum(formula[axes], table, *steps)
    return total


def _unary(costs: NDArray[np.float64], size: int) -> StepCosts:
    """A chain of costs [T, A or more] of single steps."""
    return StepCosts(costs=tuple(costs[:, :size]))


def _best(
    space: Space, sequences: NDArray[np.int64], energies: Tensor, top_k: int, effort: SearchCost
) -> Plans:
    best = Best(top_k)
    values = energies.cpu().numpy()
    best.add(values, ranks_of(sequences, space.size), space.scores(values, sequences))
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


def searches(*, exhaustive: bool) -> dict[str, Search]:
    compared: dict[str, Search] = {
        f"guided, {proposals} proposals, {starts} starts": GuidedSearch(
            proposals=proposals, starts=starts
        )
        for proposals, starts in ((128, 1), (128, 8), (128, 64), (2048, 8))
    }
    compared |= {
        f"gradient, {restarts} restarts, {steps} steps": GradientSearch(
            restarts=restarts, steps=steps
        )
        for restarts, steps in ((8, 0), (2, 4), (8, 20), (8, 60), (32, 60))
    }
    return {**compared, "exhaustive": ExhaustiveSearch()} if exhaustive else compared


def measured(field: RelaxedField, problems: list[Problem], search: Search) -> dict[str, Any]:
    started = time.process_time()
    plans = search.search(field, problems, 1)
    seconds = time.process_time() - started
    return {
        "energies": [float(found.energies[0]) for found in plans],
        "cpu_seconds": seconds / len(problems),
        "token_forwards": mean(found.evaluated.token_forwards for found in plans),
        "leaves": mean(found.evaluated.leaves for found in plans),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--dataset", type=Path, help="where the run's data set lies now")
    parser.add_argument("--queries", type=int, default=48)
    parser.add_argument("--exhaustive", action="store_true", help="search everything too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run = open_run(given.run)
    planner = run.planner
    space, prior, horizon = planner.space, planner.prior, planner.horizon
    val = cut_windows(run.dataset(given.dataset), horizon=horizon, split="val").sample(
        given.queries, 0
    )
    field = RelaxedField(planner.field)
    result: list[dict[str, Any]] = []
    for guide in ("prior", "none"):
        problems = [
            Problem(
                initial=val.initial[row],
                goal=val.goal[row],
                actions=tuple(space.actions[task]),
                guide=prior.costs(int(task), horizon) if guide == "prior" else None,
            )
            for row, task in enumerate(val.tasks)
        ]
        result += [
            {"guide": guide, "search": name, **measured(field, problems, search)}
            for name, search in searches(exhaustive=given.exhaustive).items()
        ]
    least = np.min([entry["energies"] for entry in result], axis=0)
    for entry in result:
        energies = np.array(entry.pop("energies"))
        entry |= {
            "energy": energies.mean(),
            "gap": (energies - least).mean(),
            "hits": float((energies <= least + HIT).mean()),
        }
    print(
        json.dumps(
            {
                "dataset": val.dataset,
                "horizon": horizon,
                "queries": len(val),
                "split": "val",
                "actions": mean(len(space.actions[task]) for task in val.tasks),
                "searches": result,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
