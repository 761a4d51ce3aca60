import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cefito.planners.shared.layers import MultiHeadAttention, PostNormLayer, dropping, keep
from drawn import drawn, stirred


@pytest.mark.parametrize("activation", [F.relu, F.gelu])
def test_it_is_the_post_norm_layer_of_torch(activation):
    ours = PostNormLayer(8, 4, 12, activation)
    settings = {"dropout": 0.0, "activation": activation, "batch_first": True}
    theirs = nn.TransformerEncoderLayer(8, 4, 12, **settings).eval()
    for place, parameter in enumerate(ours.parameters()):
        parameter.data = drawn(*parameter.shape, seed=place)
    pairs = {
        ours.qkv.weight: theirs.self_attn.in_proj_weight,
        ours.qkv.bias: theirs.self_attn.in_proj_bias,
        ours.proj.weight: theirs.self_attn.out_proj.weight,
        ours.proj.bias: theirs.self_attn.out_proj.bias,
    }
    for own, other in (("fc1", "linear1"), ("fc2", "linear2"), ("norm1", "norm1"), ("norm2",) * 2):
        for name in ("weight", "bias"):
            pairs[getattr(getattr(ours, own), name)] = getattr(getattr(theirs, other), name)
    assert len(pairs) == len(list(theirs.parameters())) == len(list(ours.parameters()))
    for own, other in pairs.items():
        other.data.copy_(own.data)
    x = drawn(3, 5, 8, seed=50)
    torch.testing.assert_close(ours(x, dropping(0.5, None)), theirs(x), rtol=1e-5, atol=1e-5)


def test_it_is_the_attention_of_torch():
    ours = stirred(MultiHeadAttention(8, 4))
    theirs = nn.MultiheadAttention(8, 4, batch_first=True)
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts])
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    x, sources = drawn(3, 5, 8, seed=50), drawn(3, 7, 8, seed=51)
    expected, _ = theirs(x, sources, sources)
    torch.testing.assert_close(ours(x, sources, keep), expected, rtol=1e-5, atol=1e-5)
