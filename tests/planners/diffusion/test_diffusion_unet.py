import pytest
import torch
from torch import nn

from cefito.planners.diffusion.network import TemporalUNet
from cefito.runtime import generator_for
from drawn import drawn


class Noted(nn.Module):
    """Adds the first number of its latent to everything; notes what it saw."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        assert x.shape[1] == self.width
        self.seen.append(float(latent[0, 0]))
        return x + latent[:, :1, None]


@pytest.mark.parametrize("widths", [(8,), (8, 16), (8, 16, 24)])
def test_each_block_has_a_latent_of_its_own_in_the_order_of_passing(widths):
    unet = TemporalUNet(columns=6, widths=widths, steps=5, inside=Noted)
    unet.reset(generator_for("cpu", 0))
    count = TemporalUNet.blocks(len(widths))
    latents = torch.arange(float(count))[None, :, None].expand(2, -1, 3)
    unet(drawn(2, 3, 6), torch.tensor([1, 2]), latents)
    noted = [module for module in unet.modules() if isinstance(module, Noted)]
    assert [module.seen for module in noted] == [[float(place)] for place in range(count)]
    first, last = widths[0], widths[-1]
    down = [width for width in widths for _ in range(2)]
    up = [width for width in reversed(widths[:-1]) for _ in range(2)]
    assert [module.width for module in noted] == [*down, last, last, *up]
    assert noted[0].width == first
