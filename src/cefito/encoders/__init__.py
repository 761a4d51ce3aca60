"""Encoders: what turns words, pictures and videos into vectors, with models that others trained.

- text, actions: names of actions into vectors (CLIP, Flan-T5, or a file of embeddings)
- images, preparation: pictures into observations (CLIP, DINOv2)
- video, frames, s3d, extraction: videos into observations, one vector a second (S3D, or an encoder
  of pictures)
- cache: texts that were encoded once are read from a file
- pretrained: where a model's files are found, and what is loaded from them

Encoders need extra packages, which are imported only where a model is loaded.
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
