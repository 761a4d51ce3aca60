"""Kinds of mistakes in the steps of a plan, by comparison with the annotated steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

Kind = Literal["right", "order", "repetition", "substitution"]
"""A planned step: right; annotated in another place; planned before; another action."""
KINDS: tuple[str, ...] = ("substitution", "order", "repetition", "missing")
"""Kinds of mistakes, as whole plans have them; "missing" is of annotated steps."""


def step_kinds(planned: Sequence[int], actual: Sequence[int]) -> list[Kind]:
    """The kind of each planned step [T']; there may be more or fewer annotated ones [T].

    Each annotated step accounts for one planned step: first for the one in its own place, then,
    from left to right, for one of the same action in another place ("order"). Of the remaining
    steps, an action that the plan already has is a "repetition", any other a "substitution".
    """
    kinds: list[Kind | None] = [None] * len(planned)
    left = Counter(actual)
    for place, (ours, theirs) in enumerate(zip(planned, actual, strict=False)):
        if ours == theirs:
            kinds[place] = "right"
            left[ours] -= 1
    for place, ours in enumerate(planned):
        if kinds[place] is None and left[ours] > 0:
            kinds[place] = "order"
            left[ours] -= 1
    used = {ours for ours, kind in zip(planned, kinds, strict=True) if kind is not None}
    found: list[Kind] = []
    for ours, kind in zip(planned, kinds, strict=True):
        found.append(kind or ("repetition" if ours in used else "substitution"))
        used.add(ours)
    return found


def missing_steps(planned: Sequence[int], actual: Sequence[int]) -> list[bool]:
    """Whether each annotated step [T] is missing; steps in their own places are found first."""
    left = Counter(planned)
    missing = [True] * len(actual)
    for place, (ours, theirs) in enumerate(zip(planned, actual, strict=False)):
        if ours == theirs:
            missing[place] = False
            left[ours] -= 1
    for place, theirs in enumerate(actual):
        if missing[place] and left[theirs] > 0:
            missing[place] = False
            left[theirs] -= 1
    return missing


def plan_kinds(planned: Sequence[int], actual: Sequence[int]) -> list[str]:
    """The kinds of mistakes in a plan, in the order of `KINDS`; none if it is right."""
    found: set[str] = {kind for kind in step_kinds(planned, actual) if kind != "right"}
    if any(missing_steps(planned, actual)):
        found.add("missing")
    return [kind for kind in KINDS if kind in found]
