"""Fitting the objective on validation windows: weights of its terms, number of tasks to search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.planners.base import Queries
from cefito.planners.cefito.hypotheses import Hypotheses, Hypothesis, merged
from cefito.planners.cefito.weights import (
    OBJECTIVES,
    PAPER,
    TERMS,
    ObjectiveFit,
    Weights,
    fit_weights,
)
from cefito.search.guided import GuidedSearch
from cefito.search.parts import Searchable
from cefito.search.problem import Plans, Problem

__all__ = ["FITTED_TASKS", "fit_objective"]

FITTED_TASKS = 5
"""Most tasks of a query among which the number to search is chosen."""
_CANDIDATES = 128  # likely sequences a task, and as many of low energy
_NO_ENERGY = 1e6  # in the place of an infinite energy, of a field that diverged


@dataclass(frozen=True)
class _Candidates:
    """The candidates of one window, of its likeliest tasks one after the other.

    Attributes:
        features: What the terms of `TERMS` weigh, [n, 4].
        correct: Share of right actions, 0 under a wrong task, [n].
        rank: Place of each one's task among the window's likeliest, [n].
    """

    features: NDArray[np.float64]
    correct: NDArray[np.float64]
    rank: NDArray[np.int64]


def fit_objective(
    hypotheses: Hypotheses,
    field: Searchable,
    val: Windows,
    *,
    windows: int,
    memory_mib: float,
) -> ObjectiveFit:
    """Fit the weights of objectives and guide, and choose the number of tasks.

    The candidates of a window are, for each of its likeliest tasks, the sequences likeliest under
    the guide and those of lowest energy that guided search finds; the true one is added where its
    task is among these. Weights make the true ones likely among them; the number of tasks is the
    one under which most windows, and then most actions, are right.

    Args:
        hypotheses: Makes the problems, nothing fitted yet.
        field: The field.
        val: Validation windows.
        windows: Size of the sample of them; 0 for all.
        memory_mib: Memory bound of the search.
    """
    sample = val.sample(windows or None, seed=0)
    candidates = _candidates(hypotheses, field, sample, memory_mib)
    known = [window for window in candidates if (window.correct == 1).any()]
    if not known:
        return hypotheses.fitted
    features = [window.features for window in known]
    truth = [int(np.flatnonzero(window.correct == 1)[0]) for window in known]
    weights = {name: _fitted(features, truth, terms) for name, terms in OBJECTIVES.items()}
    # the energy alone stays the paper's, in its own unit; only the task is weighed against it
    alone = weights["energy"]
    weights["energy"] = replace(PAPER, task=alone.task / alone.energy if alone.energy else 0.0)
    guide = _fitted(features, truth, ("prior", "proposal", "task"))
    return ObjectiveFit(weights, guide, _best_tasks(candidates, weights["fitted"]))


def _candidates(
    hypotheses: Hypotheses, field: Searchable, sample: Windows, memory_mib: float
) -> list[_Candidates]:
    queries = Queries.from_windows(sample)
    tasks = hypotheses.of(queries, FITTED_TASKS)
    problems = hypotheses.problems(queries, tasks, weights=PAPER)
    guided = hypotheses.problems(queries, tasks, weights=hypotheses.fitted.guide)
    likely = GuidedSearch(proposals=_CANDIDATES, refinements=0, memory_mib=memory_mib).search(
        field, guided, _CANDIDATES
    )
    low = GuidedSearch(memory_mib=memory_mib).search(field, problems, _CANDIDATES)
    steps = hypotheses.steps(queries)
    parts: list[list[_Candidates]] = [[] for _ in range(len(queries))]
    for hypothesis, problem, *found in zip(tasks, problems, likely, low, strict=True):
        plans = merged([(hypothesis, part) for part in found], 2 * _CANDIDATES)
        window = parts[hypothesis.query]
        window.append(
            _of_task(
                hypotheses,
                field,
                hypothesis,
                problem,
                plans,
                steps=steps[hypothesis.query],
                actual=sample.actions[hypothesis.query],
                right_task=hypothesis.task == sample.tasks[hypothesis.query],
                rank=len(window),
            )
        )
    return [
        _Candidates(
            *(
                np.concatenate([getattr(part, name) for part in window])
                for name in ("features", "correct", "rank")
            )
        )
        for window in parts
    ]


def _of_task(
    hypotheses: Hypotheses,
    field: Searchable,
    hypothesis: Hypothesis,
    problem: Problem,
    plans: Plans,
    *,
    steps: NDArray[np.float64],
    actual: NDArray[np.int64],
    right_task: bool,
    rank: int,
) -> _Candidates:
    """The candidates of one window under one task."""
    place = {action: number for number, action in enumerate(problem.actions)}
    actions, energies = plans.actions, plans.energies
    possible = right_task and set(actual.tolist()) <= place.keys()
    if possible and not (actions == actual).all(axis=1).any():
        actions = np.concatenate([actions, actual[None]])
        energies = np.append(energies, _energy(field, problem, actual))
    places = np.vectorize(place.__getitem__, otypes=[np.int64])(actions)
    prior = hypotheses.prior.chain(hypothesis.task, places.shape[1], problem.actions)
    proposal = hypotheses.proposal_chain(steps, problem.actions)
    task = np.full(len(places), -hypothesis.log_probability)
    energies = np.where(np.isfinite(energies), energies, _NO_ENERGY)
    share = (actions == actual).mean(axis=1)
    return _Candidates(
        features=np.stack([energies, prior.cost(places), proposal.cost(places), task], axis=1),
        correct=np.where(right_task, share, 0.0),
        rank=np.full(len(places), rank, dtype=np.int64),
    )


def _best_tasks(candidates: Sequence[_Candidates], weights: Weights) -> int:
    """The number of tasks under which most windows are right, then most actions."""
    vector = np.array([getattr(weights, term) for term in TERMS])
    scores = [window.features @ vector for window in candidates]
    outcomes = []
    for tasks in range(1, FITTED_TASKS + 1):
        chosen = [
            window.correct[np.where(window.rank < tasks, score, np.inf).argmin()]
            for window, score in zip(candidates, scores, strict=True)
        ]
        outcomes.append((float(np.equal(chosen, 1).mean()), float(np.mean(chosen))))
    return 1 + max(range(FITTED_TASKS), key=lambda index: outcomes[index])


def _fitted(
    features: Sequence[NDArray[np.float64]], truth: Sequence[int], terms: Sequence[str]
) -> Weights:
    """Weights of some of the terms, the others zero."""
    columns = [TERMS.index(term) for term in terms]
    weights = fit_weights([part[:, columns] for part in features], truth)
    values = dict.fromkeys(TERMS, 0.0) | dict(zip(terms, weights.tolist(), strict=True))
    return Weights(**values)


def _energy(field: Searchable, problem: Problem, actions: NDArray[np.int64]) -> float:
    initial, goal, sequence = (
        torch.from_numpy(part[None]).to(field.device)
        for part in (problem.initial, problem.goal, actions)
    )
    return float(field.energy(initial, goal, sequence)[0])
