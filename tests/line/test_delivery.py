"""Events are delivered in order, at least once: over receivers that end, and a sender that does."""

import base64
import hashlib
import hmac
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import signature

import pytest
from pydantic import SecretStr

from cefito.cli.follow import UNCONFIRMED, UNDELIVERED, EventOptions
from cefito.errors import ConfigError, RunError
from cefito.line.delivery import (
    Delivery,
    DeliveryError,
    Spool,
    Spooled,
    open_receiver,
    read_secrets,
)
from cefito.line.events import Event

QUICK = (0.01, 0.05)
SECRET = b"0123456789abcdef0123456789abcdef"
PAUSE = 300  # seconds after which a test fails


def acknowledge(_):
    return 204


class Receiver:
    """A server whose answers are functions of the number of the request; it can be restarted."""

    def __init__(self, answer=acknowledge, port=0):
        self.seen, self.headers, self.answer, self.port = [], [], answer, port
        self.server, self.after = None, ""

    def start(self):
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format, *args):
                pass

            def do_POST(self):
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # its sender was killed
                    return
                receiver.seen.append(body.decode())
                receiver.headers.append(self.headers)
                status = receiver.answer(len(receiver.seen))
                if isinstance(status, threading.Event):
                    status.wait(PAUSE)
                elif status is not None:  # None: the connection is closed without an answer
                    self.send_response(status)
                    self.send_header("location", "/other")
                    if receiver.after:
                        self.send_header("retry-after", receiver.after)
                    self.send_header("content-length", "0")
                    self.end_headers()

        self.server = HTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True)
        self.thread.start()
        return self

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/events"

    @property
    def numbers(self):
        return [json.loads(body)["data"]["number"] for body in self.seen]


@contextmanager
def receiving(answer=acknowledge):
    receiver = Receiver(answer).start()
    try:
        yield receiver
    finally:
        receiver.stop()


def event(number):
    return Event.of("step.done", {"number": number})


class Said(list):
    """Messages; `any` is set when there is one."""

    def __init__(self):
        super().__init__()
        self.any = threading.Event()

    def append(self, words):
        super().append(words)
        self.any.set()


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def deliver(tmp_path, said):
    """Deliver numbered events, and return how many remain; in few seconds, after a failure."""

    def deliver(target, count=3, seconds=PAUSE, most=10_000, **options):
        receiver = target if callable(target) else open_receiver(target, **options)
        delivery = Delivery(Spool(tmp_path / "spool", most), receiver, said.append, pauses=QUICK)
        try:
            for number in range(count):
                delivery.put(event(number))
            if seconds < PAUSE:  # what is not delivered is said first
                assert said.any.wait(PAUSE)
        finally:
            remaining = delivery.close(seconds)
        return remaining

    return deliver


def test_a_thousand_events_to_a_receiver_that_ends_five_times(tmp_path, said):
    """Some requests are read, and the server ends before it answers."""
    ends, ended = {150, 300, 500, 700, 901}, threading.Event()

    def answer(number):
        if number not in ends:
            return 204
        ended.set()
        return None

    receiver = Receiver(answer).start()

    def restart():
        for _ in ends:
            assert ended.wait(PAUSE)
            ended.clear()
            receiver.stop()
            receiver.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    path, sizes, files = tmp_path / "spool", [0], [0]
    spool = Spool(path, 50)
    delivery = Delivery(spool, open_receiver(receiver.url), said.append, pauses=QUICK)
    for number in range(1000):
        delivery.put(event(number))
        sizes.append(len(spool))
        files.append(sum(file.stat().st_size for file in tmp_path.glob("spool*")))
    assert delivery.close(PAUSE) == 0
    restarting.join()
    receiver.stop()
    firsts = list(dict.fromkeys(receiver.numbers))
    assert firsts == list(range(1000))
    assert len(receiver.seen) == 1000 + len(ends)  # each that was not acknowledged, once more
    ids = {json.loads(body)["id"] for body in receiver.seen}
    assert len(ids) == 1000
    assert max(sizes) == 50
    assert max(files) < 6_000_000  # SQLite's log has at most 1,000 pages
    assert path.stat().st_size < 100_000
    assert sum("following waits" in words for words in said) == 1
    # a request may be answered between the one that was not and the end of the server
    assert sum("takes events again" in words for words in said) >= len(ends)


SENDER = """
import sys
from pathlib import Path
from cefito.line.delivery import Delivery, Spool, open_receiver
from cefito.line.events import Event

delivery = Delivery(Spool(Path(sys.argv[1])), open_receiver(sys.argv[2]), print, pauses=(60, 60))
for number in range(20):
    delivery.put(Event.of("step.done", {"number": number}))
print("kept", flush=True)
sys.stdin.read()
"""


def test_events_of_a_killed_process_come_first(tmp_path, deliver):
    with receiving(lambda number: 204 if number <= 5 or number > 6 else 500) as receiver:
        sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, str(tmp_path / "spool"), receiver.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        while "kept" not in sender.stdout.readline():
            pass
        with pytest.raises(RunError, match="another process delivers"):
            Spool(tmp_path / "spool")
        sender.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        sender.communicate()
        before = len(receiver.seen)
        assert before <= 6
        assert deliver(receiver.url) == 0
    assert list(dict.fromkeys(receiver.numbers[:-3])) == list(range(20))
    assert receiver.numbers[-3:] == [0, 1, 2]


def test_requests_are_signed_with_each_secret():
    now = [SecretStr(base64.b64encode(key).decode()) for key in (SECRET, SECRET[::-1])]
    with receiving() as receiver:
        spooled = json.loads(event(7).model_dump_json())
        body = json.dumps(spooled)
        open_receiver(receiver.url, tuple(now))(Spooled(1, spooled["id"], body))
        open_receiver(receiver.url)(Spooled(1, spooled["id"], body))
    signed, bare = receiver.headers
    content = f"{spooled['id']}.{signed['webhook-timestamp']}.{body}".encode()
    expected = [
        "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        for key in (SECRET, SECRET[::-1])
    ]
    assert signed["webhook-signature"].split() == expected
    assert signed["webhook-id"] == bare["webhook-id"] == spooled["id"]
    assert signed["content-type"] == "application/json"
    assert (bare["webhook-signature"], bare["webhook-timestamp"].isdecimal()) == (None, True)


def test_a_wrong_secret_loses_nothing(deliver, said):
    """The receiver answers 401 until the secret is right."""
    good, bad = (SecretStr(base64.b64encode(key).decode()) for key in (SECRET, SECRET[::-1]))

    def answer(number):
        headers, body = receiver.headers[-1], receiver.seen[-1]
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
        digest = hmac.new(SECRET, content, hashlib.sha256).digest()
        right = "v1," + base64.b64encode(digest).decode()
        return 204 if hmac.compare_digest(right, headers["webhook-signature"]) else 401

    with receiving(answer) as receiver:
        assert deliver(receiver.url, secrets=(bad,), seconds=0.2) == 3
        assert set(receiver.numbers) == {0}
        assert deliver(receiver.url, 0, secrets=(good,)) == 0
    assert receiver.numbers[-3:] == [0, 1, 2]
    assert said == ["an event waits: the receiver answers 401; it is asked again"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "answers 500"),
        (302, "answers 302, a redirect, which is not followed"),
        (307, "a redirect, which is not followed"),
        (404, "answers 404"),
        (None, "cannot be reached"),
    ],
)
def test_what_is_not_acknowledged_is_sent_again(status, words, deliver, said):
    with receiving(lambda number: status if number in (2, 3) else 299) as receiver:
        assert deliver(receiver.url) == 0
    assert receiver.numbers == [0, 1, 1, 1, 2]
    assert words in said[0]
    assert said[1:] == ["the receiver takes events again"]


def test_a_receiver_that_hangs(deliver, said):
    hangs = threading.Event()

    def answer(number):
        return 204 if hangs.is_set() else hangs

    with receiving(answer) as receiver:
        assert deliver(receiver.url, timeout=0.05, seconds=0.3) == 3
        hangs.set()
        assert deliver(receiver.url, 0) == 0
    assert "timed out" in said[0]
    assert list(dict.fromkeys(receiver.numbers)) == [0, 1, 2]


def test_a_receiver_that_is_gone_gets_no_more(deliver, said):
    with receiving(lambda _: 410) as receiver:
        assert deliver(receiver.url) == 3
        assert receiver.numbers == [0]
        assert said == ["an event waits: the receiver answers 410; no event follows"]
        with pytest.raises(RunError, match="the receiver answers 410"):
            deliver(receiver.url, most=4)
    with receiving() as receiver:  # of the next call
        assert deliver(receiver.url, 0) == 0
        assert receiver.numbers[:3] == [0, 1, 2]


def test_a_command_that_fails_twice(tmp_path, deliver, said, capfd):
    script, log = tmp_path / "take.py", tmp_path / "log"
    script.write_text(
        "import json, pathlib, sys\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "seen = log.read_text() if log.exists() else ''\n"
        "log.write_text(seen + str(json.load(sys.stdin)['data']['number']))\n"
        "print('not for the records')\n"
        "sys.exit(3 if len(seen) in (1, 2) else 0)\n"
    )
    assert deliver(f"{sys.executable} {script}") == 0
    assert log.read_text() == "01112"
    assert capfd.readouterr().out == ""
    assert said[0] == "an event waits: the command exits with 3; it is asked again"


def test_a_command_that_takes_too_long(deliver, said):
    command = f"{sys.executable} -c 'import sys; sys.stdin.read(); import time; time.sleep(60)'"
    assert deliver(command, 1, timeout=0.2, seconds=0.3) == 1
    assert "runs for more than 0.2 s" in said[0]


def test_pauses_grow_and_a_receiver_names_its_own(tmp_path, said):
    """The pause before each attempt, as the thread asks for it."""
    pauses, problem = [], DeliveryError("is full", after=0.04)
    failures = iter([problem, *map(DeliveryError, "abc"), DeliveryError("is away", after=9)])

    class Timed(Delivery):
        def _rest(self, seconds):
            pauses.append(round(seconds, 3))

    def fail(_):
        if (problem := next(failures, None)) is not None:
            raise problem

    delivery = Timed(Spool(tmp_path / "spool"), fail, said.append, pauses=(0.01, 0.06))
    delivery.put(event(0))
    assert delivery.close(PAUSE) == 0
    assert pauses == [0.04, 0.02, 0.04, 0.06, 0.06]


def test_a_receiver_says_when_to_ask_again():
    with receiving(lambda _: 503) as receiver:
        for after, seconds in (("7", 7.0), ("", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0)):
            receiver.after = after
            with pytest.raises(DeliveryError, match="answers 503") as problem:
                open_receiver(receiver.url)(Spooled(1, "msg_1", "{}"))
            assert problem.value.after == seconds


def test_defaults_of_the_page():
    """Events in a spool, seconds of silence, pauses, and seconds at the end."""
    assert (UNDELIVERED, UNCONFIRMED) == (5, 6)  # exit codes
    options, pauses = EventOptions(), signature(Delivery).parameters["pauses"].default
    timeout = signature(open_receiver).parameters["timeout"].default
    assert (options.event_limit, timeout, pauses, options.event_wait) == (10_000, 30, (0.5, 60), 30)


def test_a_spool_is_of_one_process_and_of_events(tmp_path):
    path = tmp_path / "new" / "spool"
    spool = Spool(path)
    assert spool._file.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL: on the disk
    with pytest.raises(RunError, match="another process"):
        Spool(path)
    spool.close()
    Spool(path).close()
    (tmp_path / "text").write_text("no spool, but a longer text\n" * 100)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE events (x)")
    other.close()
    for name in ("text", "other", "new"):
        with pytest.raises(RunError, match="is no spool"):
            Spool(tmp_path / name)
    with pytest.raises(RunError, match="cannot be made"):
        Spool(tmp_path / "text" / "spool")


def test_numbers_of_events_are_not_used_again(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.add(event(0))
    first = spool.first()
    spool.remove(first.number)
    spool.add(event(1))
    assert (first.number, spool.first().number, len(spool)) == (1, 2, 1)
    spool.close()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("ftp://x/y", "expected http:// or https://"),
        ("http://", "with a host"),
        ("https://me:secret@x/", "without a password"),
        ("http://me:secret@[::1", "with a host"),
        ("http://x:port/", "with a host"),
        ("no-such-command x", "no such command"),
        ("'", "No closing quotation"),
        ("", "expected a URL or a command"),
    ],
)
def test_receivers_that_cannot_be(target, words):
    with pytest.raises(ConfigError, match=words) as problem:
        open_receiver(target)
    assert "secret" not in str(problem.value)


def test_secrets_of_a_file_or_the_environment(tmp_path, monkeypatch):
    lines = [f"whsec_{base64.b64encode(key).decode()}" for key in (SECRET, SECRET[:24], 2 * SECRET)]
    monkeypatch.setenv("CEFITO_EVENT_SECRET", lines[0])
    (ours,) = read_secrets(None)
    assert base64.b64decode(ours.get_secret_value()) == SECRET
    (tmp_path / "secrets").write_text("\n".join(lines))
    assert len(read_secrets(tmp_path / "secrets")) == 3
    monkeypatch.delenv("CEFITO_EVENT_SECRET")
    assert read_secrets(None) == ()
    short, long = (f"whsec_{base64.b64encode(bytes(size)).decode()}" for size in (23, 65))
    for text in ("", lines[0][6:], "whsec_???", short, long):
        (tmp_path / "secrets").write_text(text)
        with pytest.raises(ConfigError, match="expected whsec_") as problem:
            read_secrets(tmp_path / "secrets")
        assert not text or text not in str(problem.value)
