"""Videos into observations: one vector per second, or the vectors around a moment.

A file is read as a stream: only the clips of one batch are held, however long the video is. Image
encoders are encoders of clips of one frame.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from inspect import signature
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.arrays import Border, observed_rows
from cefito.encoders.efficientnet import EfficientNetImages
from cefito.encoders.frames import Sampling, VideoInfo, clips, part_of, probe
from cefito.encoders.images import IMAGE_MODELS, ImageEncoder, PretrainedImages
from cefito.encoders.s3d import S3DEncoder
from cefito.errors import ConfigError
from cefito.files import check_array
from cefito.plugins import Registry
from cefito.progress import Advance, Progress, silent

BATCH = 4
"""Default clips per batch."""
INSTALLED = "efficientnet-lite0"
"""The encoder that is installed with its weights."""


class VideoEncoder(Protocol):
    """Turns clips of a video into vectors."""

    @property
    def sampling(self) -> Sampling:
        """How the clip of a second is made: number of frames, their rate, their size."""

    def encode(self, clips: Tensor, /) -> NDArray[np.float32]:
        """Return vectors [B, D] of clips [B, 3, F, H, W], float32 RGB from 0 to 1 on the CPU.

        A row depends on its clip alone.
        """

    def describe(self) -> dict[str, Any]:
        """Return all that determines the vectors besides the sampling, as values for JSON."""


class Pictures:
    """An image encoder as a video encoder, which sees the whole middle frame of each second."""

    sampling = Sampling(frames=1, rate=1, size=None)

    def __init__(self, images: ImageEncoder) -> None:
        self.images = images

    def encode(self, clips: Tensor, /) -> NDArray[np.float32]:
        """Return vectors [B, D] of clips [B, 3, 1, H, W], RGB from 0 to 1."""
        return self.images.encode(clips.squeeze(2))

    def describe(self) -> dict[str, Any]:
        """Return the image encoder's description."""
        return self.images.describe()


def open_encoder(
    name: str | None = None,
    *,
    weights: Path | None = None,
    frames: int | None = None,
    rate: float | None = None,
    size: int | None = None,
    layer: str | None = None,
    revision: str | None = None,
    device: torch.device | str = "cpu",
) -> VideoEncoder:
    """Open a video encoder by its name.

    Args:
        name: One of `ENCODERS`, the folder of a CLIP or DINOv2 model, or its name on the hub; by
            default s3d if its weights are given, efficientnet-lite0 otherwise.
        weights: Weights file of s3d.
        frames: Frames per clip of s3d, 32 by default.
        rate: Frames per second of a clip of s3d; by default `frames`, so that it lasts a second.
        size: Height and width of the pictures of s3d, 224 by default.
        layer: Layer of an image model (`cefito.encoders.images.IMAGE_LAYERS`).
        revision: Branch, tag or commit of a model on the hub.
        device: A torch device.

    Raises:
        ConfigError: No such encoder, or settings that do not go with it.
        RunError: The weights cannot be loaded.
    """
    settings = {
        "weights": weights,
        "frames": frames,
        "rate": rate,
        "size": size,
        "layer": layer,
        "revision": revision,
    }
    name = name or (INSTALLED if weights is None else "s3d")
    opener, taken = _opener(name), settings_of(name)
    for setting, value in settings.items():
        if value is not None and setting not in taken:
            message = f"{setting}: the encoder {name} has no such setting. Leave it out."
            raise ConfigError(message, setting=setting)
    values = {setting: value for setting, value in settings.items() if value is not None}
    opened: Any = opener(device=device, **values)
    return opened if hasattr(opened, "sampling") else Pictures(opened)


def settings_of(name: str) -> tuple[str, ...]:
    """Return the settings of `open_encoder` that an encoder has."""
    return tuple(setting for setting in signature(_opener(name)).parameters if setting != "device")


def _opener(name: str) -> Opener:
    if name in ENCODERS:
        return ENCODERS[name]
    if "/" in name or Path(name).expanduser().exists():
        return partial(PretrainedImages, name)
    expected = f"{', '.join(ENCODERS)}, the folder of a CLIP or DINOv2 model"
    raise ConfigError(f"unknown encoder '{name}'; expected {expected}, or OWNER/MODEL on the hub.")


def _open_s3d(
    *,
    weights: Path | None = None,
    frames: int = 32,
    rate: float | None = None,
    size: int = 224,
    device: torch.device | str = "cpu",
) -> VideoEncoder:
    if weights is None:
        message = "the encoder s3d needs the file of its weights (cefito data download s3d)."
        raise ConfigError(message, setting="weights")
    sampling = Sampling(frames=frames, rate=frames if rate is None else rate, size=size)
    return S3DEncoder(weights, sampling=sampling, device=device)


Opener: TypeAlias = Callable[..., "VideoEncoder | ImageEncoder"]

ENCODERS: Registry[Opener] = Registry(
    "cefito.encoders",
    "encoder",
    {
        INSTALLED: EfficientNetImages,
        "s3d": _open_s3d,
        **{name: partial(PretrainedImages, name) for name in IMAGE_MODELS},
    },
    lambda _, entry: "" if callable(entry) else "its entry point is not a function",
)
"""Functions that open encoders, by name.

Their keyword arguments are settings of `open_encoder`, `device` among them. `describe` of an
encoder of another package has its name as `model`, so that runs find it again.
"""


def record(encoder: VideoEncoder) -> dict[str, Any]:
    """Return the encoder and its sampling as `extract.json` records them."""
    sampling = encoder.sampling
    value = {
        **encoder.describe(),
        "frames": sampling.frames,
        "rate": float(sampling.rate),
        "size": sampling.size,
    }
    return dict(json.loads(json.dumps(value)))  # as read from the file


def extract_features(
    video: Path,
    encoder: VideoEncoder,
    *,
    at: Sequence[float] | None = None,
    seconds: int = 3,
    border: Border = "nearest",
    batch: int = BATCH,
    part: tuple[float, float] | None = None,
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """Encode a video.

    Args:
        video: The file.
        encoder: From `open_encoder`, or any of that form.
        at: Times in seconds, in any order, to encode only the seconds around each rounded time: for
            three, round(t) − 1, round(t) and round(t) + 1. Halves round to the even second.
        seconds: With `at`, the number of seconds around each time, odd.
        border: With `at`, the second that is repeated beyond a border: the "nearest", or the "last"
            one available, as in the unified protocol: 0, 0, 1 or 0, 1, 1 around second 0.
        batch: Clips per batch.
        part: Start and end, by the file's clock, of the part of the file that is the video.
        progress: Shows progress in seconds of the video.

    Returns:
        float32 [S, D], row s for the second that begins at s, S as `VideoInfo.seconds`; with `at`,
        float32 [len(at), seconds, D].
    """
    if seconds < 1 or seconds % 2 == 0:
        raise ConfigError(f"{seconds} seconds around a time: expected an odd number, such as 3.")
    check_batch(batch)
    info = probe(video) if part is None else part_of(_shared(video), *part)
    if at is None:
        places = np.arange(info.seconds)
    else:
        for time in at:
            if not (math.isfinite(time) and 0 <= time < info.duration + 1):
                fault = f"lasts {info.duration:.1f} seconds; second {time:g} is outside it"
                raise ConfigError(f"{info.path}: {fault}.")
        places = observed_rows(at, rows=info.seconds, seconds=seconds, border=border)
    rows = np.unique(places)
    with progress(video.name, total=len(rows)) as advance:
        vectors = encode_rows(info, rows.tolist(), encoder, batch, advance)
    return vectors[np.searchsorted(rows, places)]


def _shared(video: Path) -> VideoInfo:
    """Describe a file of several videos; one that has not changed is not read through again."""
    return _probed(video, video.stat().st_mtime_ns if video.is_file() else 0)


@lru_cache(maxsize=1)
def _probed(video: Path, changed: int) -> VideoInfo:  # noqa: ARG001
    return probe(video)


def check_batch(batch: int) -> None:
    """Refuse a batch without clips (ConfigError)."""
    if batch < 1:
        raise ConfigError(f"a batch of {batch} clips: expected at least 1.")


def encode_rows(
    info: VideoInfo, rows: Sequence[int], encoder: VideoEncoder, batch: int, advance: Advance
) -> NDArray[np.float32]:
    """Return the vectors of some seconds of a video, ascending, float32 [len(rows), D].

    Args:
        info: Video, as `probe` describes it.
        rows: Seconds, ascending.
        encoder: Encoder of clips.
        batch: Clips that are encoded together.
        advance: Called with the number of clips after each batch.
    """
    vectors: list[NDArray[np.float32]] = []
    for several in _batches(clips(info, rows, encoder.sampling), batch):
        vectors.append(encoder.encode(several.float() / 255))
        advance(len(several))
    features = np.concatenate(vectors).astype(np.float32, copy=False)
    return check_array(
        features, shape=(len(rows), None), place=f"{info.path}: its features", rows="row"
    )


def _batches(single: Iterator[Tensor], size: int) -> Iterator[Tensor]:
    """Yield stacks of up to `size` clips; a change of picture size begins a new batch."""
    for _, alike in groupby(single, lambda clip: clip.shape):
        while several := list(islice(alike, size)):
            yield torch.stack(several)
