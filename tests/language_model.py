"""A stand-in for a language model: a local server that answers from the prompt alone."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

from http_servers import serving

MODEL = "stand-in"
SETTINGS = {"llm.model": MODEL, "llm.retries": 0}
"""Settings to ask the stand-in."""


class ParsedPrompt:
    """The facts in a prompt, read back from its words."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        self.offset = crc32("".join(lines[: lines.index("Actions:")]).encode()) % 1000
        self.actions = [
            int(found[1])
            for line in lines[lines.index("Actions:") :]
            if (found := re.match(r"(\d+): ", line))
        ]
        (self.horizon,) = (int(line.split(": ")[1]) for line in lines if "Number of steps" in line)
        self.first, self.last = (
            int(line.split(": ")[1]) for line in lines if re.match(r"(First|Last) step", line)
        )

    def plan(self) -> list[int]:
        """A plan from the first to the last action."""
        count = len(self.actions)
        middle = [
            self.actions[(self.offset // count ** (step % 2) + step) % count]
            for step in range(self.horizon - 2)
        ]
        return [self.first, *middle, self.last][: self.horizon]


def answered(body: dict[str, Any]) -> str:
    """A valid answer to a request."""
    plan = ParsedPrompt(body["messages"][1]["content"]).plan()
    return json.dumps({f"step_{step}": action for step, action in enumerate(plan, 1)})


def completion(content: str | None, **more: Any) -> dict[str, Any]:
    """A chat completion of the given content; `refusal` and `finish` as well."""
    message = {"role": "assistant", "content": content, "refusal": more.get("refusal")}
    choice = {"index": 0, "message": message, "finish_reason": more.get("finish", "stop")}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{MODEL}-2026-11",
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


class Stand:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[dict[str, Any]] = []  # bodies of all requests, in their order
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[dict[str, Any]], str] = answered
        self.delay = 0.0  # seconds that an answer takes
        self.lock = threading.Lock()

    @property
    def questions(self) -> list[str]:
        """The messages of all requests."""
        return [json.dumps(body["messages"]) for body in self.asked]


@contextmanager
def stand() -> Iterator[Stand]:
    """A server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with served.lock:
                served.asked.append(body)
                served.headers.append(dict(self.headers))
            time.sleep(served.delay)
            data = json.dumps(completion(served.answer(body))).encode()
            self.send_response(200 if self.path.endswith("/chat/completions") else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore clients that are gone."""

    with serving(Handler, Server) as server:
        served = Stand(f"http://127.0.0.1:{server.server_address[1]}/v1")
        yield served
