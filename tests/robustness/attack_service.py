"""Send generated requests to a running service: by its OpenAPI document, and below that.

    python tests/robustness/attack_service.py http://127.0.0.1:8000 --examples 2000

Generated observations have the wrong number of features. So each valid request is sent once more
with observations and ids that the first run knows, to reach the search.

Every answer must have a status, type and form of the document, and no status of 500 or above except
503 and 504. Then come odd headers and malformed HTTP, odd pictures, and slow clients, beside which
/health must answer. Needs the package schemathesis.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import struct
import sys
import urllib.request
import zlib
from contextlib import ExitStack, suppress
from typing import Any
from zlib import crc32

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import checks

checks.load_all_checks()
_CHECKED = ("status_code", "content_type", "response_headers", "response_schema")
_CHECKS = [checks.CHECKS.get_one(f"{name}_conformance") for name in _CHECKED]
_LEFT_OUT = ("video", "task", "budget", "deadline_seconds")
ANNOUNCED = (503, 504)  # documented statuses of 500 and above


def attack(
    schema: Any, examples: int, *, run: dict[str, Any], headers: dict[str, str] | None = None
) -> dict[str, int]:
    """Send so many requests of each kind to every operation; count answers by it and status.

    `run` describes the service's first run.
    """
    met: dict[str, int] = {}
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable):  # no parameters, so no invalid requests
                settings(_test(strategy, operation.label, run, headers, met))()
    return met


def _test(strategy: Any, title: str, run: dict[str, Any], headers: Any, met: dict[str, int]) -> Any:
    """A test that sends generated requests, and valid ones once more with known ids."""

    def send(case: Any) -> int:
        response = case.call(headers=headers)
        key = f"{title} {response.status_code}"
        met[key] = met.get(key, 0) + 1
        assert response.status_code < 500 or response.status_code in ANNOUNCED, response.text
        if response.status_code >= 400:
            kind = str(response.headers["content-type"])
            assert "application/problem+json" in kind, kind
            problem = json.loads(response.content)
            assert problem["status"] == response.status_code
            assert "\n" not in problem["detail"]
        case.validate_response(response, checks=_CHECKS)
        return int(response.status_code)

    @hypothesis.given(case=strategy)
    def sent(case: Any) -> None:
        body = case.body if isinstance(case.body, dict) else {}
        if send(case) == 422 and title == "POST /v1/plan" and body:
            case.body = mended(body, run)
            send(case)

    return sent


def mended(body: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The query with observations and ids that a run knows."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: known(part) for key, part in value.items()}
        if isinstance(value, list):
            return [known(part) for part in value]
        if isinstance(value, bool):
            return value
        return crc32(repr(value).encode()) % len(run["actions"])

    observation = [0.25] * run["observation_dim"]
    changed = {
        **{key: part for key, part in body.items() if key not in _LEFT_OUT},
        "run": run["name"],
        "horizon": run["horizon"],
        "observations": {"initial": observation, "goal": observation[::-1]},
    }
    if type(body.get("top_k")) is int:
        changed["top_k"] = min(body["top_k"], 100)
    if isinstance(body.get("constraints"), dict):
        changed["constraints"] = known(body["constraints"])
    return changed


def attack_below(
    address: str, examples: int, *, headers: dict[str, str] | None = None
) -> tuple[dict[str, int], list[str]]:
    """Send odd headers, odd pictures and slow connections; count answers, and list defects."""
    chance = random.Random(0)
    port = int(address.rpartition(":")[2])
    met: dict[str, int] = {}
    defects: list[str] = []

    def note(title: str, sent: bytes, status: int | None, body: bytes) -> None:
        key = f"{title} {status or 'none'}"
        met[key] = met.get(key, 0) + 1
        if status is None or status < 400 or status == 421:
            return
        wrong = status >= 500 and status not in ANNOUNCED
        known = b'"urn:cefito:' in body or body == b"Invalid HTTP request received."  # uvicorn's
        if wrong or not known:
            defects.append(f"{title} {status}: {sent[:200]!r} got {body[:200]!r}")

    for _ in range(examples):
        sent = odd_request(chance)
        note("odd headers", sent, *exchanged(port, sent, seconds=0.2))
        sent = upload_request(odd_picture(chance), headers or {})
        note("odd picture", sent, *exchanged(port, sent))
    with ExitStack() as stack:
        for number in range(examples):
            sent = odd_request(chance)
            client = stack.enter_context(connected(port))
            with suppress(OSError):
                client.sendall(sent[: chance.randrange(len(sent))])
            if number % 25 == 0:
                status, body = exchanged(port, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
                note("health beside slow clients", sent, status, body)
                if status != 200:
                    defects.append(f"/health beside {number} slow clients: {status}")
    return met, defects


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def exchanged(port: int, sent: bytes, seconds: float = 60) -> tuple[int | None, bytes]:
    """Status and body of the answer to some bytes, if there is one within some seconds."""
    data, whole = b"", False
    with connected(port) as client, suppress(OSError):
        client.settimeout(seconds)
        client.sendall(sent)
        while not whole and (part := client.recv(1 << 16)):
            data += part
            length = re.search(rb"content-length: (\d+)\r\n.*?\r\n\r\n", data, re.DOTALL)
            whole = length is not None and len(data) >= length.end() + int(length[1])
    head, _, body = data.partition(b"\r\n\r\n")
    return (int(head.split()[1]), body) if head else (None, b"")


_PIECES = (
    *("localhost", "127.0.0.1", "[::1]", "evil.com", "null", "http://", "https://", ":", ":80"),
    *("@", "/", " ", "\t", ",", "\x00", "\xe9", "cross-site", "Cross-Site", "none", "", "x" * 300),
)
_HEADERS = (
    *("host", "Host", "origin", "sec-fetch-site", "content-length", "transfer-encoding", "expect"),
    *("connection", "authorization", "x-request-id", "content-type", "range", "upgrade", "cookie"),
)
_VALUES = (
    *("0", "5", "-1", "1e3", "99999999999999999999", "chunked", "gzip, chunked", "100-continue"),
    *("close", "upgrade", "websocket", "application/json", "multipart/form-data; boundary=", "h2c"),
)


def odd_request(chance: random.Random) -> bytes:
    """A request with odd headers, or none that is well formed."""
    method = chance.choice(("GET", "POST", "OPTIONS", "CONNECT", "get", "G\x00T", "x" * 100))
    path = chance.choice(("/health", "/docs/", "/v1/plan", "//evil.com/", "http://evil.com/", "*"))
    lines = [f"{method} {path} HTTP/1.{chance.choice('0112')}"]
    if chance.random() < 0.8:
        lines.append("host: localhost")
    for _ in range(chance.randrange(4)):
        pieces = chance.choices(_PIECES, k=chance.randrange(1, 4))
        value = chance.choice((*_VALUES, *["".join(pieces)] * 10))
        lines.append(f"{chance.choice(_HEADERS)}: {value}")
    end = chance.choice(
        ("\r\n\r\n", "\n\n", "\r\n", "\r\n\r\n{}", "\r\n\r\n5\r\nabcde\r\n0\r\n\r\n")
    )
    return ("\r\n".join(lines) + end).encode("latin-1")


def odd_picture(chance: random.Random) -> bytes:
    """A PNG of odd size, perhaps one that announces more than it holds, or is damaged."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))

    sides = (1, 2, 3, 40, 5000, 200_000, 3_000_000, 2**31 - 1)
    width, height = chance.choice(sides), chance.choice((1, 1, 2, 40, 200_000))
    depth, colour = chance.choice(((1, 0), (8, 0), (8, 2), (8, 6), (16, 2), (8, 3), (7, 9)))
    size = min((width * depth * 4 // 8 + 1) * min(height, 50), 1 << 22)
    pixels = zlib.compress(bytes(size), 9)
    data = b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, chance.choice((0, 1)))
    )
    data += chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    if chance.random() < 0.3:
        broken = bytearray(data)
        broken[chance.randrange(8, len(data))] = chance.randrange(256)
        data = bytes(broken)
    return data


def upload_request(picture: bytes, headers: dict[str, str]) -> bytes:
    """An upload of a picture, twice."""
    part = b'--x\r\ncontent-disposition: form-data; name="%s"; filename="p"\r\n\r\n%s\r\n'
    body = part % (b"initial", picture) + part % (b"goal", picture) + b"--x--\r\n"
    lines = ["POST /v1/plan/upload HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["content-type: multipart/form-data; boundary=x", f"content-length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--token", default="")
    given = parser.parse_args()
    headers = {"authorization": f"Bearer {given.token}"} if given.token else {}

    def get(path: str) -> Any:
        request = urllib.request.Request(given.address + path, headers=headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    schema = schemathesis.openapi.from_dict(get("/openapi.json"))
    schema.config.update(base_url=given.address)
    run = get("/v1/model")["runs"][0]
    met = attack(schema, given.examples, run=run, headers=headers)
    below, defects = attack_below(given.address, given.examples, headers=headers)
    for key, count in sorted({**met, **below}.items()):
        sys.stdout.write(f"{count:7,}  {key}\n")
    inputs = sum(met.values()) + sum(below.values())
    sys.stdout.write(f"{inputs:,} inputs, {len(defects)} defects\n")
    for defect in defects[:20]:
        sys.stdout.write(f"{defect}\n")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
