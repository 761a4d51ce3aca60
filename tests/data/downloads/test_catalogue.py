"""Downloads from a server of ours on this machine.

They come whole, continued, cut short, not at all, or are not what was expected.
"""

import errno
import gzip
import hashlib
import http.server
import io
import json
import shutil
import socket
import threading
import urllib.error
import urllib.request
import zipfile
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cefito.data.downloads import catalogue as room
from cefito.data.downloads import transfer
from cefito.data.downloads.catalogue import download, find_place, places
from cefito.errors import ConfigError, DataError

CONTENT = np.random.default_rng(0).integers(0, 256, 700_000, dtype=np.uint8).tobytes()
HASH = hashlib.sha256(CONTENT).hexdigest()
WHERE = (
    "The project antoine77340/S3D_HowTo100M says where its s3d_howto100m.pth lies. Give its address"
)


class Server:
    """A server of one file, with the faults that servers have; remembers what it was asked."""

    def __init__(self):
        self.content = CONTENT
        self.etag = '"one"'
        self.modified = None
        self.kind = "application/octet-stream"
        self.status = None
        self.ranges = True  # knows ranges
        self.honest = True  # heeds If-Range
        self.announces = True  # says the length
        self.lies = {}  # headers to replace
        self.stop = None  # bytes after which it hangs up
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/file"

    def answer(self, to):
        self.asked.append({"path": to.path, **dict(to.headers)})
        if self.status in (301, 302):
            self.status, place = None, self.lies.pop("Location")
            to.send_response(302)
            to.send_header("Location", place)
            to.end_headers()
            return
        if self.status is not None:
            to.send_response(self.status)
            to.end_headers()
            return
        start, condition = 0, to.headers.get("If-Range")
        if (
            self.ranges
            and "Range" in to.headers
            and (not self.honest or condition in (self.etag, self.modified))
        ):
            start = int(to.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        headers = {
            "Content-Type": self.kind,
            "ETag": self.etag,
            "Last-Modified": self.modified,
            "Content-Length": str(len(self.content) - start) if self.announces else None,
        }
        if start >= len(self.content):
            to.send_response(416)
            to.end_headers()
            return
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"
        to.send_response(206 if start else 200)
        for name, value in (headers | self.lies).items():
            if value is not None:
                to.send_header(name, value)
        to.end_headers()
        stop, self.stop = self.stop, None
        to.wfile.write(self.content[start:stop])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(
        target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


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
    assert "\n" not in message
    return message


def cut(server, target, at=300_000):
    """A transfer that stops."""
    server.stop = at
    message = refused("s3d", target, address=server.address)
    assert f"the transfer stopped after {at:,} of 700,000 bytes" in message
    assert message.endswith("Call it again: it goes on from there where the server allows it.")
    assert not (target / "s3d_howto100m.pth").exists()
    assert part(target).read_bytes() == CONTENT[:at]
    server.asked.clear()


def part(target):
    return target / ".s3d_howto100m.pth.part"


def left(target):
    return sorted(path.name for path in target.iterdir()) if target.exists() else []


# What is documented


def test_places_say_where_things_lie_or_how_to_find_them():
    assert list(places()) == [
        "s3d",
        "crosstask-annotations",
        "crosstask-features",
        "coin-annotations",
        "coin-features",
        "niv-features",
        "unified-windows",
    ]
    about = json.loads(Path(room.__file__).with_name("places.json").read_text())["about"]
    assert "null where none is published" in about
    for name, known in places().items():
        assert known.name == name
        assert known.by_hand.endswith(".")
        assert Path(known.file).name == known.file
        assert known.unpack == known.file.endswith(".archive")
        assert known.bytes is known.sha256 is None
        assert known.address is None or known.address.startswith("https://")
        assert "://" not in known.by_hand
    assert places()["s3d"].file == "s3d_howto100m.pth"
    assert places()["s3d"].licence == "Apache-2.0"
    assert {name for name, known in places().items() if known.address} == {
        "s3d",
        "crosstask-annotations",
        "coin-annotations",
    }
    assert sum("answer 403" in known.by_hand for known in places().values()) == 3


def test_without_a_documented_address_the_message_says_where_to_look(tmp_path, place):
    place(address=None)
    assert refused("s3d", tmp_path / "weights") == (
        f"s3d: no address is documented here. {WHERE}, or save it as "
        f"{tmp_path / 'weights' / 's3d_howto100m.pth'} and call this again to check it."
    )
    assert "to check and unpack it." in refused("niv-features", tmp_path)
    assert left(tmp_path) == []


def test_unknown_names_and_impossible_addresses(tmp_path):
    with pytest.raises(
        ConfigError,
        match="nothing to download is called 'i3d'; expected one of: s3d, crosstask-annot",
    ):
        download("i3d", tmp_path)
    with pytest.raises(ConfigError, match="SHA-256 'abc': expected 64 hexadecimal digits"):
        download("s3d", tmp_path, sha256="abc")
    for address in (
        "file:///etc/passwd",
        "ftp://host/file",
        "data:,x",
        "host/file",
        "http://",
        "http://me:secret@host/file",
        "http://host/a b",
        "http://host/ä",
        "http://host/a\nb",
        "http://host:99999/a",
        "http://[::1/a",
        "-x",
    ):
        with pytest.raises(ConfigError, match=r"expected one that begins with http:// or https://"):
            download("s3d", tmp_path, address=address)
    with pytest.raises(ConfigError, match=r"address http://host/file: is not encrypted"):
        download("s3d", tmp_path, address="http://host/file")
    assert left(tmp_path) == []


def test_no_redirection_from_encrypted_to_plain():
    found = transfer._Redirects().redirect_request
    request = urllib.request.Request("https://host/a")
    with pytest.raises(urllib.error.URLError, match="not encrypted"):
        found(request, None, 302, "Found", {}, "http://host/a")
    there = found(request, None, 302, "Found", {}, "https://mirror/a")
    assert there is not None
    assert there.full_url == "https://mirror/a"


# Whole transfers


def test_a_whole_file(server, tmp_path):
    said = []

    @contextmanager
    def progress(description, *, total=None):
        said.append((description, total))

        def advance(count=1, *, note=""):
            said.append(count)

        yield advance

    target = tmp_path / "new" / "folder"
    done = download("s3d", target, address=server.address, progress=progress)
    assert done == room.Downloaded(
        path=target / "s3d_howto100m.pth",
        bytes=700_000,
        sha256=HASH,
        checked=False,
        kept=False,
        folder=None,
    )
    assert done.path.read_bytes() == CONTENT
    assert left(target) == ["s3d_howto100m.pth"]
    assert said[0] == ("s3d_howto100m.pth, MiB", 1)
    assert sum(said[1:]) == pytest.approx(700_000 / 2**20)
    assert server.asked[0]["User-Agent"].startswith("cefito/")
    assert "Range" not in server.asked[0]

    again = download("s3d", target, address=server.address)
    assert again.kept
    assert again.sha256 == HASH
    assert len(server.asked) == 1


def test_documented_addresses_sizes_and_hashes_are_used(server, tmp_path, place):
    place(address=server.address, bytes=700_000, sha256=HASH)
    assert download("s3d", tmp_path).checked
    (tmp_path / "s3d_howto100m.pth").unlink()
    assert download(
        "s3d", tmp_path, address=server.address + "/elsewhere", sha256=HASH.upper()
    ).checked
    assert server.asked[1]["path"] == "/file/elsewhere"


def test_redirections_stay_on_the_web(server, tmp_path):
    server.status, server.lies = 302, {"Location": "/moved"}
    assert download("s3d", tmp_path / "a", address=server.address).sha256 == HASH
    assert [asked["path"] for asked in server.asked] == ["/file", "/moved"]
    for place, reason in (
        ("file:///etc/passwd", "answers 302, "),
        ("ftp://127.0.0.1/x", "unknown url type: ftp"),
    ):
        server.status, server.lies = 302, {"Location": place}
        message = refused("s3d", tmp_path / "b", address=server.address)
        assert reason in message
        assert WHERE in message
    server.answer = lambda to: (
        to.send_response(302),
        to.send_header("Location", "/file"),
        to.end_headers(),
    )
    assert "infinite loop" in refused("s3d", tmp_path / "b", address=server.address)
    assert left(tmp_path / "b") == []


def test_a_server_that_says_no_length(server, tmp_path, place):
    server.announces = False
    assert download("s3d", tmp_path / "a", address=server.address).sha256 == HASH
    place(bytes=600_000)
    message = refused("s3d", tmp_path / "b", address=server.address)
    assert (
        "sends more than 600,000 bytes, the size of the file: another one lies there now."
        in message
    )
    assert left(tmp_path / "b") == []


# Transfers that are continued


def test_a_transfer_goes_on_where_it_stopped(server, tmp_path):
    cut(server, tmp_path)
    done = download("s3d", tmp_path, address=server.address, sha256=HASH)
    assert (done.path.read_bytes() == CONTENT, done.checked, left(tmp_path)) == (
        True,
        True,
        ["s3d_howto100m.pth"],
    )
    assert [(asked["Range"], asked["If-Range"]) for asked in server.asked] == [
        ("bytes=300000-", '"one"')
    ]


def test_it_goes_on_more_than_once(server, tmp_path):
    cut(server, tmp_path, at=100_000)
    server.stop = 500_000
    assert "stopped after 500,000 of 700,000" in refused("s3d", tmp_path, address=server.address)
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert [asked["Range"] for asked in server.asked] == ["bytes=100000-", "bytes=500000-"]


@pytest.mark.parametrize(
    ("etag", "modified", "condition"),
    [
        (None, "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:00 GMT"),
        ('W/"weak"', "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:00 GMT"),
        ('W/"weak"', None, None),
        (None, None, None),
    ],
)
def test_only_a_version_that_has_a_name_is_continued(server, tmp_path, etag, modified, condition):
    server.etag, server.modified = etag, modified
    cut(server, tmp_path)
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert [asked.get("If-Range") for asked in server.asked] == [condition]
    assert ("Range" in server.asked[0]) == (condition is not None)


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("size", [200_000, 700_000, 900_000])
def test_a_file_that_changed_is_fetched_anew(server, tmp_path, honest, size):
    cut(server, tmp_path)
    server.content, server.etag, server.honest = b"\1" * size, '"two"', honest
    done = download("s3d", tmp_path, address=server.address)
    assert done.path.read_bytes() == server.content
    assert left(tmp_path) == ["s3d_howto100m.pth"]


def test_a_server_that_ignores_ranges(server, tmp_path):
    cut(server, tmp_path)
    server.ranges = False
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert [asked["Range"] for asked in server.asked] == ["bytes=300000-"]


@pytest.mark.parametrize(
    "lie",
    [
        "bytes 299999-699999/700000",
        "bytes 300000-699999/800000",
        "bytes 300000-400000/700000",
        "pages 1-2",
        None,
    ],
)
def test_another_part_than_the_one_asked_for_is_not_used(server, tmp_path, lie):
    cut(server, tmp_path)
    answer = server.answer

    def lying(to):
        server.lies = {"Content-Range": lie} if "Range" in to.headers else {}
        answer(to)

    server.answer = lying
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert ["Range" in asked for asked in server.asked] == [True, False]


def test_a_part_nobody_asked_for(server, tmp_path):
    server.status = 206
    assert "the server answers 206, which brings no file" in refused(
        "s3d", tmp_path, address=server.address
    )


def test_chunks_that_end_too_early(server, tmp_path):
    server.announces, server.lies, server.content = (
        False,
        {"Transfer-Encoding": "chunked"},
        b"5\r\nhello\r\n5\r\nwor",
    )
    message = refused("s3d", tmp_path, address=server.address)
    assert "the transfer stopped after " in message
    assert " of an unknown number of bytes (IncompleteRead" in message
    assert not (tmp_path / "s3d_howto100m.pth").exists()


def test_another_address_begins_anew(server, tmp_path):
    cut(server, tmp_path)
    assert download("s3d", tmp_path, address=server.address + "?mirror").sha256 == HASH
    assert "Range" not in server.asked[0]


@pytest.mark.parametrize(
    "notes", ["", "{", "[]", "{}", '{"address": 1, "validator": 2, "total": "x"}']
)
def test_notes_that_are_damaged(server, tmp_path, notes):
    cut(server, tmp_path)
    part(tmp_path).with_name(part(tmp_path).name + ".json").write_text(notes)
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert "Range" not in server.asked[0]


def test_a_file_that_is_whole_but_has_no_name_yet_is_not_fetched_again(
    server, tmp_path, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(room, "_check", interrupted)
        with pytest.raises(KeyboardInterrupt):
            download("s3d", tmp_path, address=server.address)
    assert not (tmp_path / "s3d_howto100m.pth").exists()
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert len(server.asked) == 1


def test_interrupted(server, tmp_path):
    @contextmanager
    def progress(description, *, total=None):
        def advance(count=1, *, note=""):
            raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        download("s3d", tmp_path, address=server.address, progress=progress)
    there = part(tmp_path).stat().st_size
    assert 0 < there < 700_000
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert server.asked[1]["Range"] == f"bytes={there}-"


# Places that are gone


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "it wants a login"),
        (403, "it refuses the file"),
        (404, "it has no such file"),
        (410, "the file is gone"),
        (503, "Service Unavailable"),
        (204, "which brings no file"),
        (416, "Requested Range Not Satisfiable"),
    ],
)
def test_a_place_that_is_gone(server, tmp_path, status, reason):
    server.status = status
    message = refused("s3d", tmp_path, address=server.address)
    assert message == (
        f"{server.address}: the server answers {status}, {reason}. {WHERE}, or save it as "
        f"{tmp_path / 's3d_howto100m.pth'} and call this again to check it."
    )
    assert left(tmp_path) == []


def test_what_came_survives_a_server_that_fails(server, tmp_path):
    cut(server, tmp_path)
    server.status = 503
    assert "answers 503" in refused("s3d", tmp_path, address=server.address)
    server.status = None
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH
    assert server.asked[1]["Range"] == "bytes=300000-"


def test_the_archives_that_are_known_to_be_gone(server, tmp_path):
    server.status = 403
    message = refused("coin-features", tmp_path, address=server.address)
    assert (
        "answers 403, it refuses the file. The archives of S3D features at York are gone: they "
        "answer 403" in message
    )
    assert "coin-dataset/annotations, issue 5, names a mirror" in message


def test_a_name_nobody_knows(tmp_path, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    message = refused("s3d", tmp_path, address="https://nowhere.invalid/file")
    assert message.startswith(
        "https://nowhere.invalid/file: cannot be reached (its name is not known: the place is "
        "gone, or there is no network here). " + WHERE
    )


def test_no_server_there(tmp_path, monkeypatch):
    def closed(*_, **__):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "create_connection", closed)
    message = refused("s3d", tmp_path, address="http://127.0.0.1:9/file")
    assert (
        f"/file: cannot be reached ([Errno {errno.ECONNREFUSED}] Connection refused). {WHERE}"
        in message
    )


def test_a_server_that_falls_silent(server, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_SILENCE", 1.0)
    wait = threading.Event()
    server.answer = lambda _: wait.wait(5)
    try:
        assert "cannot be reached (nothing came for 1 s)" in refused(
            "s3d", tmp_path, address=server.address
        )
    finally:
        wait.set()


def test_a_server_that_falls_silent_half_way(server, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_SILENCE", 1.0)
    wait = threading.Event()
    answer = server.answer

    def slow(to):
        server.stop = 100_000
        answer(to)
        wait.wait(5)

    server.answer = slow
    try:
        message = refused("s3d", tmp_path, address=server.address)
    finally:
        wait.set()
    assert " of 700,000 bytes (nothing came for 1 s); what came is kept. Call it again" in message
    server.answer = answer
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH


def test_a_server_that_talks_nonsense(server, tmp_path):
    server.answer = lambda to: to.wfile.write(b"non\x1b[2Jsense\r\n\r\n")
    assert "cannot be reached (non?[2Jsense)" in refused("s3d", tmp_path, address=server.address)


# Not what was expected


def test_a_web_page_is_not_the_file(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    assert ": leads to a web page, not to the file itself. " + WHERE in refused(
        "s3d", tmp_path, address=server.address
    )
    assert left(tmp_path) == []


def test_a_wrong_hash(server, tmp_path):
    message = refused("s3d", tmp_path, address=server.address, sha256="0" * 64)
    assert message.startswith(
        f"{server.address}: the file has SHA-256 {HASH}; expected {'0' * 64}. It was removed. "
        f"{WHERE}"
    )
    assert left(tmp_path) == []


def test_a_wrong_size(server, tmp_path, place):
    place(bytes=600_000)
    message = refused("s3d", tmp_path, address=server.address)
    assert (
        f"{server.address}: announces 700,000 bytes, but 600,000 are documented: another file lies "
        "there now. " in message
    )
    assert left(tmp_path) == []


def test_nothing_at_all(server, tmp_path):
    server.content = b""
    server.answer = lambda to: (
        to.send_response(200),
        to.send_header("Content-Length", "0"),
        to.end_headers(),
    )
    assert "the file has 0 bytes; expected more than none. It was removed." in refused(
        "s3d", tmp_path, address=server.address
    )
    assert left(tmp_path) == []


def test_a_file_put_there_by_hand_is_checked(tmp_path, place):
    path = tmp_path / "s3d_howto100m.pth"
    path.write_bytes(CONTENT)
    assert download("s3d", tmp_path) == room.Downloaded(
        path=path, bytes=700_000, sha256=HASH, checked=False, kept=True, folder=None
    )
    assert download("s3d", tmp_path, sha256=HASH).checked
    place(bytes=5)
    assert refused("s3d", tmp_path) == (
        f"{path}: the file has 700,000 bytes; expected 5. Remove it and call this again."
    )
    place(bytes=None, sha256="1" * 64)
    assert f"{path}: the file has SHA-256 {HASH}; expected 1111" in refused("s3d", tmp_path)
    assert path.read_bytes() == CONTENT


# The disk

Usage = namedtuple("Usage", "total used free")


def test_too_little_space_is_said_before_anything_is_written(server, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 400_000, 400_000))
    message = refused("s3d", tmp_path, address=server.address)
    assert message == (
        f"{tmp_path}: s3d_howto100m.pth needs 1 MiB, but 0 MiB are free. Free some disk space or "
        "choose another folder."
    )
    assert left(tmp_path) == []


def test_only_the_rest_needs_space(server, tmp_path, monkeypatch):
    cut(server, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 400_000, 400_000))
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH


def test_a_disk_that_fills_up(server, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(transfer.os, "fsync", full)
        # notes are written by cefito.files, which syncs too; they are made before
        patch.setattr(
            transfer, "write_json", lambda path, value: path.write_text(json.dumps(value))
        )
        message = refused("s3d", tmp_path, address=server.address)
    assert message == (
        f"{part(tmp_path)}: could not be written (No space left on device); what came so far is "
        "kept. Free some disk space or choose another folder, then call it again."
    )
    assert download("s3d", tmp_path, address=server.address).sha256 == HASH


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("x")
    assert refused("s3d", tmp_path / "file" / "folder", address=server.address) == (
        f"{tmp_path / 'file' / 'folder'}: cannot be made (Not a directory). Choose another folder."
    )
    (tmp_path / "s3d_howto100m.pth").mkdir()
    assert refused("s3d", tmp_path, address=server.address) == (
        f"{tmp_path / 's3d_howto100m.pth'}: cannot be read (Is a directory). Remove it and call "
        "this again."
    )


def test_two_downloads_of_one_file_do_not_mix(server, tmp_path):
    @contextmanager
    def progress(description, *, total=None):
        def advance(count=1, *, note=""):  # what another one does that begins anew
            part(tmp_path).unlink(missing_ok=True)
            part(tmp_path).write_bytes(b"begun")

        yield advance

    assert "is something else loading it too?" in refused(
        "s3d", tmp_path, address=server.address, progress=progress
    )
    assert not (tmp_path / "s3d_howto100m.pth").exists()


# Archives


def test_archives_are_unpacked_beside_themselves(server, tmp_path):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("release/tasks.txt", "tea")
    server.content = stream.getvalue()
    done = download("crosstask-annotations", tmp_path, address=server.address)
    assert done.folder == tmp_path / "crosstask_release"
    assert (done.folder / "release" / "tasks.txt").read_text() == "tea"
    assert left(tmp_path) == ["crosstask_release", "crosstask_release.archive"]

    assert download("crosstask-annotations", tmp_path).kept
    shutil.rmtree(done.folder)
    assert download("crosstask-annotations", tmp_path).folder == done.folder
    assert (done.folder / "release" / "tasks.txt").exists()
    done.path.unlink()
    assert refused("crosstask-annotations", tmp_path, address=server.address) == (
        f"{done.folder}: exists already, without the archive it came from. Choose another folder, "
        "or remove it to fetch it anew."
    )
    assert len(server.asked) == 1


def test_an_archive_that_is_none_stays_as_it_is(server, tmp_path):
    server.content = gzip.compress(b"no tar")
    message = refused("niv-features", tmp_path, address=server.address)
    assert f"{tmp_path / 'niv-features.archive'}: damaged or cut short" in message
    assert left(tmp_path) == ["niv-features.archive"]


def test_nothing_of_urllib_but_the_web_can_be_opened():
    assert sorted(transfer._opener().handle_open) == ["http", "https", "unknown"]
    assert {"ftp", "file", "data"} <= set(urllib.request.build_opener().handle_open)
