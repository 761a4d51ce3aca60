import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cefito.field import layers
from cefito.field.children import FrozenLinear
from cefito.field.layers import gathered, linear, mlp
from drawn import drawn


def plain_linear(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def plain_mlp(first: nn.Linear, second: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return second(F.gelu(first(x), approximate="tanh"))


def slopes(function, modules, x, weights, *, reduced=False):
    """Outputs of a function of modules and x, and the gradients of all."""
    x = x.clone().requires_grad_()
    for module in modules:
        module.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=reduced):
        y = function(*modules, x)
    (y.float() * weights).sum().backward()
    return [
        y.detach().float(),
        x.grad,
        *(p.grad for module in modules for p in module.parameters()),
    ]


CASES = {
    "linear": (linear, plain_linear, [(24, 40)]),
    "mlp": (mlp, plain_mlp, [(24, 96), (96, 40)]),
}


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("live", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_layers_have_the_values_and_gradients_of_pytorch(monkeypatch, case, live, packed, reduced):
    if not packed:
        monkeypatch.setattr(layers, "X86", False)
    torch.manual_seed(0)
    ours, theirs, shapes = CASES[case]
    modules = [nn.Linear(*shape) for shape in shapes]
    x, weights = drawn(30, 9, 24, seed=1), drawn(30, 9, 40, seed=2)
    weights[torch.rand(30, 9) > live] = 0  # rows without a gradient
    found = slopes(ours, modules, x, weights, reduced=reduced)
    expected = slopes(theirs, modules, x, weights)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        bound = (0.05 if reduced else 1e-5) * max(float(other.abs().max()), 1e-3)
        torch.testing.assert_close(one, other, rtol=0, atol=bound)
    assert torch.equal(found[1].any(dim=-1), weights.any(dim=-1))


def test_rows_without_a_gradient_are_left_out(monkeypatch):
    seen, product = [], layers.product
    monkeypatch.setattr(
        layers, "product", lambda x, *rest: seen.append(len(x)) or product(x, *rest)
    )
    weights = torch.zeros(20, 40)
    weights[3:5] = 1
    slopes(mlp, [nn.Linear(24, 96), nn.Linear(96, 40)], drawn(20, 24, seed=1), weights)
    assert seen == [20, 20, 2, 2]


def test_a_part_of_a_layer():
    layer, x = nn.Linear(6, 10), drawn(4, 6)
    torch.testing.assert_close(linear(layer, x, slice(3, 7)), layer(x)[:, 3:7])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_gathered_rows_are_added_up_in_float32(dtype):
    rows = torch.ones(3, 2, dtype=dtype, requires_grad=True)
    index = torch.tensor([[0] * 1000, [2] * 1000])
    values = gathered(rows, index)
    assert values.shape == (2, 1000, 2)
    values.sum().backward()  # in bfloat16, 256 + 1 is 256
    assert rows.grad.float().tolist() == [[1000, 1000], [0, 0], [1000, 1000]]


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
    monkeypatch.setattr("cefito.field.layers.X86", False)
    weight, bias, x = drawn(24, 16), drawn(24), drawn(5, 16)
    layer = FrozenLinear(weight, bias, gelu=True)
    assert torch.equal(layer(x), F.gelu(F.linear(x, weight, bias), approximate="tanh"))
