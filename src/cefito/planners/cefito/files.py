"""The files of a CEFITO planner in a run folder.

planner.json             settings, action space, taxonomy, weights of the objectives
field.safetensors        the energy field; names of further parts begin with "backward.", "1."
chain.safetensors        the chain; names begin with the number of the member
classifier.safetensors   the task classifier, where one was trained
prior.safetensors        counts of the prior over sequences
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cefito.data.action_space import ActionSpace
from cefito.data.taxonomy import Taxonomy
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.field.joint import incremental_field, make_field
from cefito.field.settings import with_epsilon
from cefito.files import load_tensors, read_json, write_json, write_tensors
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.cefito.weights import OBJECTIVES, Evidence, ObjectiveFit, Weights
from cefito.planners.chain.model import ChainModel
from cefito.planners.task_model import TaskModel
from cefito.search.prior import NGramPrior
from cefito.settings import validated
from cefito.training.checkpoint import load_weights

if TYPE_CHECKING:
    from cefito.planners.cefito.planner import CefitoPlanner

__all__ = ["read_planner", "write_planner"]

_REMEDY = "Train the run again (cefito train)."
_NETWORKS = (TaskModel.title, ChainModel.title)


def write_planner(planner: CefitoPlanner, folder: Path) -> None:
    """Write a planner into an existing folder."""
    field, fitted = planner.field, planner.fitted
    write_tensors(folder / "field.safetensors", field.state_dict())
    for network in planner.networks:
        network.save(folder)
    write_tensors(folder / "prior.safetensors", planner.prior.to_arrays())
    held = [network.title for network in planner.networks]
    write_json(
        folder / "planner.json",
        {
            "planner": "cefito",
            "horizon": field.horizon,
            "observation_dim": field.predictor.observation_dim,
            "learned_actions": field.predictor.learned_actions,
            "config": planner.settings.model_dump(mode="json"),
            "action_space": planner.space.to_dict(),
            "taxonomy": planner.taxonomy.to_dict(),
            "weights": {name: vars(weights) for name, weights in fitted.weights.items()},
            "guide": vars(fitted.guide),
            "tasks": fitted.tasks,
            "evidence": None if fitted.evidence is None else vars(fitted.evidence),
            "lacks": [title for title in _NETWORKS if title not in held],
        },
    )


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
        taxonomy = Taxonomy.from_dict(value["taxonomy"], place=str(path))
        space = ActionSpace.from_dict(value["action_space"])
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
    except (KeyError, TypeError, ValueError, RuntimeError, ConfigError, DataError) as problem:
        raise RunError(
            f"{path}: not a planner of this version ({problem!r}). {_REMEDY}"
        ) from problem
    load_weights(field, tensors, str(folder / "field.safetensors"))
    with_tasks, with_chain = (title not in lacks for title in _NETWORKS)
    return {
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
