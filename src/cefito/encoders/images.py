"""Pictures into observations, by image models that others trained: CLIP's vision model and DINOv2.

To plan between two pictures, a run must have learned from observations of the same kind: extract
the features of its videos with the same model (`cefito.encoders.video.open_encoder`: the vector of
a second is that of the frame in its middle), prepare the data set with one second an observation,
train, and give the pictures to `observations_from_images`.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cefito.encoders.preparation import Preparation
from cefito.encoders.pretrained import (
    choose,
    find_pretrained,
    kind_of,
    load_weights,
    missing_package,
    weights_digest,
)
from cefito.errors import ConfigError, DataError
from cefito.files import check_array

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "IMAGE_LAYERS",
    "IMAGE_MODELS",
    "ImageEncoder",
    "PretrainedImages",
    "encode_pictures",
    "load_image",
    "observations_from_images",
]

IMAGE_MODELS = {"clip": "openai/clip-vit-base-patch32", "dinov2": "facebook/dinov2-base"}
"""Names on the hub by short name."""

IMAGE_LAYERS = {
    "clip": {
        "projected": "class token after the final norm and the projection",
        "pooled": "class token after the final norm, before the projection",
    },
    "dinov2": {"pooled": "class token after the final norm"},
}
"""What can be read from each kind of model; the first is the default."""

_KINDS = {"clip": "clip", "clip_vision_model": "clip", "dinov2": "dinov2"}


class ImageEncoder(Protocol):
    """Turns pictures into vectors."""

    def encode(self, images: Tensor) -> NDArray[np.float32]:
        """Vectors [B, D] of pictures [B, 3, H, W], RGB from 0 to 1, of any size."""

    def describe(self) -> dict[str, Any]:
        """What decides the vectors: model, revision, layer, preparation; plain values for JSON."""


class PretrainedImages:
    """CLIP's vision model or DINOv2, from a folder or the hub.

    It is loaded when the first picture is encoded.

    Args:
        model: "clip", "dinov2", a folder as save_pretrained writes it, or a name on the hub.
        layer: One of `IMAGE_LAYERS` of the model's kind; the first by default.
        revision: Branch, tag or commit on the hub.
        batch_size: Pictures encoded at once; changes the vectors by float rounding only.
        device: A torch device.

    Raises:
        ConfigError: No such model, a model of another kind, an unknown layer, no description of how
            pictures are prepared.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layer: str | None = None,
        revision: str | None = None,
        batch_size: int = 32,
        device: torch.device | str = "cpu",
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch size {batch_size}: expected a positive number of pictures.")
        self.pretrained = find_pretrained(model, known=IMAGE_MODELS, revision=revision)
        self.kind = kind_of(self.pretrained, _KINDS, "an image encoder")
        self.layer = choose(
            layer, list(IMAGE_LAYERS[self.kind]), what="layer", place=self.pretrained.place
        )
        self.preparation = Preparation.read(self.pretrained.folder)
        self.batch_size, self.device = batch_size, str(device)

    def describe(self) -> dict[str, Any]:
        """Model, revision, digest of the weights, layer, and how pictures are prepared."""
        how = self.preparation
        sizes = {"resize": how.resize, "crop": how.crop}
        return {
            "model": self.pretrained.name,
            "revision": self.pretrained.revision,
            "weights": self._digest,
            "layer": self.layer,
            "layer_means": IMAGE_LAYERS[self.kind][self.layer],
            **{
                name: list(size) if isinstance(size, tuple) else size
                for name, size in sizes.items()
            },
            "resampling": how.resampling,
            "mean": list(how.mean),
            "std": list(how.std),
        }

    def encode(self, images: Tensor) -> NDArray[np.float32]:
        """Vectors [B, D] of pictures [B, 3, H, W], RGB from 0 to 1, of any size.

        Raises:
            ConfigError: Transformers is missing, or the folder does not hold the whole model.
            DataError: Not such pictures.
        """
        import torch

        if (
            images.ndim != 4
            or images.shape[1] != 3
            or 0 in images.shape[2:]
            or not images.is_floating_point()
        ):
            raise DataError(
                f"pictures: have shape {list(images.shape)} and type {images.dtype}; expected [B, "
                "3, height, width] of floating-point numbers. Convert them."
            )
        if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):  # NaN fails too
            raise DataError(
                f"pictures: hold values from {float(images.min()):.4g} to "
                f"{float(images.max()):.4g}; expected 0 to 1. Divide 8-bit values by 255."
            )
        model = self._model
        config = model.config
        width = (
            config.projection_dim
            if (self.kind, self.layer) == ("clip", "projected")
            else config.hidden_size
        )
        rows = [np.zeros((0, width), np.float32)]
        with torch.inference_mode():
            for batch in images.split(self.batch_size) if len(images) else ():
                output = model(
                    pixel_values=self.preparation.apply(batch.to(self.device, torch.float32))
                )
                vectors = output.image_embeds if self.layer == "projected" else output.pooler_output
                rows.append(vectors.float().cpu().numpy())
        found = np.concatenate(rows)
        return (
            check_array(found, shape=found.shape, place=self.pretrained.place, rows="picture")
            if len(images)
            else found
        )

    @cached_property
    def _digest(self) -> str:
        return weights_digest(self.pretrained.folder)

    @cached_property
    def _model(self) -> Any:
        architecture = (
            "Dinov2Model"
            if self.kind == "dinov2"
            else (
                "CLIPVisionModelWithProjection" if self.layer == "projected" else "CLIPVisionModel"
            )
        )
        return load_weights(architecture, self.pretrained, device=self.device)


def load_image(path: Path | str) -> Tensor:
    """Read a picture as [3, H, W], RGB from 0 to 1, turned upright as its EXIF orientation says.

    Raises:
        ConfigError: Pillow is missing.
        DataError: Missing, truncated, not a picture, too large (Pillow's bound on pixels), or of
            more than 8 bits a channel.
    """
    import torch

    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as problem:
        raise missing_package(problem) from problem
    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tags beside the picture that cannot be read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                if opened.mode.startswith(("I", "F")):
                    raise DataError(
                        f"{path}: has more than 8 bits a channel (mode {opened.mode}). Save it "
                        "with 8."
                    )
                picture = ImageOps.exif_transpose(opened).convert("RGB")
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file. Give a picture.") from problem
    except UnidentifiedImageError as problem:
        raise DataError(
            f"{path}: is not a picture of a known format. Save it as JPEG or PNG."
        ) from problem
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as problem:
        raise DataError(f"{path}: is too large ({problem}). Make it smaller.") from problem
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as problem:
        # a SyntaxError is Pillow's, of broken PNGs
        raise DataError(
            f"{path}: cannot be read as a picture ({problem}). Make or copy it again."
        ) from problem
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255)


def encode_pictures(paths: Sequence[Path | str], encoder: ImageEncoder) -> NDArray[np.float32]:
    """Vectors of pictures in files, which may differ in size, [N, D].

    Raises:
        DataError: A picture cannot be read; the message names it.
        ValueError: No paths.
    """
    return np.concatenate([encoder.encode(load_image(path).unsqueeze(0)) for path in paths])


def observations_from_images(
    initial: Path | str,
    goal: Path | str,
    encoder: ImageEncoder,
    *,
    size: int | None = None,
    made_with: Mapping[str, Any] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The two observations between which to plan, from two pictures in files.

    Where an observation of the data set is several seconds, one behind the other, a picture stands
    for each of them, as if nothing moved.

    Args:
        initial: Picture of the scene before the first step.
        goal: Picture of the scene after the last step.
        encoder: The one that the run's data set was made with.
        size: E, numbers in an observation of the run; by default those of one vector.
        made_with: What the features of the run's data set were made with, as `extract.json` beside
            them says; its weights and layer must be the encoder's.

    Returns:
        `initial` and `goal`, float32 [E].

    Raises:
        ConfigError: The run's features were made with another encoder or are of another size;
            Transformers or Pillow is missing.
        DataError: A picture cannot be read; the message names it.
    """
    described = encoder.describe()
    if made_with is not None:
        _check_made_with(made_with, described)
    vectors = encode_pictures([initial, goal], encoder)
    width = vectors.shape[1]
    size = width if size is None else size
    if size % width or size // width % 2 == 0:
        raise ConfigError(
            f"the run takes observations of {size} numbers, a picture encoded by "
            f"{described['model']} gives {width}; expected as many, or an odd multiple for several "
            "seconds. Its data set was made with another encoder: give that one, or train on "
            "features of this one.",
            setting="encoder",
        )
    first, second = np.tile(vectors, size // width)
    return first, second


def _check_made_with(made_with: Mapping[str, Any], described: Mapping[str, Any]) -> None:
    """Refuse an encoder of other weights or another layer.

    Names are not compared: a model may lie in a folder here and have come from the hub there.
    """
    if any(made_with.get(name) != described.get(name) for name in ("weights", "layer")):
        learned, mine = (
            f"{about.get('model', about.get('encoder'))} (layer {about.get('layer')}, weights "
            f"{str(about.get('weights'))[:12]})"
            for about in (made_with, described)
        )
        raise ConfigError(
            f"the run learned from features of {learned}, the pictures would be encoded by {mine}. "
            "Give the same model, or extract features with this one and train on them.",
            setting="encoder",
        )
