"""Live sessions over HTTP, against sessions of the library."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request

import numpy as np
import pytest

from cefito.inference.session import Session
from serve.live_sessions import LONG, TOKEN, Stream, begin, end, read, sent, tell
from tiny_runs import next_actions


@pytest.fixture(scope="module")
def client(serving, place, run_of_lengths):
    """A client of a service of runs of 1 to 4 steps and of 3."""
    return serving(runs=(run_of_lengths.folder, place.run))


@pytest.fixture(scope="module")
def rows(world, video):
    """Observations at the start of each step of the video [D, E], and at the end of the last."""
    first = int(world.first_row[world.videos.index(video)])
    steps = slice(first, first + len(video.steps))
    return np.asarray(world.start[steps], np.float32), np.asarray(world.end[steps], np.float32)[-1]


def test_runs_are_opened_anew(serving, place, run_of_lengths, tmp_path, caplog):
    folder = tmp_path / "run"
    shutil.copytree(run_of_lengths.folder, folder)
    client = serving(runs=(folder,))
    live = begin(client)
    shutil.rmtree(folder)
    shutil.copytree(place.run, folder)
    assert client.get("/v1/model").json()["runs"][0]["method"] != "cefito+chain"  # a copy
    client.app.state.service.reload()
    (model,) = client.get("/v1/model").json()["runs"]
    assert (model["name"], model["method"]) == ("run", "cefito+chain")
    assert tell(client, live, done=1)["done"]
    assert client.post("/v1/sessions", json={}).status_code == 422  # the new run has none
    for name in ("run.json", "taxonomy.json"):
        (folder / name).unlink()
        client.app.state.service.reload()
        kept = f"'run' (horizon 3), digest {model['digest'][:12]}: {folder}"
        assert caplog.messages[-1].startswith(f"the run is kept as it was, {kept}")
    assert client.post("/v1/plan", json={"video": {"id": "world-0036"}}).status_code == 200
    end(client, live)


def same(state, session, top_k=5, steps=None):
    """The state is that of a session of the library."""
    close = lambda value: pytest.approx(value, rel=1e-4)  # noqa: E731
    belief = session.belief()
    assert state["tasks"] == [
        {**task.model_dump(), "probability": close(task.probability)}
        for task in belief.tasks[:top_k]
    ]
    assert [(one["id"], one["name"], one["reported"]) for one in state["done"]] == [
        (one.id, one.name, one.reported) for one in belief.done
    ]
    found = [(one["id"], one["probability"]) for one in state["next_steps"]]
    assert found == [(action, close(share)) for action, share in next_actions(session, top_k)]
    assert state["remaining"] == {
        str(count): close(share) for count, share in belief.remaining.items()
    }
    plans = session.plans_by_next(top_k, steps)
    assert [plan["actions"] for plan in state["plans"]] == [plan.actions for plan in plans]
    assert state["plans"][0]["probability"] == close(plans[0].probability)
    assert [one["id"] for one in state["unseen"]] == [one.id for one in belief.unseen]
    assert state["notes"] == list(session.notes)
    assert state["events"] == session.events


def test_a_session_is_the_library_s(client, run_of_lengths, video, rows):
    session, state = Session(run_of_lengths), begin(client)
    same(state, session)
    actions = [step.action for step in video.steps]
    name = run_of_lengths.taxonomy.actions[actions[0]].name
    steps = [
        ({"video": {"id": video.video_id}}, lambda: session.observe(rows[0][0])),
        ({"done": actions[0]}, lambda: session.done(actions[0])),
        ({"observation": rows[0][2].tolist()}, lambda: session.observe(rows[0][2])),
        ({"undo": True}, session.undo),
        ({"done": name}, lambda: session.done(actions[0])),
        ({"done": actions[1]}, lambda: session.done(actions[1])),
        ({"video": {"id": video.video_id, "step": 4}}, lambda: session.observe(rows[0][3])),
    ]
    for number, (event, change) in enumerate(steps, 1):
        change()
        state = tell(client, state, **event)
        assert state["number"] == number
        same(state, session)
    assert state["done"][0] | {"probability": 1} == {
        "id": actions[0],
        "name": name,
        "probability": 1,
        "reported": True,
    }
    same(read(client, state), session)
    same(read(client, state, top_k=3, steps=2), session, 3, 2)
    assert state["goal"] is False
    end(client, state)
    for done in ([actions[0], name], None):
        others = begin(client, horizon=4, done=done)
        same(others, Session(run_of_lengths, done=done))
        end(client, others)
    problem = read(client, state, 404)
    assert problem["type"] == "urn:cefito:not-found"
    assert "POST /v1/sessions opens one" in problem["detail"]
    assert tell(client, state, 404, undo=True)["detail"] == problem["detail"]


def test_goals_and_a_task(client, run_of_lengths, video, rows):
    last = len(video.steps)
    task = run_of_lengths.taxonomy.tasks[video.task].name
    for goal in ({"goal": rows[1].tolist()}, {"goal_video": {"id": video.video_id, "step": last}}):
        session = Session(run_of_lengths, goal=rows[1], task=task)
        state = begin(client, task=task, **goal)
        assert state["goal"] is True
        same(state, session)
        session.observe(rows[0][1])
        same(tell(client, state, video={"id": video.video_id, "step": 2}), session)
        end(client, state)


BODIES, EVENTS = (
    (
        ({"run": "tea"}, None, "tea: a session needs a run of the method any-length"),
        ({"run": None}, "run", "Add the field 'run'"),
        ({"run": "x"}, "run", "no run fits run 'x'"),
        ({"horizon": 9}, "horizon", "no run fits run 'run' and horizon 9"),
        ({"false_alarms": 3}, "false_alarms", "cannot be promised"),
        ({"task": "fly"}, "task", "unknown task 'fly'"),
        ({"goal": [1.0]}, "goal", "the observation has 1 features"),
        ({"goal": "!"}, "goal", "is not base64"),
        ({"goal": [1e30] * 8}, "goal", "too large to compute with"),
        ({"goal": [1.0], "goal_text": "tea"}, None, "at most one of 'goal'"),
        ({"goal_text": "tea"}, "goal_text", "takes no goal in words"),
        ({"goal_video": {"id": "x"}}, "goal_video.id", "no video of id 'x'"),
        ({"goal_video": {"step": 1}}, "goal_video.id", "is missing"),
        ({"goal_video": {"id": "VIDEO", "step": 99}}, "goal_video.step", "expected 1 to"),
        ({"said": [1]}, "said", "none of that name"),
    ),
    (
        ({}, None, "expected exactly one of 'observation', 'video', 'rows', 'done'"),
        ({"done": 1, "undo": True}, None, "expected exactly one of"),
        ({"undo": False}, "undo", "expected True"),
        ({"undo": True}, None, "nothing to undo"),
        ({"over": True}, None, "no row of a video was observed"),
        ({"done": "fly"}, "done", "unknown action 'fly'"),
        ({"done": 99_999}, "done", "unknown action 99999"),
        ({"done": True}, "done", ""),
        ({"observation": [1.0, 2.0]}, "observation", "has 2 features; this run was trained on 8"),
        ({"observation": "AAAA"}, "observation", "base64 holds 3 bytes"),
        ({"observation": "AADAfw==" * 8}, "observation", "is not base64"),
        ({"observation": [1e30] * 8}, "observation", "too large to compute with"),
        ({"video": {"id": "x"}}, "video.id", "no video of id 'x'"),
        ({"video": {"id": "VIDEO", "step": 99}}, "video.step", "expected 1 to"),
        ({"video": {"id": "VIDEO", "goal": True}}, "video.goal", "none of that name"),
        ({"nonsense": 1}, "nonsense", "none of that name"),
    ),
)
PARAMETERS = (
    ({"steps": 5}, "steps", "this run plans 1 to 4 steps"),
    ({"steps": 0}, "query.steps", "expected at least 1"),
    ({"top_k": 101}, "top_k", "at most 100 plans"),
    ({"top_k": "all"}, "query.top_k", "expected a whole number"),
)


@pytest.mark.parametrize(
    ("ask", "given", "field", "message"),
    [
        *((lambda client, _, given: begin(client, 422, **given), *row) for row in BODIES),
        *((lambda client, state, given: tell(client, state, 422, **given), *row) for row in EVENTS),
        *(
            (lambda client, state, given: read(client, state, 422, **given), *row)
            for row in PARAMETERS
        ),
    ],
)
def test_refusals(client, video, place, ask, given, field, message):
    state = begin(client)
    given = json.loads(json.dumps(given).replace("VIDEO", video.video_id))
    problem = ask(client, state, given)
    assert message in problem["detail"]
    assert problem.get("field") == field
    assert str(place.run.parent) not in problem["detail"]
    assert read(client, state) == state
    end(client, state)
    assert "cefito_sessions 0.0" in client.get("/metrics").text


def test_the_number_of_sessions_is_limited(serving, run_of_lengths):
    runs = (run_of_lengths.folder,)
    for limits, whose in (({"client_sessions": 2}, "of this client "), ({"sessions": 2}, "")):
        client = serving(runs=runs, limits=limits)
        states = [begin(client)]
        begin(client, 422, task="fly")  # takes no place
        states.append(begin(client))
        response = client.post("/v1/sessions", json={})
        problem = response.json()
        assert (response.status_code, problem["limit"]) == (429, 2)
        assert problem["detail"].startswith(f"2 sessions {whose}are open")
        assert problem["type"] == "urn:cefito:busy"
        assert response.headers["retry-after"] == "60"  # though one ends in an hour at the latest
        end(client, states[0])
        begin(client)
        listed = client.get("/v1/model").json()["limits"]
        assert {"client_sessions": 20, "sessions": 100, **limits}.items() <= listed.items()


def test_the_number_of_events_is_limited(serving, run_of_lengths):
    client = serving(runs=(run_of_lengths.folder,), limits={"session_events": 2})
    state = begin(client)
    for _ in range(2):
        state = tell(client, state, done=0)
    problem = tell(client, state, 422, done=0)
    assert problem["limit"] == 2
    assert problem["detail"].startswith("the session has 2 events, the most.")
    assert tell(client, state, undo=True)["events"] == 1
    assert tell(client, state, done=1)["number"] == 4


# streams, from a service that really listens


LIMITS = {"heartbeat_seconds": 0.05}


@pytest.fixture(scope="module")
def port(place, run_of_lengths, listening):
    """Port of a service with a token."""
    given = {"token": TOKEN, "proxies": ("127.0.0.1",), "limits": LIMITS}
    settings = place.settings(runs=(run_of_lengths.folder,), **given)
    with listening(settings) as address:
        yield int(address.rpartition(":")[2])


def text(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
        return response.read().decode()


def test_states_are_streamed(port):
    _, state = sent(port, "POST", "/v1/sessions", {})
    path = f"/v1/sessions/{state['id']}"
    first, second = Stream(port, state["id"]), Stream(port, state["id"])
    assert first.event() == second.event() == ("0", "state", state)
    for number, event in enumerate(({"done": 0}, {"done": 1}, {"undo": True}), 1):
        elsewhere = {"x-forwarded-for": f"203.0.113.{number}"}  # who has its id can change it
        status, told = sent(port, "POST", f"{path}/events", event, **elsewhere)
        assert status == 200
        assert first.event() == second.event() == (str(number), "state", told)
    assert first.block() == [": alive"]
    second.connection.close()
    later = Stream(port, state["id"])
    assert later.event() == ("3", "state", told)
    assert sent(port, "DELETE", path) == (204, None)
    for stream in (first, later):
        assert stream.event() == (None, "end", {"detail": "the session was closed."})
        assert stream.ends()
    assert sent(port, "GET", f"{path}/events")[0] == 404


def test_a_stream_keeps_its_session_and_ends_with_the_service(place, run_of_lengths, listening):
    limits = LIMITS | {"session_seconds": 2.0}
    with listening(place.settings(runs=(run_of_lengths.folder,), limits=limits)) as address:
        port = int(address.rpartition(":")[2])
        _, state = sent(port, "POST", "/v1/sessions", {})
        stream, idle = Stream(port, state["id"]), sent(port, "POST", "/v1/sessions", {})[1]
        assert stream.event()[0] == "0"
        until = time.monotonic() + LONG
        while sent(port, "GET", f"/v1/sessions/{idle['id']}")[0] == 200:  # which uses it
            assert time.monotonic() < until
            used = time.monotonic()
            while time.monotonic() < used + 2 * limits["session_seconds"]:
                assert stream.block() == [": alive"]
        stream.connection.close()
        while "cefito_sessions_expired_total 2.0" not in text(port, "/metrics"):
            assert time.monotonic() < until
        _, state = sent(port, "POST", "/v1/sessions", {})
        stream = Stream(port, state["id"])
        assert stream.event()[0] == "0"
    assert stream.ends()
