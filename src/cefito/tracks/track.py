"""`Track`: the steps in time of a video, as people annotate them or as they are recognised.

`bound` finds the ids of names in a taxonomy, and `named` the names of ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PlainSerializer

from cefito.data.annotations import SPLITS, Step, Video
from cefito.data.vocabulary import Taxonomy, find_actions, find_task
from cefito.errors import CefitoError, ConfigError, DataError, explained
from cefito.markup import plain, step_times
from cefito.settings import Record

if TYPE_CHECKING:
    import pandas


_FACTS = ("task_id", "task_probability", "recognised", "seconds", "split", "group", "file")
"""Facts of a video in tables of pandas, beside its name and task."""
_EXPECTED = "Expected a name, seconds with 0 ≤ start ≤ end, and a probability from 0 to 1."


def _pandas() -> ModuleType:
    with explained(
        "pandas", "is needed", "Run: pip install pandas", ImportError, error=ConfigError
    ):
        return import_module("pandas")


# in the languages of the page, too
_NO = "", "no", "n", "false", "0", "none", "-", "nein", "non", "否", "いいえ"
_YES = "yes", "y", "true", "1", "ja", "oui", "sí", "si", "是", "はい"
_MISSING = re.compile(r"(?:missing|fehlt|manque|manquante|falta|缺失|欠落)\s*[:：]\s*(.+)", re.I)


def error_kinds(label: str) -> tuple[str, ...]:
    """Return the kinds of errors that a label says: none, "error", or what it names."""
    word = label.casefold()
    if word in _NO:
        return ()
    kinds = (kind.strip() for kind in label.split(";"))
    return ("error",) if word in _YES else tuple(kind for kind in kinds if kind)


def missing_step(kind: str) -> str | None:
    """Return the name in a kind such as "missing: pour"; None if it is of a step that was done."""
    found = _MISSING.fullmatch(kind)
    return found and found[1]


class TimedStep(Record):
    """A step in time."""

    # id; None until the name is bound to a taxonomy
    action: int | None = Field(None, exclude_if=lambda action: action is None)
    name: str
    start: float  # seconds
    end: float  # seconds
    probability: float = 1.0  # mean over its rows, if it was recognised
    # kinds of what was done wrongly; "missing: pour" is of the video, which lacks the step "pour"
    errors: tuple[str, ...] = Field((), exclude_if=lambda errors: not errors)

    @property
    def wrong(self) -> tuple[str, ...]:
        """Kinds of what was done wrongly in this step."""
        return tuple(kind for kind in self.errors if missing_step(kind) is None)


def _times(steps: tuple[TimedStep, ...] | None) -> list[dict[str, Any]] | None:
    if steps is None:
        return None
    return [{"name": step.name, "start": step.start, "end": step.end} for step in steps]


GivenSteps = Annotated[tuple[TimedStep, ...], PlainSerializer(_times)]
"""Steps of which JSON holds name, start and end alone."""


class Track(Record):
    """Steps in time of a video, in the order of their times."""

    video: str
    # None until names are bound to a taxonomy
    task_id: int | None = Field(None, exclude_if=lambda task: task is None)
    task: str
    task_probability: float = 1.0
    # whether the steps were recognised, else a person gave them
    recognised: bool = Field(True, exclude_if=bool)
    seconds: float  # length of the video; the end of its last step if it is not known
    steps: tuple[TimedStep, ...]
    # sequences of steps drawn as probable as they are, if they were recognised; not written
    drawn: tuple[tuple[Step, ...], ...] | None = Field(None, exclude=True)
    annotated: GivenSteps | None = None  # beside recognised steps; None if they are not known
    file: str | None = None  # the video file, if its rows are of one
    tier: str = Field("", exclude=True)  # of annotation tools, in which the steps are written
    split: str = Field("", exclude_if=lambda split: not split)  # empty if it is not known
    group: str = Field("", exclude_if=lambda group: not group)  # the same

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the steps that should have been done and were not, as people say."""
        names = (missing_step(kind) for step in self.steps for kind in step.errors)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def tier_name(self) -> str:
        """Name of the tier in which its steps are written."""
        return plain(self.tier) or "steps"

    @property
    def media(self) -> str:
        """Path of the video file; one of a common ending if it is not known."""
        return self.file or f"{self.video}.mp4"

    def to_dict(self) -> dict[str, Any]:
        """Convert to a value for JSON."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_frame(self) -> pandas.DataFrame:
        """Convert to a pandas table of one line a step, which repeats the facts of the video.

        Its columns are video, task, step, start, end (seconds) and probability, and task_id,
        action, error (kinds with ";" between), split, group, seconds, task_probability, recognised
        and file. Annotated and drawn steps are left out.

        Raises:
            ConfigError: pandas is not installed.
        """
        facts = {name: getattr(self, name) for name in _FACTS}
        rows = [
            {
                **{"video": self.video, "task": self.task, "step": step.name},
                **{"start": step.start, "end": step.end, "probability": step.probability},
                **{"action": step.action, "error": ";".join(step.errors), **facts},
            }
            for step in self.steps
        ]
        columns = ["video", "task", "step", "start", "end", "probability", "action", "error"]
        return _pandas().DataFrame(rows, columns=[*columns, *_FACTS])

    @classmethod
    def from_frame(cls, frame: pandas.DataFrame) -> Self:
        """Make a track of a pandas table of the steps of one video, as `to_frame` makes it.

        Columns video, step, start and end are needed; without `recognised`, people annotated the
        steps. Tables of several videos are first taken apart: `frame.groupby("video")`.

        Raises:
            ConfigError: pandas is not installed; no line, a column is missing, lines of several
                videos, tasks or other facts of a video, or a value is not of its kind.
        """
        missing = {"video", "step", "start", "end"} - {*frame.columns}
        names = [name for name in ("video", "task", *_FACTS) if name in frame.columns]
        several = [name for name in names if frame[name].nunique() > 1]
        if missing or several or not frame["video"].nunique():
            fault = f"has no column '{min(missing)}'" if missing else "holds no video"
            fault = f"holds several values of '{several[0]}'" if several else fault
            expected = "Give lines with video, step, start and end, of one video"
            raise ConfigError(f"the table of steps {fault}. {expected}.")
        empty = _pandas().isna
        facts, steps = dict[str, Any](task="", recognised=False), list[TimedStep]()
        for number, line in enumerate(frame.to_dict("records"), 1):
            place, kinds = f"the table of steps, line {number}", (DataError, ValueError)
            cells = {name: value for name, value in line.items() if not empty(value)}
            facts |= {name: cells[name] for name in names if name in cells}
            with explained(place, "is no step", _EXPECTED, *kinds, error=ConfigError):
                start, end = step_times(cells.get("start"), cells.get("end"), place=place)
                kept = {name: cells[name] for name in ("action", "probability") if name in cells}
                kept |= {"name": cells.get("step", ""), "start": start, "end": end}
                step = TimedStep(**kept, errors=error_kinds(str(cells.get("error", ""))))
                if not step.name.strip() or not 0 <= step.probability <= 1:
                    said = f"its name is {step.name!r}, its probability {step.probability:g}"
                    raise ValueError(said)
            steps.append(step)
        steps.sort(key=lambda step: (step.start, step.end))
        facts = {"seconds": max(step.end for step in steps), **facts, "steps": steps}
        with explained("the table of steps", "is of no video", "", ValueError, error=ConfigError):
            if (split := facts.get("split", "")) not in ("", *SPLITS):
                raise ValueError(f"split is '{split}'; expected one of {', '.join(SPLITS)}")
            return cls.model_validate(facts)


def named(steps: Iterable[Step], taxonomy: Taxonomy) -> tuple[TimedStep, ...]:
    """Return steps of a data set with the names of their actions."""
    return tuple(TimedStep(name=taxonomy.actions[step.action].name, **vars(step)) for step in steps)


def bound(
    tracks: Iterable[Track],
    taxonomy: Taxonomy,
    *,
    task: int | None = None,
    place: object = "",
    unknown: bool = False,
    failed: Callable[[CefitoError], object] | None = None,
) -> Iterator[Track]:
    """Yield tracks with the ids that a taxonomy has for the names of their tasks and steps.

    Args:
        tracks: The tracks.
        taxonomy: The taxonomy.
        task: Id of the task of all tracks; that of the name of each by default.
        place: The file, for messages.
        unknown: Whether names of steps may be unknown, which stay without an id.
        failed: Takes the error of a track, which is left out; by default it is raised.

    Raises:
        ConfigError: A name that the taxonomy does not hold; the message names the video.
    """
    tasks: dict[str, int] = {}
    actions: dict[tuple[int, str], int | None] = {}
    for track in tracks:
        try:
            if task is None and track.task not in tasks:
                tasks[track.task] = find_task(taxonomy, f"name:{track.task}")
            task_id = tasks[track.task] if task is None else task
            for step in track.steps:
                if (task_id, step.name) not in actions:
                    try:
                        ids = find_actions(taxonomy, f"name:{step.name}", task=task_id)
                    except ConfigError:
                        if not unknown:
                            raise
                        ids = ()
                    actions[task_id, step.name] = ids[0] if ids else None
        except ConfigError as problem:
            said = f"{place}{', ' if place else ''}video '{track.video}': {problem}"
            named = ConfigError(said, setting=problem.setting)
            if failed is None:
                raise named from problem
            failed(named)
            continue
        steps = tuple(
            step.model_copy(update={"action": actions[task_id, step.name]}) for step in track.steps
        )
        yield track.model_copy(update={"task_id": task_id, "steps": steps})


def stored(steps: Iterable[TimedStep]) -> tuple[Step, ...]:
    """Return steps with ids as those of a data set (ConfigError if one is not bound to it)."""
    rows = []
    for step in steps:
        if step.action is None:
            raise ConfigError(f"step '{step.name}': expected an action's id. Bind its name first.")
        rows.append(Step(step.start, step.end, step.action, step.wrong))
    return tuple(rows)


def annotated_videos(tracks: Iterable[Track], taxonomy: Taxonomy) -> Iterator[Video]:
    """Yield the videos of a data set that tracks make; those without a split are for training.

    Raises:
        ConfigError: A name that the taxonomy does not hold, also of a missing step.
    """
    for track in bound(tracks, taxonomy):
        task, missing = track.task_id or 0, list[int]()
        for name in track.missing:
            try:
                missing += find_actions(taxonomy, f"name:{name}", task=task)[:1]
            except ConfigError as problem:
                raise ConfigError(f"video '{track.video}', missing: {problem}") from problem
        steps, split = stored(track.steps), track.split or "train"
        yield Video(track.video, split, task, steps, missing=tuple(missing), group=track.group)
