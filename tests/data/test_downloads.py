"""Downloads from a local HTTP server, and archives that come with them."""

import hashlib
import http.server
import socket
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cefito.data import downloads
from cefito.data.downloads import download, find_place, places
from cefito.errors import ConfigError, DataError
from http_servers import serving
from tiny_runs import stopping_after

CONTENT = np.random.default_rng(0).integers(0, 256, 700_000, dtype=np.uint8).tobytes()
HASH = hashlib.sha256(CONTENT).hexdigest()
WHERE = "The project antoine77340/S3D_HowTo100M says where its s3d_howto100m.pth lies. Save it as "


class Answers:
    """How a server of one file answers."""

    def __init__(self):
        self.content = CONTENT
        self.kind = "application/octet-stream"
        self.status = 200
        self.headers = {}
        self.stop = None  # bytes after which it closes the connection
        self.asked: list[dict[str, Any]] = []
        self.http: Any = None
        self.address = ""

    def answer(self, to):
        self.asked.append({"path": to.path, **dict(to.headers)})
        to.send_response(self.status)
        standard = {"Content-Type": self.kind, "Content-Length": str(len(self.content))}
        for name, value in (standard | self.headers).items():
            if value is not None:
                to.send_header(name, value)
        to.end_headers()
        to.wfile.write(self.content[: self.stop])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    answers = Answers()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answers.answer(self)

    with serving(Handler) as answers.http:
        answers.address = f"http://127.0.0.1:{answers.http.server_port}/file"
        known = find_place("s3d").model_copy(update={"address": answers.address})
        monkeypatch.setitem(places(), "s3d", known)
        yield answers


@pytest.fixture
def place(monkeypatch):
    """Change what is documented of a place."""

    def change(name="s3d", **known):
        monkeypatch.setitem(places(), name, find_place(name).model_copy(update=known))

    return change


def refused(*args, **options):
    with pytest.raises(DataError) as caught:
        download(*args, **options)
    message = str(caught.value)
    assert message.isprintable()
    return message


def left(target):
    return sorted(path.name for path in target.iterdir()) if target.exists() else []


def test_every_place_has_an_address_or_says_where_to_look():
    for name, known in places().items():
        assert known.name == name
        assert known.by_hand.endswith(".")
        assert Path(known.file).name == known.file
        assert known.address is None or known.address.startswith("https://")


def test_without_a_documented_address_the_message_says_where_to_look(tmp_path, place):
    place(address=None)
    assert refused("s3d", tmp_path).startswith(f"s3d: no address is documented. {WHERE}")
    assert left(tmp_path) == []


def test_wrong_arguments(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown download 'i3d'.* s3d, cross"):
        download("i3d", tmp_path)


def test_a_whole_file(server, tmp_path):
    shown, counts = [], []

    @contextmanager
    def progress(description, *, total=None):
        shown.append((description, total))
        yield lambda count=1, **_: counts.append(count)

    target = tmp_path / "new" / "folder"
    done = download("s3d", target, progress=progress)
    path = target / "s3d_howto100m.pth"
    assert done == downloads.Downloaded(path, 700_000, HASH, checked=False, kept=False)
    assert done.path.read_bytes() == CONTENT
    assert left(target) == ["s3d_howto100m.pth"]
    assert shown == [("s3d_howto100m.pth, MiB", 1)]
    assert sum(counts) == pytest.approx(700_000 / 2**20)
    assert server.asked[0]["User-Agent"].startswith("cefito/")

    again = download("s3d", target)
    assert again.kept
    assert again.sha256 == HASH
    assert len(server.asked) == 1


def test_documented_addresses_sizes_and_hashes_are_used(server, tmp_path, place):
    place(bytes=700_000, sha256=HASH)
    assert download("s3d", tmp_path).checked


def test_redirections_stay_on_the_web(server, tmp_path):
    server.status, server.headers = 302, {"Location": "file:///etc/passwd"}
    assert WHERE in refused("s3d", tmp_path)
    server.headers = {"Location": "ftp://127.0.0.1/x"}
    assert "not encrypted" in refused("s3d", tmp_path)
    redirect = downloads._Redirects().redirect_request
    request = urllib.request.Request("https://host/a")
    with pytest.raises(urllib.error.URLError, match="not encrypted"):
        redirect(request, None, 302, "Found", {}, "http://host/a")
    there = redirect(request, None, 302, "Found", {}, "https://mirror/a")
    assert there.full_url == "https://mirror/a"
    assert left(tmp_path) == []


def test_a_server_that_does_not_say_the_length(server, tmp_path):
    server.headers = {"Content-Length": None}
    assert download("s3d", tmp_path).sha256 == HASH


def test_a_transfer_that_stops(server, tmp_path):
    server.stop = 300_000
    message = refused("s3d", tmp_path)
    assert "the transfer stopped before the end (the server closed the connection)" in message
    server.content, server.stop = b"5\r\nhello\r\n5\r\nwor", None
    server.headers = {"Content-Length": None, "Transfer-Encoding": "chunked"}
    server.http.RequestHandlerClass.protocol_version = "HTTP/1.1"
    assert "before the end (IncompleteRead" in refused("s3d", tmp_path)
    assert left(tmp_path) == []


def test_an_interrupted_transfer_leaves_nothing(server, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        download("s3d", tmp_path, progress=stopping_after(0))
    assert left(tmp_path) == []


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (599, "unknown")])
def test_a_server_that_refuses(server, tmp_path, status, reason):
    server.status = status
    message = refused("s3d", tmp_path)
    assert message.startswith(f"{server.address}: the server answers {status} ({reason}). {WHERE}")
    assert left(tmp_path) == []


def test_a_server_that_cannot_be_reached(server, place, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.5)
    wait = threading.Event()
    server.answer = lambda _: wait.wait(5)
    assert "cannot be reached (timed out)" in refused("s3d", tmp_path)
    wait.set()
    server.answer = lambda to: to.wfile.write(b"non\x1b[2Jsense\r\n\r\n")
    assert "cannot be reached (non?[2Jsense)" in refused("s3d", tmp_path)
    with socket.socket() as closed:  # bound, but not listening
        closed.bind(("127.0.0.1", 0))
        place(address=f"http://127.0.0.1:{closed.getsockname()[1]}/file")
        assert "Connection refused). " + WHERE in refused("s3d", tmp_path)


def test_files_that_are_not_the_documented_one(server, tmp_path, place):
    place(sha256="0" * 64)
    message = refused("s3d", tmp_path)
    assert f": the file has SHA-256 {HASH}; expected {'0' * 64}. It was removed. " in message
    place(bytes=600_000, sha256=None)
    message = refused("s3d", tmp_path)
    assert "the file has 700,000 bytes; expected 600,000. It was removed." in message
    server.kind = "text/html; charset=utf-8"
    message = refused("s3d", tmp_path)
    assert ": leads to a web page, not to the file itself. " + WHERE in message
    assert left(tmp_path) == []


def test_a_file_saved_by_hand_is_checked(tmp_path, place):
    path = tmp_path / "s3d_howto100m.pth"
    path.write_bytes(CONTENT)
    assert download("s3d", tmp_path).kept
    place(sha256="1" * 64)
    assert f"{path}: the file has SHA-256 {HASH}; expected 1111" in refused("s3d", tmp_path)
    assert path.read_bytes() == CONTENT
    path.unlink()
    path.mkdir()
    assert "it is a folder, not a file" in refused("s3d", tmp_path)


def test_a_folder_that_cannot_be_created(server, tmp_path):
    (tmp_path / "file").write_text("x")
    message = refused("s3d", tmp_path / "file" / "folder")
    assert "folder: cannot be created (Not a directory). Choose another folder." in message
