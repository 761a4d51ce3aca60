"""Files of a CEFITO planner in a run folder.

planner.json             action space, taxonomy, weights of the fitted objective
field.safetensors        the energy field
chain.safetensors        the chain; names begin with the number of the member
classifier.safetensors   the task classifier, where one was trained
prior.safetensors        counts of the prior over sequences
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import ActionSpace
from cefito.errors import RunError
from cefito.field.fields import incremental_field, make_field
from cefito.files import load_tensors, load_weights, read_json, write_json, write_tensors
from cefito.markup import counted
from cefito.planners.cefito.hypotheses import Weights
from cefito.planners.cefito.method import CefitoSettings
from cefito.planners.chain.model import ChainModel
from cefito.planners.shared.task_model import TaskModel
from cefito.search.prior import NGramPrior
from cefito.training.trainer import TrainingContext

logger = logging.getLogger(__name__)

_REMEDY = "Train the run again (cefito train)."


def write_planner(parts: Mapping[str, Any], folder: Path) -> None:
    """Write the attributes of a planner, as `read_planner` returns them, into a folder."""
    incremental, fitted = parts["incremental"], parts["fitted"]
    field = incremental.field
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
            "horizon": incremental.horizon,
            "observation_dim": parts["observation_dim"],
            "learned_actions": field.predictor.learned_actions,
            "action_space": parts["space"].to_dict(),
            "taxonomy": parts["taxonomy"].to_dict(),
            "weights": vars(fitted),
            "lacks": [title for title, network in networks.items() if network is None],
        },
    )


def read_planner(
    folder: Path, *, settings: CefitoSettings, context: TrainingContext = TrainingContext()
) -> dict[str, Any]:
    """Read a planner's parts by the names of its attributes; arguments as of `Planner.load`."""
    path = folder / "planner.json"
    value = read_json(path, _REMEDY, RunError)
    arrays, _ = load_tensors(folder / "prior.safetensors", "np", _REMEDY, RunError)
    taxonomy = Taxonomy.from_dict(value["taxonomy"], place=str(path))
    lacks = value["lacks"]
    parts: dict[str, Any] = {
        "settings": settings,
        "taxonomy": taxonomy,
        "space": ActionSpace.from_dict(value["action_space"]),
        "prior": NGramPrior.from_arrays(arrays),
        "fitted": Weights(**value["weights"]),
    }
    path = folder / "field.safetensors"
    tensors, _ = load_tensors(path, "pt", _REMEDY, RunError)
    ending = "predictor.action_vectors"  # of both directions, if there are two
    vectors = next((tensor for name, tensor in tensors.items() if name.endswith(ending)), None)
    field = make_field(
        config=settings.field,
        observation_dim=value["observation_dim"],
        action_count=len(taxonomy.actions),
        horizon=value["horizon"],
        action_vectors=None if value["learned_actions"] else vectors,
    )
    load_weights(field, tensors, str(path))
    incremental = incremental_field(field.to(context.device).eval())
    task_model = chain = None
    if TaskModel.title not in lacks:
        task_model = TaskModel.load(folder, settings=settings, context=context)
    if ChainModel.title not in lacks:
        chain = ChainModel.load(folder, settings=settings, context=context)
    return {**parts, "incremental": incremental, "task_model": task_model, "chain": chain}


def warn_fallback(space: ActionSpace, taxonomy: Taxonomy) -> None:
    """Name the tasks without training windows."""
    if not space.fallback:
        return
    names = [f"{task} ('{taxonomy.tasks[task].name}')" for task in space.fallback[:3]]
    logger.warning(
        "%s without training windows may use all actions that the taxonomy lists: %s%s",
        counted(len(space.fallback), "task"),
        ", ".join(names),
        ", …" if len(space.fallback) > len(names) else "",
    )
