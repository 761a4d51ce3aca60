"""Pictures into observations, by pretrained image models: CLIP's vision model and DINOv2.

To plan between two pictures, a run must be trained on observations of the same kind: extract the
features of its videos with the same model (`cefito.encoders.video.open_encoder`; the vector of a
second is encoded from its middle frame), prepare the data set with one second per observation,
train, and plan between pictures (`cefito.inference.observer`).
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cefito.encoders.pretrained import (
    COPY_AGAIN,
    PREPARATION_FILES,
    find_pretrained,
    load_weights,
    needed_packages,
    quiet_transformers,
    weights_digest,
)
from cefito.errors import ConfigError, DataError, explained
from cefito.files import check_array, check_regular

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FOLDER, FILE = "folder", "file"
"""Entries of the record of an encoder: the folder of a local model, the file of weights."""

PLACES = (FOLDER, FILE)
"""Entries that are places on this machine. They do not decide features."""

IMAGE_MODELS = {"clip": "openai/clip-vit-base-patch32", "dinov2": "facebook/dinov2-base"}
"""Names on the hub by short name."""

IMAGE_LAYERS = {
    "clip": {
        "projected": "class token after the final norm and the projection",
        "pooled": "class token after the final norm, before the projection",
    },
    "dinov2": {"pooled": "class token after the final norm"},
}
"""Layers of each kind of model; the first is the default."""

_KINDS = {"clip": "clip", "clip_vision_model": "clip", "dinov2": "dinov2"}
_ARCHITECTURES = {
    ("clip", "projected"): "CLIPVisionModelWithProjection",
    ("clip", "pooled"): "CLIPVisionModel",
    ("dinov2", "pooled"): "Dinov2Model",
}


MAX_PIXELS = 40_000_000
"""Largest picture that is made by resizing: more than a frame of an 8K video."""


def check_pixels(place: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Check that a picture (height, width) does not become enormous by resizing (DataError).

    Args:
        place: Begins the message.
        before: Height and width of the picture.
        after: Height and width to which it is resized.
    """
    if math.prod(after) > MAX_PIXELS:
        raise DataError(
            f"{place} of {before[1]:,} × {before[0]:,} pixels is too long: it would be resized to "
            f"{after[1]:,} × {after[0]:,}; at most {MAX_PIXELS / 1e6:g} megapixels are encoded. "
            "Cut it."
        )


def check_values(images: Tensor) -> None:
    """Check that the values of pictures are from 0 to 1 (DataError)."""
    if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):  # NaN fails too
        low, high = float(images.min()), float(images.max())
        fault = f"hold values from {low:.4g} to {high:.4g}"
        raise DataError(f"pictures: {fault}; expected 0 to 1. Divide 8-bit values by 255.")


class ImageEncoder(Protocol):
    """Turns pictures into vectors."""

    def encode(self, images: Tensor) -> NDArray[np.float32]:
        """Return vectors [B, D] of pictures [B, 3, H, W], RGB from 0 to 1, of any size."""

    def describe(self) -> dict[str, Any]:
        """Return all that determines the vectors, as plain values for JSON."""


class PretrainedImages:
    """CLIP's vision model or DINOv2, loaded when the first picture is encoded.

    Args:
        model: "clip", "dinov2", a folder as save_pretrained writes it, or a name on the hub.
        layer: One of `IMAGE_LAYERS` of the model's kind; the first by default.
        revision: Branch, tag or commit on the hub.
        device: A torch device.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layer: str | None = None,
        revision: str | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.pretrained = find_pretrained(
            model,
            models=IMAGE_MODELS,
            kinds=_KINDS,
            layers=IMAGE_LAYERS,
            layer=layer,
            revision=revision,
        )
        if not any((self.pretrained.folder / name).exists() for name in PREPARATION_FILES):
            fault = f"has no {' or '.join(PREPARATION_FILES)}"
            raise ConfigError(f"{self.pretrained.place}: {fault}. {COPY_AGAIN}")
        self.device = str(device)

    def describe(self) -> dict[str, Any]:
        """Return model, its folder if it is local, layer, digest of weights and preparation."""
        source = self.pretrained
        local = source.revision.startswith("sha256:")
        return {
            "model": source.name,
            **({FOLDER: str(source.folder.resolve())} if local else {}),
            "revision": source.revision,
            "weights": self._digest,
            "layer": source.layer,
            "layer_means": IMAGE_LAYERS[source.kind][source.layer],
        }

    def encode(self, images: Tensor) -> NDArray[np.float32]:
        """Return vectors [B, D] of pictures [B, 3, H, W], RGB from 0 to 1, of any size."""
        import torch

        check_values(images)
        model, layer = self._model, self.pretrained.layer
        with torch.inference_mode():
            output = model(pixel_values=self.prepared(images).to(self.device))
        vectors = output.image_embeds if layer == "projected" else output.pooler_output
        rows = vectors.float().cpu().numpy()  # [B, D]
        place = self.pretrained.place
        return check_array(rows, shape=rows.shape, place=place, rows="picture")

    def prepared(self, images: Tensor) -> Tensor:
        """Return pictures [B, 3, H, W] from 0 to 1 as the model takes them, [B, 3, h, w]."""
        before = images.shape[-2:]
        if short := self._processor.size.get("shortest_edge"):
            scale = short / min(before)
            check_pixels("a picture", before, [round(side * scale) for side in before])
        pixels = (images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()  # [B, H, W, 3]
        prepared: Tensor = self._processor(
            list(pixels), input_data_format="channels_last", return_tensors="pt"
        )["pixel_values"]
        return prepared

    @cached_property
    def _processor(self) -> Any:
        with needed_packages():
            import transformers
        kind: Any = transformers.AutoImageProcessor
        fault = "does not say how pictures are prepared"  # exceptions of many types
        again = explained(self.pretrained.place, fault, COPY_AGAIN, Exception, error=ConfigError)
        with quiet_transformers(), again:
            return kind.from_pretrained(
                self.pretrained.folder,
                local_files_only=True,
                trust_remote_code=False,
                use_fast=False,  # the other kind needs torchvision
            )

    @cached_property
    def _digest(self) -> str:
        return weights_digest(self.pretrained.folder)

    @cached_property
    def _model(self) -> Any:
        architecture = _ARCHITECTURES[self.pretrained.kind, self.pretrained.layer]
        return load_weights(architecture, self.pretrained, device=self.device)


@contextmanager
def _of_size(path: Path, most: int, *kinds: type[Exception]) -> Iterator[None]:
    """Say the largest size, of which Pillow's errors name the double."""
    try:
        yield
    except kinds as problem:
        fault = f"is too large (more than {most / 1e6:.3g} megapixels)"
        raise DataError(f"{path}: {fault}. Make it smaller.") from problem


def load_image(path: Path | str) -> Tensor:
    """Read a picture as [3, H, W], RGB from 0 to 1, turned upright by its EXIF orientation."""
    import torch

    with needed_packages():
        from PIL import Image, ImageOps
    path = Path(path)
    check_regular(path, "Give a picture.")
    damaged = OSError, SyntaxError, ValueError, EOFError, struct.error  # SyntaxError: broken PNGs
    large = Image.DecompressionBombWarning, Image.DecompressionBombError
    with (
        _of_size(path, Image.MAX_IMAGE_PIXELS or 0, *large),
        explained(path, "cannot be read as a picture", "Save it as JPEG or PNG.", *damaged),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of unreadable tags beside the picture
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise ValueError("it has more than 8 bits a channel")
            picture = ImageOps.exif_transpose(opened).convert("RGB")
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255)


def encode_pictures(paths: Sequence[Path | str], encoder: ImageEncoder) -> NDArray[np.float32]:
    """Return the vectors [N, D] of picture files, which may differ in size."""
    rows = []
    for path in paths:
        picture = load_image(path).unsqueeze(0)
        try:
            rows.append(encoder.encode(picture))
        except DataError as problem:
            raise DataError(f"{path}: {problem}") from problem
    return np.concatenate(rows)


def repeats(size: int, width: int, model: str) -> int:
    """Return how often a vector of `width` is repeated in an observation of `size` numbers.

    Args:
        size: Numbers of an observation.
        width: Numbers of a vector.
        model: Name of the model, for the message.
    """
    if size % width or size // width % 2 == 0:
        fault = f"{size} numbers, a picture encoded by {model} gives {width}"
        message = f"the run takes observations of {fault}. Give the same encoder."
        raise ConfigError(message, setting="encoder")
    return size // width
