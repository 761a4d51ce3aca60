"""What the observations of a query contradict: a task that is given, or constraints on plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cefito.data.vocabulary import Taxonomy
from cefito.planners.base import Planner, Queries
from cefito.search.constraints import Constraints

UNLIKELY = 0.05
"""Largest share of queries that are warned although they ask for the truth.

It holds for calibrated probabilities: a choice is contradicted if all choices that are no likelier,
itself among them, have less than this probability together.
"""


def contradictions(
    planner: Planner,
    query: Queries,
    constraints: Constraints,
    taxonomy: Taxonomy,
    *,
    task: int | None,
) -> list[str]:
    """Return a sentence for each part of a query that its observations contradict.

    Constraints beyond those on single steps and pairs of steps are judged by the task that they
    lead to.

    Args:
        planner: The planner; without probabilities it contradicts nothing.
        query: One query.
        constraints: Constraints on its plans.
        taxonomy: Names of the tasks and actions.
        task: The task of its best plan.
    """
    sentences: list[str] = []
    if query.tasks is not None and query.done is not None:
        task_given = taxonomy.tasks[query.tasks[0]]
        foreign = sorted(set(query.done[0].tolist()) - {-1, *task_given.actions})
        names = taxonomy.names(foreign)
        sentences += [
            f"'{name}' was done but is not among the steps of '{task_given.name}'" for name in names
        ]
    if replace(query, tasks=None).empty.any():  # nothing that could contradict
        return sentences
    tasks, steps = planner.marginals(query)
    if tasks is not None and task is not None and _is_unlikely(tasks[0], task):
        likely, other = (
            f"'{taxonomy.tasks[number].name}' ({_percent(tasks[0, number])})"
            for number in (int(tasks[0].argmax()), task)
        )
        led = "with these constraints the best plan is of" if query.tasks is None else "given is"
        sentences.append(f"the observations point to the task {likely}; {led} {other}")
    if steps is not None and constraints:
        names = [action.name for action in taxonomy.actions]
        sentences += _of_steps(steps[0], constraints, names)
    return list(dict.fromkeys(sentences))  # actions of one name give one sentence


def _of_steps(
    steps: NDArray[np.float64],  # probability of each action at each step [T, K]
    constraints: Constraints,
    names: list[str],
) -> Iterator[str]:
    def seen(step: int, actions: list[int]) -> str:
        """Describe the probability of actions at a step, counted from 0."""
        either = dict.fromkeys(f"'{names[action]}'" for action in actions)
        share = _percent(steps[step, actions].sum())
        return f"{' or '.join(either)} at step {step + 1} ({share})"

    for number, action in constraints.pinned:
        step = number - 1
        if _is_unlikely(steps[step] / steps[step].sum(), action):  # if a plan has the step
            likely = seen(step, [int(steps[step].argmax())])
            likelihood = _percent(steps[step, action])
            yield (
                f"the observations point to {likely}; "
                f"'{names[action]}' is pinned there ({likelihood})"
            )
    for action in constraints.required:
        if _is_unlikely(steps.sum(axis=0), action):  # p(it occurs) ≤ Σ_t p(a_t = action)
            most = _percent(steps[:, action].sum())
            yield (
                f"the observations point to other actions than '{names[action]}' (at most {most}), "
                "which is required"
            )
    if constraints.forbidden:
        forbidden = list(dict.fromkeys(constraints.forbidden))
        # p(no step has one of them) ≤ 1 − max_t Σ_forbidden p(a_t = action)
        step = int(steps[:, forbidden].sum(axis=1).argmax())
        forbidden.sort(key=lambda action: -steps[step, action])
        together = steps[step, forbidden].cumsum()
        if together[-1] > 1 - UNLIKELY:
            enough = forbidden[: 1 + int((together > 1 - UNLIKELY).argmax())]
            yield f"the observations point to {seen(step, enough)}, which is forbidden"
    excluded = [
        (last, first, f"'{names[first]}' must come first") for first, last in constraints.before
    ]
    if constraints.no_repeats:
        often = ((steps > 1 - UNLIKELY).sum(axis=0) > 1).nonzero()[0].tolist()
        excluded += [(action, action, "no action may occur twice") for action in often]
    for earlier, later, rule in excluded:
        for step, after in combinations(range(len(steps)), 2):
            # p(a_s = earlier and a_t = later) ≥ p(a_s = earlier) + p(a_t = later) − 1
            if steps[step, earlier] + steps[after, later] - 1 > 1 - UNLIKELY:
                both = f"{seen(step, [earlier])} and {seen(after, [later])}"
                yield f"the observations point to {both}; {rule}"


def _is_unlikely(probabilities: NDArray[np.float64], choice: int) -> bool:
    """Whether a choice is among the least likely, which have little probability together."""
    return bool(probabilities[probabilities <= probabilities[choice]].sum() < UNLIKELY)


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %" if probability >= 0.001 else "below 0.1 %"
