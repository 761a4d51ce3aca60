"""Queries without a goal, without observations, and after steps done; numbers of steps."""

from collections import Counter

import numpy as np
import pytest

from cefito.errors import ConfigError, DataError
from cefito.inference.answer import answer
from cefito.inference.query import query_from_files, query_from_video
from cefito.inference.question import planning, steps_range
from cefito.inference.session import Session
from cefito.planners.queries import Queries
from cefito.runs.run import run_for_steps
from tiny_runs import next_actions


@pytest.mark.parametrize(
    ("given", "expected"), [(3, (3, 3)), ("3", (3, 3)), (" 2-4 ", (2, 4)), ("1-1", (1, 1))]
)
def test_numbers_of_steps(given, expected):
    assert steps_range(given) == expected


@pytest.mark.parametrize("given", [0, -1, "", "4-2", "a", "3,4", "1-2-3", True, "10000"])
def test_refused_numbers_of_steps(given):
    with pytest.raises(ConfigError, match="a number of steps, or a range") as caught:
        steps_range(given)
    assert caught.value.setting == "steps"


def test_runs_of_some_steps(run_of_lengths, nearest_run):
    assert planning(run_of_lengths, None) is run_of_lengths
    assert planning(run_of_lengths, "2-3").steps == "2-3"
    assert run_for_steps(run_of_lengths.folder, steps=2).steps == "2"
    assert run_for_steps(run_of_lengths.folder, horizon=2, steps=2).steps == "2"
    with pytest.raises(ConfigError, match=r"steps 5: .* 1 to 4 steps"):
        planning(run_of_lengths, 5)
    assert planning(nearest_run, 3) is nearest_run
    with pytest.raises(ConfigError, match=r"plans 3 steps\. .*several lengths"):
        planning(nearest_run, "2-3")


def test_one_number_chooses_among_runs_of_several_horizons(nearest_run, tmp_path):
    (tmp_path / "T3").symlink_to(nearest_run.folder)
    (tmp_path / "T4").symlink_to(nearest_run.folder)
    assert run_for_steps(tmp_path, steps=3).horizon == 3


@pytest.mark.parametrize("goal", [True, False])
@pytest.mark.parametrize("done", [True, False])
def test_the_window_of_a_video(run_of_lengths, world, video, goal, done):
    actions = [step.action for step in video.steps]
    row = int(world.first_row[world.videos.index(video)])
    for run, first, length in (
        (run_of_lengths, 1, 4),
        (run_of_lengths, len(actions) - 2, 2),
        (planning(run_of_lengths, 1), 2, 1),
    ):
        query, truth = query_from_video(run, video.video_id, first + 1, goal=goal, done=done)
        assert truth.tolist() == actions[first : first + length]
        np.testing.assert_array_equal(query.initial[0], world.start[row + first])
        assert query.known.tolist() == [[True, goal]]
        if goal:
            np.testing.assert_array_equal(query.goal[0], world.end[row + first + length - 1])
        assert (None if query.done is None else query.done.tolist()) == (
            [actions[:first]] if done else None
        )
    with pytest.raises(ConfigError, match=r"2 from step \d+ "):
        query_from_video(planning(run_of_lengths, "2-4"), video.video_id, len(actions))


def test_answers_of_several_lengths(run_of_lengths, video):
    query, truth = query_from_video(run_of_lengths, video.video_id, 3, goal=False)
    task = run_of_lengths.taxonomy.tasks[video.task]
    before = run_of_lengths.taxonomy.names([step.action for step in video.steps[:2]])
    found = answer(run_of_lengths, query, task=task.name, done=before, top_k=30, truth=truth)
    assert len(found.plans) == 30
    assert {len(plan.actions) for plan in found.plans} > {1}
    for plan in found.plans:
        assert 1 <= len(plan.actions) <= 4
        assert min(plan.actions) >= 0
        assert plan.names == run_of_lengths.taxonomy.names(plan.actions)
    assert [*found.lengths.keys()] == [1, 2, 3, 4]
    assert sum(found.lengths.values()) == pytest.approx(1)
    said = found.to_dict()
    assert said["known"] == {
        "initial": True,
        "goal": False,
        "done": [step.action for step in video.steps[:2]],
        "names": before,
        "elapsed": None,
    }
    assert list(said["lengths"]) == ["1", "2", "3", "4"]
    assert said["truth"]["actions"] == truth.tolist()


def test_neither_observation(run_of_lengths):
    size, taxonomy = run_of_lengths.planner.observation_dim, run_of_lengths.taxonomy
    nothing, task = Queries.partial(size=size), taxonomy.tasks[1]
    found = answer(run_of_lengths, nothing, task=task.name)
    assert {action for plan in found.plans for action in plan.actions} <= set(task.actions)
    assert found.known.initial is found.known.goal is False
    after = answer(run_of_lengths, nothing, done=[task.actions[0]])
    assert after.plans
    with pytest.raises(ConfigError, match="nothing is known of the query"):
        answer(run_of_lengths, nothing)


def test_nothing_done_is_a_fact(run_of_lengths, world):
    """Done, unknown and none are three things; one question has one answer."""
    nothing = Queries.partial(size=run_of_lengths.planner.observation_dim)
    begins = Counter(
        video.steps[0].action for video in world.videos if (video.split, video.task) == ("train", 1)
    )
    likely, _ = begins.most_common(1)[0]
    one = planning(run_of_lengths, 1)
    shares = {}
    for name, done in (("unknown", None), ("none", []), ("some", [likely])):
        plans = answer(one, nothing, task=1, done=done, top_k=100).plans
        shares[name] = {plan.actions[0]: plan.probability for plan in plans}
        session = Session(run_of_lengths, task=1, done=done)
        told = dict(next_actions(session, 1000))
        assert {a: told[a] for a in shares[name]} == pytest.approx(shares[name], abs=1e-4)
    assert max(shares["none"], key=lambda action: shares["none"][action] or 0.0) == likely
    assert shares["none"][likely] > shares["unknown"][likely] > shares["some"].get(likely, 0)
    session = Session(run_of_lengths, task=1)
    session.done(likely)
    assert dict(next_actions(session, 1000)) == pytest.approx(told, abs=1e-4)


def test_refused_steps_done(run_of_lengths, nearest_run):
    query = Queries.partial(size=run_of_lengths.planner.observation_dim, initial=np.zeros(8))
    with pytest.raises(ConfigError, match="unknown action 'fly'") as caught:
        answer(run_of_lengths, query, done=["fly"])
    first, other = run_of_lengths.taxonomy.tasks[:2]
    (foreign, *_) = sorted({*other.actions} - {*first.actions})
    by_id, by_name = (
        answer(run_of_lengths, query, task=first.id, done=[done])
        for done in (foreign, run_of_lengths.taxonomy.names([foreign])[0])
    )
    assert by_id == by_name
    assert by_id.known.done == [foreign]
    assert f"was done but is not among the steps of '{first.name}'" in by_id.warnings[0]
    assert caught.value.setting == "done"
    with pytest.raises(DataError, match=r"'done', row 0 .* actions 0 to"):
        answer(run_of_lengths, query.with_done([10_000]))
    with pytest.raises(ConfigError, match=r"needs both observations .* several lengths") as caught:
        answer(nearest_run, Queries(initial=query.initial, goal=query.goal), done=[0])
    assert caught.value.setting == "done"
    with pytest.raises(ConfigError, match=r"needs both observations .* several lengths") as caught:
        answer(nearest_run, query)
    assert caught.value.setting == "goal"


def test_the_time_between_observations(run_of_lengths, nearest_run, video):
    query, _ = query_from_video(run_of_lengths, video.video_id, 1)
    plain, found = (answer(run_of_lengths, query, elapsed=seconds) for seconds in (None, 30))
    assert plain.known is None
    assert found.known.elapsed == 30
    assert found.known.initial is found.known.goal is True
    assert found.lengths != plain.lengths
    start, _ = query_from_video(run_of_lengths, video.video_id, 1, goal=False)
    for run, given, seconds, message in (
        (run_of_lengths, start, 30, "elapsed 30: expected two observations"),
        (run_of_lengths, query, 0, "'elapsed': expected more than 0"),
        (run_of_lengths, query, float("nan"), "'elapsed': expected a finite number"),
        (nearest_run, query, 30, "nearest window did not learn from the time between observations"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            answer(run, given, elapsed=seconds)
        assert caught.value.setting == "elapsed"


def test_one_file(run_of_lengths, tmp_path):
    row = np.arange(8, dtype=np.float32)
    np.save(tmp_path / "a.npy", row)
    query = query_from_files(tmp_path / "a.npy", None, run_of_lengths)
    assert query.known.tolist() == [[True, False]]
    np.testing.assert_array_equal(query.initial, row[None])
    query = query_from_files(None, tmp_path / "a.npy", run_of_lengths)
    assert query.known.tolist() == [[False, True]]
    np.testing.assert_array_equal(query.goal, row[None])
    with pytest.raises(ConfigError, match="nothing is known of the query"):
        answer(run_of_lengths, query_from_files(None, None, run_of_lengths))


def test_queries_of_different_kinds_are_planned_together_as_alone(run_of_lengths, video):
    queries = [
        query_from_video(run_of_lengths, video.video_id, first, goal=goal, done=True)[0]
        for first, goal in ((1, True), (4, False), (2, True))
    ]
    together = Queries.concatenate(queries)
    assert together.done.shape == (3, 3)
    assert together.known.tolist() == [[True, True], [True, False], [True, True]]
    for query, plans in zip(queries, run_of_lengths.planner.plan(together, 5), strict=True):
        (alone,) = run_of_lengths.planner.plan(query, 5)
        np.testing.assert_array_equal(plans.actions, alone.actions)
        np.testing.assert_allclose(plans.scores, alone.scores, rtol=1e-4)
