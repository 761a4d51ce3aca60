import json

import numpy as np
import pytest

from cefito.data.sources.custom import prepare_custom
from cefito.errors import ConfigError, DataError, RunError
from cefito.planners import Queries
from cefito.planners.answer import answer, query_from_files, query_from_video
from cefito.planners.run import train_run
from cefito.planners.settings import load_config
from cefito.search.constraints import Constraints
from cefito.search.settings import search_settings

TINY = {
    "field.width": 16,
    "field.depth": 1,
    "field.heads": 2,
    "field.action_dim": 8,
    "training.optimiser.epochs": 1,
    "training.negatives.count": 4,
    "training.stopping.windows": 10,
    "classifier.hidden": [8, 16, 8],
    "classifier_training.optimiser.epochs": 2,
    "classifier_training.optimiser.learning_rate": 0.02,
}


@pytest.fixture
def run(make_source, tiny_videos, tmp_path):
    """A run of horizon 3 on the tiny data set; video j is for validation."""
    tiny_videos[-1]["split"] = "val"
    dataset = prepare_custom(make_source(videos=tiny_videos), tmp_path / "data")
    return train_run(
        dataset, tmp_path / "run", config=load_config("paper", overrides=TINY), horizon=3, seed=0
    )


def test_the_query_of_a_video(run):
    dataset = run.dataset()
    query, truth = query_from_video(
        run, "e", 2
    )  # video e begins behind the 13 steps of a, b, c and d
    assert truth.tolist() == [4, 5, 2]
    np.testing.assert_array_equal(query.initial, dataset.start[15][None])
    np.testing.assert_array_equal(query.goal, dataset.end[17][None])
    assert query.initial.dtype == query.goal.dtype == np.float32
    assert query.tasks is None
    assert query_from_video(run, "a", 0)[1].tolist() == [0, 1, 2]
    assert query_from_video(run, "e", 3)[1].tolist() == [5, 2, 3]


@pytest.mark.parametrize(
    ("video", "start", "message"),
    [
        ("z", 0, "no video 'z' in .*data"),
        ("e", 4, r"has 6 steps; 3 steps from step 4 .* The last possible start is 3\."),
        ("e", -1, r"The last possible start is 3\."),
        ("a", 1, r"The last possible start is 0\."),
        ("d", 0, r"It is too short for a horizon of 3\."),
        ("g", 0, "has 0 steps.*too short"),
    ],
)
def test_queries_that_no_video_gives(run, video, start, message):
    with pytest.raises(ConfigError, match=message):
        query_from_video(run, video, start)


def test_the_query_of_a_data_set_that_has_moved(run, tmp_path):
    run.dataset().folder.rename(tmp_path / "moved")
    with pytest.raises(RunError, match="--dataset"):
        query_from_video(run, "e", 0)
    assert query_from_video(run, "e", 0, tmp_path / "moved")[1].tolist() == [3, 4, 4]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.dtype(">f4")])
@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_the_query_of_two_files(kind, shape, tmp_path):
    initial, goal = np.arange(4.0), np.arange(4.0) - 2
    np.save(tmp_path / "a.npy", initial.astype(kind).reshape(shape))
    np.save(tmp_path / "b.npy", goal.astype(kind))
    query = query_from_files(None, tmp_path / "a.npy", tmp_path / "b.npy")
    assert query.initial.tolist() == [initial.tolist()]
    assert query.goal.tolist() == [goal.tolist()]
    assert query.initial.dtype == query.goal.dtype == np.float32
    assert query.tasks is None


def test_not_exactly_two_files(tmp_path):
    path = tmp_path / "a.npy"
    for video, initial, goal in (
        (None, None, None),
        (None, path, None),
        (None, None, path),
        ("e", path, path),
        ("e", None, path),
    ):
        with pytest.raises(ConfigError, match=r"give --video .*, --initial and --goal, or"):
            query_from_files(video, initial, goal)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1.0, np.nan, 2, 3]), "NaN or infinity"),
        (np.array([1.0, np.inf, 2, 3]), "NaN or infinity"),
        (np.array([1.0, 1e300, 2, 3]), "NaN or infinity"),
        (np.arange(4), "floating-point"),
        (np.array(1.0), "shape"),
        (np.zeros((2, 4)), r"has shape \[2, 4\]; expected one observation"),
        (np.zeros((1, 1, 4)), "expected one obs"),
        (np.array([{}, 1], object), "pickled objects, which are never loaded"),
        (np.array(["a", "b"]), "floating-point"),
    ],
)
def test_files_that_hold_no_observation(array, message, tmp_path):
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    np.save(tmp_path / "good.npy", np.zeros(4))
    for first, second in (("bad", "good"), ("good", "bad")):
        with pytest.raises(DataError, match=rf"bad\.npy.*{message}"):
            query_from_files(None, tmp_path / f"{first}.npy", tmp_path / f"{second}.npy")


def test_files_of_different_sizes_and_missing_ones(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4))
    np.save(tmp_path / "b.npy", np.zeros(5))
    with pytest.raises(
        DataError, match=r"a\.npy has 4 features, .*b\.npy 5; expected equally many"
    ):
        query_from_files(None, tmp_path / "a.npy", tmp_path / "b.npy")
    with pytest.raises(DataError, match=r"c\.npy: no such file"):
        query_from_files(None, tmp_path / "a.npy", tmp_path / "c.npy")
    (tmp_path / "c.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-3])
    with pytest.raises(DataError, match=r"c\.npy: is truncated or not a NumPy file"):
        query_from_files(None, tmp_path / "c.npy", tmp_path / "a.npy")


def test_an_answer(run):
    query, truth = query_from_video(run, "e", 0)
    value = answer(run.planner, query, top_k=4, truth=truth)
    assert json.loads(json.dumps(value)) == value
    task = int(run.planner.predict_tasks(query)[0])
    assert value["task"] == {
        "id": task,
        "name": ["tea", "toast", "tyre"][task],
        "source": "predicted",
    }
    plans = run.planner.plan(query, 4)[0]
    assert [entry["actions"] for entry in value["plans"]] == plans.actions.tolist()
    assert (
        [entry["energy"] for entry in value["plans"]]
        == plans.energies.tolist()
        == sorted(plans.energies)
    )
    for entry in value["plans"]:
        assert set(entry) == {"actions", "names", "energy", "score", "task"}
        assert entry["task"] == task
        assert entry["score"] == entry["energy"]
        assert entry["names"] == run.planner.taxonomy.names(entry["actions"])
    assert value["truth"] == {"actions": [3, 4, 4], "names": ["cut", "heat", "heat"]}
    assert value["exact"] is True
    assert value["evaluated"] == {
        "token_forwards": plans.evaluated.token_forwards,
        "leaves": plans.evaluated.leaves,
    }
    assert value["search"] == {"method": "exhaustive", "tasks": 1, "interrupted": False}
    assert value["weights"] == {"energy": 1, "prior": 0, "proposal": 0, "task": 0}


@pytest.mark.parametrize("task", [0, 1, 2])
def test_an_answer_for_a_given_task(run, task):
    query, _ = query_from_video(run, "e", 0)
    value = answer(run.planner, query, task=task)
    assert value["task"] == {"id": task, "name": ["tea", "toast", "tyre"][task], "source": "given"}
    assert len(value["plans"]) == 5
    for entry in value["plans"]:
        assert set(entry["actions"]) <= set(run.planner.space.actions[task])
    assert "truth" not in value


def test_more_plans_than_there_are_sequences(run):
    query, _ = query_from_video(run, "e", 0)
    value = answer(run.planner, query, task=2, top_k=100)
    assert len(value["plans"]) == value["evaluated"]["leaves"] == 2**3
    assert sorted(entry["actions"] for entry in value["plans"]) == [
        [a, b, c] for a in (6, 7) for b in (6, 7) for c in (6, 7)
    ]


def test_what_cannot_be_answered(run):
    query, _ = query_from_video(run, "e", 0)
    for task in (-1, 3):
        with pytest.raises(ConfigError, match=f"unknown task {task}; the run knows 0 to 2"):
            answer(run.planner, query, task=task)
    with pytest.raises(ConfigError, match="top_k is 0"):
        answer(run.planner, query, top_k=0)
    wrong = Queries(initial=np.zeros((1, 5), np.float32), goal=np.zeros((1, 5), np.float32))
    for task in (None, 1):
        with pytest.raises(
            RunError, match="observations have 5 features; this run was trained on 4"
        ):
            answer(run.planner, wrong, task=task)


def use(run, **changes):
    run.planner.use(search_settings(run.planner.config.search, **changes))


def test_an_answer_among_several_tasks(run):
    use(run, tasks=3, objective="fitted")
    query, _ = query_from_video(run, "e", 0)
    value = answer(run.planner, query, top_k=1000)
    assert value["search"]["tasks"] == 3
    assert {entry["task"] for entry in value["plans"]} == {0, 1, 2}
    best = value["plans"][0]["task"]
    assert value["task"] == {
        "id": best,
        "name": ["tea", "toast", "tyre"][best],
        "source": "predicted",
    }
    for entry in value["plans"]:
        assert set(entry["actions"]) <= set(run.planner.space.actions[entry["task"]])
    assert [entry["score"] for entry in value["plans"]] == sorted(
        entry["score"] for entry in value["plans"]
    )
    assert value["weights"] == vars(run.planner.weights)
    assert json.loads(json.dumps(value)) == value
    alone = answer(run.planner, query, task=1)
    assert (alone["task"]["source"], alone["search"]["tasks"]) == ("given", 1)


def test_tasks_that_cannot_satisfy_the_constraints_are_left_out(run):
    use(run, tasks=3)
    query, _ = query_from_video(run, "e", 0)
    value = answer(
        run.planner, query, constraints=Constraints(required=(2,))
    )  # wait, of tea and toast
    assert value["search"]["tasks"] == 2
    value = answer(
        run.planner, query, constraints=Constraints(pinned=((3, 7),))
    )  # jack down, of tyre alone
    assert (value["search"]["tasks"], value["task"]["id"]) == (1, 2)
    assert all(entry["actions"][2] == 7 for entry in value["plans"])
    with pytest.raises(
        ConfigError,
        match=r"^task \d \('\w+'\): action \d is .* The next 2 likely tasks cannot satisfy it either\.$",
    ):
        answer(run.planner, query, constraints=Constraints(pinned=((3, 7), (1, 0))))
    with pytest.raises(
        ConfigError,
        match=r"^task 1 \('toast'\): action 7 is pinned but is not an action of this task; choose",
    ):
        answer(run.planner, query, task=1, constraints=Constraints(pinned=((3, 7),)))


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(pinned=((1, 8),)),
        Constraints(required=(0, 8)),
        Constraints(forbidden=(8,)),
        Constraints(before=((0, 8),)),
        Constraints(before=((8, 0),)),
    ],
)
def test_actions_that_no_task_has(run, constraints):
    query, _ = query_from_video(run, "e", 0)
    with pytest.raises(ConfigError, match="unknown action 8; the run knows 0 to 7"):
        answer(run.planner, query, constraints=constraints)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tasks": 3},
        {"method": "guided"},
        {"method": "beam"},
        {"method": "naive"},
        {"method": "auto", "budget_gflop": 0},
    ],
)
def test_an_answer_that_is_stopped_at_once(run, changes):
    use(run, **changes)
    query, _ = query_from_video(run, "e", 0)
    value = answer(run.planner, query, stop=lambda: True)
    assert value["search"]["interrupted"] is True
    assert len(value["plans"]) <= 5
    assert value["task"]["id"] in (0, 1, 2)
    assert answer(run.planner, query, stop=lambda: False)["search"]["interrupted"] is False
