"""From annotations and a folder of features to a prepared data set: one way for all sources.

Videos are observed in parallel and one at a time (`shards`); the observations are then copied,
group by group, straight into the file of the data set, so that memory does not grow with it. What
is left out, and why, is counted in the provenance.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset, open_dataset, write_header
from cefito.data.readers.archives import FeatureError
from cefito.data.readers.folder import FeatureFolder
from cefito.data.readers.observing import Beyond, check_beyond
from cefito.data.readers.shards import Job, Outcome, Recipe, make_shards, shard_tensors
from cefito.data.readers.source import Source
from cefito.data.taxonomy import Taxonomy
from cefito.data.text import nfc
from cefito.data.video_folder import video_folder_entry
from cefito.data.videos import Annotations, Video, write_videos
from cefito.errors import ConfigError, DataError
from cefito.files import new_folder, read_json, write_atomic, write_json
from cefito.progress import Progress, silent

__all__ = ["PRECISIONS", "prepare", "summary_rows"]

PRECISIONS = {"float16": "F16", "float32": "F32"}
"""Types in which observations can be stored, and their names in safetensors."""


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
    videos: Path | str | None = None,
    progress: Progress = silent,
) -> PreparedDataset:
    """Observe the steps of annotated videos and write a prepared data set.

    A preparation that was killed goes on where it stood when it is called again: finished videos
    lie in the folder `.TARGET.work` beside the target until the data set is complete.

    Args:
        source: Annotations.
        features: Folder with one file of features a video, one row a second.
        target: Folder to write, which must not hold anything yet.
        name: Name shown in tables; by default that of the taxonomy.
        beyond: What becomes of steps whose rounded end is not below the number of rows: `drop`,
            `rewrite` or `error`. Under `drop` and `error` the last steps of a video are kept where
            all end within half a second behind the rows.
        seconds: Rows in one observation, odd: 3 for the published benchmarks.
        precision: Type in which observations are stored, float16 or float32.
        workers: Threads.
        videos: Folder of the videos that the features are of; the data set says where it lies, so
            that frames can be shown.
        progress: Hears of finished videos.

    Returns:
        The data set. `provenance["preparation"]` says what was left out; `summary_rows` makes a
        table of it.

    Raises:
        ConfigError: A setting that cannot be.
        DataError: No video could be used, a step is beyond the features under `error`, or the
            target is taken or cannot be written.
    """
    features = Path(features)
    check_beyond(beyond)
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision: unknown type {precision!r}; expected one of {', '.join(PRECISIONS)}."
        )
    if seconds < 1 or seconds % 2 == 0 or workers < 1:
        raise ConfigError(
            f"seconds: {seconds}, workers: {workers}; expected an odd number of seconds and at "
            "least one worker."
        )
    if name is not None and not name.strip():
        raise DataError("name: is empty. Give the data set a name or leave it out.", setting="name")
    target = Path(target)
    taken = target.exists() or target.is_symlink()  # a link may lead nowhere
    if taken and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target}: exists already. Choose another folder or remove it first.")
    Taxonomy.from_dict(
        source.annotations.taxonomy.to_dict(), place=", ".join(str(path) for path in source.files)
    )
    recipe = Recipe(beyond=beyond, seconds=seconds, precision=precision)
    jobs, missing, notes = _jobs(source, FeatureFolder(features))
    source = replace(source, notes=(*source.notes, *notes))
    work = target.parent / f".{target.name}.work"
    try:
        work.mkdir(parents=True, exist_ok=True)
        outcomes = make_shards(jobs, work, recipe=recipe, workers=workers, progress=progress)
        used, refused, width = _usable(jobs, outcomes)
        refused += missing
        if not used:
            shutil.rmtree(work, ignore_errors=True)
            raise DataError(
                f"{features}: none of the {len(source.annotations.videos)} videos can be used; the "
                f"first: {refused[0][2] if refused else 'there are none'}"
            )
        dataset = _write(
            target,
            source,
            used,
            width=width,
            recipe=recipe,
            name=name,
            preparation=_account(source, Path(features), used, refused, beyond),
            made_with=_made_with(features),
            videos=None if videos is None else Path(videos),
        )
        shutil.rmtree(work, ignore_errors=True)
        return dataset
    except OSError as problem:
        raise DataError(
            f"{target}: could not be written ({problem.strerror or problem}). Free some disk space "
            "or choose another folder; what is finished is kept."
        ) from problem
    finally:
        if work.is_dir() and not any(work.iterdir()):
            work.rmdir()


def summary_rows(dataset: PreparedDataset) -> list[list[object]]:
    """What a preparation left out or changed, as rows of (what, videos, steps, example)."""
    preparation = dataset.provenance["preparation"]
    rows: list[list[object]] = [
        ["prepared", preparation["videos"]["prepared"], preparation["steps"]["prepared"], None]
    ]
    beyond = preparation["beyond"]
    if beyond["steps"]:
        what = {
            "drop": "steps beyond the features, dropped",
            "rewrite": "steps beyond the features, rewritten",
        }[beyond["policy"]]
        rows.append([what, len(beyond["videos"]), beyond["steps"], beyond["videos"][0]])
    return rows + [
        [f"left out: {entry['reason']}", len(entry["videos"]), entry["steps"], entry["example"]]
        for entry in preparation["left_out"]
    ]


_Refused = tuple[Video, str, str]


def _jobs(source: Source, folder: FeatureFolder) -> tuple[list[Job], list[_Refused], list[str]]:
    """Videos with their files, those without with the reason, and notes on the files."""
    found: list[tuple[Job, str]] = []
    missing: list[_Refused] = []
    for video in source.annotations.videos:
        try:
            if not video.steps:
                raise FeatureError("no steps", f"video '{video.video_id}' has no annotated steps.")
            path, name = folder.find(source.names.get(video.video_id, (video.video_id,)))
            found.append((Job(video=video, path=path), name))
        except FeatureError as problem:
            missing.append((video, problem.reason, str(problem)))
    longest: dict[
        Path, str
    ] = {}  # a file found by parts of its name belongs to the video that has most of it
    for job, name in found:
        longest[job.path] = max(longest.get(job.path, ""), name, key=len)
    for job, name in found:
        if len(name) < len(longest[job.path]):
            missing.append(
                (
                    job.video,
                    "no features",
                    f"{job.path}: is that of '{longest[job.path]}', and there is no other file for "
                    f"video '{job.video.video_id}'.",
                )
            )
    kept = [(job, name) for job, name in found if len(name) == len(longest[job.path])]
    parts = [job for job, name in kept if name != nfc(job.path.stem)]
    notes = (
        [
            f"{len(parts)} videos have files that bear more than their names, the first is "
            f"'{parts[0].video.video_id}' with {parts[0].path.name}."
        ]
        if parts
        else []
    )
    return [job for job, _ in kept], missing, notes


def _usable(
    jobs: Sequence[Job], outcomes: Sequence[Outcome]
) -> tuple[list[tuple[Job, Outcome]], list[_Refused], int]:
    """Videos that can be used, the others with the reason, and the width that all must have.

    That is the commonest width.
    """
    widths = Counter(outcome.width for outcome in outcomes if not outcome.reason)
    width = min(widths, key=lambda size: (-widths[size], size), default=0)
    used: list[tuple[Job, Outcome]] = []
    refused: list[_Refused] = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.reason:
            refused.append((job.video, outcome.reason, outcome.detail))
        elif outcome.width != width:
            refused.append(
                (
                    job.video,
                    "wrong dimension",
                    f"{job.path}: gives observations of {outcome.width} numbers, most videos give "
                    f"{width}. Extract it with the same model.",
                )
            )
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
    changed = [(job, outcome) for job, outcome in used if outcome.beyond]
    clamped = [(job, outcome) for job, outcome in used if outcome.clamped]
    reasons = dict.fromkeys(reason for _, reason, _ in refused)
    left_out = []
    for reason in reasons:
        members = [(video, detail) for video, why, detail in refused if why == reason]
        left_out.append(
            {
                "reason": reason,
                "steps": sum(len(video.steps) for video, _ in members),
                "example": members[0][1]
                .replace(f"{folder}/", "")
                .replace(str(folder), folder.name),
                "videos": [video.video_id for video, _ in members],
            }
        )
    return {
        "videos": {"annotated": len(source.annotations.videos), "prepared": len(used)},
        "steps": {
            "annotated": source.annotations.step_count,
            "prepared": sum(len(outcome.kept) for _, outcome in used),
        },
        "beyond": {
            "policy": beyond,
            "steps": sum(outcome.beyond for _, outcome in changed),
            "videos": [job.video.video_id for job, _ in changed],
        },
        "clamped": {
            "steps": sum(outcome.clamped for _, outcome in clamped),
            "videos": [job.video.video_id for job, _ in clamped],
        },
        "left_out": left_out,
        "notes": [*source.notes, *_clamped_note(clamped)],
    }


def _clamped_note(clamped: Sequence[tuple[Job, Outcome]]) -> list[str]:
    if not clamped:
        return []
    return [
        f"{sum(outcome.clamped for _, outcome in clamped)} steps of {len(clamped)} videos end with "
        "the features or up to half a second behind them and were observed at the last row; the "
        f"first video is '{clamped[0][0].video.video_id}'."
    ]


def _made_with(features: Path) -> dict[str, Any] | None:
    """What `cefito extract` says that the features were made with; None where others made them."""
    path = Path(features) / "extract.json"
    if not path.exists():
        return None
    value = read_json(path, "Extract the features again, or remove this file.")
    if not isinstance(value, dict):
        raise DataError(
            f"{path}: does not say what the features were made with. Extract them again, or remove "
            "this file."
        )
    return value


def _write(
    target: Path,
    source: Source,
    used: Sequence[tuple[Job, Outcome]],
    *,
    width: int,
    recipe: Recipe,
    name: str | None,
    preparation: dict[str, Any],
    made_with: dict[str, Any] | None,
    videos: Path | None,
) -> PreparedDataset:
    used_videos = tuple(
        replace(job.video, steps=tuple(job.video.steps[place] for place in outcome.kept))
        for job, outcome in used
    )
    annotations = Annotations(taxonomy=source.annotations.taxonomy, videos=used_videos)
    with new_folder(target) as folder:
        write_json(folder / "taxonomy.json", annotations.taxonomy.to_dict())
        write_videos(folder / "videos.jsonl", used_videos)
        _write_observations(
            folder / "features.safetensors",
            shard_tensors([outcome for _, outcome in used]),
            shape=(annotations.step_count, width),
            precision=recipe.precision,
        )
        write_header(
            folder,
            name=name or annotations.taxonomy.dataset,
            observation_dim=width,
            provenance={
                "observations": (
                    f"features of {recipe.seconds} s around the rounded start and end of each "
                    f"step, concatenated, stored as {recipe.precision}"
                ),
                "observed": {
                    "seconds": recipe.seconds,
                    "precision": recipe.precision,
                    "features": made_with,
                },
                "source": {"kind": source.form, "files": [path.name for path in source.files]},
                "preparation": preparation,
                **video_folder_entry(videos, target),
                "cefito": version("cefito"),
            },
        )
        open_dataset(folder)
    return open_dataset(target)


def _write_observations(
    path: Path,
    pairs: Iterator[tuple[NDArray[Any], NDArray[Any]]],
    *,
    shape: tuple[int, int],
    precision: str,
) -> None:
    """Write `start` and `end` as a safetensors file while they come.

    Only what comes at once is in memory.
    """
    size = shape[0] * shape[1] * np.dtype(precision).itemsize
    header = json.dumps(
        {
            name: {
                "dtype": PRECISIONS[precision],
                "shape": list(shape),
                "data_offsets": [first, first + size],
            }
            for name, first in (("start", 0), ("end", size))
        }
    ).encode()
    header += b" " * (-len(header) % 8)

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as starts, temporary.open("r+b") as ends:
            starts.write(len(header).to_bytes(8, "little") + header)
            ends.seek(8 + len(header) + size)
            for start, end in pairs:
                starts.write(start.tobytes())
                ends.write(end.tobytes())

    write_atomic(path, fill, DataError)
