"""Two versions of a run: a link leads to one, live sessions keep the one that they began with."""

from __future__ import annotations

import shutil
import threading
import weakref
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from cefito.encoders.video import open_encoder, record
from cefito.inference.answer import answers
from cefito.serve import service, sessions
from cefito.serve.problems import ProblemError
from grey_videos import jpeg
from serve.conftest import EncodingHere
from serve.live_sessions import begin, end, read, tell, until
from tiny_models import tiny_dinov2

GAUGE = "cefito_sessions_older"


@pytest.fixture
def versions(run_of_lengths, tmp_path):
    """A function that lets the link lead to a version, and the link."""
    shutil.copytree(run_of_lengths.folder, tmp_path / "v1")
    second = tmp_path / "v2"
    second.mkdir()
    info = run_of_lengths.info.model_copy(update={"seed": 99})
    run_of_lengths.changed(folder=second, info=info).written()

    def lead(name):
        (tmp_path / "new").symlink_to(name)
        (tmp_path / "new").replace(tmp_path / "current")

    lead("v1")
    return lead, tmp_path / "current"


def described(client):
    (run,) = client.get("/v1/model").json()["runs"]
    return run["name"], run["seed"], run["digest"]


def older(client):
    return float(client.get("/metrics").text.partition(f"\n{GAUGE} ")[2].partition("\n")[0])


def test_upgrade_look_and_back(serving, versions, monkeypatch):
    (lead, link), seeds = versions, []
    client = serving(runs=(link,), datasets=())
    first = described(client)
    old = begin(client, run="current")
    lead("v2")
    assert described(client) == first

    def upgraded(several, **how):  # while a request is in progress
        client.app.state.service.reload()
        seeds.append(several[0].run.info.seed)
        return answers(several, **how)

    monkeypatch.setattr(service, "answers", upgraded)
    assert client.post("/v1/plan", json={"task": 0}).status_code == 200
    second = described(client)
    assert (seeds, second[1]) == ([0], 99)
    assert (first[:2], second[:2]) == (("current", 0), ("current", 99))
    assert first[2] != second[2]
    new = begin(client, run="current")
    assert (old["digest"], new["digest"]) == (first[2], second[2])
    assert old["run"] == new["run"] == "current"
    assert tell(client, old, done=0)["number"] == tell(client, new, done=0)["number"] == 1
    assert older(client) == 1
    end(client, old)
    assert older(client) == 0
    lead("v1")
    client.app.state.service.reload()
    assert described(client) == first
    assert older(client) == 1
    assert read(client, new)["number"] == 1


def test_kept_sessions_go_on_with_their_version(serving, versions, tmp_path, caplog):
    lead, link = versions
    settings = {"runs": (link,), "datasets": (), "session_folder": tmp_path / "state"}
    before = serving(**settings)
    states = [begin(before, run="current") for _ in range(3)]
    told = tell(before, states[0], done=0)
    lead("v2")
    after = serving(**settings)
    assert described(after)[1] == 99
    assert older(after) == 3
    assert read(after, states[0]) == told
    new = begin(after, run="current")
    shutil.rmtree(tmp_path / "v1")
    assert caplog.messages == []
    again = serving(**settings)
    assert older(again) == 0
    assert read(again, states[0])["number"] == 1
    assert read(again, new)["number"] == 0
    assert sum("is gone; it follows" in message for message in caplog.messages) == 3


def test_a_kept_session_of_a_version_that_has_changed(
    serving, versions, run_of_lengths, tmp_path, caplog
):
    """It goes on with the version that is served, which the log says."""
    lead, link = versions
    settings = {"runs": (link,), "datasets": (), "session_folder": tmp_path / "state"}
    before = serving(**settings)
    state, old = begin(before, run="current"), described(before)[2][:12]
    lead("v2")
    shutil.rmtree(tmp_path / "v1")
    (third := tmp_path / "v1").mkdir()
    info = run_of_lengths.info.model_copy(update={"seed": 7})
    run_of_lengths.changed(folder=third, info=info).written()
    after = serving(**settings)
    assert older(after) == 0
    assert tell(after, state, done=0)["number"] == 1
    new = described(after)[2][:12]
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        f"its run 'current', digest {old}, is gone; it follows 'current' (steps 1-4), digest {new}"
    ]


def test_a_request_in_progress_keeps_its_run(serving, versions, monkeypatch):
    """The runs are opened anew while its search waits for a thread."""
    lead, link = versions
    client, seeds, quick = serving(runs=(link,), datasets=()), list[int](), answers
    scheduler = client.app.state.service.scheduler
    submit = scheduler.submit

    def submit_late(job):
        lead("v2")
        client.app.state.service.reload()
        submit(job)

    def noted(several, stop):
        seeds.extend(one.run.info.seed for one in several)
        return quick(several, stop=stop)

    monkeypatch.setattr(scheduler, "submit", submit_late)
    monkeypatch.setattr(service, "answers", noted)
    assert client.post("/v1/plan", json={"task": 0}).status_code == 200
    assert (seeds, described(client)[1]) == ([0], 99)


def test_a_link_to_nothing_leaves_the_run_as_it_was(serving, versions, caplog):
    lead, link = versions
    client = serving(runs=(link,), datasets=())
    first = described(client)
    lead("v3")
    client.app.state.service.reload()
    assert described(client) == first
    kept = f"'current' (steps 1-4), digest {first[2][:12]}: {link}"
    assert caplog.messages[-1].startswith(f"the run is kept as it was, {kept}/run.json: no such")
    assert caplog.messages[-1].endswith(f" {link} leads to {link.with_name('v3')}.")


def test_a_version_is_released_once_no_session_follows_it(serving, versions, monkeypatch):
    lead, link = versions
    client = serving(runs=(link,), datasets=())
    service = client.app.state.service
    first = weakref.ref(service.models.runs[0].run)
    state = begin(client, run="current")
    tell(client, state, done=0)
    lead("v2")
    service.reload()
    assert first() is not None
    assert tell(client, state, done=1)["number"] == 2
    assert 2 < sessions.RELEASED < 10  # some seconds
    monkeypatch.setattr(sessions, "RELEASED", 0.0)
    end(client, state)
    until(lambda: first() is None)
    second = weakref.ref(service.models.runs[0].run)
    lead("v1")
    service.reload()
    assert second() is None


class Loading(EncodingHere):
    """Its encoders are loaded once `loaded` is set, or cannot be."""

    loaded = threading.Event()
    begun: ClassVar[list[Any]] = []
    problem: ClassVar[ProblemError | None] = None

    def start(self) -> Future[Any]:
        self.begun.append(self)
        self.loading = True

        def load() -> str:
            assert self.loaded.wait(60)
            if self.problem is not None:
                raise self.problem
            said: str = self._encode(None)
            self.loading = False
            return said

        return self._thread.submit(load)


@pytest.fixture
def seeing(serving, run_with_recogniser, encoding_here, tmp_path, monkeypatch):
    """A function that makes a client, one that lets its link lead to a version, and `Loading`.

    The features of v1 and v2 are of one encoder; v3 says of its own what it was made with.
    """
    pytest.importorskip("transformers")
    model = str(tiny_dinov2(tmp_path / "dinov2", size=24))
    info, features = run_with_recogniser.info, record(open_encoder(model))
    for number, observed in enumerate(({}, {}, {"seconds": 1, "features": features}), 1):
        (folder := tmp_path / f"v{number}").mkdir()
        dataset = info.dataset.model_copy(update={"observed": observed})
        changed = info.model_copy(update={"seed": number, "dataset": dataset})
        run_with_recogniser.changed(folder=folder, info=changed).written()

    def lead(name):
        (tmp_path / "new").symlink_to(name)
        (tmp_path / "new").replace(tmp_path / "current")

    def make():
        Loading.loaded.clear()
        state = tmp_path / "state"
        client = serving(runs=(tmp_path / "current",), encoder=model, session_folder=state)
        assert client.get("/ready").status_code == 503
        Loading.loaded.set()
        until(lambda: client.get("/ready").status_code == 200)
        return client

    monkeypatch.setattr(service, "EncodingProcess", Loading)
    monkeypatch.setattr(Loading, "begun", [])
    lead("v1")
    return make, lead, Loading


def show(client, state, at):
    path = f"/v1/sessions/{state['id']}/pictures"
    answer = client.post(path, params={"at": at, "brief": True}, content=jpeg(90))
    return answer.status_code, answer.json().get("number")


def test_pictures_are_taken_while_the_encoder_of_a_new_version_is_loaded(seeing):
    make, lead, loading = seeing
    client = make()
    old = begin(client, run="current")
    assert show(client, old, 0) == (200, 1)
    lead("v3")
    loading.loaded.clear()
    reload = threading.Thread(target=client.app.state.service.reload)
    reload.start()
    until(lambda: len(loading.begun) == 2)
    assert show(client, old, 1) == (200, 2)
    assert described(client)[1] == 1
    assert client.get("/ready").status_code == 200
    loading.loaded.set()
    reload.join(60)
    assert described(client)[1] == 3
    new = begin(client, run="current")
    assert (show(client, old, 2), show(client, new, 0)) == ((200, 3), (200, 1))


def test_a_version_with_the_same_encoder_loads_none(seeing):
    make, lead, loading = seeing
    client = make()
    old = begin(client, run="current")
    lead("v2")
    client.app.state.service.reload()
    new = begin(client, run="current")
    assert described(client)[1] == 2
    assert (show(client, old, 0), show(client, new, 0)) == ((200, 1), (200, 1))
    assert len(loading.begun) == 1


def test_a_version_whose_encoder_cannot_be_loaded_is_not_taken(seeing, monkeypatch, caplog):
    make, lead, loading = seeing
    client = make()
    lead("v3")
    monkeypatch.setattr(loading, "problem", ProblemError("no memory."))
    client.app.state.service.reload()
    assert described(client)[1] == 1
    assert caplog.messages[-1].startswith("all runs are kept as they were, 'current'")
    assert show(client, begin(client, run="current"), 0) == (200, 1)


def test_a_restarted_service_is_ready_once_the_encoders_of_all_sessions_are(seeing):
    make, lead, loading = seeing
    lead("v3")
    state = begin(make(), run="current")
    lead("v1")
    after = make()
    assert len(loading.begun) == 2  # of the service before, and one for both versions
    made_with = {str(of.recipe.made_with) for of in loading.begun[1].function.opened.values()}
    assert len(made_with) == 2
    assert show(after, state, 0) == (200, 1)
    assert show(after, begin(after, run="current"), 0) == (200, 1)
