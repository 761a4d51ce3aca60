"""Several processes of a service: whose a request is, kills, answers as of one process."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from copy import copy
from pathlib import Path

import pytest
from prometheus_client import parser as text_parser
from prometheus_client.openmetrics import parser as open_metrics_parser

from cefito.serve.supervisor import Peers
from serve.live_sessions import begin, read, sent, tell, until
from serve.test_process import HANGUP, Lines, Server
from serve.test_stations import called
from tiny_runs import rows_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture
def peers() -> Iterator[Peers]:
    """The first of two processes."""
    peers = Peers(2)
    peers.number = 0
    yield peers
    peers.close()


def id_of(peers: Peers, number: int) -> str:
    """An id of a session of a process."""
    return next(name for name in map(str, range(100)) if peers.owner(name) == number)


def test_requests_of_a_session_are_its_processs(peers):
    for number in (0, 1):
        id_ = id_of(peers, number)
        assert peers.owns(id_) is (number == 0)
        for line in (
            f"POST /v1/sessions/{id_}/rows HTTP/1.1",
            f"GET /v1/sessions/{id_} HTTP/1.1",
            f"GET /v1/sessions/%{ord(id_[0]):x}{id_[1:]}?top_k=1 HTTP/1.1",
        ):
            assert peers.process_of(line.encode(), first=True) == number
            assert peers.process_of(line.encode(), first=False) == number
    assert peers.process_of(b"POST /mcp HTTP/1.1", first=True) == 0


def test_connections_and_new_sessions_are_dealt_out(peers):
    lines = [b"GET /v1/model HTTP/1.1", b"POST /v1/sessions HTTP/1.1", b"", b"\xff" * 50]
    assert [peers.process_of(line, first=True) for line in lines] == [1, 0, 1, 0]
    assert peers.process_of(lines[0], first=False) == 0
    assert [peers.process_of(lines[1], first=False) for _ in range(3)] == [1, 0, 1]


def test_connections_are_handed_over_with_what_was_read(peers):
    """More than a datagram holds; a process that has not taken many takes no more."""
    other = copy(peers)
    other.number = 1
    assert [*other.take(bytes)] == []
    ours, theirs = socket.socketpair()
    read_before = bytes(range(256)) * 2000
    with ours, theirs:
        assert peers.hand_over(1, theirs.fileno(), read_before)
        ((connection, read_there),) = other.take(bytes)
        assert read_there == read_before
        theirs.close()
        with connection:
            connection.sendall(b"answer")
        assert ours.recv(10) == b"answer"
        assert ours.recv(10) == b""  # nobody else has it
        taken = sum(peers.hand_over(1, ours.fileno(), b"x") for _ in range(3000))
        assert 0 < taken < 3000
        for connection, read_there in other.take(bytes):
            assert read_there == b"x"
            connection.close()
            taken -= 1
        assert taken == 0


@contextmanager
def telling(peers: Peers, number: int, count: int) -> Iterator[None]:
    """Have a process tell its metrics, a counter."""
    process, stopped = copy(peers), threading.Event()
    process.number = number
    page = f'# TYPE lines counter\nlines_total{{kind="a"}} {count}\n# EOF\n'.encode()

    def tell_them() -> None:
        while not stopped.is_set():
            assert [*process.take(lambda: page)] == []
            time.sleep(0.01)

    thread = threading.Thread(target=tell_them)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def test_metrics_are_those_of_each_process(peers):
    """But of one that does not answer."""
    with telling(peers, 1, 4):
        with telling(peers, 0, 3):
            (both,) = peers.collect()
        (second,) = peers.collect()
    expected = [({"process": "0", "kind": "a"}, 3.0), ({"process": "1", "kind": "a"}, 4.0)]
    assert [(sample.labels, sample.value) for sample in both.samples] == expected
    assert [(sample.labels, sample.value) for sample in second.samples] == expected[1:]


def test_a_request_that_could_not_be_handed_over_is_refused(serving, run_with_recogniser, peers):
    client = serving(runs=(run_with_recogniser.folder,))
    client.app.state.service.peers = peers
    assert all(peers.owns(begin(client)["id"]) for _ in range(5))
    id_ = id_of(peers, 1)
    response = client.get(f"/v1/sessions/{id_}")
    assert (response.status_code, response.json()["type"]) == (503, "urn:cefito:not-ready")
    assert response.headers["connection"] == "close"
    assert client.get(f"/v1/sessions/{id_of(peers, 0)}").status_code == 404


class Client:
    """Asks as a test client does, of a service that really listens."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method, path, body=None):
        """Send again what a process did not answer before it was killed."""
        for _ in range(50):
            try:
                return sent(self.port, method, path, body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)
        raise AssertionError(path)


def workers(server: Server) -> list[int]:
    """Ids of the processes of a service."""
    return children(server.process.pid)


def children(parent: int) -> list[int]:
    """Ids of the processes that a process has started."""
    tasks = Path(f"/proc/{parent}/task")
    if not tasks.exists():
        pytest.skip("ids of processes are found in /proc")
    found = [pid for of_task in tasks.glob("*/children") for pid in of_task.read_text().split()]
    return sorted(map(int, found))


def metrics(port: int, *, open_metrics: bool = False) -> dict[tuple[str, str], float]:
    """Values by name and process."""
    parser = open_metrics_parser if open_metrics else text_parser
    headers = {"accept": "application/openmetrics-text; version=1.0.0"} if open_metrics else {}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/metrics?name[]=any", headers=headers)
        text = connection.getresponse().read().decode()
    return {
        (sample.name, sample.labels.get("process", "")): sample.value
        for metric in parser.text_string_to_metric_families(text)
        for sample in metric.samples
    }


def test_two_processes(serving, run_with_recogniser, world, tmp_path, peers):
    """One test, since starting a service takes seconds."""
    run, second = tmp_path / run_with_recogniser.folder.name, tmp_path / "second"
    run.symlink_to(run_with_recogniser.folder)
    second.mkdir()
    info = run_with_recogniser.info.model_copy(update={"seed": 99})
    run_with_recogniser.changed(folder=second, info=info).written()
    alone = serving(runs=(run,))
    video = next(place for place, video in enumerate(world.videos) if video.split == "test")
    seen = rows_of(world, video)
    options = "--processes", "2", "--session-folder", str(tmp_path), "--metrics-port", "0"
    with Server(run, *options) as server:
        client, name = Client(server.port), run.name
        opened = [client.ask("POST", "/v1/sessions", {})[1] for _ in range(4)]
        reference = begin(alone, run=name)
        before = workers(server)
        assert len(before) == 2
        for worker in before:  # forked: they share what the supervisor has written
            rollup = Path(f"/proc/{worker}/smaps_rollup")
            if rollup.exists():
                shared = re.findall(r"Shared_Dirty: +(\d+) kB", rollup.read_text())
                assert int(shared[0]) > 1_000
        owners = [peers.owner(state["id"]) for state in opened]
        assert {*owners} == {0, 1}

        # the answers are those of one process, over kills of both
        for at, row in enumerate(seen[:9]):
            if at in (3, 6):
                os.kill(before[at // 3 - 1], signal.SIGKILL)
            event = {"rows": [{"at": at, "row": row.tolist()}]}
            reference = tell(alone, reference, **event)
            for state in opened:  # requests of the process that was killed wait for the next one
                path = f"/v1/sessions/{state['id']}/events"
                status, answer = sent(server.port, "POST", path, event)
                assert (status, answer) == (200, reference | {"id": state["id"]})
        for state in opened:
            assert client.ask("GET", f"/v1/sessions/{state['id']}")[1] == read(alone, reference) | {
                "id": state["id"]
            }
        until(lambda: len({*workers(server)} - {*before}) == 2)
        for worker in before:
            said = server.wait_for(f" ({worker}) ended (signal 9); ")
            assert int(re.search(r"; (\d+) is in its place", said)[1]) in workers(server)

        # metrics are of each process, if it answers in time, and on a port of their own, which
        # the process in the place of the first has, too
        own = int(re.search(r"metrics on http://127.0.0.1:(\d+)/", "".join(server.lines))[1])
        counts = {("cefito_sessions", number): owners.count(int(number)) for number in "01"}
        for port, form in ((server.port, False), (own, False), (own, True)):
            until(
                lambda port=port, form=form: (
                    counts.items() <= metrics(port, open_metrics=form).items()
                )
            )

        kill_while_it_plans(server)
        assert [client.ask("GET", f"/v1/sessions/{state['id']}")[0] for state in opened] == [
            200
        ] * 4

        # all open the runs anew, and all end
        def began() -> tuple[int, bool]:
            """Whose a new session is, and whether its run is the one before."""
            state = client.ask("POST", "/v1/sessions", {})[1]
            assert client.ask("DELETE", f"/v1/sessions/{state['id']}")[0] == 204
            return peers.owner(state["id"]), state["digest"] == reference["digest"]

        run.unlink()
        run.symlink_to(second)
        server.lines.clear()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(" on http://127.0.0.1:")
        until(lambda: {began() for _ in range(8)} == {(0, False), (1, False)})
        assert client.ask("GET", "/health")[0] == 200
        left, statuses = workers(server), list[int]()
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask_until_refused, server.port, statuses) for _ in range(8)]
            until(lambda: len(statuses) > 100)
            assert server.end() == 0
        assert {one.result() for one in asking} == {None}
        assert {*statuses} == {200}
        assert not [pid for pid in left if Path(f"/proc/{pid}").exists()]
        assert not [line for line in server.lines if "Traceback" in line]
        for number in "01":
            kept = f"; live sessions kept in {tmp_path}: {owners.count(int(number))}"
            (said,) = [line for line in server.lines if f"process {number}: stopped in" in line]
            assert said.endswith(kept)
        assert server.lines[-1].endswith("all processes have stopped")
    with pytest.raises(ConnectionRefusedError):
        sent(server.port, "GET", "/health")


def test_a_process_in_the_place_of_another_knows_which_tokens_were_removed(place, tmp_path, capsys):
    """Also if it cannot read the file; and SIGHUP while they begin opens the runs anew."""
    file = tmp_path / "tokens.json"
    tokens = {name: called(capsys, "add", file, name).strip() for name in ("bench", "removed")}
    options = "--processes", "2", "--token-file", str(file)
    with Server(place.run, *options, before=HANGUP) as server:
        until(lambda: sum("serving 'tea'" in line for line in server.lines) == 2)

        def status(name: str) -> int:
            headers = {"authorization": f"Bearer {tokens[name]}"}
            for _ in range(50):
                try:
                    return sent(server.port, "GET", "/v1/videos", **headers)[0]
                except (OSError, http.client.HTTPException):
                    time.sleep(0.1)
            raise AssertionError(server.lines)

        assert [status("bench"), status("removed")] == [200, 200]
        called(capsys, "remove", file, "removed")
        server.wait_for("tokens read anew: 1 stations")  # by the supervisor: nobody asks
        file.write_text("{")
        server.wait_for("all tokens stay as they were, 1 stations")
        before = workers(server)
        for process in before:
            os.kill(process, signal.SIGKILL)
        until(lambda: len({*workers(server)} - {*before}) == 2)
        assert [status(name) for name in ("bench", "removed") * 2] == [200, 401] * 2
        assert server.end() == 0


def ask_until_refused(port: int, statuses: list[int]) -> None:
    """Ask on new connections, each of which is answered if it was accepted."""
    with suppress(ConnectionRefusedError):
        while True:
            statuses.append(sent(port, "GET", "/health")[0])


def kill_while_it_plans(server: Server) -> None:
    """Kill the process that makes a plan; who asked for it has no answer."""
    answered = []

    def plan() -> None:
        try:
            answered.append(sent(server.port, "POST", "/v1/plan", {"task": 0, "top_k": 2}))
        except (OSError, http.client.HTTPException):
            answered.append(None)

    planning = threading.Thread(target=plan)
    planning.start()
    busy = list[float]()

    def found() -> bool:
        page = metrics(server.port)
        numbers = (number for number in "01" if page.get(("cefito_running", number)))
        busy[:] = [page["process_start_time_seconds", number] for number in numbers]
        return bool(busy)

    until(found)
    os.kill(process_of(server, *busy), signal.SIGKILL)
    planning.join(60)
    assert answered == [None]


def process_of(server: Server, started: float) -> int:
    """Id of the process that has started at a time, in seconds since 1970."""
    ticks = os.sysconf("SC_CLK_TCK")
    boot = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime")
    )

    def start(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return boot + int(fields[19]) / ticks

    return min(workers(server), key=lambda pid: abs(start(pid) - started))


# Its processes do not end at SIGTERM.
STUBBORN = """
import os, signal, sys, time
from cefito.serve.supervisor import Peers, supervise, unblock

def work():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    unblock()
    os.write(2, b"at work\\n")  # at once; print would mix the lines of both
    time.sleep(600)

idle = dict.fromkeys(("reload", "look", "close"), lambda: None)
supervise(Peers(2), work, **idle, patience=0.2)
print("all ended", file=sys.stderr)
"""


def test_processes_that_do_not_end_are_killed():
    with Lines([sys.executable, "-c", STUBBORN]) as program:
        until(lambda: program.lines.count("at work") == 2)
        assert program.end() == 0
    killed = [line for line in program.lines if "does not end; it is killed" in line]
    assert len(killed) == 2
    assert program.lines[-1] == "all ended"


@pytest.mark.nightly
def test_processes_end_with_their_supervisor(run_with_recogniser):
    with Server(run_with_recogniser.folder, "--processes", "2") as server:
        left = workers(server)
        server.end(signal.SIGKILL)
        until(lambda: not [pid for pid in left if Path(f"/proc/{pid}").exists()])
