"""Name, read and write files: text, JSON, records, whole or not at all; digests."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, AnyStr, ClassVar, Self

from cefito.errors import CefitoError, ConfigError, DataError, RunError, explained, reason
from cefito.locks import file_locked, temporary_beside
from cefito.settings import Record, read_record

logger = logging.getLogger(__name__)

MAX_JSON = 16 << 20
"""Bytes of the largest JSON file, and of the longest line of a table, that are read: 16 MiB."""
MAX_BYTES = 1 << 30
"""Bytes of the largest file of annotations, text or rows that is read as a whole: 1 GiB."""
_TAIL = 1 << 12  # bytes in which the end of the last line is looked for first
_HTML = re.compile(rb"(?:<!--.{0,200}?-->\s*)?<(?:!doctype html|html|head|body)\b", re.S | re.I)

NOT_JSON = ValueError, RecursionError
"""Exceptions of json.loads and of decoding; numbers of thousands of digits are ValueErrors."""


def has_ending(path: Path, endings: Collection[str]) -> bool:
    """Whether a file has one of these endings, in small or capital letters."""
    return path.suffix.lower() in endings


def check_target(path: Path, endings: Sequence[str], setting: str) -> None:
    """Check that a file can be written, before any work.

    Args:
        path: File to be written.
        endings: Allowed endings, with their dots.
        setting: Setting at fault if the file cannot be written.
    """
    problem = ""
    if path.suffix not in endings:
        *others, last = endings
        several = f"{', '.join(others)} or " if others else ""
        problem = f"expected a file that ends in {several}{last}"
    elif not path.parent.is_dir():
        problem = "the folder does not exist"
    elif path.is_dir():
        problem = "is a folder. Choose another name"
    if problem:
        raise ConfigError(f"{path}: {problem}.", setting=setting)


_UNSAFE = re.compile(
    r'[%/\\<>:"|?*\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|^[ .]|[ .]$'
    r"|^(?i:con|prn|aux|nul|com\d|lpt\d)(?=\.|$)"
)
_NOT_PLAIN = re.compile(r"[^a-z0-9 ._-]|^[ .]|[ .]$")
_LONGEST = 180  # bytes of a file's name without its ending; systems allow 255 with it


def file_names(names: Sequence[str]) -> dict[str, str]:
    """Return the name of a file, without ending, for each of several names.

    No file is outside its folder, and different names have different files, also where case does
    not matter. What some system does not allow is written as in "P01%2Fcam", which
    `urllib.parse.unquote` undoes; long names end with a digest.
    """
    alike = Counter(unicodedata.normalize("NFKC", name).casefold() for name in {*names})
    files = {}
    for name in names:
        several = alike[unicodedata.normalize("NFKC", name).casefold()] > 1
        file = (_NOT_PLAIN if several else _UNSAFE).sub(_quoted, name) or "%"
        encoded = file.encode()
        if len(encoded) > _LONGEST:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            file = f"{encoded[:_LONGEST].decode(errors='ignore')}%~{digest[:16]}"
        files[name] = file
    return files


def _quoted(unsafe: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in unsafe[0].encode("utf-8", "surrogatepass"))


def write_atomic(
    path: Path, fill: Callable[[Path], object], error: type[CefitoError] = RunError
) -> None:
    """Call `fill` on a temporary path in the same folder, then rename that to `path`.

    Args:
        path: File to be made or replaced.
        fill: Function that writes the temporary file.
        error: Class of the error if writing fails.
    """
    kept = "Its previous content is kept."
    with (
        explained(path, "could not be written", kept, error=error, writes=True),
        temporary_beside(path) as temporary,
    ):
        fill(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    write_atomic(path, lambda temporary: temporary.write_bytes(data))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a text file, all of them or none.

    A last line of JSON that is not whole, since its process was killed, is removed with a warning.

    Raises:
        RunError: The file cannot be written; its content is as before.
    """
    kept = "Nothing was added."
    if path.exists():
        check_regular(path, error=RunError)
    with (
        explained(path, "could not be written", kept, error=RunError, writes=True),
        path.open("a+b", buffering=0) as file,
        file_locked(file),
    ):
        size = file.seek(0, os.SEEK_END)
        last = _last_line(file, size)
        whole = not last.startswith(b"{") or _is_json(last)
        data = b"\n" * (whole and bool(last)) + "".join(f"{line}\n" for line in lines).encode()
        if not whole:
            size -= len(last)
            file.truncate(size)
            logger.warning("%s: its last line was not whole, and was removed", path)
        try:
            while data:  # the system may take less than all
                data = data[file.write(data) :]
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.truncate(size)
            raise


def _last_line(file: IO[bytes], size: int) -> bytes:
    """Return what follows the last end of a line."""
    last = b""
    while b"\n" not in last and len(last) < size:
        more = min(size, 2 * len(last) + _TAIL)
        file.seek(size - more)
        last = file.read(more)
    return last[last.rfind(b"\n") + 1 :]


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except NOT_JSON:
        return False
    return True


def check_regular(path: Path, remedy: str = "", error: type[CefitoError] = DataError) -> None:
    """Refuse all but regular files (a pipe waits, a device may not end); `remedy` ends messages.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
    """
    try:
        mode = path.stat().st_mode
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        fault = "" if stat.S_ISREG(mode) else f"cannot be read (it is {kind}, not a file)"
    except (FileNotFoundError, NotADirectoryError):
        fault = "no such file"
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        fault = f"cannot be read ({reason(problem)})"
    if fault:
        raise error(f"{path}: {fault}. {remedy}".rstrip())


def check_binary(path: Path, remedy: str = "", error: type[CefitoError] = DataError) -> None:
    """Refuse what `check_regular` refuses, and texts that stand where a file of numbers should.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
    """
    check_regular(path, remedy, error)
    with explained(path, "cannot be read", remedy, error=error), path.open("rb") as file:
        begin = file.read(512).removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith(b"version https://git-lfs"):
        raise error(f"{path}: is a Git LFS pointer, not the file itself. Run git lfs pull there.")
    if _HTML.match(begin):
        fault = "is a page of HTML, such as a server sends in place of a file"
        raise error(f"{path}: {fault}. Open its address in a browser and save the file itself.")


def read_bytes(
    path: Path,
    remedy: str = "",
    error: type[CefitoError] = DataError,
    *,
    most: int = MAX_BYTES,
    setting: str = "",
) -> bytes:
    """Read a regular file of at most `most` bytes; `remedy`, the user's next step, ends errors.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
        most: Largest size in bytes.
        setting: Setting at fault.
    """
    check_regular(path, remedy, error)
    with explained(path, "cannot be read", remedy, error=error, setting=setting):
        size = path.stat().st_size
        if size <= most:
            with path.open("rb") as file:
                return file.read(size)
    fault = f"has {size / 2**20:,.0f} MiB; at most {most >> 20:,} are read"
    raise error(f"{path}: {fault}. {remedy}", setting=setting)


def read_text(
    path: Path,
    remedy: str,
    error: type[CefitoError] = DataError,
    *,
    encoding: str = "utf-8",
    setting: str = "",
) -> str:
    """Read a text file as `read_bytes` does; every end of a line becomes a line feed.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
        encoding: Encoding of the text.
        setting: Setting at fault.
    """
    with explained(path, "cannot be read", remedy, error=error, setting=setting):
        text = read_bytes(path, remedy, error, setting=setting).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(
    path: Path, remedy: str, error: type[CefitoError] = DataError, *, most: int = MAX_JSON
) -> Any:
    """Read a JSON file as `read_bytes` does.

    Args:
        path: File.
        remedy: End of messages: what the user can do.
        error: Class of the error.
        most: Largest size in bytes.
    """
    with explained(path, "not valid JSON", remedy, *NOT_JSON, error=error):
        return parse_json(read_bytes(path, remedy, error, most=most).decode("utf-8"))


def parse_json(text: str) -> Any:
    """Parse JSON whose objects have each key once, or again with an equal value (ValueError)."""
    return _JSON.decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        repeated = [key for key, other in pairs if value[key] != other]
        if repeated:
            raise ValueError(f"an object has several values of '{repeated[0]}'")
    return value


_JSON = json.JSONDecoder(object_pairs_hook=_unique)  # made once: json.loads makes one at each call


def lines_of(
    file: IO[AnyStr], path: Path, remedy: str, error: type[CefitoError] = DataError
) -> Iterator[AnyStr]:
    """Yield the lines of an opened file; refuse lines of more than `MAX_JSON` bytes or letters.

    Args:
        file: Opened file, of text or bytes.
        path: Its path, for messages.
        remedy: End of messages: what the user can do.
        error: Class of the error.
    """
    number = 0
    while line := file.readline(MAX_JSON + 1):
        number += 1
        if len(line) > MAX_JSON:
            raise error(f"{path}, line {number}: has more than {MAX_JSON >> 20} MiB. {remedy}")
        yield line


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_cache(name: str) -> Path:
    """Return a folder of cefito in the platform's folder for caches."""
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "cefito" / name


SEAL = "sha256"
"""Entry of a JSON object that holds the digest of all its other entries."""
SETTLED = 2.0
"""Seconds after which a file's time shows a change; clocks of file systems are coarse."""
_known: dict[tuple[int, ...], str] = {}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hex.

    A file that is unchanged since this process hashed it is not read again.
    """
    status = path.stat()
    stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    if stamp not in _known:
        digest = sha256(path)
        if max(stamp[3:]) + SETTLED * 1e9 > time.time_ns():
            return digest
        _known[stamp] = digest
    return _known[stamp]


def value_digest(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of keys and the layout of the file."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def value_sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add the digest of its entries to a JSON object."""
    entries = {name: entry for name, entry in value.items() if name != SEAL}
    plain = json.loads(json.dumps(entries))  # as it is read later: lists, text keys
    return {**entries, SEAL: value_digest(plain)}


def unsealed(value: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Entries of a JSON object without its digest, and whether it has one that matches them."""
    entries = {name: entry for name, entry in value.items() if name != SEAL}
    return entries, value.get(SEAL) == value_digest(entries)


class FileRecord(Record):
    """A record in a JSON file, alone or as a part; reading refuses unknown and missing fields."""

    what: ClassVar[str] = "record"  # its name in messages
    remedy: ClassVar[str] = "Make it again."  # how to repair a file that cannot be read
    sealed: ClassVar[bool] = False  # whether its file also holds a digest, verified on reading
    most: ClassVar[int] = MAX_JSON  # bytes of its file

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.model_dump(mode="json")

    def write(self, path: Path) -> None:
        """Write it into a file."""
        write_json(path, value_sealed(self.to_dict()) if self.sealed else self.to_dict())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file."""
        return cls.parse(read_json(path, cls.remedy, RunError, most=cls.most), path)

    @classmethod
    def parse(cls, value: Any, path: Path) -> Self:
        """Validate the content of a file."""
        if cls.sealed and isinstance(value, dict):
            value, whole = unsealed(value)
            if not whole:
                raise RunError(
                    f"{path}: has changed since it was written (its entries differ from their own "
                    f"SHA-256). {cls.remedy}"
                )
        return read_record(cls, value, f"{path}: not a {cls.what} of this version", cls.remedy)
