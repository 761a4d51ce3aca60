"""Networks that are trained on whole videos: MS-TCN++ and a transformer of ASFormer's kind."""

import numpy as np
import pytest
import torch

from cefito.data.timeline import row_labels
from cefito.recognition.asformer import ASFormer, window_attention
from cefito.recognition.mstcn import MSTCN
from cefito.recognition.settings import ASFormerConfig, MSTCNConfig
from cefito.recognition.temporal import RowConvolution
from cefito.recognition.video_networks import fit_on_videos, stage_loss, video_probabilities
from cefito.training.trainer import TrainingContext
from row_films import prepared_films


@pytest.mark.parametrize(
    ("kind", "config"),
    [(MSTCN, MSTCNConfig(epochs=15)), (ASFormer, ASFormerConfig(epochs=15, layers=5, decoders=1))],
)
def test_the_steps_of_films_are_learned(tmp_path, kind, config):
    """Also of videos shorter than the dilations."""
    films = prepared_films(tmp_path)
    rows = [video.astype(np.float32) for video in films.timeline.videos]
    labels = [
        row_labels(video.steps, len(shown), 1.0, 6)
        for video, shown in zip(films.videos, rows, strict=True)
    ]
    network = fit_on_videos(
        kind, rows[:10], labels[:10], 7, config, seed=0, context=TrainingContext()
    )
    probabilities = video_probabilities(network, rows[12])
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert (probabilities.argmax(axis=1) == labels[12]).mean() > 0.9
    assert video_probabilities(network, rows[12][:1]).shape == (1, 7)


def test_the_loss_of_stages_by_hand():
    """Log-loss, and w times the squared changes of logarithms up to j, which pull later rows."""
    config = MSTCNConfig()
    assert (config.smoothing, config.jump) == (0.15, 4.0)
    logs = torch.tensor([[[-0.1, -9.0, -0.5], [-2.0, -0.2, -1.0]]], requires_grad=True)
    truth = torch.tensor([0, 1, 0])
    labelled, changes = (0.1 + 0.2 + 0.5) / 3, (16 + 16 + 1.8**2 + 0.8**2) / 4
    loss = stage_loss([logs, logs], truth, config)
    assert loss.item() == pytest.approx(2 * (labelled + 0.15 * changes), rel=1e-5)
    first = stage_loss([logs[..., :1]], truth[:1], config)
    assert first.item() == pytest.approx(0.1)
    (gradient,) = torch.autograd.grad(loss, logs)
    assert gradient[0, 1, 0] == 0  # nothing of the next row


@pytest.mark.parametrize("count", [1, 5, 131, 257, 288, 311])
@pytest.mark.parametrize("reach", [0, 1, 2, 16, 32, 300])
def test_attention_by_blocks_is_that_of_a_mask(count, reach):
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(count, 3, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    away = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    scores = (queries @ keys.T / 3**0.5).masked_fill(away > reach, -torch.inf)
    expected = scores.softmax(dim=1) @ values
    torch.testing.assert_close(window_attention(queries, keys, values, reach), expected)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_a_convolution_by_one_product_is_that_of_pytorch(count, causal):
    torch.manual_seed(3)
    rows, layer = torch.randn(4, 2, count), RowConvolution(4, 5, 2, causal=causal)
    padded = torch.nn.functional.pad(rows, (4, 0) if causal else (2, 2)).transpose(0, 1)
    expected = torch.nn.functional.conv1d(padded, layer.weight, layer.bias, dilation=2)
    torch.testing.assert_close(layer(rows).transpose(0, 1), expected)


def test_windows_double_and_attention_of_decoders_decays():
    network = ASFormer(4, 3, ASFormerConfig())
    blocks = [list(stage.blocks) for stage in (network.encoder, *network.decoders)]
    assert [block.reach for block in blocks[1]] == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [block.dilated.dilation[0] for block in blocks[1]] == [2**layer for layer in range(10)]
    assert [stage[0].share for stage in blocks] == pytest.approx([1, 1, 0.0498, 0.00248], rel=1e-3)
    assert blocks[0][0].queries.out_features == 32


def test_decoders_take_values_from_the_encoder():
    """Those of probabilities alone differ with what the encoder made of the rows."""
    network = ASFormer(4, 3, ASFormerConfig(channels=8, layers=2, decoders=1)).eval()
    encoded = torch.randn(8, 12, generator=torch.Generator().manual_seed(1))
    probabilities = torch.full((3, 12), 1 / 3)
    plain, other = (network.decoders[0](probabilities, scale * encoded)[0] for scale in (1, -1))
    assert (plain - other).abs().max() > 0.01


def test_the_first_stage_of_mstcn_has_its_relu_after_the_fusion():
    """Of layers with two dilations nothing below the hidden row is left; of one, it may be less."""
    config = MSTCNConfig(layers=1, refining_layers=1, refining_stages=1)
    network = MSTCN(4, 3, config).eval()
    hidden = torch.randn(64, 9, generator=torch.Generator().manual_seed(2))
    made = [stage[1](hidden) - hidden for stage in (network.first, network.rest[0])]
    assert made[0].min() > -1e-6
    assert (made[0].abs() < 1e-6).float().mean() > 0.2
    assert made[1].min() < -0.01
    assert config.epochs == 100
