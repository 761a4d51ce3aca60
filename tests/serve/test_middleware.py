"""Access, limits of bodies, headers, and the token."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from contextlib import closing

import anyio
import pytest

from cefito.cli.serve import _access
from cefito.errors import ConfigError
from cefito.serve.middleware import Metrics, RequestMiddleware
from cefito.serve.settings import TOKEN_VARIABLE, Limits, ServiceSettings, read_token
from cefito.serve.stations import Access

JSON = {"content-type": "application/json"}
TOKEN = "correct horse battery staple"


@pytest.fixture(scope="module")
def closed(serving):
    """A client of a service with a token."""
    return serving(token=TOKEN)


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic("anyone", TOKEN), basic("", TOKEN)]
)
def test_the_token_lets_in(closed, header):
    assert closed.get("/v1/model", headers={"authorization": header}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Token {TOKEN}", TOKEN),
        *(basic(TOKEN, ""), "Basic %%%", "Bearer \xe9"),
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
    ],
)
@pytest.mark.parametrize("path", ["/v1/model", "/metrics", "/", "/nothing"])
def test_other_headers_are_refused(closed, header, path):
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    response = closed.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Basic")
    assert TOKEN not in response.text


def test_monitoring_needs_no_token(closed):
    assert closed.get("/health").status_code == closed.get("/ready").status_code == 200


def test_host_names(serving):
    client = serving(hosts=("localhost", "::1"))
    for host in ("localhost", "LOCALHOST:8000", "[::1]:80"):
        assert client.get("/health", headers={"host": host}).status_code == 200
    for host in (
        *("evil.example", "evil.example:8000", "localhost.evil.example", "[::2]", ""),
        *("localhost@evil.example", "localhost:80@evil.example", "localhost,evil.example"),
    ):
        response = client.get("/health", headers={"host": host})
        assert response.status_code == 421
        assert response.json()["type"] == "urn:cefito:host"


def test_hosts_by_the_options_of_the_command(serving, monkeypatch):
    """This machine's alone, or any where a proxy authenticates."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    for given, status in ((("127.0.0.1", None, False), 421), (("0.0.0.0", None, True), 200)):
        client = serving(**_access(*given))
        for host, answered in (("localhost", 200), ("127.0.0.1", 200), ("plans.example", status)):
            assert client.get("/v1/model", headers={"host": host}).status_code == answered


@pytest.mark.parametrize("path", ["/docs/", "/v1/model/", "//evil.com/docs/"])
def test_nothing_redirects_to_a_host_that_the_client_names(client, path):
    response = client.get(path, headers={"host": "evil.com"}, follow_redirects=False)
    assert response.status_code == 404
    assert "location" not in response.headers


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        *(("localhost:8000", "http://localhost:8000"), ("LOCALHOST", "http://localhost")),
        ("plans.org", "https://plans.org"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_the_service_s_own_page_can_ask(client, host, origin):
    for headers in ({}, {"origin": origin}, {"origin": origin, "sec-fetch-site": "same-origin"}):
        assert (
            client.post("/v1/plan", json={}, headers={"host": host, **headers}).status_code == 422
        )


@pytest.mark.parametrize(
    "headers",
    [
        *({"sec-fetch-site": site} for site in ("cross-site", "same-site", "Cross-Site", "other")),
        *({"origin": f"http://{name}"} for name in ("evil.com", "testserver:81", "testserver@x")),
        {"origin": "null"},
        {"origin": "http://evil.com", "sec-fetch-site": "none"},
    ],
)
def test_pages_of_other_sites_cannot_ask(client, headers):
    assert client.post("/v1/plan", json={}, headers=headers).status_code == 403
    assert client.get("/v1/model", headers=headers).status_code == 200  # and cannot read it
    assert "access-control-allow-origin" not in client.get("/v1/model", headers=headers).headers


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/model", "/", "/docs"])
def test_heads_are_answered_without_a_body(address, path):
    port = int(address.rpartition(":")[2])
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        for method in ("HEAD", "GET"):  # on one connection, which a body would disturb
            connection.request(method, path)
            response = connection.getresponse()
            assert response.status == 200
            assert bool(response.read()) == (method == "GET")
        for method, other in (("HEAD", "/v1/sessions/x/events"), ("HEAD", "/v1/plan")):
            connection.request(method, other)
            response = connection.getresponse()
            assert (response.status, response.read()) == (405, b"")


def test_requests_have_ids(client):
    given = client.get("/health", headers={"x-request-id": "abc-1.2_3"})
    assert given.headers["x-request-id"] == "abc-1.2_3"
    for odd in ("", "a b", "x" * 65, "é".encode(), "a\tb"):
        made = client.get("/health", headers={"x-request-id": odd}).headers["x-request-id"]
        assert len(made) == 32
        assert made != odd


def test_headers_of_every_answer(client):
    headers = client.get("/nothing").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert client.get("/v1/model").headers["cache-control"] == "no-store"


def test_a_body_that_is_too_large(serving):
    small = serving(limits={"body_mib": 0.001})
    body = b"[" + b"1," * 2000
    parts = (body[first : first + 100] for first in range(0, len(body), 100))
    for content in (body, parts):  # parts announce no length
        response = small.post("/v1/plan", content=content, headers=JSON)
        assert response.status_code == 413
        assert response.json()["limit"] == 1048


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/plan/upload", "/mcp", "/nothing", "/v1/model"])
def test_a_client_that_sends_before_it_reads_sees_the_answer(address, path):
    """5 MiB to each: urllib would find a connection that is reset instead."""
    request = urllib.request.Request(f"{address}{path}", b" " * (5 << 20), JSON)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    with caught.value as answer:
        assert json.load(answer)["status"] == answer.status in (404, 405, 413, 422)
        assert path != "/v1/plan" or answer.status == 413


def exchange(app, messages=()):
    """The messages that the middleware sends for a request whose body arrives in messages."""
    sent, left = [], list(messages)

    async def receive():
        if not left:
            await anyio.sleep(30)
        return left.pop(0)

    async def send(message):
        sent.append(message)

    limits = Limits(body_mib=100 / 2**20, receive_seconds=0.05)
    settings = ServiceSettings(runs=("run",), limits=limits)
    headers = [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/v1/plan", "headers": headers}
    anyio.run(RequestMiddleware(app, settings, Metrics(), Access(settings)), scope, receive, send)
    return sent


async def _read(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize(
    ("sizes", "status"), [((50, 50), 200), ((50, 51), 413), ((50, None), 408), ((), 408)]
)
def test_bodies_in_parts(sizes, status):
    parts = [
        {"type": "http.request", "body": b"a" * size, "more_body": number < len(sizes) - 1}
        for number, size in enumerate(sizes)
        if size is not None
    ]
    began = time.monotonic()
    assert exchange(_read, parts)[0]["status"] == status
    assert time.monotonic() - began < 5


def test_a_defect_is_answered_and_logged(caplog):
    async def broken(scope, receive, send):
        raise ValueError("the secret reason")

    start, body = exchange(broken)
    assert start["status"] == 500
    assert json.loads(body["body"])["type"] == "urn:cefito:internal"
    assert b"secret" not in body["body"]
    assert "the secret reason" in caplog.text


def test_a_defect_after_the_answer_began_ends_it():
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError

    assert [message["type"] for message in exchange(broken)] == ["http.response.start"]


def test_a_request_that_the_server_cancels_at_shutdown_is_answered():
    async def cancelled(scope, receive, send):
        raise asyncio.CancelledError

    start, body = exchange(cancelled)
    assert start["status"] == 503
    assert json.loads(body["body"])["type"] == "urn:cefito:not-ready"


def test_a_token_of_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    (tmp_path / "token").write_text(TOKEN + "\n")
    token = read_token(tmp_path / "token")
    assert token.get_secret_value() == TOKEN
    assert TOKEN not in repr(token)
    monkeypatch.setenv(TOKEN_VARIABLE, "another token of length")
    assert read_token(None).get_secret_value() == "another token of length"
    with pytest.raises(ConfigError, match="no such file"):
        read_token(tmp_path / "nothing")
    (tmp_path / "token").write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "token")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is a pipe or device"):
        read_token(tmp_path / "pipe")  # without waiting for a writer


@pytest.mark.parametrize("text", ["", "short", "a token with an é in it", "x" * 15, "\n\n"])
def test_invalid_tokens(tmp_path, monkeypatch, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError, match="expected at least 16"):
        read_token(tmp_path / "token")
    monkeypatch.setenv(TOKEN_VARIABLE, text)
    with pytest.raises(ConfigError, match="CEFITO_TOKEN"):
        read_token(None)
