"""Decides which sequences satisfy constraints, and which prefixes some valid sequence begins with.

Prefixes are decided by their state: actions with the same role in the constraints are
interchangeable and form a kind, and the state of a prefix is the number of actions of each kind
that may still follow and which required actions are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.search.constraints import Constraints, Rules, check_actions


class Feasible:
    """Sequences (of places) that satisfy constraints, for one set of actions and one horizon.

    Args:
        constraints: Constraints, by ids of actions.
        actions: Ids of the allowed actions, ascending.
        horizon: Number T of steps.
    """

    def __init__(self, constraints: Constraints, actions: Sequence[int], horizon: int) -> None:
        check_actions(constraints)
        rules = Rules.of(constraints, actions, horizon)
        self.constraints, self.horizon, self.size = constraints, horizon, len(actions)
        self._once, self._usable = rules.once, rules.usable
        self._pinned_places, self._required_places = rules.pinned, sorted(rules.required)
        # [action, other]: after this action the other may not come any more
        self._closes = rules.closes & rules.usable & rules.usable[:, None]
        self._compile_kinds()
        self._decided = cache(self._decide)
        if not self._completable(0, self._start[None])[0]:
            raise ConfigError(
                f"no sequence of {horizon} of the {self.size} allowed actions satisfies all "
                f"constraints ({constraints.summary()}); drop or change some of them."
            )

    def _compile_kinds(self) -> None:
        """Group actions into kinds; a state: open actions of each, flags of missing ones."""
        # A pinned or required action is a kind of its own, all unusable actions are one kind, and
        # others are of one kind if they close and are closed by the same actions.
        named = {*self._required_places, *self._pinned_places.values()}
        signatures: list[object] = [
            index
            if index in named
            else (self._closes[index].tobytes(), self._closes[:, index].tobytes())
            if usable
            else None
            for index, usable in enumerate(self._usable)
        ]
        # One action of each kind. Kinds are numbered in an order that respects `before` as far as
        # possible, so that trying kinds by number rarely fails.
        samples = [signatures.index(signature) for signature in dict.fromkeys(signatures)]
        ordered = _acyclic(self._closes[np.ix_(samples, samples)].T)
        in_circles = sorted(set(range(len(samples))) - set(ordered))
        samples = [samples[kind] for kind in ordered + in_circles]
        number = {signatures[sample]: kind for kind, sample in enumerate(samples)}
        self._kind = np.array([number[signature] for signature in signatures])  # of each action
        self._kinds = len(samples)
        self._required = self._kind[self._required_places]
        self._pinned = {step: int(self._kind[index]) for step, index in self._pinned_places.items()}
        self._pinned_from = [
            {kind for step, kind in self._pinned.items() if step >= done}
            for done in range(self.horizon + 1)
        ]
        self._unpinned_from = [
            sum(step not in self._pinned for step in range(done, self.horizon))
            for done in range(self.horizon + 1)
        ]

        # The initial state, and the factors by which an action of each kind multiplies a state:
        # zero for the kinds that it closes and for its own flag of a required action.
        sizes = np.bincount(self._kind, weights=self._usable, minlength=self._kinds).astype(
            np.int64
        )
        self._start = np.concatenate([sizes, np.ones(len(self._required), dtype=np.int64)])
        closes = self._closes[np.ix_(samples, samples)]
        self._keep = np.concatenate(
            [~closes, np.arange(self._kinds)[:, None] != self._required], axis=1
        ).astype(np.int64)
        self._keep_rows: list[list[int]] = self._keep.tolist()

        # Kinds without an order relative to a named one, whose actions can be ordered among
        # themselves: any set of them can fill the remaining steps.
        self._named = np.isin(samples, list(named))
        unrelated = np.flatnonzero(~self._named & ~(closes | closes.T)[self._named].any(axis=0))
        self._free = unrelated[_acyclic(closes[np.ix_(unrelated, unrelated)].T)]

        # Each state is coded as one number; beyond 61 bits as a Python integer.
        radix = [1]
        for most in self._start.tolist():
            radix.append(radix[-1] * (most + 1))
        self._radix = np.array(radix[:-1], dtype=np.int64 if radix[-1] < 1 << 61 else object)

    def valid(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the full sequences of places [M, T] satisfy the constraints, as [M]."""
        valid = np.asarray(self._usable[sequences].all(axis=1))
        for step, index in self._pinned_places.items():
            valid &= sequences[:, step] == index
        for index in self._required_places:
            valid &= (sequences == index).any(axis=1)
        closes = self._closes | np.eye(self.size, dtype=np.bool_) if self._once else self._closes
        for later in range(1, self.horizon):
            for earlier in range(later):
                valid &= ~closes[sequences[:, earlier], sequences[:, later]]
        return valid

    def children(self, prefixes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which actions continue valid prefixes [n, t] to a valid sequence, as [n, A]."""
        # Prefixes to states; what is open among their kinds bounds which actions may come.
        done = prefixes.shape[1]
        states = np.broadcast_to(self._start, (len(prefixes), len(self._start)))
        for step in range(done):
            states = self._followed(states, self._kind[prefixes[:, step]])
        possible = states[:, : self._kinds] > 0
        # Many prefixes share a state: each state is decided once, for every possible next kind. If
        # actions may repeat, unnamed kinds never run out and need not distinguish states.
        states = states if self._once else self._reduced(states)
        _, first, inverse = np.unique(self._packed(states), return_index=True, return_inverse=True)
        states = states[first]
        completable = np.zeros((len(states), self._kinds), dtype=np.bool_)
        for kind in [self._pinned[done]] if done in self._pinned else range(self._kinds):
            completable[:, kind] = self._completable(done + 1, self._followed(states, kind))
        result: NDArray[np.bool_] = (possible & completable[inverse.reshape(-1)])[:, self._kind]
        if self._once:
            np.put_along_axis(result, prefixes, False, axis=1)
        return result

    def _followed(self, states: NDArray[np.int64], kinds: Any) -> NDArray[np.int64]:
        """Return the states [n, S] after an action of one kind, or of a kind each [n]."""
        states = states.copy()
        if self._once:
            rows = np.arange(len(states))
            states[rows, kinds] = np.maximum(states[rows, kinds] - 1, 0)
        states *= self._keep[kinds]
        return states

    def _reduced(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return states without the open actions of kinds neither pinned nor required."""
        states = states.copy()
        states[:, : self._kinds] *= self._named
        return states

    def _packed(self, states: NDArray[np.int64]) -> NDArray[Any]:
        """Return the code of each state."""
        packed: NDArray[Any] = states.astype(self._radix.dtype) @ self._radix
        return packed

    def _completable(self, done: int, states: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether valid sequences pass through states [n, S] after `done` steps, as [n]."""
        # Steps that no pinned or required action needs can always be filled if actions may repeat,
        # or if enough free ones are open. Then only named kinds matter, so that many states are
        # equivalent.
        reduced = self._reduced(states)
        spare = np.ones(len(states), dtype=np.bool_)
        if self._once:
            unpinned = np.array(
                [kind not in self._pinned_from[done] for kind in self._required.tolist()],
                dtype=np.bool_,
            )
            fillers = self._unpinned_from[done] - states[:, self._kinds :][:, unpinned].sum(axis=1)
            spare = states[:, self._free].sum(axis=1) >= fillers
        states = np.where(spare[:, None], reduced, states)
        _, first, inverse = np.unique(
            2 * self._packed(states) + spare, return_index=True, return_inverse=True
        )
        decided = [
            self._decided(done, flag, tuple(state))
            for flag, state in zip(spare[first].tolist(), states[first].tolist(), strict=True)
        ]
        return np.array(decided, dtype=np.bool_)[inverse.reshape(-1)]

    def _decide(self, done: int, spare: bool, state: tuple[int, ...]) -> bool:
        """Whether a valid sequence passes through a state."""
        # spare: steps that no pinned or required action needs can always be filled, by the
        # previous action if actions may repeat, otherwise by open free ones; the state then holds
        # named kinds only. state: open actions of each kind, flags of missing required ones
        pinned = self._pinned_from[done]
        missing = [
            kind
            for kind, flag in zip(self._required.tolist(), state[self._kinds :], strict=True)
            if flag and kind not in pinned
        ]
        fillers = self._unpinned_from[done] - len(missing)
        if fillers < 0 or not all(state[kind] for kind in (*missing, *pinned)):
            return False
        if done == self.horizon or (spare and not missing and not pinned):
            return True
        if done in self._pinned:
            return self._leads_on(done, spare, state, self._pinned[done])
        if spare:
            return any(self._leads_on(done, spare, state, kind) for kind in sorted(missing)) or (
                fillers > 0 and self._decided(done + 1, spare, state)
            )
        if sum(state[: self._kinds]) < self.horizon - done:
            return False
        return any(
            self._leads_on(done, spare, state, kind)
            for kind in range(self._kinds)
            if state[kind] and (kind in missing or (fillers > 0 and kind not in pinned))
        )

    def _leads_on(self, done: int, spare: bool, state: tuple[int, ...], kind: int) -> bool:
        after = [value * keep for value, keep in zip(state, self._keep_rows[kind], strict=True)]
        after[kind] -= self._once
        if spare:
            return self._decided(done + 1, spare, tuple(after))
        return bool(self._completable(done + 1, np.array([after], dtype=np.int64))[0])


def _acyclic(before: NDArray[np.bool_]) -> list[int]:
    """Return the numbers neither in a cycle of `before` [n, n] nor after one, in its order."""
    order: list[int] = []
    left = np.ones(len(before), dtype=np.bool_)
    while (ready := left & ~before[left].any(axis=0)).any():
        order += np.flatnonzero(ready).tolist()
        left &= ~ready
    return order
