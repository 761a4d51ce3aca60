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
from torch import Tensor, nn

from cefito.arrays import load_torch
from cefito.data.action_text import read_action_text
from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import ActionSpace
from cefito.errors import DataError, RunError, explained
from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.field.settings import ClassifierConfig, FieldConfig
from cefito.files import check_array, load_weights, sha256
from cefito.planners.base import Planner
from cefito.planners.cefito.method import CefitoSettings
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.methods import load_config
from cefito.planners.shared.task_model import TaskModel
from cefito.search.prior import NGramPrior
from cefito.settings import Settings, flattened

FIELD, CLASSIFIER = "energy field", "task classifier"
_OWN = ("mean", "predictor.action_vectors")  # tensors of our field that checkpoints do not hold
_TOKENS = ("state_mask_token", "action_mask_token")  # without the prefix `predictor.` there
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
    are learned from windows. What the checkpoint's `config` says of the model is obeyed,
    or the checkpoint is refused.

    Args:
        checkpoint: File of the authors' form (.pth).
        taxonomy: File of tasks and actions.
        action_text: File of the text embeddings [K, W] that it was trained with
            (`read_action_text`).
        weights: "ema" for the averaged weights, or the raw ones.
    """
    listed = Taxonomy.read(taxonomy)
    for task in listed.tasks:
        if not task.actions:
            raise DataError(
                f"{taxonomy}: task {task.id} ('{task.name}') has no actions. Give it some or "
                "remove it."
            )
    tensors, record = _read(checkpoint, "ema" if weights == "ema" else "model", FIELD)
    remedy = "Give one of the paper's form."
    with explained(checkpoint, f"not an {FIELD}", remedy, LookupError, error=RunError):
        observation_dim = tensors["predictor.state_embed.weight"].shape[1]
        actions = tensors["predictor.action_head.weight"].shape[0]
        width = tensors["predictor.action_embed.weight"].shape[1]
        positions = tensors.pop("predictor.pos_embed")
        horizon = max(1, (positions.shape[0] - 1) // 2)
    if actions != len(listed.actions):
        raise RunError(
            f"{checkpoint}: knows {actions} actions, {taxonomy} lists {len(listed.actions)}. Give "
            "the taxonomy that it was trained with."
        )
    heads = _heads(
        checkpoint,
        record["config"],
        {"horizon": horizon, "num_actions": actions, "num_tasks": len(listed.tasks)}
        | {"model.observation_dim": observation_dim},
    )
    settings = _released(listed.dataset, horizon, heads)
    text = read_action_text(action_text, listed)
    check_array(text, shape=(actions, width), place=str(action_text), rows="action")
    field = EnergyField(
        config=settings.field,
        observation_dim=observation_dim,
        action_count=actions,
        horizon=horizon,
        action_vectors=torch.from_numpy(text),
    )
    sinusoids = field.predictor.pos_embed
    if positions.shape != sinusoids.shape or not torch.allclose(
        positions, sinusoids, rtol=0, atol=1e-5
    ):
        raise RunError(
            f"{checkpoint}: 'predictor.pos_embed' does not hold sinusoidal positions, the sines of "
            "all frequencies and then the cosines. Only checkpoints with these can be imported."
        )
    named = {f"predictor.{name}" if name in _TOKENS else name: tensors[name] for name in tensors}
    kept = {name: field.state_dict()[name] for name in _OWN}
    load_weights(field, named | kept, str(checkpoint))
    space = ActionSpace(
        actions=tuple(task.actions for task in listed.tasks), source="taxonomy", fallback=()
    )
    planner = CefitoPlanner(
        settings=settings,
        taxonomy=listed,
        space=space,
        incremental=IncrementalField(field.eval()),
        prior=NGramPrior(  # without counts: all sequences are equally likely
            events=np.zeros((0, 4), dtype=np.int64),
            counts=np.zeros(0, dtype=np.int64),
            actions=space.actions,
            action_count=actions,
            order=1,
            strengths=(1.0, 1.0, 1.0),
        ),
    )
    return planner, record


def with_classifier(planner: CefitoPlanner, path: Path) -> tuple[CefitoPlanner, dict[str, Any]]:
    """Replace the task classifier of a planner by one of a checkpoint; weights stay."""
    observation_dim, task_count = planner.observation_dim, len(planner.taxonomy.tasks)
    tensors, record = _read(path, "model", CLASSIFIER)
    config = ClassifierConfig()  # the released widths, and raw observations
    network = TaskClassifier(config=config, observation_dim=observation_dim, task_count=task_count)
    load_weights(network, {**tensors, "mean": network.mean}, str(path))
    search = planner.settings.search.model_copy(update={"task_model": "classifier"})
    settings = planner.settings.model_copy(update={"classifier": config, "search": search})
    model = TaskModel((network.eval(),), planner.shape)
    return replace(planner, settings=settings, task_model=model), record


def to_checkpoints(planner: Planner, place: str) -> dict[str, Any]:
    """Return a planner's field, vectors of actions [K, W] and classifier, by endings of file names.

    The classifier is left out unless it is of the authors' form.

    Raises:
        RunError: It has no energy field, or the authors' code computes other energies with it.
    """
    if not isinstance(planner, CefitoPlanner):
        raise RunError(f"{place}: has no energy field. Train one (--method cefito).")
    field, model = planner.field, planner.task_model
    if departs := _departures(field.config, _released().field):
        problem = f"the authors' code has no energy field with {_few(departs)}"
        raise RunError(f"{place}: {problem}. Train one (--method cefito --preset released).")
    tensors = _foreign(field) | {"predictor.pos_embed": field.predictor.pos_embed.cpu()}
    shape, heads = planner.shape, field.config.heads
    sizes = {"observation_dim": shape.observation_dim, "num_heads": heads, **_form(field.config)}
    config = {"horizon": shape.horizon, "num_actions": shape.actions, "num_tasks": shape.tasks}
    checkpoint = {"ema": tensors, "model": tensors, "config": {**config, "model": sizes}}
    vectors = field.predictor.action_vectors.detach().cpu().numpy()
    contents = {".pth": checkpoint, "-action-text.npy": vectors}
    if model is not None and not _departures(model.network.config, ClassifierConfig()):
        contents["-classifier.pth"] = {"model": _foreign(model.network)}
    return contents


def _departures(config: Settings, form: Settings) -> list[str]:
    """Return the settings by which the outputs of a network differ from those of a form."""
    free = {"init", "dropout", "heads", "action_dim", "action_encoding"}
    return [
        f"{name} = {value!r}"
        for name, value in config
        if value == "observed" or (name not in free and value != getattr(form, name))
    ]


def _foreign(network: nn.Module) -> dict[str, Tensor]:
    """Return a network's weights by their names in checkpoints."""
    names = {f"predictor.{name}": name for name in _TOKENS}
    tensors = network.state_dict().items()
    return {names.get(name, name): tensor.cpu() for name, tensor in tensors if name not in _OWN}


def _released(dataset: str = "", horizon: int = 0, heads: int = 6) -> CefitoSettings:
    overrides = {"field.action_encoding": "text", "field.heads": heads}
    config = load_config("released", dataset=dataset, horizon=horizon, overrides=overrides)
    settings: CefitoSettings = config.settings
    return settings


def _form(field: FieldConfig) -> dict[str, Any]:
    """Return what a checkpoint's config says of a field besides its sizes."""
    named = {"hidden_dim": field.width, "depth": field.depth, "mlp_ratio": field.mlp_ratio}
    return {**named, "causal_attention": True}


def _heads(path: Path, config: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """The number of heads by a checkpoint's config, which must agree with the weights otherwise."""
    field = _released().field
    expected = {**sizes, **flattened({"model": _form(field)})}
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
    checked = {*expected, "model.num_heads"}
    if others := [name for name in config if name.startswith("model.") and name not in checked]:
        logger.warning("%s: its config has %s, which is not looked at", path, _few(others))
    return int(heads)


def _read(path: Path, key: str, title: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of one part of a checkpoint as float32, and a record of the file for JSON."""
    content = load_torch(path, "Get the file again (.pth).")
    tensors = content.get(key) if isinstance(content, dict) else None
    named = isinstance(tensors, dict) and all(isinstance(name, str) for name in tensors)
    if not (tensors and named and all(isinstance(tensor, Tensor) for tensor in tensors.values())):
        contents = type(content).__name__
        if isinstance(content, dict):
            contents = ", ".join(sorted(str(name) for name in content)[:8])
        raise RunError(
            f"{path}: has no tensors under '{key}' (found: {contents or 'nothing'}). Expected a "
            f"checkpoint of the authors' {title}."
        )
    for name, tensor in tensors.items():
        plain = tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_meta)
        if not (plain and tensor.is_floating_point()):
            raise RunError(f"{path}: tensor '{name}' is not one of plain floating-point numbers.")
    counts = {name: content[name] for name in ("epoch", "step") if type(content.get(name)) is int}
    config = content.get("config") or {}
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise RunError(f"{path}: its 'config' is not a table of settings. Save it as one.")
    config = {
        name: value
        for name, value in flattened(config).items()
        if value is None or isinstance(value, str | int | float)
    }
    record = {"file": path.name, "sha256": sha256(path), "weights": key, "config": config}
    return {name: tensor.float() for name, tensor in tensors.items()}, record | counts


def _few(entries: list[str]) -> str:
    more = len(entries) - _NAMED
    return ", ".join(entries[:_NAMED]) + (f" and {more} more" if more > 0 else "")
