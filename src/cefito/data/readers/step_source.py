"""The annotations that tracks of names make.

The taxonomy is derived from the names: equal names are one action, and each task owns the actions
that occur in it. Steps of a video are sorted by their start times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Annotations, Video
from cefito.data.folds import FEW_VIDEOS, are_grouped, group_numbers
from cefito.data.source import Source, draw_split
from cefito.data.vocabulary import Taxonomy, folded
from cefito.errors import DataError
from cefito.markup import listed, word_vectors
from cefito.tracks.document import Choices
from cefito.tracks.reading import Tracks, in_one_spelling, read
from cefito.tracks.track import annotated_videos
from cefito.tracks.writing import format_of, write_tracks

_SHOWN = 10  # pairs of names that are reported one by one
_SIMILAR = 90  # per cent of letters that near names have in common
_ALIKE = 0.98  # cosine of names alike in meaning: "pin in" and "pin out" have 0.972
_NOTHING = Choices()


def read_steps(paths: Path | str | Sequence[Path | str], *, choices: Choices = _NOTHING) -> Source:
    """Read annotated steps from files: tables, CSV or Parquet, or exports of annotation tools.

    Without a split, 30 % of the videos of each task are drawn for test, by a fixed seed. A file of
    no known format, malformed, or without what `choices` could give is refused (DataError).
    """
    files = [Path(path) for path in ([paths] if isinstance(paths, Path | str) else paths)]
    return source_of(in_one_spelling(read(files, choices)), files)


def convert_steps(
    paths: Sequence[Path | str],
    out: Path | str,
    *,
    choices: Choices = _NOTHING,
    form: str | None = None,
) -> Source:
    """Write the steps of files of any known format in another format, and return them.

    Args:
        paths: Files of steps.
        out: New file, whose ending is its format, or new folder of one file a video.
        choices: How the files are read, and the frames a second of formats that count them.
        form: Name of the format that is written; of a folder, it is needed.
    """
    out, files = Path(out), [Path(path) for path in paths]
    writer = format_of(out, form, 1)
    if out.exists():
        raise DataError(f"{out}: exists already. Remove it first.", setting="out")
    tracks = in_one_spelling(read(files, choices))
    source = source_of(tracks, files)
    format_of(out, form, len(tracks.tracks))
    write_tracks(tracks.tracks, out, writer, frame_rate=choices.frame_rate)
    return source


def source_of(tracks: Tracks, files: Sequence[Path]) -> Source:
    """Make annotations of the steps of some files."""
    ids = {name: number for number, name in enumerate(tracks.actions)}
    owned: dict[str, set[int]] = defaultdict(set)
    for track in tracks.tracks:
        owned[track.task].update(ids[step.name] for step in track.steps)
    taxonomy = Taxonomy.from_names(tracks.name, owned.items(), ids)
    videos = tuple(annotated_videos(tracks.tracks, taxonomy))
    owners: dict[str, set[str]] = defaultdict(set)
    for track in tracks.tracks:
        for step in track.steps:
            owners[step.name].add(track.video)
    alone = {name: next(iter(own)) for name, own in owners.items() if len(own) == 1}
    notes = [*tracks.notes, *_near_names(taxonomy, alone)]
    lacking = [track.video for track in tracks.tracks if not track.split]
    if len(lacking) == len(videos):
        grouped = are_grouped(group_numbers(videos))
        drawn = "whole groups with about 30 % of the videos"
        drawn = drawn if grouped else "30 % of the videos of each task"
        drawn = f"{drawn} were drawn for test; a column split of 'train' learns from all"
        if len(videos) < FEW_VIDEOS:
            drawn = (
                f"with fewer than {FEW_VIDEOS} videos, all are for training; "
                "judge a run by `cefito cross-validate`"
            )
        videos = draw_split(videos)
        notes.append(f"The annotations have no split: {drawn}.")
    elif lacking:
        partly = f"video '{lacking[0]}' has no split, but others have one. Give it for all videos"
        raise DataError(f"{files[0]}: {partly}.", setting="video_table")
    notes += _split_groups(videos)
    return Source(
        annotations=Annotations(taxonomy=taxonomy, videos=videos),
        form=tracks.form,
        files=tuple(files),
        names={
            track.video: (track.video, str(Path(track.video).parent / Path(track.video).stem))
            for track in tracks.tracks
        },
        notes=tuple(notes),
        tier=tracks.tier,
    )


def _split_groups(videos: Iterable[Video]) -> Iterator[str]:
    """Yield a note on the groups that have videos of several splits."""
    splits: dict[str, set[str]] = defaultdict(set)
    for video in videos:
        splits[video.group].add(video.split)
    groups = [f"'{group}'" for group, names in splits.items() if group and len(names) > 1]
    if groups:
        yield f"Groups with videos of several splits: {listed(groups, most=_SHOWN)}."


def _near_names(taxonomy: Taxonomy, alone: Mapping[str, str]) -> Iterator[str]:
    """Notes on names of tasks, and of actions of one task, that differ by little.

    Actions of different tasks are near only if they are equal without case and punctuation. Where
    WordLlama is installed, actions of equal numbers are also near if their vectors are almost
    parallel. Of two names, the only video of one is said, as `alone` has it.
    """
    tasks = near_names(dict.fromkeys(task.name for task in taxonomy.tasks))
    steps = [
        pair for task in taxonomy.tasks for pair in near_names(taxonomy.names([*task.actions]))
    ]
    first: dict[str, str] = {}
    for name in dict.fromkeys(action.name for action in taxonomy.actions):
        earlier = first.setdefault(folded(name), name)
        steps += [(earlier, name)] * (earlier != name)
    with suppress(ImportError):
        distinct = list(first.values())
        vectors = word_vectors(distinct)  # [N, 256]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)
        steps += _agreeing(distinct, vectors @ vectors.T >= _ALIKE)
    pairs = [("task", *pair) for pair in tasks] + [("step", *pair) for pair in dict.fromkeys(steps)]
    for kind, left, right in pairs[:_SHOWN]:
        pair = f"'{left}' and '{right}'"
        if len(once := [name for name in (left, right) if name in alone]) == 1:
            pair += f"; '{once[0]}' is in '{alone[once[0]]}' alone"
        remedy = "If they mean the same, write them alike."
        yield f"{kind} names that differ by little: {pair}. {remedy}"
    if len(pairs) > _SHOWN:
        yield f"There are {len(pairs) - _SHOWN} more pairs of names that differ by little."


def near_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ in case, spaces, punctuation or a few letters, in their order.

    Their numbers agree, and 2 M / (sum of their lengths) is at least 0.9, where M is the length of
    their longest common subsequence.
    """
    from rapidfuzz import fuzz, process

    listed = list(names)
    plain = [folded(name) for name in listed]
    # the cutoff is met in spite of rounding
    cutoff = _SIMILAR - 1e-4
    alike = process.cdist(plain, plain, scorer=fuzz.ratio, score_cutoff=cutoff, dtype=np.uint8)
    return _agreeing(listed, alike > 0)


def _agreeing(names: Sequence[str], alike: NDArray[np.bool_]) -> list[tuple[str, str]]:
    """The pairs of N names that are alike, [N, N], and whose numbers agree."""
    numbers = [re.findall(r"\d+", folded(name)) for name in names]
    places = np.argwhere(np.triu(alike, k=1)).tolist()
    return [(names[i], names[j]) for i, j in places if numbers[i] == numbers[j]]
