"""S3D-G, the video network of MIL-NCE, as released in antoine77340/S3D_HowTo100M (Apache-2.0).

Shapes in comments are [B, channels, F, H, W] for the usual clips [B, 3, 32, 224, 224].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.arrays import load_torch
from cefito.encoders.frames import Sampling
from cefito.encoders.images import FILE
from cefito.errors import ConfigError, RunError, explained
from cefito.files import sha256

Triple = tuple[int, int, int]
# input channels, then output channels of the branches b0, b1 (a, b), b2 (a, b) and b3
_MIXED = {
    "mixed_3b": (192, 64, 96, 128, 16, 32, 32),
    "mixed_3c": (256, 128, 128, 192, 32, 96, 64),
    "mixed_4b": (480, 192, 96, 208, 16, 48, 64),
    "mixed_4c": (512, 160, 112, 224, 24, 64, 64),
    "mixed_4d": (512, 128, 128, 256, 24, 64, 64),
    "mixed_4e": (512, 112, 144, 288, 32, 64, 64),
    "mixed_4f": (528, 256, 160, 320, 32, 128, 128),
    "mixed_5b": (832, 256, 160, 320, 32, 128, 128),
    "mixed_5c": (832, 384, 192, 384, 48, 128, 128),
}
_REMEDY = "Fetch s3d_howto100m.pth by 'cefito data download s3d FOLDER', give its path."


class _Convolution(nn.Module):
    """Convolution without bias, batch norm, ReLU; separable: first over space, then over time."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Triple,
        padding: Triple = (0, 0, 0),
        *,
        separable: bool = False,
    ) -> None:
        super().__init__()
        over_time = kernel[0]
        if separable:
            kernel, padding = (1, kernel[1], kernel[2]), (0, padding[1], padding[2])
        self.conv1 = nn.Conv3d(inputs, outputs, kernel, padding=padding, bias=False)
        self.bn1 = nn.BatchNorm3d(outputs)
        self.separable = separable
        if separable:
            self.conv2 = nn.Conv3d(
                outputs, outputs, (over_time, 1, 1), padding=(over_time // 2, 0, 0), bias=False
            )
            self.bn2 = nn.BatchNorm3d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x))) if self.separable else x


class _Gate(nn.Module):
    """x · sigmoid(linear(mean of x over time and space)), channel by channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = torch.sigmoid(self.fc(x.mean(dim=(2, 3, 4))))
        return x * weights[:, :, None, None, None]


class _Mixed(nn.Module):
    """Four gated branches, concatenated: 1³; 1³ → 3³; 1³ → 3³; max pool 3³ → 1³."""

    def __init__(
        self, inputs: int, b0: int, b1_a: int, b1_b: int, b2_a: int, b2_b: int, b3: int
    ) -> None:
        super().__init__()
        pointwise, cubic = (1, 1, 1), (3, 3, 3)
        self.conv_b0 = _Convolution(inputs, b0, pointwise)
        self.conv_b1_a = _Convolution(inputs, b1_a, pointwise)
        self.conv_b1_b = _Convolution(b1_a, b1_b, cubic, pointwise, separable=True)
        self.conv_b2_a = _Convolution(inputs, b2_a, pointwise)
        self.conv_b2_b = _Convolution(b2_a, b2_b, cubic, pointwise, separable=True)
        self.conv_b3_b = _Convolution(inputs, b3, pointwise)
        self.gating_b0, self.gating_b1 = _Gate(b0), _Gate(b1_b)
        self.gating_b2, self.gating_b3 = _Gate(b2_b), _Gate(b3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(
            [
                self.gating_b0(self.conv_b0(x)),
                self.gating_b1(self.conv_b1_b(self.conv_b1_a(x))),
                self.gating_b2(self.conv_b2_b(self.conv_b2_a(x))),
                self.gating_b3(self.conv_b3_b(_max_pool(x, (3, 3, 3), (1, 1, 1)))),
            ],
            dim=1,
        )


class S3D(nn.Module):
    """The network, with random weights until others are loaded."""

    dim = 512  # size of the output

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = _Convolution(24, 64, (2, 4, 4), (1, 2, 2))
        self.conv_2b = _Convolution(64, 64, (1, 1, 1))
        self.conv_2c = _Convolution(64, 192, (3, 3, 3), (1, 1, 1), separable=True)
        self.gating = _Gate(192)
        for name, widths in _MIXED.items():
            self.add_module(name, _Mixed(*widths))
        self.fc = nn.Linear(1024, self.dim)

    def forward(self, clips: Tensor) -> Tensor:
        """Return vectors [B, 512] of clips [B, 3, F, H, W], RGB in [0, 1], even F, H and W."""
        x = _space_to_depth(clips)  # [B, 24, 16, 112, 112]
        x = self.conv1(x)[:, :, 1:, 1:, 1:]  # [B, 64, 16, 112, 112]
        x = _max_pool(x, (1, 3, 3), (1, 2, 2))  # [B, 64, 16, 56, 56]
        x = self.gating(self.conv_2c(self.conv_2b(x)))  # [B, 192, 16, 56, 56]
        x = _max_pool(x, (1, 3, 3), (1, 2, 2))  # [B, 192, 16, 28, 28]
        for name in _MIXED:
            if name == "mixed_4b":
                x = _max_pool(x, (3, 3, 3), (2, 2, 2))  # [B, 480, 8, 14, 14]
            elif name == "mixed_5b":
                x = _max_pool(x, (2, 2, 2), (2, 2, 2))  # [B, 832, 4, 7, 7]
            x = self.get_submodule(name)(x)
        embeddings: Tensor = self.fc(x.mean(dim=(2, 3, 4)))
        return embeddings


class S3DEncoder:
    """S3D with weights from a file, as a video encoder of clips of even sizes (ConfigError).

    Args:
        weights: File of the weights.
        sampling: Frames of a clip and their size in pixels.
        device: Where it computes.
    """

    def __init__(
        self, weights: Path, *, sampling: Sampling | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self.sampling = sampling or Sampling()
        sizes = {"frames a clip": self.sampling.frames, "pixels": self.sampling.size}
        for what, number in sizes.items():
            if number is None or number % 2:
                raise ConfigError(f"{number} {what}: S3D takes even numbers only, such as 32.")
        self.network = load_s3d(weights).to(device)
        self.device = device
        self._description = {
            "model": "s3d",
            "weights": sha256(weights),
            FILE: str(weights.resolve()),
        }

    def describe(self) -> dict[str, Any]:
        """Return the name of the network, the digest of its weights and their file."""
        return dict(self._description)

    def encode(self, clips: Tensor, /) -> NDArray[np.float32]:
        """Return vectors [B, 512] of clips [B, 3, F, H, W], RGB from 0 to 1."""
        with torch.inference_mode():
            vectors: NDArray[np.float32] = self.network(clips.to(self.device)).cpu().numpy()
        return vectors


def _space_to_depth(clips: Tensor) -> Tensor:
    """Turn [B, 3, F, H, W] into [B, 24, F/2, H/2, W/2].

    The new channel index runs over time, height and width offset, then colour.
    """
    batch, colours, frames, height, width = clips.shape
    cells = clips.reshape(batch, colours, frames // 2, 2, height // 2, 2, width // 2, 2)
    return cells.permute(0, 3, 5, 7, 1, 2, 4, 6).reshape(
        batch, 8 * colours, frames // 2, height // 2, width // 2
    )


def _max_pool(x: Tensor, kernel: Triple, stride: Triple) -> Tensor:
    """Max pool in ceil mode, padded with max(k − s, 0) zeros, the smaller half in front."""
    padding: list[int] = []
    # F.pad begins with the last dimension
    for size, step in zip(reversed(kernel), reversed(stride), strict=True):
        cells = max(size - step, 0)
        padding += [cells // 2, cells - cells // 2]
    return F.max_pool3d(F.pad(x, padding), kernel, stride, ceil_mode=True)


def load_s3d(path: Path) -> S3D:
    """Load `s3d_howto100m.pth`, without its text network, to evaluate (RunError)."""
    network, state = S3D(), load_torch(path, _REMEDY)
    kinds = AttributeError, RuntimeError, TypeError
    with explained(path, "is not the S3D network", _REMEDY, *kinds, error=RunError):
        network.load_state_dict(
            {name: tensor for name, tensor in state.items() if not name.startswith("text_module.")}
        )
    return network.eval()
