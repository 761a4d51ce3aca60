"""A stand-in for a server of language models, which answers by the request alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

from http_servers import serving

Answer = Callable[[dict[str, Any]], "str | dict[str, Any] | int"]


def valid(body: dict[str, Any]) -> str:
    """An answer that its schema allows, and that differs between requests."""
    steps = body["response_format"]["json_schema"]["schema"]["properties"]
    draw = crc32(json.dumps(body["messages"]).encode())
    plan = {name: step["enum"][draw % len(step["enum"])] for name, step in steps.items()}
    return json.dumps(plan)


def completion(content: str | None, **more: Any) -> dict[str, Any]:
    """A chat completion of the given content; `refusal` and `finish` as well."""
    message = {"role": "assistant", "content": content, "refusal": more.get("refusal")}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "stand-in-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": more.get("finish", "stop")}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


class StandIn:
    """What a running server was asked and how it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: list[dict[str, Any]] = []  # of all requests for a completion
        self.headers: list[dict[str, str]] = []
        self.answer: Answer = valid  # a text, a completion, or the status of a failure
        self.models = ["stand-in"]
        self.message = "it is broken"  # of failures
        self.ended = threading.Event()  # for answers that wait


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """A server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send(200, {"object": "list", "data": [{"id": name} for name in served.models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.bodies.append(body)
            served.headers.append(dict(self.headers))
            answer = served.answer(body)
            if isinstance(answer, int):
                self.send(answer, {"error": {"message": served.message}})
            else:
                self.send(200, completion(answer) if isinstance(answer, str) else answer)

        def send(self, status: int, value: dict[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Retry-After-Ms", "1")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore clients that are gone."""

    with serving(Handler, Server) as server:
        served = StandIn(f"http://127.0.0.1:{server.server_address[1]}/v1")
        yield served
        served.ended.set()
