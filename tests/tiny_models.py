"""Pretrained models in small: the real classes with few random weights."""

from __future__ import annotations

import json
from pathlib import Path


def tiny_dinov2(folder: Path, size: int = 16) -> Path:
    """Write a tiny DINOv2, randomly initialised, as save_pretrained does."""
    import torch
    import transformers

    torch.manual_seed(1)  # the model's own initialisation knows no generators
    network = transformers.Dinov2Model(
        transformers.Dinov2Config(
            hidden_size=size,
            intermediate_size=2 * size,
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
    steps = ("resize", "center_crop", "normalize", "rescale", "convert_rgb")
    processor = {
        **{f"do_{step}": True for step in steps},
        **{"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}},
        **{"image_mean": [0.5] * 3, "image_std": [0.2] * 3},
        **{"image_processor_type": "BitImageProcessor", "resample": 3, "rescale_factor": 1 / 255},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder
