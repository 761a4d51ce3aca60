"""Checkpoints in the layout of the paper's authors, with random numbers."""

import numpy as np
import torch

D, HEADS, BLOCKS = 384, 6, 4
E, K, TEXT, TASKS = 12, 8, 5, 3


def shapes(*, horizon, dim=E, actions=K, text=TEXT):
    """Names and shapes of the authors' checkpoints."""
    linear = {
        "state_embed": (D, dim),
        "action_embed": (D, text),
        "state_head": (dim, D),
        "action_head": (actions, D),
    }
    for block in range(BLOCKS):
        linear |= {
            f"blocks.{block}.attn.qkv": (3 * D, D),
            f"blocks.{block}.attn.proj": (D, D),
            f"blocks.{block}.mlp.fc1": (4 * D, D),
            f"blocks.{block}.mlp.fc2": (D, 4 * D),
        }
    found = {
        "state_mask_token": (D,),
        "action_mask_token": (D,),
        "predictor.pos_embed": (2 * horizon + 1, D),
        "predictor.norm.weight": (D,),
        "predictor.norm.bias": (D,),
    }
    for name, shape in linear.items():
        found |= {f"predictor.{name}.weight": shape, f"predictor.{name}.bias": shape[:1]}
    return found


def classifier_shapes(*, dim=E, tasks=TASKS):
    widths = (dim, dim // 3, 4 * dim, dim // 3, tasks)
    linear = {f"fc{place}": (widths[place], widths[place - 1]) for place in range(1, 5)}
    return {
        f"{name}.{part}": shape[:length]
        for name, shape in linear.items()
        for part, length in (("weight", 2), ("bias", 1))
    }


def drawn(found, seed):
    """Random numbers of those shapes; positions as they are."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator)
        * (shape[-1] ** -0.5 if len(shape) == 2 else 0.5)
        for name, shape in found.items()
    }
    if "predictor.pos_embed" in found:
        rows, width = found["predictor.pos_embed"]
        angles = np.arange(rows)[:, None] / 10_000 ** (np.arange(width // 2) / (width / 2))
        tensors["predictor.pos_embed"] = torch.from_numpy(
            np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        ).float()
    return tensors


def config(tensors, **model):
    """The settings that the authors' code stores, as far as tensors say; `model` changes some."""
    rows, dim = (
        tensors["predictor.pos_embed"].shape[0],
        tensors["predictor.state_head.weight"].shape[0],
    )
    known = {"observation_dim": dim, "hidden_dim": D, "depth": BLOCKS, "num_heads": HEADS}
    return {
        "dataset": "crosstask",
        "horizon": (rows - 1) // 2,
        "num_actions": tensors["predictor.action_head.weight"].shape[0],
        "run_name": "crosstask_t3",
        "model": known | {"mlp_ratio": 4.0, "causal_attention": True} | model,
        "loss": {"num_negatives": 50, "hard_negative_ratio": 0.8},
        "train": {"lr": 5e-4, "num_workers": 0},
        "eval": {"chunk_size": 50_000, "oracle_task": False},
    }


def checkpoint(path, tensors, **more):
    """As the authors save it; here `model` is of no use unless it is given."""
    state = {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2)}}
    saved = {
        **{"epoch": 17, "step": 1234, "ema": tensors},
        "model": {"state_mask_token": torch.zeros(D)},
        "optimizer": {"state": state, "param_groups": [{"lr": 5e-4, "params": [0]}]},
    }
    if "config" not in more:  # tests damage tensors, so sizes are left out
        saved["config"] = {"run_name": "x", "model": {"num_heads": HEADS, "causal_attention": True}}
    torch.save(saved | more, path)
    return path


def classifier_checkpoint(path, tensors):
    torch.save({"model": tensors, "epoch": 3}, path)
    return path
