"""What ViterbiPlanNet's observations are aligned with: a file's descriptions, or vectors for them.

Published are embeddings of generated sentences. Vectors hashed from the actions' names tell actions
apart as well, but not which of them are alike.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.data.taxonomy import Taxonomy
from cefito.files import sha256
from cefito.planners.shared.descriptions import name_vectors, read_descriptions
from cefito.planners.viterbi.settings import ViterbiConfig

__all__ = ["fixed_descriptions"]


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
        vectors = read_descriptions(
            path, actions=len(taxonomy.actions), setting="viterbi.descriptions"
        )
        return vectors, sha256(path)
    return None, "free" if kind == "free" else ""
