"""A real server: signals, clients that go away, deadlines, a full queue, and its command line."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.errors import install_command
from serve.live_sessions import until
from serve.test_connections import HALF, answer, connected, healthy

# Searches for more than one plan go on until a file is there, unless they are stopped.
SLOW = """
import os, sys, time
from cefito.serve import service

quick = service.answers

def slow(several, stop):
    if several[0].question.top_k > 1:
        while not (os.path.exists(os.environ["FINISH"]) or stop()):
            time.sleep(0.01)
        print("stopped" if stop() else "finished", file=sys.stderr, flush=True)
    return quick(several, stop=stop)

service.answers = slow
from cefito.cli import main
sys.exit(main())
"""

# It is hung up while it begins.
HANGUP = """
import os, signal
from cefito.serve import app

make = app.create_app

def hung_up(settings):
    os.kill(os.getpid(), signal.SIGHUP)
    return make(settings)

app.create_app = hung_up
"""


class Lines:
    """A program in a process of its own, and the lines that it writes to stderr."""

    def __init__(self, command, **options) -> None:
        self.process = subprocess.Popen(
            list(map(str, command)),
            stderr=subprocess.PIPE,
            text=True,
            env={**options.pop("env", os.environ), "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            **options,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):  # those that it has started hold its stderr, too
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()

    def wait_for(self, words: str, seconds: float = 180) -> str:
        """The first line that holds some words, once there is one."""
        until = time.monotonic() + seconds
        while True:
            ended = time.monotonic() > until or self.process.poll() is not None
            for line in list(self.lines):
                if words in line:
                    return line
            assert not ended, self.lines
            time.sleep(0.01)

    def end(self, number: int | None = signal.SIGTERM) -> int:
        """Its exit code, after a signal unless that is None."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


class Server(Lines):
    """A service of a run; `before` is code that it runs first."""

    def __init__(self, run, *options: str, port: int = 0, before: str = "") -> None:
        words = "serve", run, "--port", port, *options
        self._folder = tempfile.TemporaryDirectory()
        self.finish = Path(self._folder.name) / "finish"  # ends slow searches
        env = os.environ | {"FINISH": str(self.finish)}
        super().__init__([sys.executable, "-c", before + SLOW, *words], env=env)
        first = self.wait_for("serving ")
        assert re.match(r'\d{4}-\d\d-\d\d .* - INFO: |{"time": ', first)
        self.port = int(re.search(r"http://127.0.0.1:(\d+)", first)[1])

    def __exit__(self, *_):
        super().__exit__()
        self._folder.cleanup()

    def post(self, body, path="/v1/plan"):
        """Status, headers and JSON of an answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.headers, json.loads(response.read())

    def later(self, body, path="/v1/plan"):
        """The same in a thread; a function that waits for it."""
        found = []
        thread = threading.Thread(target=lambda: found.append(self.post(body, path)))
        thread.start()

        def result():
            thread.join(60)
            return found[0]

        return result


def slow(place, **changes):
    return {"observations": place.observations(), "top_k": 2, **changes}


def quick(place):
    return {"observations": place.observations(), "top_k": 1}


def busy(server, *, running, waiting=0):
    """Wait until so many searches run and so many wait."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        if f"cefito_running {running:.1f}\n" in text and f"cefito_waiting {waiting:.1f}\n" in text:
            return
        time.sleep(0.02)
    raise AssertionError(text)


def refuses(port):
    """Whether connections are no longer accepted."""
    try:
        connected(port).close()
    except ConnectionRefusedError:
        return True
    return False


def test_one_server(place):
    """One test, since starting a server takes seconds."""
    with Server(place.run, "--workers", "1", "--queue", "1") as server:
        # the runs are opened anew, while a search goes on
        asked = server.later(slow(place))
        busy(server, running=1)
        server.lines.clear()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("serving 'tea' (horizon 3), digest ")
        server.finish.touch()
        assert asked()[0] == 200
        server.finish.unlink()

        # a deadline ends the search
        status, _, problem = server.post(slow(place, deadline_seconds=0.3))
        assert (status, problem["type"]) == (504, "urn:cefito:deadline")
        server.wait_for("stopped")
        line = server.wait_for('"POST /v1/plan HTTP/1.1" 504')
        assert re.match(rf"\d{{4}}-.* {problem['request_id']} INFO: .*127.0.0.1", line)

        # a client that goes away ends its search
        server.lines.clear()
        body = json.dumps(slow(place)).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = f"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
            client.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
            busy(server, running=1)
        server.wait_for("stopped")

        with ExitStack() as stack:
            # a full queue says when to come again, at once
            busy(server, running=0)
            first = server.later(slow(place))
            busy(server, running=1)
            second = server.later(slow(place, top_k=3))
            busy(server, running=1, waiting=1)
            status, headers, problem = server.post(quick(place))
            assert (status, problem["type"]) == (429, "urn:cefito:busy")
            assert 1 <= int(headers["retry-after"]) <= 60

            # at shutdown, it finishes all requests, but does not wait for those still to come
            for sent in (b"", b"GET /health HTT", HALF, HALF[:-1]):
                connection = stack.enter_context(connected(server.port))
                connection.sendall(sent)
            healthy(server.port)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: refuses(server.port))
            assert server.process.poll() is None  # and none is accepted meanwhile
            server.finish.touch()
            assert [first()[0], second()[0]] == [200, 200]
            assert server.end(None) == 0
            assert answer(connection)[0] is None
        log = "\n".join(server.lines)
        # two searches, and two requests whose bodies are still to come
        assert "SIGTERM: stopping; requests in progress, which have 30 s: 4\n" in log
        assert float(re.search(r"stopped in (\d+\.\d) s", log)[1]) < 30  # no request used that up
        assert re.search(r"stopped in \d+\.\d s; live sessions ended: 0$", log)
        assert not [line for line in server.lines if "Traceback" in line]
    with pytest.raises(ConnectionRefusedError):
        server.post(quick(place))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_a_hangup_while_it_begins_opens_the_runs_anew(place):
    with Server(place.run, "--quiet", before=HANGUP) as server:
        until(lambda: sum("serving 'tea'" in line for line in server.lines) == 2)
        assert server.post(quick(place))[0] == 200
        assert server.end() == 0
    assert not [line for line in server.lines if "POST" in line]


@pytest.mark.nightly
def test_what_takes_too_long_is_stopped_when_it_ends(place):
    with Server(place.run, "--drain", "0.2") as server:
        asked = server.later(slow(place))
        busy(server, running=1)
        code = server.end(signal.SIGINT)
        server.wait_for("SIGINT: stopping; requests in progress, which have 1 s: 1")
        assert code == 0
        assert asked()[0] == 503


def refusal(capsys, *argv):
    assert main(["serve", *map(str, argv)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "192.168.0.1"), "--allow-unauthenticated"),
        (("--port", "-1"), "port -1: expected 0 to 65535. (--port)"),
        (("--port", "0", "--metrics-port", "-1"), "port -1: expected 0 to 65535. (--metrics-port)"),
        (("--host", "nowhere.invalid", "--allow-unauthenticated"), "cannot listen on"),
        (("--workers", "0"), "'workers'"),
        (("--processes", "0"), "'processes'"),
        (("--weights", "s3d.pth"), "does not say what"),  # as with --encoder own
        (("--trusted-proxy", "proxy.example"), "'proxy.example'"),
        (("--trusted-proxy", "10.0.0.1/8"), "10.0.0.1/8 has host bits set"),
        (("--max-gflop", "0"), "'gflop'"),
        (("--deadline", "0"), "deadline_seconds"),
        (("--token-file", "nothing.txt"), "nothing.txt: no such file"),
        (("--dataset", "nowhere"), "nowhere"),
        (("--encoder", "own"), "does not say what"),
        (("--encoder", "nothing"), "unknown encoder"),
        (("--encoder", "s3d", "--weights", "moved.pth"), "moved.pth: no such file"),
    ],
)
def test_what_cannot_be_served(place, capsys, options, words):
    assert words in refusal(capsys, place.run, *options)


def test_several_processes_need_fork(place, capsys, monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    said = refusal(capsys, place.run, "--processes", "2")
    assert "--processes 2: several processes need a system with fork" in said


def test_several_processes_need_the_cpu(place, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "and --device cpu. Use one" in refusal(capsys, place.run, "--processes", "2")


def test_a_port_that_is_taken_and_no_run(place, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refusal(capsys, place.run, "--port", taken.getsockname()[1])
        metrics = refusal(capsys, place.run, "--port", 0, "--metrics-port", taken.getsockname()[1])
    assert "Choose another port" in said
    assert "Choose another port" in metrics
    assert "run.json" in refusal(capsys, tmp_path, "--port", "0")


def test_help_and_a_remedy_without_the_extra(tmp_path):
    """Without the packages of the extra."""
    hidden = "import sys\nfor name in ('fastapi', 'uvicorn', 'starlette'): sys.modules[name] = None"
    both = "main(['serve', '--help']) or sys.exit(main(['serve', sys.argv[1]]))"
    command = [sys.executable, "-c", f"{hidden}\nfrom cefito.cli import main\n{both}", tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "(extra serve)" in found.stdout
    assert "needs the package fastapi, which is not installed. Run: pip install" in found.stderr


@pytest.mark.parametrize(
    ("came", "command"),
    [
        (None, "pip install 'cefito[text]'"),
        ({"url": "file:///no/such/place", "dir_info": {}}, "pip install 'cefito[text]'"),
        ({"dir_info": {}}, "pip install '{folder}[text]'"),
        ({"dir_info": {"editable": True}}, "pip install -e '{folder}[text]'"),
        (
            {"url": "https://x.org/cefito.whl", "archive_info": {}},
            "pip install 'cefito[text] @ https://x.org/cefito.whl'",
        ),
        (
            {
                "url": "https://x.org/all.git",
                "vcs_info": {"vcs": "git", "commit_id": "12ab"},
                "subdirectory": "py",
            },
            "pip install 'cefito[text] @ git+https://x.org/all.git@12ab#subdirectory=py'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_cefito_came(tmp_path, monkeypatch, came, command):
    folder = tmp_path / "a folder"
    folder.mkdir()
    about = tmp_path / "cefito-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cefito\nVersion: 1\n")
    if came is not None:
        (about / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), **came}))
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("text") == command.format(folder=folder)
