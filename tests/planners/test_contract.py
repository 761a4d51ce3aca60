"""What every registered method promises; whoever registers one gets all of these tests.

A toy method, defined and registered here alone, shows that registering is all it takes.
"""

import dataclasses
import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from cefito.data import cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import load_tensors, read_json, write_json, write_tensors
from cefito.inference.answer import answer
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    BasePlanner,
    Description,
    Fitted,
    Queries,
    check_queries,
)
from cefito.planners.methods import METHODS, Method, find_method, load_config
from cefito.planners.network import data_shape
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.search.settings import search_settings
from cefito.settings import Settings
from cefito.study.methods import abilities_of
from cefito.training.trainer import TrainingContext, TrainingResult
from language_model import SETTINGS as STAND_IN
from moved_arrays import all_arrays_moved
from same import assert_same_plans
from tiny_runs import NARROW, quick
from toy_network import ToyNetworkPlanner, ToyNetworkSettings

pytestmark = pytest.mark.usefixtures("language_model")

HORIZON, TOP_K = 3, 4
KNOBS = {"train": 48, "val": 16, "test": 16, "dim": 12}
CONSTRAINTS = Constraints(forbidden=(0,), no_repeats=True)
# endings of the keys of settings that make fitting quick
QUICK = {".optimiser.epochs": 2, ".stopping.windows": 10, ".fitting_windows": 10}


class ToyConfig(Settings):
    width: int = 5


class ToySettings(Settings):
    toy: ToyConfig = ToyConfig()


@dataclass(frozen=True, repr=False)
class ToyPlanner(BasePlanner):
    """Plans the most frequent sequences of all training windows, whatever is asked."""

    abilities: ClassVar[Abilities] = Abilities(true_task=False)
    counts: tuple[tuple[tuple[int, ...], int], ...]
    horizon: int
    observation_dim: int
    name = "toy"

    @classmethod
    def fit(cls, train, val, *, settings, seed, context=TrainingContext()):  # noqa: ARG003
        counts = Counter(tuple(row) for row in train.actions.tolist())
        kept = tuple(counts.most_common(settings.toy.width))
        return Fitted(cls(kept, train.horizon, train.initial.shape[1]))

    @classmethod
    def load(cls, folder, *, settings, context=TrainingContext()):  # noqa: ARG003
        value = read_json(folder / "toy.json", "Fit it again.", RunError)
        counts = tuple((tuple(actions), count) for actions, count in value["counts"])
        return cls(counts, value["horizon"], value["observation_dim"])

    def save(self, folder):
        write_json(folder / "toy.json", dataclasses.asdict(self))

    def predict_tasks(self, queries):
        return queries.tasks

    def plan(self, queries, top_k, *, constraints=UNCONSTRAINED, **watching):  # noqa: ARG002
        check_queries(self, queries, top_k, constraints)
        energies = -np.log([count for _, count in self.counts[:top_k]])
        actions = np.array([actions for actions, _ in self.counts[:top_k]])
        plans = Plans(actions, energies, energies, SearchCost(0, len(self.counts)), exact=True)
        return [plans] * len(queries)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The toy is registered for the tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        for toy in TOYS:
            patch.setitem(METHODS, toy.name, toy)
        yield


TOYS = (
    Method(name="toy", planner=ToyPlanner, settings=ToySettings),
    Method(name="toy-network", planner=ToyNetworkPlanner, settings=ToyNetworkSettings),
)
every_method = pytest.mark.parametrize("name", [*METHODS, *(toy.name for toy in TOYS)])


@cache
def quick_settings(name):
    preset = partial(load_config, "quickstart", method=name, shared=True)
    return preset(overrides=quick(preset().sections, QUICK) | NARROW | STAND_IN).settings


def unseen_changed(dataset):
    """The data set with other observations wherever no window has its initial or its goal."""
    initial, goal = np.zeros((2, len(dataset.start)), dtype=bool)
    for video, first in zip(dataset.videos, dataset.first_row, strict=True):
        for row in range(first, first + len(video.steps) - HORIZON + 1):
            initial[row] = goal[row + HORIZON - 1] = True
    assert not initial.all()
    assert not goal.all()
    return replace(
        dataset,
        start=np.where(initial[:, None], dataset.start, 9.0),
        end=np.where(goal[:, None], dataset.end, -9.0),
    )


@pytest.fixture(scope="module")
def queries(splits):
    return Queries.from_windows(splits["test"]).subset(range(6))


@pytest.fixture(scope="module")
def known(splits):
    """The queries with their true tasks."""
    return Queries.from_windows(splits["test"], oracle_task=True).subset(range(6))


def fit(name, dataset):
    method = find_method(name)
    train, val = (cut_windows(dataset, horizon=HORIZON, split=split) for split in ("train", "val"))
    settings = quick_settings(name)
    return method.planner.fit(train, val, settings=settings, seed=3, context=TrainingContext())


@pytest.fixture(scope="module")
def fitted(dataset):
    """Each method fitted, once for all tests."""
    return cache(lambda name: fit(name, dataset))


@pytest.fixture
def planner(fitted, name):
    return fitted(name).planner


@every_method
def test_fitting_gives_a_planner_and_its_trainings(name, fitted, splits):
    result = fitted(name)
    assert isinstance(result.planner, find_method(name).planner)
    # further parts and members bear the name of the first: "energy field-backward"
    trained = {title.partition("-")[0] for title in result.trainings}
    assert trained == set(result.planner.describe().parameters)
    for training in result.trainings.values():
        assert isinstance(training, TrainingResult)
        assert training.epochs == 2
        assert not training.resumed
    assert (result.planner.horizon, result.planner.observation_dim) == (HORIZON, 12)
    known, taxonomy = result.planner.vocabulary, splits["train"].taxonomy
    assert known.tasks in (None, len(taxonomy.tasks))
    assert known.actions in (None, len(taxonomy.actions))


@every_method
def test_plans_are_sorted_and_at_most_top_k(name, planner, queries, splits):
    plans = planner.plan(queries, TOP_K)
    assert len(plans) == len(queries)
    for plan, best in zip(plans, planner.plan(queries, 1), strict=True):
        assert 1 <= len(plan) <= TOP_K
        assert plan.actions.shape == (len(plan), HORIZON)
        assert plan.actions.dtype == np.int64
        assert (plan.actions >= 0).all()
        assert (plan.actions < len(splits["test"].taxonomy.actions)).all()
        assert len({tuple(actions) for actions in plan.actions.tolist()}) == len(plan)
        assert len(plan.energies) == len(plan.scores) == len(plan)
        assert np.isfinite(plan.energies).all()
        assert (np.diff(plan.scores) >= 0).all()
        assert best.actions.tolist() == plan.actions[:1].tolist()
    assert any(len(plan) == TOP_K for plan in plans)
    for top_k in (0, -1):
        with pytest.raises(ConfigError, match=f"top_k {top_k}: expected at least 1"):
            planner.plan(queries, top_k)
    assert planner.plan(queries.subset([]), TOP_K) == []


@every_method
def test_probabilities_where_the_description_says_so(name, planner, queries, known):
    probable = planner.describe().probabilities
    assert planner.abilities.probabilities or not probable
    for asked in (queries, known):
        for plan, best in zip(planner.plan(asked, TOP_K), planner.plan(asked, 1), strict=True):
            assert (plan.probabilities is not None) == probable
            if plan.probabilities is None:
                continue
            assert plan.probabilities.shape == plan.task_probabilities.shape == (len(plan),)
            assert (plan.probabilities >= 0).all()
            assert plan.probabilities.sum() <= 1 + 1e-5
            assert (np.diff(plan.probabilities) <= 1e-9).all()
            assert ((plan.task_probabilities > 0) & (plan.task_probabilities <= 1)).all()
            assert plan.searched_mass is None or 0 <= plan.searched_mass <= 1
            np.testing.assert_allclose(best.probabilities, plan.probabilities[:1], rtol=1e-4)


@every_method
def test_marginals_are_probabilities_that_ignore_a_given_task(name, planner, queries, known):
    found, given = planner.marginals(queries), planner.marginals(known)
    if found.tasks is not None:
        assert found.tasks.shape == (len(queries), planner.vocabulary.tasks)
        np.testing.assert_allclose(found.tasks.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(found.tasks.argmax(axis=1), planner.predict_tasks(queries))
        np.testing.assert_array_equal(given.tasks, found.tasks)
    assert (found.steps is None) == (given.steps is None)
    assert planner.abilities.constraints == (found.steps is not None)
    for steps in (found.steps, given.steps):
        if steps is not None:
            assert steps.shape == (len(queries), HORIZON, planner.vocabulary.actions)
            shares = steps.sum(axis=2)  # probability that a plan has the step
            assert (np.diff(shares, axis=1) <= 1e-5).all()
            sure = shares[:, :1] if planner.abilities.any_length else shares
            np.testing.assert_allclose(sure, 1, rtol=1e-5)


@every_method
def test_what_is_saved_gives_the_assert_same_plans(name, planner, queries, known, tmp_path):
    planner.save(tmp_path)
    method = find_method(name)
    loaded = method.planner.load(tmp_path, settings=quick_settings(name), context=TrainingContext())
    for asked in (queries, known):
        assert_same_plans(loaded.plan(asked, TOP_K), planner.plan(asked, TOP_K))
        np.testing.assert_array_equal(loaded.predict_tasks(asked), planner.predict_tasks(asked))
    assert loaded.describe() == planner.describe()
    assert (loaded.horizon, loaded.observation_dim) == (planner.horizon, planner.observation_dim)


@pytest.mark.parametrize("name", ["cefito", "chain"])
def test_scores_do_not_depend_on_where_tensors_begin_in_a_file(name, planner, tmp_path):
    planner.save(tmp_path)
    with all_arrays_moved():
        loaded = find_method(name).planner.load(
            tmp_path, settings=quick_settings(name), context=TrainingContext()
        )
    asked = Queries(*np.random.default_rng(0).standard_normal((2, 300, 12)).astype(np.float32))
    assert_same_plans(loaded.plan(asked, TOP_K), planner.plan(asked, TOP_K))


@every_method
@pytest.mark.parametrize("value", [1e30, np.inf, np.nan])
@pytest.mark.parametrize("part", ["initial", "goal"])
def test_a_query_that_cannot_be_computed_with_is_refused_by_its_number(
    name, planner, queries, part, value
):
    changed = getattr(queries, part).copy()
    changed[2, 5] = value
    with pytest.raises(DataError, match=rf"^queries, '{part}', row 2 \(counted from 0\): holds"):
        planner.plan(replace(queries, **{part: changed}), TOP_K)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "nearest"])  # no weights
def test_a_weight_that_is_no_number_is_refused_with_its_file(name, planner, tmp_path):
    method, refused = find_method(name), 0
    settings = quick_settings(name)
    planner.save(tmp_path)
    for path in sorted(tmp_path.glob("*.safetensors")):
        tensors, metadata = load_tensors(path, "pt", "")
        named = [key for key, tensor in tensors.items() if tensor.is_floating_point()]
        if not named or path.stem == "prior":
            continue
        whole = tensors[named[-1]]
        tensors[named[-1]] = torch.full_like(whole, torch.nan)
        write_tensors(path, tensors, metadata)
        with pytest.raises(RunError, match=path.name):
            method.planner.load(tmp_path, settings=settings, context=TrainingContext())
        write_tensors(path, {**tensors, named[-1]: whole}, metadata)
        refused += 1
    assert refused


@every_method
def test_a_folder_that_holds_no_planner(name, tmp_path):
    method = find_method(name)
    settings = quick_settings(name)
    with pytest.raises(RunError) as caught:
        method.planner.load(tmp_path, settings=settings, context=TrainingContext())
    assert str(caught.value).startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@every_method
def test_the_same_seed_gives_the_assert_same_plans(name, planner, queries, dataset):
    assert_same_plans(fit(name, dataset).planner.plan(queries, TOP_K), planner.plan(queries, TOP_K))


@every_method
def test_no_intermediate_observation_is_seen(name, planner, queries, dataset):
    blind = fit(name, unseen_changed(dataset)).planner
    assert_same_plans(blind.plan(queries, TOP_K), planner.plan(queries, TOP_K))


@every_method
def test_a_query_alone_is_planned_as_among_others(name, planner, queries):
    together = planner.plan(queries, TOP_K)
    for row in range(len(queries)):
        assert_same_plans(
            planner.plan(queries.subset([row]), TOP_K),
            together[row : row + 1],
            rtol=1e-5,
            atol=1e-5,
        )


@every_method
def test_constraints_are_obeyed_or_refused(name, planner, queries):
    if planner.abilities.constraints:
        for plan in planner.plan(queries, TOP_K, constraints=CONSTRAINTS):
            assert len(plan)
            for actions in plan.actions.tolist():
                assert 0 not in actions
                assert len(set(actions)) == HORIZON
        return
    with pytest.raises(ConfigError, match=f"^{re.escape(planner.name)} cannot obey constraints"):
        planner.plan(queries, TOP_K, constraints=CONSTRAINTS)


@every_method
def test_another_search_is_another_planner_or_refused(name, planner, queries):
    settings = search_settings(planner.describe().search or load_config("paper").settings.search)
    settings = search_settings(settings, method="beam")
    before, description = planner.plan(queries, TOP_K), planner.describe()
    if planner.abilities.search:
        other = planner.with_search(settings)
        assert other is not planner
        assert other.describe().search.method == "beam"
        other.plan(queries, TOP_K)
    else:
        with pytest.raises(ConfigError, match="has no search to choose"):
            planner.with_search(settings)
    assert planner.describe() == description
    assert_same_plans(planner.plan(queries, TOP_K), before)


@every_method
def test_it_goes_on_learning_or_refuses(name, planner, queries, splits):
    before = planner.plan(queries, TOP_K)
    settings = quick_settings(name)
    given = {"settings": settings, "seed": 4, "context": TrainingContext()}
    if planner.abilities.finetuning:
        result = planner.refit(splits["train"], splits["val"], **given)
        assert result.planner is not planner
        assert result.planner.describe().parameters == planner.describe().parameters
        assert result.trainings
        result.planner.plan(queries, TOP_K)
    else:
        with pytest.raises(ConfigError, match=f"^{re.escape(planner.name)} cannot be finetuned"):
            planner.refit(splits["train"], splits["val"], **given)
    assert_same_plans(planner.plan(queries, TOP_K), before)


@every_method
def test_observations_of_another_width(name, planner, queries):
    initial, goal = (np.pad(part, ((0, 0), (0, 1))) for part in (queries.initial, queries.goal))
    wider = Queries(initial=initial, goal=goal)
    with pytest.raises(RunError, match=r"observations have 13 features; .* trained on 12"):
        planner.plan(wider, 1)


@every_method
def test_planners_are_frozen_and_shown_in_one_line(name, planner):
    assert repr(planner).startswith(f"{type(planner).__name__}(T = {HORIZON}, 12 features, ")
    assert "\n" not in repr(planner)
    assert len(repr(planner)) < 100
    for field in dataclasses.fields(planner):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(planner, field.name, getattr(planner, field.name))


@every_method
def test_descriptions_are_complete(name, planner):
    description = planner.describe()
    assert description.name == planner.name != ""
    assert all(number > 0 for number in description.parameters.values())
    assert (description.search is not None) == planner.abilities.search
    value = json.loads(json.dumps(description.model_dump(mode="json")))
    assert Description.model_validate(value) == description


@every_method
def test_sizes_are_those_of_its_networks(name, planner, splits):
    with torch.device("meta"):
        shape = data_shape(splits["train"])
        sizes = find_method(name).planner.sizes(quick_settings(name), shape)
    assert sizes.items() <= planner.describe().parameters.items()


@every_method
def test_what_is_listed_of_it_is_what_it_does(name, planner, queries, known, splits):
    def sequences(asked):
        return [plan.actions.tolist() for plan in planner.plan(asked, TOP_K)]

    other = known.with_task(int(known.tasks[0] + 1) % len(splits["test"].taxonomy.tasks))
    truth = replace(queries, ends=splits["test"].actions[: len(queries)][:, [0, -1]])
    shape = (len(queries), HORIZON - 1, queries.initial.shape[1])
    between = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    shown = replace(queries, between=between)
    does = {
        "top-k": max(map(len, sequences(queries))) > 1,
        "true task": sequences(known) != sequences(other),
        "true ends": sequences(truth) != sequences(queries),
        "true between": sequences(shown) != sequences(queries),
    }
    listed = set(abilities_of(find_method(name)))
    assert listed & does.keys() == {ability for ability, able in does.items() if able}
    for ability in ("constraints", "search", "finetuning"):  # as the tests above expect
        assert (ability in listed) == getattr(planner.abilities, ability)
    assert planner.describe().probabilities <= ("probabilities" in listed)


@every_method
def test_tasks_that_are_given(name, planner, queries, known, splits):
    predicted = planner.predict_tasks(queries)
    if predicted is not None:
        assert predicted.shape == (len(queries),)
        assert predicted.dtype == np.int64
        assert set(predicted.tolist()) <= set(range(len(splits["test"].taxonomy.tasks)))
    np.testing.assert_array_equal(planner.predict_tasks(known), known.tasks)
    if not planner.abilities.true_task:
        assert_same_plans(planner.plan(known, TOP_K), planner.plan(queries, TOP_K))


@every_method
def test_plans_begin_and_end_with_true_ends(name, planner, queries, splits):
    truth = splits["test"].actions[: len(queries)][:, [0, -1]]
    if planner.abilities.true_ends:
        plans = planner.plan(replace(queries, ends=truth), TOP_K)
        for plan, (first, last) in zip(plans, truth.tolist(), strict=True):
            assert (plan.actions[:, 0] == first).all()
            assert (plan.actions[:, -1] == last).all()


@every_method
def test_being_stopped_still_gives_a_list_for_each_query(name, planner, queries):
    assert len(planner.plan(queries, TOP_K, stop=lambda: True)) == len(queries)


@every_method
def test_sections_of_settings_are_loaded_and_told_apart(name):
    kind = find_method(name).settings
    settings = load_config("paper", method=name).settings
    assert isinstance(settings, kind)
    for section in kind.model_fields:
        with pytest.raises(ConfigError, match=f"'{section}.nonsense'"):
            load_config("paper", method=name, overrides={f"{section}.nonsense": 1})


def test_registering_is_all_it_takes(dataset, queries, tmp_path):
    config = load_config("small", method="toy", overrides={"toy.width": 3})
    assert config.settings == ToySettings(toy=ToyConfig(width=3))
    with pytest.raises(ConfigError, match=r"'toy\.width'"):
        load_config("small", method="toy", overrides={"toy.width": "wide"})
    train_run(dataset, tmp_path / "run", config=config, horizon=HORIZON, seed=0)
    run = open_run(tmp_path / "run")
    assert run.method == "toy"
    assert len(run.planner.plan(queries, 5)[0]) == 3
    assert len(answer(run, queries.subset([0]), top_k=2).plans) == 2
