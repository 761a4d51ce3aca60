"""Questions to a run in Python: `run.plan(...)`, against the query and the answer below it."""

from pathlib import Path

import numpy as np
import pytest

import cefito
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.errors import ConfigError, DataError, RunError
from cefito.inference.answer import answer
from cefito.inference.constraints import NamedConstraints
from cefito.inference.query import query_from_video
from cefito.inference.question import Facts, Question
from cefito.search.constraints import declared

PLANS = "plans evaluated exact task task_id task_probability lengths"


@pytest.fixture(scope="module")
def run(run_of_lengths):
    return cefito.open_run(run_of_lengths.folder)


@pytest.fixture(scope="module")
def single(nearest_run):
    return cefito.open_run(nearest_run.folder)


def test_every_fact_has_a_type_for_editors():
    """A constraint may have one."""
    options = {how.option if name == "pinned" else name for name, (_, how) in declared().items()}
    typed, facts = Facts.__annotations__.keys(), Question.model_fields.keys()
    assert facts <= typed <= facts | options


def same(found, expected):
    for name in PLANS.split():
        assert getattr(found, name) == getattr(expected, name)


def test_observations_of_every_kind(single, video, tmp_path):
    query, _ = query_from_video(single, video.video_id, 2)
    expected = answer(single, query)
    assert len(expected.plans) == 5
    initial, goal = query.initial[0], query.goal[0]
    np.save(tmp_path / "before.npy", initial)
    np.save(tmp_path / "after.npy", goal[None])
    for start, end in (
        (initial, goal),
        (initial.tolist(), tuple(goal.tolist())),
        (str(tmp_path / "before.npy"), tmp_path / "after.npy"),
        ((video.video_id, 2), (video.video_id, 4)),
        (initial, (video.video_id, 4)),
    ):
        same(single.plan(start=start, goal=end), expected)


def test_every_part_of_a_question(run, world, video):
    task = world.taxonomy.tasks[video.task].name
    names = world.taxonomy.names([step.action for step in video.steps])
    others = sorted(set(world.taxonomy.names(world.taxonomy.tasks[video.task].actions)) - {*names})
    given = {"required": [names[3]], "forbidden": others[:1], "before": [(names[3], names[4])]}
    found = run.plan(
        start=(video.video_id, 2),
        task=task,
        done=names[:1],
        steps="2-4",
        top_k=3,
        pin={1: names[1]},
        no_repeats=True,
        min_probability=0,
        **given,
    )
    query, _ = query_from_video(run, video.video_id, 2, goal=False, done=True)
    constraints = NamedConstraints(pinned=((1, names[1]),), no_repeats=True, **given)
    expected = answer(
        run.with_steps(2, 4), query, task=task, top_k=3, constraints=constraints, min_probability=0
    )
    assert found == expected
    assert list(found.lengths) == [2, 3, 4]
    for plan in found.plans:
        assert plan.steps[0] == names[1]
        assert plan.steps == tuple(world.taxonomy.names(plan.actions))
        assert names[3] in plan.steps
        assert not {*plan.steps} & {*others[:1]}
    assert found.best == found.plans[0].steps
    assert len(run.plan(task=task).plans) == 5  # by the task alone
    assert {len(plan.actions) for plan in run.plan(start=(video.video_id, 1), steps=2).plans} == {2}


def test_all_constraints_can_be_given():
    for name, (_, how) in declared().items():
        for key in (name, how.option):
            constraints = Question.of({key: how.example}).constraints
            assert getattr(constraints, name) == how.example
    assert Question.of({"pin": {1: 17}}) == Question.of({"pinned": [(1, 17)]})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"goal": None}, ConfigError, "needs both observations"),
        ({"start": ("nobody", 1)}, ConfigError, "no video 'nobody'"),
        ({"start": ("VIDEO", 0)}, ConfigError, "step 0: expected 1 to"),
        ({"start": ("VIDEO", 99)}, ConfigError, "step 99: expected 1 to"),
        ({"start": ("VIDEO", "0")}, ConfigError, "step '0': expected 1 to"),
        ({"start": "nowhere.npy"}, DataError, "nowhere.npy"),
        ({"start": np.zeros((2, 8))}, DataError, r"start: has shape \[2, 8\]"),
        ({"goal": np.zeros(3)}, RunError, "goal: the observation has 3 features"),
        ({"goal": "after.png"}, ConfigError, "does not say what its features were made with"),
        ({"goal_text": "tea"}, ConfigError, "goal and goal_text are both given"),
        ({"goal": None, "goal_text": "tea"}, ConfigError, "a goal in words needs features of CLIP"),
        ({"steps": 2}, ConfigError, "plans 3 steps"),
        ({"steps": "x"}, ConfigError, "expected a number of steps"),
        ({"task": "Cook Poridge"}, ConfigError, "Cook Porridge"),
        ({"pin": {1: "nonsense"}}, ConfigError, "unknown action 'nonsense'"),
        ({"pin": {"1": "nonsense"}}, ConfigError, "constraints: setting 'pinned"),
        ({"forbidden": "add honey"}, ConfigError, "constraints: setting 'forbidden'"),
        ({"done": ["add honey"]}, ConfigError, "takes no steps done before"),
        ({"top_k": 0}, ConfigError, "'top_k': expected at least 1"),
        ({"dataset": "nowhere"}, DataError, "nowhere"),
    ],
)
def test_refusals(single, video, given, error, message):
    places = {"start": (video.video_id, 1), "goal": (video.video_id, 3)} | given
    if isinstance(places["start"], tuple):
        places["start"] = (places["start"][0].replace("VIDEO", video.video_id), places["start"][1])
    with pytest.raises(error, match=message):
        single.plan(**places)


def test_runs_of_the_public_face_answer(run, single, run_of_lengths, world, tmp_path):
    config = cefito.load_config("paper", method="frequent")
    several = cefito.train_runs(world, tmp_path / "runs", configs={2: config, 3: config}, seed=0)
    for one in (
        run_of_lengths,
        run,
        single,
        run.with_steps(1, 2),
        cefito.open_run(run.folder, horizon=2),
        several[3],
    ):
        assert type(one) is cefito.Run
    assert cefito.PlanningRun is cefito.Run  # an earlier name
    assert repr(run) == repr(run_of_lengths)
    assert "archive" in (cefito.open_run.__doc__ or "")


def test_places_in_another_data_set(single, tmp_path):
    knobs = WorldKnobs(train=2, val=2, test=4, dim=8)
    other = write_world(tmp_path / "other", knobs=knobs)
    one = next(one for one in other.videos if len(one.steps) >= 3)
    places = {"start": (one.video_id, 1), "goal": (one.video_id, 3)}
    found = single.plan(**places, dataset=Path(other.folder))
    assert found.dataset.fingerprint == other.fingerprint
    query, _ = query_from_video(single, one.video_id, 1, dataset=other.folder)
    same(found, answer(single, query))
