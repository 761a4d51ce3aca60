"""Name, read and write files: text, JSON, records, tensors, whole or not at all; digests."""

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
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, AnyStr, ClassVar, NamedTuple, Self, TypeVar, cast

from cefito.errors import CefitoError, ConfigError, DataError, RunError, explained, reason
from cefito.locks import file_locked, temporary_beside
from cefito.settings import Record, read_record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

logger = logging.getLogger(__name__)

MAX_JSON = 16 << 20
"""Bytes of the largest JSON file, and of the longest line of a table, that are read: 16 MiB."""
MAX_BYTES = 1 << 30
"""Bytes of the largest file of annotations, text or rows that is read as a whole: 1 GiB."""
ALIGNMENT = 64
"""Bytes to a multiple of which arrays are placed in memory: a cache line, as in PyTorch.

On some processors the last bit of a matrix product depends on where its operands begin (MKL on
AVX2: on multiples of 16 bytes). Arrays that are read or given begin anywhere.
"""
_TAIL = 1 << 12  # bytes in which the end of the last line is looked for first
_AT_ONCE = 1 << 18  # numbers that are checked at once, which bounds the memory
_HTML = re.compile(rb"(?:<!--.{0,200}?-->\s*)?<(?:!doctype html|html|head|body)\b", re.S | re.I)
Scalar = TypeVar("Scalar", bound="np.generic")

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
    """Refuse all but regular files (a pipe waits, a device may not end).

    Arguments are as of `read_bytes`.
    """
    try:
        mode = path.stat().st_mode
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        fault = "" if stat.S_ISREG(mode) else f"cannot be read (it is {kind}, not a file)"
    except (FileNotFoundError, NotADirectoryError):
        fault = no_such_file(path)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        fault = f"cannot be read ({reason(problem)})"
    if fault:
        raise error(f"{path}: {fault}. {remedy}".rstrip())


def no_such_file(path: Path) -> str:
    """Return that a file is missing, and a file of its folder with almost its name."""
    near = list[str]()
    with suppress(OSError):
        beside = [one.name for one in path.parent.iterdir()]
        near = get_close_matches(path.name, beside, n=1, cutoff=0.8)
    return "no such file" + "".join(f" (did you mean {path.with_name(name)}?)" for name in near)


def check_binary(path: Path, remedy: str = "", error: type[CefitoError] = DataError) -> None:
    """Refuse what `check_regular` refuses, and texts that stand where a file of numbers should.

    Arguments are as of `read_bytes`.
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
    """Read a text with the arguments of `read_bytes`; every end of a line becomes a line feed."""
    with explained(path, "cannot be read", remedy, error=error, setting=setting):
        text = read_bytes(path, remedy, error, setting=setting).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(
    path: Path, remedy: str, error: type[CefitoError] = DataError, *, most: int = MAX_JSON
) -> Any:
    """Read a JSON file with the arguments of `read_bytes`."""
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


def check_array(
    array: NDArray[Any],
    *,
    shape: tuple[int | None, ...],
    place: str,
    rows: str = "row",
    because: str = "",
    where: Callable[[int], str] = lambda _: "",
) -> NDArray[Any]:
    """Check the shape of a floating-point array (None for any size) and that it is finite.

    Args:
        array: Checked and returned.
        shape: Expected sizes.
        place: Begins messages.
        rows: Word for a row of the array, in messages.
        because: Reason of the shape and what to do, in messages.
        where: Says what the row of a number is of.
    """
    import numpy as np

    fits = array.ndim == len(shape) and all(
        want == got or (want is None and got) for want, got in zip(shape, array.shape, strict=True)
    )
    if array.dtype.kind != "f":
        expected = "expected floating-point numbers, as astype('float32') makes them"
        raise DataError(f"{place}: holds values of type {array.dtype}; {expected}.")
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        expected = f"expected [{wanted}]{because and f': {because}'}"
        raise DataError(f"{place}: has shape {list(array.shape)}; {expected}.")
    wrong = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if len(wrong):
        holding = f"{rows} holds" if len(wrong) == 1 else f"{rows}s hold"
        fault = f"{len(wrong)} {holding} NaN or infinity"
        first = f"the first is {rows} {wrong[0]}{where(int(wrong[0]))}"
        raise DataError(f"{place}: {fault}, {first}. Make these again or leave their videos out.")
    return array


def write_tensors(
    path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors (NumPy or torch) as one safetensors file, atomically.

    Args:
        path: File to be made or replaced.
        tensors: Tensors by name.
        metadata: Texts by name, kept beside them.
    """
    import numpy as np

    if all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        import safetensors.numpy

        contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        data = safetensors.numpy.save(contiguous, metadata=metadata)
    else:
        import safetensors.torch

        copies = {
            name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
        }
        data = safetensors.torch.save(copies, metadata=metadata)
    write_bytes(path, data)


def aligned(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a writable array in C order that begins at a multiple of `ALIGNMENT` bytes.

    The array itself if it does already, otherwise a copy. Everything that is computed from the
    result is then the same bit for bit, wherever the array was in memory before.
    """
    fits = array.flags.c_contiguous and array.flags.writeable
    if fits and array.ctypes.data % ALIGNMENT == 0:
        return array
    import numpy as np

    buffer = np.empty(array.nbytes + ALIGNMENT, dtype=np.uint8)
    first = -buffer.ctypes.data % ALIGNMENT
    copy = buffer[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def load_tensors(
    path: Path, framework: str, remedy: str, error: type[CefitoError] = DataError
) -> tuple[dict[str, Any], dict[str, str]]:
    """Load tensors, `aligned`, and metadata of a safetensors file; framework: "np" or "pt".

    The other arguments are as of `read_bytes`.
    """
    from safetensors import SafetensorError, safe_open

    check_binary(path, remedy, error)
    # TypeError: NumPy alone has no bfloat16
    kinds = SafetensorError, OSError, TypeError, ValueError
    with (
        explained(path, "truncated or not a safetensors file", remedy, *kinds, error=error),
        safe_open(path, framework=framework) as archive,
    ):
        tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
        for name, tensor in tensors.items():  # copies: tensors of a file are the file, mapped
            if framework == "np" and tensor.dtype.kind == "V":  # bfloat16 of the package ml_dtypes
                raise TypeError(f"tensor '{name}' is {tensor.dtype}")
            tensors[name] = aligned(tensor) if framework == "np" else tensor.clone()
        return tensors, archive.metadata() or {}


def load_weights(
    module: nn.Module, tensors: Mapping[str, Tensor], place: str, *, copy: bool = True
) -> None:
    """Load finite weights of a module's names, shapes and types (RunError).

    Args:
        module: Module to be filled.
        tensors: Tensors by name, of the shapes and types of the module's.
        place: Begins messages.
        copy: Copy the numbers; otherwise the module takes the tensors themselves.
    """
    expected = module.state_dict()
    wrong = sorted(set(expected) ^ set(tensors))
    if wrong:
        where = "is missing" if wrong[0] in expected else "is unknown"
        raise RunError(
            f"{place}: tensor '{wrong[0]}' {where}; the file does not belong to this configuration."
        )
    for name, tensor in tensors.items():
        wanted = expected[name]
        if (tensor.shape, tensor.dtype) != (wanted.shape, wanted.dtype):
            raise RunError(
                f"{place}: tensor '{name}' has shape {list(tensor.shape)} and type {tensor.dtype}; "
                f"expected {list(wanted.shape)} and {wanted.dtype}."
            )
        if not all(bool(block.isfinite().all()) for block in tensor.flatten().split(_AT_ONCE)):
            bad = int((~tensor.isfinite()).sum())
            raise RunError(
                f"{place}: tensor '{name}' holds NaN or infinity ({bad} of {tensor.numel():,} "
                "numbers). Get the file again, or train again."
            )
    module.load_state_dict(dict(tensors), assign=not copy)


class Expected(NamedTuple):
    """Shape, kind and bounds of a tensor.

    A size of the shape may be a name, of sizes that are equal. As the upper bound, its numbers are
    below this size.
    """

    shape: tuple[int | str, ...]
    low: float
    high: float | str
    kind: str = "f"  # of NumPy's types: "f", "i" or "b"
    nan: bool = False  # whether it may hold NaN


def check_tensors(
    tensors: Mapping[str, NDArray[Any]], expected: Mapping[str, Expected], place: str
) -> None:
    """Refuse arrays other than those expected, out of bounds, or with NaN (RunError).

    Args:
        tensors: Arrays by name.
        expected: Shape, bounds, kind of type and whether NaN is allowed, by name.
        place: Begins messages.
    """
    for name in sorted({*tensors} ^ {*expected}):
        where = "is missing" if name in expected else "is unknown"
        raise RunError(f"{place}: tensor '{name}' {where}.")
    sizes: dict[int | str, int] = {}  # of names, by the first tensor that has each
    for name, (named_shape, low, highest, kind, nan) in expected.items():
        tensor = tensors[name]
        for size, actual in zip(named_shape, tensor.shape, strict=False):
            sizes.setdefault(size, actual if isinstance(size, str) else size)
        shape = [sizes.get(size, size) for size in named_shape]
        if ([*tensor.shape], tensor.dtype.kind) != (shape, kind):
            fault = f"has shape {list(tensor.shape)} and type {tensor.dtype}"
            raise RunError(f"{place}: tensor '{name}' {fault}; expected {shape}.")
        high = sizes[highest] - 1 if isinstance(highest, str) else highest
        if not ((tensor >= low) & (tensor <= high) | (nan & (tensor != tensor))).all():
            raise RunError(f"{place}: tensor '{name}' is not from {low:g} to {high:g} throughout.")


class Stored:
    """Base of dataclasses that are kept as arrays, one a field."""

    expected: ClassVar[Mapping[str, Expected]]
    """What `loaded` expects of each field."""
    later: ClassVar[Mapping[str, str]] = {}
    """Fields that an earlier version lacks, each with one of its length: they are −1."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields as arrays."""
        import numpy as np

        return {
            field.name: np.asarray(getattr(self, field.name)) for field in fields(cast("Any", self))
        }

    @classmethod
    def loaded(cls, arrays: Mapping[str, NDArray[Any]], place: str) -> Self:
        """Build from what `arrays` returned; RunError for others, `place` is their file."""
        import numpy as np

        more = {
            name: np.full_like(arrays[like], -1, dtype=np.int64)
            for name, like in cls.later.items()
            if name not in arrays and like in arrays
        }
        check_tensors({**more, **arrays}, cls.expected, place)
        return cls(**more, **arrays)


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
