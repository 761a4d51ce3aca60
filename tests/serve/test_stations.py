"""Stations with tokens of their own: roles, sessions, and a file that changes while it is used."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.errors import RunError
from cefito.serve.settings import read_token
from cefito.serve.stations import Access, Stations
from serve.live_sessions import Stream, begin, end, read, sent, tell

ROLES = ("watch", "use", "administer")


def called(capsys, *argv, code=0):
    """What a command writes to stdout, or to stderr if it is refused."""
    assert main(["token", *map(str, argv)]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens.json"


@pytest.fixture
def tokens(file, capsys):
    """Tokens of a station of each role, by the role, which is its name; and of another of `use`."""
    stations = (*ROLES, "other")
    return {
        name: called(capsys, "add", file, name, "--role", name if name in ROLES else "use").strip()
        for name in stations
    }


class AsStation:
    """A client that sends a token."""

    def __init__(self, client, token):
        self.client, self.headers = client, {"authorization": f"Bearer {token}"}

    def __getattr__(self, name):
        def ask(*path, **arguments):
            return getattr(self.client, name)(*path, **arguments, headers=self.headers)

        return ask


@pytest.fixture
def clients(serving, run_of_lengths, file, tokens):
    """A client of each station, and one without a token."""
    client = serving(runs=(run_of_lengths.folder,), stations=file, mcp=True)
    return {"nobody": client, **{name: AsStation(client, of) for name, of in tokens.items()}}


def test_tokens_are_made_listed_and_removed(file, capsys):
    token = called(capsys, "add", file, "bench-1").strip()
    (said,) = json.loads(called(capsys, "add", file, "screen", "--role", "watch", "--json"))
    assert said["role"] == "watch"
    kept = json.loads(file.read_text())["stations"]
    assert kept[0]["sha256"] == hashlib.sha256(token.encode()).hexdigest()
    assert len(token) == 47  # 256 bits, after a begin by which the log knows it
    assert token not in file.read_text()
    listed = json.loads(called(capsys, "list", file, "--json"))
    expected = [("bench-1", "use"), ("screen", "watch")]
    assert [(station["name"], station["role"]) for station in listed] == expected
    assert "has a token already" in called(capsys, "add", file, "screen", code=2)
    assert "'b' comes twice" in called(capsys, "add", file, "b", "b", code=2)
    assert "name 'bad name': expected" in called(capsys, "add", file, "bad name", code=2)
    assert "no station 'x'; there are bench-1, screen" in called(
        capsys, "remove", file, "x", code=2
    )
    removed = json.loads(called(capsys, "remove", file, "bench-1", "--json"))
    assert removed == {"removed": "bench-1"}
    assert [station.name for station in Stations.read(file).stations] == ["screen"]
    for name in ("", "a b", "-x", "a\nb", "é", "x" * 65, "../x"):
        assert called(capsys, "add", file, "--", name, code=2).count("\n") == 1


def test_several_stations_are_added_at_once_or_none_of_them(file, capsys):
    names = [f"bench-{number:02}" for number in range(1, 51)]
    printed = dict(line.split() for line in called(capsys, "add", file, *names).splitlines())
    assert [*printed] == names
    before = file.read_bytes()
    kept = {station.name: station for station in Stations.read(file).stations}
    assert {name: of.sha256 for name, of in kept.items()} == {
        name: hashlib.sha256(token.encode()).hexdigest() for name, token in printed.items()
    }
    assert {station.role for station in kept.values()} == {"use"}
    for refused in (["new", "bench-07"], ["new", "new"], ["new", "a b"]):
        assert called(capsys, "add", file, *refused, code=2).count("\n") == 1
        assert file.read_bytes() == before
    said = json.loads(called(capsys, "add", file, "x", "y", "--role", "watch", "--json"))
    assert [(of["name"], of["role"]) for of in said] == [("x", "watch"), ("y", "watch")]


def test_a_token_is_made_without_what_planning_needs(file):
    code = (
        "import sys; from cefito.cli import main; main(sys.argv[1:]); "
        "print({'numpy', 'torch', 'fastapi'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code, "token", "add", str(file), "bench"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[1] == "set()"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"stations": [{"name": "a", "role": "root", "sha256": "0"}]}', "role"),
        ('{"stations": 1}', "stations"),
        ("{", "JSON"),
        (
            json.dumps(
                {"stations": [{"name": name, "role": "use", "sha256": "0" * 64} for name in "ab"]}
            ),
            "one token",
        ),
    ],
)
def test_files_that_hold_no_stations_are_refused(place, file, text, words):
    file.write_text(text)
    with pytest.raises(RunError, match=words):
        Access(place.settings(stations=file))


@pytest.mark.parametrize(
    ("method", "path", "body", "least"),
    [
        ("get", "/health", None, "nobody"),
        ("get", "/", None, "watch"),
        ("get", "/v1/model", None, "watch"),
        ("get", "/v1/videos", None, "watch"),
        ("post", "/v1/plan", {"task": 0}, "use"),
        ("post", "/v1/plan/upload", {}, "use"),
        ("post", "/v1/recognise", {}, "use"),
        ("post", "/v1/verify", {}, "use"),
        ("post", "/v1/sessions", {}, "use"),
        ("post", "/mcp", {}, "use"),
        ("delete", "/v1/sessions/none", None, "use"),
        ("get", "/metrics", None, "administer"),
    ],
)
def test_roles(clients, method, path, body, least):
    ranks = ("nobody", *ROLES)
    for role in ranks:
        arguments = {} if body is None else {"json": body}
        response = getattr(clients[role], method)(path, **arguments)
        admitted = ranks.index(role) >= ranks.index(least)
        expected = None if admitted else 401 if role == "nobody" else 403
        assert (response.status_code if response.status_code in (401, 403) else None) == expected
        if expected == 403:
            problem = response.json()
            assert problem["type"] == "urn:cefito:role"
            assert problem["detail"].startswith(f"the station '{role}' has the role '{role}'")


def test_who_watches_reads_every_route_but_metrics(clients):
    routes = clients["nobody"].app.openapi()["paths"]
    reading = [path for path, of in routes.items() if "get" in of]
    refused = [path for path in reading if clients["watch"].get(path).status_code in (401, 403)]
    assert refused == ["/metrics"]


def test_sessions_are_those_of_the_station_that_opened_them(clients):
    state = begin(clients["use"])
    assert tell(clients["use"], state, done=0)["number"] == 1
    for ask in (read, end_refused):
        ask(clients["other"], state, 404)
    assert tell(clients["other"], state, 404, done=1)["type"] == "urn:cefito:not-found"
    assert read(clients["watch"], state)["number"] == 1  # who has its id
    assert tell(clients["administer"], state, done=1)["number"] == 2
    call = {"name": "add_event", "arguments": {"id": state["id"], "done": 2}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    told = clients["other"].post("/mcp", json=message).json()["result"]
    assert (told["isError"], "no such session" in told["content"][0]["text"]) == (True, True)
    end(clients["use"], state)


def end_refused(client, state, status):
    assert client.delete(f"/v1/sessions/{state['id']}").status_code == status


def test_limits_and_threads_are_those_of_a_station(
    serving, run_of_lengths, file, tokens, monkeypatch
):
    settings = {"stations": file, "limits": {"client_sessions": 1}}
    client = serving(runs=(run_of_lengths.folder,), **settings)
    scheduler, sharing = client.app.state.service.scheduler, []
    submit = scheduler.submit
    monkeypatch.setattr(scheduler, "submit", lambda job: sharing.append(job.client) or submit(job))
    for name in ("use", "other"):  # of one address
        station = AsStation(client, tokens[name])
        begin(station)
        assert "1 sessions of this client are open" in begin(station, 429)["detail"]
    assert [*dict.fromkeys(sharing)] == ["station use", "station other"]


def test_a_token_is_refused_once_it_is_removed_and_taken_once_it_is_added(
    clients, file, capsys, caplog
):
    caplog.set_level(logging.INFO, logger="cefito.events")

    def status(name):
        return clients[name].get("/v1/model").status_code

    assert status("use") == status("watch") == 200
    called(capsys, "remove", file, "use")
    assert [status("use"), status("watch")] == [401, 200]
    problem = clients["use"].get("/v1/model").json()["detail"]
    assert problem.startswith("the token is not valid")
    token = called(capsys, "add", file, "late").strip()
    late = AsStation(clients["nobody"], token)
    assert late.get("/v1/model").status_code == 200
    content = file.read_text()
    for odd in ("{", None):
        file.unlink() if odd is None else file.write_text(odd)
        assert [status("watch"), status("use")] == [200, 401]
        kept = f"4 stations, digest {hashlib.sha256(content.encode()).hexdigest()[:12]}"
        assert caplog.messages[-1].startswith(f"all tokens stay as they were, {kept}: ")
    file.write_text(content)
    assert late.get("/v1/model").status_code == 200
    assert caplog.messages[-1] == f"tokens read anew: {kept}"
    file.write_text("{}")
    assert late.get("/v1/model").status_code == 401
    assert caplog.messages[-1] == f"nobody has a token now: {file} has no stations"


@pytest.mark.parametrize("limits", [{}, {"heartbeat_seconds": 0.05}], ids=["event", "life"])
def test_a_stream_ends_once_its_station_is_removed(
    place, run_of_lengths, listening, file, tokens, capsys, limits
):
    """At its next event, or at a sign of life."""
    settings = place.settings(runs=(run_of_lengths.folder,), stations=file, limits=limits)
    with listening(settings) as address:
        port = int(address.rpartition(":")[2])
        headers = {name: {"authorization": f"Bearer {of}"} for name, of in tokens.items()}
        _, state = sent(port, "POST", "/v1/sessions", {}, **headers["use"])
        watched = Stream(port, state["id"], **headers["watch"])
        followed = Stream(port, state["id"], **headers["use"])
        assert watched.event() == followed.event() == ("0", "state", state)
        called(capsys, "remove", file, "watch")
        if not limits:
            path = f"/v1/sessions/{state['id']}/events"
            status, told = sent(port, "POST", path, {"done": 0}, **headers["use"])
            assert status == 200
            assert followed.event() == ("1", "state", told)
        assert watched.event() == (None, "end", {"detail": "the token was removed."})
        assert watched.ends()
        followed.connection.close()


def test_the_log_names_the_station(clients, caplog):
    caplog.set_level(logging.INFO, logger="cefito.requests")
    clients["watch"].get("/v1/model")
    clients["nobody"].get("/v1/model")
    lines = [record.getMessage().partition(" ")[2] for record in caplog.records]
    assert [line.partition(" HTTP")[0] for line in lines] == [
        'watch "GET /v1/model',
        '- "GET /v1/model',
    ]
    stations = [record.facts.get("station") for record in caplog.records]
    assert stations == ["watch", None]


def test_a_file_with_one_token_is_as_before(tmp_path, file, tokens, capsys):
    one = tmp_path / "token.txt"
    one.write_text("0123456789abcdef\n")
    refused = called(capsys, "add", one, "bench", code=2)
    assert "not valid JSON" in refused
    assert "Put a copy of it back, or add all stations to a new file" in refused
    assert read_token(one).get_secret_value() == "0123456789abcdef"
    assert read_token(file) is None


def test_the_commands_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text("utf-8")
    lines = re.findall(r"^cefito token (.*?)(?: *#.*)?$", page, re.MULTILINE)
    words = [subprocess.check_output(["bash", "-c", f"echo {line}"], text=True) for line in lines]
    said = [called(capsys, *line.split()) for line in words]
    assert [text[:4] for text in said[:3]] == ["cft_"] * 3
    assert [line[:12] for line in said[3].splitlines()] == [
        f"bench-{number:02} cft" for number in range(8, 51)
    ]
    assert "operator  administer" in said[4]
    kept = [(station.name, station.role) for station in Stations.read(Path("tokens.json")).stations]
    assert kept[:3] == [("screen", "watch"), ("operator", "administer"), ("bench-08", "use")]
    assert len(kept) == 45
