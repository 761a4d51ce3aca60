"""Whole videos: steps that are recognised, followed and verified, and the orders that they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from numpy.typing import ArrayLike
from pydantic import Field, PlainSerializer

from cefito.data.annotations import Action, Taxonomy, make_step, name_or_id
from cefito.data.vocabulary import find_action, find_task
from cefito.errors import ConfigError
from cefito.inference.constraints import Name, NamedConstraints
from cefito.inference.recordings import Recording, open_recordings, row_rate
from cefito.inference.verifiers import Right, judged, open_verifier, opened_run
from cefito.markup import counted, listed
from cefito.parts.opened import OpenedRun
from cefito.progress import Progress
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import holds_steps, read
from cefito.tracks.track import TimedStep, bound, stored
from cefito.verification.findings import LEAST, Deviation, StepJudgement, UnsureStep
from cefito.verification.order import reached, read_orders
from cefito.verification.promise import Promise
from cefito.verification.verifier import Verifier

if TYPE_CHECKING:
    import torch

__all__ = ["VerifiedVideo", "graph", "recognise", "verify"]

Source = ArrayLike | Path | str | Recording
"""Rows of a video [n, D], its file, its id in the run's data set, or a recording."""

_UNNAMED = "video"  # name of the video of rows
_AS_WRITTEN = Choices()
_OVERLAP = 0.3  # share of the steps from which on more than one person may be at work


class Reading(TypedDict, total=False):
    """How videos are read: arguments of `open_recordings`."""

    dataset: Path | str | None
    rate: float | None
    encoder: str | None
    weights: Path | None
    device: torch.device | str | None
    camera: str | None
    progress: Progress


class VerifiedStep(TimedStep, StepJudgement):
    """A step in time, and how probable it is that it was a mistake."""


def _judged_steps(steps: tuple[VerifiedStep, ...]) -> list[dict[str, Any]]:
    return [step.model_dump(include={"name", "start", "end", "mistake", "kinds"}) for step in steps]


class VerifiedVideo(Track):
    """What was wrong in a video, and how to go on."""

    recognised: bool = True  # whether the steps were recognised, else they were given
    steps: Annotated[tuple[VerifiedStep, ...], PlainSerializer(_judged_steps)]
    deviations: tuple[Deviation, ...]  # the likeliest first
    # usual steps of a film of which it is not sure whether they were done
    unsure: tuple[UnsureStep, ...] = Field((), exclude_if=lambda steps: not steps)
    # why mistakes of a film may go unseen; empty if its steps were given, or enough was seen
    limits: tuple[str, ...] = Field((), exclude_if=lambda limits: not limits)
    # of false alarms, if it chose what is left out
    promise: Promise | None = Field(None, exclude_if=lambda promise: promise is None)
    repair: tuple[str, ...]  # names of the actions that lead to the end
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert to a value for JSON."""
        beside = {"task_id", "annotated", "file", "split"}
        return self.model_dump(mode="json", exclude_none=True, exclude=beside)


def recognise(
    run: OpenedRun | Path | str,
    source: Source,
    *,
    task: Name | None = None,
    steps_known: Sequence[Name] | None = None,
    least: float = 0.0,
    order: Path | str | None = None,
    video: str = _UNNAMED,
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
    opened = with_orders(opened_run(run), order)
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
    video: str = _UNNAMED,
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
    task_id, plan = _task_in(run.taxonomy, task), None
    if steps_known is not None:
        if task_id is None:
            raise ConfigError("steps that are known need their task. Give it, too.", setting="task")
        plan = [
            find_action(run.taxonomy, step, task=task_id, setting="steps_known")
            for step in steps_known
        ]
    recordings = _recordings(run, sources, video, reading)
    return [whole.recognised(run, task=task_id, plan=plan, least=least) for whole in recordings]


def verify(
    run: Right,
    source: Track | Source,
    *,
    task: Name | None = None,
    least: float = LEAST,
    false_alarms: float | None = None,
    per_steps: int | None = None,
    online: bool = False,
    order: Path | str | None = None,
    video: str | None = None,
    choices: Choices = _AS_WRITTEN,
    **reading: Unpack[Reading],
) -> VerifiedVideo:
    """Say which steps of a video were skipped, out of order, added, repeated or done wrongly.

    Args:
        run: A run of several lengths, or its folder; for steps that are given also a folder of
            `cefito data procedure`, or a file of steps of right or labelled videos, from which the
            verifier is learned: from the split train, if it has splits.
        source: Steps that are given: a `Track`, or a file of annotated steps; else a video as of
            `recognise`, whose steps are recognised first. Of the file learned from, the split test.
        task: Id or name of the task; by default that of the track, or the recognised one.
        least: Leave out what is less probable.
        false_alarms: Choose the least probability that promises at most so many false alarms an
            hour of a right video.
        per_steps: Promise as many in so many steps instead.
        online: Judge each step from those before it alone; what is missing, from later steps.
        order: File of orders to keep instead of those learned, as `cefito graph --out` writes it.
        video: Name of the video, of rows; of a file with several videos, the one to verify.
        choices: What a file of steps leaves open.
        reading: How a video is read, as of `recognise`.

    Raises:
        ConfigError: An unknown task, no step, several videos, a number out of range, or false
            alarms that cannot be promised.
        DataError: A file that cannot be read or learned from, rows as of `recognise`, or times of
            steps that are not in order.
        RunError: The run knows no orders of steps, or has no recogniser for rows.
    """
    opened, verifier = open_verifier(run, order, task=task, choices=choices, online=online)
    promise = promised(verifier, false_alarms, per_steps=per_steps, online=online)
    if isinstance(source, Track):
        track = _bound_track(source, verifier.taxonomy, _task_in(verifier.taxonomy, task))
        own = promise(False)
        least = least if own is None else own.least
        return _with_promise(verified(verifier, track, least=least, online=online), own)
    asked: dict[str, Any] = {"task": task, "least": least, "online": online, "choices": choices}
    asked |= {"promise": promise, "video": video or _UNNAMED}
    videos = verified_videos(
        run if opened is None else opened, verifier, [source], **asked, **reading
    )
    chosen = [one for one in videos if video in (None, one.video)]
    if len(chosen) != 1:
        names = listed([one.video for one in videos], most=5)
        raise ConfigError(f"{source}: holds the videos {names}. Name one.", setting="video")
    return chosen[0]


Promised = Callable[[bool], Promise | None]
"""The promise of false alarms in videos whose steps are given, or, if true, recognised."""


def promised(
    verifier: Verifier, false_alarms: float | None, *, per_steps: int | None, online: bool
) -> Promised:
    """Return the promises of a number of false alarms; of None without a number.

    Args:
        verifier: The verifier.
        false_alarms: The number, an hour or in so many steps.
        per_steps: The number of steps; None for an hour.
        online: Whether each step is judged from those before it alone.

    Raises:
        ConfigError: A number of steps alone; a promise that cannot be made, when it is called.
    """
    if false_alarms is None and per_steps is not None:
        problem = "steps are of a number of false alarms. Give it, too"
        raise ConfigError(f"{problem}.", setting="per_steps")

    def promise(films: bool) -> Promise | None:
        if false_alarms is None:
            return None
        asked: dict[str, Any] = {"per_steps": per_steps, "online": online, "films": films}
        return verifier.promise(false_alarms, **asked)

    return promise


def _with_promise(
    video: VerifiedVideo, promise: Promise | None, *, given: bool = False
) -> VerifiedVideo:
    """Return a video with the promise that chose its findings.

    Args:
        video: The video.
        promise: The promise; None for none.
        given: Whether it is of steps that were given, those of the video being recognised.
    """
    if promise is None:
        return video
    film = "false alarms were counted in videos whose steps were given; films may have more"
    notes = (*video.notes, *[film] * given)
    return video.model_copy(update={"promise": promise, "notes": notes})


def verified_videos(
    right: Right,
    verifier: Verifier,
    sources: Sequence[Source],
    *,
    task: Name | None,
    least: float,
    promise: Promised = lambda _: None,
    online: bool = False,
    choices: Choices = _AS_WRITTEN,
    video: str = _UNNAMED,
    **reading: Unpack[Reading],
) -> list[VerifiedVideo]:
    """Verify videos, as `verify` does of each: those in files of steps first.

    Args:
        right: What the verifier is of; a run, if steps are recognised first.
        verifier: The verifier.
        sources: Files of steps, and videos as of `recognise`.
        task: Id or name of the task of all of them.
        least: Leave out mistakes that are less probable.
        promise: Promises of false alarms, which say what is left out instead.
        online: Judge each step from those before it alone.
        choices: What files of steps leave open.
        video: Name of videos that are given as rows.
        reading: How videos are read.
    """
    task_id = _task_in(verifier.taxonomy, task)
    recipe = right.info.dataset.recipe if isinstance(right, OpenedRun) else None
    files = [
        source
        for source in sources
        if isinstance(source, str | Path)
        and not reading.get("dataset")
        and holds_steps(Path(source))
        and not (recipe is not None and recipe.reads(Path(source)))
    ]
    asked: dict[str, Any] = {"choices": choices, "task": task_id, "online": online}
    videos = list[VerifiedVideo]()
    if files:
        own = promise(False)
        asked["least"] = least if own is None else own.least
        videos += (
            _with_promise(one, own) for one in _verified_steps(right, verifier, files, **asked)
        )
    others = [source for source in sources if not any(source is file for file in files)]
    if not others:
        return videos
    if not isinstance(right, OpenedRun):
        problem = "with a procedure or a table, inputs are files of steps (.csv, .eaf, …)"
        raise ConfigError(f"{problem}. Give a run.")
    own = promise(True)
    least = least if own is None else own.least
    given = online or not len(verifier.films.hours)
    for whole in _recordings(right, others, video, reading):
        track = whole.recognised(right, task=task_id, evidence=True)
        if not track.steps:
            raise ConfigError(f"{whole.place or video}: no step was recognised.")
        judged_video = verified(verifier, track, least=least, online=online)
        limits = limits_of_film(right, verifier, track.task_id)
        judged_video = judged_video.model_copy(update={"limits": limits})
        videos.append(_with_promise(judged_video, own, given=given))
    return videos


def limits_of_film(run: OpenedRun, verifier: Verifier, task: int | None) -> tuple[str, ...]:
    """Return why mistakes in films of a task may go unseen; nothing if enough were in training.

    Args:
        run: A run with a recogniser.
        verifier: Its verifier.
        task: Id of the task; None if it is not known.
    """
    seen, films = run.own_recogniser.seen, "mistakes in films may go unseen"
    if seen is None or task is None:
        return (f"{films}: this recogniser was not tried on any",)
    if seen[task].enough:
        return ()
    count, more = counted(verifier.orders[task].videos, "video"), seen[task].more
    remedy = "label more of them" if more is None else f"label about {more} more"
    return (
        f"{films}: {seen[task].words}. '{run.taxonomy.tasks[task].name}' was learned from {count}; "
        f"{remedy}",
    )


def limits_of_films(run: OpenedRun, most: int = 3) -> list[str]:
    """Return why mistakes in films may go unseen, for the tasks of which too few were in training.

    Args:
        run: A run with a recogniser and a verifier.
        most: Most tasks; the number of the others follows.
    """
    recogniser, verifier = run.recogniser, run.verifier
    if recogniser is None or verifier is None or recogniser.seen is None:
        return []
    unseen = [
        limit
        for task in range(len(recogniser.seen))
        for limit in limits_of_film(run, verifier, task)
    ]
    more = len(unseen) - most
    return [*unseen[:most], *[f"the same holds for {counted(more, 'more task')}"][: max(more, 0)]]


def graph(
    run: Right,
    task: Name,
    *,
    order: Path | str | None = None,
    add: Sequence[tuple[Name, Name]] = (),
    remove: Sequence[tuple[Name, Name]] = (),
) -> list[tuple[str, str]]:
    """Return the order of a task's steps: pairs of names, of which the first one comes first.

    Orders that follow from others are left out. The name of several actions is "id:" and the id.

    Args:
        run: A run of several lengths, or its folder, or a folder of `cefito data procedure`, or a
            file of steps of right videos.
        task: Id or name of the task.
        order: File of orders to start from instead, as `cefito graph --out` writes it.
        add: Pairs to add, by ids or names.
        remove: Pairs to remove.

    Raises:
        ConfigError: An unknown task or action, orders in a circle, or no such pair to remove.
        RunError: The run knows no orders of steps.
    """
    _, verifier = open_verifier(run, order, task=task)
    task_id = find_task(verifier.taxonomy, task)
    edges = edited_orders(verifier, task_id, add=add, remove=remove).orders[task_id].edges
    actions = [verifier.taxonomy.actions[one] for one in verifier.taxonomy.tasks[task_id].actions]
    return [(name_or_id(actions, a), name_or_id(actions, b)) for a, b in edges]


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
    return verifier.given({task: tuple(edges)})


def with_orders(run: OpenedRun, order: Path | str | None) -> OpenedRun:
    """Return a run whose recogniser keeps the orders of a file, if one is given."""
    if order is None:
        return run
    orders = read_orders(Path(order), run.taxonomy)
    return run.changed(recogniser=run.own_recogniser.given_orders(orders))


def _task_in(taxonomy: Taxonomy, task: Name | None) -> int | None:
    """Return the id of a task; None if it is to be recognised."""
    return None if task is None else find_task(taxonomy, task)


def _recordings(
    run: OpenedRun, sources: Iterable[Source], video: str, reading: Reading
) -> Iterator[Recording]:
    """Yield the rows of videos; those of files are named before the first is encoded."""
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


def _bound_track(track: Track, taxonomy: Taxonomy, task: int | None) -> Track:
    """Return a track of a program with ids, its steps in the order of their times."""
    place = f"video '{track.video}'"
    if task is None and not track.task:
        raise ConfigError(f"{place}: names no task. Give it, too.", setting="task")
    for number, step in enumerate(track.steps, 1):
        make_step(step.start, step.end, 0, place=f"{place}, step {number}")
    (ours,) = bound([track], taxonomy, task=task, unknown=True)
    steps = sorted(ours.steps, key=lambda step: (step.start, step.end))
    # steps that were drawn hold ids, which another run does not share
    return ours.model_copy(update={"steps": tuple(steps), "drawn": None})


def _verified_steps(
    right: Right,
    verifier: Verifier,
    sources: Iterable[Path | str],
    *,
    choices: Choices,
    task: int | None,
    least: float,
    online: bool,
) -> Iterator[VerifiedVideo]:
    """Verify the steps that files give, with notes on how they were read."""
    if task is not None:
        choices = choices.model_copy(update={"task": verifier.taxonomy.tasks[task].name})
    for path in map(Path, sources):
        tracks = read([path], choices)
        notes, videos = tracks.notes, judged(right, path, tracks.tracks)
        for track in bound(videos, verifier.taxonomy, task=task, place=path, unknown=True):
            yield verified(verifier, track, least=least, online=online, notes=notes)
            notes = ()


def verified(
    verifier: Verifier,
    track: Track,
    *,
    least: float,
    online: bool = False,
    notes: Sequence[str] = (),
) -> VerifiedVideo:
    """Verify the steps of a track with ids, with notes on what may mislead.

    Args:
        verifier: The verifier.
        track: The track; each step has an id, or an unknown name.
        least: Leave out mistakes that are less probable.
        online: Judge each step from those before it alone.
        notes: Notes on how the track was read, which come first.
    """
    task, steps, taxonomy = track.task_id, track.steps, verifier.taxonomy
    if task is None:
        raise ConfigError(f"video '{track.video}': expected a task's id. Bind its names first.")
    # unknown names take ids after those of the taxonomy, of actions of no task
    unknown = dict.fromkeys(step.name for step in steps if step.action is None)
    first = len(taxonomy.actions)
    names = tuple(Action(number, name) for number, name in enumerate(unknown, first))
    ids = {action.name: action.id for action in names}
    whole = replace(verifier, taxonomy=replace(taxonomy, actions=taxonomy.actions + names))
    verification = whole.verify(
        stored(
            step if step.action is not None else step.model_copy(update={"action": ids[step.name]})
            for step in steps
        ),
        task,
        sure=[step.probability for step in steps],
        drawn=track.drawn,
        certainty=track.task_probability,
        online=online,
        least=least,
    )
    notes = [*notes]
    overlapping = sum(after.start < before.end - 1 for before, after in pairwise(steps))
    if overlapping > _OVERLAP * len(steps):
        notes.append(
            f"{overlapping} of {len(steps)} steps begin before the one before them ends; if "
            "several people are at work, verify each alone"
        )
    judged_steps = tuple(
        VerifiedStep(
            **{name: getattr(step, name) for name in TimedStep.model_fields},
            mistake=judgement.mistake,
            kinds=judgement.kinds,
        )
        for step, judgement in zip(steps, verification.steps, strict=True)
    )
    order = verifier.orders[task]
    if not (order.videos or order.given):
        shared = "; other tasks judge its steps" if verifier.knows(task) else ""
        notes.append(f"no video of the task was seen in training{shared}")
    return VerifiedVideo(
        **{name: getattr(track, name) for name in Track.model_fields}
        | {"task": taxonomy.tasks[task].name, "steps": judged_steps},
        deviations=tuple(
            one.model_copy(update={"action": None}) if one.action in ids.values() else one
            for one in verification.deviations
        ),
        unsure=verification.unsure,
        repair=tuple(taxonomy.names([*verification.repair])),
        notes=tuple(notes),
    )
