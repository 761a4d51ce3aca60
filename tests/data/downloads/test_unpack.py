"""Archives of others: the good ones come out whole, the bad ones leave nothing behind."""

import gzip
import io
import shutil
import stat
import tarfile
import tracemalloc
import zipfile
from collections import namedtuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cefito.data.downloads import unpack as room
from cefito.data.downloads.unpack import unpack
from cefito.errors import DataError

FILES = {
    "release/tasks.txt": b"tea\ntoast\n",
    "release/annotations/a b.csv": b"1,2,3\n" * 50_000,
    "readme": b"",
    "release/ümläut.txt": b"x",
}
ELSEWHERE = [
    "../out.txt",
    "a/../../out.txt",
    "/out.txt",
    "a\\..\\..\\out.txt",
    "C:out.txt",
    "C:/out.txt",
    "//host/share/out.txt",
]
# the last cannot be in a zip archive
ODD = ["a\nb", "a\x1b[2Jb", "a" * 256, "a/" * 501 + "b", "\udcff.txt"]


def zipped(path, files=FILES, *, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.mkdir("empty")
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path, files=FILES, *, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w:gz", format=form) as archive:
        folder = tarfile.TarInfo("empty")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def found(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(archive):
    """What is said about an archive; nothing may be written."""
    here = archive.parent
    before = sorted(here.parent.rglob("*"))
    with pytest.raises(DataError) as caught:
        unpack(archive, here / "out")
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{archive}: ")
    assert sorted(here.parent.rglob("*")) == before
    return message


def nothing_was_unpacked(archive, reason):
    return (
        f"{archive}: {reason}. Nothing was unpacked; fetch it from a place you trust, or unpack it "
        "by hand."
    )


@pytest.mark.parametrize(
    "make",
    [
        zipped,
        tarred,
        lambda path: zipped(path, method=zipfile.ZIP_STORED),
        lambda path: tarred(path, form=tarfile.GNU_FORMAT),
    ],
)
def test_a_whole_archive(tmp_path, make):
    archive = make(tmp_path / "archive.whatever")
    assert unpack(archive, tmp_path / "out") == len(FILES)
    assert found(tmp_path / "out") == FILES
    assert (tmp_path / "out" / "empty").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.whatever", "out"]
    with pytest.raises(
        DataError, match=r"out: exists already\. Choose another folder or remove it first"
    ):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("make", [zipped, tarred])
def test_attributes_are_not_taken_over(tmp_path, make):
    archive = tmp_path / "a"
    if make is zipped:
        with zipfile.ZipFile(archive, "w") as opened:
            info = zipfile.ZipInfo("tool")
            info.external_attr = (stat.S_IFREG | 0o4777) << 16
            opened.writestr(info, "x")
    else:
        with tarfile.open(archive, "w:gz") as opened:
            info = tarfile.TarInfo("tool")
            info.mode, info.uid, info.size = 0o4777, 12345, 1
            opened.addfile(info, io.BytesIO(b"x"))
    unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out" / "tool").stat().st_mode & 0o7111


@pytest.mark.parametrize("make", [zipped, tarred])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_that_lead_elsewhere(tmp_path, make, name):
    archive = make(tmp_path / "in", {"good": b"1"} | {name: b"2"})
    assert refused(archive) == nothing_was_unpacked(
        archive, f"holds {name!a}, which would be written elsewhere than in the folder"
    )


@pytest.mark.parametrize(
    ("make", "name"), [*((tarred, name) for name in ODD), *((zipped, name) for name in ODD[:-1])]
)
def test_names_that_are_odd(tmp_path, make, name):
    assert "a name that is empty, too long or has odd characters" in refused(
        make(tmp_path / "in", {name: b"2"})
    )


@pytest.mark.parametrize("make", [zipped, tarred])
@pytest.mark.parametrize(
    ("second", "reason"),
    [("a/b", "holds 'a/b', where another file stands"), ("./a", "holds './a' twice")],
)
def test_names_that_are_taken(tmp_path, make, second, reason):
    archive = make(tmp_path / "in", {"a": b"1", second: b"2"})
    assert refused(archive) == nothing_was_unpacked(archive, reason)


def test_a_name_that_is_empty(tmp_path):
    archive = zipped(tmp_path / "in", {"a": b"1"})
    archive.write_bytes(archive.read_bytes().replace(b"a", b"\0"))
    assert "holds '', a name that is empty" in refused(archive)


def test_a_folder_where_a_file_stands(tmp_path):
    archive = zipped(tmp_path / "in", {"a": b"1", "a/": b""})
    assert refused(archive) == nothing_was_unpacked(
        archive, "holds 'a/', where another file stands"
    )


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.GNUTYPE_SPARSE,
    ],
)
def test_links_and_devices_in_tar_archives(tmp_path, kind):
    with tarfile.open(tmp_path / "in", "w:gz", format=tarfile.GNU_FORMAT) as archive:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    assert refused(tmp_path / "in") == nothing_was_unpacked(
        tmp_path / "in", "holds 'link', which is neither a file nor a folder (a link?)"
    )


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_in_zip_archives(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "in", "w") as archive:
        member = zipfile.ZipInfo("link")
        member.external_attr = (kind | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    assert refused(tmp_path / "in") == nothing_was_unpacked(
        tmp_path / "in", "holds 'link', which is neither a file nor a folder (a link?)"
    )


@pytest.mark.parametrize("make", [zipped, tarred])
def test_archives_that_grow_beyond_reason(tmp_path, make):
    archive = make(tmp_path / "in", {"a": bytes(9 << 20), "b": bytes(9 << 20)})
    assert archive.stat().st_size < 100_000
    assert refused(archive) == nothing_was_unpacked(
        archive, "unpacks to more than 16,777,216 bytes, the most that is allowed for its size"
    )


@pytest.mark.parametrize("make", [zipped, tarred])
def test_the_bounds(tmp_path, make, monkeypatch):
    archive = make(tmp_path / "in")
    monkeypatch.setattr(room, "MAX_MEMBERS", 4)
    assert "holds more than 4 files" in refused(archive)
    monkeypatch.setattr(room, "MAX_MEMBERS", 5)
    monkeypatch.setattr(room, "MAX_BYTES", 1000)
    assert "unpacks to more than 1,000 bytes" in refused(archive)
    monkeypatch.setattr(room, "MAX_BYTES", sum(map(len, FILES.values())))
    assert unpack(archive, tmp_path / "out") == len(FILES)


@pytest.mark.parametrize("make", [zipped, tarred])
def test_too_little_space(tmp_path, make, monkeypatch):
    archive = make(tmp_path / "in")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: namedtuple("Usage", "total used free")(10, 0, 1000)
    )
    assert refused(archive) == (
        f"{archive}: unpacks to more than the 1,000 bytes that are free. Free some disk space, or "
        "move it to another disk."
    )


def test_sizes_that_lie(tmp_path):
    """What is announced is counted before, what is there while it is written."""
    archive = zipped(tmp_path / "in", {"a": bytes(5000)})
    data = archive.read_bytes()
    for size in (10, 4999, 5001, 2**31):
        archive.write_bytes(data.replace((5000).to_bytes(4, "little"), size.to_bytes(4, "little")))
        message = refused(archive)
        assert "damaged or cut short" in message or "unpacks to more than" in message


def test_a_tar_archive_whose_headers_are_a_bomb(tmp_path):
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    with gzip.open(tmp_path / "in", "wb") as stream:
        stream.write(header.tobuf())
        for _ in range(32):
            stream.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        message = refused(tmp_path / "in")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message == nothing_was_unpacked(
        tmp_path / "in", "holds more than 1,048,576 bytes between two files"
    )
    assert peak < 8 << 20


def test_encrypted_and_strangely_compressed_zip_archives(tmp_path):
    archive = zipped(tmp_path / "in", {"a": b"x"}, method=zipfile.ZIP_BZIP2)
    assert "holds 'a', compressed in a way other than deflate" in refused(archive)
    data = bytearray(zipped(archive, {"a": b"x"}).read_bytes())
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.rindex(magic) + place] |= 1
    archive.write_bytes(data)
    assert "holds 'a', which is encrypted" in refused(archive)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"<html>",
        b"PK\x03\x04",
        b"\x1f\x8b",
        b"\x1f\x8b\x08" + bytes(20),
        gzip.compress(b"no tar", mtime=0),
        gzip.compress(b"", mtime=0),
    ],
)
def test_what_is_no_archive(tmp_path, content):
    (tmp_path / "in").write_bytes(content)
    message = refused(tmp_path / "in")
    assert "neither a .zip nor a .tar.gz archive" in message or "damaged or cut short (" in message
    assert message.endswith("Remove it and fetch it again.")


def test_no_archive_at_all(tmp_path):
    assert refused(tmp_path / "in") == f"{tmp_path / 'in'}: no such file."


@pytest.mark.parametrize("make", [zipped, tarred])
def test_archives_that_are_cut_short(tmp_path, make):
    data = make(tmp_path / "in").read_bytes()
    for size in range(4, len(data), max(1, len(data) // 40)):
        (tmp_path / "in").write_bytes(data[:size])
        assert "damaged or cut short (" in refused(tmp_path / "in")
    (tmp_path / "in").write_bytes(data[:-1])
    assert "damaged or cut short (" in refused(tmp_path / "in")


def test_checksums_are_compared(tmp_path):
    archive = zipped(tmp_path / "in", {"a": b"12345"}, method=zipfile.ZIP_STORED)
    archive.write_bytes(archive.read_bytes().replace(b"12345", b"12945"))
    assert "damaged or cut short (Bad CRC-32 for file 'a')" in refused(archive)
    data = tarred(archive, {"a": b"12345"}).read_bytes()
    archive.write_bytes(
        gzip.compress(gzip.decompress(data).replace(b"12345", b"12945"))[:-8] + data[-8:]
    )
    assert "damaged or cut short (CRC check failed" in refused(archive)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(make=st.sampled_from([zipped, tarred, "tar"]), data=st.data())
def test_damage_anywhere_is_an_error_or_harmless(tmp_path, make, data):
    """Bytes changed at random, also of the tar archive inside.

    Whole files come out below the folder, or nothing does.
    """
    files = {"a/b": b"12345" * 30, "c": b"6"}
    archive = (tarred if make == "tar" else make)(tmp_path / "in", files)
    content = bytearray(
        gzip.decompress(archive.read_bytes()) if make == "tar" else archive.read_bytes()
    )
    for place in data.draw(
        st.lists(st.integers(4, min(len(content), 2500) - 1), min_size=1, max_size=4)
    ):
        content[place] = data.draw(st.integers(0, 255))
    archive.write_bytes(gzip.compress(content, mtime=0) if make == "tar" else content)
    out = tmp_path / "out"
    failed = None
    try:
        unpack(archive, out)
    except DataError as problem:
        failed = str(problem)
    assert out.exists() == (failed is None)
    assert failed is None or failed.isprintable()
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    shutil.rmtree(out, ignore_errors=True)
