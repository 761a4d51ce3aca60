"""The descriptions that a network of SCHEMA encodes, made or read when it is trained."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.data.taxonomy import Taxonomy
from cefito.encoders.cache import CachedText
from cefito.encoders.text import PretrainedText
from cefito.planners.schema.settings import SchemaConfig
from cefito.planners.shared.descriptions import name_vectors, read_descriptions, template_vectors

__all__ = ["PUBLISHED_WIDTH", "SIZES", "fixed_descriptions", "vectors_digest"]

SIZES = {"file": 6, "templates": 6, "names": 6, "observations": 2}
"""Descriptions of an action, by their kind; no others are encoded."""
PUBLISHED_WIDTH = 768
"""Width of the published embeddings, those of CLIP ViT-L/14 at 336 pixels."""


def fixed_descriptions(
    config: SchemaConfig, taxonomy: Taxonomy, *, setting: str
) -> NDArray[np.float32] | None:
    """Descriptions that depend on the taxonomy alone, [K, 6, W]; None where there are no such.

    Args:
        config: Says which.
        taxonomy: The actions and tasks.
        setting: The setting that says so, for messages.

    Raises:
        ConfigError: The text encoder cannot be had.
        DataError: The file of descriptions is missing, damaged, or has another shape, or a sentence
            is too long for the text encoder.
    """
    if config.described == "names":
        return name_vectors([action.name for action in taxonomy.actions], config.name_width)
    if config.described == "templates":
        encoder = PretrainedText(config.text_encoder, layer=config.text_layer or None)
        return template_vectors(taxonomy, CachedText(encoder))
    if config.described == "file":
        path = Path(config.descriptions)
        return read_descriptions(path, actions=len(taxonomy.actions), setting=setting)
    return None


def vectors_digest(vectors: NDArray[np.float32] | None) -> str:
    """What tells descriptions from others; empty where there are none."""
    return "" if vectors is None else hashlib.sha256(vectors.tobytes()).hexdigest()
