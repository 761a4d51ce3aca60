"""Whole videos: their rows, the steps recognised in them, and what may go unseen there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from numpy.typing import ArrayLike

from cefito.data.annotations import Video
from cefito.data.vocabulary import find_action, find_task
from cefito.errors import ConfigError, DataError
from cefito.inference.constraints import Name
from cefito.inference.recordings import Failed, Recording, open_recordings, raised, row_rate
from cefito.markup import counted, film_percent, listed, percent
from cefito.parts.opened import OpenedRun
from cefito.progress import Progress
from cefito.tracks import Track
from cefito.verification.findings import Deviation
from cefito.verification.order_files import read_orders
from cefito.verification.verifier import Verifier

Source = ArrayLike | Path | str | Recording
"""Rows of a video [n, D], its file, its id in the run's data set, or a recording."""

_SHOWN = 3  # tasks that a message names
UNNAMED = "video"
"""Name of the video of rows."""


class Reading(TypedDict, total=False):
    """How videos are read: arguments of `open_recordings`."""

    dataset: Path | str | None
    rate: float | None
    encoder: str | None
    weights: Path | None
    device: torch.device | str | None
    camera: str | None
    failed: Failed
    progress: Progress


def recognise(
    run: OpenedRun | Path | str,
    source: Source,
    *,
    task: Name | None = None,
    steps_known: Sequence[Name] | None = None,
    least: float = 0.0,
    order: Path | str | None = None,
    video: str = UNNAMED,
    **reading: Unpack[Reading],
) -> Track:
    """Recognise the steps of a whole video, with times in seconds and probabilities.

    Args:
        run: A run with a recogniser, or its folder.
        source: Rows [n, D] as the recogniser was trained on, a file of such rows (.npy, .npz, .pt,
            .h5), a video file, or the id of a video of the run's data set; of a run of sensors, a
            table of their values, or a folder of tables.
        task: Id or name of the task; by default it is recognised.
        steps_known: Ids or names of all steps in order: only their times are recognised. Needs the
            task.
        least: Leave out steps that are less probable.
        order: File of orders that the steps keep, as `cefito graph --out` writes it.
        video: Name of the video, if rows are given.
        reading: How the video is read: `rate` (rows a second; by default as in training),
            `dataset` (whose video it is), of video files `encoder`, `weights`, `device` and
            `progress`, and of LeRobot episodes `camera`, as of
            `cefito.inference.recordings.open_recordings`.

    Raises:
        ConfigError: An unknown task or step, or a rate or probability out of range.
        DataError: Rows of another width than the run's, or with NaN or infinity, or a file that
            cannot be read.
        RunError: The run has no recogniser.
    """
    opened = run if isinstance(run, OpenedRun) else OpenedRun.open(Path(run))
    opened = with_orders(opened, order)
    asked: dict[str, Any] = {"task": task, "steps_known": steps_known, "least": least}
    (track,) = recognised_videos(opened, [source], **asked, video=video, **reading)
    return track


def recognised_videos(
    run: OpenedRun,
    sources: Iterable[Source],
    *,
    task: Name | None = None,
    steps_known: Sequence[Name] | None = None,
    least: float = 0.0,
    video: str = UNNAMED,
    **reading: Unpack[Reading],
) -> list[Track]:
    """Recognise the steps of videos, as `recognise` does of each.

    Args:
        run: A run with a recogniser.
        sources: Videos, each as of `recognise`.
        task: Id or name of the task of all of them.
        steps_known: Ids or names of all steps of each, in order.
        least: Leave out steps that are less probable.
        video: Name of videos that are given as rows.
        reading: How videos are read.
    """
    task_id, plan = None if task is None else find_task(run.taxonomy, task), None
    if steps_known is not None:
        if task_id is None:
            raise ConfigError("steps that are known need their task. Give it, too.", setting="task")
        plan = [
            find_action(run.taxonomy, step, task=task_id, setting="steps_known")
            for step in steps_known
        ]
    failed, tracks = reading.get("failed", raised), list[Track]()
    for whole in recordings_of(run, sources, video, reading):
        try:
            whole.check_task(run, task_id)
            tracks.append(whole.recognised(run, task=task_id, plan=plan, least=least))
        except (ConfigError, DataError) as problem:
            failed(problem)
    return tracks


def recordings_of(
    run: OpenedRun, sources: Iterable[Source], video: str, reading: Reading
) -> Iterator[Recording]:
    """Yield the rows of videos; those of files are named before the first is encoded.

    Arguments are as of `recognised_videos`.
    """
    files: list[str] = []
    for source in sources:
        if isinstance(source, str | Path):
            files.append(str(source))
        elif isinstance(source, Recording):
            yield source
        else:
            rows: Any = source  # which the recogniser checks
            yield Recording(video, "", rows, row_rate(run, reading.get("rate")))
    yield from open_recordings(run, files, **reading)


def with_orders(run: OpenedRun, order: Path | str | None) -> OpenedRun:
    """Return a run whose recogniser keeps the orders of a file, if one is given."""
    if order is None:
        return run
    orders = read_orders(Path(order), run.taxonomy)
    return run.changed(recogniser=run.own_recogniser.given_orders(orders))


def limits_of_film(
    run: OpenedRun, verifier: Verifier, task: int | None, certainty: float = 1.0
) -> tuple[str, ...]:
    """Return why mistakes in a film may go unseen; nothing if enough were in training.

    Args:
        run: A run with a recogniser.
        verifier: Its verifier.
        task: Id of its task; None if it is not known.
        certainty: Probability of the task; up to one half is a reason, too.
    """
    if task is not None and (other := other_task(run.taxonomy.tasks[task].name, certainty)):
        return (other, *limits_of_film(run, verifier, task))
    seen, films = run.own_recogniser.seen, "mistakes in films may go unseen"
    if seen is None or task is None:
        return (f"{films}: this recogniser was not tried on any",)
    if seen[task].enough:
        return ()
    count, more = counted(verifier.orders[task].videos, "video"), seen[task].more
    unknown = "label more of them, how many is not known"
    remedy = unknown if more is None else f"label about {more} more"
    words = seen[task].words([action.name for action in run.taxonomy.actions])
    return (
        f"{films}: {words}. '{run.taxonomy.tasks[task].name}' was learned from {count}; {remedy}",
    )


def other_task(name: str, probability: float) -> str:
    """Return that a film may show another task than this one; empty if its probability is high."""
    if probability > 0.5:
        return ""
    problem = "the film may show another task, or none that is known"
    return f"{problem}; '{name}' has {film_percent(probability)}"


def among_right(verifier: Verifier, videos: Iterable[Video]) -> Iterator[str]:
    """Say which right training videos show what would be a mistake in others, the surest first."""
    training = [video for video in videos if video.split == "train"]
    most = max(1, sum(video.clean for video in training) // 4)  # where more are, orders differ
    mistakes, words = defaultdict[str, list[Deviation]](list), []
    for video, mistake in verifier.among_right(training):
        mistakes[video.video_id].append(mistake)
    surest = sorted(mistakes.items(), key=lambda pair: -max(m.probability for m in pair[1]))
    for name, deviations in surest:
        texts = (f"'{m.name}' {m.words} ({percent(m.probability)})" for m in deviations)
        words.append(f"'{name}': {', '.join(texts)}")
    if words:
        yield (
            f"{counted(len(words), 'training video')} without a label of an error would be found "
            f"to have a mistake by the others ({listed(words, min(most, _SHOWN))}). Correct wrong "
            "labels. What counts as right is found less: label true mistakes, such as "
            "'Order Error' or 'missing: NAME' in the column error"
        )


def limits_of_films(run: OpenedRun) -> list[str]:
    """Return why mistakes in films may go unseen, by task; of many, the first and their number.

    A task of which enough were seen in training has those that were not.
    """
    recogniser, verifier = run.recogniser, run.verifier
    if recogniser is None or verifier is None or recogniser.seen is None:
        return []
    names = [action.name for action in run.taxonomy.actions]
    unseen: list[str] = []
    for task, seen in enumerate(recogniser.seen):
        limits = limits_of_film(run, verifier, task)
        if not limits and seen.unseen:
            limits = (f"{run.taxonomy.tasks[task].name}: {seen.words(names)}",)
        unseen += limits
    more = len(unseen) - _SHOWN
    return [*unseen[:_SHOWN], *[f"the same holds for {counted(more, 'more task')}"][: max(more, 0)]]
