"""What was wrong in whole videos: steps that are given, or recognised first, against a verifier.

A verifier is part of a run, or learned from a written procedure or a table of right or labelled
videos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Unpack

from pydantic import Field, PlainSerializer

from cefito.data.vocabulary import Action, Taxonomy, find_task, name_or_id
from cefito.errors import ConfigError, DataError
from cefito.inference.constraints import Name
from cefito.inference.recordings import Failed, Recording, raised
from cefito.inference.verifiers import edited_orders, learned_verifier
from cefito.inference.whole_videos import UNNAMED, Reading, Source, limits_of_film, recordings_of
from cefito.markup import counted, listed, percent, step_times
from cefito.parts.opened import OpenedRun
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import choices_of_each, groups, holds_steps, read_each
from cefito.tracks.track import TimedStep, bound, stored
from cefito.verification.correction import corrected_steps
from cefito.verification.findings import LEAST, Deviation, StepJudgement, UnseenStep, UnsureStep
from cefito.verification.order_files import read_graphs, written_orders
from cefito.verification.promise import Promise
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import Verifier

Right = OpenedRun | Path | str
"""A run or its folder, a folder of `cefito data procedure`, or a file of right videos' steps."""
Promised = Callable[[bool], Promise | None]
"""The promise of false alarms in videos whose steps are given, or, if true, recognised."""
CAUTION = (
    "A film without a finding can still contain a mistake, most often where two steps look alike"
)
"""What is to be said with findings of films."""
_AS_WRITTEN = Choices()
# findings in a film, and a third of its steps, from which on it may be another task's; with doubts
# they are more than that, and than its steps
_MANY = 3
_OVERLAP = 0.3  # share of the steps from which on more than one person may be at work


class VerifiedStep(TimedStep, StepJudgement):
    """A step in time, and how probable it is that it was a mistake."""

    @property
    def certainty(self) -> float:
        """p(it was done)."""
        wrong = self.recognised_wrongly
        return self.probability if wrong is None else 1 - wrong


def _judged_steps(steps: tuple[VerifiedStep, ...]) -> list[dict[str, Any]]:
    return [step.model_dump(exclude={"action", "errors"}) for step in steps]


class VerifiedVideo(Track):
    """What was wrong in a video, and how to go on."""

    recognised: bool = True  # whether the steps were recognised, else they were given
    steps: Annotated[tuple[VerifiedStep, ...], PlainSerializer(_judged_steps)]
    deviations: tuple[Deviation, ...]  # the likeliest first
    # usual steps of a film of which it is not sure whether they were done
    unsure: tuple[UnsureStep, ...] = Field((), exclude_if=lambda steps: not steps)
    # the other steps of the task that were not seen
    unseen: tuple[UnseenStep, ...] = Field((), exclude_if=lambda steps: not steps)
    # why mistakes of a film may go unseen; empty if its steps were given, or enough was seen
    limits: tuple[str, ...] = Field((), exclude_if=lambda limits: not limits)
    # of false alarms, if it chose what is left out
    promise: Promise | None = Field(None, exclude_if=lambda promise: promise is None)
    repair: tuple[str, ...]  # names of the actions that lead to the end
    notes: tuple[str, ...] = ()

    @property
    def left_open(self) -> tuple[str, ...]:
        """What is not known of it: steps that are not sure, and why mistakes may go unseen."""
        return (*(step.text for step in self.unsure), *self.limits)

    def passed_over(self, least: float = 0.0) -> tuple[str, ...]:
        """Return the other steps that were not seen, with words on those at least this probable."""
        return tuple(
            f"{one.name} ({percent(one.probability)} missing; {one.evidence})"
            if one.probability is not None and one.probability >= least
            else one.name
            for one in self.unseen
        )

    @property
    def condition(self) -> str:
        """On what it depends that steps are left to do, in words; empty if that is sure."""
        if self.task_probability <= 0.5:
            return f", if it is '{self.task}'"
        return ", unless done unseen" * (self.recognised and not self.deviations)

    def to_dict(self) -> dict[str, Any]:
        """Convert to a value for JSON."""
        beside = {"task_id", "annotated", "file", "split"}
        return self.model_dump(mode="json", exclude_none=True, exclude=beside)


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
        verifier = verifier.given(read_graphs(Path(order), verifier.taxonomy))
    return opened, verifier


def steps_file(right: Right) -> Path | None:
    """Return the path of a file of steps; None if it is a run, or a folder."""
    if isinstance(right, OpenedRun) or Path(right).is_dir() or not holds_steps(Path(right)):
        return None
    return Path(right)


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
    first = choices_of_each([run, source], choices).get(steps_file(run) or Path(), choices)
    opened, verifier = open_verifier(run, order, task=task, choices=first, online=online)
    promise = promised(verifier, false_alarms, per_steps=per_steps, online=online)
    if isinstance(source, Track):
        track = _bound_track(source, verifier.taxonomy, _task_in(verifier.taxonomy, task))
        own = promise(False)
        least = least if own is None else own.least
        return _with_promise(verified(verifier, track, least=least, online=online), own)
    asked: dict[str, Any] = {"task": task, "least": least, "online": online, "choices": choices}
    asked |= {"promise": promise, "video": video or UNNAMED}
    videos = verified_videos(
        run if opened is None else opened, verifier, [source], **asked, **reading
    )
    chosen = [one for one in videos if video in (None, one.video)]
    if len(chosen) != 1:
        names = listed([one.video for one in videos], most=5)
        raise ConfigError(f"{source}: holds the videos {names}. Name one.", setting="video")
    return chosen[0]


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
    """Return a video with the promise that chose its findings, perhaps in `given` steps."""
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
    video: str = UNNAMED,
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
    from cefito.encoders.extraction import SUFFIXES

    task_id = _task_in(verifier.taxonomy, task)
    recipe = right.info.dataset.recipe if isinstance(right, OpenedRun) else None
    files = [
        source
        for source in sources
        if isinstance(source, str | Path)
        and not reading.get("dataset")
        # a page of a failed download may be called a film
        and not str(source).lower().endswith(SUFFIXES)
        and holds_steps(Path(source))
        and not (recipe is not None and recipe.reads(Path(source)))
    ]
    failed = reading.get("failed", raised)
    videos = list[VerifiedVideo]()
    if files:
        own = promise(False)
        given_files = right, verifier.taxonomy, [*map(Path, files)], choices, task_id
        how: dict[str, Any] = {"least": least if own is None else own.least, "online": online}
        for track, notes in _given_steps(*given_files, failed):
            videos.append(_with_promise(verified(verifier, track, **how, notes=notes), own))
    others = [source for source in sources if not any(source is file for file in files)]
    if not others:
        return videos
    if not isinstance(right, OpenedRun):
        problem = "with a procedure or a table, inputs are files of steps (.csv, .eaf, …)"
        raise ConfigError(f"{problem}. Give a run.")
    own = promise(True)
    least = least if own is None else own.least
    given, group = online or not len(verifier.films.hours), groups(choices.video_table)
    for whole in recordings_of(right, others, video, reading):
        try:
            track = _recognised(right, whole, task_id, video)
        except (ConfigError, DataError) as problem:
            failed(problem)
            continue
        judged_video = verified(verifier, track, least=least, online=online)
        limits = limits_of_film(right, verifier, track.task_id, track.task_probability)
        beside = {"limits": limits, "group": group(whole.file or whole.name)}
        judged_video = judged_video.model_copy(update=beside)
        videos.append(_with_promise(judged_video, own, given=given))
    return videos


def _recognised(run: OpenedRun, whole: Recording, task: int | None, video: str) -> Track:
    """Recognise the steps of a video to verify; a ConfigError if there are none."""
    whole.check_task(run, task)
    track = whole.recognised(run, task=task, doubt=True)
    if not track.steps:
        problem = "no step was recognised."
        if task is not None:
            named = run.taxonomy.tasks[task].name
            problem = f"no step of '{named}' was recognised. Leave the task out to recognise it."
        raise ConfigError(f"{whole.place or video}: {problem}")
    return track


def _given_steps(
    right: Right,
    taxonomy: Taxonomy,
    paths: list[Path],
    choices: Choices,
    task: int | None,
    failed: Failed,
) -> Iterator[tuple[Track, Sequence[str]]]:
    """Yield the steps that files give, and of each file's first video notes on how it was read."""
    if task is not None:
        choices = choices.model_copy(update={"task": taxonomy.tasks[task].name})
    for path, tracks in read_each(paths, choices, failed, [right]):
        notes = tracks.notes
        try:
            videos = judged(right, path, tracks.tracks)
        except (ConfigError, DataError) as problem:
            failed(problem)
            continue
        asked: dict[str, Any] = {"task": task, "place": path, "failed": failed}
        for track in bound(videos, taxonomy, **asked, unknown=True):
            yield track, notes
            notes = ()


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
        problem = "is what was learned from, and has no videos of the split test to judge"
        remedy = "Give the videos to judge in another file, or name them 'test' in a column split"
        raise ConfigError(f"{path}: {problem}. {remedy}.")
    return kept


def verified_film(
    run: OpenedRun, film: Recording, task: Name | None = None
) -> VerifiedVideo | None:
    """Recognise the steps of a film, and verify them; None without a verifier, or without steps.

    Args:
        run: A run with a recogniser.
        film: The film's rows.
        task: Id or name of the task; None to have it recognised.
    """
    if run.verifier is None:
        return None
    task_id = None if task is None else find_task(run.taxonomy, task)
    track = film.recognised(run, task=task_id, doubt=True)
    return verified(run.own_verifier, track, least=LEAST) if track.steps else None


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
    task, steps, taxonomy, notes = track.task_id, track.steps, verifier.taxonomy, [*notes]
    if task is None:
        raise ConfigError(f"video '{track.video}': expected a task's id. Bind its names first.")
    order = verifier.orders[task]
    if track.drawn:
        steps, changes = corrected_steps(steps, order, taxonomy, finished=not online)
        notes += changes
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
    overlapping = sum(after.start < before.end - 1 for before, after in pairwise(steps))
    if overlapping > _OVERLAP * len(steps):
        notes.append(
            f"{overlapping} of {len(steps)} steps began before the previous step had ended; if "
            "several people are at work, verify each alone"
        )
    count = sum(deviation.probability >= LEAST for deviation in verification.deviations)
    seldom = sum(one.probability < verifier.config.unsure for one in verification.deviations)
    doubts = len(verification.deviations) - count - seldom + len(verification.unsure)
    many = count >= max(_MANY, len(steps) / 3) or count + doubts > max(_MANY, len(steps))
    if track.drawn and many and track.task_probability > 0.5:  # else the film's limits say it
        problem = f"{counted(count, 'finding')} and {counted(doubts, 'doubt')}"
        problem += f" among {counted(len(steps), 'step')} are many for one film"
        notes.append(f"{problem}: it may show another task, or none that is known")
    judged_steps = tuple(
        VerifiedStep(
            **{name: getattr(step, name) for name in TimedStep.model_fields}, **dict(judgement)
        )
        for step, judgement in zip(steps, verification.steps, strict=True)
    )
    if not (order.videos or order.given):
        shared = "; other tasks judge its steps" if verifier.knows(task) else ""
        notes.append(f"no right step of the task was seen in training{shared}")
    return VerifiedVideo(
        **{name: getattr(track, name) for name in Track.model_fields}
        | {"task": taxonomy.tasks[task].name, "steps": judged_steps},
        deviations=tuple(
            one.model_copy(update={"action": None}) if one.action in ids.values() else one
            for one in verification.deviations
        ),
        unsure=verification.unsure,
        unseen=verification.unseen,
        repair=tuple(taxonomy.names([*verification.repair])),
        notes=tuple(notes),
    )


def _bound_track(track: Track, taxonomy: Taxonomy, task: int | None) -> Track:
    """Return a track of a program with ids, its steps in the order of their times."""
    place = f"video '{track.video}'"
    if task is None and not track.task:
        raise ConfigError(f"{place}: names no task. Give it, too.", setting="task")
    for number, step in enumerate(track.steps, 1):
        step_times(step.start, step.end, place=f"{place}, step {number}")
    (ours,) = bound([track], taxonomy, task=task, unknown=True)
    steps = sorted(ours.steps, key=lambda step: (step.start, step.end))
    # steps that were drawn hold ids, which another run does not share
    return ours.model_copy(update={"steps": tuple(steps), "drawn": None})


def _task_in(taxonomy: Taxonomy, task: Name | None) -> int | None:
    """Return the id of a task; None if it is to be recognised."""
    return None if task is None else find_task(taxonomy, task)


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
