"""The annotations that rows of steps make.

The taxonomy is derived from the names: equal names are one action, and each task owns the actions
that occur in it. Steps of a video are sorted by their start times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cefito.data.annotations import Annotations, Step, Taxonomy, Video, folded
from cefito.data.readers.formats import Choices
from cefito.data.readers.formats.table import SHAPE
from cefito.data.readers.merges import Merges
from cefito.data.readers.name_similarity import names_alike
from cefito.data.readers.source import Source, draw_split, make_step
from cefito.data.readers.steps import StepRows, read_rows, write_rows
from cefito.errors import DataError
from cefito.files import check_target

__all__ = ["MERGING", "convert_steps", "read_steps"]

MERGING = "Names that mean the same can also be merged by a map of names."
"""Note on steps with names that differ by little."""
_MANY = 20  # names of steps of which more should occur twice
_SHOWN = 10  # pairs of names that are reported one by one
_NOTHING = Choices()


def read_steps(
    paths: Path | str | Sequence[Path | str],
    *,
    choices: Choices = _NOTHING,
    merges: Merges | None = None,
) -> Source:
    """Read annotated steps from a file of any known format, or from several.

    Without a split, 30 % of the videos of each task are drawn for test, by a fixed seed.

    Args:
        paths: Tables of steps, CSV or Parquet, or exports of annotation tools.
        choices: What the files leave open.
        merges: Names to replace.

    Raises:
        DataError: A file of no known format, malformed, or without what `choices` could give.
    """
    files = [Path(path) for path in ([paths] if isinstance(paths, Path | str) else paths)]
    return _source(read_rows(files, choices), files, merges=merges)


def convert_steps(
    paths: Sequence[Path | str], out: Path | str, *, choices: Choices = _NOTHING
) -> Source:
    """Write the steps of files of any known format as a new table, CSV, and return them."""
    out, files = Path(out), [Path(path) for path in paths]
    check_target(out, (".csv",), "out")
    if out.exists():
        raise DataError(f"{out}: exists already. Remove it first.", setting="out")
    found = read_rows(files, choices)
    source = _source(found, files)
    write_rows(out, found.rows)
    return source


def _source(found: StepRows, files: Sequence[Path], *, merges: Merges | None = None) -> Source:
    """Make annotations of the steps of some files."""
    rows = found.rows
    if not rows:
        remedy = found.notes[-1] if found.notes else SHAPE
        raise DataError(f"{files[0]} ({found.form}): holds no steps. {remedy}")
    if merges is not None:
        merges.check_known((row.task for row in rows), (row.step for row in rows))
        rows = tuple(
            replace(
                row,
                task=merges.tasks.get(row.task, row.task),
                step=merges.steps.get(row.step, row.step),
            )
            for row in rows
        )
    tasks = {name: number for number, name in enumerate(dict.fromkeys(row.task for row in rows))}
    actions = {name: number for number, name in enumerate(dict.fromkeys(row.step for row in rows))}
    facts: dict[str, tuple[str, str]] = {}
    steps: dict[str, dict[Step, str]] = defaultdict(dict)
    owned: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        fact = (row.task, row.split)
        before = facts.setdefault(row.video, fact)
        if before != fact:
            alike = fact[0] != before[0] and folded(fact[0]) == folded(before[0])
            both = "task '{}', split '{}', but before task '{}', split '{}'".format(*fact, *before)
            merge = f" or merge the names by the line task,{fact[0]},{before[0]}" * alike
            problem = f"{row.place}: video '{row.video}' has {both}. Correct the line{merge}."
            raise DataError(problem, setting="merge" * alike)
        step = make_step(row.start, row.end, actions[row.step], place=row.place)
        earlier = steps[row.video].setdefault(step, row.place)
        if earlier != row.place:
            where = earlier.rpartition(", ")[2]
            raise DataError(f"{row.place}: repeats {where}. Remove one of them.")
        owned[row.task].add(step.action)
    taxonomy = Taxonomy.from_names(found.name, [(name, owned[name]) for name in tasks], actions)
    videos = tuple(
        Video(
            video_id=video,
            split=split or "train",
            task=tasks[task],
            steps=tuple(sorted(steps[video], key=lambda step: (step.start, step.end))),
        )
        for video, (task, split) in facts.items()
    )
    notes = [
        *found.notes,
        *([merges.note()] if merges is not None else []),
        *_near_names(taxonomy),
    ]
    counts = Counter(row.step for row in rows)
    once = sum(count == 1 for count in counts.values())
    if len(counts) > _MANY and once > len(counts) / 2:
        notes.append(
            f"{once} of {len(counts)} names of steps occur once. Nothing can be learned of these; "
            "speech and comments are not names of steps."
        )
    lacking = [video for video, (_, split) in facts.items() if not split]
    if len(lacking) == len(facts):
        videos = draw_split(videos)
        notes.append(
            "The annotations have no split: 30 % of the videos of each task were drawn for test."
        )
    elif lacking:
        problem = f"video '{lacking[0]}' has no split, but others have one. Give it for all videos"
        raise DataError(f"{files[0]}: {problem}.", setting="video_table")
    return Source(
        annotations=Annotations(taxonomy=taxonomy, videos=videos),
        form=found.form,
        files=tuple(files),
        names={video: (video, Path(video).stem) for video in facts},
        notes=tuple(notes),
    )


def _near_names(taxonomy: Taxonomy) -> Iterator[str]:
    """Notes on names that differ by little."""
    found = names_alike(taxonomy)
    for kind, one, other in found[:_SHOWN]:
        pair = f"'{one}' and '{other}'. If they mean the same, write them alike."
        yield f"{kind} names that differ by little: {pair}"
    if len(found) > _SHOWN:
        yield f"There are {len(found) - _SHOWN} more pairs of names that differ by little."
    if found:
        yield MERGING
