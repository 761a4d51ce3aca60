"""Silent, slow, many and malformed connections, against a service that really listens."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from cefito.serve import process
from cefito.serve.connections import client_of

HEAD = b"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
HALF = HEAD + b"content-length: 100\r\n\r\n{"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIMITS = {"receive_seconds": 1.0, "client_connections": 5, "connections": 8}


@pytest.fixture(scope="module")
def port(place, listening):
    """Port of a service with small limits."""
    with listening(place.settings(runs=(place.short,), limits=LIMITS)) as address:
        yield int(address.rpartition(":")[2])


def connected(port, client="127.0.0.1"):
    """A connection of a client, by its address."""
    return socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(client, 0))


def answer(connection):
    """Status, headers and body of one answer; of a closed connection, None and all empty."""
    data = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in data and (part := connection.recv(65_536)):
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        while len(body) < int(headers.get("content-length", 0)):
            body += connection.recv(65_536)
        if head:
            return int(first.split()[1]), headers, body
    return None, {}, b""


def problem(connection):
    """Status and type of a problem."""
    status, headers, body = answer(connection)
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    found = json.loads(body)
    assert found["status"] == status
    return status, found["type"]


def healthy(port, client="127.0.0.1"):
    with connected(port, client) as connection:
        connection.sendall(HEALTH)
        assert answer(connection)[0] == 200


@pytest.mark.parametrize("first", [b"", HEALTH])
def test_requests_that_do_not_come_are_not_waited_for(port, first):
    def wait(sent):
        with connected(port) as connection:
            if first:
                connection.sendall(first)
                assert answer(connection)[0] == 200
            connection.sendall(sent)
            began = time.monotonic()
            if sent:
                assert problem(connection) == (408, "urn:cefito:slow")
            assert answer(connection)[0] is None
            assert 0.9 < time.monotonic() - began < 10

    cases = [b"GET /health HTT", HEAD, HALF[:-1]]
    if not first:  # after an answer, uvicorn closes a silent connection in 15 seconds
        cases.append(b"")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(wait, cases))


def test_a_drop_of_a_header_now_and_then_does_not_help(port):
    with connected(port) as connection:
        began = time.monotonic()
        with suppress(ConnectionError):
            for letter in HEAD.decode():
                connection.sendall(letter.encode())
                time.sleep(0.1)
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("sent", [b"", b"GET /health HTT", HEALTH, HALF])
@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2"])
def test_connections_without_a_request_shut_nobody_out(port, sent, client):
    with ExitStack() as stack:
        for number in range(20):
            connection = stack.enter_context(connected(port, f"127.0.0.{2 + number % 3}"))
            connection.sendall(sent)
            if sent == HEALTH:
                answer(connection)
        healthy(port, client)


def test_answers_do_not_wait_for_acknowledgements(port):
    """Head and body are sent apart; Nagle's algorithm would hold the body back for 40 ms."""
    seconds = []
    with connected(port) as connection:
        for _ in range(40):
            time.sleep(0.02)
            began = time.monotonic()
            connection.sendall(HEALTH)
            assert answer(connection)[0] == 200
            seconds.append(time.monotonic() - began)
    assert min(seconds[20:]) < 0.035  # the first are acknowledged at once


def test_an_answer_that_is_awaited_is_not_ended(place, listening, monkeypatch):
    from cefito.serve import service

    gate, quick = threading.Event(), service.solve

    def held(jobs, stop):
        gate.wait(20)
        return quick(jobs, stop)

    monkeypatch.setattr(service, "solve", held)
    body = json.dumps({"horizon": 3, "observations": place.observations()}).encode()
    whole = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    with (
        listening(place.settings(runs=(place.run,), limits=LIMITS)) as address,
        ExitStack() as all_,
    ):
        port = int(address.rpartition(":")[2])
        waiting = [all_.enter_context(connected(port)) for _ in range(5)]
        for one in waiting:
            one.sendall(whole)
            time.sleep(0.1)  # so that each has arrived
        sixth = all_.enter_context(connected(port))
        status, headers, _ = answer(sixth)
        assert (status, headers["retry-after"]) == (429, "5")
        healthy(port, "127.0.0.2")
        gate.set()
        assert [answer(one)[0] for one in waiting] == [200] * 5


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        HEAD + b"content-length: x\r\n\r\n",
        HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000,
    ],
)
def test_malformed_http_is_a_problem_too(port, sent):
    with connected(port) as connection:
        connection.sendall(sent)
        assert problem(connection) == (400, "urn:cefito:invalid")
    healthy(port)


def test_the_address_of_a_client():
    hosts = ("10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1", "x")
    first, same, one, other, far, name = map(client_of, hosts)
    assert first == same == "10.0.0.1"
    assert one == other != far
    assert name == "x"


def test_the_log_repeats_itself_little(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with process.logging_to_stderr(access=True):
        for number in range(10_000):
            logging.getLogger("asyncio").error("full %s", number)
        logging.getLogger("cefito").error("another")
        now[0] = process._PERIOD + 1
        logging.getLogger("asyncio").error("full %s", "again")
        for _ in range(20):
            logging.getLogger("cefito.serve.access").info("{}")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = [line["message"] for line in lines if line]
    assert said == [*(f"full {number}" for number in range(5)), "another", "full again"]
    assert lines[6]["left_out"] == 9995
    assert lines.count({}) == 20
