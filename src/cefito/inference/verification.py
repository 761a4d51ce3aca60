"""Videos verified by a run: their steps recognised, or given as annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from cefito.data.annotations import Step, Taxonomy
from cefito.data.readers.formats import Choices
from cefito.data.readers.step_source import read_steps
from cefito.data.vocabulary import find_actions, find_task
from cefito.errors import ConfigError
from cefito.inference.recordings import Recording, timed_actions
from cefito.runs.run import Run
from cefito.settings import Record
from cefito.timeline.formats import TimedAction
from cefito.timeline.order import written_orders
from cefito.timeline.verify import Deviation, Verifier

STEP_FILES = (".csv", ".tsv", ".parquet", ".eaf", ".json", ".xml", ".srt", ".vtt")
"""Endings of files of annotated steps."""
_OVERLAP = 0.3  # share of the steps from which on more than one person may be at work


class VerifiedVideo(Record):
    """What was wrong in a video, and how to go on."""

    video: str
    task: str
    task_probability: float  # 1 if it was given
    recognised: bool  # whether the steps were recognised, else they were given
    seconds: float
    steps: tuple[TimedAction, ...]
    deviations: tuple[Deviation, ...]  # the likeliest first
    repair: tuple[str, ...]  # names of the actions that lead to the end
    notes: tuple[str, ...] = ()


def written_verifier(folder: Path) -> Verifier | None:
    """Open a folder of `cefito data procedure`; None if it is another one."""
    order = folder / "order.json"
    if not order.exists():
        return None
    taxonomy = Taxonomy.read(folder / "taxonomy.json")
    return Verifier(written_orders(order, taxonomy), taxonomy)


def verified_recording(
    run: Run, verifier: Verifier, recording: Recording, *, task: int | None, least: float
) -> VerifiedVideo:
    """Recognise the steps of a recording and verify them.

    Raises:
        ConfigError: No step was recognised.
        DataError: Rows of another width than the run's, or with NaN or infinity.
    """
    seen = recording.recognised(run, task=task)
    if not seen.steps:
        raise ConfigError(f"{recording.place}: no step was recognised.")
    steps = [Step(one.start, one.end, one.action) for one in seen.steps]
    sure = [one.probability * seen.task_probability for one in seen.steps]
    found = _video(verifier, seen.video, seen.task_id, steps, sure=sure, least=least)
    known = {"seconds": seen.seconds, "task_probability": seen.task_probability}
    return found.model_copy(update={**known, "recognised": True})


def verified_steps(
    verifier: Verifier, paths: Sequence[Path], *, task: int | None, least: float
) -> Iterator[VerifiedVideo]:
    """Verify the steps that files give; arguments as of `verified_recording`.

    Raises:
        ConfigError: A task or an action that the run does not know.
        DataError: A file that is not read.
    """
    taxonomy = verifier.taxonomy
    choices = Choices(task=None if task is None else taxonomy.tasks[task].name)
    for path in paths:
        found = read_steps(path, choices=choices).annotations
        theirs = found.taxonomy
        for video in found.videos:
            try:
                own = find_task(taxonomy, theirs.tasks[video.task].name) if task is None else task
                names = theirs.names([step.action for step in video.steps])
                ids = [find_actions(taxonomy, name, task=own)[0] for name in names]
            except ConfigError as problem:
                place = f"{path}, video '{video.video_id}'"
                raise ConfigError(f"{place}: {problem}", setting=problem.setting) from problem
            timed = zip(video.steps, ids, strict=True)
            steps = [Step(step.start, step.end, action) for step, action in timed]
            yield _video(verifier, video.video_id, own, steps, sure=None, least=least)


def _video(
    verifier: Verifier,
    name: str,
    task: int,
    steps: Sequence[Step],
    *,
    sure: Sequence[float] | None,
    least: float,
) -> VerifiedVideo:
    found = verifier.verify(steps, task, sure=sure, least=least)
    notes = []
    overlapping = sum(one.start < before.end - 1 for before, one in pairwise(steps))
    if overlapping > _OVERLAP * len(steps):
        notes.append(
            f"{overlapping} of {len(steps)} steps begin before the one before them ends; if "
            "several people are at work, verify each alone"
        )
    order = verifier.orders[task]
    if not (order.videos or order.given):
        notes.append("no video of the task without errors was seen in training")
    return VerifiedVideo(
        video=name,
        task=verifier.taxonomy.tasks[task].name,
        task_probability=1.0,
        recognised=False,
        seconds=max(step.end for step in steps),
        steps=timed_actions(verifier.taxonomy, steps),
        deviations=found.deviations,
        repair=tuple(verifier.taxonomy.names([*found.repair])),
        notes=tuple(notes),
    )
