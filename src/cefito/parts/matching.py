"""Match a run with any data set: check that they fit, and translate windows to the run's ids.

Observations must have as many features as the run was trained on, made in the same way as far as
both records say. Tasks are matched by name, and actions by name within their task. If one known
entry has the name, every other entry of that name is it; if both sides have equally many, they are
paired by ascending ids; otherwise it is new.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Annotations, Video
from cefito.data.prepared import PreparedDataset, name_and_fingerprint
from cefito.data.vocabulary import Action, Task, Taxonomy, nfc
from cefito.data.windows import Windows, cut_windows
from cefito.errors import DataError, RunError
from cefito.markup import counted, listed, shortened
from cefito.parts.folder import DatasetReference, window_sizes
from cefito.parts.opened import OpenedRun
from cefito.settings import Record

logger = logging.getLogger(__name__)

_few = partial(listed, most=3)
_KNOWN = "%s was trained on videos of this split, too; scores on them are too good"
_UNKNOWN = (
    "%s does not say which videos it was trained on; if these are among them, scores are too good"
)
# Entries of an encoder's record that determine the features; its name may be a folder.
DECIDING = ("weights", "layer", "frames", "rate", "size", "sensors")


@dataclass(frozen=True)
class LeftOut:
    """Numbers of windows that were left out: new task, or new action of a known task."""

    new_task: int = 0
    new_action: int = 0

    def __bool__(self) -> bool:
        return bool(self.new_task or self.new_action)


@dataclass(frozen=True)
class VocabularyMatch:
    """The tasks and actions of a data set in a known vocabulary; the id −1 stands for new ones."""

    known: Taxonomy  # C tasks, K actions
    other: Taxonomy  # the data set's: C' tasks, K' actions
    tasks: NDArray[np.int64]  # known id of each task of the data set, [C']
    actions: NDArray[np.int64]  # known id of each action in each of its tasks, [C', K']

    @cached_property
    def same(self) -> bool:
        """Whether both vocabularies have the same tasks and actions under the same ids."""
        return self.known.tasks == self.other.tasks and self.known.actions == self.other.actions

    @cached_property
    def new_tasks(self) -> tuple[Task, ...]:
        """Tasks of the data set that are not known."""
        return tuple(task for task in self.other.tasks if self.tasks[task.id] < 0)

    @cached_property
    def new_actions(self) -> tuple[tuple[Task, Action], ...]:
        """New actions of known tasks, with their tasks."""
        return tuple(
            (task, self.other.actions[action])
            for task in self.other.tasks
            if self.tasks[task.id] >= 0
            for action in task.actions
            if self.actions[task.id, action] < 0
        )

    def translated(self, windows: Windows) -> tuple[Windows, LeftOut]:
        """Translate windows to known ids; leave out those of new tasks or actions, and the text.

        New actions before a window are left out of `before`.
        """

        def known(actions: NDArray[np.int64]) -> NDArray[np.int64]:
            """Return known ids of actions [N, T]; −1 stays."""
            return np.where(actions < 0, -1, self.actions[windows.tasks[:, None], actions])

        tasks, actions = self.tasks[windows.tasks], known(windows.actions)
        strange = ((actions < 0) & (windows.actions >= 0)).any(axis=1)
        kept = np.flatnonzero((tasks >= 0) & ~strange)
        left_out = LeftOut(int((tasks < 0).sum()), int((strange & (tasks >= 0)).sum()))
        before = None if windows.before is None else known(windows.before)
        predicted = windows.predicted
        if predicted is not None:
            predicted = np.where(predicted < 0, -1, self.tasks[predicted])
        translated = replace(
            windows,
            tasks=tasks,
            actions=actions,
            before=before,
            predicted=predicted,
            taxonomy=self.known,
            action_text=None,
        )
        return translated.subset(kept), left_out

    def translated_dataset(self, dataset: PreparedDataset) -> PreparedDataset:
        """Translate a data set all of whose tasks and actions are known, without predicted tasks.

        Raises:
            DataError: Names of tasks, or of actions of a task, are ambiguous.
        """

        def known(video: Video) -> Video:
            task, ids = int(self.tasks[video.task]), self.actions[video.task]
            steps = tuple(replace(step, action=int(ids[step.action])) for step in video.steps)
            missing = tuple(int(ids[action]) for action in video.missing)
            return replace(video, task=task, steps=steps, missing=missing, predicted={})

        videos = tuple(map(known, dataset.videos))
        if count := sum(
            min([video.task, *video.missing, *(step.action for step in video.steps)]) < 0
            for video in videos
        ):
            raise DataError(
                f"{dataset.folder}: {counted(count, 'video')} of tasks, or with actions within a "
                "task, whose names are ambiguous. Rename them."
            )
        text = dataset.action_text
        return replace(
            dataset,
            annotations=Annotations(self.known, videos),
            action_text=None if text is None else self.rows(text),
        )

    def rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Rearrange rows of the data set's actions [K', W] to known actions [K, W], or zeros."""
        result = np.zeros((len(self.known.actions), *values.shape[1:]), dtype=values.dtype)
        _, actions = np.nonzero(self.actions >= 0)
        result[self.actions[self.actions >= 0]] = values[actions]
        return result


def match_vocabulary(base: Taxonomy, other: Taxonomy) -> VocabularyMatch:
    """Find the tasks and actions of a data set (`other`) in a known vocabulary."""
    tasks = np.full(len(other.tasks), -1, dtype=np.int64)
    for theirs, ours in _paired(other.tasks, base.tasks).items():
        tasks[theirs] = ours
    actions = np.full((len(other.tasks), len(other.actions)), -1, dtype=np.int64)
    for task in other.tasks:
        if tasks[task.id] >= 0:
            pairs = _paired(_of(other, task), _of(base, base.tasks[tasks[task.id]]))
            for theirs, ours in pairs.items():
                actions[task.id, theirs] = ours
    return VocabularyMatch(known=base, other=other, tasks=tasks, actions=actions)


def extended_taxonomy(base: Taxonomy, other: Taxonomy) -> Taxonomy:
    """Append the new tasks and actions of a data set (`other`) to a known vocabulary.

    Known ids stay. An action that is new to its task takes the id of the known action of its name
    if the name is unique on both sides, and a new id otherwise. With new ids there is no shared
    vocabulary.
    """
    match = match_vocabulary(base, other)
    theirs = _by_name(other.actions)
    alone = {
        name: ids[0]
        for name, ids in _by_name(base.actions).items()
        if len(ids) == 1 and len(theirs.get(name, ())) <= 1
    }
    new_ids: dict[int, int] = {}  # new ids by ids of the data set
    names: list[str] = [action.name for action in base.actions]
    members = [set(task.actions) for task in base.tasks]
    titles = [task.name for task in base.tasks]

    def place(action: int) -> int:
        name = nfc(other.actions[action].name)
        if name in alone:
            return alone[name]
        if action not in new_ids:
            new_ids[action] = len(names)
            names.append(other.actions[action].name)
        return new_ids[action]

    for task, action in match.new_actions:
        base_task = base.tasks[match.tasks[task.id]]
        if any(nfc(entry.name) == nfc(action.name) for entry in _of(base, base_task)):
            several = f"has several actions '{action.name}' here or in the known vocabulary"
            raise DataError(f"task '{task.name}': {several}. Rename them.")
        members[base_task.id].add(place(action.id))
    for task in match.new_tasks:
        titles.append(task.name)
        members.append({place(action) for action in task.actions})
    tasks = zip(titles, members, strict=True)
    extended = Taxonomy.from_names(base.dataset, tasks, names)
    if new_ids:
        return extended
    return replace(extended, shared=base.shared, to_shared=base.to_shared)


def _paired(theirs: Iterable[Task | Action], ours: Iterable[Task | Action]) -> dict[int, int]:
    """Our id of each of their ids, by name; ids without a match are left out."""
    our_ids = _by_name(ours)
    pairs: dict[int, int] = {}
    for name, ids in _by_name(theirs).items():
        candidates = our_ids.get(name, [])
        if len(candidates) == 1:
            pairs |= dict.fromkeys(ids, candidates[0])
        elif len(candidates) == len(ids):
            pairs |= dict(zip(ids, candidates, strict=True))
        else:
            pairs |= {number: number for number in ids if number in candidates}
    return pairs


def _by_name(entries: Iterable[Task | Action]) -> dict[str, list[int]]:
    """Ascending ids of each name."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for entry in entries:
        ids[nfc(entry.name)].append(entry.id)
    return ids


def _of(taxonomy: Taxonomy, task: Task) -> list[Action]:
    return [taxonomy.actions[action] for action in task.actions]


class DatasetName(Record):
    """Identity of a data set."""

    name: str
    fingerprint: str

    @classmethod
    def of(cls, dataset: PreparedDataset | DatasetReference) -> DatasetName:
        """Identify a data set."""
        return cls(name=dataset.name, fingerprint=dataset.fingerprint)


class OtherDataset(Record):
    """Facts for scores on a data set that the run was not trained on."""

    dataset: DatasetName
    trained_on: DatasetName | None  # None for imported weights
    new_task: int  # windows left out because their task is new to the run
    new_action: int  # windows left out because an action is new to their known task
    tasks: tuple[str, ...]  # names of the data set's tasks that are new to the run
    actions: tuple[str, ...]  # actions of known tasks that are new to the run, as "task: action"
    known_videos: int | None  # scored videos that the run was trained or chosen on; None if unknown
    known_windows: int | None


@dataclass(frozen=True)
class DatasetMatch:
    """A run and a data set with observations of the same kind."""

    run: OpenedRun
    dataset: PreparedDataset
    vocabulary: VocabularyMatch  # its tasks and actions in the run's ids

    @property
    def own(self) -> bool:
        """Whether the run was trained on this data set."""
        return self.dataset.fingerprint == self.run.info.dataset.fingerprint

    def windows(self, split: str) -> tuple[Windows, OtherDataset | None]:
        """Return the windows of a split in the run's ids, and facts about another data set.

        Windows with tasks or actions that are new to the run are left out. The facts are also
        logged as warnings; they are None for the run's own data set.
        """
        run, left_out = self.run, None
        sizes = window_sizes(run.planner, run.horizon, run.shortest)
        windows = cut_windows(self.dataset, **sizes, split=split)
        if not self.vocabulary.same:
            windows, left_out = self.vocabulary.translated(windows)
        if not len(windows):
            raise RunError(
                f"{self.dataset.folder}: {self.run.place} knows none of the windows of split "
                f"'{split}'{_unknown(self.vocabulary)}. Give another data set, or teach the run "
                "this one by cefito finetune."
            )
        if self.own:
            learned = split != "train" and run.trained_on(self.dataset, windows.video)
            if learned is not False:
                logger.warning(_KNOWN if learned else _UNKNOWN, run.place)
            return windows, None
        other = self._other(windows, left_out or LeftOut())
        self._warn(other, len(windows), split)
        return windows, other

    def _other(self, windows: Windows, left_out: LeftOut) -> OtherDataset:
        run = self.run
        trained, is_known = run.info.dataset, None
        videos, counts = np.unique(windows.video, return_counts=True)
        if run.videos is not None:
            is_known = run.videos.known(self.dataset.videos[video].video_id for video in videos)
        return OtherDataset(
            dataset=DatasetName.of(self.dataset),
            trained_on=DatasetName.of(trained) if trained.fingerprint else None,
            new_task=left_out.new_task,
            new_action=left_out.new_action,
            tasks=tuple(task.name for task in self.vocabulary.new_tasks),
            actions=tuple(
                f"{task.name}: {action.name}" for task, action in self.vocabulary.new_actions
            ),
            known_videos=None if is_known is None else int(is_known.sum()),
            known_windows=None if is_known is None else int(counts[is_known].sum()),
        )

    def _warn(self, other: OtherDataset, count: int, split: str) -> None:
        place = self.dataset.folder
        if other.trained_on is not None:
            logger.warning(
                "%s ('%s', fingerprint %s) is not the data set that %s was trained on ('%s', %s)",
                place,
                other.dataset.name,
                other.dataset.fingerprint[:12],
                self.run.place,
                other.trained_on.name,
                other.trained_on.fingerprint[:12],
            )
        left_out = other.new_task + other.new_action
        if left_out:
            logger.warning(
                "%s: %d of %d windows of split '%s' are left out, %d of tasks and %d with actions "
                "that the run does not know%s",
                place,
                left_out,
                count + left_out,
                split,
                other.new_task,
                other.new_action,
                _unknown(self.vocabulary),
            )
        if other.known_videos is None:
            logger.warning(_UNKNOWN, self.run.place)
        elif other.known_videos:
            logger.warning(
                "%s: the run has seen %d of the videos scored in its training (%d of %d windows), "
                "so that scores are too good",
                place,
                other.known_videos,
                other.known_windows,
                count,
            )


def match_dataset(run: OpenedRun, dataset: PreparedDataset) -> DatasetMatch:
    """Match a run with a data set; a RunError lists all differences if it cannot be used on it."""
    vocabulary = match_vocabulary(run.taxonomy, dataset.taxonomy)
    check_observed(run, dataset, vocabulary)
    if len(vocabulary.new_tasks) == len(dataset.taxonomy.tasks):
        raise RunError(
            f"{dataset.folder}: does not agree with what {run.place} was trained on"
            f"{_unknown(vocabulary)}. Give another data set, or teach the run this one by cefito "
            "finetune.",
            setting="dataset",
        )
    return DatasetMatch(run=run, dataset=dataset, vocabulary=vocabulary)


def named_dataset(run: OpenedRun, path: Path | None) -> DatasetName | None:
    """Identify the data set at a path; None if it is the run's own, or no path is given."""
    if path is None:
        return None
    name, fingerprint = name_and_fingerprint(path)
    if fingerprint == run.info.dataset.fingerprint:
        return None
    return DatasetName(name=name, fingerprint=fingerprint)


def check_observed(
    run: OpenedRun, dataset: PreparedDataset, vocabulary: VocabularyMatch | None = None
) -> None:
    """Refuse observations of another kind (RunError); warn if unknown.

    Args:
        run: The run.
        dataset: The data set of the observations.
        vocabulary: Translation of its ids to those of the run, if they differ.
    """
    if dataset.fingerprint == run.info.dataset.fingerprint:
        return
    wrong = []
    width, expected = dataset.observation_dim, run.planner.observation_dim
    if width != expected:
        wrong.append(f"observations have {width} features; this run was trained on {expected}")
    trained, made = run.info.dataset.made(), DatasetReference.of(dataset).made()
    wrong += _differences(made, trained)
    if wrong:
        raise RunError(
            f"{dataset.folder}: does not agree with what {run.place} was trained on: "
            f"{'; '.join(wrong)}{'' if vocabulary is None else _unknown(vocabulary, start='; ')}. "
            "Prepare the data set like the run's.",
            setting="dataset",
        )
    if not made or not trained:
        logger.warning(
            "%s does not say how its observations were made; scores and plans make sense only if "
            "%s were made in the same way",
            dataset.folder if not made else run.place,
            "the run's" if not made else f"the observations of {dataset.folder}",
        )


def _differences(made: Mapping[str, Any], trained: Mapping[str, Any]) -> list[str]:
    """Differences between two records of how observations were made, as far as both say."""
    differences = []
    if made and trained and ("simulation" in made) != ("simulation" in trained):
        simulated, from_videos = ("simulated", "from videos")
        return [
            f"observations are {simulated if 'simulation' in made else from_videos} instead of "
            f"{from_videos if 'simulation' in made else simulated}"
        ]
    for section, what in (
        ("", ""),
        ("features", "features of "),
        ("simulation", "simulation with "),
    ):
        ours, theirs = (
            value if not section else value.get(section) or {} for value in (trained, made)
        )
        names = {"": ("seconds",), "features": DECIDING}.get(section, sorted({*ours, *theirs}))
        if not ours or not theirs:
            continue
        if section == "features" and ("weights" not in ours or "weights" not in theirs):
            names = ("model", *names)
        differences += [
            f"{what}{name} = {shortened(repr(theirs.get(name)), 40)} instead of "
            f"{shortened(repr(ours.get(name)), 40)}"
            for name in names
            if (name in ours or name in theirs) and ours.get(name) != theirs.get(name)
        ]
    return differences


def _unknown(vocabulary: VocabularyMatch, start: str = ": ") -> str:
    """Tasks and actions that are new to the run, a few by name; empty if there are none."""
    tasks, actions = vocabulary.new_tasks, vocabulary.new_actions
    parts = []
    if tasks:
        names = [f"'{task.name}'" for task in tasks]
        parts.append(
            f"new to the run: {len(tasks)} of its {counted(len(vocabulary.other.tasks), 'task')} "
            f"({_few(names)})"
        )
    if actions:
        names = [f"'{action.name}' of '{task.name}'" for task, action in actions]
        parts.append(f"new to their tasks: {counted(len(actions), 'action')} ({_few(names)})")
    return start + "; ".join(parts) if parts else ""
