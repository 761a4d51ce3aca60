"""How an image model wants its pictures resized, cropped and normalised.

Its preprocessor_config.json says so; torch alone does it.

The same is done to pictures of files and to frames of videos. What a picture becomes differs from
Pillow's own resizing by its rounding to whole grey levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cefito.encoders.pretrained import PREPARATION_FILES
from cefito.errors import ConfigError
from cefito.files import read_json

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Preparation"]

_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


@dataclass(frozen=True)
class Preparation:
    """How a model wants its pictures.

    Attributes:
        resize: Pixels of the shorter side, or (height, width), or None to leave the size.
        crop: Height and width cut from the middle, or None.
        resampling: "bilinear" or "bicubic".
        mean: Mean of each channel, subtracted.
        std: Standard deviation of each channel, divided by.
    """

    resize: int | tuple[int, int] | None
    crop: tuple[int, int] | None
    resampling: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def read(cls, folder: Path) -> Preparation:
        """Read a folder's description (`PREPARATION_FILES`).

        Raises:
            ConfigError: Missing, malformed, or asks for something that is not known here.
        """
        paths = [folder / name for name in PREPARATION_FILES]
        path = next((path for path in paths if path.exists()), paths[0])
        value = read_json(path, "Copy this file of the model there too.", ConfigError)
        try:
            value = value.get("image_processor", value)
            size, crop = value.get("size"), value.get("crop_size")
            resampling = _RESAMPLING[value.get("resample", 3)]
            resize = None
            if value.get("do_resize", True):
                resize = (
                    int(size["shortest_edge"])
                    if isinstance(size, dict) and "shortest_edge" in size
                    else (size if isinstance(size, int) else _sides(size))
                )
            plain = {"image_mean": (0, 0, 0), "image_std": (1, 1, 1)}
            known = value if value.get("do_normalize", True) else plain
            mean, std = (tuple(map(float, known[key])) for key in plain)
            if len(mean) != 3 or len(std) != 3 or not all(number > 0 for number in std):
                raise ValueError("image_mean and image_std are not of three channels")
            return cls(
                resize=resize,
                crop=_sides(crop) if value.get("do_center_crop", crop is not None) else None,
                resampling=resampling,
                mean=mean,
                std=std,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise ConfigError(
                f"{path}: does not say how pictures are prepared ({problem!r}). Expected size, "
                "crop_size, resample 2 or 3, image_mean and image_std. Copy the file again."
            ) from problem

    def apply(self, images: Tensor) -> Tensor:
        """Resize, crop and normalise pictures [B, 3, H, W] from 0 to 1."""
        import torch

        if self.resize is not None:
            size = (
                self.resize
                if isinstance(self.resize, tuple)
                else _shorter_to(self.resize, *images.shape[-2:])
            )
            if size != tuple(images.shape[-2:]):
                # clamped, because bicubic overshoots
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


def _sides(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size["height"]), int(size["width"]))


def _shorter_to(size: int, height: int, width: int) -> tuple[int, int]:
    """Height and width of a picture whose shorter side becomes `size`.

    The longer one is rounded down.
    """
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _centre(images: Tensor, height: int, width: int) -> Tensor:
    """The middle of pictures, padded with black where they are smaller."""
    from torch.nn.functional import pad

    short = [max(0, height - images.shape[-2]), max(0, width - images.shape[-1])]
    images = pad(
        images, (short[1] // 2, short[1] - short[1] // 2, short[0] // 2, short[0] - short[0] // 2)
    )
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]
