"""Unpacking archives that others made, without trusting them: `.zip` and `.tar.gz`.

Only files and folders below the target are written; links, devices, names that lead elsewhere, and
archives that grow beyond reason are refused before anything of theirs is written, and a refused
archive leaves nothing behind.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from cefito.errors import DataError
from cefito.files import new_folder
from cefito.progress import Progress, silent

__all__ = ["MAX_BYTES", "MAX_GROWTH", "MAX_MEMBERS", "unpack"]

MAX_MEMBERS = 500_000
MAX_BYTES = 64 << 30
MAX_GROWTH = 100
"""How many times its own size an archive may unpack to (vectors and tables stay below 20).

16 MiB are always allowed.
"""
_SMALL = 16 << 20
_BLOCK = 1 << 18
_HEADERS = 1 << 20
"""Bytes of a tar archive between two files' contents, at most: names and attributes."""
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)


def unpack(archive: Path, folder: Path, *, progress: Progress = silent) -> int:
    """Unpack an archive into a new folder, which appears when all is there.

    Args:
        archive: A .zip or .tar.gz file, whatever its name.
        folder: Folder to make; must not hold anything yet.
        progress: Shows the files.

    Returns:
        Number of files.

    Raises:
        DataError: No such archive, damaged, or refused as described above; or `folder` cannot be
            written.
    """
    with _damage(archive), archive.open("rb") as file:
        magic, size = file.read(4), archive.stat().st_size
    if magic[:2] == b"\x1f\x8b":
        walk = _untar
    elif magic in (b"PK\x03\x04", b"PK\x05\x06"):
        walk = _unzip
    else:
        raise DataError(
            f"{archive}: neither a .zip nor a .tar.gz archive. Remove it and fetch it again."
        )
    limit = min(MAX_BYTES, max(_SMALL, MAX_GROWTH * size))
    with new_folder(folder) as temporary:
        writer = _Writer(archive, temporary, limit)
        with progress(f"unpacking {archive.name}") as advance:
            for _ in walk(archive, writer):
                advance(1)
    return writer.files


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    """Errors from reading become DataErrors."""
    try:
        yield
    except FileNotFoundError as problem:
        raise DataError(f"{archive}: no such file.") from problem
    except _DAMAGE as problem:
        raise DataError(
            f"{archive}: damaged or cut short ({' '.join(str(problem).split())[:200]}). Remove it "
            "and fetch it again."
        ) from problem


class _Writer:
    """Writes members below a folder, within the bounds; knows how many files there are."""

    def __init__(self, archive: Path, folder: Path, limit: int) -> None:
        self.files = 0
        self._archive, self._folder, self._limit = archive, folder, limit
        self._members = self._bytes = 0
        self._free = shutil.disk_usage(folder).free

    def refuse(self, reason: str) -> DataError:
        """The error for an archive that is not to be trusted."""
        return DataError(
            f"{self._archive}: {reason}. Nothing was unpacked; fetch it from a place you trust, or "
            "unpack it by hand."
        )

    def announce(self, size: int) -> None:
        """Count a member of `size` bytes, before anything of it is written.

        Raises:
            DataError: There are too many, they are too large, or the disk has no room for them.
        """
        self._members += 1
        self._bytes += size
        if self._members > MAX_MEMBERS:
            raise self.refuse(f"holds more than {MAX_MEMBERS:,} files")
        if size < 0 or self._bytes > self._limit:
            raise self.refuse(
                f"unpacks to more than {self._limit:,} bytes, the most that is allowed for its size"
            )
        if self._bytes > self._free:
            raise DataError(
                f"{self._archive}: unpacks to more than the {self._free:,} bytes that are free. "
                "Free some disk space, or move it to another disk."
            )

    def place(self, name: str) -> Path:
        """Where a member goes.

        Raises:
            DataError: Not below the folder, or a name that not every system can hold.
        """
        path = PurePosixPath(name)
        windows = PureWindowsPath(name)
        if ".." in path.parts or "\\" in name or windows.drive or windows.root:
            raise self.refuse(
                f"holds {name[:200]!a}, which would be written elsewhere than in the folder"
            )
        if (
            not name
            or not name.isprintable()
            or len(name) > 1000
            or any(len(os.fsencode(part)) > 255 for part in path.parts)
        ):
            raise self.refuse(
                f"holds {name[:200]!a}, a name that is empty, too long or has odd characters"
            )
        return self._folder / path

    def folder(self, name: str) -> None:
        """Make a folder.

        Raises:
            DataError: A file has this name.
        """
        self._make(self.place(name), name)

    def _make(self, path: Path, name: str) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as problem:
            raise self.refuse(f"holds {name!a}, where another file stands") from problem

    def file(self, name: str, size: int, stream: IO[bytes]) -> None:
        """Write a file of `size` bytes.

        Raises:
            DataError: The name is taken, or `stream` is damaged or not as long.
        """
        path = self.place(name)
        self._make(path.parent, name)
        if path.exists():
            raise self.refuse(f"holds {name!a} twice")
        done = 0
        with path.open("xb") as file:
            while done < size:
                with _damage(self._archive):
                    block = stream.read(min(_BLOCK, size - done))
                    if not block:
                        raise EOFError(f"{name!a} ends too early")
                done += len(block)
                file.write(block)
        self.files += 1


def _unzip(archive: Path, writer: _Writer) -> Iterator[None]:
    with _damage(archive):
        opened = zipfile.ZipFile(archive)
    with opened:
        members = opened.infolist()
        for member in members:  # all of them before the first is written
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise writer.refuse(
                    f"holds {member.filename!a}, which is neither a file nor a folder (a link?)"
                )
            if member.flag_bits & 1:
                raise writer.refuse(f"holds {member.filename!a}, which is encrypted")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise writer.refuse(
                    f"holds {member.filename!a}, compressed in a way other than deflate"
                )
            writer.place(member.filename)
            writer.announce(member.file_size)
        for member in members:
            if member.filename.endswith("/"):
                writer.folder(member.filename)
            else:
                with _damage(archive):
                    stream = opened.open(member)
                with stream:
                    writer.file(member.filename, member.file_size, stream)
            yield


class _Metered:
    """A decompressed stream of which only so many bytes may be read as were allowed."""

    def __init__(self, stream: gzip.GzipFile, writer: _Writer) -> None:
        self._stream, self._writer = stream, writer
        self.allowed = 0

    def read(self, size: int = _BLOCK) -> bytes:
        data = self._stream.read(size)
        self.allowed -= len(data)
        if self.allowed < 0:
            raise self._writer.refuse(f"holds more than {_HEADERS:,} bytes between two files")
        return data


def _untar(archive: Path, writer: _Writer) -> Iterator[None]:
    with gzip.open(archive) as stream:
        metered = _Metered(stream, writer)
        metered.allowed = _HEADERS
        with _damage(archive):
            opened = tarfile.open(fileobj=metered, mode="r|")  # type: ignore[call-overload]  # noqa: SIM115
        with opened:
            while True:
                metered.allowed = _HEADERS
                with _damage(archive):
                    member = opened.next()
                if member is None:
                    break
                if not (member.isreg() or member.isdir()) or member.issparse():
                    raise writer.refuse(
                        f"holds {member.name!a}, which is neither a file nor a folder (a link?)"
                    )
                writer.announce(member.size)
                if member.isdir():
                    writer.folder(member.name)
                else:
                    metered.allowed += member.size
                    with _damage(archive):
                        content = opened.extractfile(member)
                    assert content is not None
                    writer.file(member.name, member.size, content)
                yield
            metered.allowed = _HEADERS
            with _damage(archive):
                while metered.read():  # up to the checksum
                    pass
