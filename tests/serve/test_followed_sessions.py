"""Sessions that follow rows and pictures of a video over HTTP."""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cefito.errors import DataError
from cefito.inference.observer import ObservationRecipe
from cefito.inference.session import Session
from cefito.recognition.chain import StepChain
from cefito.recognition.stream import LOST, LOST_MORE
from cefito.serve import sessions
from cefito.serve.app import create_app
from cefito.serve.scheduler import SearchJob
from grey_videos import jpeg, picture_of
from serve.live_sessions import TOKEN, Stream, begin, end, late, read, send, sent, tell
from tiny_models import tiny_dinov2
from tiny_runs import next_actions, rows_of

pytestmark = pytest.mark.usefixtures("encoding_here")


@pytest.fixture(scope="module")
def seen(world):
    """Rows of a test video."""
    return rows_of(world, next(i for i, one in enumerate(world.videos) if one.split == "test"))


@pytest.fixture(scope="module")
def client(serving, run_with_recogniser, tmp_path_factory):
    """A client of a service with an encoder of pictures as wide as the rows."""
    pytest.importorskip("transformers")
    model = tiny_dinov2(tmp_path_factory.mktemp("dinov2"), size=24)
    return serving(runs=(run_with_recogniser.folder,), encoder=str(model))


def test_rows_of_a_video_need_no_boundaries(client, run_with_recogniser, seen):
    """Over HTTP as by the library; a row of another width is refused and changes nothing."""
    session, part = Session(run_with_recogniser), []
    state = begin(client)
    assert state["followed"] is None
    for start in range(0, len(seen), 4):
        part = [
            {"at": start + number, "row": row.tolist()}
            for number, row in enumerate(seen[start : start + 4])
        ]
        answer = client.post(f"/v1/sessions/{state['id']}/rows", json={"rows": part})
        assert answer.status_code == 200, answer.text
        for one in part:
            session.observe(np.array(one["row"], np.float32), at=one["at"])
        plans: list[Any] = [
            (plan["actions"], pytest.approx(plan["probability"], rel=1e-4))
            for plan in answer.json()["plans"]
        ]
        assert [
            (plan.actions, plan.probability) for plan in session.plans_by_next()
        ] == plans  # of these rows, not of those before with the same steps
        now, goes_on = answer.json()["followed"]["now"], session.followed().now
        assert (now and (now["action"], now["start"])) == (
            goes_on and (goes_on.action, goes_on.start)
        )
    found, own = answer.json()["followed"], session.followed()
    timed = [(step["action"], step["start"], step["end"]) for step in found["done"]]
    assert timed == [(step.action, step.start, step.end) for step in own.done]
    assert found["next"][0]["id"] == own.next[0].id
    assert found["task"]["id"] == own.task.id
    good = {"at": 500, "row": [0.0] * 24}
    wrong = {"rows": [good, {"at": 501, "row": [0.0, 1.0]}]}
    refused = client.post(f"/v1/sessions/{state['id']}/rows", json=wrong)
    assert refused.status_code == 422
    assert "expected [24]" in refused.json()["detail"]
    assert read(client, state)["followed"] == found
    ended = tell(client, state, over=True)
    over = ended["followed"]
    session.finish()
    assert [step["action"] for step in over["done"]] == [s.action for s in session.followed().done]
    assert over["now"] is None
    assert ended["notes"] == [*session.notes]
    later = tell(client, state, rows=[{"at": len(seen), "row": seen[-1].tolist()}])
    assert later["finished"] < ended["finished"] == 1
    end(client, state)


def test_brief_answers_leave_plans_out(client, run_with_recogniser, seen, monkeypatch):
    """And are otherwise those of the library; the state is the same as after whole answers."""
    session, brief, whole = Session(run_with_recogniser), begin(client), begin(client)
    at, planned, plan = 0, list[int](), Session.plans_by_next
    monkeypatch.setattr(Session, "plans_by_next", lambda *given: planned.append(at) or plan(*given))
    for at, row in enumerate(seen[:9]):
        session.observe(row, at=at)
        rows = [{"at": at, "row": row.tolist()}]
        state = tell(client, brief, rows=rows, brief=True)
        assert at not in planned  # nor made
        path = f"/v1/sessions/{whole['id']}/rows"
        whole = client.post(path, json={"rows": rows, "brief": False}).json()
    assert (state["number"], state["followed"]["seconds"]) == (9, session.seconds)
    expected = next_actions(session, 5)
    assert [step["id"] for step in state["next_steps"]] == [action for action, _ in expected]
    empty: dict[str, Any] = {"tasks": [], "done": [], "unseen": [], "remaining": {}, "plans": []}
    empty["finished"] = 0.0
    assert state == whole | empty | {"id": brief["id"]}
    assert whole["plans"]
    assert read(client, brief) == whole | {"id": brief["id"]}
    assert tell(client, brief, rows=rows, brief=True) == late(state)
    path = f"/v1/sessions/{brief['id']}/rows"
    assert client.post(path, json={"rows": rows, "brief": "perhaps"}).status_code == 422
    end(client, brief)
    end(client, whole)


def test_findings_of_as_many_false_alarms(client, run_with_recogniser, seen):
    refused = client.post("/v1/sessions", json={"false_alarms": 0})
    assert (refused.status_code, refused.json()["field"]) == (422, "false_alarms")
    least = run_with_recogniser.verifier.promise(1e6, online=True).least
    session, state = Session(run_with_recogniser), begin(client, false_alarms=1e6)
    rows = [{"at": at, "row": row.tolist()} for at, row in enumerate(seen[::-1])]
    found = client.post(f"/v1/sessions/{state['id']}/rows", json={"rows": rows}).json()["followed"]
    for one in rows:
        session.observe(np.array(one["row"], np.float32), at=one["at"])
    expected = session.followed(least=least).findings
    assert [one["probability"] for one in found["findings"]] == pytest.approx(
        [one.probability for one in expected], abs=1e-6
    )
    assert [one["words"] for one in found["findings"]] == [one.words for one in expected]
    assert len(expected) > len(session.followed().findings)
    over = tell(client, state, over=True)["followed"]["findings"]
    session.finish()
    judged = session.followed(least=least).findings
    assert [one["words"] for one in over] == [one.words for one in judged]
    assert any(one.kind == "missing" for one in judged)
    end(client, state)


def show(client, state, picture, at, status=200, **parameters):
    path = f"/v1/sessions/{state['id']}/pictures"
    response = client.post(path, params={"at": at, **parameters}, content=picture)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WebP", "BMP"])
def test_pictures_are_rows(client, run_with_recogniser, tmp_path, form, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    jpeg = partial(picture_of, form=form)
    encoder = client.app.state.service.encoding.function.encoder
    observer = ObservationRecipe.of(run_with_recogniser).open(encoder)
    session, state = Session(run_with_recogniser), begin(client)
    for at, grey in enumerate((20, 120, 220)):
        (tmp_path / "picture").write_bytes(jpeg(grey))
        session.observe(observer.of_picture(tmp_path / "picture"), at=at)
        state = show(client, state, jpeg(grey), at)
    assert [*tmp_path.glob("cefito-*")] == []  # pictures are not stored
    assert state["number"] == 3
    assert state["followed"]["seconds"] == session.followed().seconds == 3
    expected = next_actions(session, 5)
    assert [one["id"] for one in state["next_steps"]] == [action for action, _ in expected]
    assert [one["probability"] for one in state["next_steps"]] == pytest.approx(
        [share for _, share in expected], rel=1e-4
    )
    assert show(client, state, jpeg(70), 1.5) == late(state)
    assert show(client, state, jpeg(70), 1.5, brief=True) == late(state) | {
        "finished": 0.0,
        **{"tasks": [], "done": [], "unseen": [], "remaining": {}, "plans": []},
    }
    told = tell(client, state, done=state["next_steps"][0]["id"])
    assert told["followed"]["now"]["action"] == state["next_steps"][0]["id"]
    end(client, state)


@pytest.mark.parametrize(
    ("picture", "at", "status", "words"),
    [
        (b"text", 0, 422, "'picture' is not JPEG, PNG"),
        (b"", 0, 422, "'picture' is not JPEG, PNG"),
        (jpeg(0)[:200], 0, 422, "cannot be read as a picture"),
        (jpeg(0, (9000, 9000)), 0, 422, "is too large"),
        (jpeg(0) + b" " * (4 << 20), 0, 413, "at most 4,194,304 bytes"),
        (jpeg(0), "nan", 422, "finite"),
        (jpeg(0), -1, 422, "at: "),
    ],
)
def test_pictures_that_are_refused(client, picture, at, status, words):
    state = begin(client)
    problem = show(client, state, picture, at, status)
    assert words in problem["detail"]
    assert "/tmp/" not in problem["detail"]
    assert read(client, state) == state
    end(client, state)
    show(client, state, jpeg(0), 0, 404)


def test_runs_that_take_no_pictures(client, serving, run_of_lengths, run_with_recogniser, tmp_path):
    """Without a recogniser, without an encoder, and with one of another width."""
    narrow = str(tiny_dinov2(tmp_path / "narrow", size=8))
    for run, changes, words in (
        (run_of_lengths, {}, "cannot recognise steps"),
        (run_with_recogniser, {}, "takes no pictures here"),
        (run_with_recogniser, {"encoder": narrow}, "gives 8 numbers a picture"),
    ):
        other = serving(runs=(run.folder,), **changes)
        state = begin(other)
        assert words in show(other, state, jpeg(0), 0, 422)["detail"]
        assert read(other, state) == state


@pytest.fixture(scope="module")
def port(place, run_with_recogniser, listening):
    """Port of a service that really listens."""
    runs = (run_with_recogniser.folder,)
    with listening(place.settings(runs=runs, token=TOKEN)) as address:
        yield int(address.rpartition(":")[2])


def test_no_row_is_lost_or_counted_twice_when_connections_break(port, seen):
    _, state = sent(port, "POST", "/v1/sessions", {})
    path = f"/v1/sessions/{state['id']}/rows"
    stream = Stream(port, state["id"])
    for at, row in enumerate(seen[:12]):
        body = {"rows": [{"at": at, "row": row.tolist()}]}
        brief = body | {"brief": True}
        if at % 3 == 0:  # the answer is lost, and the client sends the row again
            connection, _ = send(port, "POST", path, brief)
            connection.close()
        status, told = sent(port, "POST", path, brief)
        assert (status, told["number"], told["plans"]) == (200, at + 1, [])
        status, state = sent(port, "GET", f"/v1/sessions/{state['id']}")
        assert (status, state["number"], state["followed"]["seconds"]) == (200, at + 1, at + 1)
        if at % 4 == 0:
            stream.connection.close()
            stream = Stream(port, state["id"], **{"last-event-id": str(at)})
        number, event, told = stream.event()
        while told["number"] < state["number"]:
            number, event, told = stream.event()
        assert (number, event, told) == (str(at + 1), "state", state)
    stream.connection.close()
    assert sent(port, "GET", f"/v1/sessions/{state['id']}") == (200, state)


def test_sessions_go_on_when_the_service_begins_anew(
    serving, world, run_with_recogniser, seen, tmp_path
):
    """What was answered stays: rows, steps told and undone, numbers; what was not is left out."""
    folder, runs = tmp_path / "sessions", (run_with_recogniser.folder,)
    before = serving(runs=runs, session_folder=tmp_path)
    goal = world.end[5].tolist()
    steps = tell(before, begin(before, goal=goal, done=None), observation=world.start[3].tolist())
    tell(before, steps, done=1)
    steps = tell(before, steps, undo=True)
    rows = begin(before, task=0)
    for at, row in enumerate(seen[:6]):
        lines = [{"at": at, "row": row.tolist()}, {"at": at + 0.5, "row": None}]
        answer = before.post(f"/v1/sessions/{rows['id']}/rows", json={"rows": lines})
    rows = answer.json()
    (file,) = [one for one in folder.iterdir() if len(one.read_text().splitlines()) == 7]
    written = re.findall(r'"row":\s?\[(.*?)\]', file.read_text())[-1]
    assert 10 < len(written) / len(seen[0]) < 20  # bytes a number
    with file.open("a") as opened:
        opened.write('{"rows": [{"at": 6, "ro')  # killed before it could answer
    mine = folder / "mine.jsonl"
    mine.write_text("not a session\n")
    after = serving(runs=runs, session_folder=tmp_path)
    assert read(after, steps) == steps
    assert tell(after, steps, done=2)["number"] == steps["number"] + 1
    again = tell(after, rows, rows=[{"at": 0, "row": None}])
    assert again == late(rows)
    further = tell(after, rows, rows=[{"at": 0, "row": None}, {"at": 6, "row": None}])
    assert (further["number"], further["followed"]["seconds"]) == (rows["number"] + 1, 7)
    end(after, steps)
    assert {*folder.iterdir()} == {file, mine}
    assert folder.stat().st_mode & 0o077 == 0


def test_an_event_that_cannot_be_kept_changes_nothing(
    serving, run_with_recogniser, tmp_path, caplog, monkeypatch
):
    resource = pytest.importorskip("resource")
    client = serving(runs=(run_with_recogniser.folder,), session_folder=tmp_path)
    state = begin(client)
    (file,) = (tmp_path / "sessions").iterdir()
    kept, limits = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = [{"at": 0, "row": None}]

    def refused():
        """What a client is told twice while a disk is full."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, limits[1]))
        try:
            return tell(client, state, 503, rows=rows), tell(client, state, 503, rows=rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    problem, again = refused()
    assert problem["detail"] == again["detail"]
    assert problem["type"] == "urn:cefito:not-ready"
    assert problem["detail"].startswith("the disk of the service is full, so that nothing was kept")
    place, lost = (
        f"{tmp_path}/sessions: sessions",
        "cannot be kept now ([Errno 28] its disk took 10 of ",
    )
    assert caplog.text.count(f"{place} {lost}") == 1
    assert file.read_bytes() == kept  # half a line is taken back
    assert read(client, state) == state
    assert tell(client, state, rows=rows)["number"] == 1
    assert caplog.messages[-1] == f"{place} can be kept again"
    rows[0]["at"] = 1
    refused()
    assert tell(client, state, rows=rows)["number"] == 2
    assert (caplog.text.count(lost), caplog.text.count("kept again")) == (1, 1)  # a minute
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 61)
    monkeypatch.setattr(sessions, "time", clock)
    rows[0]["at"] = 2
    refused()
    assert caplog.text.count(lost) == 2
    damaged = begin(client)
    other = next(one for one in file.parent.iterdir() if one != file)
    other.write_text(other.read_text() + "[]\n")
    again = serving(runs=(run_with_recogniser.folder,), session_folder=tmp_path)
    assert "cannot be read. End it" in read(again, damaged, status=404)["detail"]
    end(again, damaged)
    assert [*file.parent.iterdir()] == [file]


def test_a_file_that_is_no_session_does_not_stop_the_service(
    serving, run_with_recogniser, tmp_path, caplog
):
    """Each is named and left as it is, and the session beside them goes on."""
    folder, runs = tmp_path / "sessions", (run_with_recogniser.folder,)
    state = begin(serving(runs=runs, session_folder=tmp_path))
    (good,) = folder.iterdir()
    first = good.read_text()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(first)
    deep = "[" * 100_000 + "]" * 100_000
    for name, text in {
        "nested": deep,
        "nested-goal": first.replace('"open":{', f'"open":{{"goal":{deep},'),
        "empty": "",
        "a-list": "[]\n",
        "another-client": first.replace('"client":"', '"client":["x"],"y":"'),
        "surrogate": first.replace('"client":"', '"client":"\\ud800'),
        "n" * 200: "1\n",
    }.items():
        (folder / f"{name}.jsonl").write_text(text)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to(elsewhere)
    (folder / "gone.jsonl").symlink_to(tmp_path / "nothing")
    (folder / "device.jsonl").symlink_to("/dev/zero")
    (folder / "folder.jsonl").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    with listening, contextlib.chdir(folder):
        listening.bind("socket.jsonl")
    bad = {one.stem for one in folder.iterdir()} - {good.stem}
    caplog.clear()
    client = serving(runs=runs, session_folder=tmp_path)
    assert {name for name in bad if any(name in line for line in caplog.messages)} == bad
    assert tell(client, state, done=1)["number"] == 1
    for name in bad:
        read(client, {"id": name[:100]}, 404)
    assert {one.stem for one in folder.iterdir()} == {*bad, good.stem}
    assert elsewhere.read_text() == first


def test_a_folder_of_sessions_that_is_none_is_refused(place, run_with_recogniser, tmp_path):
    (tmp_path / "sessions").write_text("")
    settings = place.settings(runs=(run_with_recogniser.folder,), session_folder=tmp_path)
    with pytest.raises(DataError, match="sessions: cannot be made"):
        create_app(settings)


@pytest.mark.parametrize(
    "line", ['{"done":' + "[" * 100_000 + "\n", "[]\n", '{"done":"\\ud800"}\n']
)
def test_an_event_that_cannot_be_read_is_told(serving, run_with_recogniser, tmp_path, caplog, line):
    runs = (run_with_recogniser.folder,)
    state = begin(serving(runs=runs, session_folder=tmp_path))
    (file,) = (tmp_path / "sessions").iterdir()
    with file.open("a") as opened:
        opened.write(line + "\n")
    client = serving(runs=runs, session_folder=tmp_path)
    assert "cannot be read. End it" in read(client, state, status=404)["detail"]
    assert "the session cannot go on" in caplog.text
    assert file.exists()


def test_a_link_in_the_place_of_a_session_is_not_written_to(serving, run_with_recogniser, tmp_path):
    client = serving(runs=(run_with_recogniser.folder,), session_folder=tmp_path)
    state = begin(client)
    (file,) = (tmp_path / "sessions").iterdir()
    kept = file.rename(tmp_path / "kept")
    file.symlink_to(kept)
    before = kept.read_bytes()
    tell(client, state, 503, done=1)
    assert kept.read_bytes() == before


class Expiring:
    """Jobs whose time is over when they have asked for it so often."""

    def __init__(self, monkeypatch):
        self.left, self.asked, before = math.inf, 0, SearchJob.stop

        def stop(job):
            self.left -= 1
            self.asked += 1
            return self.left < 0 or before(job)

        monkeypatch.setattr(SearchJob, "stop", stop)


def test_rows_that_are_not_answered_in_time_change_nothing(
    serving, run_with_recogniser, seen, tmp_path, monkeypatch
):
    """The work ends with the request, wherever it is; the rows can be sent again."""
    client = serving(runs=(run_with_recogniser.folder,), session_folder=tmp_path)
    rows = [{"at": at, "row": row.tolist()} for at, row in enumerate(seen[:12])]
    state, whole, jobs = begin(client), begin(client), Expiring(monkeypatch)
    whole = tell(client, whole, rows=rows)
    most = jobs.asked
    assert most >= len(rows)
    updates, filtered = [], StepChain.filtered
    count = lambda *given: updates.append(1) or filtered(*given)  # noqa: E731
    monkeypatch.setattr(StepChain, "filtered", count)
    for left in (1, 4, most - 1):
        updates.clear()
        jobs.left = left
        late = tell(client, state, 504, rows=rows)
        assert (late["type"], "plan" in late["title"].lower()) == ("urn:cefito:deadline", False)
        assert len(updates) <= 2 * left  # with the usual order, and with doubt in it
        jobs.left = math.inf
        assert read(client, state) == state
    assert tell(client, state, rows=rows) == whole | {"id": state["id"]}


def test_a_long_session_is_read_in_several_requests(
    serving, run_with_recogniser, seen, tmp_path, monkeypatch
):
    runs = (run_with_recogniser.folder,)
    before = serving(runs=runs, session_folder=tmp_path)
    state = begin(before)
    for at, row in enumerate(seen[:8]):
        state = tell(before, state, rows=[{"at": at, "row": row.tolist()}])
    after, jobs = serving(runs=runs, session_folder=tmp_path), Expiring(monkeypatch)
    for _ in range(2):
        jobs.left = 4
        read(after, state, 504)
    jobs.left, jobs.asked = math.inf, 0
    assert read(after, state) == state
    assert jobs.asked < 8  # rows before were applied by the requests before


@pytest.mark.nightly
def test_a_flood_of_gaps_costs_what_its_rows_cost(serving, run_with_recogniser, monkeypatch):
    """Eight clients send rows an hour apart while eight others plan; nothing goes on afterwards."""
    updates, filtered = [], StepChain.filtered
    count = lambda *given: updates.append(1) or filtered(*given)  # noqa: E731
    monkeypatch.setattr(StepChain, "filtered", count)
    limits = {"deadline_seconds": 2}
    client = serving(runs=(run_with_recogniser.folder,), limits=limits)
    states = [tell(client, begin(client), rows=[{"at": 0, "row": None}]) for _ in range(8)]

    def flood(state):
        found = []
        for first in range(0, 4 * 600, 600):
            rows = [{"at": 3600 * (first + place), "row": None} for place in range(600)]
            answer = client.post(f"/v1/sessions/{state['id']}/rows", json={"rows": rows})
            found.append(answer.status_code)
        return found

    def plan(_):
        return [client.post("/v1/plan", json={"task": 0}).status_code for _ in range(20)]

    with ThreadPoolExecutor(16) as threads:
        floods, plans = threads.map(flood, states), threads.map(plan, range(8))
        assert {*chain.from_iterable(floods)} <= {200, 504}
        assert {*chain.from_iterable(plans)} <= {200, 504}  # of machines that do other things
    scheduler, until = client.app.state.service.scheduler, time.monotonic() + 30
    while scheduler.running:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(updates) <= 8 * 4 * (LOST + 600 * (1 + LOST_MORE))
    done = len(updates)
    assert read(client, states[0])["id"] == states[0]["id"]
    assert len(updates) == done


@pytest.mark.parametrize("brief", [True, False])
@pytest.mark.parametrize("value", [1e300, -1e39, 1e38])
def test_a_row_that_is_too_large_is_refused_and_changes_nothing(client, seen, value, brief):
    state, path = begin(client), "/v1/sessions/{}/rows"
    good = [{"at": place, "row": row.tolist()} for place, row in enumerate(seen[:2])]
    odd = {"at": 2, "row": [*seen[2][:-1].tolist(), value]}
    for rows, place in (([odd], 0), ([*good, odd], 2)):
        sent = {"rows": rows, "brief": brief}
        answer = client.post(path.format(state["id"]), json=sent)
        assert answer.status_code == 422
        assert answer.json()["field"] == f"rows.{place}.row"
        assert f"rows.{place}.row.{len(seen[2]) - 1}: " in answer.json()["detail"]
        assert read(client, state)["number"] == 0
