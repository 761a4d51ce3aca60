"""From annotations and a folder of features to a prepared data set.

Videos are observed in parallel (`shards`); the observations are then written into one file. What is
left out is counted in the provenance, with the reasons.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from cefito.data.action_text import read_action_text
from cefito.data.annotations import Annotations, Taxonomy, Video, nfc, write_videos
from cefito.data.prepared import (
    TEXT_FILE,
    PreparedDataset,
    open_dataset,
    video_folder_entry,
    write_header,
)
from cefito.data.readers.archives import FeatureError
from cefito.data.readers.folder import FileFolder
from cefito.data.readers.observing import Beyond, check_layout
from cefito.data.readers.shards import Job, Outcome, Recipe, make_shards, shard_tensors
from cefito.data.readers.source import Source, irregularities
from cefito.errors import ConfigError, DataError, explained
from cefito.files import check_new, new_folder, read_json, write_json, write_tensors
from cefito.markup import counted
from cefito.progress import Progress, silent

PRECISIONS = ("float16", "float32")
"""Types in which observations can be stored."""


def prepare(
    source: Source,
    features: Path | str,
    target: Path | str,
    *,
    name: str | None = None,
    beyond: Beyond = "drop",
    seconds: int = 3,
    precision: str = "float16",
    workers: int = 4,
    feature_rate: float | None = None,
    videos: Path | str | None = None,
    progress: Progress = silent,
) -> PreparedDataset:
    """Observe the steps of annotated videos and write a prepared data set.

    A preparation that was stopped continues when it is repeated: finished videos are kept in the
    folder `.TARGET.work` beside the target until the data set is complete. Settings are described
    at `cefito.prepare`. Under `drop` and `error`, the last steps of a video are kept if all end
    within half a second after its rows. The data set records the folder `videos`, so that frames
    can be shown. `provenance["preparation"]` lists what was left out.
    """
    features, target = Path(features), Path(target)
    rate = 1.0 if feature_rate is None else feature_rate
    for setting, value, valid, expected in (
        ("beyond", beyond, beyond in get_args(Beyond), f"one of {', '.join(get_args(Beyond))}"),
        ("precision", precision, precision in PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
        ("seconds", seconds, seconds > 0 and seconds % 2, "an odd number"),
        ("workers", workers, workers > 0, "at least 1"),
        ("feature_rate", feature_rate, 0.01 <= rate <= 1000, "rows a second from 0.01 to 1,000"),
    ):
        if not valid:
            raise ConfigError(f"{setting} is {value!r}; expected {expected}.", setting=setting)
    check_new(target, name)
    place = ", ".join(str(path) for path in source.files)
    taxonomy = Taxonomy.from_dict(source.annotations.taxonomy.to_dict(), place=place)
    text = None if source.action_text is None else read_action_text(source.action_text, taxonomy)
    recipe = Recipe(beyond=beyond, seconds=seconds, precision=precision, rate=rate)
    jobs, missing, notes = _jobs(source, FileFolder(features))
    work = target.parent / f".{target.name}.work"
    kept = "Finished videos are kept."
    failures = explained(target, "could not be written", kept, OSError, writes=True)
    with failures, _removed_if_empty(work):
        work.mkdir(parents=True, exist_ok=True)
        outcomes = make_shards(jobs, work, recipe=recipe, workers=workers, progress=progress)
        if feature_rate is None:
            seen = [(job, outcome.shape) for job, outcome in zip(jobs, outcomes, strict=True)]
            seen = [(job, shape) for job, shape in seen if all(shape)]
            ends = [max(step.end for step in job.video.steps) for job, _ in seen]
            try:
                notes += check_layout(features, [shape for _, shape in seen], ends)
            except DataError:
                shutil.rmtree(work, ignore_errors=True)
                raise
        source = replace(source, notes=(*source.notes, *notes))
        used, refused, width = _usable(jobs, outcomes)
        refused += missing
        if not used:
            shutil.rmtree(work, ignore_errors=True)
            raise DataError(f"{features}: no video can be used; the first: {refused[0][2]}")
        provenance = {
            "observations": (
                f"features of {seconds} s around the rounded start and end of each step, "
                f"concatenated, stored as {precision}"
            ),
            "observed": {
                "seconds": seconds,
                "precision": precision,
                "features": _made_with(features),
                **({} if recipe.border == "nearest" else {"border": recipe.border}),
                **({} if rate == 1 else {"feature_rate": rate}),
            },
            "source": {"kind": source.form, "files": [path.name for path in source.files]},
            "preparation": _account(source, features, used, refused, beyond),
            **video_folder_entry(None if videos is None else Path(videos), target),
            "cefito": version("cefito"),
        }
        if source.action_text is not None:
            provenance["action_text"] = {"file": source.action_text.name}
        dataset = _write(target, source, used, width, precision, name, provenance, text)
        shutil.rmtree(work, ignore_errors=True)
        return dataset


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def summary_rows(dataset: PreparedDataset) -> list[list[object]]:
    """Table of what a preparation left out, changed or noticed: (what, videos, steps, example)."""
    preparation = dataset.provenance["preparation"]
    rows: list[list[object]] = [
        ["prepared", preparation["videos"]["prepared"], preparation["steps"]["prepared"], None]
    ]
    beyond = preparation["beyond"]
    if beyond["steps"]:
        changed = {"drop": "dropped", "rewrite": "rewritten"}[beyond["policy"]]
        what = f"steps beyond the features, {changed}"
        rows.append([what, len(beyond["videos"]), beyond["steps"], beyond["videos"][0]])
    return rows + [
        [before + entry["reason"], len(entry["videos"]), entry["steps"], entry["example"]]
        for before, part in (("left out: ", "left_out"), ("", "noticed"))
        for entry in preparation[part]
    ]


_Refused = tuple[Video, str, str]  # video, reason, the reason as a sentence


def _jobs(source: Source, folder: FileFolder) -> tuple[list[Job], list[_Refused], list[str]]:
    """Videos with their files, videos without one, and notes on the files."""
    found: list[tuple[Job, str]] = []
    missing: list[_Refused] = []
    owners: dict[Path, list[tuple[str, str]]] = {}  # names and videos that share most of a file's
    for video in source.annotations.videos:
        try:
            if not video.steps:
                raise FeatureError("no steps", f"video '{video.video_id}' has no annotated steps.")
            path, name = folder.find(source.names.get(video.video_id, (video.video_id,)))
        except FeatureError as problem:
            missing.append((video, problem.reason, str(problem)))
            continue
        found.append((Job(video=video, path=path), name))
        longest = len(owners[path][0][0]) if path in owners else 0
        before = owners[path] if len(name) <= longest else []
        owners[path] = [*before, *([(name, video.video_id)] if len(name) >= longest else [])]
    jobs: list[Job] = []
    partial: list[Job] = []
    for job, name in found:
        (owner, first), *others = owners[job.path]
        if len(name) < len(owner):
            other = f"and there is no other file for video '{job.video.video_id}'."
            missing.append((job.video, "no features", f"{job.path}: belongs to '{owner}', {other}"))
            continue
        if others:
            both = f"may belong to video '{first}' and to video '{others[0][1]}'"
            refused = f"{job.path}: {both}. Put it into a folder named as that of one."
            missing.append((job.video, "several videos", refused))
            continue
        jobs.append(job)
        if name.rpartition("/")[2] != nfc(job.path.stem):
            partial.append(job)
    if not partial:
        return jobs, missing, []
    example = f"'{partial[0].video.video_id}' with {partial[0].path.name}"
    note = f"{len(partial)} videos were matched with files of longer names, for example {example}."
    return jobs, missing, [note]


def _usable(
    jobs: Sequence[Job], outcomes: Sequence[Outcome]
) -> tuple[list[tuple[Job, Outcome]], list[_Refused], int]:
    """Videos with the commonest width, the others with the reason, and that width."""
    widths = Counter(outcome.width for outcome in outcomes if not outcome.reason)
    width = min(widths, key=lambda size: (-widths[size], size), default=0)
    used: list[tuple[Job, Outcome]] = []
    refused: list[_Refused] = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        reason, detail = outcome.reason, outcome.detail
        if not reason and outcome.width != width:
            reason = "wrong dimension"
            numbers = f"{outcome.width} numbers, most videos give {width}"
            detail = f"{job.path}: gives observations of {numbers}. Extract it with the same model."
        if reason:
            refused.append((job.video, reason, detail))
        else:
            used.append((job, outcome))
    return used, refused, width


def _account(
    source: Source,
    folder: Path,
    used: Sequence[tuple[Job, Outcome]],
    refused: Sequence[_Refused],
    beyond: Beyond,
) -> dict[str, Any]:
    clamped = [job.video.video_id for job, outcome in used if outcome.clamped]
    clamped_steps = sum(outcome.clamped for _, outcome in used)
    notes = list(source.notes)
    if clamped:
        notes.append(
            "The last row stands for what ends up to half a second after the features: "
            f"{counted(clamped_steps, 'step')} of {counted(len(clamped), 'video')}; the first "
            f"video is '{clamped[0]}'."
        )
    left_out = []
    for reason in dict.fromkeys(reason for _, reason, _ in refused):
        members = [(video, detail) for video, why, detail in refused if why == reason]
        example = members[0][1].replace(f"{folder}/", "").replace(str(folder), folder.name)
        steps = sum(len(video.steps) for video, _ in members)
        names = [video.video_id for video, _ in members]
        left_out.append({"reason": reason, "steps": steps, "example": example, "videos": names})
    return {
        "videos": {"annotated": len(source.annotations.videos), "prepared": len(used)},
        "steps": {
            "annotated": source.annotations.step_count,
            "prepared": sum(len(outcome.kept) for _, outcome in used),
        },
        "beyond": {
            "policy": beyond,
            "steps": sum(outcome.beyond for _, outcome in used),
            "videos": [job.video.video_id for job, outcome in used if outcome.beyond],
        },
        "clamped": {"steps": clamped_steps, "videos": clamped},
        "left_out": left_out,
        "noticed": irregularities(_kept(used)),
        "notes": notes,
    }


def _made_with(features: Path) -> dict[str, Any] | None:
    """The record that `cefito extract` leaves beside features; None for features of others."""
    path = features / "extract.json"
    if not path.exists():
        return None
    remedy = "Extract the features again, or remove this file."
    value: dict[str, Any] = read_json(path, remedy)
    with explained(path, "is not a record of an extraction", remedy, AttributeError):
        return dict(value.items())


def _kept(used: Sequence[tuple[Job, Outcome]]) -> tuple[Video, ...]:
    """Videos with the steps that are observed."""
    return tuple(job.video.with_steps(outcome.kept) for job, outcome in used)


def _write(
    target: Path,
    source: Source,
    used: Sequence[tuple[Job, Outcome]],
    width: int,
    precision: str,
    name: str | None,
    provenance: dict[str, Any],
    text: NDArray[np.float32] | None,
) -> PreparedDataset:
    videos = _kept(used)
    annotations = Annotations(taxonomy=source.annotations.taxonomy, videos=videos)
    with new_folder(target) as folder:
        write_json(folder / "taxonomy.json", annotations.taxonomy.to_dict())
        write_videos(folder / "videos.jsonl", videos)
        start, end = np.empty((2, annotations.step_count, width), dtype=precision)
        row = 0
        for pair in shard_tensors([outcome for _, outcome in used]):
            last = row + len(pair[0])
            start[row:last], end[row:last] = pair
            row = last
        write_tensors(folder / "features.safetensors", {"start": start, "end": end})
        if text is not None:
            write_tensors(folder / TEXT_FILE, {"action_text": text})
        name = name or annotations.taxonomy.dataset
        write_header(folder, name=name, observation_dim=width, provenance=provenance)
        dataset = open_dataset(folder)
    return replace(dataset, folder=target)
