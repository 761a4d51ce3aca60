from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError, RunError
from cefito.evaluation import evaluate_planner
from cefito.planners.cefito.fit import plan_scores, validation_problems
from cefito.planners.cefito.hypotheses import CHAIN, ENERGY, Hypotheses, Weights
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.queries import Queries
from cefito.search import Constraints, ExhaustiveSearch, SearchCost
from cefito.search.settings import SEARCHES, SearchEntry, search_settings
from tiny_cefito import fit

KNOBS = {"train": 36, "val": 12, "test": 24, "dim": 8}


@pytest.fixture(scope="module")
def planner(splits):
    return fit(splits).planner


def registered(search: Any) -> SearchEntry:
    """An entry of a class that has only the method search."""
    return SearchEntry(search)


def using(planner, **changes):
    """The same trained planner with other settings of the search."""
    return planner.with_search(search_settings(planner.settings.search, **changes))


def test_the_best_epoch_on_the_validation_windows_is_kept(splits):
    fitted = fit(splits, **{"training.optimiser.epochs": 3})
    planner, result = fitted.planner, fitted.trainings["energy field"]
    problems, actual = validation_problems(splits["val"], planner.space, windows=15, candidates=30)
    given: dict[str, Any] = {"problems": problems, "actual": actual, "candidates": 30}
    scores = plan_scores(planner.field, memory_mib=64, **given)
    assert result.scores == pytest.approx((scores["success_rate"], scores["mean_accuracy"]))
    assert 1 <= result.best_epoch <= result.epochs == 3
    right = planner.predict_tasks(Queries.from_windows(splits["val"])) == splits["val"].tasks
    assert fitted.trainings["task classifier"].scores[0] == pytest.approx(100 * right.mean())


def test_tasks_without_training_windows(splits, dataset, caplog):
    keep, own = np.flatnonzero(splits["train"].tasks != 4), dataset.taxonomy.tasks[4].actions
    planner = fit(splits, train=splits["train"].subset(keep)).planner
    assert planner.space.fallback == (4,)
    (message,) = caplog.messages
    assert message.startswith("1 task without training windows may use all actions that the ")
    assert message.endswith("lists: 4 ('Pickle Cucumbers')")
    rows = np.flatnonzero(splits["test"].tasks == 4)
    evaluation, plans = evaluate_planner(planner, splits["test"].subset(rows), oracle_task=True)
    assert evaluation.without_plan == 0
    for plan in plans:
        assert set(plan.actions.flatten().tolist()) <= set(own)
        assert plan.evaluated.leaves == len(own) ** 3


@given(candidates=st.integers(1, 600), windows=st.integers(0, 20))
def test_validation_problems_hold_the_true_actions_within_the_bound(
    splits, planner, candidates, windows
):
    val, space = splits["val"], planner.space
    problems, actual = validation_problems(val, space, windows=windows, candidates=candidates)
    chosen = val.sample(windows or None, seed=0)
    assert len(problems) == len(actual) == min(windows or len(val), len(val))
    np.testing.assert_array_equal(actual, chosen.actions)
    for row, problem in enumerate(problems):
        allowed, true = set(space.actions[chosen.tasks[row]]), set(actual[row].tolist())
        np.testing.assert_array_equal(problem.initial, chosen.initial[row])
        np.testing.assert_array_equal(problem.goal, chosen.goal[row])
        assert list(problem.actions) == sorted(set(problem.actions))
        assert true & allowed <= set(problem.actions) <= allowed
        fits = len(true & allowed) ** 3 <= candidates  # otherwise guided search sees all actions
        assert (len(problem.actions) ** 3 <= candidates) == fits
        if not fits or len(allowed) ** 3 <= candidates:
            assert set(problem.actions) == allowed
        elif len(problem.actions) > len(true):  # no narrower than the bound asks for
            assert (len(problem.actions) + 1) ** 3 > candidates
    again, _ = validation_problems(val, space, windows=windows, candidates=candidates)
    assert [problem.actions for problem in again] == [problem.actions for problem in problems]


class Untouched:
    """A search that must not be called."""

    def search(self, *_):
        raise AssertionError("searched")


def sequences_of(planner, task):
    return np.array(list(product(planner.space.actions[task], repeat=3)))


def by_hand(planner, queries, row, task, weights):
    """Energies and scores of all sequences of a task, in the order of ids."""
    sequences, energies = sequences_of(planner, task), energies_of(planner, queries, row, task)
    chain = planner.chain.scores(queries).rows([row])
    states = chain.states.find(torch.tensor(task), torch.from_numpy(sequences))
    log_q = chain.scores(states[None])[0].double().log_softmax(dim=0).numpy()
    if queries.tasks is None:
        log_q += log_tasks_of(planner, queries)[row, task]
    return energies, weights.energy * energies - weights.chain * log_q


def best_by_hand(planner, queries, row, tasks, weights):
    """The best score of each sequence among some tasks, and its task."""
    every = {}
    for task in tasks:
        _, scores = by_hand(planner, queries, row, task, weights)
        sequences = map(tuple, sequences_of(planner, task).tolist())
        for sequence, score in zip(sequences, scores.tolist(), strict=True):
            every[sequence] = min(every.get(sequence, (np.inf,)), (score, task))
    return every


def log_tasks_of(planner, queries):
    if planner.settings.search.task_model == "chain":
        return planner.chain.log_tasks(queries)
    return planner.task_model.log_probabilities(queries)


def energies_of(planner, queries, row, task):
    """Energies of all sequences of a task by the field itself, in the order of ids."""
    sequences = torch.from_numpy(sequences_of(planner, task))
    ends = (queries.initial, queries.goal)
    initial, goal = (torch.from_numpy(part[[row]]).expand(len(sequences), -1) for part in ends)
    with torch.inference_mode():
        return planner.field.energy(initial, goal, sequences).double().numpy()


FITTED = Weights(energy=2.0, chain=0.7)


@pytest.fixture(scope="module")
def weighted(planner):
    """The planner with weights of its fitted objective that matter both."""
    return replace(planner, fitted=FITTED)


def ambiguous(planner, splits):
    """Queries, likeliest tasks first, of which the second one is plausible."""
    queries = Queries.from_windows(splits["test"])
    logs = log_tasks_of(planner, queries)
    ranked = np.argsort(-logs, axis=1)
    rows = np.flatnonzero(np.take_along_axis(logs, ranked, axis=1)[:, 2] > np.log(2e-3))
    assert len(rows) >= 5
    return queries.subset(rows[:12]), ranked[rows[:12]]


@pytest.mark.parametrize(("objective", "weights"), [("energy", ENERGY), ("fitted", FITTED)])
@pytest.mark.parametrize("oracle", [False, True])
def test_scores_by_hand(weighted, splits, objective, weights, oracle):
    chosen = using(weighted, tasks=1, objective=objective)
    assert chosen.weights == weights
    queries = Queries.from_windows(splits["test"], oracle_task=oracle).subset(range(0, 40, 5))
    tasks = chosen.predict_tasks(queries)
    for row, (task, plans) in enumerate(zip(tasks, chosen.plan(queries, 6), strict=True)):
        energies, scores = by_hand(weighted, queries, row, task, weights)
        order = np.argsort(scores, kind="stable")[:6]
        np.testing.assert_allclose(plans.scores, scores[order], rtol=1e-4, atol=1e-4)
        if not (np.abs(np.diff(np.sort(scores)[:7])) < 1e-4).any():  # nothing is nearly equal
            assert plans.actions.tolist() == sequences_of(weighted, task)[order].tolist()
        np.testing.assert_allclose(plans.energies, energies[order], rtol=1e-3, atol=1e-4)
        assert plans.tasks.tolist() == [task] * 6
        assert plans.exact
        assert plans.evaluated.leaves == len(weighted.space.actions[task]) ** 3
        if objective == "energy":
            np.testing.assert_array_equal(plans.scores, plans.energies)


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("oracle", [False, True])
def test_the_chain_alone_is_listed_without_a_search(planner, splits, monkeypatch, tasks, oracle):
    """The likeliest sequences of the likely tasks, each by its sum over these."""
    monkeypatch.setitem(SEARCHES, "untouched", registered(Untouched))
    chosen = using(planner, objective="chain", tasks=tasks, method="untouched")
    assert chosen.weights == CHAIN
    queries = Queries.from_windows(splits["test"], oracle_task=oracle).subset(range(0, 40, 8))
    for row, plans in enumerate(chosen.plan(queries, 5)):
        likely = [one.task for one in chosen.hypotheses.of(queries.subset([row]), tasks)]
        sums = {}
        for task in likely:
            _, scores = by_hand(planner, queries, row, task, CHAIN)
            for sequence, score in zip(
                map(tuple, sequences_of(planner, task).tolist()), scores.tolist(), strict=True
            ):
                sums[sequence] = np.logaddexp(sums.get(sequence, -np.inf), -score)
        best = sorted(-log for log in sums.values())[:5]
        np.testing.assert_allclose(plans.scores, best, rtol=1e-3, atol=1e-3)
        found = [-sums[tuple(actions)] for actions in plans.actions.tolist()]
        np.testing.assert_allclose(plans.scores, found, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(plans.probabilities, np.exp(-plans.scores), rtol=1e-3)
        assert plans.energies.tolist() == plans.scores.tolist()  # the field is not evaluated
        assert set(plans.tasks.tolist()) <= set(likely)
        assert (plans.exact, plans.searched, plans.searched_mass) == (True, len(likely), 1)
        assert plans.evaluated == SearchCost(0, 0)


@pytest.mark.parametrize("task_model", ["classifier", "chain"])
def test_several_tasks_are_searched(weighted, splits, task_model):
    several = using(weighted, objective="fitted", tasks=3, task_model=task_model)
    queries, ranked = ambiguous(several, splits)
    unlikely = 0
    for row, plans in enumerate(several.plan(queries, 4)):
        tasks = ranked[row, :3]
        every = best_by_hand(several, queries, row, tasks, FITTED)
        best = sorted(score for score, *_ in every.values())[:4]
        np.testing.assert_allclose(plans.scores, best, rtol=1e-4, atol=1e-4)
        found = zip(plans.actions.tolist(), plans.scores, plans.tasks.tolist(), strict=True)
        for sequence, score, task in found:
            assert every[tuple(sequence)] == (pytest.approx(score, rel=1e-4, abs=1e-4), task)
        unlikely += plans.tasks[0] != tasks[0]
        sizes = np.array([len(several.space.actions[task]) for task in tasks])
        assert plans.evaluated.leaves == (sizes**3).sum()
        assert plans.evaluated.token_forwards == (1 + 2 * (sizes + sizes**2 + sizes**3)).sum()
        assert plans.exact
    assert unlikely


def test_constraints_that_one_of_several_tasks_can_satisfy(weighted, splits):
    queries, ranked = ambiguous(weighted, splits)
    several, met = using(weighted, objective="fitted", tasks=2), 0
    for row, (likely, other) in enumerate(ranked[:, :2]):
        space, query = several.space.actions[other], queries.subset([row])
        only = [action for action in space if action not in several.space.actions[likely]]
        if not only:
            continue
        constraints = Constraints(required=(only[0],))
        (plans,) = several.plan(query, 3, constraints=constraints)
        assert set(plans.tasks.tolist()) == {other}
        assert all(only[0] in sequence for sequence in plans.actions.tolist())
        assert plans.exact
        assert plans.evaluated.leaves == len(space) ** 3 - (len(space) - 1) ** 3
        with pytest.raises(ConfigError, match=f"action {only[0]} is required"):
            using(weighted, tasks=1).plan(query, 3, constraints=constraints)
        met += 1
    assert met


def test_constraints_that_no_task_can_satisfy_are_refused_before_any_search(
    planner, splits, monkeypatch
):
    queries = Queries.from_windows(splits["test"], oracle_task=True)
    action = planner.space.actions[queries.tasks[0]][0]
    required = Constraints(required=(action,))
    able = np.array([action in planner.space.actions[task] for task in queries.tasks])
    fine, bad = np.flatnonzero(able)[:2], np.flatnonzero(~able)[:1]
    monkeypatch.setitem(SEARCHES, "untouched", registered(Untouched))
    other = using(planner, method="untouched")
    with pytest.raises(ConfigError, match=f"action {action} is required"):
        other.plan(queries.subset([*fine, *bad]), 1, constraints=required)
    with pytest.raises(AssertionError, match="searched"):
        other.plan(queries.subset(fine), 1, constraints=required)
    for tasks in (1, 3):
        pinned, unknown = Constraints(pinned=((4, 0),)), replace(queries, tasks=None)
        with pytest.raises(ConfigError, match="pinned to step 4"):
            using(other, tasks=tasks).plan(unknown, 1, constraints=pinned)
    monkeypatch.setattr(CefitoPlanner, "queries_at_once", 5)  # the last query is in another block
    monkeypatch.setattr(Hypotheses, "problems", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(ConfigError, match=f"action {action} is required"):
        planner.plan(queries.subset([fine[0]] * 9 + [bad[0]]), 1, constraints=required)


def test_plans_of_energies_that_are_no_numbers_are_refused(weighted, splits, monkeypatch):
    class Broken:
        def search(self, *arguments):
            return [replace(one, finite=False) for one in ExhaustiveSearch().search(*arguments[:3])]

    monkeypatch.setitem(SEARCHES, "broken", registered(Broken))
    with pytest.raises(RunError, match=r"query 0 .* are NaN or infinite"):
        using(weighted, method="broken").plan(Queries.from_windows(splits["test"]).subset([0]), 3)


def test_stopping_on_the_way(weighted, splits, monkeypatch):
    monkeypatch.setattr("cefito.planners.cefito.hypotheses.TOGETHER", 1)
    queries, _ = ambiguous(weighted, splits)
    several = using(weighted, objective="fitted", tasks=2)
    whole = several.plan(queries, 3)
    calls = []

    class Counting:
        def search(self, *arguments):
            calls.append(1)
            return ExhaustiveSearch().search(*arguments[:3])

    monkeypatch.setitem(SEARCHES, "counting", registered(Counting))
    found = using(several, method="counting").plan(
        queries, 3, stop=lambda: len(calls) >= len(queries)
    )
    assert len(calls) == len(queries)  # of twice as many
    kinds = set()
    for ours, theirs in zip(found, whole, strict=True):
        assert ours.evaluated.leaves <= theirs.evaluated.leaves
        assert ours.exact == (ours.evaluated.leaves == theirs.evaluated.leaves)
        assert not ours.exact or ours.actions.tolist() == theirs.actions.tolist()
        kinds.add((len(ours) > 0, ours.exact))
    assert (True, False) in kinds
    assert found[0].tasks is not None
