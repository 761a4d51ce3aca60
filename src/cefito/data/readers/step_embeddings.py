"""Published features of CaptainCook4D's steps, a pickle of a documented SHA-256."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import parsing
from cefito.data.downloads import Place
from cefito.data.pickles import load_pickled
from cefito.errors import DataError
from cefito.files import check_array, read_bytes

WIDTH = 256
"""Features of a step."""
SEGMENT = 2.0
"""Seconds of video of which EgoVLP makes one vector."""
_SHAPE = (
    'Expected {"data": {recording: {"step_embeddings": float16 [steps, 256], "step_info": '
    '[{"step_id", "start_time", "end_time"}]}}}.'
)


@dataclass(frozen=True)
class StepEmbeddings:
    """Features of the performed steps of a recording."""

    features: NDArray[np.float16]  # [n, 256]
    steps: list[tuple[int, float, float]]  # published step id, start and end in seconds [n]

    def rows_of(
        self, steps: Sequence[tuple[int, float, float]], *, place: str
    ) -> NDArray[np.float16]:
        """Return the features of annotated steps in their order, [n, 256].

        Steps of one id are matched in the order of their times.

        Args:
            steps: Published step id, start and end in seconds of each annotated step, by time.
            place: Begins errors.

        Raises:
            DataError: The recording has features of other steps.
        """
        rows: dict[int, list[int]] = defaultdict(list)
        for row in sorted(range(len(self.steps)), key=lambda row: self.steps[row][1:]):
            rows[self.steps[row][0]].append(row)
        chosen: list[int] = []
        fault = ""
        for number, start, end in steps:
            if rows[number]:
                chosen.append(rows[number].pop(0))
                found = self.steps[chosen[-1]]
                if max(abs(found[1] - start), abs(found[2] - end)) < SEGMENT:
                    continue
            fault = f"no features of step {number} from {start:g} s to {end:g} s"
            break
        if not fault and len(chosen) < len(self.steps):
            fault = f"features of {len(self.steps)} steps, but {len(chosen)} are annotated"
        if fault:
            raise DataError(f"{place}: has {fault}. Download annotations and features again.")
        return self.features[chosen]


def read_step_embeddings(path: Path, place: Place) -> dict[str, StepEmbeddings]:
    """Read the features of each recording's steps.

    Args:
        path: The file.
        place: What is documented of it; a file with another SHA-256 is not unpickled.

    Raises:
        DataError: The file is missing, not the documented one, names a class or function other than
            those of NumPy arrays, or has another content.
    """
    command = f"cefito data download {place.name} {path.parent}"
    data = read_bytes(path, f"Download it: {command}.")
    remedy = f"Remove it and download it again: {command}."
    if (digest := hashlib.sha256(data).hexdigest()) != place.sha256:
        raise DataError(f"{path}: SHA-256 {digest}; expected {place.sha256}. {remedy}")
    value = load_pickled(data, path, "the published features of steps", remedy)
    with parsing(str(path), "features of steps", _SHAPE):
        return {
            str(recording): _embeddings(entry, f"{path}, recording '{recording}'")
            for recording, entry in value["data"].items()
        }


def _embeddings(entry: Any, place: str) -> StepEmbeddings:
    with parsing(place, "features of steps", _SHAPE):
        features = entry["step_embeddings"]
        steps = [
            (int(step["step_id"]), float(step["start_time"]), float(step["end_time"]))
            for step in entry["step_info"]
        ]
        if features.dtype != np.float16:
            raise TypeError(f"numbers of type {features.dtype}")
    return StepEmbeddings(check_array(features, shape=(len(steps), WIDTH), place=place), steps)
