"""Descriptions of the states before and after each action, and substitutes for them.

Published are embeddings of sentences by a language model (SCHEMA, ViterbiPlanNet); few sets have
them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.arrays import load_npy
from cefito.data.windows import Windows
from cefito.files import check_array
from cefito.training.augmentation import ActionMeans

DESCRIPTIONS = 6
"""Descriptions of an action: three of the state before it, then three of the state after it."""

_SUMMANDS = 12  # 16-bit numbers in the sum that makes a coordinate
_CENTRE = _SUMMANDS * (2**16 - 1) // 2  # the mean of that sum
_DEVIATION = 2**16  # its standard deviation, but for a share of 1e-10


def description_vectors(
    descriptions: str, windows: Windows, width: int, *, setting: str
) -> NDArray[np.float32]:
    """Return vectors [K, 6, W] of "names", of the given width, or those of a .npy file.

    Args:
        descriptions: "names", or the path of a .npy file.
        windows: Windows with the K actions.
        width: W.
        setting: Setting at fault if the file cannot be read.
    """
    actions = windows.taxonomy.actions
    if descriptions == "names":
        return name_vectors([action.name for action in actions], width)
    return read_descriptions(Path(descriptions), actions=len(actions), setting=setting)


def read_descriptions(path: Path, *, actions: int, setting: str) -> NDArray[np.float32]:
    """Read embeddings of descriptions [K, 6, W] from a .npy file, which the `setting` names.

    Args:
        path: File (.npy).
        actions: K.
        setting: Setting at fault if it cannot be read.
    """
    array = load_npy(path, f"Correct {setting}: a .npy file, or names or none without one.")
    shape = (actions, DESCRIPTIONS, None)
    check_array(array, shape=shape, place=str(path), rows="action")
    with np.errstate(over="ignore"):  # what does not fit single precision is infinite in it
        array = array.astype(np.float32)
    return check_array(array, shape=shape, place=str(path), rows="action")


def name_vectors(names: Sequence[str], width: int) -> NDArray[np.float32]:
    """Six vectors for each of K names, [K, 6, W], of independent, nearly standard normal numbers.

    Each is the centred sum of twelve 16-bit numbers of the name's hash, divided by its deviation:
    the same to the bit everywhere. Equal names of different actions are hashed with a counter.
    """
    vectors = np.empty((len(names), DESCRIPTIONS, width), dtype=np.float32)
    met: Counter[str] = Counter()
    for row, name in enumerate(names):
        hashed = hashlib.shake_256(f"{met[name]} {name}".encode())
        met[name] += 1
        numbers = np.frombuffer(hashed.digest(2 * _SUMMANDS * vectors[row].size), dtype="<u2")
        sums = numbers.reshape(DESCRIPTIONS, width, _SUMMANDS).sum(axis=2, dtype=np.int64)
        vectors[row] = (sums - _CENTRE) / _DEVIATION
    return vectors


class EndMeans:
    """Mean observations at the start and at the end of each action, over training windows.

    Windows show the start of their first action and the end of their last. Training draws means
    without the videos of the batch, as `ActionMeans` does; else a window would recognise itself in
    them. Observations [..., E] are `prepared` before they are averaged.

    Args:
        windows: Training windows.
        prepared: Prepares observations [..., E] before they are averaged.
        device: Where the means are.
    """

    def __init__(
        self,
        windows: Windows,
        prepared: Callable[[Tensor], Tensor],
        device: torch.device | str = "cpu",
    ) -> None:
        origin = torch.zeros(windows.initial.shape[1], device=device)
        starts = replace(windows, goal=windows.initial, actions=windows.actions[:, :1])
        ends = replace(windows, initial=windows.goal, actions=windows.actions[:, -1:])
        self._means = [ActionMeans(end_windows, origin, prepared) for end_windows in (starts, ends)]

    def all(self) -> Tensor:
        """Means over all training windows [K, 2, E]; zero for actions that no window shows."""
        return torch.stack([means.all() for means in self._means], dim=1)

    def without(self, rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Means [K, 2, E] without videos of some windows and others, as of `ActionMeans`."""
        return torch.stack([means.without(rows, share, generator) for means in self._means], dim=1)
