"""Verifiers of runs, of written procedures, and of tables of right or labelled videos."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cefito.data.annotations import Taxonomy, Video
from cefito.errors import ConfigError, DataError
from cefito.inference.constraints import Name
from cefito.parts.opened import OpenedRun
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import holds_steps, in_one_spelling, read
from cefito.tracks.track import bound, stored
from cefito.verification.order import read_orders, written_orders
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import Verifier

Right = OpenedRun | Path | str
"""A run or its folder, a folder of `cefito data procedure`, or a file of right videos' steps."""


def open_verifier(
    right: Right,
    order: Path | str | None = None,
    *,
    task: Name | None = None,
    choices: Choices | None = None,
    online: bool = False,
) -> tuple[OpenedRun | None, Verifier]:
    """Open or learn a verifier, with the orders of a file; and its run, if it has one.

    Args:
        right: What shows how tasks are done.
        order: File of orders to keep instead.
        task: Name of the task of a file of steps that names none.
        choices: What a file of steps leaves open.
        online: Whether a verifier of a file is learned for steps judged from those before them.
    """
    opened = right if isinstance(right, OpenedRun) else None
    if opened is None and (path := steps_file(right)):
        config = VerifierConfig(online=online)
        verifier = learned_verifier(path, choices or Choices(), task=task, config=config)
    elif opened is None and (Path(str(right)) / "order.json").exists():
        folder = Path(str(right))
        taxonomy = Taxonomy.read(folder / "taxonomy.json")
        verifier = Verifier(written_orders(folder / "order.json", taxonomy), taxonomy)
    else:
        opened = right if isinstance(right, OpenedRun) else OpenedRun.open(Path(right), plans=False)
        verifier = opened.own_verifier
    if order is not None:
        verifier = verifier.given(read_orders(Path(order), verifier.taxonomy))
    return opened, verifier


def opened_run(run: Right) -> OpenedRun:
    """Return a run, which is opened if it is a folder."""
    return run if isinstance(run, OpenedRun) else OpenedRun.open(Path(run))


def learned_verifier(
    path: Path, choices: Choices, *, task: Name | None = None, config: VerifierConfig
) -> Verifier:
    """Learn a verifier from the steps in a file: those of the split train, or without a split.

    Actions are those of these videos. Errors train networks if there are enough of them; all
    other steps show orders.

    Args:
        path: The file.
        choices: What it leaves open.
        task: Name of its task, if it names none.
        config: Settings of the verifier.

    Raises:
        DataError: A file that cannot be read, or without a right video.
    """
    try:
        tracks = read([path], choices)
    except DataError as problem:
        if not isinstance(task, str) or "task" not in (problem.setting or ""):
            raise
        tracks = read([path], choices.model_copy(update={"task": task}))
    tracks = in_one_spelling(tracks)
    videos = [track for track in tracks.tracks if track.split in ("", "train")]
    if not videos:
        raise DataError(f"{path}: holds no video of the split train. Give videos to learn from.")
    ids: dict[str, int] = {}
    owned = {track.task: set[int]() for track in tracks.tracks}
    for video in videos:
        owned[video.task] |= {ids.setdefault(step.name, len(ids)) for step in video.steps}
    taxonomy = Taxonomy.from_names(tracks.name, owned.items(), ids)
    learned = [
        Video(track.video, "train", track.task_id or 0, stored(track.steps), group=track.group)
        for track in bound(videos, taxonomy)
    ]
    if not any(not step.errors for video in learned for step in video.steps):
        raise DataError(
            f"{path}: all steps to learn from are errors. Add a right video of each task."
        )
    return Verifier.fit(learned, taxonomy, config=config)


def judged(right: Right, path: Path, tracks: Iterable[Track]) -> tuple[Track, ...]:
    """Return the tracks of a file that are verified: of the file learned from, the test split.

    Args:
        right: What the verifier was learned from.
        path: The file of the tracks.
        tracks: All tracks of the file.

    Raises:
        ConfigError: It has no test split.
    """
    source, videos = steps_file(right), tuple(tracks)
    if source is None or not source.samefile(path):
        return videos
    kept = tuple(video for video in videos if video.split == "test")
    if not kept:
        problem = "is what was learned from, and has no videos of the split test"
        raise ConfigError(f"{path}: {problem}. Give another file, or a column split.")
    return kept


def steps_file(right: Right) -> Path | None:
    """Return the path of a file of steps; None if it is a run, or a folder."""
    if isinstance(right, OpenedRun) or Path(right).is_dir() or not holds_steps(Path(right)):
        return None
    return Path(right)
