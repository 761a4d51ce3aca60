import numpy as np
import pytest

import cefito
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.errors import ConfigError, DataError, RunError
from cefito.inference.session import Session
from cefito.parts.opened import Opening
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from tiny_runs import next_actions

QUICK = {
    **{f"any_length.{name}": 64 for name in ("hidden", "width", "emission")},
    **{"any_length.dropout": 0, "any_length.input_dropout": 0, "any_length.members": 1},
    "any_length_training.optimiser.learning_rate": 5e-3,
    "any_length_training.optimiser.epochs": 6,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    knobs = WorldKnobs(train=72, val=12, test=12, dim=64)
    return write_world(tmp_path_factory.mktemp("session") / "world", knobs=knobs)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run of 1 to 3 steps, not to be changed."""
    config = load_config("small", method="any-length", overrides=QUICK)
    folder = tmp_path_factory.mktemp("session-run") / "run"
    return cefito.train_run(data, folder, config=config, horizon=3, shortest=1, seed=0)


@pytest.fixture(scope="module")
def videos(data):
    """Actions and observations [D, E] at the start of each step of the test videos."""
    found = []
    for first, video in zip(data.first_row, data.videos, strict=True):
        if video.split == "test":
            rows = data.start[first : first + len(video.steps)].astype(np.float32)
            found.append(([step.action for step in video.steps], rows))
    return found


@pytest.fixture(scope="module")
def video(videos):
    return videos[0]


def everything(session):
    return session.belief(), next_actions(session, 20), session.plans(4), session.notes


def test_a_session_that_is_told_all_plans_as_the_planner(run, video):
    _, rows = video
    session = run.session()
    assert isinstance(session, cefito.Session)
    session.observe(rows[0])
    query = Queries.partial(size=rows.shape[1], initial=rows[0], done=[])
    (plans,) = run.planner.plan(query, 5)
    found = session.plans(5)
    assert [plan.actions for plan in found] == [row.tolist() for row in plans.sequences]
    assert [plan.probability for plan in found] == pytest.approx(plans.probabilities, rel=1e-3)
    remaining = session.belief().remaining
    assert remaining == pytest.approx(plans.length_probabilities, abs=1e-4)


def test_next_steps_are_those_of_all_plans(run, video):
    actions, rows = video
    session = Session(run, goal=rows[3])
    session.observe(rows[0])
    session.done(actions[0])
    session.observe(rows[1])
    shares = np.zeros(len(run.taxonomy.actions))
    for plan in session.plans(100_000):
        shares[plan.actions[0]] += plan.probability
    for action, probability in next_actions(session, 5):
        assert probability == pytest.approx(shares[action], abs=0.02)
    names = [run.taxonomy.actions[action].name for action, _ in next_actions(session, 5)]
    assert [name for name, _ in session.next_steps(5)] == names
    total = sum(probability for _, probability in session.next_steps(1000))
    assert total == pytest.approx(1, abs=1e-3)


def test_an_inferred_step_becomes_certain(run, videos):
    changed = 0
    for _, rows in videos:
        session = run.session()
        for row in rows:
            session.observe(row)
            inferred = session.belief().done
            if inferred and inferred[-1].probability > dict(next_actions(session, 1000)).get(
                inferred[-1].id, 0
            ):
                session.done(inferred[-1].id)
                told = session.belief().done
                assert told[-1].reported
                assert told[-1].id == inferred[-1].id
                assert told[:-1] == inferred[:-1]
                changed += 1
                break
    assert changed


def test_undo(run, video):
    actions, rows = video
    session, history = run.session(task=0), []
    events = [(Session.observe, rows[0]), (Session.done, actions[0]), (Session.observe, rows[1])]
    events += [(Session.observe, rows[2]), (Session.done, 3), (Session.done, 3)]
    for change, value in events:
        history.append(everything(session))
        change(session, value)
    for before in reversed(history):
        session.undo()
        assert everything(session) == before
    with pytest.raises(ConfigError, match="nothing to undo"):
        session.undo()


def test_a_repeated_observation_changes_nothing(run, video):
    _, rows = video
    session = run.session()
    session.observe(rows[0])
    session.observe(rows[1])
    before = everything(session)
    for _ in range(3):
        session.observe(rows[1] * np.float32(1.00001))
    assert everything(session) == before
    assert session.events == 5


@pytest.mark.nightly
def test_a_session_knows_more_than_plans_from_the_present_observation(run, videos):
    """The next step is likelier after all events than by the latest observation alone."""
    gains = {"observed": [], "told": [], "both": []}
    for steps, rows in videos:
        sessions = {name: run.session() for name in gains}
        for place, (row, action) in enumerate(zip(rows, steps, strict=True)):
            if place:
                sessions["told"].done(steps[place - 1])
                sessions["both"].done(steps[place - 1])
            sessions["observed"].observe(row)
            sessions["both"].observe(row)
            query = Queries.partial(size=len(row), initial=row)
            alone = run.planner.marginals(query).steps[0, 0, action]
            for name, session in sessions.items():
                shares = dict(next_actions(session, 1000))
                assert sum(shares.values()) == pytest.approx(1, abs=1e-3)
                if place:
                    gains[name].append(np.log(shares[action] / alone))
    assert min(map(np.mean, gains.values())) > 0
    assert np.mean(gains["both"]) > max(np.mean(gains["observed"]), np.mean(gains["told"]))


def test_scenes_that_hardly_change(run, video):
    """No step was done, and nothing new is learnt."""
    _, rows = video
    session, generator = run.session(), np.random.default_rng(0)
    session.observe(rows[0])
    before = dict(next_actions(session, 1000))
    for _ in range(8):
        session.observe(rows[0] + 0.05 * generator.normal(size=rows[0].shape).astype(np.float32))
    assert not session.belief().done
    after = dict(next_actions(session, 1000))
    assert sum(abs(after[action] - share) for action, share in before.items()) < 0.2


def test_a_known_task(run, video):
    _, rows = video
    session = run.session(task=run.taxonomy.tasks[1].name)
    session.observe(rows[0])
    assert session.belief().tasks[0].id == 1
    assert session.belief().tasks[0].probability == pytest.approx(1)
    assert {plan.task for plan in session.plans(30)} == {run.taxonomy.tasks[1].name}


def test_steps_that_no_plan_has_are_kept_and_noted(run, video):
    _, rows = video
    task = run.taxonomy.tasks[0]
    foreign = next(action.id for action in run.taxonomy.actions if action.id not in task.actions)
    session = run.session(task=0)
    session.observe(rows[0])
    name = run.taxonomy.actions[foreign].name
    session.done(name)
    assert session.notes == (f"'{name}' is not among the steps of '{task.name}'",)
    assert session.belief().done[-1].id == foreign
    session.observe(rows[1])
    assert session.next_steps(1)
    session.undo()
    session.undo()
    assert session.notes == ()
    for given in (name, foreign):
        assert run.session(task=0, done=[given]).belief().done[0].id == foreign


def test_an_unlikely_step_is_noted(run, video):
    _, rows = video
    session = run.session()
    session.observe(rows[0])
    likely = dict(next_actions(session, 1000))
    task = session.belief().tasks[0].id
    candidates = [a for a in run.planner.model.states.by_task()[task] if likely[a] < 0.01]
    session.done(candidates[0])
    assert session.notes[0].startswith("unexpected: '")
    assert session.notes[0].endswith(" %")


def test_observations_of_videos_and_of_files(run, data, video, tmp_path):
    name = next(video.video_id for video in data.videos if video.split == "test")
    np.save(tmp_path / "row.npy", video[1][1])
    first, second = run.session(), run.session()
    for session, rows in (
        (first, video[1]),
        (second, [(name, 1), tmp_path / "row.npy", (name, 3)]),
    ):
        for row in rows[:3]:
            session.observe(row)
    assert everything(first) == everything(second)


def test_plans_of_one_length(run, video):
    _, rows = video
    session = run.session()
    session.observe(rows[0])
    plans = session.plans(3, steps=2)
    assert [len(plan.actions) for plan in plans] == [2, 2, 2]
    assert sum(plan.probability for plan in session.plans(10**5, steps=1)) == pytest.approx(1)
    with pytest.raises(ConfigError, match="plans 1 to 3 steps"):
        session.plans(steps=7)
    with pytest.raises(ConfigError, match="top_k -1: expected at least 1"):
        session.next_steps(-1)
    with pytest.raises(ConfigError, match="top_k"):
        session.plans(0)


@pytest.mark.parametrize(
    ("observation", "error", "message"),
    [
        (np.zeros(5, np.float32), RunError, "the observation has 5 features"),
        (np.full(64, np.nan, np.float32), DataError, "holds nan"),
        (np.zeros((2, 64), np.float32), DataError, "shape"),
        (np.array(["a"] * 64), DataError, "floating-point"),
        (np.float32(1), DataError, "shape"),
    ],
)
def test_bad_observations(run, video, observation, error, message):
    session = run.session()
    session.observe(video[1][0])
    before = everything(session)
    with pytest.raises(error, match=message):
        session.observe(observation)
    assert everything(session) == before


def test_a_session_opens_the_planner_when_it_is_used_and_refuses_another_one_at_once(
    run, nearest_run, video
):
    opened = []
    closed = run.changed(planner=Opening(lambda: opened.append(run) or run.planner))
    session = closed.session()
    assert opened == []
    session.observe(video[1][0])
    assert session.plans(2)
    assert opened == [run]
    with pytest.raises(ConfigError, match="needs a run of the method"):
        nearest_run.session()


def test_bad_steps_and_tasks(run):
    with pytest.raises(ConfigError, match="unknown task"):
        run.session(task="no such task")
    session = run.session()
    with pytest.raises(ConfigError, match="done is 'boil'; expected a list"):
        run.session(done="boil")
    with pytest.raises(ConfigError, match="unknown action"):
        session.done("no such step")
    assert session.events == 0


def test_a_step_that_was_left_out_is_listed_apart(run, videos):
    """What is usual and was neither reported nor shown is not believed done."""
    believed = listed = 0
    for steps, rows in videos:
        if len(steps) < 4:
            continue
        session = Session(run)
        for place in (0, 2):  # step 1 is neither observed nor reported
            session.observe(rows[place])
            session.done(steps[place])
        belief = session.belief()
        assert [step.id for step in belief.done if step.reported] == [steps[0], steps[2]]
        believed += steps[1] in [step.id for step in belief.done if not step.reported]
        listed += steps[1] in [step.id for step in belief.unseen]
    assert believed <= 1 < listed


def test_a_task_is_finished_once_nothing_is_left(run, data):
    """By the share of training videos that end after the last step."""
    video = next(video for video in data.videos if video.split == "train")
    steps = [step.action for step in video.steps]
    order = run.verifier.orders[video.task]
    usual = [*order.actions[order.usual >= 0.5]]
    session = Session(run, task=video.task)
    assert session.belief().finished == 0
    for action in steps[:-1]:
        session.done(action)
    assert {*usual} - {*steps[:-1]}  # something is left
    assert session.belief().finished == 0
    for action in [*(one for one in usual if one not in steps), steps[-1]]:
        session.done(int(action))
    follows = order.follows[order.index[steps[-1]]]
    assert session.belief().finished == pytest.approx(follows[-1] / follows.sum())
    assert session.belief().finished > 0
    session.undo()
    assert session.belief().finished == 0
    to_goal = Session(run, task=video.task, goal=np.zeros(64), done=steps)
    assert to_goal.belief().finished == 0
