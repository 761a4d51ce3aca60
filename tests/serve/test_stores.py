"""What a store of sessions promises, of files and of a real Valkey; services that share one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi")

from cefito.cli import main
from cefito.errors import ConfigError, install_command
from cefito.serve import settings
from cefito.serve.stores import BehindError, FileStore, GoneError, ValkeyStore
from serve.live_sessions import LONG, TOKEN, Stream, begin, end, read, sent, tell
from serve.valkey_servers import SilentServer, ValkeyServer, needs_server
from tiny_runs import rows_of


@pytest.fixture(scope="module")
def valkey(tmp_path_factory):
    pytest.importorskip("valkey")
    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["files", pytest.param("valkey", marks=needs_server)])
def opened(request, tmp_path):
    """Open the same store once more."""
    if request.param == "files":
        return lambda: FileStore(tmp_path)
    address = request.getfixturevalue("valkey").address
    return lambda: ValkeyStore(address, 60)


@pytest.fixture
def id_(request):
    return request.node.name


def lines(store, id_, place=0):
    return [(line.decode().rstrip("\n"), behind) for line, behind in store.read(id_, place)]


def test_lines_come_back_from_each_place(opened, id_):
    first, second = opened(), opened()
    places = [first.append(id_, 0, "opened")]
    for number in range(600):
        places.append((first, second)[number % 2].append(id_, places[-1], f"event ü {number}"))
    kept = lines(opened(), id_)
    assert [line for line, _ in kept] == ["opened", *(f"event ü {n}" for n in range(600))]
    assert [place for _, place in kept] == places
    assert lines(first, id_, places[598]) == kept[599:]
    assert lines(first, id_, places[-1]) == []


def test_a_line_is_appended_at_its_place_alone(opened, id_):
    """A worker that was paused adds nothing to what another has gone on with."""
    paused, other = opened(), opened()
    begun = paused.append(id_, 0, "opened")
    behind = other.append(id_, begun, "other's")
    for line in ("other's", "paused's", "longer than what the other has written"):
        with pytest.raises(BehindError):
            paused.append(id_, begun, line)
    assert lines(paused, id_, begun) == [("other's", behind)]
    assert paused.append(id_, behind, "then") == lines(other, id_)[-1][1]


def test_of_many_that_append_at_one_place_one_does(opened, id_):
    store = opened()
    if not store.shared:
        pytest.skip("the workers of a service take turns at the files of a session")
    place = store.append(id_, 0, "opened")
    many = [opened() for _ in range(8)]
    for turn in range(20):
        ready = threading.Barrier(len(many))

        def append(number, ready=ready, place=place):
            ready.wait(LONG)
            try:
                return many[number].append(id_, place, f"{number}")
            except BehindError:
                return None

        with ThreadPoolExecutor(len(many)) as threads:
            behind = [*threads.map(append, range(len(many)))]
        (place,) = {*behind} - {None}
        assert behind.count(place) == 1
        assert lines(store, id_)[-1] == (str(behind.index(place)), place)
        assert len(lines(store, id_)) == turn + 2


def test_what_is_gone_stays_gone(opened, id_):
    store = opened()
    place = store.append(id_, 0, "opened")
    for _ in range(2):
        store.delete(id_)
        with pytest.raises(GoneError):
            store.append(id_, place, "late")
        with pytest.raises(GoneError):
            lines(store, id_)
    assert id_ not in store.left()


def test_a_store_that_has_lost_lines_says_so(opened, id_):
    store = opened()
    place = store.append(id_, store.append(id_, 0, "opened"), "lost")
    store.delete(id_)
    store.append(id_, 0, "opened")
    with pytest.raises(BehindError):
        lines(store, id_, place)


def test_sessions_that_a_service_left_are_found_again(opened, id_):
    """Files; of Valkey, its server ends them."""
    store = opened()
    store.append(id_, 0, "opened")
    assert [*opened().left()] == ([] if store.shared else [id_])


@needs_server
def test_valkey_ends_a_session_that_nobody_uses(valkey):
    brief, long = ValkeyStore(valkey.address, 0.2), ValkeyStore(valkey.address, 60)
    place = brief.append("brief", 0, "opened")
    assert len(lines(long, "brief")) == 1  # a use, which lasts
    client = long._client
    assert client.pttl("cefito:brief") > 50_000
    brief.append("brief", place, "event")
    assert client.pttl("cefito:brief") <= 200
    until = threading.Event()
    for _ in range(500):
        if not client.exists("cefito:brief"):
            break
        until.wait(0.02)
    with pytest.raises(GoneError):
        long.append("brief", 2, "late")


def refusal(capsys, run, *options):
    assert main(["serve", str(run), "--port", "0", *options]) == 2
    return capsys.readouterr().err


def test_stores_that_are_refused(place, capsys, monkeypatch):
    """In one line each."""
    address = "valkey://127.0.0.1:1/0"
    both = refusal(capsys, place.run, "--session-store", address, "--session-folder", "state")
    assert "cefito serve: sessions are kept in a folder or in a store; leave out one." in both
    monkeypatch.setattr(settings, "find_spec", lambda name: name != "valkey" or None)
    without = refusal(capsys, place.run, "--session-store", address)
    assert (
        f"needs the package valkey, which is not installed. Run: {install_command('valkey')}"
        in without
    )
    monkeypatch.undo()
    pytest.importorskip("valkey")
    for store, words in (
        (address, "the session store: no answer (Error 111 connecting to 127.0.0.1:1"),
        ("http://127.0.0.1:1", "valkey://"),
        ("valkey://[", "the session store: no answer (Invalid IPv6 URL)"),
    ):
        message = refusal(capsys, place.run, "--session-store", store)
        assert words in message
        assert message.count("\n") == 1


@needs_server
def test_a_password_is_read_from_the_environment(valkey, monkeypatch):
    client = ValkeyStore(valkey.address, 60)._client
    client.config_set("requirepass", "secret")
    try:
        with pytest.raises(ConfigError, match="CEFITO_STORE_PASSWORD"):
            ValkeyStore(valkey.address, 60)
        monkeypatch.setenv("CEFITO_STORE_PASSWORD", "secret")
        store = ValkeyStore(valkey.address, 60)
        assert store.append("with-password", 0, "opened") == 1
    finally:
        client.config_set("requirepass", "")


@pytest.fixture
def two(serving, run_with_recogniser, valkey):
    """Clients of two services with one store."""
    given = {"runs": (run_with_recogniser.folder,), "session_store": valkey.address}
    return [serving(**given, limits={"session_seconds": 60}) for _ in range(2)]


def rows(seen, first, count=1):
    return [{"at": at, "row": seen[at].tolist()} for at in range(first, first + count)]


@needs_server
def test_a_session_goes_on_at_any_service(two, serving, world, run_with_recogniser):
    """Rows, steps told and undone, in turns; the states are those of one service."""
    alone, seen = serving(runs=(run_with_recogniser.folder,)), rows_of(world, 0)
    state, reference = begin(two[0], task=0), begin(alone, task=0)
    events = [{"rows": rows(seen, at)} for at in range(6)]
    events += [{"done": 2}, {"undo": True}, {"rows": rows(seen, 6, 3)}, {"rows": rows(seen, 0)}]
    for number, event in enumerate(events):
        turn = number % 3 % 2
        expected = tell(alone, reference, **event) | {"id": state["id"]}
        assert tell(two[turn], state, **event) == expected
        assert read(two[1 - turn], state) == read(alone, reference) | {"id": state["id"]}
    end(two[1], state)
    for service in two:
        assert "no such session" in read(service, state, 404)["detail"]
        assert tell(service, state, 404, undo=True)["type"] == "urn:cefito:not-found"


@needs_server
def test_rows_sent_to_both_services_at_once_are_counted_once(two, world, valkey):
    seen, state = rows_of(world, 0), begin(two[0])
    for at in range(12):
        with ThreadPoolExecutor(2) as threads:
            answers = [*threads.map(lambda of, at=at: tell(of, state, rows=rows(seen, at)), two)]
        assert [answer["number"] for answer in answers] == [at + 1] * 2
        assert answers[0] | {"notes": []} == answers[1] | {"notes": []}  # one was late
    store = ValkeyStore(valkey.address, 60)
    assert 40_000 < store._client.pttl(f"cefito:{state['id']}") <= 60_000  # as the services say
    kept = lines(store, state["id"])
    assert (len(kept), str(seen[0][0].item())[:6] in kept[1][0]) == (13, True)


@needs_server
def test_while_valkey_is_away_nothing_is_acknowledged(
    serving, run_with_recogniser, world, tmp_path
):
    """What was acknowledged comes back with it, and the services go on."""
    seen = rows_of(world, 0)
    with ValkeyServer(tmp_path) as server:
        given = {"runs": (run_with_recogniser.folder,), "session_store": server.address}
        service = serving(**given)
        state = begin(service)
        state = tell(service, state, rows=rows(seen, 0))
        server.kill()
        for problem in (
            tell(service, state, 503, rows=rows(seen, 1)),
            read(service, state, 503),
            read(service, {"id": "ses_of_another_service"}, 503),
            begin(service, 503),
        ):
            assert problem["type"] == "urn:cefito:not-ready"
        assert service.delete(f"/v1/sessions/{state['id']}").status_code == 503
        assert service.post("/v1/plan", json={"task": 0}).status_code == 200
        server.begin()
        assert read(service, state) == state
        other = serving(**given)
        again = tell(other, state, rows=rows(seen, 1))
        assert again["number"] == 2
        assert read(service, state) == again


@needs_server
def test_events_that_valkey_has_lost_are_told(two, valkey, world, caplog):
    """As after a failure of its power: both services go on with what is left."""
    seen, state = rows_of(world, 0), begin(two[0])
    first = tell(two[0], state, rows=rows(seen, 0))
    tell(two[0], state, rows=rows(seen, 1))
    store = ValkeyStore(valkey.address, 60)
    kept = lines(store, state["id"])[:2]
    store.delete(state["id"])
    place = store.append(state["id"], 0, kept[0][0])
    store.append(state["id"], place, kept[1][0])
    assert read(two[0], state) == first == read(two[1], state)
    assert sum("lost events" in message for message in caplog.messages) == 1
    assert tell(two[1], state, rows=rows(seen, 1))["number"] == 2


@needs_server
def test_what_is_no_session_is_refused(two, valkey, caplog):
    """Lines of another program, and an entry that is missing."""
    store = ValkeyStore(valkey.address, 60)
    state = begin(two[0])
    store.append("other", 0, "[]")
    assert read(two[0], {"id": "other"}, 404)["type"] == "urn:cefito:not-found"
    store._client.set("cefito:text", "no stream")
    assert read(two[0], {"id": "text"}, 503)["type"] == "urn:cefito:not-ready"
    store._client.xadd(f"cefito:{state['id']}", {"line": '{"undo":true}'}, "5-0")
    assert "cannot be read. End it" in read(two[1], state, 404)["detail"]
    assert "line 2 is missing" in caplog.text
    end(two[1], state)


@needs_server
def test_a_stream_shows_what_another_service_adds(
    listening, serving, place, run_with_recogniser, valkey, world
):
    given = {"runs": (run_with_recogniser.folder,), "session_store": valkey.address, "token": TOKEN}
    with listening(place.settings(**given)) as first, listening(place.settings(**given)) as second:
        ports = [int(address.rpartition(":")[2]) for address in (first, second)]
        _, state = sent(ports[0], "POST", "/v1/sessions", {})
        stream, path = Stream(ports[1], state["id"]), f"/v1/sessions/{state['id']}"
        assert stream.event() == ("0", "state", state)
        for at in range(3):
            event = {"rows": rows(rows_of(world, 0), at)}
            status, state = sent(ports[0], "POST", f"{path}/events", event)
            assert status == 200
            assert stream.event() == (str(at + 1), "state", state)
        assert sent(ports[0], "DELETE", path) == (204, None)
        assert stream.event()[1:] == ("end", {"detail": "the session was closed, or has expired."})
        assert stream.ends()


@needs_server
def test_a_session_that_is_idle_at_one_service_goes_on_at_another(
    serving, run_with_recogniser, valkey, world
):
    """The service forgets it, Valkey keeps it, and the service finds it again."""
    given = {"runs": (run_with_recogniser.folder,), "session_store": valkey.address}
    brief, long = serving(**given, limits={"session_seconds": 0.3}), serving(**given)
    seen, state = rows_of(world, 0), begin(brief)
    tell(long, state, rows=rows(seen, 0))
    until = threading.Event()
    for _ in range(500):
        if "cefito_sessions 0.0" in brief.get("/metrics").text:
            break
        until.wait(0.02)
    assert "cefito_sessions 0.0" in brief.get("/metrics").text
    assert "cefito_sessions_expired_total 0.0" in brief.get("/metrics").text
    assert tell(brief, state, rows=rows(seen, 1))["number"] == 2


@needs_server
def test_an_event_whose_answer_was_lost_may_be_in_the_session(
    serving, run_with_recogniser, valkey, world
):
    """Valkey has it and ends the connection: the request fails, and the number says so."""
    seen = rows_of(world, 0)
    with SilentServer(valkey.port) as between:
        address = f"valkey://127.0.0.1:{between.port}/0"
        service = serving(runs=(run_with_recogniser.folder,), session_store=address)
        state = tell(service, begin(service), rows=rows(seen, 0))
        between.silent_after = b"XADD"
        assert tell(service, state, 503, rows=rows(seen, 1))["type"] == "urn:cefito:not-ready"
        between.silent_after = None
        assert (state["number"], read(service, state)["number"]) == (1, 2)
        # a row that it has is not counted twice
        assert tell(service, state, rows=rows(seen, 1))["number"] == 2
        end(service, state)


@needs_server
def test_each_service_counts_the_sessions_that_it_answers(
    serving, run_with_recogniser, valkey, world
):
    given = {"runs": (run_with_recogniser.folder,), "session_store": valkey.address}
    full, other = (serving(**given, limits={"sessions": 2}) for _ in range(2))
    states = [begin(full), begin(other)]
    assert read(full, states[1]) == states[1]
    assert begin(full, 429)["type"] == "urn:cefito:busy"
    states.append(begin(other))
    for state in states:
        end(other, state)
