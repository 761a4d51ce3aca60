"""The parts of a run as files of ONNX, for devices with onnxruntime and NumPy alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cefito.errors import CefitoError, ConfigError, install_command
from cefito.export.graph import FORMAT, OPSET, check_onnx
from cefito.export.recogniser import STATE, follower, whole_recogniser
from cefito.files import write_json
from cefito.inference.observer import ObservationRecipe
from cefito.locks import check_new, new_folder
from cefito.parts.opened import OpenedRun
from cefito.planners.any_length.model import AnyLengthModel
from cefito.planners.any_length.network import History
from cefito.planners.any_length.planner import AnyLengthPlanner
from cefito.planners.chain.inference import average
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.settings import Record

logger = logging.getLogger(__name__)

RECORD = "onnx.json"
"""File with the names of labels, and what each file takes and gives."""
START = "follower-start.npz"
"""The state of a follower before the first row."""


class ExportedFile(Record):
    """A file of a folder of ONNX."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    opset: int = OPSET


class ExportedRun(Record):
    """What a folder of ONNX holds."""

    tasks: tuple[str, ...]
    actions: tuple[str, ...]  # in the order of labels; the last label is no step
    rate: float | None  # rows a second
    width: int | None  # numbers of a row
    lengths: tuple[int, ...]  # numbers of steps that the planner scores
    made_with: dict[str, Any]  # encoder of the run's features
    files: dict[str, ExportedFile]
    left_out: dict[str, str]  # parts of the run without a file, and why


def export_onnx(run: OpenedRun, folder: Path | str) -> ExportedRun:
    """Write the parts of a run into a new folder of ONNX.

    Raises:
        ConfigError: The package onnx or onnxscript is not installed, or nothing can be written.
        DataError: The folder holds something.
    """
    check_onnx()
    folder, left_out = Path(folder), dict[str, str]()
    check_new(folder)
    recipe, taxonomy, model = ObservationRecipe.of(run), run.taxonomy, run.recogniser
    lengths, files = tuple[int, ...](), dict[str, ExportedFile]()
    with new_folder(folder) as place:
        if isinstance(model, SegmentalRecogniser) and model.config.chain:
            whole_recogniser(model).write(place / "recogniser.onnx", {"cefito": "recogniser"})
            files["recogniser.onnx"] = _file(place, "recogniser", ("rows",), ("labels", "tasks"))
            graph, start = follower(model)
            graph.write(place / "follower.onnx", {"cefito": "follower"})
            np.savez(place / START, allow_pickle=False, **start)
            after = (f"next_{name}" for name in STATE)
            outputs = ("label", "task", "next_action", *after)
            files["follower.onnx"] = _file(place, "follower", ("row", *STATE), outputs)
        else:
            left_out["recogniser"] = "the run has no segmental recogniser"
        if isinstance(run.planner, AnyLengthPlanner):
            lengths = run.planner.model.lengths
            files["planner.onnx"] = _planner(run.planner.model, run.planner.observation_dim, place)
        else:
            left_out["planner"] = "only a run of several lengths scores steps without a search"
        try:
            network = _encoder_network(recipe)
            files["encoder.onnx"] = _encoder(network, place)
        except CefitoError as problem:
            left_out["encoder"] = str(problem)
        if not files:
            raise ConfigError(
                f"{run.place}: no part can be written: {'; '.join(left_out.values())}."
            )
        exported = ExportedRun(
            tasks=tuple(task.name for task in taxonomy.tasks),
            actions=tuple(action.name for action in taxonomy.actions),
            rate=None if model is None else model.rate,
            width=None if model is None else model.width,
            lengths=lengths,
            made_with=dict(recipe.made_with),
            files=files,
            left_out=left_out,
        )
        write_json(place / RECORD, exported.model_dump(mode="json"))
    return exported


def _file(folder: Path, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> ExportedFile:
    size = (folder / f"{name}.onnx").stat().st_size
    return ExportedFile(inputs=tuple(inputs), outputs=tuple(outputs), bytes=size)


class _PlannerScores(nn.Module):
    """Calibrated scores of all sequences of each length, by the networks alone."""

    def __init__(self, model: AnyLengthModel) -> None:
        super().__init__()
        self.networks = nn.ModuleList(model.networks)
        self._model = (model,)  # not a module

    def forward(
        self, initial: Tensor, goal: Tensor, seen: Tensor, done: Tensor, told: Tensor
    ) -> tuple[Tensor, ...]:
        (model,) = self._model
        count = model.states.lookup.shape[1]
        known = tuple(
            network.known(
                initial,
                goal,
                seen,
                History.of_actions(done, told, count, network.config.recency),
                None,
            )
            for network in model.networks
        )
        scores = [
            average(
                [
                    network.outputs(length, inputs).scores
                    for network, inputs in zip(model.networks, known, strict=True)
                ]
            ).heated(model.temperatures[length])
            for length in model.lengths
        ]
        values = (value for one in scores for value in (one.emissions, one.transitions))
        return (model.log_lengths_of(known, model.lengths), *values)


def _planner(model: AnyLengthModel, size: int, folder: Path) -> ExportedFile:
    """Write the planner's scores, of queries of observations [n, `size`]."""
    inputs = "initial", "goal", "seen", "done", "told"
    outputs = ["log_lengths"]
    for length in model.lengths:
        outputs += [f"emissions_{length}", f"transitions_{length}"]
    ends, told = (torch.zeros(2, size), torch.ones(2, size)), torch.ones(2, dtype=torch.bool)
    done = torch.tensor([[0, 1], [0, -1]])
    example = *ends, torch.ones(2, 2, dtype=torch.bool), done, told
    queries, steps = torch.export.Dim("n"), torch.export.Dim("done")
    shapes = [{0: queries}, {0: queries}, {0: queries}, {0: queries, 1: steps}, {0: queries}]
    _exported(_PlannerScores(model), example, folder / "planner.onnx", inputs, outputs, shapes)
    return _file(folder, "planner", inputs, outputs)


def _encoder_network(recipe: ObservationRecipe) -> nn.Module:
    """The network of pictures of a run's features; refused if they are of another kind."""
    from cefito.encoders.efficientnet import EfficientNetImages

    images = EfficientNetImages()
    if recipe.made_with.get("weights") != images.describe()["weights"]:
        made = recipe.made_with.get("model", "an unknown encoder")
        raise ConfigError(f"its features are of {made}, and only efficientnet-lite0 is written")
    return images.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


def _encoder(network: nn.Module, folder: Path) -> ExportedFile:
    """Write the encoder of prepared pictures [n, 3, 224, 224]."""
    names = ("pictures",), ("rows",)
    shapes = [{0: torch.export.Dim("n")}]
    example = (torch.zeros(2, 3, 224, 224),)
    _exported(network, example, folder / "encoder.onnx", *names, shapes)
    return _file(folder, "encoder", *names)


def _exported(
    network: nn.Module,
    example: tuple[Tensor, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: Sequence[Any],
) -> None:
    """Write a network as PyTorch's exporter translates it."""
    import onnx

    command = install_command("onnx")
    try:
        import onnxscript  # noqa: F401
    except ImportError as problem:
        missing = f"this needs the package onnxscript, which is not installed. Run: {command}"
        raise ConfigError(missing) from problem
    with _quietly(), torch.inference_mode(False), torch.no_grad():
        torch.onnx.export(
            network.eval(),
            example,
            str(path),
            dynamo=True,
            verbose=False,
            external_data=False,
            opset_version=OPSET,
            input_names=[*inputs],
            output_names=[*outputs],
            dynamic_shapes=tuple(shapes),
        )
    model = onnx.load(path)
    model.ir_version = FORMAT  # the exporter writes a newer one
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the talk of PyTorch's exporter about itself."""
    names = ("torch.onnx._internal.exporter", "onnxscript", "onnx_ir")
    loggers = [logging.getLogger(name) for name in names]
    levels = [one.level for one in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in loggers:
            one.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)
