"""Silent, slow, many and malformed connections, against a service that really listens."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from cefito.serve import process
from cefito.serve.process import client_of
from serve.live_sessions import until

HEAD = b"POST /v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
HALF = HEAD + b"content-length: 100\r\n\r\n{"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIMITS = {"receive_seconds": 1.0}


@pytest.fixture(scope="module")
def port(place, listening):
    """Port of a service with small limits; after an answer, 2 seconds stand for 15."""
    with pytest.MonkeyPatch.context() as patch:
        soon = property(lambda _: 2, lambda *_: None)
        patch.setattr(process.Connection, "timeout_keep_alive", soon, raising=False)
        with listening(place.settings(runs=(place.short,), limits=LIMITS)) as address:
            yield int(address.rpartition(":")[2])


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


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


def healthy(port):
    with connected(port) as connection:
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
            if HEAD in sent:
                status, headers, body = answer(connection)
                assert (status, headers["connection"]) == (408, "close")
                assert json.loads(body)["type"] == "urn:cefito:slow"
            assert answer(connection)[0] is None
            assert 0.9 < time.monotonic() - began < 10

    cases = [b"GET /health HTT", HEAD[:-2], HALF[:-1], b""]
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


@pytest.mark.parametrize(
    "sent", [*(pytest.param(one, marks=pytest.mark.nightly) for one in (b"", HEALTH[:15])), HALF]
)
def test_connections_without_a_request_shut_nobody_out(port, sent):
    with ExitStack() as stack:
        for _ in range(1010):
            stack.enter_context(connected(port)).sendall(sent)
        healthy(port)


def test_too_many_connections_get_a_line_of_text(place, listening):
    settings = place.settings(runs=(place.short,))
    with listening(settings, limit_concurrency=3) as address, ExitStack() as stack:
        port = int(address.rpartition(":")[2])
        for _ in range(2):
            stack.enter_context(connected(port))

        def refused():
            with connected(port) as connection:
                connection.sendall(HEALTH)
                return answer(connection)[::2] == (503, b"Service Unavailable")

        until(refused)


def test_answers_do_not_wait_for_acknowledgements():
    """Head and body are sent apart; Nagle's algorithm would hold the body back for 40 ms."""
    with process.listen("127.0.0.1", 0) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


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
def test_malformed_http_is_refused(port, sent):
    with connected(port) as connection:
        connection.sendall(sent)
        status, _, body = answer(connection)
        assert (status, body[:1] == b"{") == (400, False)  # a line of text
    healthy(port)


def test_a_client_that_does_not_read_is_not_waited_for(place):
    """Not even if it sends the beginning of its next request."""
    size = 1 << 24

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(size), "more_body": True})
            await send({"type": "http.response.body"})

    service: Any = app
    server = process.make_server(service, place.settings(limits={"receive_seconds": 0.5}))
    assert server.config.timeout_keep_alive == 15
    server.config.lifespan = "off"
    with process.listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        with connected(listening.getsockname()[1]) as connection:
            connection.sendall(HEALTH)
            connection.recv(1)
            connection.sendall(b"G")
            time.sleep(1.5)
            received = 0
            with suppress(ConnectionError):
                while part := connection.recv(1 << 20):
                    received += len(part)
        server.should_exit = True
        thread.join(30)
    assert received < size


@pytest.mark.parametrize(
    ("proxies", "peer", "forwarded", "client"),
    [
        ((), "127.0.0.1", "203.0.113.9", "127.0.0.1"),  # anybody could say so
        (("127.0.0.1",), "127.0.0.1", "203.0.113.9", "203.0.113.9"),
        (("127.0.0.1",), "127.0.0.1", "", "127.0.0.1"),
        (("127.0.0.1",), "::ffff:127.0.0.1", "203.0.113.9:5000", "203.0.113.9"),
        (("10.0.0.0/8", "::1"), "10.1.2.3", "6.6.6.6, 203.0.113.9, 10.9.9.9", "203.0.113.9"),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", "203.0.113.9", "203.0.113.9"),
        (("10.0.0.0/8", "::1"), "::1", "2001:db8::1", "2001:db8::1"),
        (("10.0.0.0/8",), "11.0.0.1", "203.0.113.9", "11.0.0.1"),
        (("10.0.0.1",), "::ffff:10.0.0.2", "203.0.113.9", "::ffff:10.0.0.2"),
    ],
)
def test_only_a_trusted_proxy_names_the_client(place, proxies, peer, forwarded, client):
    found = []

    async def app(scope, receive, send):
        found.append(scope["client"][0])

    service: Any = app
    config = process.make_server(service, place.settings(proxies=proxies)).config
    config.load()
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    asyncio.run(
        config.loaded_app({"type": "http", "client": (peer, 1), "headers": headers}, *[None] * 2)
    )
    assert found == [client]


def test_the_address_of_a_client():
    hosts = ("10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1", "x")
    first, same, one, other, far, name = map(client_of, hosts)
    assert first == same == "10.0.0.1"
    assert one == other != far
    assert name == "x"
