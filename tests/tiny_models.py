"""Pretrained models in small: the real classes with few random weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def tiny_dinov2(folder: Path, size: int = 16) -> Path:
    """Write a tiny DINOv2, randomly initialised, as save_pretrained does."""
    import torch
    import transformers

    torch.manual_seed(1)  # the model's own initialisation knows no generators
    network = transformers.Dinov2Model(
        transformers.Dinov2Config(
            hidden_size=size,
            num_hidden_layers=1,
            num_attention_heads=2,
            image_size=28,
            patch_size=14,
        )
    )
    for parameter in network.parameters():
        # as initialised, vectors are nearly equal
        parameter.data += 0.2 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    _write_preparation(folder, "BitImageProcessor", 28)
    return folder


def tiny_clip(folder: Path, size: int = 8) -> Path:
    """Write a tiny CLIP of letters and pictures, randomly initialised, as save_pretrained does."""
    import torch
    import transformers

    torch.manual_seed(1)  # the model's own initialisation knows no generators
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>"]
    tokens.append("<|endoftext|>")
    tokenizer = transformers.CLIPTokenizer(
        vocab={token: place for place, token in enumerate(tokens)}, merges=[]
    )
    shape = {"hidden_size": 16, "intermediate_size": 32, "projection_dim": size}
    shape |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": 52, "eos_token_id": 53, "pad_token_id": 53}
    network = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={**shape, **ids, "vocab_size": 54, "max_position_embeddings": 48},
            vision_config={**shape, "image_size": 16, "patch_size": 8},
            projection_dim=size,
        )
    )
    for parameter in network.parameters():
        # as initialised, vectors are nearly equal
        parameter.data += 0.3 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_preparation(folder, "CLIPImageProcessor", 16)
    return folder


def tiny_t5(folder: Path, texts: Iterable[str], size: int = 16) -> Path:
    """Write a tiny T5 of the words of some texts, randomly initialised, as save_pretrained does."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(1)  # the model's own initialisation knows no generators
    words = ["<pad>", "</s>", "<unk>", *sorted({word for text in texts for word in text.split()})]
    pieces = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
    )
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    shape: dict[str, Any] = {
        "vocab_size": 32,
        "d_model": size,
        "d_kv": 4,
        "d_ff": 32,
        "num_layers": 2,
    }
    shape |= {"decoder_start_token_id": 0}
    config = transformers.T5Config(**shape, num_heads=4, feed_forward_proj="gated-gelu")
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def _write_preparation(folder: Path, kind: str, side: int) -> None:
    """Write how pictures are prepared."""
    steps = ("resize", "center_crop", "normalize", "rescale", "convert_rgb")
    processor = {
        **{f"do_{step}": True for step in steps},
        **{"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}},
        **{"image_mean": [0.5] * 3, "image_std": [0.2] * 3},
        **{"image_processor_type": kind, "resample": 3, "rescale_factor": 1 / 255},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
