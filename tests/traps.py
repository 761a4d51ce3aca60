"""Pickles that would run code, and arrays as the bytes of files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def npy_bytes(array: np.ndarray, *, pickled: bool = False) -> bytes:
    """Return the .npy file of an array."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=pickled)
    return buffer.getvalue()
