"""Arrays that begin 4 bytes beside where they would: what other machines and files do to memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import safetensors
import torch

from cefito.data.windows import Windows
from cefito.files import ALIGNMENT
from cefito.planners.queries import Queries


def moved(array: np.ndarray) -> np.ndarray:
    """A copy of an array that begins 4 bytes behind a multiple of `ALIGNMENT`."""
    buffer = np.empty(array.nbytes + 2 * ALIGNMENT, dtype=np.uint8)
    first = 4 - buffer.ctypes.data % ALIGNMENT + ALIGNMENT
    copy = buffer[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def moved_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor that begins 4 bytes behind a multiple of `ALIGNMENT`."""
    if tensor.itemsize > 4 or not tensor.numel():
        return tensor
    step = 4 // tensor.itemsize
    return torch.cat([tensor.new_zeros(step), tensor.flatten()])[step:].view(tensor.shape)


class _MovedArchive:
    """`safetensors.safe_open` that gives tensors beside their place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._archive = _OPEN(*args, **kwargs)

    def __enter__(self) -> _MovedArchive:
        self._archive.__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        self._archive.__exit__(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    def get_tensor(self, name: str) -> Any:
        tensor = self._archive.get_tensor(name)
        if isinstance(tensor, torch.Tensor):
            return moved_tensor(tensor)
        return moved(tensor) if tensor.itemsize <= 4 else tensor


_OPEN = safetensors.safe_open


@contextmanager
def all_arrays_moved() -> Iterator[None]:
    """Move every array that enters the library: from files, as windows and as queries."""

    def first_moving(check: Callable[[Any], None]) -> Callable[[Any], None]:
        def init(self: Any) -> None:
            for name in ("initial", "goal"):
                array = getattr(self, name)
                if isinstance(array, np.ndarray) and array.dtype == np.float32:
                    object.__setattr__(self, name, moved(array))
            check(self)

        return init

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors, "safe_open", _MovedArchive)
        for kind in (Windows, Queries):
            patch.setattr(kind, "__post_init__", first_moving(kind.__post_init__))
        yield
