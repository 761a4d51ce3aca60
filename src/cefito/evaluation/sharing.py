"""Sharing a run: as a zip archive, or on a model hub, with a model card."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cefito.encoders.images import PLACES
from cefito.errors import RunError
from cefito.evaluation.metrics import metric_heads
from cefito.evaluation.records import CALIBRATION_HEADS, RunEvaluation, VideoIntervals
from cefito.files import check_new, new_folder, write_text
from cefito.inference.planning_run import PlanningRun, open_run
from cefito.markup import counted, in_markdown, markdown_table
from cefito.runs.bundle import pack
from cefito.runs.folder import MANIFEST, check_manifest
from cefito.runs.hub import CARD, Pushed, push_folder, repository
from cefito.runs.run import Run, write_run
from cefito.training.result import TrainingResult

__all__ = ["export_run", "kept_scores", "model_card", "pull_run", "push_run"]


def kept_scores(folder: Path) -> list[RunEvaluation]:
    """The scores in a run folder from `cefito evaluate`; unreadable files are skipped."""
    scores = []
    for path in sorted(folder.glob("evaluation-*.json")):
        with suppress(RunError):
            scores.append(RunEvaluation.read(path))
    return scores


def model_card(run: Run, scores: Sequence[RunEvaluation], *, license_name: str = "") -> str:
    """The card in Markdown, with the front matter that hubs read."""
    info = run.info
    description = run.planner.describe()
    counts = info.parameters or description.parameters
    parameters = in_markdown(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    facts = {
        "method": f"{in_markdown(description.name)} (`{info.method}`)",
        "actions of a plan (T)": run.steps,
        "vocabulary": ", ".join(
            (counted(len(run.taxonomy.tasks), "task"), counted(len(run.taxonomy.actions), "action"))
        ),
        "an observation": f"{run.planner.observation_dim} numbers",
        "parameters": parameters or "none",
    }
    data = {
        "name": in_markdown(info.dataset.name),
        "fingerprint": f"`{info.dataset.fingerprint}`" if info.dataset.fingerprint else "imported",
        "observations": _plain(_public(info.dataset.observed)) or "unknown",
        "windows": _plain(info.windows) or "unknown",
    }
    made = {
        "preset": in_markdown(Path(info.preset).name),
        "seed": "none" if info.seed is None else info.seed,
        "epochs and weights were chosen on": info.selection or "unknown (imported)",
        "versions": _plain(info.versions),
    }
    if info.imported:
        made["imported from"] = _plain(info.imported)
    parts = [
        _front_matter(license_name),
        in_markdown(f"# {description.name} on {info.dataset.name}, T = {run.steps}"),
        "A procedure planner: from observations before and after some steps it predicts the "
        f"{run.steps} actions between{_further(run)}. Made with cefito.",
        "## Use",
        "```\ncefito plan RUN --initial BEFORE.npy --goal AFTER.npy\n```\n\n`RUN` is this folder, "
        "the zip file it came in, or `hub:USER/NAME`. `cefito check RUN` compares every file with "
        "`manifest.json`.",
        "## Model",
        _list(facts),
        "## Data",
        _list(data),
        "## Training",
        _list(made),
        _trainings(info.training),
        "<details><summary>All settings</summary>\n\n```json\n"
        + json.dumps(info.config, indent=1, sort_keys=True, ensure_ascii=False)
        + "\n```\n\n</details>",
        "## Scores",
        _scores(scores),
        "## Limits",
        _limits(run),
        "## Licence",
        f"Of the weights: {in_markdown(license_name)}."
        if license_name
        else "None was chosen for the weights; ask the author. The licence of the training data "
        "may apply to weights.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _further(run: Run) -> str:
    """What the planner of any length can do beyond."""
    return ", also without a goal and after steps done" * run.planner.abilities.any_length


def _front_matter(license_name: str) -> str:
    licence = [f"license: {json.dumps(license_name)}"] if license_name else []
    lines = ["library_name: cefito", *licence, "tags:", "- procedure-planning", "- cefito"]
    return "\n".join(["---", *lines, "---"])


def _public(observed: Mapping[str, Any] | None) -> dict[str, Any]:
    """How observations were made, without the encoder's places on this machine."""
    made = dict(observed or {})
    if "features" in made:
        kept = {name: part for name, part in (made["features"] or {}).items() if name not in PLACES}
        made["features"] = kept or "of an unknown encoder"
    return made


def _plain(value: Any) -> str:
    """A nested record on one line, in Markdown."""
    if not value:
        return ""
    return in_markdown(
        "; ".join(
            f"{name}: {json.dumps(part, ensure_ascii=False, sort_keys=True)}"
            if isinstance(part, dict | list)
            else f"{name} {part}"
            for name, part in value.items()
        )
    )


def _list(facts: dict[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _trainings(training: Mapping[str, TrainingResult]) -> str:
    rows = [
        (in_markdown(name), str(result.epochs), str(result.best_epoch))
        for name, result in training.items()
    ]
    return markdown_table(("network", "epochs", "kept epoch"), rows) if rows else ""


def _scores(scores: Sequence[RunEvaluation]) -> str:
    if not scores:
        return "The run folder has none (`cefito evaluate RUN` makes them)."
    heads = metric_heads() | CALIBRATION_HEADS
    parts = []
    for one in scores:
        sampled = f" of {one.sampled_from:,}" if one.windows < one.sampled_from else ""
        exact = "exact" if one.exact else "not always exact"
        rows = [
            (head, f"{value:.2f}", _interval(one.intervals, name))
            for name, head in heads.items()
            if (value := one.percent(name)) is not None
        ]
        parts.append(
            f"{in_markdown(one.dataset)}, split {one.split}, T = {one.steps}, "
            f"{one.windows:,}{sampled} windows, {one.conditions}; the search was {exact}:\n\n"
            + markdown_table(("per cent", "score", "interval"), rows)
        )
    if any(one.intervals is not None for one in scores):
        parts.append(
            "Intervals resample whole videos; they do not cover the randomness of training."
        )
    return "\n\n".join(parts)


def _interval(intervals: VideoIntervals | None, metric: str) -> str:
    if intervals is None or (ends := intervals.ends(metric)) is None:
        return "–"
    return f"{ends[0]:.2f} to {ends[1]:.2f} ({100 * intervals.level:.0f} %)"


def _limits(run: Run) -> str:
    limits = [
        f"It plans {run.steps} actions, all from `taxonomy.json`.",
        "Observations must be made as above: the same features, joined the same way.",
        "Its plans predict what people did in such videos, not what is safe or correct.",
    ]
    if "simulated" in run.info.dataset.name.lower():
        limits.insert(
            0,
            "**The observations that it was trained and scored on are simulated**; the scores say "
            "nothing about real videos, and it cannot be used on them.",
        )
    if run.info.selection == "published":
        limits.append("Epochs and weights were chosen on the test split, as published work does.")
    if missing := run.info.tasks_without_training:
        limits.append(f"{counted(len(missing), 'task')} had no training window.")
    return "\n".join(f"- {limit}" for limit in limits)


def export_run(run: Path | str, target: Path | str, *, license_name: str = "") -> PlanningRun:
    """Write the files that planning needs into a new zip archive, with a model card.

    Checkpoints, metrics and the place of the data set on this machine stay out. Equal runs give
    equal bytes. `license_name` is the SPDX identifier of the licence of the weights.
    """
    target = Path(target)
    if target.suffix != ".zip":
        raise RunError(f"{target}: expected the name of a zip file, such as run.zip.")
    if not target.parent.is_dir():
        raise RunError(f"{target.parent}: no such folder. Make it first, or choose another one.")
    opened = open_run(run)
    with _shared(opened, license_name) as folder:
        pack(folder, target)
    return opened


def push_run(
    run: Path | str, place: str, *, license_name: str = "", private: bool = False
) -> Pushed:
    """Push the same files to `hub:USER/NAME`."""
    repository(place)
    with _shared(open_run(run), license_name) as folder:
        return push_folder(folder, place, private=private)


def pull_run(place: Path | str, target: Path | str) -> PlanningRun:
    """Make a run folder of a shared run; a run that is refused leaves nothing.

    Args:
        place: `hub:USER/NAME` (or `@REVISION` of it) or a zip file.
        target: The new folder.
    """
    target = Path(target)
    check_new(target)
    run = open_run(place)
    with new_folder(target) as temporary:
        check_manifest(run.folder, (), temporary)
        for name in (MANIFEST, CARD):
            if (run.folder / name).is_file():
                shutil.copyfile(run.folder / name, temporary / name)
    return replace(run, folder=target, copy_of="")


@contextmanager
def _shared(run: Run, license_name: str) -> Iterator[Path]:
    """A temporary folder with the files that planning needs and a model card."""
    card = model_card(run, kept_scores(run.folder), license_name=license_name)
    info = run.info.model_copy(
        update={
            # paths on this machine stay out
            "dataset": run.info.dataset.model_copy(update={"path": ""}),
            "preset": Path(run.info.preset).name,
        }
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        videos = run.videos and run.videos.shared()
        write_run(replace(run, folder=folder, info=info, videos=videos, copy_of=""))
        write_text(folder / CARD, card)
        yield folder
