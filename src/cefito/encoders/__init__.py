"""Encoders: pretrained models that turn names, pictures and videos into vectors.

They need extra packages, which are imported only when a model is loaded.
"""

from cefito.encoders.actions import embed_actions
from cefito.encoders.cache import CachedText
from cefito.encoders.images import (
    ImageEncoder,
    PretrainedImages,
    encode_pictures,
    load_image,
    observations_from_images,
)
from cefito.encoders.text import PretrainedText, TextEncoder, read_embeddings

__all__ = [
    "CachedText",
    "ImageEncoder",
    "PretrainedImages",
    "PretrainedText",
    "TextEncoder",
    "embed_actions",
    "encode_pictures",
    "load_image",
    "observations_from_images",
    "read_embeddings",
]
