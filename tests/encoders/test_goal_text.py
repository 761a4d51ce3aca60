"""Goals in words, by a tiny CLIP."""

import numpy as np
import pytest

pytest.importorskip("transformers")

from cefito.encoders.images import PretrainedImages
from cefito.encoders.text import GoalTexts, PretrainedText
from cefito.errors import ConfigError, DataError
from tiny_models import tiny_clip, tiny_dinov2

NAMES = tuple(f"pour {letter}" for letter in "abcdefghijklmnopqrstuvwxyz") * 5


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return tiny_clip(tmp_path_factory.mktemp("models") / "clip")


def vectors(clip, *texts):
    return PretrainedText(clip, layer="projected").encode(texts)


def test_a_text_is_moved_to_the_pictures(clip):
    images, mean = PretrainedImages(clip), np.arange(24, dtype=np.float32)
    texts = GoalTexts(images, 24, mean, NAMES)
    names = vectors(clip, *NAMES[::3]).mean(axis=0)  # 44 of 130, evenly
    expected = np.tile(vectors(clip, "a folded tent")[0] - names, 3) + mean
    found = texts.observe("a folded tent")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)
    raw = GoalTexts(images, 8).observe("a folded tent")
    np.testing.assert_allclose(raw, vectors(clip, "a folded tent")[0], atol=1e-6)


def test_refusals(clip, tmp_path):
    images = PretrainedImages(clip)
    texts = GoalTexts(images, 8)
    with pytest.raises(ConfigError, match="an empty goal"):
        texts.observe("  ")
    with pytest.raises(DataError, match="reads at most 48"):
        texts.observe("tent " * 20)
    with pytest.raises(ConfigError, match=r"16 numbers, a picture .* clip"):
        GoalTexts(images, 16).observe("tent")
    with pytest.raises(ConfigError, match="its layer 'pooled'"):
        GoalTexts(PretrainedImages(clip, layer="pooled"), 16)
    with pytest.raises(ConfigError, match="its layer 'pooled'"):
        GoalTexts(PretrainedImages(tiny_dinov2(tmp_path / "dinov2")), 16)
