"""Pickles of arrays, plain containers, numbers and text, read without running what they name.

Published files of two kinds are pickles: features of CaptainCook4D's steps, and action embeddings.
Whatever they name, nothing but NumPy arrays of numbers (or of such values) can come out.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from cefito.errors import explained

_BROKEN = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, OverflowError, MemoryError, ImportError, struct.error),
)
"""Errors of pickle and NumPy on damaged files."""
_NPY = b"\x93NUMPY"


def load_pickled(data: bytes, path: Path, what: str, remedy: str) -> Any:
    """Load the pickle in a file of at most a few hundred MiB, whose content is `data`.

    Args:
        data: Content of the file.
        path: Its path, for messages.
        what: What it should hold.
        remedy: End of messages: what the user can do.

    Raises:
        DataError: It is damaged, or names a class or function other than those of NumPy arrays.
    """
    whole = data.endswith(pickle.STOP)
    complaint = f"not {what}" if whole else "is truncated: its pickle does not end"
    with explained(path, complaint, remedy, *_BROKEN):
        if data[:6] == _NPY:  # magic, version [2], size of the header [2 or 4], header
            size = 2 if data[6] == 1 else 4
            data = data[8 + size + int.from_bytes(data[8 : 8 + size], "little") :]
        value = _Unpickler(io.BytesIO(data)).load()
        return value.item() if isinstance(value, _Array) and value.ndim == 0 else value


class _Type:
    """Stands for numpy.dtype, which would set any state that a pickle asks for."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[fiu][1248]|b1|O8?", code):
            raise pickle.UnpicklingError(f"it holds an array of type {code!r:.20}")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "="

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(object if self.code[0] == "O" else self.order + self.code)


class _Array(np.ndarray[Any, Any]):
    """An array whose pickled state is compared with its size before memory is allocated."""

    @override
    def __setstate__(self, state: Any, /) -> None:
        _, shape, kind, fortran, values = state
        count, dtype = math.prod(shape), kind.dtype
        kinds, size = (list, 1) if dtype.hasobject else (bytes, dtype.itemsize)
        if not isinstance(values, kinds) or min(shape, default=0) < 0:
            raise pickle.UnpicklingError("an array has another state")
        if len(values) != count * size:
            raise pickle.UnpicklingError(f"an array of shape {list(shape)} has {len(values)} bytes")
        super().__setstate__((1, shape, dtype, bool(fortran), values))  # type: ignore[arg-type]


def _scalar(kind: _Type, value: bytes) -> Any:
    return np.frombuffer(value, kind.dtype, count=1)[0].item()


def _from_buffer(values: bytes, kind: _Type, shape: tuple[int, ...], order: Any) -> Any:
    return np.frombuffer(values, kind.dtype).reshape(shape, order=order)


_ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray")  # NumPy 1 and 2
_GLOBALS = {
    ("numpy", "ndarray"): None,  # only an argument of _reconstruct
    ("numpy", "dtype"): _Type,
    **{(module, "_reconstruct"): lambda *_: _Array((0,), np.uint8) for module in _ARRAYS},
    **{(module, "scalar"): _scalar for module in _ARRAYS},
    ("_codecs", "encode"): lambda text, _: text.encode("latin-1"),  # protocols 0 to 2
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,  # protocol 5
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


def _build(unpickler: Any) -> None:
    """Set the state of arrays and types; functions and classes are not changed."""
    if not isinstance(unpickler.stack[-2], (_Array, _Type)):
        raise pickle.UnpicklingError("it changes an object")
    pickle._Unpickler.dispatch[pickle.BUILD[0]](unpickler)


# in Python: C's reserves memory for as many entries as a pickle of a few bytes says it has
class _Unpickler(pickle._Unpickler):
    """Loads arrays and plain containers; any other class or function is refused."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: _build,
    }

    @override
    def find_class(self, module: str, name: str, /) -> Any:
        """Return one of the allowed globals."""
        if (module, name) not in _GLOBALS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return _GLOBALS[module, name]
