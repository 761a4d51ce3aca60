"""The log: lines of text or of JSON, with no id of a session."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path

import pytest

from cefito.serve.logs import logged_to_stderr, requests_log
from cefito.serve.settings import TOKEN_VARIABLE, events_log
from cefito.serve.stations import Stations
from serve.live_sessions import TOKEN, begin, end, read, sent
from serve.test_process import Server

SECRET = "ses_abcdEFGHijklMNOP-rst_v"


@pytest.fixture
def log(monkeypatch):
    """Make the log of a form, as text that grows."""
    stderr = io.StringIO()
    loggers = logging.getLogger(), requests_log, events_log
    before = [(logger.level, [*logger.handlers]) for logger in loggers]
    with ExitStack() as stack:

        def make(form, requests=True):
            monkeypatch.setattr("sys.stderr", stderr)
            stack.enter_context(logged_to_stderr(form, requests=requests))
            return stderr

        yield make
    assert [(logger.level, [*logger.handlers]) for logger in loggers] == before


@pytest.mark.parametrize("form", ["text", "json"])
def test_ids_of_sessions_are_masked_wherever_they_stand(log, form):
    text = log(form)
    try:
        raise KeyError(SECRET)
    except KeyError:
        logging.getLogger("cefito").exception("/data/sessions/%s.jsonl: is odd", SECRET)
    assert "/data/sessions/ses_abcd…" in text.getvalue().replace("\\u2026", "…")
    assert "KeyError" in text.getvalue()
    assert ('"traceback": ' in text.getvalue()) == (form == "json")
    assert SECRET[8:] not in text.getvalue()
    token = Stations().add("bench", "use")[1]
    logging.getLogger("cefito").warning("?token=%s", token)
    assert token[:8] in text.getvalue()
    assert token[8:] not in text.getvalue()


def test_requests_are_lines_with_their_time_but_without_ids_of_sessions(
    serving, run_of_lengths, log
):
    client, text = serving(runs=(run_of_lengths.folder,)), log("text")
    state = begin(client)
    read(client, state, top_k=3)
    client.get(f"/v1/sessions%25252F{state['id']}")  # the client decodes it once
    end(client, state)
    lines = text.getvalue().splitlines()
    assert state["id"] not in text.getvalue()
    shown = re.escape(state["id"][:8])
    assert [re.sub(r"^.* - ", "", re.sub(r"\d+\.\d ms$", "MS", line)) for line in lines] == [
        '"POST /v1/sessions HTTP/1.1" 201 MS',
        f'"GET /v1/sessions/{state["id"][:8]}…?top_k=3 HTTP/1.1" 200 MS',
        f'"GET /v1/sessions%252F{state["id"][:8]}… HTTP/1.1" 404 MS',
        f'"DELETE /v1/sessions/{state["id"][:8]}… HTTP/1.1" 204 MS',
    ]
    assert re.match(rf"\d{{4}}-.* [0-9a-f]{{32}} INFO: +testclient:\d+ .*{shown}", lines[1])


def test_the_log_leaves_out_that_all_is_well_and_names_the_route_of_what_is_refused(
    serving, monkeypatch, log
):
    client, text = serving(token=TOKEN), log("json")
    assert client.get("/health").status_code == client.get("/ready").status_code == 200
    for path in ("/v1/sessions/ses_x", "/v1/nothing"):
        assert client.get(path).status_code == 401
    monkeypatch.setattr(client.app.state.service, "starting", None)
    monkeypatch.setattr(client.app.state.service.scheduler, "open", False)
    assert client.get("/ready").status_code == 503
    entries = [json.loads(line) for line in text.getvalue().splitlines()]
    assert [(entry["path"], entry["status"]) for entry in entries] == [
        ("/v1/sessions/{id}", 401),
        (None, 401),
        ("/ready", 503),
    ]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_defect_is_in_the_log_under_the_id_of_its_request(serving, monkeypatch, log, form):
    client, text = serving(), log(form)
    monkeypatch.setattr(client.app.state.service.models, "describe", lambda _: 1 / 0)
    answer = client.get("/v1/model")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:cefito:internal")
    assert "division" not in answer.text
    first, *_ = text.getvalue().splitlines()
    assert f"request {answer.json()['request_id']}: a defect" in first
    if form == "json":
        four = ["time", "level", "message", "request_id"]
        assert [*json.loads(first)] == [*four, "traceback"]
        assert json.loads(first)["request_id"] == answer.json()["request_id"]
    assert "ZeroDivisionError" in text.getvalue()


def test_a_quiet_log_has_no_requests(client, log):
    text = log("text", requests=False)
    assert client.get("/v1/model").status_code == 200
    assert text.getvalue() == ""
    logging.getLogger("cefito").warning("a warning")
    events_log.info("an event")
    assert [line.split(": ")[-1].strip() for line in text.getvalue().splitlines()] == [
        "a warning",
        "an event",
    ]


def test_every_line_is_json_and_metrics_need_no_token_on_their_port(
    place, run_of_lengths, tmp_path, monkeypatch
):
    """Those of uvicorn, too: it says itself which bytes are no request."""
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / f"{SECRET}.jsonl").write_text("nothing\n")
    options = ("--log-format", "json", "--session-folder", str(tmp_path), "--metrics-port", "0")
    options += ("--metrics-host", "127.0.0.2")
    with Server(place.run, str(run_of_lengths.folder), *options) as server:
        state = sent(server.port, "POST", "/v1/sessions", {"run": "run"})[1]
        asked = {"x-request-id": "a-request", "x-forwarded-for": "10.0.0.1"}
        assert sent(server.port, "GET", f"/v1/sessions/{state['id']}", **asked)[0] == 200
        with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
            connection.sendall(b"no request\r\n\r\n")
            server.wait_for("Invalid HTTP request")
        metrics = re.search(r"metrics on (http://127.0.0.2:\d+/metrics)", "".join(server.lines))
        with urllib.request.urlopen(metrics[1]) as answer:
            assert 'cefito_requests_total{method="POST",route="/v1/sessions"' in str(answer.read())
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics")
        before = list(server.lines)
        server.lines.clear()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("'tea' (horizon 3), digest ")
        assert server.end() == 0
    entries = [json.loads(line) for line in (*before, *server.lines)]
    times = [datetime.fromisoformat(entry["time"]) for entry in entries]
    assert {time.utcoffset().total_seconds() for time in times} == {0}
    by_path = {entry["path"]: entry for entry in entries if entry["message"] == "request"}
    entry = by_path["/v1/sessions/{id}"]
    page = (Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text("utf-8")
    (example,) = re.findall(r'^{"time": .*?}$', page, re.MULTILINE | re.DOTALL)
    assert [*entry] == [key for key in json.loads(example) if key != "station"]  # without tokens
    assert entry.pop("milliseconds") > 0
    assert entry.pop("time")
    assert entry == {
        "level": "info",
        "message": "request",
        "request_id": "a-request",
        "method": "GET",
        "path": "/v1/sessions/{id}",
        "status": 200,
        "client": "127.0.0.1",
    }
    by_status = {entry["status"]: entry for entry in by_path.values()}
    assert by_status[401]["path"] == "/metrics"
    assert by_path["/v1/sessions"]["status"] == 201
    odd = next(entry for entry in entries if "cannot go on" in entry["message"])
    assert odd["level"] == "warning"
    assert [*odd] == ["time", "level", "message", "request_id"]
    assert "ses_abcd…" in odd["message"]
    messages = [entry["message"] for entry in entries if entry["level"] == "info"]
    kept = rf"stopped in \d+\.\d s; live sessions kept in {re.escape(str(tmp_path))}: 1"
    assert messages[-2] == "SIGTERM: stopping; requests in progress, which have 30 s: 0"
    assert re.fullmatch(kept, messages[-1])
    said = json.dumps(entries)
    assert state["id"] not in said
    assert SECRET not in said
