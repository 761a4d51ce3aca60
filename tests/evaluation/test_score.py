import json
import logging
import shutil
from dataclasses import replace

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein

from cefito.data.readers.custom import prepare_custom
from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.evaluation import evaluate_planner, metrics, read_plans, training_orders
from cefito.evaluation.records import Evaluation, RunEvaluation
from cefito.evaluation.runs import changed_search, evaluate_run
from cefito.evaluation.statistics import calibration
from cefito.files import value_sealed
from cefito.planners.base_planner import BasePlanner
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.search.problem import Plans, SearchCost
from cefito.search.settings import search_settings
from tiny_runs import TINY_RUN, small_run

CONFIG = load_config("paper", overrides=TINY_RUN)


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return train_run(world, folder, config=CONFIG, horizon=3, seed=4)


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the finished run, to be written into."""
    return open_run(shutil.copytree(trained.folder, tmp_path / "run"))


def files(run):
    return sorted(path.name for path in run.folder.glob("evaluation*.json"))


class Says(BasePlanner):
    """A planner whose plans and tasks are given; the effort of each window is its number."""

    name, horizon = "says", 3

    def __init__(self, plans, tasks=None, exact=True):
        self.plans, self.tasks, self.exact = plans, tasks, exact
        self.asked, self.queries, self.predicted = [], None, 0

    def predict_tasks(self, queries):
        self.predicted += len(queries)
        if queries.tasks is not None or self.tasks is None:
            return queries.tasks
        same = (self.queries.initial == queries.initial[:, None]).all(2)
        return self.tasks[same.argmax(1)]

    def plan(self, queries, top_k, **_):
        self.queries = queries
        self.asked.append((queries.tasks is not None, top_k))
        return [
            Plans(
                actions=plan[:top_k],
                energies=np.arange(len(plan[:top_k]), dtype=float),
                scores=np.arange(len(plan[:top_k]), dtype=float),
                evaluated=SearchCost(token_forwards=10 * row, leaves=row),
                exact=self.exact or row > 0,
            )
            for row, plan in enumerate(self.plans)
        ]


def test_scores_of_given_plans(world):
    windows = cut_windows(world, horizon=3, split="test").subset(range(4))
    truth = windows.actions
    wrong = truth[:, ::-1] + 1
    plans = [truth[:1], np.stack([wrong[1], truth[1]]), np.empty((0, 3), np.int64), wrong[3:4]]
    tasks = windows.tasks.copy()
    tasks[2] += 1
    planner = Says(plans, tasks)
    evaluation, given = evaluate_planner(planner, windows, sampled_from=50)
    assert [plan.actions.tolist() for plan in given] == [plan.tolist() for plan in plans]
    assert planner.asked == [(False, 5)]
    assert (evaluation.planner, evaluation.split, evaluation.horizon) == ("says", "test", 3)
    assert (evaluation.windows, evaluation.sampled_from, evaluation.without_plan) == (4, 50, 1)
    assert (evaluation.exact, evaluation.oracle_task) == (True, False)
    assert (evaluation.token_forwards_per_query, evaluation.leaves_per_query) == (15, 1.5)
    assert evaluation.seconds_per_query > 0
    best, found = np.stack([truth[0], wrong[1], [-1] * 3, wrong[3]]), evaluation.metrics
    assert (found["top_5_success_rate"], found["task_accuracy"]) == (50, 75)
    for name in ("success_rate", "mean_accuracy", "mean_iou", "position_accuracy"):
        assert found[name] == pytest.approx(metrics.metric_value(name, best, truth)), name
    assert json.loads(json.dumps(evaluation.to_dict())) == evaluation.to_dict()
    assert evaluation.to_dict()["metrics"] == found


def test_the_task_of_the_best_plan_counts_where_plans_name_theirs(world):
    windows = cut_windows(world, horizon=3, split="test").subset(range(4))
    plans = [row[None] for row in windows.actions]
    named = [windows.tasks[0], windows.tasks[1] + 1, windows.tasks[2]]

    class Names(Says):
        """Names the tasks of its first three plans."""

        def plan(self, queries, top_k, **_):
            plans = super().plan(queries, top_k)
            known = zip(plans[:3], named, strict=True)
            return [replace(plan, tasks=np.array([task])) for plan, task in known] + plans[3:]

    def accuracy(planner, windows=windows):
        return evaluate_planner(planner, windows)[0].percent("task_accuracy")

    planner = Names(plans, windows.tasks + 1)
    assert accuracy(planner) == 50
    assert planner.predicted == 1  # asked only for the plan that names no task
    assert accuracy(Names(plans, windows.tasks)) == 75
    assert accuracy(Names(plans)) is None  # the last one's is not known
    planner = Names(plans[:3])
    assert accuracy(planner, windows.subset(range(3))) == pytest.approx(200 / 3)
    assert planner.predicted == 0


def test_scores_of_windows_with_and_without_errors_add_up(world):
    windows = cut_windows(world, horizon=3, split="test").subset(range(6))
    wrong = np.array([False, True, True, False, True, False])
    plans = [windows.actions[[row if row % 3 else 0]] for row in range(6)]
    found, _ = evaluate_planner(Says(plans), replace(windows, wrong=wrong))
    parts = [found.clean, found.wrong]
    assert [part.windows for part in parts] == [3, 3]
    assert parts[0].metrics != parts[1].metrics
    for name in ("success_rate", "mean_accuracy", "position_accuracy"):
        both = np.mean([part.metrics[name] for part in parts], axis=0)
        assert both == pytest.approx(np.array(found.metrics[name])), name
    found, _ = evaluate_planner(Says(plans), replace(windows, wrong=np.ones(6, bool)))
    assert not {"clean", "wrong"} & set(found.to_dict())


def test_another_search_is_kept_in_a_file_of_its_own(run):
    as_trained, _ = evaluate_run(run)
    assert changed_search(run) == {}
    changes = {"method": "guided", "tasks": 2, "objective": "fitted"}
    other = run.with_search(**changes)
    value, path = evaluate_run(other, sample=6)
    assert path is not None
    name = "evaluation-test-sample-6-search-guided-objective-fitted-tasks-2.json"
    assert path.name == name
    assert changed_search(other) == changes
    assert value.search.model_dump() == {**as_trained.search.model_dump(), **changes}
    assert value.weights == other.planner.describe().weights
    assert RunEvaluation.read(path) == value
    assert files(run) == [path.name, "evaluation-test.json"]
    assert evaluate_run(run)[1].name == "evaluation-test.json"
    short = search_settings(run.trained_search, method="auto", budget_gflop=2.0)
    _, path = evaluate_run(run.with_search(short), sample=6)
    assert path.name == "evaluation-test-sample-6-search-auto-budget-2.json"


def test_damaged_evaluations(run):
    _, path = evaluate_run(run)
    assert path is not None
    value = json.loads(path.read_text()) | {"windows": "many"}
    path.write_text(json.dumps(value))
    with pytest.raises(RunError, match=r"evaluation-test\.json: has changed"):
        RunEvaluation.read(path)
    path.write_text(json.dumps(value_sealed(value)))
    with pytest.raises(RunError, match=r"evaluation-test\.json: not a.* \(windows: .*evaluate"):
        RunEvaluation.read(path)


@pytest.mark.parametrize("split", ["val", "test"])
def test_scores_of_a_run_are_kept_in_its_folder(run, world, split):
    value, path = evaluate_run(run, split=split)
    assert path is not None
    assert path == run.folder / f"evaluation-{split}.json"
    assert RunEvaluation.read(path) == value
    windows = cut_windows(world, horizon=3, split=split)
    assert (value.planner, value.split, value.horizon) == ("CEFITO", split, 3)
    assert value.windows == value.sampled_from == len(windows)
    assert (value.seed, value.preset, value.actions_from) == (4, "paper", "training")
    assert value.tasks_without_training.to_dict() == {"tasks": [], "windows": 0}
    orders = training_orders(world)
    expected, _ = evaluate_planner(run.planner, windows, orders=orders)
    assert value.metrics == expected.metrics
    assert value.intervals is not None
    for metrics_of in (value.intervals.low, *(part.metrics for part in value.per_task)):
        assert set(metrics_of) == set(expected.metrics)
    assert value.metrics["success_rate"] <= value.metrics["top_5_success_rate"] <= 100


def test_runs_of_several_lengths(run_of_lengths, world, tmp_path):
    run = open_run(shutil.copytree(run_of_lengths.folder, tmp_path / "run"))
    value, _ = evaluate_run(run, plans_file=tmp_path / "plans.jsonl")
    windows = cut_windows(world, horizon=4, shortest=1, split="test")
    assert (value.horizon, value.shortest, value.steps) == (4, 1, "1-4")
    rows = read_plans(tmp_path / "plans.jsonl")
    assert [len(row.true_actions) for row in rows] == windows.lengths.tolist()
    right = [len(row.plans[0].actions) == len(row.true_actions) for row in rows]
    assert value.metrics["length_accuracy"] == pytest.approx(100 * np.mean(right))
    shares = [
        Levenshtein.normalized_similarity(row.plans[0].actions, row.true_actions) for row in rows
    ]
    assert value.metrics["edit_similarity"] == pytest.approx(100 * np.mean(shares))
    assert np.shape(value.intervals.low["position_accuracy"]) == (4,)
    assert len(value.position_accuracy) == 4
    three, _ = evaluate_run(run.with_steps(3, 3), sample=20)
    assert three.steps == "3"
    assert "length_accuracy" not in three.metrics
    timed, path = evaluate_run(run, with_elapsed=True, sample=20)
    assert path.name == "evaluation-test-with-elapsed-sample-20.json"
    assert timed.conditions == "predicted task, time between observations"
    assert timed.calibration != evaluate_run(run, sample=20)[0].calibration
    with pytest.raises(DataError, match="of which one is unknown"):
        evaluate_run(run, without_goal=True, with_elapsed=True)


def test_oracle_and_sample(run, world):
    windows = cut_windows(world, horizon=3, split="test")
    value, path = evaluate_run(run, sample=7)
    assert path.name == "evaluation-test-sample-7.json"
    assert (value.windows, value.sampled_from) == (7, len(windows))
    assert evaluate_run(run, sample=7)[0].metrics == value.metrics
    value, path = evaluate_run(run, sample=7, oracle_task=True)
    assert path.name == "evaluation-test-oracle-task-sample-7.json"
    assert value.metrics["task_accuracy"] == 100
    value, path = evaluate_run(run, sample=100_000)
    assert path.name == "evaluation-test.json"
    assert value.windows == value.sampled_from == len(windows)
    for given, message in (
        ({"sample": 0}, "sample of 0 windows; expected at least 1"),
        ({"with_elapsed": True}, r"did not learn from the time .*on videos whose steps"),
        ({"oracle_task": True, "stored_task": True}, "either the true task or the stored one"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate_run(run, **given)


def test_splits_without_windows(make_source, tiny_videos, tmp_path):
    tiny_videos[-1]["split"] = "val"
    videos = [video for video in tiny_videos if video["split"] != "test"]
    dataset = prepare_custom(make_source(videos=videos), tmp_path / "data")
    run = small_run(dataset, tmp_path / "run")
    with pytest.raises(DataError, match=r"split 'test' gives no windows"):
        evaluate_run(run)
    with pytest.raises(DataError, match=r"split 'dev': .* train, val, test"):
        evaluate_run(run, split="dev")
    assert files(run) == []


def test_tasks_without_training_windows_are_counted(make_source, tiny_videos, tmp_path, caplog):
    tiny_videos[-1]["split"], tiny_videos[2]["split"] = "val", "test"  # the only tyre with steps
    tiny_videos.insert(0, tiny_videos.pop(2))
    dataset = prepare_custom(make_source(videos=tiny_videos), tmp_path / "data")
    with caplog.at_level(logging.WARNING, logger="cefito"):
        run = train_run(dataset, tmp_path / "run", config=CONFIG, horizon=3, seed=0)
    assert "1 task without training windows" in caplog.text
    assert "2 ('tyre')" in caplog.text
    assert run.info.tasks_without_training == (2,)
    value, _ = evaluate_run(run)
    assert value.tasks_without_training.to_dict() == {"tasks": [2], "windows": 2}
    assert value.windows == 2 + 4 + 2
    assert evaluate_run(run, split="val")[0].tasks_without_training.windows == 0
    assert evaluate_run(run, oracle_task=True)[0].without_plan == 0


def test_scores_in_the_shared_vocabulary_count_equal_actions_of_other_tasks_as_right(world):
    windows = cut_windows(world, horizon=3, split="test").subset([0, 1])
    count = len(windows.taxonomy.actions)
    mapped = [0, 0, *range(2, count)]  # actions 0 and 1 are the same there
    shared = [{"id": action, "name": f"a{action}"} for action in range(count)]
    entries = {f"map_{count}_to_{count}": mapped, f"actions_{count}": shared}
    taxonomy = Taxonomy.from_dict(windows.taxonomy.to_dict() | entries)
    windows = replace(windows, taxonomy=taxonomy, actions=np.array([[1, 2, 3], [4, 5, 6]]))
    planner = Says([np.array([[0, 2, 3]]), np.zeros((0, 3), dtype=np.int64)])
    evaluation, _ = evaluate_planner(planner, windows)
    assert evaluation.metrics["success_rate"] == 0
    assert evaluation.shared_metrics["success_rate"] == 50
    assert evaluation.shared_metrics["mean_accuracy"] == 50
    evaluation, _ = evaluate_planner(planner, replace(windows, taxonomy=world.taxonomy))
    assert evaluation.shared_metrics is None
    windows = replace(windows, actions=np.array([[1, 2, -1], [4, 5, 6]]))
    planner = Says([np.array([[0, 2, -1]]), np.array([[5, -1, -1]])])
    shared = evaluate_planner(planner, windows)[0].shared_metrics
    assert (shared["success_rate"], shared["length_accuracy"]) == (50, 50)
    assert shared["mean_accuracy"] == 100 * 2 / 5
    assert shared["mean_iou"] == pytest.approx(100 * (1 + 1 / 3) / 2)


def test_orders_are_of_the_true_task(world):
    windows = cut_windows(world, horizon=3, split="test").subset([0, 1])
    windows = replace(windows, actions=np.array([[1, 2, 3]] * 2), tasks=np.array([0, 1]))
    planner = Says([np.array([[2, 1, 3]])] * 2, tasks=np.array([1, 1]))
    evaluation, _ = evaluate_planner(planner, windows, orders={0: {(1, 2)}, 1: {(1, 3)}})
    assert evaluation.metrics["success_rate"] == 0
    assert evaluation.metrics["order_tolerant_success"] == 50
    assert "order_tolerant_success" not in evaluate_planner(planner, windows)[0].metrics


def test_probabilities_are_calibrated_against_success(world):
    windows = cut_windows(world, horizon=3, split="test").subset(range(4))
    wrong = windows.actions[:, ::-1] + 1
    plans = [windows.actions[:1], wrong[1:2], np.empty((0, 3), np.int64), windows.actions[3:4]]

    class Unsure(Says):
        def plan(self, queries, top_k, **_):
            plans, masses = super().plan(queries, top_k), (1.0, 0.5, 0.5, 1.0)
            return [
                replace(plan, probabilities=np.full(len(plan), 0.2 * row), searched_mass=mass)
                for row, (plan, mass) in enumerate(zip(plans, masses, strict=True), 1)
            ]

    found = evaluate_planner(Unsure(plans), windows)[0]
    expected = calibration([0.2, 0.4, 0, 0.8], [1, 0, 0, 1], mass=0.75)
    assert found.calibration == expected
    assert found.percent("expected_calibration_error") == expected.expected_calibration_error
    assert found.percent("success_at_half_coverage") == 50
    assert Evaluation.model_validate(json.loads(json.dumps(found.to_dict()))) == found
    without = evaluate_planner(Says(plans), windows)[0]
    assert without.calibration is None
    assert "calibration" not in without.to_dict()
    assert without.percent("expected_calibration_error") is None
