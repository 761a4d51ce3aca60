"""Conversion between planners and the checkpoints of the paper's authors.

A checkpoint is a dictionary that `torch.save` wrote; `ema` of an energy field (averaged weights,
which the authors evaluate) and `model` of a task classifier hold the tensors. Names and shapes must
be exactly those of the paper's networks: D = 384, four blocks of six heads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cefito.data.action_text import read_action_text
from cefito.data.annotations import Taxonomy
from cefito.data.windows import ActionSpace
from cefito.errors import DataError, RunError
from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.field.settings import ClassifierConfig
from cefito.files import check_array, load_torch, sha256
from cefito.planners.base import Shape
from cefito.planners.cefito.method import CefitoSettings
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.methods import load_config
from cefito.planners.shared.task_model import TaskModel
from cefito.search.prior import NGramPrior
from cefito.settings import flattened

FIELD, CLASSIFIER = "energy field", "task classifier"
_OWN = ("mean", "predictor.action_vectors")  # tensors of our field that checkpoints do not hold
_TOKENS = ("state_mask_token", "action_mask_token")  # without the prefix `predictor.` there
_POSITIONS = "predictor.pos_embed"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NAMED = 3  # most offending names in a message
Weights = Literal["ema", "raw"]
"""Weights of a checkpoint: averaged, which the authors evaluate, or as the optimiser left them."""

logger = logging.getLogger(__name__)


def from_checkpoint(
    checkpoint: Path, *, taxonomy: Path, action_text: Path, weights: Weights = "ema"
) -> tuple[CefitoPlanner, dict[str, Any]]:
    """Make a planner of a checkpoint of an energy field, with its averaged or its raw weights.

    It plans by the energy alone (the released mean-square distance) over all sequences of the
    actions that the taxonomy lists for a task. It has no chain and no prior over sequences, which
    are learned from windows. `action_text` is a file of the text embeddings that the field was
    trained with (`read_action_text`). What the checkpoint's `config` says of the model is obeyed,
    or the checkpoint is refused.
    """
    known = Taxonomy.read(taxonomy)
    for task in known.tasks:
        if not task.actions:
            raise DataError(
                f"{taxonomy}: task {task.id} ('{task.name}') has no actions. Give it some or "
                "remove it."
            )
    tensors, record = _read(checkpoint, "ema" if weights == "ema" else "model", FIELD)
    _check_names(checkpoint, tensors, field_shapes(1, 1, 1, 1), FIELD)
    try:
        sizes = (
            tensors["predictor.state_embed.weight"].shape[1],
            tensors["predictor.action_head.weight"].shape[0],
            tensors["predictor.action_embed.weight"].shape[1],
            (tensors[_POSITIONS].shape[0] - 1) // 2,
        )
    except IndexError as problem:
        raise RunError(
            f"{checkpoint}: its weights are not matrices. Expected the {FIELD} of the paper's size."
        ) from problem
    _check_shapes(checkpoint, tensors, field_shapes(*(max(size, 1) for size in sizes)), FIELD)
    observation_dim, actions, width, horizon = sizes
    if actions != len(known.actions):
        raise RunError(
            f"{checkpoint}: knows {actions} actions, {taxonomy} lists {len(known.actions)}. Give "
            "the taxonomy that it was trained with."
        )
    heads = _heads(
        checkpoint,
        record["config"],
        {"horizon": horizon, "num_actions": actions, "num_tasks": len(known.tasks)}
        | {"model.observation_dim": observation_dim},
    )
    settings = _released(known.dataset, horizon, heads)
    field = EnergyField(
        config=settings.field,
        observation_dim=observation_dim,
        action_count=actions,
        horizon=horizon,
        action_vectors=torch.from_numpy(_text(action_text, known, width)),
    )
    if not torch.allclose(tensors[_POSITIONS], field.predictor.pos_embed, rtol=0, atol=1e-5):
        raise RunError(
            f"{checkpoint}: '{_POSITIONS}' does not hold sinusoidal positions, the sines of all "
            "frequencies and then the cosines. Only checkpoints with these can be imported."
        )
    untrained = field.state_dict()
    field.load_state_dict(
        {name: own if name in _OWN else tensors[_foreign(name)] for name, own in untrained.items()}
    )
    space = ActionSpace(
        actions=tuple(task.actions for task in known.tasks), source="taxonomy", fallback=()
    )
    planner = CefitoPlanner(
        settings=settings,
        taxonomy=known,
        space=space,
        incremental=IncrementalField(field.eval()),
        prior=_no_prior(space, known),
    )
    return planner, record


def with_classifier(planner: CefitoPlanner, path: Path) -> tuple[CefitoPlanner, dict[str, Any]]:
    """Replace the task classifier of a planner by one of a checkpoint; weights stay."""
    observation_dim, task_count = planner.observation_dim, len(planner.taxonomy.tasks)
    tensors, record = _read(path, "model", CLASSIFIER)
    config = ClassifierConfig()  # the released widths, and raw observations
    network = TaskClassifier(config=config, observation_dim=observation_dim, task_count=task_count)
    expected = _shapes(network)
    _check_names(path, tensors, expected, CLASSIFIER)
    _check_shapes(path, tensors, expected, f"{CLASSIFIER} of this run's observations and tasks")
    network.load_state_dict({**tensors, "mean": network.mean})
    search = planner.settings.search.model_copy(update={"task_model": "classifier"})
    settings = planner.settings.model_copy(update={"classifier": config, "search": search})
    shape = Shape(
        observation_dim=planner.observation_dim,
        tasks=network.fc4.out_features,
        actions=planner.vocabulary.actions or 0,
        horizon=planner.horizon,
    )
    model = TaskModel((network.eval(),), shape)
    return replace(planner, settings=settings, task_model=model), record


def field_shapes(
    observation_dim: int, actions: int, width: int, horizon: int
) -> dict[str, list[int]]:
    """Return names and shapes of the tensors of a checkpoint of an energy field."""
    with torch.device("meta"):
        field = EnergyField(
            config=_released().field,
            observation_dim=observation_dim,
            action_count=actions,
            horizon=horizon,
            action_vectors=torch.empty(actions, width),
        )
    return _shapes(field) | {_POSITIONS: list(field.predictor.pos_embed.shape)}


def _shapes(network: nn.Module) -> dict[str, list[int]]:
    """Return the shapes of a network's tensors by their names in checkpoints."""
    tensors = network.state_dict().items()
    return {_foreign(name): list(tensor.shape) for name, tensor in tensors if name not in _OWN}


def _released(dataset: str = "", horizon: int = 0, heads: int = 6) -> CefitoSettings:
    overrides = {"field.action_encoding": "text", "field.heads": heads}
    config = load_config("released", dataset=dataset, horizon=horizon, overrides=overrides)
    settings: CefitoSettings = config.settings
    return settings


def _no_prior(space: ActionSpace, taxonomy: Taxonomy) -> NGramPrior:
    """A prior without counts: all sequences are equally likely."""
    return NGramPrior(
        events=np.zeros((0, 4), dtype=np.int64),
        counts=np.zeros(0, dtype=np.int64),
        actions=space.actions,
        action_count=len(taxonomy.actions),
        order=1,
        strengths=(1.0, 1.0, 1.0),
    )


def _text(path: Path, taxonomy: Taxonomy, width: int) -> NDArray[np.float32]:
    text = read_action_text(path, taxonomy)
    return check_array(text, shape=(len(text), width), place=str(path), rows="action")


def _heads(path: Path, config: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """The number of heads by a checkpoint's config, which must agree with the weights otherwise."""
    field = _released().field
    expected = {
        **sizes,
        "model.hidden_dim": field.width,
        "model.depth": field.depth,
        "model.mlp_ratio": field.mlp_ratio,
        "model.causal_attention": True,
    }
    heads = config.get("model.num_heads", field.heads)
    wrong = [
        f"{name} = {config[name]!r} instead of {value!r}"
        for name, value in expected.items()
        if name in config and config[name] != value
    ]
    if type(heads) is not int or heads < 1 or field.width % heads:
        wrong.append(f"model.num_heads = {heads!r}, which does not divide {field.width}")
    if wrong:
        raise RunError(
            f"{path}: its config says {_few(wrong)}. Only fields of the paper's form, with weights "
            "and taxonomy of these sizes and the causal mask, can be imported."
        )
    known = {*expected, "model.num_heads"}
    if others := [name for name in config if name.startswith("model.") and name not in known]:
        logger.warning("%s: its config has %s, which is not looked at", path, _few(others))
    return int(heads)


def _foreign(name: str) -> str:
    """A checkpoint's name for a tensor of our field."""
    short = name.removeprefix("predictor.")
    return short if short in _TOKENS else name


def _read(path: Path, part: str, title: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of one part of a checkpoint as float32, and a record of the file for JSON."""
    content = load_torch(path, "Get the file again (.pth).")
    tensors = content.get(part) if isinstance(content, dict) else None
    if (
        not isinstance(tensors, dict)
        or not tensors
        or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
        )
    ):
        found = type(content).__name__
        if isinstance(content, dict):
            found = ", ".join(sorted(str(name) for name in content)[:8])
        raise RunError(
            f"{path}: has no tensors under '{part}' (found: {found or 'nothing'}). Expected a "
            f"checkpoint of the authors' {title}."
        )
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (
            tensor.layout != torch.strided
            or tensor.is_nested
            or tensor.device.type != "cpu"
            or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes()
        ):
            raise RunError(f"{path}: tensor '{name}' is not stored in full. Save plain tensors.")
        if tensor.dtype in _FLOATS:
            plain[name] = tensor.detach().float()
        if name not in plain or not bool(plain[name].isfinite().all()):
            raise RunError(
                f"{path}: tensor '{name}' holds values other than finite floating-point numbers. "
                "Get the file again."
            )
    counts = {name: content[name] for name in ("epoch", "step") if type(content.get(name)) is int}
    config = content.get("config") or {}
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise RunError(f"{path}: its 'config' is not a table of settings. Save it as one.")
    config = {
        name: value
        for name, value in flattened(config).items()
        if value is None or isinstance(value, str | int | float)
    }
    record = {"file": path.name, "sha256": sha256(path), "weights": part, "config": config}
    return plain, record | counts


def _check_names(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, list[int]], title: str
) -> None:
    missing, unknown = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    wrong = [f"missing are {_few(missing)}"] if missing else []
    wrong += [f"unknown are {_few(unknown)}"] if unknown else []
    if wrong:
        raise RunError(
            f"{path}: its tensors are not those of the authors' {title}: {'; '.join(wrong)}."
        )


def _check_shapes(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, list[int]], title: str
) -> None:
    wrong = [
        f"{name} {list(tensors[name].shape)} instead of {shape}"
        for name, shape in expected.items()
        if list(tensors[name].shape) != shape
    ]
    if wrong:
        raise RunError(f"{path}: has tensors of other shapes than the {title}: {_few(wrong)}.")


def _few(entries: list[str]) -> str:
    more = len(entries) - _NAMED
    return ", ".join(entries[:_NAMED]) + (f" and {more} more" if more > 0 else "")
