"""What ViterbiPlanNet's observations are aligned with: a file's descriptions, or vectors for them.

Published are embeddings of generated sentences. Vectors hashed from the actions' names tell actions
apart as well, but not which of them are alike.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.data.taxonomy import Taxonomy
from cefito.files import check_array, load_npy, sha256
from cefito.planners.viterbi.settings import ViterbiConfig

__all__ = ["DESCRIPTIONS", "fixed_descriptions", "name_vectors"]

DESCRIPTIONS = 6
"""Descriptions of an action: three of the state before it, then three of the state after it."""

_SUMMANDS = 12  # 16-bit numbers in the sum that makes a coordinate
_CENTRE = _SUMMANDS * (2**16 - 1) // 2  # the mean of that sum
_DEVIATION = 2**16  # its standard deviation, but for a share of 1e-10


def fixed_descriptions(
    config: ViterbiConfig, taxonomy: Taxonomy
) -> tuple[NDArray[np.float32] | None, str]:
    """Descriptions that are not learned, and what tells them from others.

    Args:
        config: Says which.
        taxonomy: The actions.

    Returns:
        Vectors [K, 6, W], None where there are none or they are learned; and a digest of them, or
        "free", or nothing.

    Raises:
        DataError: The file of descriptions is missing, damaged, or has another shape.
    """
    kind = config.aligned_with
    if kind == "names":
        vectors = name_vectors([action.name for action in taxonomy.actions], config.name_width)
        return vectors, hashlib.sha256(vectors.tobytes()).hexdigest()
    if kind == "file":
        path = Path(config.descriptions)
        array = load_npy(
            path, "Correct viterbi.descriptions: a .npy file, or names, free or none without one."
        )
        shape = (len(taxonomy.actions), DESCRIPTIONS, None)
        check_array(array, shape=shape, place=str(path), rows="action")
        with np.errstate(over="ignore"):  # what does not fit single precision is infinite in it
            array = array.astype(np.float32)
        return check_array(array, shape=shape, place=str(path), rows="action"), sha256(path)
    return None, "free" if kind == "free" else ""


def name_vectors(names: Sequence[str], width: int) -> NDArray[np.float32]:
    """Six vectors for each name, of independent coordinates that are nearly standard normal.

    A coordinate is the centred sum of twelve 16-bit numbers of the name's hash (SHAKE-256), divided
    by its deviation: whole numbers until the last step, so the same to the bit everywhere. Where
    several actions have one name, the hashed text also counts which of them it is: they belong to
    different tasks, for which sentences would differ too.

    Args:
        names: Names of the actions; K.
        width: W.

    Returns:
        Vectors [K, 6, W].
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
