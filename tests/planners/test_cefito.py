import json
import logging
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.data.action_space import ActionSpace
from cefito.data.sources.custom import prepare_custom
from cefito.data.synthetic import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation import evaluate_planner
from cefito.planners import CefitoPlanner, Queries
from cefito.planners.cefito import _TOGETHER, _validation_problems
from cefito.progress import silent
from cefito.search.naive import NaiveSearch
from cefito.training.config import load_config, preset_names

TINY = {"field.width": 16, "field.depth": 1, "field.heads": 2, "field.action_dim": 8,
        "training.optimiser.epochs": 2, "training.negatives.count": 4, "training.stopping.windows": 15,
        "training.stopping.candidates": 30, "classifier.hidden": [8, 16, 8],
        "classifier_training.optimiser.epochs": 3, "classifier_training.optimiser.learning_rate": 0.02}


def tiny_config(preset="paper", **more):
    return load_config(preset, overrides={**TINY, **more})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("data") / "world", knobs=WorldKnobs(train=36, val=12, test=24, dim=8))


@pytest.fixture(scope="module")
def splits(world):
    return {split: cut_windows(world, horizon=3, split=split) for split in ("train", "val", "test")}


@pytest.fixture(scope="module")
def planner(splits):
    made = CefitoPlanner(config=tiny_config())
    made.fit(splits["train"], splits["val"], seed=0)
    return made


def weights(planner):
    return {**{f"field.{name}": tensor for name, tensor in planner.field.state_dict().items()},
            **{f"task.{name}": tensor for name, tensor in planner.task_model.classifier.state_dict().items()}}


def same_weights(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def same_plans(left, right):
    return len(left) == len(right) and all(
        np.array_equal(a.actions, b.actions) and np.array_equal(a.energies, b.energies)
        for a, b in zip(left, right, strict=True))


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
    """In the order of the queries, although the search takes those of one task together."""
    assert len(splits["test"]) > _TOGETHER
    test = splits["test"].subset(np.random.default_rng(0).permutation(len(splits["test"])))
    queries = Queries.from_windows(test, oracle_task=True)
    plans = planner.plan(queries, 4)
    assert len(plans) == len(test)
    for row in range(0, len(test), 7):
        everything = torch.tensor(list(product(planner.space.actions[test.tasks[row]], repeat=3)))
        count = len(everything)
        with torch.inference_mode():
            energies = planner.field.energy(torch.from_numpy(test.initial[[row]]).expand(count, -1),
                                            torch.from_numpy(test.goal[[row]]).expand(count, -1), everything)
            own = planner.field.energy(torch.from_numpy(test.initial[[row]]).expand(4, -1),
                                       torch.from_numpy(test.goal[[row]]).expand(4, -1),
                                       torch.from_numpy(plans[row].actions))
        np.testing.assert_allclose(plans[row].energies, energies.sort().values[:4], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(plans[row].energies, own, rtol=1e-4, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 12))
def test_answers_do_not_depend_on_the_other_queries(planner, splits, seed, count):
    rows = np.random.default_rng(seed).choice(len(splits["test"]), size=count, replace=False)
    queries = Queries.from_windows(splits["test"])
    together, alone = planner.plan(queries.subset(rows), 2), [planner.plan(queries.subset([row]), 2)[0] for row in rows]
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours.energies, theirs.energies, rtol=1e-4, atol=1e-6)


def test_no_queries_no_plans(planner, splits):
    assert planner.plan(Queries.from_windows(splits["test"]).subset([]), 3) == []


def test_top_k(planner, splits):
    queries = Queries.from_windows(splits["test"]).subset([0, 1])
    size = [len(planner.space.actions[task]) ** 3 for task in planner.predict_tasks(queries)]
    longest = planner.plan(queries, max(size) + 1)
    assert [len(plan) for plan in longest] == size
    for top_k in (1, 5):
        for plan, whole in zip(planner.plan(queries, top_k), longest, strict=True):
            assert plan.actions.tolist() == whole.actions[:top_k].tolist()
    for top_k in (0, -1):
        with pytest.raises(ConfigError, match=f"top_k is {top_k}"):
            planner.plan(queries, top_k)


def test_another_search_and_progress(splits, planner, tmp_path):
    shown = []

    def progress(description, *, total=None):
        shown.append((description, total))
        return silent(description, total=total)

    planner.save(tmp_path)
    other = CefitoPlanner(config=planner.config, search=NaiveSearch(), progress=progress)
    other.load(tmp_path)
    queries = Queries.from_windows(splits["test"]).subset([3, 1])
    for ours, theirs in zip(planner.plan(queries, 3), other.plan(queries, 3), strict=True):
        np.testing.assert_allclose(ours.energies, theirs.energies, rtol=1e-4, atol=1e-6)
    assert shown == [("planning", 2)]


@pytest.mark.parametrize("width", [7, 9])
def test_observations_of_another_size(planner, splits, width):
    test = splits["test"].subset([0])
    wrong = np.zeros((1, width), np.float32)
    for tasks in (None, test.tasks):
        with pytest.raises(RunError, match=f"observations have {width} features; this run was trained on 8"):
            planner.plan(Queries(initial=wrong, goal=wrong, tasks=tasks), 1)


def test_not_fitted(splits, tmp_path):
    planner = CefitoPlanner(config=tiny_config())
    for call in (lambda: planner.plan(Queries.from_windows(splits["test"]), 1), lambda: planner.save(tmp_path),
                 lambda: planner.horizon, lambda: planner.predict_tasks(Queries.from_windows(splits["test"]))):
        with pytest.raises(RunError, match=r"not been (fitted|trained)"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("preset", preset_names())
def test_save_and_load_give_the_same_plans(preset, splits, tmp_path):
    planner = CefitoPlanner(config=tiny_config(preset))
    planner.fit(splits["train"], splits["val"], seed=0)
    planner.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "classifier.safetensors", "field.safetensors", "planner.json"]
    loaded = CefitoPlanner(config=load_config("paper"))
    loaded.load(tmp_path)
    assert loaded.config == planner.config
    assert loaded.horizon == planner.horizon == 3
    assert loaded.space == planner.space
    assert same_weights(planner, loaded)
    queries = Queries.from_windows(splits["test"])
    assert planner.predict_tasks(queries).tolist() == loaded.predict_tasks(queries).tolist()
    assert same_plans(planner.plan(queries, 2), loaded.plan(queries, 2))


@pytest.mark.parametrize("encoding", ["auto", "learned"])
def test_action_text_comes_back_from_the_saved_planner(encoding, tiny_videos, make_source, tmp_path):
    tiny_videos[-1]["split"] = "val"
    text = np.random.default_rng(6).standard_normal((8, 3)).astype(np.float32)
    dataset = prepare_custom(make_source(videos=tiny_videos, text=text), tmp_path / "data")
    train, val, test = (cut_windows(dataset, horizon=3, split=split) for split in ("train", "val", "test"))
    planner = CefitoPlanner(config=tiny_config(**{"field.action_encoding": encoding}))
    planner.fit(train, val, seed=0)
    assert planner.field.predictor.learned_actions == (encoding == "learned")
    planner.save(tmp_path)
    loaded = CefitoPlanner(config=tiny_config())
    loaded.load(tmp_path)
    assert loaded.field.predictor.learned_actions == (encoding == "learned")
    assert same_plans(planner.plan(Queries.from_windows(test), 3), loaded.plan(Queries.from_windows(test), 3))
    if encoding == "auto":
        vectors = loaded.field.state_dict()["predictor.action_vectors"]
        np.testing.assert_array_equal(vectors.numpy(), text)


def test_same_seed_same_weights_other_seed_others(planner, splits):
    again, other = CefitoPlanner(config=tiny_config()), CefitoPlanner(config=tiny_config())
    again.fit(splits["train"], splits["val"], seed=0)
    other.fit(splits["train"], splits["val"], seed=1)
    assert same_weights(planner, again)
    ours, theirs = weights(planner), weights(other)
    for name in ("field.predictor.blocks.0.attn.qkv.weight", "task.fc1.weight"):
        assert name not in ours or not torch.equal(ours[name], theirs[name])
    assert sum(torch.equal(ours[name], theirs[name]) for name in ours) < len(ours) / 2


def test_key_and_folder_change_no_weight(planner, splits, tmp_path):
    other = CefitoPlanner(config=tiny_config(), folder=tmp_path, key="whatever")
    other.fit(splits["train"], splits["val"], seed=0)
    assert same_weights(planner, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classifier", "field"]
    foreign = CefitoPlanner(config=tiny_config(), folder=tmp_path, key="another data set")
    with pytest.raises(RunError, match="another data set, other settings or another seed"):
        foreign.fit(splits["train"], splits["val"], seed=0)


def test_the_best_epoch_on_the_validation_windows_is_kept(splits):
    planner = CefitoPlanner(config=tiny_config(**{"training.optimiser.epochs": 3}))
    planner.fit(splits["train"], splits["val"], seed=0)
    scores = planner._score(planner.field, *_validation_problems(
        splits["val"], planner.space, windows=15, candidates=30), planner.group)
    assert planner.result.scores == pytest.approx((scores["success_rate"], scores["mean_accuracy"]))
    assert 1 <= planner.result.best_epoch <= planner.result.epochs == 3
    right = planner.predict_tasks(Queries.from_windows(splits["val"])) == splits["val"].tasks
    assert planner.task_model.result.scores[0] == pytest.approx(100 * right.mean())


def test_tasks_without_training_windows(splits, world, caplog):
    keep = np.flatnonzero(splits["train"].tasks != 4)
    planner = CefitoPlanner(config=tiny_config())
    with caplog.at_level(logging.WARNING, logger="cefito"):
        planner.fit(splits["train"].subset(keep), splits["val"], seed=0)
    assert planner.space.fallback == (4,)
    assert caplog.messages == ["tasks without training windows, which may use all actions that the taxonomy lists for "
                               "them: 1, 4 ('Pickle Cucumbers')"]
    rows = np.flatnonzero(splits["test"].tasks == 4)
    evaluation, plans = evaluate_planner(planner, splits["test"].subset(rows), oracle_task=True)
    assert evaluation.without_plan == 0
    for plan in plans:
        assert set(plan.actions.flatten().tolist()) <= set(world.taxonomy.tasks[4].actions)
        assert plan.evaluated.leaves == len(world.taxonomy.tasks[4].actions) ** 3


def test_the_warning_about_many_tasks_is_short_and_comes_again_on_loading(splits, caplog, tmp_path):
    keep = np.flatnonzero(splits["train"].tasks < 6)
    planner = CefitoPlanner(config=tiny_config())
    with caplog.at_level(logging.WARNING, logger="cefito"):
        planner.fit(splits["train"].subset(keep), splits["val"], seed=0)
        planner.save(tmp_path)
        CefitoPlanner(config=tiny_config()).load(tmp_path)
    assert len(caplog.messages) == 2
    assert caplog.messages[0] == caplog.messages[1]
    assert "lists for them: 6, 6 ('" in caplog.messages[0]
    assert caplog.messages[0].count("('") == 3
    assert caplog.messages[0].endswith(", …")


def test_no_warning_where_every_task_is_trained_on(splits, caplog):
    with caplog.at_level(logging.WARNING, logger="cefito"):
        CefitoPlanner(config=tiny_config()).fit(splits["train"], splits["val"], seed=0)
    assert caplog.messages == []


def test_actions_from_the_taxonomy(splits, world):
    planner = CefitoPlanner(config=tiny_config(**{"search.actions": "taxonomy"}))
    planner.fit(splits["train"], splits["val"], seed=0)
    assert planner.space.actions == tuple(task.actions for task in world.taxonomy.tasks)
    assert planner.space.source == "taxonomy"


@settings(max_examples=25, deadline=None)
@given(candidates=st.integers(1, 600), windows=st.integers(0, 20))
def test_validation_problems_hold_the_true_actions_within_the_bound(splits, planner, candidates, windows):
    val, space = splits["val"], planner.space
    problems, actual = _validation_problems(val, space, windows=windows, candidates=candidates)
    chosen = val.sample(windows or None, seed=0)
    assert len(problems) == len(actual) == min(windows or len(val), len(val))
    np.testing.assert_array_equal(actual, chosen.actions)
    for row, problem in enumerate(problems):
        allowed, true = set(space.actions[chosen.tasks[row]]), set(actual[row].tolist())
        np.testing.assert_array_equal(problem.initial, chosen.initial[row])
        np.testing.assert_array_equal(problem.goal, chosen.goal[row])
        assert list(problem.actions) == sorted(set(problem.actions))
        assert true & allowed <= set(problem.actions) <= allowed
        assert len(problem.actions) ** 3 <= max(candidates, len(true & allowed) ** 3)
        if len(allowed) ** 3 <= candidates:
            assert set(problem.actions) == allowed
        elif len(problem.actions) > len(true):  # no narrower than the bound asks for
            assert (len(problem.actions) + 1) ** 3 > candidates
    again, _ = _validation_problems(val, space, windows=windows, candidates=candidates)
    assert [problem.actions for problem in again] == [problem.actions for problem in problems]


def test_validation_problems_of_a_true_action_that_training_never_showed(splits, planner):
    val = splits["val"].subset([0])
    task, missing = int(val.tasks[0]), int(val.actions[0, 1])
    rows = tuple(tuple(action for action in row if action != missing) for row in planner.space.actions)
    problems, actual = _validation_problems(val, replace(planner.space, actions=rows), windows=0, candidates=10_000)
    assert problems[0].actions == rows[task]
    assert missing in actual[0]


def saved(planner, folder):
    planner.save(folder)
    return json.loads((folder / "planner.json").read_text())


@pytest.mark.parametrize("key", ["config", "taxonomy", "action_space", "horizon", "observation_dim", "learned_actions"])
def test_planner_file_that_lacks_an_entry(planner, tmp_path, key):
    value = saved(planner, tmp_path)
    del value[key]
    (tmp_path / "planner.json").write_text(json.dumps(value))
    with pytest.raises(RunError, match=r"planner\.json.*Train the run again"):
        CefitoPlanner(config=tiny_config()).load(tmp_path)


@pytest.mark.parametrize("change", [
    {"config": []}, {"config": {"preset": "small", "nonsense": 1}}, {"taxonomy": []}, {"taxonomy": {}},
    {"action_space": {"actions": 3}}, {"action_space": []}, {"horizon": "three"}, {"observation_dim": None}])
def test_planner_file_with_a_wrong_entry(planner, tmp_path, change):
    value = saved(planner, tmp_path)
    (tmp_path / "planner.json").write_text(json.dumps({**value, **change}))
    with pytest.raises(RunError, match=r"planner\.json"):
        CefitoPlanner(config=tiny_config()).load(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "null", "\x00"])
def test_planner_file_that_is_something_else(planner, tmp_path, content):
    planner.save(tmp_path)
    (tmp_path / "planner.json").write_text(content)
    with pytest.raises(RunError, match=r"planner\.json"):
        CefitoPlanner(config=tiny_config()).load(tmp_path)


def test_weights_that_do_not_fit_the_planner_file(planner, tmp_path):
    value = saved(planner, tmp_path)
    (tmp_path / "planner.json").write_text(json.dumps({**value, "observation_dim": 9}))
    with pytest.raises(RunError, match=r"field\.safetensors"):
        CefitoPlanner(config=tiny_config()).load(tmp_path)


def test_action_space_survives_json():
    space = ActionSpace(actions=((0, 2), (1,)), source="taxonomy", fallback=(1,))
    assert ActionSpace.from_dict(json.loads(json.dumps(space.to_dict()))) == space
