"""What every registered method promises; whoever registers one gets all of these tests.

A toy method, defined and registered here alone, shows that registering is all it takes.
"""

import dataclasses
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, RunError
from cefito.files import read_json, write_json
from cefito.inference.answer import answer
from cefito.planners.base import Abilities, Fitted
from cefito.planners.base_planner import BasePlanner
from cefito.planners.example.linear_example import METHOD as EXAMPLE
from cefito.planners.methods import METHODS, Method, load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.search.problem import Plans, SearchCost
from cefito.settings import Settings
from cefito.testing import PlannerContract, assert_same_plans
from cefito.training.trainer import TrainingContext
from moved_arrays import all_arrays_moved
from tiny_runs import NARROW, often_or_nightly

pytestmark = pytest.mark.usefixtures("asked_server")

KNOBS = {"train": 24, "val": 12, "test": 12, "dim": 8}


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

    def decode(self, queries, top_k):
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


TOYS = (Method(name="toy", planner=ToyPlanner, settings=ToySettings), EXAMPLE)


@pytest.mark.parametrize("name", [*map(often_or_nightly, METHODS), *(toy.name for toy in TOYS)])
class TestMethods(PlannerContract):
    overrides = NARROW

    def test_scores_do_not_depend_on_where_tensors_begin_in_a_file(self, planner, load, tmp_path):
        planner.save(tmp_path)
        with all_arrays_moved():
            loaded = load(tmp_path)
        pair = np.random.default_rng(0).standard_normal((2, 300, 12)).astype(np.float32)
        assert_same_plans(loaded.plan(Queries(*pair), 4), planner.plan(Queries(*pair), 4))

    def test_threads_share_a_planner(self, planner, tmp_path):
        """Each asks with tasks of its own."""
        before, after = tmp_path / "before", tmp_path / "after"
        before.mkdir()
        after.mkdir()
        planner.save(before)
        pair = np.random.default_rng(1).standard_normal((2, 3, 12)).astype(np.float32)
        asked = Queries(*pair)
        alone = asked.subset([0])
        requests = [(alone, 1), (alone.with_task(4), 5), (asked, 5), (asked.with_task(4), 1)]
        expected = [planner.plan(*request) for request in requests]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            with ThreadPoolExecutor(8) as pool:
                given = list(pool.map(lambda request: planner.plan(*request), requests * 2))
        finally:
            sys.setswitchinterval(interval)
        for ours, theirs in zip(given, expected * 2, strict=True):
            assert_same_plans(ours, theirs)
            assert [one.evaluated for one in ours] == [one.evaluated for one in theirs]
        planner.save(after)
        for path in before.iterdir():
            assert path.read_bytes() == (after / path.name).read_bytes()


def test_registering_is_all_it_takes(dataset, tmp_path):
    config = load_config("small", method="toy", overrides={"toy.width": 3})
    assert config.settings == ToySettings(toy=ToyConfig(width=3))
    with pytest.raises(ConfigError, match=r"'toy\.width'"):
        load_config("small", method="toy", overrides={"toy.width": "wide"})
    train_run(dataset, tmp_path / "run", config=config, horizon=3, seed=0)
    run = open_run(tmp_path / "run")
    queries = Queries.from_windows(cut_windows(dataset, horizon=3, split="test"))
    assert run.method == "toy"
    assert len(run.planner.plan(queries, 5)[0]) == 3
    assert len(answer(run, queries.subset([0]), top_k=2).plans) == 2


def test_plans_that_are_none_are_refused(dataset, tmp_path, monkeypatch):
    config = load_config("small", method="toy")
    run = train_run(dataset, tmp_path / "run", config=config, horizon=3, seed=0)
    query = Queries.from_windows(cut_windows(dataset, horizon=3, split="test")).subset([0])
    for rows in (
        np.zeros((1, 4), int),
        np.zeros(3, int),
        np.full((1, 3), 1000),
        np.array([[0, -2, 0]]),
    ):
        plans = Plans(rows, np.zeros(1), np.zeros(1), SearchCost(0, 0), exact=True)
        monkeypatch.setattr(ToyPlanner, "decode", lambda *_, plans=plans: [plans])
        with pytest.raises(RunError, match=r"^toy: plans of the shape \[.*PlannerContract"):
            answer(run, query)
