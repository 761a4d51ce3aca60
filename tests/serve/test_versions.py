"""Two versions of a run: a link leads to one, live sessions keep the one that they began with."""

from __future__ import annotations

import shutil
import weakref

import pytest

from serve.live_sessions import begin, end, read, tell, until

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


def test_upgrade_look_and_back(serving, versions):
    lead, link = versions
    client = serving(runs=(link,), datasets=())
    first = described(client)
    old = begin(client, run="current")
    lead("v2")
    assert described(client) == first
    client.app.state.service.reload()
    second = described(client)
    assert (first[:2], second[:2]) == (("current", 0), ("current", 99))
    assert first[2] != second[2]
    new = begin(client, run="current")
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
    assert sum("its run is gone" in message for message in caplog.messages) == 3


def test_a_kept_session_of_a_version_that_has_changed(serving, versions, tmp_path, caplog):
    """It goes on with the version that is served, which the log says."""
    lead, link = versions
    settings = {"runs": (link,), "datasets": (), "session_folder": tmp_path / "state"}
    state = begin(serving(**settings), run="current")
    lead("v2")
    shutil.rmtree(tmp_path / "v1")
    shutil.copytree(tmp_path / "v2", tmp_path / "v1")
    after = serving(**settings)
    assert older(after) == 0
    assert tell(after, state, done=0)["number"] == 1
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "its run is gone; it follows the one of its name"
    ]


def test_a_link_to_nothing_leaves_the_run_as_it_was(serving, versions, caplog):
    lead, link = versions
    client = serving(runs=(link,), datasets=())
    first = described(client)
    lead("v3")
    client.app.state.service.reload()
    assert described(client) == first
    kept = f"'current' (steps 1-4), digest {first[2][:12]}: "
    assert caplog.messages[-1].startswith(f"the run is kept as it was, {kept}")


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
    monkeypatch.setattr("cefito.serve.sessions.RELEASED", 0.0)
    end(client, state)
    until(lambda: first() is None)
    second = weakref.ref(service.models.runs[0].run)
    lead("v1")
    service.reload()
    assert second() is None
