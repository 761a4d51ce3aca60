"""The files of a CEFITO planner in a run folder.

planner.json             settings, action space, taxonomy, weights of the objectives
field.safetensors        the energy field; names of further parts begin with "backward.", "1."
chain.safetensors        the chain; names begin with the number of the member
classifier.safetensors   the task classifier, where one was trained
prior.safetensors        counts of the prior over sequences
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, Field, ValidationError

from cefito.data.action_space import ActionSpace
from cefito.data.taxonomy import Taxonomy, is_id
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.field.composite_field import incremental_field, make_field
from cefito.field.settings import with_epsilon
from cefito.files import load_tensors, read_json, write_json, write_tensors
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.cefito.weights import OBJECTIVES, Evidence, ObjectiveFit, Weights
from cefito.planners.crf.model import ChainModel
from cefito.planners.shared.task_model import TaskModel
from cefito.search.prior import NGramPrior
from cefito.settings import Record, validated
from cefito.training.checkpoint import load_weights

__all__ = ["read_planner", "write_planner"]

_REMEDY = "Train the run again (cefito train)."
_NETWORKS = (TaskModel.title, ChainModel.title)


def write_planner(parts: Mapping[str, Any], folder: Path) -> None:
    """Write the attributes of a planner, as `read_planner` returns them, into a folder."""
    field, fitted = parts["incremental"].field, parts["fitted"]
    write_tensors(folder / "field.safetensors", field.state_dict())
    networks = {TaskModel.title: parts["task_model"], ChainModel.title: parts["chain"]}
    for network in networks.values():
        if network is not None:
            network.save(folder)
    write_tensors(folder / "prior.safetensors", parts["prior"].to_arrays())
    write_json(
        folder / "planner.json",
        {
            "planner": "cefito",
            "horizon": field.horizon,
            "observation_dim": field.predictor.observation_dim,
            "learned_actions": field.predictor.learned_actions,
            "config": parts["settings"].model_dump(mode="json"),
            "action_space": parts["space"].to_dict(),
            "taxonomy": parts["taxonomy"].to_dict(),
            "weights": {name: vars(weights) for name, weights in fitted.weights.items()},
            "guide": vars(fitted.guide),
            "tasks": fitted.tasks,
            "evidence": None if fitted.evidence is None else vars(fitted.evidence),
            "lacks": [title for title, network in networks.items() if network is None],
        },
    )


class _Sizes(Record):
    """The entries of `planner.json` that no other class checks."""

    model_config = ConfigDict(extra="ignore")

    horizon: int = Field(ge=1)
    observation_dim: int = Field(ge=1)
    learned_actions: bool
    tasks: int = Field(ge=1)
    lacks: tuple[str, ...] = ()


def _check_space(space: ActionSpace, taxonomy: Taxonomy) -> None:
    """See that every task of the taxonomy has actions of it, ascending.

    Raises:
        ValueError: One has not.
    """
    if len(space.actions) != len(taxonomy.tasks):
        raise ValueError(
            f"action_space: {len(space.actions)} tasks; the taxonomy has {len(taxonomy.tasks)}"
        )
    if not all(is_id(task, len(taxonomy.tasks)) for task in space.fallback):
        raise ValueError("action_space.fallback: unknown tasks")
    for task, row in enumerate(space.actions):
        known = all(is_id(action, len(taxonomy.actions)) for action in row)
        if not row or not known or list(row) != sorted(set(row)):
            raise ValueError(f"action_space.actions: those of task {task} are no ascending ids")


def read_planner(folder: Path, *, device: torch.device | str) -> dict[str, Any]:
    """What a planner is made of, by the names of its attributes.

    Raises:
        RunError: Missing or damaged files, or those of another version.
    """
    path = folder / "planner.json"
    value = read_json(path, _REMEDY, RunError)
    tensors, _ = load_tensors(folder / "field.safetensors", "pt", _REMEDY, RunError)
    settings = _settings(value, path)
    try:
        _Sizes.model_validate_json(json.dumps(value), strict=True)
        taxonomy = Taxonomy.from_dict(value["taxonomy"], place=str(path))
        space = ActionSpace.from_dict(value["action_space"])
        _check_space(space, taxonomy)
        field = make_field(
            config=settings.field,
            observation_dim=value["observation_dim"],
            action_count=len(taxonomy.actions),
            horizon=value["horizon"],
            action_vectors=(
                None if value["learned_actions"] else tensors.get("predictor.action_vectors")
            ),
        )
        lacks = list(value.get("lacks", []))
        fitted = ObjectiveFit(
            weights={name: Weights(**value["weights"][name]) for name in OBJECTIVES},
            guide=Weights(**value["guide"]),
            tasks=int(value["tasks"]),
            evidence=Evidence(**value["evidence"]) if value["evidence"] else None,
        )
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RunError(
            f"{path}: not a planner of this version ({place}: {first['msg']}). {_REMEDY}"
        ) from problem
    except (KeyError, TypeError, ValueError, RuntimeError, ConfigError, DataError) as problem:
        raise RunError(
            f"{path}: not a planner of this version ({problem!r}). {_REMEDY}"
        ) from problem
    load_weights(field, tensors, str(folder / "field.safetensors"))
    with_tasks, with_chain = (title not in lacks for title in _NETWORKS)
    parts = {
        "settings": settings,
        "taxonomy": taxonomy,
        "space": space,
        "incremental": incremental_field(field.to(device).eval()),
        "prior": _prior(folder),
        "fitted": fitted,
        "task_model": (
            TaskModel.load(folder, config=settings.classifier, device=device)
            if with_tasks
            else None
        ),
        "chain": (
            ChainModel.load(folder, config=settings.chain, device=device) if with_chain else None
        ),
    }
    _check_fit(parts, folder)
    return parts


def _check_fit(parts: Mapping[str, Any], folder: Path) -> None:
    """See that all parts are for the same observations, horizon, tasks and actions.

    Raises:
        RunError: One is for others; the message names its file.
    """
    field, taxonomy, space = parts["incremental"].field, parts["taxonomy"], parts["space"]
    tasks, actions = len(taxonomy.tasks), len(taxonomy.actions)
    chain, task_model, prior = parts["chain"], parts["task_model"], parts["prior"]
    width = field.predictor.observation_dim
    facts: list[tuple[str, str, Any, Any]] = [
        ("prior.safetensors", "allowed actions", prior.actions, space.actions),
        ("prior.safetensors", "actions", prior.action_count, actions),
    ]
    if task_model is not None:
        facts += [
            (
                f"{task_model.part}.safetensors",
                "observation size",
                task_model.observation_dim,
                width,
            ),
            (f"{task_model.part}.safetensors", "tasks", task_model.task_count, tasks),
        ]
    if chain is not None:
        known = (row.nonzero()[:, 0].tolist() for row in chain.states.lookup.cpu() >= 0)
        allowed = tuple(tuple(row) for row in known)
        facts += [
            (chain.file, "observation size", chain.observation_dim, width),
            (chain.file, "horizon", chain.horizon, field.horizon),
            (chain.file, "tasks and actions", tuple(chain.states.lookup.shape), (tasks, actions)),
            (chain.file, "allowed actions", allowed, space.actions),
        ]
    for file, what, found, expected in facts:
        if found != expected:
            told = f" ({found}; expected {expected})" if isinstance(found, int) else ""
            raise RunError(
                f"{folder / file}: {what}: does not fit the other files of the run{told}. {_REMEDY}"
            )


def _settings(value: Any, path: Path) -> CefitoSettings:
    """The settings that a planner was saved with; sections of other methods are passed over."""
    config = value.get("config") if isinstance(value, Mapping) else None
    try:
        if not isinstance(config, Mapping):
            raise ConfigError("no settings")
        config = with_epsilon(config)
        own = {name: config[name] for name in CefitoSettings.model_fields if name in config}
        return validated(CefitoSettings, own, place="settings")
    except CefitoError as problem:
        raise RunError(f"{path}: settings of another version ({problem}). {_REMEDY}") from problem


def _prior(folder: Path) -> NGramPrior:
    path = folder / "prior.safetensors"
    arrays, _ = load_tensors(path, "np", _REMEDY, RunError)
    try:
        return NGramPrior.from_arrays(arrays)
    except (TypeError, ValueError, ConfigError) as problem:
        raise RunError(f"{path}: not a prior of this version ({problem!r}). {_REMEDY}") from problem
