"""Recognised steps as proposals to correct in an annotation tool, and what correcting them took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cefito.errors import DataError
from cefito.markup import plain
from cefito.settings import Record
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import film_address

TOLERANCE = 2.0
"""Seconds that a border may be off without being moved."""


class Corrections(Record):
    """What a person changed in the proposals of some videos."""

    videos: int
    steps: int  # of the corrected videos
    kept: int  # steps with the action and borders of a proposal
    moved: int  # steps with its action and a border that is further off than the tolerance
    added: int  # steps without a proposal of their action that overlaps
    removed: int  # proposals without a step

    @property
    def touched(self) -> float:
        """Share of the steps that were moved or added, and of those removed, to all steps."""
        return (self.moved + self.added + self.removed) / max(self.steps, 1)

    @property
    def edits(self) -> int:
        """Edits: one for each step moved or removed, three (label and borders) for one added."""
        return self.moved + self.removed + 3 * self.added

    @property
    def saved(self) -> float:
        """Share of the edits of labelling from nothing, three a step, that were not needed."""
        return 1 - self.edits / max(3 * self.steps, 1)


def compare(pairs: Iterable[tuple[Sequence[TimedStep], Sequence[TimedStep]]]) -> Corrections:
    """Count what was changed in videos, given the proposed and the corrected steps of each."""
    sums = dict.fromkeys(("videos", "steps", "kept", "moved", "added", "removed"), 0)
    for proposed, corrected in pairs:
        sums["videos"] += 1
        sums["steps"] += len(corrected)
        for proposal, step in matched(proposed, corrected):
            if proposal is None:
                sums["added"] += 1
            elif step is None:
                sums["removed"] += 1
            else:
                off = max(abs(proposal.start - step.start), abs(proposal.end - step.end))
                sums["kept" if off <= TOLERANCE else "moved"] += 1
    return Corrections(**sums)


def matched(
    proposed: Iterable[TimedStep], corrected: Iterable[TimedStep]
) -> list[tuple[TimedStep | None, TimedStep | None]]:
    """Pair each corrected step with the unused proposal of its action that it overlaps most.

    Where a proposal has no step, or a step no proposal, that side of the pair is None.
    """
    free = [*proposed]
    pairs = list[tuple[TimedStep | None, TimedStep | None]]()
    for step in corrected:
        name = plain(step.name)
        same = [
            proposal
            for proposal in free
            if plain(proposal.name) == name and _shared(proposal, step) > 0
        ]
        best = max(same, key=lambda proposal: _shared(proposal, step), default=None)
        if best is not None:
            free.remove(best)
        pairs.append((best, step))
    return pairs + [(proposal, None) for proposal in free]


def find_proposal(
    name: str, proposed: Iterable[Track], folder: Path, *, table: bool
) -> Track | None:
    """Return the proposal of a corrected film; None if there is none.

    Args:
        name: Name of the film, as it is read from the corrected file.
        proposed: All proposals.
        folder: Folder of the files of proposals.
        table: Whether the name is of a table; else it is the end of a film's path.

    Raises:
        DataError: Several proposals are of films whose paths end so.
    """
    end, same, others = f"/{plain(name)}", [], []
    for video in proposed:
        if plain(video.video) == end[1:]:
            same.append(video)
        elif f"/{film_address(plain(video.media), str(folder))}".endswith(end):
            others.append(video)
    found = same if table and same else same + others
    if len(found) > 1:
        several = " or ".join(repr(video.video) for video in found[:2])
        problem = f"film '{name}' may be the proposed {several}. Give the files of both at once"
        raise DataError(f"{folder}: {problem}.")
    return found[0] if found else None


def _shared(one: TimedStep, other: TimedStep) -> float:
    """Return the seconds that two steps have in common."""
    return min(one.end, other.end) - max(one.start, other.start)


def doubt(video: Track) -> float:
    """Return how unsure the steps of a video are: 1 − their mean probability, weighted by length.

    It is greatest for the video whose correction helps most.
    """
    lengths = [step.end - step.start for step in video.steps]
    sure = sum(length * step.probability for length, step in zip(lengths, video.steps, strict=True))
    return 1 - video.task_probability * sure / max(sum(lengths), 1e-9)
