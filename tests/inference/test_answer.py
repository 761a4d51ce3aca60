import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cefito.data.readers.custom import prepare_custom
from cefito.errors import ConfigError, RunError
from cefito.inference.answer import Answer, answer
from cefito.inference.query import query_from_video
from cefito.planners.base import Marginals
from cefito.planners.base_planner import BasePlanner
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from tiny_runs import TINY_RUN


@pytest.fixture(scope="module")
def trained():
    """The run of this module, once it is trained."""
    return []


@pytest.fixture
def run(trained, make_source, tiny_videos, tmp_path_factory):
    """A run of horizon 3 on the tiny data set, not to be changed; video j is for validation."""
    if not trained:
        tiny_videos[-1]["split"] = "val"
        folder, config = tmp_path_factory.mktemp("run"), load_config("paper", overrides=TINY_RUN)
        dataset = prepare_custom(make_source(videos=tiny_videos), folder / "data")
        trained.append(train_run(dataset, folder / "run", config=config, horizon=3, seed=0))
    return trained[0]


def query_of(run):
    """The query of a window of the test split, and its annotated actions."""
    return query_from_video(run, "e", 1)


def test_an_answer(run):
    query, truth = query_of(run)
    found = answer(run, query, top_k=4, truth=truth)
    task = int(run.planner.predict_tasks(query)[0])
    name = ["tea", "toast", "tyre"][task]
    assert (found.task, found.task_id, found.task_source) == (name, task, "predicted")
    assert 1 / 3 <= found.task_probability <= 1
    plans = run.planner.plan(query, 4)[0]
    assert [plan.actions for plan in found.plans] == plans.actions.tolist()
    assert [plan.energy for plan in found.plans] == plans.energies.tolist()
    for plan in found.plans:
        assert (plan.task, plan.task_id) == (name, task)
        assert plan.score == plan.energy
        assert plan.names == run.taxonomy.names(plan.actions)
    assert found.truth.model_dump() == {"actions": [3, 4, 4], "names": ["cut", "heat", "heat"]}
    assert found.exact is True
    assert found.evaluated == plans.evaluated
    assert found.search.model_dump() == {"method": "exhaustive", "tasks": 1, "interrupted": False}
    assert found.weights == {"energy": 1, "chain": 0}
    value = found.to_dict()
    assert {"lengths", "known", "sets", "dataset", "reply"}.isdisjoint(value)
    assert Answer.model_validate(json.loads(json.dumps(value))) == found


def test_invalid_requests(run):
    query, _ = query_of(run)
    requests: list[tuple[dict[str, Any], str]] = [
        ({"task": -1}, "unknown task -1; there are 0 to 2"),
        ({"task": 3}, "unknown task 3"),
        ({"top_k": 0}, "'top_k': expected at least 1"),
    ]
    for given, message in requests:
        with pytest.raises(ConfigError, match=message) as caught:
            answer(run, query, **given)
        assert [caught.value.setting] == [*given]
    wrong = Queries(initial=np.zeros((1, 5), np.float32), goal=np.zeros((1, 5), np.float32))
    for task in (None, 1):
        with pytest.raises(RunError, match="observations have 5 features"):
            answer(run, wrong, task=task)


def test_the_callers_torch_matters_to_no_run(run, tmp_path):
    config, query = load_config("paper", overrides=TINY_RUN), query_of(run)[0]
    before = torch.get_rng_state()
    train_run(run.dataset(), tmp_path / "run", config=config, horizon=3, seed=0)
    again = open_run(tmp_path / "run", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    (expected,) = again.planner.plan(query, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (found,) = again.planner.plan(query, 5)
    np.testing.assert_array_equal(found.energies, expected.energies)
    np.testing.assert_array_equal(found.actions, expected.actions)


def test_tasks_that_cannot_satisfy_the_constraints_are_left_out(run):
    several = run.with_search(tasks=3)
    query, _ = query_of(run)
    wait, jack_down = 2, 7  # of tea and toast; of tyre alone
    found = answer(several, query, constraints=Constraints(required=(wait,)))
    assert found.search.tasks == 2
    found = answer(several, query, constraints=Constraints(pinned=((3, jack_down),)))
    assert (found.search.tasks, found.task_id) == (1, 2)
    assert all(plan.actions[2] == jack_down for plan in found.plans)
    with pytest.raises(ConfigError, match=r"task \d+ \('.*'\): "):
        answer(several, query, constraints=Constraints(pinned=((3, jack_down), (1, 0))))
    message = r"^task 1 \('toast'\): action 7 \('jack down'\) is .* choose among 2 \('wait'\), 3"
    with pytest.raises(ConfigError, match=message):
        answer(several, query, task=1, constraints=Constraints(pinned=((3, jack_down),)))


@pytest.mark.parametrize("changes", [{}, {"tasks": 3}, {"method": "guided"}])
def test_an_answer_that_is_stopped_at_once(run, changes):
    changed, (query, _) = run.with_search(**changes), query_of(run)
    found = answer(changed, query, stop=lambda: True)
    assert (found.search.interrupted, found.exact) == (True, False)
    assert len(found.plans) <= 5
    assert found.task_id in (0, 1, 2)
    assert answer(changed, query, stop=lambda: False).search.interrupted is False


def test_a_deadline_after_an_exact_search_interrupts_nothing(run, monkeypatch):
    plan, over = type(run.planner).plan, list[bool]()

    def slow(*args, **options):
        found = plan(*args, **options)
        over.append(True)
        return found

    monkeypatch.setattr(type(run.planner), "plan", slow)
    found = answer(run, query_of(run)[0], stop=lambda: bool(over))
    assert (found.search.interrupted, found.exact, over) == (False, True, [True])


def test_an_answer_warns_of_what_the_observations_contradict(run, monkeypatch):
    query, _ = query_of(run)
    asked = []

    def marginals(planner, queries):
        asked.append(len(queries))
        return Marginals(tasks=np.array([[0.98, 0.015, 0.005]]))

    monkeypatch.setattr(type(run.planner), "marginals", marginals)
    assert answer(run, query).warnings == []
    assert asked == []
    assert answer(run, query, task=0).warnings == []
    assert answer(run, query, task="toast").warnings == [
        "the observations point to the task 'tea' (98.0 %); given is 'toast' (1.5 %)"
    ]
    jack_down = Constraints(pinned=((3, 7),))
    assert answer(run.with_search(tasks=3), query, constraints=jack_down).warnings == [
        "the observations point to the task 'tea' (98.0 %); with these constraints the best plan "
        "is of 'tyre' (0.5 %)"
    ]
    assert answer(run, query, task=2, stop=lambda: True).warnings in ([], [TYRE])
    assert asked[:3] == [1, 1, 1]


TYRE = "the observations point to the task 'tea' (98.0 %); given is 'tyre' (0.5 %)"


@pytest.fixture
def baseline(run, tmp_path):
    """Makes a run of another method on the same data set."""

    def make(method):
        config = load_config("paper", method=method, overrides=TINY_RUN, shared=True)
        return train_run(run.dataset(), tmp_path / method, config=config, horizon=3, seed=0)

    return make


@pytest.mark.parametrize("method", ["nearest", "frequent"])
def test_an_answer_of_another_method(baseline, run, method):
    other, (query, truth) = baseline(method), query_of(run)
    found = answer(other, query, top_k=2, truth=truth)
    (plans,) = other.planner.plan(query, 2)
    assert [plan.actions for plan in found.plans] == plans.actions.tolist()
    task = int(other.planner.predict_tasks(query)[0])
    assert (found.task_id, found.task) == (task, ["tea", "toast", "tyre"][task])
    assert (found.search.method, found.search.interrupted, found.weights) == (None, False, None)
    likely = method == "frequent"
    assert (found.plans[0].probability is not None) == (found.searched_mass is not None) == likely
    assert (found.task_probability is not None) == likely
    given = answer(other, query, task=2)
    assert (given.task, given.task_source, given.task_probability) == ("tyre", "given", None)
    assert all(set(plan.actions) <= {6, 7} for plan in given.plans)
    with pytest.raises(ConfigError, match=r"cannot obey constraints"):
        answer(other, query, constraints=Constraints(forbidden=(0,)))
    with pytest.raises(ConfigError, match=r"has no search to choose"):
        other.with_search(run.trained_search)


def test_an_answer_that_is_to_be_sure(run, baseline):
    several, (query, _) = run.with_search(tasks=3, objective="fitted"), query_of(run)
    found = answer(several, query)
    assert found.sure is None
    shares = [plan.probability or 0.0 for plan in found.plans]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= found.searched_mass + 1e-9 <= 1 + 1e-9
    best = shares[0]
    for least, sure in ((0, True), (best, True), (min(1, best * 1.01), False), (1, False)):
        again = answer(several, query, min_probability=least)
        assert again.sure is sure
        assert again.plans == found.plans
    assert answer(several, query, min_probability=0, stop=lambda: True).sure is not None
    for least in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="min_probability") as caught:
            answer(several, query, min_probability=least)
        assert caught.value.setting == "min_probability"
    for other, message in (
        (run, "no probabilities here"),
        (baseline("nearest"), "window gives plans no prob"),
    ):
        with pytest.raises(ConfigError, match=message):
            answer(other, query, min_probability=0.5)


class Taskless(BasePlanner):
    """A planner without any notion of tasks."""

    name, horizon, observation_dim = "taskless", 3, 4

    def predict_tasks(self, _):
        return None

    def plan(self, queries, top_k, **_):  # noqa: ARG002
        energies = np.arange(float(top_k))
        actions = np.arange(3 * top_k).reshape(top_k, 3)
        return [Plans(actions, energies, energies, SearchCost(0, 0), exact=False)]


def test_an_answer_without_tasks(run):
    found = answer(replace(run, planner=Taskless()), query_of(run)[0], top_k=2)
    assert {found.task, found.task_id, found.task_source, found.task_probability} == {None}
    assert [plan.task for plan in found.plans] == [None, None]
    assert [plan.names[0] for plan in found.plans] == ["boil", "cut"]
