"""A Label Studio server as a back end sees it: it serves films and the annotations of projects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from http_servers import serving

TOKEN = "0123456789abcdef0123456789abcdef01234567"
CONFIG = """<View>
  <TimelineLabels name="steps" toName="video">{labels}</TimelineLabels>
  <Video name="video" value="$video" frameRate="10"/>
</View>"""


def configuration(names: Iterable[str], form: str = CONFIG) -> str:
    """A labelling configuration with labels of these names."""
    return form.format(labels="".join(f'<Label value="{name}"/>' for name in names))


def regions(steps: Iterable[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Regions of steps, as a person draws them; names and seconds, at ten frames a second."""
    return [
        {
            **{"id": f"r{place}", "type": "timelinelabels"},
            **{"from_name": "steps", "to_name": "video"},
            "value": {
                "ranges": [{"start": round(10 * start) + 1, "end": round(10 * end)}],
                "timelinelabels": [name],
            },
        }
        for place, (name, start, end) in enumerate(steps)
    ]


def read_steps(proposal: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Names and seconds of a proposal's regions."""
    values = [region["value"] for region in proposal["result"]]
    return [
        (value["timelinelabels"][0], (part["start"] - 1) / 10, part["end"] / 10)
        for value in values
        for part in value["ranges"]
    ]


class FakeStudio:
    """Films in a folder, below /data/upload/1/ and as local files, for those who show the token."""

    def __init__(self, films: Path) -> None:
        self.films, self.address = films, ""
        self.asked: list[tuple[str, str | None]] = []  # paths, and what was shown
        self.exported: list[dict[str, Any]] = []

    def answer(self, path: str, shown: str | None) -> tuple[int, bytes]:
        """Status and body of the answer to a request."""
        self.asked.append((path, shown))
        split = urlsplit(path)
        if split.path.startswith("/open/"):
            return 200, (self.films / split.path.removeprefix("/open/")).read_bytes()
        if shown not in (f"Token {TOKEN}", "Bearer access"):
            return 401, b"{}"
        if split.path.startswith("/api/projects/"):
            return 200, json.dumps(self.exported).encode()
        name = split.path.rpartition("/")[2]
        if split.path == "/data/local-files/":
            name = unquote(parse_qs(split.query)["d"][0]).rpartition("/")[2]
        film = self.films / name
        return (200, film.read_bytes()) if film.is_file() else (404, b"")


@contextmanager
def studio_of(films: Path) -> Iterator[FakeStudio]:
    """Serve films as Label Studio does."""
    studio = FakeStudio(films)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*studio.answer(self.path, self.headers["authorization"]))

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            access = json.dumps({"access": "access"}).encode()
            self._send(*((200, access) if sent.get("refresh") == "a.b.c" else (401, b"{}")))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as server:
        studio.address = f"http://127.0.0.1:{server.server_address[1]}"
        yield studio
