"""Frozen layers against PyTorch's."""

import pytest
import torch
from torch.nn import functional as F

from cefito.field.children import FrozenLinear
from drawn import drawn


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("shape", [(40, 16), (3, 5, 2, 16), (0, 16), (2, 1, 16)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_gives_what_pytorch_gives(gelu, shape, biased):
    weight, bias = drawn(24, 16), drawn(24) if biased else None
    layer = FrozenLinear(weight, bias, gelu=gelu)
    x = drawn(*shape, seed=3)
    expected = F.linear(x, weight, bias)
    if gelu:
        expected = F.gelu(expected, approximate="tanh")
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)


def test_without_the_fast_product_it_is_pytorchs(monkeypatch):
    monkeypatch.setattr("cefito.field.layers._X86", False)
    weight, bias, x = drawn(24, 16), drawn(24), drawn(5, 16)
    layer = FrozenLinear(weight, bias, gelu=True)
    assert torch.equal(layer(x), F.gelu(F.linear(x, weight, bias), approximate="tanh"))
