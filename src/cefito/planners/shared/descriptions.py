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
from cefito.data.annotations import Taxonomy
from cefito.data.windows import Windows
from cefito.encoders.cache import TextEncoder
from cefito.files import check_array
from cefito.training.augmentation import ActionMeans

__all__ = [
    "DESCRIPTIONS",
    "EndMeans",
    "name_vectors",
    "read_descriptions",
    "template_sentences",
    "template_vectors",
]

DESCRIPTIONS = 6
"""Descriptions of an action: three of the state before it, then three of the state after it."""

_SUMMANDS = 12  # 16-bit numbers in the sum that makes a coordinate
_CENTRE = _SUMMANDS * (2**16 - 1) // 2  # the mean of that sum
_DEVIATION = 2**16  # its standard deviation, but for a share of 1e-10


def read_descriptions(path: Path, *, actions: int, setting: str) -> NDArray[np.float32]:
    """Embeddings of descriptions [K, 6, W] from a .npy file, which the `setting` names."""
    array = load_npy(path, f"Correct {setting}: a .npy file, or names, free or none without one.")
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


def template_sentences(action: str, goal: str = "") -> tuple[str, ...]:
    """Six sentences on the states before and after an action, for a task (empty if it has none)."""
    purpose = f" for the goal of {goal}" if goal else ""
    return tuple(
        sentence
        for side, end in (("before", "start"), ("after", "end"))
        for sentence in (
            f"A photo indicating the state {side} the action of {action}{purpose}",
            f"The {end} state of the action of {action}",
            f"The {end} state of the action of {action}{purpose}",
        )
    )


def template_vectors(taxonomy: Taxonomy, encoder: TextEncoder) -> NDArray[np.float32]:
    """Embeddings of each action's sentences from templates, averaged over its tasks, [K, 6, W]."""
    goals: list[list[str]] = [[] for _ in taxonomy.actions]
    for task in taxonomy.tasks:
        for action in task.actions:
            goals[action].append(task.name)
    sentences = [
        [template_sentences(action.name, goal) for goal in goals[action.id] or [""]]
        for action in taxonomy.actions
    ]
    different = list(dict.fromkeys(text for all_ in sentences for six in all_ for text in six))
    vectors = encoder.encode(different)
    place = {text: row for row, text in enumerate(different)}
    return np.stack(
        [
            np.mean([[vectors[place[text]] for text in six] for six in all_], axis=0)
            for all_ in sentences
        ]
    ).astype(np.float32)


class EndMeans:
    """Mean observations at the start and at the end of each action, over training windows.

    Windows show the start of their first action and the end of their last. Training draws means
    without the videos of the batch, as `ActionMeans` does; else a window would recognise itself in
    them. Observations [..., E] are `prepared` before they are averaged.
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
        self._means = [ActionMeans(part, origin, prepared) for part in (starts, ends)]

    def all(self) -> Tensor:
        """Means over all training windows [K, 2, E]; zero for actions that no window shows."""
        return torch.stack([means.all() for means in self._means], dim=1)

    def without(self, rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Means [K, 2, E] without the videos of some windows, nor a random share of the others."""
        return torch.stack([means.without(rows, share, generator) for means in self._means], dim=1)
