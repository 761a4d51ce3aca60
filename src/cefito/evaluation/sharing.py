"""Sharing runs: zip archives with a model card, and runs of checkpoints of the authors."""

from __future__ import annotations

import io
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.encoders.images import PLACES
from cefito.errors import RunError
from cefito.evaluation.records import RunEvaluation
from cefito.files import sha256, write_bytes, write_text
from cefito.locks import check_new, new_folder
from cefito.markup import counted, in_markdown, markdown_table
from cefito.parts.bundle import pack
from cefito.parts.folder import DatasetReference, RunInfo, versions
from cefito.planners.cefito.checkpoints import (
    CLASSIFIER,
    FIELD,
    Weights,
    from_checkpoint,
    to_checkpoints,
    with_classifier,
)
from cefito.planners.methods import RunConfig
from cefito.runs.run import Run, open_run
from cefito.runs.settings_export import changes_of_preset

logger = logging.getLogger(__name__)


def kept_scores(run: Run) -> list[RunEvaluation]:
    """The scores of a run in its folder from `cefito evaluate`; warns of what is left out."""
    kept = []
    for path in sorted(run.folder.glob("evaluation-*.json")):
        try:
            scores = RunEvaluation.read(path)
            if not scores.is_of(run.files):
                raise RunError(f"{path}: scores of another run. {RunEvaluation.remedy}")
            kept.append(scores)
        except RunError as problem:
            logger.warning("scores are left out: %s", problem)
    return kept


def model_card(run: Run, scores: Sequence[RunEvaluation], *, license_name: str = "") -> str:
    """The card in Markdown, with the front matter that hubs read.

    Args:
        run: Opened run.
        scores: Scores that the card shows.
        license_name: SPDX identifier of the licence of the weights.
    """
    info, name = run.info, run.planner.describe().name
    licence = f"license: {json.dumps(license_name)}\n" if license_name else ""
    changes = changes_of_preset(run)
    facts = {
        "method": f"{in_markdown(name)} (`{info.method}`)",
        "data set": in_markdown(f"{info.dataset.name} {info.dataset.fingerprint}".rstrip()),
        "observation size": str(run.planner.observation_dim),
        "observations": _observed(_placeless(info.dataset).observed or {}),
        "windows": _in_words(info.windows) or "unknown",
        "preset": in_markdown(Path(info.preset).name),
        "settings changed": "unknown"
        if changes is None
        else _in_words({change.setting: change.ours for change in changes}) or "none",
        "parameters": _in_words(info.parameters) or "none",
        "versions": _in_words(info.versions),
    }
    parts = [
        f"---\nlibrary_name: cefito\n{licence}tags:\n- procedure-planning\n- cefito\n---",
        in_markdown(f"# {name} on {info.dataset.name}, T = {run.steps}"),
        "```\ncefito plan RUN --initial BEFORE.npy --goal AFTER.npy\n```",
        _bullets(f"{fact}: {value}" for fact, value in facts.items()),
        "## Scores",
        *(map(_score_table, scores) if scores else ["None (`cefito evaluate RUN` makes them)."]),
        "## Limits",
        _bullets(_limits(run)),
        "## Licence",
        f"Of the weights: {in_markdown(license_name)}."
        if license_name
        else "None was chosen for the weights; ask the author. The licence of the training data "
        "may apply to weights.",
    ]
    return "\n\n".join(parts) + "\n"


def _placeless(reference: DatasetReference) -> DatasetReference:
    """The data set of a run without places on this machine, its own and the encoder's."""
    made = {**(reference.observed or {})}
    if features := made.get("features"):
        made["features"] = {name: features[name] for name in features if name not in PLACES}
    return reference.model_copy(update={"path": "", **({"observed": made} if made else {})})


def _observed(made: Mapping[str, Any]) -> str:
    return _in_words({**made, "features": made.get("features") or "of an unknown encoder"})


def _in_words(record: Mapping[str, Any]) -> str:
    """The entries of a record on one line, in Markdown."""
    shown = {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for name, value in record.items()
    }
    return in_markdown("; ".join(f"{name} {text}" for name, text in shown.items()))


def _bullets(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _score_table(scores: RunEvaluation) -> str:
    sampled = f" of {scores.sampled_from:,}" if scores.windows < scores.sampled_from else ""
    rows = [
        (head, f"{value:.2f}", "–" if low is None else f"{low:.2f} to {high:.2f}")
        for head, value, low, high in scores.headline()
    ]
    resampled = "videos" if scores.intervals is None else scores.intervals.resampled
    return (
        f"{in_markdown(scores.dataset)}, split {scores.split}, T = {scores.steps}, "
        f"{scores.windows:,}{sampled} windows, {scores.conditions}; the search was "
        f"{'exact' if scores.exact else 'not always exact'}:\n\n"
        + markdown_table(("per cent", "score", f"90 % interval, {resampled} resampled"), rows)
    )


def _limits(run: Run) -> Iterator[str]:
    if "simulated" in run.info.dataset.name.lower():
        yield (
            "**The observations that it was trained and scored on are simulated**; the scores say "
            "nothing about real videos, and it cannot be used on them."
        )
    yield f"It plans {run.steps} actions, all from `taxonomy.json`."
    yield "Observations must be made as above: the same features, joined the same way."
    yield "Its plans predict what people did in such videos, not what is safe or correct."
    if run.info.selection == "published":
        yield "Epochs and weights were chosen on the test split, as published work does."
    if missing := run.info.tasks_without_training:
        yield f"{counted(len(missing), 'task')} had no training window."


def export_run(run: Path | str, target: Path | str, *, license_name: str = "") -> None:
    """Write the files that planning needs into a new zip archive, with a model card.

    Checkpoints, metrics and the place of the data set on this machine stay out. Equal runs give
    equal bytes.

    Args:
        run: Run folder.
        target: New archive.
        license_name: SPDX identifier of the licence of the weights.
    """
    target, opened = Path(target), open_run(run)
    if target.suffix != ".zip":
        raise RunError(f"{target}: expected the name of a zip file, such as run.zip.")
    if not target.parent.is_dir():
        raise RunError(f"{target.parent}: no such folder. Make it first, or choose another one.")
    info = opened.info
    changed: dict[str, Any] = {
        "dataset": _placeless(info.dataset),
        "preset": Path(info.preset).name,
    }
    if info.started_from is not None:
        start = {"folder": "", "dataset": _placeless(info.started_from.dataset)}
        changed["started_from"] = info.started_from.model_copy(update=start)
    if llm := info.config.get("llm"):
        changed["config"] = {**info.config, "llm": {**llm, "answers": ""}}
    info = info.model_copy(update=changed)
    videos = opened.videos and opened.videos.shared()
    card = model_card(opened, kept_scores(opened), license_name=license_name)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        opened.changed(folder=folder, info=info, videos=videos, copy_of="").written()
        write_text(folder / "README.md", card)
        pack(folder, target)


def export_field(run: Path | str, target: Path) -> list[Path]:
    """Write a run's energy field as a checkpoint (.pth); return its path and those of what belongs.

    Beside it are written the vectors of the actions, which no checkpoint holds, and the task
    classifier, if it is of the authors' form; see `to_checkpoints`.
    """
    opened = open_run(run)
    contents = {
        target.with_name(target.stem + ending): content
        for ending, content in to_checkpoints(opened.planner, opened.place).items()
    }
    for path in contents:
        check_new(path)
    for path, content in contents.items():
        buffer = io.BytesIO()  # torch.save writes a file's name into it
        torch.save(content, buffer) if isinstance(content, dict) else np.save(buffer, content)
        write_bytes(path, buffer.getvalue())
    return list(contents)


def import_field(
    checkpoint: Path,
    out: Path,
    *,
    taxonomy: Path,
    action_text: Path,
    classifier: Path | None = None,
    weights: Weights = "ema",
) -> Run:
    """Make a run folder of the authors' checkpoint of an energy field.

    The run has no data set of its own, so that its `run.json` names none. Action ids of `taxonomy`
    and of `action_text` are those of the checkpoint; both may be the authors' files.

    Args:
        checkpoint: File of the field (.pth).
        out: New run folder.
        taxonomy: File of tasks and actions.
        action_text: File of text embeddings of the actions [K, W].
        classifier: File of a task classifier (.pth).
        weights: "ema" for the averaged weights, or the raw ones.
    """
    planner, record = from_checkpoint(
        checkpoint, taxonomy=taxonomy, action_text=action_text, weights=weights
    )
    imported = {
        FIELD: record,
        "action text": {"file": action_text.name, "sha256": sha256(action_text)},
    }
    if classifier is not None:
        planner, imported[CLASSIFIER] = with_classifier(planner, classifier)
    config = RunConfig(method="cefito", preset="imported", settings=planner.settings)
    info = RunInfo(
        format_version=1,
        method=config.method,
        dataset=DatasetReference(name=planner.taxonomy.dataset, path="", fingerprint=""),
        horizon=planner.horizon,
        seed=None,
        selection=None,
        preset=config.preset,
        config=config.sections,
        versions=versions(),
        finished=True,
        parameters=planner.describe().parameters,
        training={},
        tasks_without_training=(),
        imported=imported,
    )
    with new_folder(out) as folder:
        Run(
            folder=folder, planner=planner, info=info, config=config, taxonomy=planner.taxonomy
        ).written()
    return open_run(out)
