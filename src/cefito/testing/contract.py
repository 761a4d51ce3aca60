"""What every registered method promises, as a class of tests.

A method is fitted once, on a small simulated world, and quickly: two epochs a network.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from cefito.data.prepared import PreparedDataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import Windows, cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import Description, Fitted, Planner
from cefito.planners.methods import abilities_of, find_method, load_config
from cefito.planners.network import data_shape
from cefito.planners.queries import Queries
from cefito.runtime import weights_to_come
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans
from cefito.search.settings import search_settings
from cefito.settings import flattened
from cefito.training.settings import TrainingResult
from cefito.training.trainer import TrainingContext

HORIZON, TOP_K, WIDTH = 3, 4, 12
CONSTRAINTS = Constraints(forbidden=(0,), no_repeats=True)
# endings of the keys of settings that make fitting quick
QUICK = {".optimiser.epochs": 2, ".stopping.windows": 10, ".fitting_windows": 10}


def quick(values: Mapping[str, Any], endings: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides of all settings, nested in dicts, whose keys have these endings."""
    overrides: dict[str, Any] = {}
    for key in flattened(values):
        overrides |= next(({key: value} for end, value in endings.items() if key.endswith(end)), {})
    return overrides


def assert_same_plans(
    left: Sequence[Plans], right: Sequence[Plans], *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Check for equal actions, tasks, exactness and, by default to the bit, numbers.

    Args:
        left: Plans of each query.
        right: Plans of the same queries.
        rtol: Relative difference of numbers that is allowed.
        atol: Absolute difference of numbers that is allowed.
    """
    assert len(left) == len(right)
    for ours, theirs in zip(left, right, strict=True):
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.tasks, theirs.tasks)
        assert (ours.exact, ours.searched) == (theirs.exact, theirs.searched)
        for name in ("energies", "scores", "probabilities", "task_probabilities"):
            left_numbers, right_numbers = getattr(ours, name), getattr(theirs, name)
            assert (left_numbers is None) == (right_numbers is None)
            if left_numbers is not None:
                np.testing.assert_allclose(left_numbers, right_numbers, rtol=rtol, atol=atol)


class PlannerContract:
    """Tests of a method; derive a class `Test…` from it, with the name of the method.

    Attributes:
        method: Name of the registered method.
        overrides: Settings that make its networks small, by dotted keys.
    """

    method: ClassVar[str]
    overrides: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture
    def name(self) -> str:
        return self.method

    @pytest.fixture(scope="class")
    @classmethod
    def dataset(cls, tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
        knobs = WorldKnobs(train=48, val=16, test=16, dim=WIDTH)
        return write_world(tmp_path_factory.mktemp("data") / "world", seed=0, knobs=knobs)

    @pytest.fixture(scope="class")
    @classmethod
    def splits(cls, dataset: PreparedDataset) -> dict[str, Windows]:
        names = ("train", "val", "test")
        return {split: cut_windows(dataset, horizon=HORIZON, split=split) for split in names}

    @pytest.fixture(scope="class")
    @classmethod
    def queries(cls, splits: dict[str, Windows]) -> Queries:
        return Queries.from_windows(splits["test"]).subset(range(6))

    @pytest.fixture(scope="class")
    @classmethod
    def with_tasks(cls, splits: dict[str, Windows]) -> Queries:
        """The queries with their true tasks."""
        return Queries.from_windows(splits["test"], oracle_task=True).subset(range(6))

    @pytest.fixture(scope="class")
    @classmethod
    def settings_of(cls) -> Callable[[str], Any]:
        """Quick settings of a method."""

        def settings(name: str) -> Any:
            preset = partial(load_config, "quickstart", method=name, shared=True)
            changes = quick(preset().sections, QUICK)
            return preset(overrides=changes | dict(cls.overrides)).settings

        return cache(settings)

    @pytest.fixture
    def settings(self, name: str, settings_of: Callable[[str], Any]) -> Any:
        return settings_of(name)

    @pytest.fixture(scope="class")
    @classmethod
    def fit(cls, settings_of: Callable[[str], Any]) -> Callable[..., Fitted[Planner]]:
        """A function that fits a method on a data set."""

        def fit(name: str, dataset: PreparedDataset) -> Fitted[Planner]:
            train, val = (
                cut_windows(dataset, horizon=HORIZON, split=split) for split in ("train", "val")
            )
            kind: Any = find_method(name).planner
            result: Fitted[Planner] = kind.fit(
                train, val, settings=settings_of(name), seed=3, context=TrainingContext()
            )
            return result

        return fit

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(
        cls, fit: Callable[..., Fitted[Planner]], dataset: PreparedDataset
    ) -> Callable[[str], Fitted[Planner]]:
        """A function that returns a method fitted, once for all tests."""
        return cache(lambda name: fit(name, dataset))

    @pytest.fixture
    def planner(self, name: str, fitted: Callable[[str], Fitted[Planner]]) -> Planner:
        return fitted(name).planner

    @pytest.fixture
    def load(self, name: str, settings: Any) -> Callable[[Path], Planner]:
        """A function that loads the planner of a folder."""
        return partial(find_method(name).planner.load, settings=settings, context=TrainingContext())

    def test_fitting_gives_a_planner_and_its_trainings(
        self, name: str, fitted: Callable[[str], Fitted[Planner]], splits: dict[str, Windows]
    ) -> None:
        result = fitted(name)
        assert isinstance(result.planner, find_method(name).planner)
        # further parts and members bear the name of the first: "energy field-backward"
        trained = {title.partition("-")[0] for title in result.trainings}
        assert trained == set(result.planner.describe().parameters)
        for training in result.trainings.values():
            assert isinstance(training, TrainingResult)
            assert training.epochs == 2
            assert not training.resumed
        assert (result.planner.horizon, result.planner.observation_dim) == (HORIZON, WIDTH)
        vocabulary, taxonomy = result.planner.vocabulary, splits["train"].taxonomy
        assert vocabulary.tasks in (None, len(taxonomy.tasks))
        assert vocabulary.actions in (None, len(taxonomy.actions))

    def test_plans_are_sorted_and_at_most_top_k(
        self, planner: Planner, queries: Queries, splits: dict[str, Windows]
    ) -> None:
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
        lists = planner.abilities.top_k
        assert max(map(len, plans)) == (TOP_K if lists else 1)
        for top_k in (0, -1):
            with pytest.raises(ConfigError, match=f"top_k {top_k}: expected at least 1"):
                planner.plan(queries, top_k)
        assert planner.plan(queries.subset([]), TOP_K) == []

    def test_probabilities_where_the_description_says_so(
        self, planner: Planner, queries: Queries, with_tasks: Queries
    ) -> None:
        probable = planner.describe().probabilities
        assert planner.abilities.probabilities or not probable
        for asked in (queries, with_tasks):
            for plan, best in zip(planner.plan(asked, TOP_K), planner.plan(asked, 1), strict=True):
                assert (plan.probabilities is not None) == probable
                if plan.probabilities is None:
                    continue
                assert plan.task_probabilities is not None
                assert plan.probabilities.shape == plan.task_probabilities.shape == (len(plan),)
                assert (plan.probabilities >= 0).all()
                assert plan.probabilities.sum() <= 1 + 1e-5
                assert (np.diff(plan.probabilities) <= 1e-9).all()
                assert ((plan.task_probabilities > 0) & (plan.task_probabilities <= 1)).all()
                assert plan.searched_mass is None or 0 <= plan.searched_mass <= 1
                np.testing.assert_allclose(
                    np.asarray(best.probabilities), plan.probabilities[:1], rtol=1e-4
                )

    def test_marginals_are_probabilities_that_ignore_a_given_task(
        self, planner: Planner, queries: Queries, with_tasks: Queries
    ) -> None:
        marginals, task_marginals = planner.marginals(queries), planner.marginals(with_tasks)
        tasks, actions = planner.vocabulary
        if marginals.tasks is not None:
            assert marginals.tasks.shape == (len(queries), tasks)
            np.testing.assert_allclose(marginals.tasks.sum(axis=1), 1, rtol=1e-5)
            predicted = planner.predict_tasks(queries)
            np.testing.assert_array_equal(marginals.tasks.argmax(axis=1), np.asarray(predicted))
            np.testing.assert_array_equal(np.asarray(task_marginals.tasks), marginals.tasks)
        assert (marginals.steps is None) == (task_marginals.steps is None)
        assert planner.abilities.constraints == (marginals.steps is not None)
        for steps in (marginals.steps, task_marginals.steps):
            if steps is not None:
                assert steps.shape == (len(queries), HORIZON, actions)
                shares = steps.sum(axis=2)  # probability that a plan has the step
                assert (np.diff(shares, axis=1) <= 1e-5).all()
                sure = shares[:, :1] if planner.abilities.any_length else shares
                np.testing.assert_allclose(sure, 1, rtol=1e-5)

    def test_what_is_saved_gives_the_same_plans(
        self,
        planner: Planner,
        load: Callable[[Path], Planner],
        queries: Queries,
        with_tasks: Queries,
        tmp_path: Path,
    ) -> None:
        planner.save(tmp_path)
        loaded = load(tmp_path)
        for asked in (queries, with_tasks):
            assert_same_plans(loaded.plan(asked, TOP_K), planner.plan(asked, TOP_K))
            tasks, again = (np.asarray(either.predict_tasks(asked)) for either in (planner, loaded))
            np.testing.assert_array_equal(again, tasks)
        assert loaded.describe() == planner.describe()
        assert loaded.horizon == planner.horizon
        assert loaded.observation_dim == planner.observation_dim

    @pytest.mark.parametrize("value", [1e30, np.inf, np.nan])
    @pytest.mark.parametrize("end", ["initial", "goal"])
    def test_a_query_that_cannot_be_computed_with_is_refused_by_its_number(
        self, planner: Planner, queries: Queries, end: str, value: float
    ) -> None:
        changed = getattr(queries, end).copy()
        changed[2, 5] = value
        message = rf"^queries, '{end}', row 2 \(counted from 0\): holds"
        with pytest.raises(DataError, match=message):
            planner.plan(replace(queries, **{end: changed}), TOP_K)

    def test_a_weight_that_is_no_number_is_refused_with_its_file(
        self, planner: Planner, load: Callable[[Path], Planner], tmp_path: Path
    ) -> None:
        if not planner.describe().parameters:
            pytest.skip("it has no weights")
        planner.save(tmp_path)
        refused = 0
        for path in sorted(tmp_path.glob("*.safetensors")):
            tensors, metadata = load_tensors(path, "pt", "")
            named = [key for key, tensor in tensors.items() if tensor.is_floating_point()]
            if not named or path.stem == "prior":
                continue
            whole = tensors[named[-1]]
            tensors[named[-1]] = torch.full_like(whole, torch.nan)
            write_tensors(path, tensors, metadata)
            with pytest.raises(RunError, match=path.name):
                load(tmp_path)
            write_tensors(path, {**tensors, named[-1]: whole}, metadata)
            refused += 1
        assert refused

    def test_a_folder_that_holds_no_planner(
        self, load: Callable[[Path], Planner], tmp_path: Path
    ) -> None:
        with pytest.raises(RunError) as caught:
            load(tmp_path)
        assert str(caught.value).startswith(str(tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_the_same_seed_gives_the_same_plans_and_no_intermediate_observation_is_seen(
        self,
        name: str,
        planner: Planner,
        fit: Callable[..., Fitted[Planner]],
        queries: Queries,
        dataset: PreparedDataset,
    ) -> None:
        blind = fit(name, _unseen_changed(dataset)).planner
        assert_same_plans(blind.plan(queries, TOP_K), planner.plan(queries, TOP_K))

    def test_a_query_alone_is_planned_as_among_others(
        self, planner: Planner, queries: Queries
    ) -> None:
        together = planner.plan(queries, TOP_K)
        for row in range(len(queries)):
            assert_same_plans(
                planner.plan(queries.subset([row]), TOP_K),
                together[row : row + 1],
                rtol=1e-5,
                atol=1e-5,
            )

    def test_constraints_are_obeyed_or_refused(self, planner: Planner, queries: Queries) -> None:
        if planner.abilities.constraints:
            for plan in planner.plan(queries, TOP_K, constraints=CONSTRAINTS):
                assert len(plan)
                for actions in plan.actions.tolist():
                    assert 0 not in actions
                    assert len(set(actions)) == HORIZON
            return
        message = f"^{re.escape(planner.name)} cannot obey constraints"
        with pytest.raises(ConfigError, match=message):
            planner.plan(queries, TOP_K, constraints=CONSTRAINTS)

    def test_another_search_is_another_planner_or_refused(
        self, planner: Planner, queries: Queries
    ) -> None:
        usual = planner.describe().search or load_config("paper").settings.search
        settings = search_settings(usual, method="guided")
        before, description = planner.plan(queries, TOP_K), planner.describe()
        if planner.abilities.search:
            other = planner.with_search(settings)
            assert other is not planner
            search: Any = other.describe().search
            assert search.method == "guided"
            other.plan(queries, TOP_K)
        else:
            with pytest.raises(ConfigError, match="has no search to choose"):
                planner.with_search(settings)
        assert planner.describe() == description
        assert_same_plans(planner.plan(queries, TOP_K), before)

    def test_it_goes_on_learning_or_refuses(
        self, planner: Planner, settings: Any, queries: Queries, splits: dict[str, Windows]
    ) -> None:
        before = planner.plan(queries, TOP_K)
        learn = partial(
            planner.refit,
            splits["train"],
            splits["val"],
            settings=settings,
            seed=4,
            context=TrainingContext(),
        )
        if planner.abilities.finetuning:
            result = learn()
            assert result.planner is not planner
            assert result.planner.describe().parameters == planner.describe().parameters
            assert result.trainings
            result.planner.plan(queries, TOP_K)
        else:
            message = f"^{re.escape(planner.name)} cannot be finetuned"
            with pytest.raises(ConfigError, match=message):
                learn()
        assert_same_plans(planner.plan(queries, TOP_K), before)

    def test_observations_of_another_width(self, planner: Planner, queries: Queries) -> None:
        initial, goal = (
            np.pad(observations, ((0, 0), (0, 1)))
            for observations in (queries.initial, queries.goal)
        )
        message = rf"observations have {WIDTH + 1} features; .* trained on {WIDTH}"
        with pytest.raises(RunError, match=message):
            planner.plan(Queries(initial=initial, goal=goal), 1)

    def test_planners_are_frozen_and_shown_in_one_line(self, planner: Any) -> None:
        kind = type(planner).__name__
        assert repr(planner).startswith(f"{kind}(T = {HORIZON}, {WIDTH} features, ")
        assert "\n" not in repr(planner)
        assert len(repr(planner)) < 100
        for field in dataclasses.fields(planner):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(planner, field.name, getattr(planner, field.name))

    def test_descriptions_are_complete(self, planner: Planner) -> None:
        description = planner.describe()
        assert description.name == planner.name != ""
        assert all(number > 0 for number in description.parameters.values())
        assert (description.search is not None) == planner.abilities.search
        value = json.loads(json.dumps(description.model_dump(mode="json")))
        assert Description.model_validate(value) == description

    def test_sizes_are_those_of_its_networks(
        self, planner: Planner, settings: Any, splits: dict[str, Windows]
    ) -> None:
        with weights_to_come():
            sizes = type(planner).sizes(settings, data_shape(splits["train"]))
        assert sizes.items() <= planner.describe().parameters.items()

    def test_what_is_listed_of_it_is_what_it_does(
        self, name: str, planner: Planner, with_tasks: Queries, splits: dict[str, Windows]
    ) -> None:
        def sequences(asked: Queries) -> list[Any]:
            return [plan.actions.tolist() for plan in planner.plan(asked, TOP_K)]

        assert with_tasks.tasks is not None
        other = with_tasks.with_task(
            int(with_tasks.tasks[0] + 1) % len(splits["test"].taxonomy.tasks)
        )
        listed = set(abilities_of(find_method(name)))
        assert ("true task" in listed) == (sequences(with_tasks) != sequences(other))
        for ability in ("constraints", "search", "finetuning"):  # as the tests above expect
            assert (ability in listed) == getattr(planner.abilities, ability)
        assert planner.describe().probabilities <= ("probabilities" in listed)

    def test_tasks_that_are_given(
        self, planner: Planner, queries: Queries, with_tasks: Queries, splits: dict[str, Windows]
    ) -> None:
        predicted = planner.predict_tasks(queries)
        if predicted is not None:
            assert predicted.shape == (len(queries),)
            assert predicted.dtype == np.int64
            assert set(predicted.tolist()) <= set(range(len(splits["test"].taxonomy.tasks)))
        np.testing.assert_array_equal(
            np.asarray(planner.predict_tasks(with_tasks)), np.asarray(with_tasks.tasks)
        )
        if not planner.abilities.true_task:
            assert_same_plans(planner.plan(with_tasks, TOP_K), planner.plan(queries, TOP_K))

    def test_being_stopped_still_gives_a_list_for_each_query(
        self, planner: Planner, queries: Queries
    ) -> None:
        assert len(planner.plan(queries, TOP_K, stop=lambda: True)) == len(queries)

    def test_sections_of_settings_are_loaded_and_told_apart(self, name: str) -> None:
        kind = find_method(name).settings
        settings = load_config("paper", method=name).settings
        assert isinstance(settings, kind)
        for section in kind.model_fields:
            with pytest.raises(ConfigError, match=f"'{section}.nonsense'"):
                load_config("paper", method=name, overrides={f"{section}.nonsense": 1})


def _unseen_changed(dataset: PreparedDataset) -> PreparedDataset:
    """Return the data set with other observations wherever no window has its initial or goal."""
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
