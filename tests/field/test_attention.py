import pytest
import torch
from torch.nn import functional as F

from cefito.field.predictor import attend, prepared_mask

BATCH, HEADS, QUERIES, KEYS, WIDTH = 3, 2, 5, 7, 8


def parts(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(BATCH, HEADS, length, WIDTH, generator=generator).to(dtype).requires_grad_()
        for length in (QUERIES, KEYS, KEYS)
    )
    return query, key, value


@pytest.fixture
def mask():
    seen = torch.rand(BATCH, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) < 0.4
    seen[..., 0] = True
    return seen


def test_products_in_bfloat16_are_near_attention_in_float32(mask):
    short, exact = parts(torch.bfloat16), parts(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = attend(*short, prepared_mask(mask))
    expected = F.scaled_dot_product_attention(*exact, mask)
    assert mixed.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.float(), expected, rtol=0.03, atol=0.03)
    mixed.float().square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip(short, exact, strict=True):
        torch.testing.assert_close(ours.grad.float(), theirs.grad, rtol=0.1, atol=0.1)


def test_what_is_masked_has_no_weight(mask):
    query, key, value = parts(torch.bfloat16)
    hidden = ~mask.any(dim=(1, 2))  # keys that no query of the row sees
    mask[:, :, :, -1] = False
    hidden[:, -1] = True
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prepared = prepared_mask(mask)
        before = attend(query, key, value, prepared)
        other = value.detach().masked_fill(hidden[:, None, :, None], 100.0)
        after = attend(query, key.detach() + 0, other, prepared)
    assert torch.equal(before, after)
    before.float().sum().backward()
    assert not value.grad.transpose(1, 2)[hidden].any()


def test_float32_is_pytorchs_own_to_the_bit(mask):
    exact = parts(torch.float32)
    assert prepared_mask(mask) is mask
    assert torch.equal(attend(*exact, mask), F.scaled_dot_product_attention(*exact, mask))
