"""Verifiers learned from a table of right or labelled videos, and with other orders of steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError, DataError
from cefito.inference.constraints import Name, NamedConstraints
from cefito.tracks.document import Choices
from cefito.tracks.reading import in_one_spelling, read
from cefito.tracks.track import annotated_videos
from cefito.verification.order import reached
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import Verifier

logger = logging.getLogger(__name__)


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
    for note in tracks.notes:
        logger.warning("%s: %s", path, note)
    videos = [track for track in tracks.tracks if track.split in ("", "train")]
    if not videos:
        raise DataError(f"{path}: holds no video of the split train. Give videos to learn from.")
    ids: dict[str, int] = {}
    owned = {track.task: set[int]() for track in tracks.tracks}
    for video in videos:
        owned[video.task] |= {ids.setdefault(step.name, len(ids)) for step in video.steps}
    taxonomy = Taxonomy.from_names(tracks.name, owned.items(), ids)
    learned = [*annotated_videos(videos, taxonomy)]
    if not any(not step.errors for video in learned for step in video.steps):
        raise DataError(
            f"{path}: all steps to learn from are errors. Add a right video of each task."
        )
    return Verifier.fit(learned, taxonomy, config=config)


def edited_orders(
    verifier: Verifier,
    task: int,
    *,
    add: Sequence[tuple[Name, Name]] = (),
    remove: Sequence[tuple[Name, Name]] = (),
) -> Verifier:
    """Return a verifier with edges added to the graph of a task, and removed, as of `graph`."""
    if not add and not remove:
        return verifier
    taxonomy, shown = verifier.taxonomy, {*verifier.orders[task].edges}
    edges = {*reached(shown)}  # an edge that goes takes no order along
    for named, adding in ((add, True), (remove, False)):
        constraints = NamedConstraints(before=tuple(named)).resolved(taxonomy, task=task)
        pairs = {*constraints.before}
        if not adding and (strange := pairs - shown):
            edge = " → ".join(taxonomy.names([*strange.pop()]))
            raise ConfigError(f"the graph has no edge {edge}.", setting="remove")
        edges = edges | pairs if adding else edges - pairs
    return verifier.given({task: (tuple(edges), ())})
