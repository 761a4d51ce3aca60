"""What a network sees of a row: the row and averages of those around it, without the scene's mean.

Let x_t be the standardised row t. The mean of the video so far is taken away, since it shows the
room more than the step:

    m_t = m_t−1 + (x_t − m_t−1) / min(t + 1, L),    u_t = x_t − m_t

and the network sees u_t beside its exponential averages v_t = v_t−1 + (1 − e^(−1/τ)) (u_t − v_t−1)
for each time constant τ. A whole video has one mean, and averages of later rows, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
_LONGEST_MEAN = 1800  # L, rows
_CLIPPED = 5.0  # standard deviations
_LEAST_DEVIATION = 1e-3


@dataclass(frozen=True, eq=False)
class Standard:
    """Mean and deviation of each of D features of the training rows, and their main directions."""

    mean: Rows  # [D]
    deviation: Rows  # [D]
    # the P directions of most variance, once scaled [D, P]; all of them if there are few
    directions: Rows

    @classmethod
    def of(cls, videos: Sequence[Rows], most: int) -> Standard:
        """Measure the rows [n, D] of videos; P is at most `most`."""
        rows = np.concatenate(videos).astype(np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0) + _LEAST_DEVIATION
        directions = np.eye(len(mean))
        if len(mean) > most:
            scaled = ((rows - mean) / deviation).clip(-_CLIPPED, _CLIPPED)
            _, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))  # ascending
            directions = vectors[:, : -most - 1 : -1]
        return cls(*(one.astype(np.float32) for one in (mean, deviation, directions)))

    def scaled(self, rows: Rows) -> Rows:
        """Return rows [..., D] along the directions [..., P], with mean 0 in training."""
        scaled = ((rows - self.mean) / self.deviation).clip(-_CLIPPED, _CLIPPED)
        along: Rows = scaled @ self.directions
        return along


class RowMemory:
    """The features of one row after another; its size does not grow.

    Args:
        times: Time constants τ, in rows.
    """

    def __init__(self, times: Sequence[float]) -> None:
        self._shares = (1 - np.exp(-1 / np.asarray(times, dtype=np.float32)))[:, None]  # [M, 1]
        self._mean: Any = 0.0
        self._averages: Rows | None = None  # [M, D]
        self._rows = 0

    def features(self, row: Rows) -> Rows:
        """Return the features [(M + 1) D] of the next standardised row [D]."""
        self._rows = min(self._rows + 1, _LONGEST_MEAN)
        self._mean = self._mean + (row - self._mean) / np.float32(self._rows)
        centred = row - self._mean
        if self._averages is None:
            self._averages = np.repeat(centred[None], len(self._shares), axis=0)
        self._averages = self._averages + self._shares * (centred - self._averages)
        return np.concatenate([centred[None], self._averages]).reshape(-1)


def past_features(rows: Rows, times: Sequence[float]) -> Rows:
    """Return what is known of each row [n, D] from those up to it, [n, (M + 1) D]."""
    memory = RowMemory(times)
    return np.stack([memory.features(row) for row in rows])


def whole_features(rows: Rows, times: Sequence[float]) -> Rows:
    """Return what is known of each row [n, D] of a whole video, [n, (2 M + 1) D]."""
    centred = rows - rows.mean(axis=0)
    averages = [_averaged(centred, time) for time in times]
    averages += [_averaged(centred[::-1], time)[::-1] for time in times]
    return np.concatenate([centred, *averages], axis=1)


def _averaged(rows: Rows, time: float) -> Rows:
    """Return the exponential averages of rows [n, D] up to each one."""
    from scipy.linalg import solve_banded  # scipy.signal takes seconds to import

    share = 1 - np.exp(-1 / time)
    bands = np.zeros((3, len(rows)))  # v_t − (1 − share) v_t−1 = share · u_t
    bands[1], bands[2] = 1.0, share - 1
    averages: Rows = solve_banded((1, 1), bands, np.concatenate([rows[:1], share * rows[1:]]))
    return averages.astype(np.float32)
