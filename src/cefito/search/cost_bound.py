"""What a search may cost at most, known before it begins.

The bounds are of token forwards, as `cefito.search.problem.Effort` counts them, of each part of a
field. Constraints are taken into account as far as a glance shows: pinned steps and forbidden
actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from cefito.search.auto import AutoSearch
from cefito.search.beam import BeamSearch
from cefito.search.component import Searchable, parts_of
from cefito.search.constraints import Constraints
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch
from cefito.search.k_best import KBestSearch
from cefito.search.naive import NaiveSearch
from cefito.search.problem import Search
from cefito.search.screening import KEPT, Screening, sample_size

__all__ = ["choices", "most_operations", "most_tokens"]


def choices(actions: Sequence[int], horizon: int, constraints: Constraints) -> list[int]:
    """How many actions each step may at most have, [T]."""
    usable = len(actions)
    if constraints.forbidden:
        usable = len(set(actions) - set(constraints.forbidden))
    pinned = {step for step, _ in constraints.pinned}
    return [1 if step in pinned else usable for step in range(1, horizon + 1)]


def most_tokens(
    search: Search,
    steps: Sequence[int],
    top_k: int,
    flops_per_token: float,
    *,
    coarse_pays: bool = False,
) -> float:
    """Most token forwards that one problem takes, of each part of the field.

    Tokens in lower precision, of searches that screen, count like others.

    Args:
        search: The search.
        steps: How many actions each step may have, [T]; from `choices`.
        top_k: Plans wanted.
        flops_per_token: Operations of one token forward of all parts together.
        coarse_pays: Whether searches that screen where that pays do so with this field.
    """
    horizon, leaves = len(steps), float(prod(steps))
    whole = max(_nodes(steps), _nodes(steps[::-1]))  # some parts read sequences from their end
    if isinstance(search, NaiveSearch):
        return leaves * (2 * horizon + 1)
    # A sequence by itself takes two tokens a step, and each time that some are evaluated one more.
    each, apart = 2.0 * horizon, 2.0 * horizon * leaves
    if isinstance(search, KBestSearch):
        return 1 + min(apart, each * top_k)
    if isinstance(search, BeamSearch):
        children = sum(min(search.width, leaves) * count for count in steps)
        return horizon + min(apart, each * children)
    if isinstance(search, GuidedSearch):
        met = each * max(search.proposals, top_k)
        if search.refinements:
            # A round takes what is left of the budget at most, but for the combinations of changes.
            refined = search.budget_gflop * 1e9 / flops_per_token + each * search.refinements
            met = search.rounds + max(met, refined)
        once = 1 + min(apart, met)
        return 2 * once if _screens(search.screening, pays=coarse_pays) else once
    if isinstance(search, AutoSearch):
        free = 1 + 2 * sum(float(max(steps)) ** level for level in range(1, horizon + 1))
        within = free * flops_per_token <= search.budget_gflop * 1e9
        inner: Search = search.exhaustive if within else search.guided
        return most_tokens(inner, steps, top_k, flops_per_token, coarse_pays=coarse_pays)
    if isinstance(search, ExhaustiveSearch) and _screens(search.screening, pays=coarse_pays):
        # the best and a sample once more, and all of it where too many may be the best
        again = max(KEPT, 2 * top_k) + sample_size(int(leaves))
        return 2 * whole + 1 + min(apart, each * again)
    return whole


def _screens(screening: Screening, *, pays: bool) -> bool:
    return screening == "on" or (screening == "auto" and pays)


def _nodes(steps: Sequence[int]) -> float:
    """Token forwards of a walk of the whole tree of prefixes."""
    return 1 + 2 * sum(float(prod(steps[: level + 1])) for level in range(len(steps)))


def most_operations(search: Search, field: Searchable, steps: Sequence[int], top_k: int) -> float:
    """Most floating-point operations that one problem takes; arguments as in `most_tokens`."""
    parts = parts_of(field)
    each = float(sum(part.energies.flops_per_token for part in parts))
    pays = all(part.energies.coarse_pays for part in parts)
    return most_tokens(search, steps, top_k, each, coarse_pays=pays) * each
