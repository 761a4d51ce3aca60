"""Preparation of pictures for an image model, as its preprocessor_config.json describes it.

Results differ from Pillow's own resizing by its rounding to whole grey levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cefito.encoders.pretrained import COPY_AGAIN, PREPARATION_FILES
from cefito.errors import ConfigError, DataError, explained
from cefito.files import read_json

if TYPE_CHECKING:
    from torch import Tensor

MAX_PIXELS = 40_000_000
"""Largest picture that is made by resizing: more than a frame of an 8K video."""

_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


@dataclass(frozen=True)
class Preparation:
    """How a model's pictures are prepared."""

    resize: int | tuple[int, int] | None  # shorter side or (height, width); None leaves the size
    crop: tuple[int, int] | None  # height and width cut from the middle
    resampling: str  # "bilinear" or "bicubic"
    mean: tuple[float, ...]  # of each channel
    std: tuple[float, ...]

    @classmethod
    def read(cls, folder: Path) -> Preparation:
        """Read the description in a model's folder (`PREPARATION_FILES`)."""
        paths = [folder / name for name in PREPARATION_FILES]
        path = next((path for path in paths if path.exists()), paths[0])
        value = read_json(path, "Copy this file of the model there too.", ConfigError)
        fault = "does not say how pictures are prepared"
        kinds = KeyError, TypeError, ValueError, AttributeError
        with explained(path, fault, COPY_AGAIN, *kinds, error=ConfigError):
            value = value.get("image_processor", value)
            size, crop = value.get("size"), value.get("crop_size")
            resize = None
            if value.get("do_resize", True):
                short = size.get("shortest_edge") if isinstance(size, dict) else size
                resize = _sides(size) if short is None else int(short)
            plain = {"image_mean": (0, 0, 0), "image_std": (1, 1, 1)}
            known = value if value.get("do_normalize", True) else plain
            mean, std = (tuple(map(float, known[key])) for key in plain)
            if len(mean) != 3 or len(std) != 3 or not all(number > 0 for number in std):
                raise ValueError("image_mean and image_std are not of three channels")
            return cls(
                resize=resize,
                crop=_sides(crop) if value.get("do_center_crop", crop is not None) else None,
                resampling=_RESAMPLING[value.get("resample", 3)],
                mean=mean,
                std=std,
            )

    def apply(self, images: Tensor) -> Tensor:
        """Resize, crop and normalise pictures [B, 3, H, W] from 0 to 1: (x − mean) / std."""
        import torch

        size = self.resize
        if isinstance(size, int):
            size = _shorter_to(size, *images.shape[-2:])
            check_pixels("a picture", images.shape[-2:], size)
        if size is not None and size != tuple(images.shape[-2:]):
            # clamped, because bicubic interpolation overshoots
            images = torch.nn.functional.interpolate(
                images, size=size, mode=self.resampling, align_corners=False, antialias=True
            ).clamp(0, 1)
        if self.crop is not None:
            images = _centre(images, *self.crop)
        mean, std = (
            torch.tensor(values, device=images.device).view(3, 1, 1)
            for values in (self.mean, self.std)
        )
        return (images - mean) / std


def check_pixels(place: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Check that a picture (height, width) does not become enormous by resizing (DataError)."""
    if math.prod(after) > MAX_PIXELS:
        raise DataError(
            f"{place} of {before[1]:,} × {before[0]:,} pixels is too long: it would be resized to "
            f"{after[1]:,} × {after[0]:,}; at most {MAX_PIXELS / 1e6:g} megapixels are encoded. "
            "Cut it."
        )


def _sides(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size["height"]), int(size["width"]))


def _shorter_to(size: int, height: int, width: int) -> tuple[int, int]:
    """Return height and width with the shorter side `size`, the longer one rounded down."""
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _centre(images: Tensor, height: int, width: int) -> Tensor:
    """Cut the middle of pictures [B, 3, H, W]; smaller ones are padded with black."""
    from torch.nn.functional import pad

    rows, columns = max(0, height - images.shape[-2]), max(0, width - images.shape[-1])
    images = pad(images, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]
