"""Weights of a run in the layout of the paper's authors: the way back of `imported`.

What is written is what `torch.save` writes of a dictionary of tensors and plain values, with the
entries and names that the authors' code reads: of an energy field `model` and `ema`, which both
hold the run's weights, of a task classifier `model`. There is no state of an optimiser. A
checkpoint does not hold the text embeddings of the actions; these are written beside it.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cefito.errors import RunError
from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.files import write_atomic
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.runs.imported import authors_field, classifier_shapes, field_shapes
from cefito.runs.run import Run

__all__ = ["export_classifier", "export_field"]

_DIFFERING = 3  # most reasons in a message


def export_field(run: Run, out: Path, *, action_text: Path | None = None) -> None:
    """Write the energy field of a run as a checkpoint of the authors' layout.

    Args:
        run: A run of CEFITO whose field is that of the paper: one that reads forward, of the
            paper's size, with text embeddings of the actions, and without what is beyond the paper.
        out: The .pth file to write; what stands there is replaced.
        action_text: .npy file to write the text embeddings to, float32 [K, W], row = action id;
            None writes none.

    Raises:
        RunError: The run is of another method, or its field has another form, or a file cannot be
            written.
    """
    field = _planner(run).field
    wrong = _departures(field)
    if wrong:
        raise RunError(
            f"{run.folder}: its energy field is not one that the authors' code can read: "
            f"{'; '.join(wrong[:_DIFFERING])}. Train with the preset 'released' or 'paper' and "
            'field.action_encoding = "text".'
        )
    assert isinstance(field, EnergyField)  # said by the line above
    tensors = authors_field(field)
    _save(out, {"model": tensors, "ema": tensors, **_counts(run, "energy field")})
    if action_text is not None:
        _save_array(action_text, field.predictor.action_vectors.cpu().numpy())


def export_classifier(run: Run, out: Path) -> None:
    """Write the task classifier of a run as a checkpoint of the authors' layout.

    Args:
        run: A run of CEFITO with a classifier of the released form: raw observations, released
            widths.
        out: The .pth file to write; what stands there is replaced.

    Raises:
        RunError: The run has no classifier, or one of another form, or the file cannot be written.
    """
    model = _planner(run).task_model
    if model is None:
        raise RunError(
            f"{run.folder}: has no task classifier; its tasks are the chain's. Train with "
            'search.task_model = "classifier", or export the field alone.'
        )
    network: TaskClassifier = model.network
    expected = classifier_shapes(network.fc1.in_features, network.fc4.out_features)
    tensors = {name: tensor for name, tensor in network.state_dict().items() if name in expected}
    if (
        {name: list(tensor.shape) for name, tensor in tensors.items()} != expected
        or network.config.normalise
        or network.config.centre
    ):
        raise RunError(
            f"{run.folder}: its task classifier is not of the released form (raw observations, "
            "hidden widths of E/3, 4E and E/3). Train with the preset 'released'."
        )
    _save(out, {"model": _plain(tensors), **_counts(run, "task classifier")})


def _planner(run: Run) -> CefitoPlanner:
    if not isinstance(run.planner, CefitoPlanner):
        raise RunError(
            f"{run.folder}: is a run of '{run.method}', which has no weights of CEFITO. Give a run "
            "of cefito."
        )
    return run.planner


def _departures(field: Any) -> list[str]:
    """What of a field the authors' code does not know."""
    if not isinstance(field, EnergyField):
        return ["it is made of several parts (field.directions or field.members)"]
    config, predictor = field.config, field.predictor
    wrong = [
        words
        for words, departs in (
            ("its distance is not the mean square", config.distance != "mean_square"),
            ("observations are centred", config.centre),
            ("it projects goals", config.goal_projection > 0),
            ("it adds action vectors to goals", config.goal_skip),
            (
                "its action vectors are no text embeddings",
                predictor.learned_actions or config.action_encoding == "observed",
            ),
            (
                "observations are normalised with another epsilon",
                config.observation_epsilon != 1e-5,
            ),
        )
        if departs
    ]
    if not wrong:
        sizes = (
            predictor.observation_dim,
            predictor.action_count,
            predictor.action_vectors.shape[1],
            field.horizon,
        )
        found = {name: list(tensor.shape) for name, tensor in authors_field(field).items()}
        if found != field_shapes(*sizes) or config.heads != 6:
            wrong.append("its sizes are not those of the paper")
    return wrong


def _counts(run: Run, name: str) -> dict[str, Any]:
    training = run.info.training.get(name)
    return {} if training is None else {"epoch": training.best_epoch}


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().float().clone() for name, tensor in tensors.items()}


def _save(path: Path, content: dict[str, Any]) -> None:
    def fill(temporary: Path) -> None:
        buffer = io.BytesIO()  # so that the archive's own name does not depend on the path
        torch.save(content, buffer)
        temporary.write_bytes(buffer.getvalue())

    write_atomic(path, fill)


def _save_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array.astype(np.float32))

    write_atomic(path, fill)
