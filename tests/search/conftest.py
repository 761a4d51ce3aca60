"""A field without a network, problems for it, and the plans that a list of everything gives."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from cefito.search import Constraints, Objective, Plans, Problem, StepCosts, Watch

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """Prefixes of the dummy field: (initial, goal, actions so far)."""

    rows: tuple[tuple[float, float, Ids], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def narrow(self, first: int, count: int) -> Node:
        return Node(self.rows[first : first + count])


class Kept:
    """Prefixes of any lengths, numbered as they were added after the empty ones."""

    def __init__(self, roots: Node, child_bytes: int) -> None:
        self.rows, self.empty, self.child_bytes = list(roots.rows), len(roots), child_bytes

    @property
    def kept_bytes(self) -> int:
        return self.child_bytes * (len(self.rows) - self.empty)

    def clear(self) -> None:
        del self.rows[self.empty :]


@dataclass
class DummyField:
    """Any function of (initial, goal, sequence), which records what is asked of it."""

    horizon: int
    function: Callable[[float, float, Ids], float]
    error: Callable[[float, float, Ids], float] = lambda *_: 0.0  # of the coarse field
    coarse_pays: bool = False
    child_bytes: int = 1
    flops_per_token: int = 1000
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    # (depth, number) of children computed at once
    children: list[tuple[int, int]] = field(default_factory=list)
    # prefixes computed, full sequences too
    nodes: list[tuple[float, float, Ids]] = field(default_factory=list)
    roots: int = 0

    @property
    def coarse(self) -> DummyField:
        """The same field with the error, which records in the same lists."""
        return replace(self, function=lambda *row: self.function(*row) + self.error(*row))

    @property
    def leaves(self) -> list[tuple[float, float, Ids]]:
        """Full sequences whose energy was asked for."""
        return [node for node in self.nodes if len(node[2]) == self.horizon]

    def energy(self, initial, goal, actions):
        rows = [
            (float(one[0]), float(other[0]), tuple(row))
            for one, other, row in zip(initial, goal, actions.tolist(), strict=True)
        ]
        assert all(len(row[2]) == self.horizon for row in rows)
        self.nodes += rows
        return self._energies(rows)

    def root(self, initial, goal):
        self.roots += 1
        return Node(
            tuple(
                (float(one[0]), float(other[0]), ())
                for one, other in zip(initial, goal, strict=True)
            )
        )

    def cached(self, initial, goal):
        return Kept(self.root(initial, goal), self.child_bytes)

    def sequence_energies(self, cache, levels):
        assert len(levels) == self.horizon
        for parents, actions in levels[:-1]:
            cache.rows += self._chosen(cache, parents, actions, leaf=False)
        return self._energies(self._chosen(cache, *levels[-1], leaf=True))

    def extend(self, prefixes, actions):
        return Node(self._all(prefixes, actions, leaf=False))

    def leaf_energy(self, prefixes, actions):
        return self._energies(self._all(prefixes, actions, leaf=True)).view(
            len(prefixes), len(actions)
        )

    def bytes_per_child(self, depth, *, leaf, cached=False):
        return self.child_bytes * (1 if leaf else depth + 2) * (3 if cached else 1)

    def _energies(self, rows: Iterable[tuple[float, float, Ids]]) -> torch.Tensor:
        return torch.tensor([float(self.function(*row)) for row in rows], dtype=torch.float32)

    def _all(self, prefixes, actions, *, leaf: bool) -> tuple[tuple[float, float, Ids], ...]:
        return self._record(itertools.product(prefixes.rows, actions.tolist()), leaf)

    def _chosen(
        self, prefixes, parents, actions, *, leaf: bool
    ) -> tuple[tuple[float, float, Ids], ...]:
        chosen = [prefixes.rows[parent] for parent in parents.tolist()]
        return self._record(zip(chosen, actions.tolist(), strict=True), leaf)

    def _record(
        self, pairs: Iterable[tuple[tuple[float, float, Ids], int]], leaf: bool
    ) -> tuple[tuple[float, float, Ids], ...]:
        """Note the children of pairs of a prefix and its next action."""
        rows = tuple((one, other, (*before, action)) for (one, other, before), action in pairs)
        assert all((len(row[2]) == self.horizon) == leaf for row in rows)
        if rows:
            self.children.append((len(rows[0][2]) - 1, len(rows)))
        self.nodes += rows
        return rows


class DummyComposite:
    """Dummy fields that add up; energies are whole numbers, so that sums are exact."""

    def __init__(self, horizon, *directions, **more):
        self.horizon, self.device = horizon, torch.device("cpu")
        self._components = tuple(
            (DummyField(horizon, salted(number), **more), direction == "b")
            for number, direction in enumerate(directions)
        )

    @property
    def coarse(self):
        return self

    def components(self):
        return self._components

    def function(self, initial, goal, sequence):
        return sum(
            part.function(goal, initial, sequence[::-1])
            if backward
            else part.function(initial, goal, sequence)
            for part, backward in self._components
        )

    def energy(self, initial, goal, actions):
        return sum(
            part.energy(goal, initial, actions.flip(-1))
            if backward
            else part.energy(initial, goal, actions)
            for part, backward in self._components
        )

    @property
    def nodes(self):
        """Prefixes and suffixes computed."""
        return sum(len(part.nodes) for part, _ in self._components)

    @property
    def roots(self):
        return sum(part.roots for part, _ in self._components)


def salted(number):
    """An energy without structure that differs from part to part."""

    def function(initial, goal, sequence):
        return zlib.crc32(repr((number, initial, goal, sequence)).encode()) % 17

    return function


class Impatient:
    """A watch that adds up what is advanced, and says stop once it was asked so many times."""

    def __init__(self, patience: float = float("inf")) -> None:
        self.patience, self.asked, self.advanced = patience, 0, 0.0
        self.watch = Watch(advance=self._advance, stop=self._stop)

    def _advance(self, part: float = 1) -> None:
        assert part >= 0
        self.advanced += part

    def _stop(self) -> bool:
        self.asked += 1
        return self.asked > self.patience


def problem(goal: float, actions: Iterable[int], initial: float = 0.0, **more: Any) -> Problem:
    return Problem(
        initial=np.array([initial], np.float32),
        goal=np.array([goal], np.float32),
        actions=tuple(actions),
        **more,
    )


def random_problems(
    seed: int, sets: Iterable[Iterable[int]], width: int = 20, **more: Any
) -> list[Problem]:
    """Problems of these sets of actions between random observations."""
    generator = np.random.default_rng(seed)
    found = []
    for allowed in sets:
        initial, goal = generator.standard_normal((2, width)).astype(np.float32)
        found.append(Problem(initial, goal, tuple(allowed), **more))
    return found


def scrambled(initial: float, goal: float, sequence: Ids) -> int:
    """An energy without any structure, with many ties."""
    return zlib.crc32(repr((initial, goal, sequence)).encode()) % 17


def satisfies(sequence: Ids, constraints: Constraints) -> bool:
    """The meaning of constraints, word for word, on action ids."""
    for step, action in constraints.pinned:
        if sequence[step - 1] != action:
            return False
    for action in constraints.required:
        if action not in sequence:
            return False
    for action in constraints.forbidden:
        if action in sequence:
            return False
    for first, second in constraints.before:
        for one, other in itertools.product(range(len(sequence)), repeat=2):
            if sequence[one] == first and sequence[other] == second and one > other:
                return False
    return not constraints.no_repeats or len(set(sequence)) == len(sequence)


def chain_cost(chain: StepCosts, places: Ids) -> float:
    """The meaning of a chain, step by step."""
    return sum(
        float(cost[places[step + 1 - cost.ndim : step + 1]])
        for step, cost in enumerate(chain.costs)
    )


def everything(
    one: Problem, horizon: int, function: Callable[[float, float, Ids], float]
) -> list[tuple[float, Ids, float]]:
    """All allowed sequences as (score, actions, energy), best first, ties by actions."""
    found = []
    objective = one.objective
    for places in itertools.product(range(len(one.actions)), repeat=horizon):
        sequence = tuple(one.actions[place] for place in places)
        cost = 0.0 if objective.costs is None else chain_cost(objective.costs, places)
        if satisfies(sequence, one.constraints):
            energy = float(function(float(one.initial[0]), float(one.goal[0]), sequence))
            found.append(
                (energy / objective.temperature + cost + objective.offset, sequence, energy)
            )
    return sorted(found)


def listed(plans: Plans) -> list[tuple[float, Ids, float]]:
    """Plans in the form of `everything`."""
    return [
        (score, tuple(row), energy)
        for score, row, energy in zip(
            plans.scores.tolist(), plans.actions.tolist(), plans.energies.tolist(), strict=True
        )
    ]


def assert_consistent(plans: Plans, all_of_them: Sequence[tuple[float, Ids, float]]) -> None:
    """Sorted, distinct, allowed, with their true energies and scores."""
    found = listed(plans)
    assert found == sorted(found)
    assert len({sequence for _, sequence, _ in found}) == len(found)
    assert set(found) <= set(all_of_them)


def assert_same(fast: Plans, slow: Plans, rtol: float = 1e-5) -> None:
    """Exact plans of the same scores, the same sequences but where neighbours are nearly equal."""
    assert fast.exact
    assert slow.exact
    np.testing.assert_allclose(fast.scores, slow.scores, rtol=rtol)
    np.testing.assert_allclose(fast.energies, slow.energies, rtol=rtol)
    assert len({tuple(row) for row in fast.actions.tolist()}) == len(fast)
    gaps = np.abs(np.diff(slow.scores)) > 1e-4 * np.abs(slow.scores[1:])
    # the last may be nearly equal to one beyond the list
    clear = np.r_[True, gaps] & np.r_[gaps, len(slow) == 1]
    assert (fast.actions[clear] == slow.actions[clear]).all()


def direct_energies(field: Any, one: Problem, plans: Plans) -> np.ndarray:
    """Energies of plans by forwards of their full sequences."""
    initial, goal = (
        torch.from_numpy(part).expand(len(plans), -1) for part in (one.initial, one.goal)
    )
    with torch.no_grad():
        return field.energy(initial, goal, torch.from_numpy(plans.actions)).numpy()


@st.composite
def chains(draw, horizon: int, size: int, *, infinite: bool = False, most: int = 4) -> StepCosts:
    """Chains of all orders with whole numbers as costs, a fifth of them infinite if wanted."""
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    costs = []
    for step in range(horizon):
        shape = (size,) * draw(st.integers(1, min(step + 1, 3)))
        cost = generator.integers(0, most + 1, shape).astype(np.float64)
        costs.append(np.where(generator.random(shape) < 0.2, np.inf, cost) if infinite else cost)
    return StepCosts(costs=tuple(costs))


@st.composite
def constraint_sets(draw, horizon: int, actions: Ids) -> Constraints:
    """Constraints whose mistake, if any, is only that no sequence satisfies them."""
    action = st.sampled_from(actions)
    pair = st.tuples(action, action).filter(lambda ids: ids[0] != ids[1])
    return Constraints(
        pinned=tuple(draw(st.dictionaries(st.integers(1, horizon), action, max_size=1)).items()),
        required=tuple(draw(st.lists(action, max_size=1))),
        forbidden=tuple(draw(st.lists(action, max_size=1))),
        before=tuple(draw(st.lists(pair, max_size=2))) if len(actions) > 1 else (),
        no_repeats=draw(st.booleans()),
    )


@st.composite
def problems_of(draw, horizon: int, actions: Ids, *, goal: int = 0) -> Problem:
    """A problem with or without constraints, costs, a temperature, an offset and a guide."""
    size = len(actions)
    chain = draw(chains(horizon, size)) if draw(st.booleans()) else None
    return problem(
        goal,
        actions,
        initial=draw(st.integers(0, 1)),
        constraints=draw(constraint_sets(horizon, actions))
        if draw(st.booleans())
        else Constraints(),
        objective=Objective(
            temperature=draw(st.sampled_from([0.5, 1.0, 4.0])),
            costs=chain,
            offset=draw(st.sampled_from([0.0, 2.5])),
        ),
        guide=draw(chains(horizon, size)) if draw(st.booleans()) else None,
    )
