"""What a search may cost at most, against what it does cost."""

from __future__ import annotations

import numpy as np
import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.planners.queries import Queries
from cefito.planners.settings import load_config
from cefito.runs.train import train_run
from cefito.search import Constraints
from cefito.search.auto import AutoSearch
from cefito.search.energies import components_of
from cefito.search.cost_bound import choices, most_tokens
from cefito.search.exhaustive import ExhaustiveSearch
from cefito.search.guided import GuidedSearch
from cefito.search.naive import NaiveSearch
from cefito.search.registry import SEARCHES
from cefito.search.settings import search_settings

QUICK = {
    "field.depth": 1,
    "field.width": 16,
    "training.optimiser.epochs": 1,
    "training.stopping.windows": 5,
    "chain.members": 1,
    "chain_training.optimiser.epochs": 1,
    "search.fitting_windows": 5,
}


def test_actions_of_each_step():
    constraints = Constraints(pinned=((2, 5),), forbidden=(7, 99))
    assert choices([3, 5, 7], 3, constraints) == [2, 1, 2]
    assert choices([3, 5, 7], 2, Constraints()) == [3, 3]


def test_exact_searches_are_counted():
    assert most_tokens(ExhaustiveSearch(), [4, 4, 4], 5, 1.0) == 1 + 2 * (4 + 16 + 64)
    assert most_tokens(ExhaustiveSearch(), [4, 1, 4], 5, 1.0) == 1 + 2 * (4 + 4 + 16)
    assert most_tokens(NaiveSearch(), [4, 4, 4], 5, 1.0) == 64 * 7


def test_auto_is_as_dear_as_what_it_chooses():
    exact, guided = ExhaustiveSearch(), GuidedSearch(proposals=8, refinements=0)
    steps = [50, 50, 50]
    for budget, chosen in ((1e-9, guided), (1e9, exact)):
        auto = AutoSearch(exhaustive=exact, guided=guided, budget_gflop=budget)
        assert most_tokens(auto, steps, 5, 1e3) == most_tokens(chosen, steps, 5, 1e3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("effort")
    world = write_world(folder / "world", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    config = load_config("small", overrides=QUICK)
    return train_run(world, folder / "run", config=config, horizon=3, seed=0)


def test_screening_looks_twice():
    plain, screened, auto = (
        {
            search: most_tokens(search(screening=screening), [4, 4, 4], 5, 1e9, coarse_pays=pays)
            for search in (ExhaustiveSearch, GuidedSearch)
        }
        for screening, pays in (("off", True), ("on", False), ("auto", True))
    )
    assert screened == auto
    assert screened[ExhaustiveSearch] == 2 * 169 + 1 + 64 * 6
    assert screened[GuidedSearch] == 2 * plain[GuidedSearch]
    assert plain[ExhaustiveSearch] == most_tokens(
        ExhaustiveSearch(screening="auto"), [4, 4, 4], 5, 1e9
    )


@pytest.mark.parametrize("objective", ["energy", "fitted", "likelihood"])
@pytest.mark.parametrize("method", [*SEARCHES, "screened exhaustive", "screened guided"])
def test_no_search_costs_more_than_was_said(run, method, objective):
    windows = cut_windows(run.dataset(), horizon=3, split="test")
    queries = Queries.from_windows(windows).subset([0, 11, 30])
    changes = {"method": method.split()[-1], "objective": objective, "tasks": 2}
    if method.startswith("screened"):
        changes["screening"] = "on"
    planner = run.planner.with_search(search_settings(run.trained_search, **changes))
    parts = components_of(planner.incremental)
    each = np.mean([part.energies.flops_per_token for part in parts])
    pinned = Constraints(pinned=((1, planner.space.actions[4][0]),))
    given = queries.with_task(4)
    for asked, constraints in ((queries, Constraints()), (given, Constraints()), (given, pinned)):
        bounds = planner.most_operations(asked, 5, constraints)
        plans = planner.plan(asked, 5, constraints=constraints)
        spent = np.array([each * found.evaluated.token_forwards for found in plans])
        assert (spent <= bounds).all()
        if (method, objective, constraints) == ("exhaustive", "energy", Constraints()) and (
            asked is given
        ):
            np.testing.assert_allclose(spent, bounds)


def test_planners_without_a_search_do_not_say(run):
    from cefito.planners.base import BasePlanner

    windows = cut_windows(run.dataset(), horizon=3, split="test")
    assert BasePlanner().most_operations(Queries.from_windows(windows), 5) is None
