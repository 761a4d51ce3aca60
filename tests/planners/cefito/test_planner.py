import json
import logging
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.data.readers.custom import prepare_custom
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation import evaluate_planner
from cefito.field import IncrementalField
from cefito.planners.cefito.hypotheses import _TOGETHER, Hypotheses, Hypothesis, searched_together
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.cefito.posterior import COMPARED
from cefito.planners.cefito.validation import plan_scores, validation_problems
from cefito.planners.cefito.weights import Weights
from cefito.planners.context import TrainingContext
from cefito.planners.queries import Queries
from cefito.planners.settings import load_config, preset_names
from cefito.progress import silent
from cefito.search import Constraints, ExhaustiveSearch, Problem
from cefito.search.settings import SEARCHES, SearchEntry, search_settings
from cefito.training.distributed import Processes
from tiny_runs import TINY_RUN

TINY = TINY_RUN | {
    "training.optimiser.epochs": 2,
    "training.stopping.windows": 15,
    "classifier_training.optimiser.epochs": 3,
    "chain.width": 8,
    "search.fitting_windows": 20,
}


def tiny_settings(preset="paper", **more):
    return load_config(preset, overrides={**TINY, **more}).settings


def fit(splits, *, settings=None, seed=0, context=TrainingContext(), train=None):
    return CefitoPlanner.fit(
        splits["train"] if train is None else train,
        splits["val"],
        settings=settings or tiny_settings(),
        seed=seed,
        context=context,
    )


def load(folder):
    return CefitoPlanner.load(folder, settings=tiny_settings())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(train=36, val=12, test=24, dim=8),
    )


@pytest.fixture(scope="module")
def splits(world):
    return {split: cut_windows(world, horizon=3, split=split) for split in ("train", "val", "test")}


@pytest.fixture(scope="module")
def planner(splits):
    return fit(splits).planner


def weights(planner):
    return {
        **{f"field.{name}": tensor for name, tensor in planner.field.state_dict().items()},
        **{
            f"chain.{name}": tensor
            for name, tensor in planner.chain.networks[0].state_dict().items()
        },
        **{
            f"task.{name}": tensor
            for network in ([planner.task_model.network] if planner.task_model else [])
            for name, tensor in network.state_dict().items()
        },
    }


def same_weights(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def same_plans(left, right):
    return len(left) == len(right) and all(
        np.array_equal(a.actions, b.actions)
        and np.array_equal(a.energies, b.energies)
        and np.array_equal(a.scores, b.scores)
        and np.array_equal(a.tasks, b.tasks)
        for a, b in zip(left, right, strict=True)
    )


def using(planner, **changes):
    """The same trained planner with other settings of the search."""
    return planner.with_search(search_settings(planner.settings.search, **changes))


@pytest.mark.parametrize("oracle", [False, True])
def test_plans_use_the_actions_of_the_task_planned_for(planner, splits, oracle):
    test = splits["test"]
    queries = Queries.from_windows(test, oracle_task=oracle)
    tasks = planner.predict_tasks(queries)
    assert len(set(tasks.tolist())) > 1
    assert (tasks.tolist() == test.tasks.tolist()) == oracle
    for task, plan in zip(tasks, planner.plan(queries, 3), strict=True):
        assert plan.actions.shape == (3, 3)
        assert set(plan.actions.flatten().tolist()) <= set(planner.space.actions[task])
        assert np.all(np.diff(plan.energies) >= 0)
        assert plan.exact
        assert plan.evaluated.leaves == len(planner.space.actions[task]) ** 3


def test_plans_are_the_best_of_all_sequences_by_the_field_itself(planner, splits):
    assert len(splits["test"]) > _TOGETHER
    test = splits["test"].subset(np.random.default_rng(0).permutation(len(splits["test"])))
    queries = Queries.from_windows(test, oracle_task=True)
    plans = planner.plan(queries, 4)
    assert len(plans) == len(test)
    for row in range(0, len(test), 7):
        everything = torch.tensor(list(product(planner.space.actions[test.tasks[row]], repeat=3)))
        count = len(everything)
        with torch.inference_mode():
            energies = planner.field.energy(
                torch.from_numpy(test.initial[[row]]).expand(count, -1),
                torch.from_numpy(test.goal[[row]]).expand(count, -1),
                everything,
            )
            own = planner.field.energy(
                torch.from_numpy(test.initial[[row]]).expand(4, -1),
                torch.from_numpy(test.goal[[row]]).expand(4, -1),
                torch.from_numpy(plans[row].actions),
            )
        np.testing.assert_allclose(
            plans[row].energies, energies.sort().values[:4], rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(plans[row].energies, own, rtol=1e-4, atol=1e-6)


def test_top_k(planner, splits):
    queries = Queries.from_windows(splits["test"]).subset([0, 1])
    size = [len(planner.space.actions[task]) ** 3 for task in planner.predict_tasks(queries)]
    longest = planner.plan(queries, max(size) + 1)
    assert [len(plan) for plan in longest] == size
    for top_k in (1, 5):
        for plan, whole in zip(planner.plan(queries, top_k), longest, strict=True):
            assert plan.actions.tolist() == whole.actions[:top_k].tolist()
    for top_k in (0, -1):
        with pytest.raises(ConfigError, match=f"top_k {top_k}: expected at least 1"):
            planner.plan(queries, top_k)


def test_another_search_and_progress(splits, planner):
    shown = []

    def progress(description, *, total=None):
        shown.append((description, total))
        return silent(description, total=total)

    queries = Queries.from_windows(splits["test"]).subset([3, 1])
    naive = using(planner, method="naive").plan(queries, 3, progress=progress)
    for ours, theirs in zip(planner.plan(queries, 3), naive, strict=True):
        np.testing.assert_allclose(ours.energies, theirs.energies, rtol=1e-4, atol=1e-6)
    assert shown == [("planning", 2)]


@pytest.mark.parametrize("preset", preset_names())
def test_save_and_load_give_the_same_plans(preset, splits, tmp_path):
    planner = fit(splits, settings=tiny_settings(preset)).planner
    planner.save(tmp_path)
    by_chain = planner.settings.search.task_model == "chain"
    assert (planner.task_model is None) == by_chain == (preset in ("small", "quickstart"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "chain.safetensors",
        *([] if by_chain else ["classifier.safetensors"]),
        "field.safetensors",
        "planner.json",
        "prior.safetensors",
    ]
    loaded = load(tmp_path)
    assert loaded.settings == planner.settings
    assert loaded.horizon == planner.horizon == 3
    assert loaded.space == planner.space
    assert same_weights(planner, loaded)
    queries = Queries.from_windows(splits["test"])
    assert planner.predict_tasks(queries).tolist() == loaded.predict_tasks(queries).tolist()
    assert same_plans(planner.plan(queries, 2), loaded.plan(queries, 2))
    assert loaded.fitted == planner.fitted
    wide = {
        "objective": "fitted",
        "tasks": 3,
        "method": "guided",
        "proposals": 20,
        "refinements": 5,
        "pruning": 2,
    }
    assert same_plans(
        using(planner, **wide).plan(queries, 2), using(loaded, **wide).plan(queries, 2)
    )


@pytest.mark.parametrize("encoding", ["auto", "learned"])
def test_action_text_comes_back_from_the_saved_planner(
    encoding, tiny_videos, make_source, tmp_path
):
    tiny_videos[-1]["split"] = "val"
    text = np.random.default_rng(6).standard_normal((8, 3)).astype(np.float32)
    dataset = prepare_custom(make_source(videos=tiny_videos, text=text), tmp_path / "data")
    train, val, test = (
        cut_windows(dataset, horizon=3, split=split) for split in ("train", "val", "test")
    )
    settings = tiny_settings(**{"field.action_encoding": encoding})
    planner = fit({"train": train, "val": val}, settings=settings).planner
    assert planner.field.predictor.learned_actions == (encoding == "learned")
    planner.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.field.predictor.learned_actions == (encoding == "learned")
    assert same_plans(
        planner.plan(Queries.from_windows(test), 3), loaded.plan(Queries.from_windows(test), 3)
    )
    if encoding == "auto":
        vectors = loaded.field.state_dict()["predictor.action_vectors"]
        np.testing.assert_array_equal(vectors.numpy(), text)


def test_key_and_folder_change_no_weight(planner, splits, tmp_path):
    other = fit(splits, context=TrainingContext(folder=tmp_path, key="whatever"))
    assert same_weights(planner, other.planner)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain", "classifier", "field"]
    with pytest.raises(RunError, match="another data set, other settings or another seed"):
        fit(splits, context=TrainingContext(folder=tmp_path, key="another data set"))


def test_the_best_epoch_on_the_validation_windows_is_kept(splits):
    fitted = fit(splits, settings=tiny_settings(**{"training.optimiser.epochs": 3}))
    planner, result = fitted.planner, fitted.trainings["energy field"]
    problems, actual = validation_problems(splits["val"], planner.space, windows=15, candidates=30)
    scores = plan_scores(
        planner.field, Processes(), problems=problems, actual=actual, memory_mib=64, candidates=30
    )
    assert result.scores == pytest.approx((scores["success_rate"], scores["mean_accuracy"]))
    assert 1 <= result.best_epoch <= result.epochs == 3
    right = planner.predict_tasks(Queries.from_windows(splits["val"])) == splits["val"].tasks
    assert fitted.trainings["task classifier"].scores[0] == pytest.approx(100 * right.mean())


def test_tasks_without_training_windows(splits, world, caplog):
    keep = np.flatnonzero(splits["train"].tasks != 4)
    with caplog.at_level(logging.WARNING, logger="cefito"):
        planner = fit(splits, train=splits["train"].subset(keep)).planner
    assert planner.space.fallback == (4,)
    assert caplog.messages == [
        "tasks without training windows, which may use all actions that the taxonomy lists for "
        "them: 1, 4 ('Pickle Cucumbers')"
    ]
    rows = np.flatnonzero(splits["test"].tasks == 4)
    evaluation, plans = evaluate_planner(planner, splits["test"].subset(rows), oracle_task=True)
    assert evaluation.without_plan == 0
    for plan in plans:
        assert set(plan.actions.flatten().tolist()) <= set(world.taxonomy.tasks[4].actions)
        assert plan.evaluated.leaves == len(world.taxonomy.tasks[4].actions) ** 3


def test_the_warning_about_many_tasks_is_short_and_comes_again_on_loading(splits, caplog, tmp_path):
    keep = np.flatnonzero(splits["train"].tasks < 6)
    with caplog.at_level(logging.WARNING, logger="cefito"):
        fit(splits, train=splits["train"].subset(keep)).planner.save(tmp_path)
        load(tmp_path)
    assert len(caplog.messages) == 2
    assert caplog.messages[0] == caplog.messages[1]
    assert "lists for them: 6, 6 ('" in caplog.messages[0]
    assert caplog.messages[0].count("('") == 3
    assert caplog.messages[0].endswith(", …")


def test_no_warning_where_every_task_is_trained_on(splits, caplog):
    with caplog.at_level(logging.WARNING, logger="cefito"):
        fit(splits)
    assert caplog.messages == []


def test_actions_from_the_taxonomy(splits, world):
    planner = fit(splits, settings=tiny_settings(**{"search.actions": "taxonomy"})).planner
    assert planner.space.actions == tuple(task.actions for task in world.taxonomy.tasks)
    assert planner.space.source == "taxonomy"


@settings(max_examples=25, deadline=None)
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


def test_validation_problems_of_a_true_action_that_training_never_showed(splits, planner):
    val = splits["val"].subset([0])
    task, missing = int(val.tasks[0]), int(val.actions[0, 1])
    rows = tuple(
        tuple(action for action in row if action != missing) for row in planner.space.actions
    )
    problems, actual = validation_problems(
        val, replace(planner.space, actions=rows), windows=0, candidates=10_000
    )
    assert problems[0].actions == rows[task]
    assert missing in actual[0]


def saved(planner, folder):
    planner.save(folder)
    return json.loads((folder / "planner.json").read_text())


@pytest.mark.parametrize("content", ["", "{", "\x00"])
def test_planner_file_that_is_something_else(planner, tmp_path, content):
    planner.save(tmp_path)
    (tmp_path / "planner.json").write_text(content)
    with pytest.raises(RunError, match=r"planner\.json"):
        load(tmp_path)


def test_weights_that_do_not_fit_the_planner_file(planner, tmp_path):
    value = saved(planner, tmp_path)
    (tmp_path / "planner.json").write_text(json.dumps({**value, "observation_dim": 9}))
    with pytest.raises(RunError, match=r"field\.safetensors"):
        load(tmp_path)


def damaged(name, content, folder):
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\x10\0\0\0\0\0\0\0{"])
@pytest.mark.parametrize(
    "name", ["prior.safetensors", "chain.safetensors", "classifier.safetensors"]
)
def test_missing_and_damaged_files_name_themselves(planner, tmp_path, name, content):
    planner.save(tmp_path)
    damaged(name, content, tmp_path)
    with pytest.raises(RunError, match=name.replace(".", r"\.") + ".*Train the run again"):
        load(tmp_path)


class Untouched:
    """A search that must not be called."""

    def search(self, *_):
        raise AssertionError("searched")


def sequences_of(planner, task):
    return np.array(list(product(planner.space.actions[task], repeat=3)))


def by_hand(planner, queries, row, task, energies, weights):
    """Scores of all sequences of a task, in the order of ids."""
    sequences = sequences_of(planner, task)
    chain = planner.chain.scores(queries).rows([row])
    states = chain.states.find(torch.tensor(task), torch.from_numpy(sequences))
    log_q = chain.scores(states[None])[0].double().log_softmax(dim=0).numpy()
    log_p = planner.prior.log_probability(sequences, np.full(len(sequences), task))
    log_task = 0.0 if queries.tasks is not None else log_tasks_of(planner, queries)[row, task]
    return (
        weights.energy * energies
        - weights.prior * log_p
        - weights.chain * log_q
        - weights.task * log_task
    )


def log_tasks_of(planner, queries):
    if planner.settings.search.task_model == "chain":
        return planner.chain.log_tasks(queries)
    return planner.task_model.log_probabilities(queries)


def energies_of(planner, queries, row, task):
    sequences = torch.from_numpy(sequences_of(planner, task))
    initial, goal = (
        torch.from_numpy(part[[row]]).expand(len(sequences), -1)
        for part in (queries.initial, queries.goal)
    )
    with torch.inference_mode():
        return planner.field.energy(initial, goal, sequences).double().numpy()


FITTED = Weights(energy=2.0, prior=0.5, chain=0.7, task=1.5)


@pytest.fixture(scope="module")
def weighted(planner):
    """The planner with weights of its fitted objective that all matter."""
    weights = {**planner.fitted.weights, "fitted": FITTED}
    return replace(planner, fitted=replace(planner.fitted, weights=weights))


def ambiguous(planner, splits):
    """Queries, likeliest tasks first, of which the second one is plausible."""
    queries = Queries.from_windows(splits["test"])
    logs = log_tasks_of(planner, queries)
    ranked = np.argsort(-logs, axis=1)
    rows = np.flatnonzero(np.take_along_axis(logs, ranked, axis=1)[:, 2] > np.log(2e-3))
    assert len(rows) >= 5
    return queries.subset(rows[:12]), ranked[rows[:12]]


@pytest.mark.parametrize("oracle", [False, True])
def test_the_paper_objective_is_an_exhaustive_search_of_one_task(planner, splits, oracle):
    queries = Queries.from_windows(splits["test"], oracle_task=oracle).subset(range(10))
    tasks = planner.predict_tasks(queries)
    problems = [
        Problem(
            initial=queries.initial[row],
            goal=queries.goal[row],
            actions=planner.space.actions[task],
        )
        for row, task in enumerate(tasks)
    ]
    plans = using(planner, objective="energy", tasks=1, method="exhaustive").plan(queries, 5)
    for task, ours, theirs in zip(
        tasks,
        plans,
        ExhaustiveSearch().search(IncrementalField(planner.field), problems, 5),
        strict=True,
    ):
        assert ours.actions.tolist() == theirs.actions.tolist()
        np.testing.assert_allclose(ours.energies, theirs.energies, rtol=1e-5)
        assert ours.scores.tolist() == ours.energies.tolist()
        assert ours.evaluated == theirs.evaluated
        assert ours.tasks.tolist() == [task] * 5
        assert ours.exact


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"objective": "fitted"}, FITTED),
        ({"objective": "fitted", "prior_weight": 3.0}, replace(FITTED, prior=3.0)),
        ({"objective": "fitted", "prior_weight": 0.0}, replace(FITTED, prior=0.0)),
    ],
)
@pytest.mark.parametrize("oracle", [False, True])
def test_scores_by_hand(weighted, splits, settings, expected, oracle):
    chosen = using(weighted, tasks=1, **settings)
    expected = replace(expected, task=0.0)  # one task: the same for every plan
    assert chosen.weights == expected
    queries = Queries.from_windows(splits["test"], oracle_task=oracle).subset(range(0, 40, 5))
    for row, (task, plans) in enumerate(
        zip(chosen.predict_tasks(queries), chosen.plan(queries, 6), strict=True)
    ):
        scores = by_hand(
            weighted, queries, row, task, energies_of(weighted, queries, row, task), expected
        )
        order = np.argsort(scores, kind="stable")[:6]
        np.testing.assert_allclose(plans.scores, scores[order], rtol=1e-4, atol=1e-4)
        near = np.abs(np.diff(np.sort(scores)[:7])) < 1e-4
        if not near.any():
            assert plans.actions.tolist() == sequences_of(weighted, task)[order].tolist()
        np.testing.assert_allclose(
            plans.energies, energies_of(weighted, queries, row, task)[order], rtol=1e-3, atol=1e-4
        )


def test_the_likelihood_leaves_the_energy_out(weighted, splits):
    chosen = using(weighted, tasks=1, objective="likelihood")
    assert chosen.weights.energy == 0
    queries = Queries.from_windows(splits["test"], oracle_task=True).subset(range(0, 40, 10))
    evidence = chosen.chain.evidence(queries)
    problems = chosen.hypotheses.problems(
        queries, chosen.hypotheses.of(queries, 1), evidence, horizon=3, weights=chosen.weights
    )
    for plans, one in zip(chosen.plan(queries, 3), problems, strict=True):
        np.testing.assert_allclose(
            plans.scores, one.objective.costs.cheapest(3).costs, rtol=1e-4, atol=1e-5
        )


def test_what_weighs_nothing_is_not_searched(weighted, splits, monkeypatch):
    monkeypatch.setitem(SEARCHES, "untouched", SearchEntry(Untouched))
    chosen = using(weighted, objective="likelihood", tasks=2, method="untouched")
    weights = replace(weighted.fitted.guide, energy=0.0)
    queries = Queries.from_windows(splits["test"]).subset(range(0, 40, 8))
    found = chosen.plan(queries, 5)
    for row, plans in enumerate(found):
        every = {}
        for one in chosen.hypotheses.of(queries.subset([row]), 2):
            energies = energies_of(weighted, queries, row, one.task)
            scores = by_hand(weighted, queries, row, one.task, energies, weights)
            for sequence, score, energy in zip(
                map(tuple, sequences_of(weighted, one.task).tolist()),
                scores.tolist(),
                energies.tolist(),
                strict=True,
            ):
                every[sequence] = min(every.get(sequence, (np.inf, 0.0)), (score, energy))
        best = sorted(score for score, _ in every.values())[:5]
        np.testing.assert_allclose(plans.scores, best, rtol=1e-3, atol=1e-3)
        for sequence, energy in zip(plans.actions.tolist(), plans.energies, strict=True):
            assert every[tuple(sequence)][1] == pytest.approx(energy, rel=1e-3, abs=1e-4)
        assert plans.exact
        assert plans.evaluated.leaves <= COMPARED * 2  # as many as probabilities are taken among
    exhaustive = using(weighted, objective="likelihood", tasks=2)
    assert same_plans(exhaustive.plan(queries, 5), found)


def test_a_run_whose_tasks_the_chain_says(splits, tmp_path):
    settings = tiny_settings(**{"search.task_model": "chain"})
    fitted = fit(splits, settings=settings, context=TrainingContext(folder=tmp_path, key="run"))
    planner = fitted.planner
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain", "field"]
    assert set(fitted.trainings) == set(planner.describe().parameters) == {"chain", "energy field"}
    queries = Queries.from_windows(splits["test"])
    tasks = planner.predict_tasks(queries)
    assert tasks.tolist() == planner.chain.log_tasks(queries).argmax(axis=1).tolist()
    assert [plans.tasks[0] for plans in planner.plan(queries, 1)] == tasks.tolist()
    with pytest.raises(RunError, match="this run has no task classifier, so tasks must be given"):
        using(planner, task_model="classifier").plan(queries, 1)


def test_an_objective_without_the_prior_may_be_given_one(planner):
    alone = using(planner, objective="energy", tasks=2)
    assert alone.weights == planner.fitted.weights["energy"]
    assert using(alone, prior_weight=0.25).weights == replace(alone.weights, prior=0.25)
    assert using(alone, prior_weight=-0.5).weights == alone.weights
    one = using(alone, tasks=1)  # of which the probability is the same for every plan
    assert one.weights == replace(alone.weights, task=0.0)


@pytest.mark.parametrize("task_model", ["classifier", "chain"])
def test_several_tasks_are_searched(weighted, splits, task_model):
    several = using(weighted, objective="fitted", tasks=3, task_model=task_model)
    weighted = several
    queries, ranked = ambiguous(weighted, splits)
    unlikely = 0
    for row, plans in enumerate(several.plan(queries, 4)):
        tasks = ranked[row, :3]
        every = {}
        for task in tasks:
            scores = by_hand(
                weighted, queries, row, task, energies_of(weighted, queries, row, task), FITTED
            )
            for sequence, score in zip(
                map(tuple, sequences_of(weighted, task).tolist()), scores.tolist(), strict=True
            ):
                every[sequence] = min(every.get(sequence, (np.inf, -1)), (score, task))
        best = sorted(every.values())[:4]
        np.testing.assert_allclose(plans.scores, [score for score, _ in best], rtol=1e-4, atol=1e-4)
        for sequence, score, task in zip(
            plans.actions.tolist(), plans.scores, plans.tasks.tolist(), strict=True
        ):
            assert every[tuple(sequence)] == (pytest.approx(score, rel=1e-4, abs=1e-4), task)
        unlikely += plans.tasks[0] != tasks[0]
        sizes = [len(weighted.space.actions[task]) for task in tasks]
        assert plans.evaluated.leaves == sum(size**3 for size in sizes)
        assert plans.evaluated.token_forwards == sum(
            1 + 2 * (size + size**2 + size**3) for size in sizes
        )
        assert plans.exact
    assert unlikely


def test_as_many_tasks_as_did_best_on_validation(weighted, splits):
    queries, _ = ambiguous(weighted, splits)
    for tasks in (1, 2):
        chosen = using(
            replace(weighted, fitted=replace(weighted.fitted, tasks=tasks)),
            objective="fitted",
            tasks=0,
        )
        assert same_plans(
            chosen.plan(queries, 3),
            using(weighted, objective="fitted", tasks=tasks).plan(queries, 3),
        )


def test_given_tasks_are_the_only_ones(weighted, splits):
    queries, ranked = ambiguous(weighted, splits)
    for place in (0, 2):
        given = replace(queries, tasks=ranked[:, place].copy())
        for tasks in (0, 1, 3):
            for task, plans in zip(
                given.tasks,
                using(weighted, objective="fitted", tasks=tasks).plan(given, 3),
                strict=True,
            ):
                assert set(plans.tasks.tolist()) == {task}
                assert plans.evaluated.leaves == len(weighted.space.actions[task]) ** 3


def test_another_method(planner, splits):
    queries = Queries.from_windows(splits["test"]).subset(range(6))
    other = using(
        planner, method="guided", proposals=4, refinements=0, actions="taxonomy", memory_mib=12.0
    )
    assert planner.settings.search.method == "exhaustive"
    assert other.settings.search == planner.settings.search.model_copy(
        update={"method": "guided", "proposals": 4, "refinements": 0, "memory_mib": 12.0}
    )
    assert other.settings.search.actions == "training" == other.space.source
    for plans in other.plan(queries, 2):
        assert plans.evaluated.leaves == 4
        assert not plans.exact
    exact = planner.plan(queries, 2)
    for ours, theirs in zip(using(other, method="exhaustive").plan(queries, 2), exact, strict=True):
        assert ours.actions.tolist() == theirs.actions.tolist()


def test_pruned_plans_have_seen_transitions(planner, splits):
    queries = Queries.from_windows(splits["test"], oracle_task=True).subset(range(0, 40, 4))
    train = splits["train"]
    found = using(planner, pruning=0).plan(queries, 3)
    for task, plans, free in zip(queries.tasks, found, planner.plan(queries, 3), strict=True):
        own = train.actions[train.tasks == task].tolist()
        seen = {pair for row in own for pair in pairwise(row)}
        for row in plans.actions.tolist():
            assert row[0] in {first for first, *_ in own}
            assert set(pairwise(row)) <= seen
        assert plans.evaluated.leaves < free.evaluated.leaves


def only_in_one(planner, tasks):
    """An action of the second of some tasks that none of the others has."""
    others = {action for task in (tasks[0], *tasks[2:]) for action in planner.space.actions[task]}
    return next(
        (action for action in planner.space.actions[tasks[1]] if action not in others), None
    )


def test_constraints_that_one_of_several_tasks_can_satisfy(weighted, splits):
    queries, ranked = ambiguous(weighted, splits)
    several, met = using(weighted, objective="fitted", tasks=2), 0
    for row in range(len(queries)):
        action = only_in_one(weighted, ranked[row, :2])
        if action is None:
            continue
        constraints = Constraints(required=(action,))
        (plans,) = several.plan(queries.subset([row]), 3, constraints=constraints)
        assert set(plans.tasks.tolist()) == {ranked[row, 1]}
        assert all(action in sequence for sequence in plans.actions.tolist())
        assert plans.exact
        size = len(weighted.space.actions[ranked[row, 1]])
        assert plans.evaluated.leaves == size**3 - (size - 1) ** 3
        with pytest.raises(
            ConfigError, match=f"action {action} is required but is not an action of this task"
        ):
            using(weighted, tasks=1).plan(queries.subset([row]), 3, constraints=constraints)
        met += 1
    assert met


def test_constraints_that_no_task_can_satisfy_are_refused_before_any_search(
    planner, splits, monkeypatch
):
    queries = Queries.from_windows(splits["test"], oracle_task=True)
    action = planner.space.actions[queries.tasks[0]][0]
    fine = [row for row, task in enumerate(queries.tasks) if action in planner.space.actions[task]]
    bad = [
        row for row, task in enumerate(queries.tasks) if action not in planner.space.actions[task]
    ]
    monkeypatch.setitem(SEARCHES, "untouched", SearchEntry(Untouched))
    other = using(planner, method="untouched")
    with pytest.raises(ConfigError, match=f"action {action} is required"):
        other.plan(
            queries.subset([*fine[:2], bad[0]]), 1, constraints=Constraints(required=(action,))
        )
    with pytest.raises(AssertionError, match="searched"):
        other.plan(queries.subset(fine[:2]), 1, constraints=Constraints(required=(action,)))
    for tasks in (1, 3):
        with pytest.raises(ConfigError, match="pinned to step 4, which does not exist"):
            using(other, tasks=tasks).plan(
                replace(queries, tasks=None), 1, constraints=Constraints(pinned=((4, 0),))
            )


def test_stopping_before_anything(planner, splits, monkeypatch):
    queries = Queries.from_windows(splits["test"]).subset(range(4))
    monkeypatch.setitem(SEARCHES, "untouched", SearchEntry(Untouched))
    other = using(planner, method="untouched")
    found = other.plan(queries, 3, stop=lambda: True)
    assert [(len(plans), plans.exact, plans.actions.shape) for plans in found] == [
        (0, False, (0, 3))
    ] * 4
    whole = planner.plan(queries, 3, stop=lambda: False)
    assert [plans.actions.tolist() for plans in whole] == [
        plans.actions.tolist() for plans in planner.plan(queries, 3)
    ]


def test_stopping_on_the_way(weighted, splits, monkeypatch):
    monkeypatch.setattr("cefito.planners.cefito.hypotheses._TOGETHER", 1)
    queries, _ = ambiguous(weighted, splits)
    several = using(weighted, objective="fitted", tasks=2)
    whole = several.plan(queries, 3)
    calls = []

    class Counting:
        def search(self, *arguments):
            calls.append(1)
            return ExhaustiveSearch().search(*arguments[:3])

    monkeypatch.setitem(SEARCHES, "counting", SearchEntry(Counting))
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


@pytest.fixture(scope="module")
def several(planner):
    """It searches three tasks a query by all terms of the objective."""
    wide = using(planner, objective="fitted", tasks=3, method="guided", proposals=12, pruning=2)
    weights = {"fitted": Weights(energy=1, prior=0.5, task=1, chain=1)}
    return replace(wide, fitted=replace(wide.fitted, weights=weights))


def test_problems_are_made_when_they_are_searched_without_any_difference(
    several, splits, monkeypatch
):
    queries = Queries.from_windows(splits["test"]).subset(range(40))
    monkeypatch.setattr("cefito.planners.cefito.hypotheses._TOGETHER", 16)
    made, problems = [], Hypotheses.problems

    def counted(self, queries, batch, *more, **settings):
        made.append(len(batch))
        return problems(self, queries, batch, *more, **settings)

    monkeypatch.setattr(Hypotheses, "problems", counted)
    ours = several.plan(queries, 3)
    assert max(made) == 16
    assert sum(made) == sum(plans.searched for plans in ours) > 40
    all_at_once = {}

    def eager(self, queries, batch, evidence, **settings):
        if not all_at_once:
            every = self.of(queries, 3, evidence)
            found = problems(self, queries, every, evidence, **settings)
            all_at_once.update(zip(every, found, strict=True))
        return [all_at_once[one] for one in batch]

    monkeypatch.setattr(Hypotheses, "problems", eager)
    theirs = several.plan(queries, 3)
    assert len(all_at_once) == sum(made)
    assert same_plans(ours, theirs)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(left.probabilities, right.probabilities)


@pytest.mark.parametrize("which", ["one task", "three tasks"])
def test_queries_may_be_taken_in_a_few_at_a_time(which, planner, several, splits, monkeypatch):
    one = planner if which == "one task" else several
    queries = Queries.from_windows(splits["test"]).subset(range(40))
    whole, tasks = one.plan(queries, 3), one.predict_tasks(queries)
    monkeypatch.setattr(CefitoPlanner, "queries_at_once", 7)
    parts = one.plan(queries, 3)
    assert one.predict_tasks(queries).tolist() == tasks.tolist()
    for left, right in zip(whole, parts, strict=True):
        assert left.actions.tolist() == right.actions.tolist()
        assert (left.exact, left.searched) == (right.exact, right.searched)
        assert left.tasks.tolist() == right.tasks.tolist()
        for name in ("energies", "scores", "probabilities", "task_probabilities"):
            if getattr(left, name) is not None:
                np.testing.assert_allclose(
                    getattr(left, name), getattr(right, name), rtol=1e-4, atol=1e-6
                )


def test_constraints_that_a_late_query_cannot_satisfy_are_refused_before_any_work(
    planner, splits, monkeypatch
):
    queries = Queries.from_windows(splits["test"], oracle_task=True)
    first, last = int(queries.tasks[0]), int(queries.tasks[-1])
    missing = sorted({*planner.space.actions[first]} - {*planner.space.actions[last]})[0]
    monkeypatch.setattr(CefitoPlanner, "queries_at_once", 5)
    monkeypatch.setattr(Hypotheses, "problems", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(ConfigError, match=f"action {missing} is required but is not an action"):
        planner.plan(
            queries.subset([0] * 9 + [len(queries) - 1]), 1, constraints=Constraints((), (missing,))
        )


def test_the_bound_on_memory_says_how_many_queries_are_taken_in(planner):
    sizes = [using(planner, memory_mib=mib).queries_at_once for mib in (0.001, 64, 1024, 4096)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 16
    assert all(size % 512 == 0 for size in sizes[1:])


def test_tasks_with_large_tables_share_no_batch(planner, monkeypatch):
    hypotheses = [
        Hypothesis(query=row, task=task, log_probability=0.0)
        for row, task in enumerate([0, 0, 0, 1, 1, 2])
    ]
    assert searched_together(hypotheses, planner.space, planner.prior, planner.horizon) == 64
    size = len(planner.space.actions[1])
    monkeypatch.setattr(
        "cefito.planners.cefito.hypotheses._TABLES_MIB", planner.prior.table_bytes(size) / 2**20
    )
    assert searched_together(hypotheses, planner.space, planner.prior, planner.horizon) == 5
    monkeypatch.setattr("cefito.planners.cefito.hypotheses._TABLES_MIB", 0)
    assert searched_together(hypotheses, planner.space, planner.prior, planner.horizon) == 3
