"""What P3IV's decoded states are drawn to: vectors of the names of actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import DataError
from cefito.planners.p3iv.settings import Language, P3ivConfig
from cefito.planners.shared.descriptions import name_vectors

__all__ = ["language_vectors"]


def language_vectors(
    config: P3ivConfig, train: Windows
) -> tuple[NDArray[np.float32] | None, Language]:
    """Vectors of the actions' names, and what kind they are of.

    Args:
        config: Says which.
        train: Training windows, with the data set's text vectors where it has any.

    Returns:
        Vectors [K, W], None where the loss that needs them has no weight; and their kind.

    Raises:
        DataError: Text vectors are asked for and the data set has none.
    """
    if not config.contrastive:
        return None, "none"
    if config.language == "text" and train.action_text is None:
        raise DataError(
            f"data set '{train.dataset}': has no text vectors of the actions, which p3iv.language "
            "= 'text' asks for. Embed their names first, or set p3iv.language to 'names'.",
            setting="p3iv.language",
        )
    if config.language != "names" and train.action_text is not None:
        return np.ascontiguousarray(train.action_text, dtype=np.float32), "text"
    names = [action.name for action in train.taxonomy.actions]
    return name_vectors(names, config.name_width)[:, 0].copy(), "names"
