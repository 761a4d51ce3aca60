"""Goals in words: texts as observations, by the text tower of the CLIP that encoded pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.encoders.images import PretrainedImages, check_made_with, repeats
from cefito.encoders.text import PretrainedText
from cefito.errors import ConfigError

__all__ = ["SHARED_LAYER", "observation_from_text"]

SHARED_LAYER = "projected"
"""Layer of CLIP whose vectors of pictures and of texts are in one space."""
_NAMES = 64  # names whose mean vector is taken


def observation_from_text(
    text: str,
    encoder: PretrainedImages,
    *,
    size: int | None = None,
    made_with: Mapping[str, Any] | None = None,
    mean: NDArray[np.floating[Any]] | None = None,
    names: Sequence[str] = (),
) -> NDArray[np.float32]:
    """Encode a text as an observation, beside the observations of pictures.

    CLIP's pictures and texts are in separate regions of its space (Liang et al., Mind the Gap,
    2022), so the vector v of the text is moved by the difference of the means of both:
    v − mean of the names' vectors + mean observation.

    Args:
        text: The scene in words, as in "a folded tent".
        encoder: The encoder of the run's data set.
        size: E, features of an observation of the run; by default the size of one vector.
        made_with: As in `cefito.encoders.images.observations_from_images`.
        mean: Mean observation [E] of the run's data set; None to leave the vector where it is.
        names: Names of tasks and actions of the run.

    Returns:
        float32 [E].

    Raises:
        ConfigError: The encoder has no text tower in the space of its pictures, or is not the one
            of the run's features.
        DataError: The text is too long.
    """
    if not text.strip():
        raise ConfigError(
            "an empty goal: expected words, as in 'a folded tent'.", setting="goal_text"
        )
    source = encoder.pretrained
    if source.layer != SHARED_LAYER:
        raise ConfigError(
            f"{source.place}: texts are not in the space of its layer '{source.layer}'. Give CLIP "
            f"with the layer '{SHARED_LAYER}'.",
            setting="goal_text",
        )
    check_made_with(encoder.describe(), made_with)
    tower = PretrainedText(source.folder, layer=SHARED_LAYER, device=encoder.device)
    step = -(-len(names) // _NAMES) or 1
    vectors = tower.encode([text, *(names[::step] if mean is not None else ())])  # [1 + M, W]
    width = vectors.shape[1]
    size = width if size is None else size
    goal: NDArray[np.float32] = np.tile(vectors[0], repeats(size, width, source.name))  # [E]
    if mean is not None and len(vectors) > 1:
        goal = goal - np.tile(vectors[1:].mean(axis=0), size // width) + mean
    return goal.astype(np.float32)
