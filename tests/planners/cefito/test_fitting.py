"""Fitting weights of the objective and the number of tasks on validation windows."""

from dataclasses import replace

import numpy as np
import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.planners import CefitoPlanner, Queries
from cefito.planners.cefito.fitting import FITTED_TASKS, fit_objective
from cefito.planners.cefito.hypotheses import merged
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.cefito.weights import NOTHING_FITTED, OBJECTIVES, PAPER, TERMS, ObjectiveFit
from cefito.planners.settings import load_config
from cefito.search import ExhaustiveSearch


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A planner trained briefly on a world whose tasks share actions, and its windows."""
    world = write_world(
        tmp_path_factory.mktemp("data") / "world", knobs=WorldKnobs(train=72, val=30, test=12)
    )
    splits = {split: cut_windows(world, horizon=3, split=split) for split in ("train", "val")}
    config = load_config(
        "small",
        overrides={
            "field.width": 32,
            "field.depth": 1,
            "field.heads": 2,
            "training.optimiser.epochs": 4,
            "training.stopping.every": 4,
            "classifier_training.optimiser.epochs": 10,
            "chain_training.optimiser.epochs": 8,
            "search.fitting_windows": 0,
        },
    )
    fitted = CefitoPlanner.fit(
        splits["train"], splits["val"], settings=config.settings(CefitoSettings), seed=0
    )
    return fitted.planner, splits["val"]


def success(planner, val, weights, tasks):
    """Share of validation windows whose best sequence is the true one."""
    hypotheses, asked = planner.hypotheses, Queries.from_windows(val)
    found = hypotheses.of(asked, tasks)
    plans = ExhaustiveSearch().search(
        planner.incremental, hypotheses.problems(asked, found, weights=weights), 1
    )
    parts = [[] for _ in range(len(val))]
    for one, part in zip(found, plans, strict=True):
        parts[one.query].append((one, part))
    best = [merged(part, 1) for part in parts]
    return np.mean(
        [
            (plan.actions[0] == row).all() and plan.tasks[0] == task
            for plan, row, task in zip(best, val.actions, val.tasks, strict=True)
        ]
    )


def test_the_fitted_objective_does_better_than_the_energy_alone(trained):
    planner, val = trained
    fitted = planner.fitted
    assert fitted.weights.keys() == OBJECTIVES.keys()
    assert fitted.weights["energy"] == replace(PAPER, task=fitted.weights["energy"].task)
    assert fitted.weights["energy"].task > 0
    assert fitted.weights["prior"].proposal == 0 < fitted.weights["prior"].prior
    assert min(getattr(fitted.weights["fitted"], term) for term in TERMS) >= 0
    assert fitted.weights["fitted"].proposal > 0
    assert fitted.guide.energy == 0 < fitted.guide.prior + fitted.guide.proposal
    assert 1 <= fitted.tasks <= FITTED_TASKS
    alone, prior, every = (
        success(planner, val, fitted.weights[name], fitted.tasks)
        for name in ("energy", "prior", "fitted")
    )
    assert every > alone + 0.02
    assert every >= prior - 0.02
    assert (
        every
        >= max(
            success(planner, val, fitted.weights["fitted"], tasks) for tasks in (1, FITTED_TASKS)
        )
        - 0.02
    )


def test_fitting_again_gives_the_same_and_depends_on_the_windows(trained):
    planner, val = trained
    blank = replace(planner.hypotheses, fitted=NOTHING_FITTED)

    def fitted(windows):
        return fit_objective(blank, planner.incremental, val, windows=windows, memory_mib=64)

    again = fitted(0)
    assert blank.fitted == NOTHING_FITTED == ObjectiveFit(dict.fromkeys(OBJECTIVES, PAPER))
    assert again.tasks == planner.fitted.tasks
    for ours, theirs in zip(
        [*again.weights.values(), again.guide],
        [*planner.fitted.weights.values(), planner.fitted.guide],
        strict=True,
    ):
        assert list(vars(ours).values()) == pytest.approx(list(vars(theirs).values()), rel=1e-3)
    assert fitted(10).weights != again.weights


def test_no_window_to_learn_from_leaves_the_defaults(trained):
    """All true sequences have actions that their tasks do not allow."""
    planner, val = trained
    space = planner.space
    space = replace(space, actions=tuple(row[:1] for row in space.actions))
    rows = np.flatnonzero(
        [
            set(row.tolist()) != set(space.actions[task])
            for row, task in zip(val.actions, val.tasks, strict=True)
        ]
    )
    blank = replace(planner.hypotheses, space=space, fitted=NOTHING_FITTED)
    fitted = fit_objective(
        blank, planner.incremental, val.subset(rows[:5]), windows=0, memory_mib=64
    )
    assert fitted == NOTHING_FITTED
