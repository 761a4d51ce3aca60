"""Weights of others as a run: the authors' checkpoints of energy field and task classifier.

A checkpoint is what `torch.save` wrote, a dictionary. Of an energy field its entry `ema` (averaged
weights, those that the authors evaluate) holds the tensors by their names, of a task classifier its
entry `model`. Names and shapes must be exactly those of the paper's networks: D = 384, four blocks
of six heads. Observation size, horizon, number of actions and width of the action text follow from
the shapes.

An imported run plans by the energy alone (the released mean-square distance) over all sequences of
the actions that the taxonomy lists for a task. It has no chain and no prior over sequences, for
these are learned from windows, and no data set of its own, so that its `run.json` names none.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cefito.data.action_space import ActionSpace
from cefito.data.taxonomy import Taxonomy
from cefito.errors import DataError, RunError
from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.incremental import IncrementalField
from cefito.field.settings import ClassifierConfig
from cefito.files import check_array, load_npy, new_folder, sha256
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.settings import RunConfig, load_config
from cefito.planners.shared.task_model import TaskModel
from cefito.runs.info import DatasetReference, RunInfo, versions
from cefito.runs.run import Run, open_run, write_run
from cefito.search.prior import NGramPrior

__all__ = [
    "authors_field",
    "classifier_shapes",
    "field_shapes",
    "import_classifier",
    "import_field",
]

_FIELD, _CLASSIFIER = "energy field", "task classifier"
_OWN = ("mean", "predictor.action_vectors")  # tensors of our field that checkpoints do not hold
_TOKENS = ("state_mask_token", "action_mask_token")  # these stand beside their `predictor.…`
_POSITIONS = "predictor.pos_embed"
_NAMED = 3  # most offending names in a message


def import_field(
    checkpoint: Path,
    out: Path,
    *,
    taxonomy: Path,
    action_text: Path,
    classifier: Path | None = None,
) -> Run:
    """Make a run folder of the authors' checkpoint of an energy field.

    Args:
        checkpoint: The checkpoint.
        out: Run folder to write, which must not hold anything yet.
        taxonomy: `taxonomy.json` whose action ids are those of the checkpoint.
        action_text: .npy file of the text embeddings that the field was trained with, [K, W], row =
            action id.
        classifier: The authors' checkpoint of a task classifier; without one, tasks must be given
            to plan.

    Raises:
        RunError: A checkpoint is missing, damaged, holds more than tensors and plain values, or
            tensors of another network, or its sizes do not fit the taxonomy or each other.
        DataError: Taxonomy or text is missing or malformed, or `out` holds something.
    """
    known = Taxonomy.read(taxonomy)
    for task in known.tasks:
        if not task.actions:
            raise DataError(
                f"{taxonomy}: task {task.id} ('{task.name}') has no actions. Give it some or "
                "remove it."
            )
    tensors, checkpoint_info = _read(checkpoint, "ema", _FIELD)
    field, config = _make_field(checkpoint, tensors, known, taxonomy, action_text)
    space = ActionSpace(
        actions=tuple(task.actions for task in known.tasks), source="taxonomy", fallback=()
    )
    planner = CefitoPlanner(
        settings=config.settings(CefitoSettings),
        taxonomy=known,
        space=space,
        incremental=IncrementalField(field.eval()),
        prior=_no_prior(space, known),
    )
    imported = {
        _FIELD: checkpoint_info,
        "action text": {"file": action_text.name, "sha256": sha256(action_text)},
    }
    if classifier is not None:
        network, imported[_CLASSIFIER] = _read_classifier(
            classifier, observation_dim=planner.observation_dim, task_count=len(known.tasks)
        )
        planner = _with_classifier(planner, network)
    info = RunInfo(
        format_version=1,
        method="cefito",
        dataset=DatasetReference(name=known.dataset, path="", fingerprint=""),
        horizon=field.horizon,
        seed=None,
        selection=None,
        preset=config.preset,
        config=config.model_dump(mode="json") | planner.settings.model_dump(mode="json"),
        versions=versions(),
        finished=True,
        parameters=planner.describe().parameters,
        training={},
        tasks_without_training=(),
        imported=imported,
    )
    with new_folder(out) as folder:
        write_run(Run(folder=folder, planner=planner, info=info, taxonomy=known))
    return open_run(out)


def import_classifier(checkpoint: Path, run: Path) -> Run:
    """Put the authors' checkpoint of a task classifier into a run, in the place of what it has.

    Weights of the objective that were fitted with another classifier stay as they are; they matter
    only where several tasks are searched.

    Args:
        checkpoint: The checkpoint.
        run: A finished run of CEFITO, trained or imported.

    Raises:
        RunError: No such run, one that holds scores made with another classifier, or a checkpoint
            as in `import_field`.
    """
    opened = open_run(run)
    planner = opened.planner
    if not isinstance(planner, CefitoPlanner):
        raise RunError(
            f"{run}: is a run of '{opened.method}', which takes no classifier of CEFITO. Give a "
            "run of cefito."
        )
    scores = sorted(path.name for path in run.glob("evaluation-*.json"))
    if scores := [name for name in scores if "oracle-task" not in name]:
        raise RunError(
            f"{run}: holds scores that another classifier would belie ({scores[0]}). Move them "
            "away first."
        )
    network, checkpoint_info = _read_classifier(
        checkpoint,
        observation_dim=planner.observation_dim,
        task_count=len(opened.taxonomy.tasks),
    )
    planner = _with_classifier(planner, network)
    info = opened.info.model_copy(
        update={
            "config": opened.info.config | planner.settings.model_dump(mode="json"),
            "parameters": planner.describe().parameters,
            "imported": {**(opened.info.imported or {}), _CLASSIFIER: checkpoint_info},
        }
    )
    write_run(replace(opened, planner=planner, info=info))
    return open_run(run)


def _with_classifier(planner: CefitoPlanner, network: TaskClassifier) -> CefitoPlanner:
    search = planner.settings.search.model_copy(update={"task_model": "classifier"})
    settings = planner.settings.model_copy(update={"classifier": network.config, "search": search})
    return replace(planner, settings=settings, task_model=TaskModel(network.eval()))


def _no_prior(space: ActionSpace, taxonomy: Taxonomy) -> NGramPrior:
    """A prior that counted nothing, to which all sequences are alike."""
    return NGramPrior(
        events=np.zeros((0, 4), dtype=np.int64),
        counts=np.zeros(0, dtype=np.int64),
        actions=space.actions,
        action_count=len(taxonomy.actions),
        order=1,
        strengths=(1.0, 1.0, 1.0),
    )


def _make_field(
    path: Path, tensors: dict[str, Tensor], taxonomy: Taxonomy, taxonomy_path: Path, text_path: Path
) -> tuple[EnergyField, RunConfig]:
    _check_names(path, tensors, field_shapes(1, 1, 1, 1), _FIELD)
    try:
        sizes = (
            tensors["predictor.state_embed.weight"].shape[1],
            tensors["predictor.action_head.weight"].shape[0],
            tensors["predictor.action_embed.weight"].shape[1],
            (tensors[_POSITIONS].shape[0] - 1) // 2,
        )
    except IndexError as problem:
        raise RunError(
            f"{path}: its weights are no matrices. Expected the {_FIELD} of the paper's size."
        ) from problem
    _check_shapes(path, tensors, field_shapes(*(max(size, 1) for size in sizes)), _FIELD)
    observation_dim, actions, width, horizon = sizes
    if actions != len(taxonomy.actions):
        raise RunError(
            f"{path}: knows {actions} actions, {taxonomy_path} lists {len(taxonomy.actions)}. "
            "Give the taxonomy that it was trained with."
        )
    text = load_npy(text_path, "Expected the text embeddings of the actions, row = action id.")
    check_array(text, shape=(actions, width), place=str(text_path), rows="action")
    with np.errstate(over="ignore"):  # what does not fit single precision is infinite in it
        text = check_array(
            text.astype(np.float32), shape=(actions, width), place=str(text_path), rows="action"
        )
    config = load_config(
        "released",
        dataset=taxonomy.dataset,
        horizon=horizon,
        overrides={"field.action_encoding": "text"},
    ).model_copy(update={"preset": "imported"})
    field = EnergyField(
        config=config.settings(CefitoSettings).field,
        observation_dim=observation_dim,
        action_count=actions,
        horizon=horizon,
        action_vectors=torch.from_numpy(text),
    )
    if not torch.allclose(tensors[_POSITIONS], field.predictor.pos_embed, rtol=0, atol=1e-5):
        raise RunError(
            f"{path}: '{_POSITIONS}' does not hold sinusoidal positions, the sines of all "
            "frequencies and then the cosines. Only checkpoints with these can be imported."
        )
    untrained = field.state_dict()
    field.load_state_dict(
        {
            name: tensor if name in _OWN else tensors[_foreign(name)]
            for name, tensor in untrained.items()
        }
    )
    return field, config


def _foreign(name: str) -> str:
    """A checkpoint's name for a tensor of our field."""
    short = name.removeprefix("predictor.")
    return short if short in _TOKENS else name


def _meta_field(observation_dim: int, actions: int, width: int, horizon: int) -> EnergyField:
    """A field without numbers, for its names and shapes."""
    config = load_config("released", overrides={"field.action_encoding": "text"})
    with torch.device("meta"):
        return EnergyField(
            config=config.settings(CefitoSettings).field,
            observation_dim=observation_dim,
            action_count=actions,
            horizon=horizon,
            action_vectors=torch.empty(actions, width),
        )


def authors_field(field: EnergyField) -> dict[str, Tensor]:
    """A field's weights by the names of the authors' checkpoints."""
    tensors = {
        _foreign(name): tensor.detach().cpu().float()
        for name, tensor in field.state_dict().items()
        if name not in _OWN
    }
    return tensors | {_POSITIONS: field.predictor.pos_embed.detach().cpu()}


def field_shapes(
    observation_dim: int, actions: int, width: int, horizon: int
) -> dict[str, list[int]]:
    """Names and shapes of the tensors of a checkpoint of an energy field.

    Args:
        observation_dim: E.
        actions: K.
        width: W of the text embeddings.
        horizon: T.
    """
    field = _meta_field(observation_dim, actions, width, horizon)
    shapes = {
        _foreign(name): list(tensor.shape)
        for name, tensor in field.state_dict().items()
        if name not in _OWN
    }
    return shapes | {_POSITIONS: list(field.predictor.pos_embed.shape)}


def classifier_shapes(observation_dim: int, task_count: int) -> dict[str, list[int]]:
    """Names and shapes of the tensors of a checkpoint of a task classifier.

    Args:
        observation_dim: E.
        task_count: |C|.
    """
    with torch.device("meta"):
        network = TaskClassifier(
            config=ClassifierConfig(), observation_dim=observation_dim, task_count=task_count
        )
    return {
        name: list(tensor.shape)
        for name, tensor in network.state_dict().items()
        if name not in _OWN
    }


def _read_classifier(
    path: Path, *, observation_dim: int, task_count: int
) -> tuple[TaskClassifier, dict[str, Any]]:
    """The classifier of a checkpoint, which must fit a planner's observations and tasks."""
    tensors, info = _read(path, "model", _CLASSIFIER)
    config = ClassifierConfig()  # the released widths, and raw observations
    network = TaskClassifier(config=config, observation_dim=observation_dim, task_count=task_count)
    expected = classifier_shapes(observation_dim, task_count)
    _check_names(path, tensors, expected, _CLASSIFIER)
    _check_shapes(path, tensors, expected, f"{_CLASSIFIER} of this run's observations and tasks")
    network.load_state_dict({**tensors, "mean": network.mean})
    return network, info


def _read(path: Path, part: str, title: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of one part of a checkpoint as float32, and where they come from, for JSON."""
    content = _load(path)
    tensors = content.get(part) if isinstance(content, dict) else None
    if (
        not isinstance(tensors, dict)
        or not tensors
        or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
        )
    ):
        found = (
            ", ".join(sorted(str(name) for name in content)[:8])
            if isinstance(content, dict)
            else type(content).__name__
        )
        raise RunError(
            f"{path}: has no tensors under '{part}' (found: {found or 'nothing'}). Expected a "
            f"checkpoint of the authors' {title}."
        )
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (
            tensor.layout != torch.strided
            or tensor.device.type != "cpu"
            or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes()
        ):
            raise RunError(f"{path}: tensor '{name}' is not stored in full. Save plain tensors.")
        plain[name] = tensor.detach().float()
        if not tensor.is_floating_point() or not bool(plain[name].isfinite().all()):
            raise RunError(
                f"{path}: tensor '{name}' holds something else than finite floating-point "
                "numbers. Get the file again."
            )
    counts = {name: content[name] for name in ("epoch", "step") if type(content.get(name)) is int}
    return plain, {"file": path.name, "sha256": sha256(path), "weights": part, **counts}


def _load(path: Path) -> Any:
    """What `torch.save` wrote, of tensors and plain values alone."""
    if not path.is_file():
        raise RunError(
            f"{path}: no such file. Expected a checkpoint as torch.save writes it (.pth)."
        )
    other = f"{path}: is truncated or not a checkpoint as torch.save writes it. Get the file again."
    try:
        with zipfile.ZipFile(path) as archive:
            stored = sum(member.file_size for member in archive.infolist())
        if stored > path.stat().st_size:  # torch.save does not compress
            raise RunError(other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of TorchScript archives, which are refused
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        named = re.search(r"GLOBAL ([\w.]+)", str(problem))
        raise RunError(
            f"{path}: holds pickled objects other than tensors and plain values"
            f"{f' ({named[1]})' if named else ''}, which are never loaded. Save its tensors alone."
        ) from problem
    except RunError:
        raise
    except Exception as problem:  # a damaged file may break the reader in any way
        raise RunError(other) from problem


def _check_names(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, list[int]], title: str
) -> None:
    wrong = [
        f"{label} {_few(names)}"
        for label, names in (
            ("missing are", sorted(set(expected) - set(tensors))),
            ("unknown are", sorted(set(tensors) - set(expected))),
        )
        if names
    ]
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
