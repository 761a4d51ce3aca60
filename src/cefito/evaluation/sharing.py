"""Sharing a run: as a zip archive, or on a model hub, with a model card."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cefito.encoders.images import PLACES
from cefito.errors import RunError
from cefito.evaluation.records import RunEvaluation
from cefito.files import check_new, new_folder, write_text
from cefito.inference.planning_run import PlanningRun, open_run
from cefito.markup import counted, in_markdown, markdown_table
from cefito.runs.bundle import pack
from cefito.runs.folder import MANIFEST, check_manifest
from cefito.runs.hub import CARD, Pushed, push_folder, repository
from cefito.runs.run import Run, write_run

_TAGS = ("tags:", "- procedure-planning", "- cefito")


def kept_scores(folder: Path) -> list[RunEvaluation]:
    """The scores in a run folder from `cefito evaluate`; unreadable files are skipped."""
    scores = []
    for path in sorted(folder.glob("evaluation-*.json")):
        with suppress(RunError):
            scores.append(RunEvaluation.read(path))
    return scores


def model_card(run: Run, scores: Sequence[RunEvaluation], *, license_name: str = "") -> str:
    """The card in Markdown, with the front matter that hubs read."""
    info, description = run.info, run.planner.describe()
    counts = info.parameters or description.parameters
    names = [counted(len(run.taxonomy.tasks), "task"), counted(len(run.taxonomy.actions), "action")]
    facts = {
        "method": f"{in_markdown(description.name)} (`{info.method}`)",
        "actions of a plan (T)": run.steps,
        "vocabulary": ", ".join(names),
        "an observation": f"{run.planner.observation_dim} numbers",
        "parameters": _in_words(counts) or "none",
        "preset": in_markdown(Path(info.preset).name),
        "seed": "none" if info.seed is None else info.seed,
        "epochs and weights were chosen on": info.selection or "unknown (imported)",
        "versions": _in_words(info.versions),
    }
    data = {
        "name": in_markdown(info.dataset.name),
        "fingerprint": f"`{info.dataset.fingerprint}`" if info.dataset.fingerprint else "imported",
        "observations": _in_words(_public(info.dataset.observed)) or "unknown",
        "windows": _in_words(info.windows) or "unknown",
    }
    further = ", also without a goal and after steps done" * run.planner.abilities.any_length
    licence = [f"license: {json.dumps(license_name)}"] if license_name else []
    parts = [
        "\n".join(["---", "library_name: cefito", *licence, *_TAGS, "---"]),
        in_markdown(f"# {description.name} on {info.dataset.name}, T = {run.steps}"),
        "A procedure planner: from observations before and after some steps it predicts the "
        f"{run.steps} actions between{further}. Made with cefito.",
        "## Use",
        "```\ncefito plan RUN --initial BEFORE.npy --goal AFTER.npy\n```\n\n`RUN` is this folder, "
        "the zip file it came in, or `hub:USER/NAME`. `cefito check RUN` compares every file with "
        "`manifest.json`; `run.json` has all settings.",
        "## Model",
        _bullets(f"{name}: {value}" for name, value in facts.items()),
        "## Data",
        _bullets(f"{name}: {value}" for name, value in data.items()),
        "## Scores",
        _scores(scores),
        "## Limits",
        _bullets(_limits(run)),
        "## Licence",
        f"Of the weights: {in_markdown(license_name)}."
        if license_name
        else "None was chosen for the weights; ask the author. The licence of the training data "
        "may apply to weights.",
    ]
    return "\n\n".join(parts) + "\n"


def _public(observed: Mapping[str, Any] | None) -> dict[str, Any]:
    """How observations were made, without the encoder's places on this machine."""
    made = dict(observed or {})
    if "features" in made:
        kept = {name: part for name, part in (made["features"] or {}).items() if name not in PLACES}
        made["features"] = kept or "of an unknown encoder"
    return made


def _in_words(record: Mapping[str, Any]) -> str:
    """The entries of a record on one line, in Markdown."""
    shown = {
        name: json.dumps(part, ensure_ascii=False) if isinstance(part, dict | list) else part
        for name, part in record.items()
    }
    return in_markdown("; ".join(f"{name} {part}" for name, part in shown.items()))


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _scores(scores: Sequence[RunEvaluation]) -> str:
    if not scores:
        return "The run folder has none (`cefito evaluate RUN` makes them)."
    parts = []
    for one in scores:
        sampled = f" of {one.sampled_from:,}" if one.windows < one.sampled_from else ""
        rows = [
            (head, f"{value:.2f}", "–" if low is None else f"{low:.2f} to {high:.2f}")
            for head, value, low, high in one.headline()
        ]
        parts.append(
            f"{in_markdown(one.dataset)}, split {one.split}, T = {one.steps}, "
            f"{one.windows:,}{sampled} windows, {one.conditions}; the search was "
            f"{'exact' if one.exact else 'not always exact'}:\n\n"
            + markdown_table(("per cent", "score", "90 % interval, videos resampled"), rows)
        )
    return "\n\n".join(parts)


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
