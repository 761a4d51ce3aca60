"""Encoders: pretrained models that turn names, pictures and videos into vectors.

- text, actions: names of actions into vectors (CLIP, Flan-T5, or a file of embeddings)
- images, preparation: pictures into observations (CLIP, DINOv2)
- video, frames, s3d, extraction: videos into observations, one vector per second (S3D, or an
  image encoder)
- cache: text embeddings are computed once
- pretrained: finding and loading the files of a model

Encoders need extra packages, which are imported only when a model is loaded.
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
