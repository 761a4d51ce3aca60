"""Windows: T consecutive annotated steps of a video, stride 1, as the unified protocol cuts them.

The initial observation is at the start of the first step, the goal at the end of the last. Steps
keep annotation order; videos shorter than T or outside the protocol give no windows.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import row_numbers
from cefito.data.annotations import SPLITS, Video
from cefito.data.folds import are_grouped, drawn_groups, group_numbers
from cefito.data.prepared import PreparedDataset
from cefito.data.vocabulary import Taxonomy
from cefito.errors import DataError
from cefito.files import aligned
from cefito.markup import counted

Selection = Literal["held-out", "published"]
"""Split on which epochs and weights are chosen: validation, or test as published (optimistic)."""
Errors = Literal["keep", "windows", "videos"]
"""What is left out of training and validation: nothing, windows with an error, or such videos."""

HELD_OUT_SHARE = 0.1
HELD_OUT_SEED = 20260501
FEW_VIDEOS = 10
"""Number of training videos below which a single validation video causes a warning."""

logger = logging.getLogger(__name__)

_ARRAYS = ("initial", "goal", "actions", "tasks", "video", "start")
_OPTIONAL = ("before", "remaining", "elapsed", "predicted", "wrong", "scenes", "groups")


@dataclass(frozen=True)
class Windows:
    """N windows of one horizon T, or of all lengths up to it.

    Args:
        initial: Initial observations [N, E].
        goal: Goal observations [N, E].
        actions: Action ids [N, T]; −1 after the last action of a shorter window.
        tasks: Task ids [N].
        video: Index of the video in the data set [N].
        start: Index of the first step in its video [N].
        taxonomy: Tasks and actions.
        action_text: Text vectors of the actions [K, W]; None without them.
        dataset: Name of the data set.
        split: "train", "val" or "test".
        before: Of several lengths, actions of the video before the window, oldest first, −1 after
            the last [N, D].
        remaining: Of several lengths, steps from the window's first to the video's last [N].
        elapsed: Of several lengths, seconds from the initial observation to the goal, NaN if
            unknown [N].
        predicted: Task stored with the data set [N]; −1 if unknown.
        wrong: Whether a step of the window was done wrongly [N]; None if the data set names no
            errors.
        scenes: `Scene` of the initial observation and of the goal [N, 2]; None without films.
        groups: Number of the group of the video [N]; None if no videos share a group.
    """

    initial: NDArray[np.float32]
    goal: NDArray[np.float32]
    actions: NDArray[np.int64]
    tasks: NDArray[np.int64]
    video: NDArray[np.int64]
    start: NDArray[np.int64]
    taxonomy: Taxonomy
    action_text: NDArray[np.floating[Any]] | None
    dataset: str
    split: str
    before: NDArray[np.int64] | None = None
    remaining: NDArray[np.int64] | None = None
    elapsed: NDArray[np.float32] | None = None
    predicted: NDArray[np.int64] | None = None
    wrong: NDArray[np.bool_] | None = None
    scenes: NDArray[np.object_] | None = None
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for name in ("initial", "goal"):
            object.__setattr__(self, name, aligned(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        several = "at most " * (self.before is not None)
        return (
            f"Windows({len(self)} of {several}{self.horizon} actions, {self.initial.shape[1]} "
            f"features, split {self.split!r} of {self.dataset!r})"
        )

    @property
    def units(self) -> NDArray[np.int64]:
        """Number of each one's group, of several, else of its video [N]: what is independent."""
        if self.groups is None or len(np.unique(self.groups)) < 2:
            return self.video
        return self.groups

    @property
    def horizon(self) -> int:
        """T, the number of actions of each window, or of the longest."""
        return int(self.actions.shape[1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of actions of each window [N]."""
        return np.asarray((self.actions >= 0).sum(axis=1))

    @property
    def ends(self) -> NDArray[np.int64]:
        """First and last action of each window [N, 2]."""
        last = self.actions[np.arange(len(self)), self.lengths - 1]
        return np.stack([self.actions[:, 0], last], axis=1)

    def of_length(self, length: int) -> Windows:
        """The windows of one length, without padding."""
        windows = self.subset(np.flatnonzero(self.lengths == length))
        return replace(windows, actions=windows.actions[:, :length])

    def subset(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> Windows:
        """The windows of the given rows, in their order."""
        index = row_numbers(rows)
        optional = (name for name in _OPTIONAL if getattr(self, name) is not None)
        arrays: dict[str, Any] = {
            name: getattr(self, name)[index] for name in (*_ARRAYS, *optional)
        }
        return replace(self, **arrays)

    def sample(self, size: int | None, seed: int) -> Windows:
        """A fixed random sample of at most `size` windows, in their order; all if None."""
        rows = self.sample_rows(size, seed)
        return self if len(rows) == len(self) else self.subset(rows)

    def sample_rows(self, size: int | None, seed: int) -> NDArray[np.int64]:
        """Rows of `sample`."""
        if size is None or size >= len(self):
            return np.arange(len(self))
        rows = np.random.default_rng(seed).choice(len(self), size=size, replace=False)
        return np.sort(rows)


_UNTESTED = (
    "Mark some videos as 'test', or score a method by folds (cefito cross-validate DATA), or the "
    "run on the videos that it learned from (--split train), which says little of new ones. What "
    "was wrong in films, and how long steps took: cefito verify RUN FILMS/*.mp4 --out "
    "findings.html, or findings.xlsx."
)


class NoVideosError(DataError):
    """No video was kept for test."""


def split_videos(videos: Sequence[Video]) -> dict[str, list[int]]:
    """Indices of the videos of each split, always with a validation split.

    If the data set has none, 10 % of the training videos of each task are held out (at least one of
    five or more), by a fixed seed. If no task has five, one video of at least median length of the
    largest task is held out, unless it is the only one. Where training videos share a group, whole
    groups are held out, with about 10 % of all. Videos outside the protocol are left out.
    """
    splits: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for index, video in enumerate(videos):
        if video.in_protocol:
            splits[video.split].append(index)
    if splits["val"]:
        return splits
    by_task: dict[int, list[int]] = defaultdict(list)
    for index in splits["train"]:
        by_task[videos[index].task].append(index)
    generator = np.random.default_rng(HELD_OUT_SEED)
    grouped = drawn_groups(
        [videos[index] for index in splits["train"]], HELD_OUT_SHARE, HELD_OUT_SEED
    )
    held = {splits["train"][place] for place in grouped}
    for task in [] if held else sorted(by_task):
        members = by_task[task]
        count = round(HELD_OUT_SHARE * len(members)) or int(len(members) >= 5)
        held.update(int(index) for index in generator.choice(members, size=count, replace=False))
    if not held and len(splits["train"]) > 1:
        lengths = {index: len(videos[index].steps) for index in splits["train"]}
        members = max(by_task.values(), key=len)
        median = sorted(lengths[index] for index in members)[len(members) // 2]
        long = [index for index in members if lengths[index] >= median]
        held = {int(generator.choice(long))}
    splits["val"] = sorted(held)
    splits["train"] = [index for index in splits["train"] if index not in held]
    return splits


def steps_text(horizon: int, shortest: int | None) -> str:
    """Number of actions of windows or plans, such as "3", or "1-6" if the shortest has fewer."""
    return str(horizon) if shortest is None else f"{shortest}-{horizon}"


def count_windows(videos: Iterable[Video], horizon: int) -> int:
    """Number of windows of a horizon in the videos."""
    return sum(max(0, len(video.steps) - horizon + 1) for video in videos if video.in_protocol)


def cut_windows(
    dataset: PreparedDataset, *, horizon: int, split: str, shortest: int | None = None
) -> Windows:
    """Cut all windows of one split.

    Args:
        dataset: An opened data set.
        horizon: T ≥ 1.
        split: "train", "val" or "test", as given by `split_videos`.
        shortest: Cut the windows of all lengths from this one to T; None for T alone.

    Raises:
        DataError: The split gives no window; NoVideosError if no video was kept for test.
    """
    least = horizon if shortest is None else shortest
    if not 1 <= least <= horizon or split not in SPLITS:
        expected = f"expected a horizon of at least 1, and a split of {', '.join(SPLITS)}"
        raise DataError(f"horizon {horizon}, split '{split}': {expected}.")
    videos = dataset.videos
    members = split_videos(videos)[split]
    steps = {index: [step.action for step in videos[index].steps] for index in members}
    places = [
        (index, first, length)
        for index, actions in steps.items()
        for first in range(len(actions) - least + 1)
        for length in range(least, min(horizon, len(actions) - first) + 1)
    ]
    if not places:
        longest = max(map(len, steps.values()), default=0)
        problem = f"{dataset.folder}: split '{split}' gives no windows"
        if split == "test" and not members:
            of = counted(len(videos), "video")
            raise NoVideosError(f"{problem}, since of {of} none was kept for it. {_UNTESTED}")
        remedy = "Choose a shorter horizon." if longest else f"Mark some videos as '{split}'."
        fault = f"horizon {horizon} ({len(members)} videos of at most {longest} steps)"
        raise DataError(f"{problem} of {fault}. {remedy}")
    video, start, length = np.array(places, dtype=np.int64).T.copy()
    rows = dataset.first_row[video] + start
    groups = group_numbers(videos)
    windows = Windows(
        initial=dataset.start[rows].astype(np.float32, copy=False),
        goal=dataset.end[rows + length - 1].astype(np.float32, copy=False),
        actions=padded_rows(
            [steps[index][first : first + size] for index, first, size in places], horizon
        ),
        tasks=np.array([videos[index].task for index in video], dtype=np.int64),
        video=video,
        start=start,
        taxonomy=dataset.taxonomy,
        action_text=dataset.action_text,
        dataset=dataset.name,
        split=split,
        predicted=_predicted(videos, places),
        wrong=None
        if all(annotated.clean for annotated in videos)
        else np.array(
            [
                any(step.errors for step in videos[index].steps[first : first + size])
                for index, first, size in places
            ]
        ),
        scenes=dataset.scenes(places),
        groups=groups[video] if are_grouped(groups) else None,
    )
    if shortest is None:
        return windows
    return replace(
        windows,
        before=padded_rows([steps[index][:first] for index, first, _ in places]),
        remaining=np.array([len(steps[index]) - first for index, first, _ in places]),
        elapsed=np.array([_seconds(videos[index], *place) for index, *place in places]),
    )


def _predicted(
    videos: Sequence[Video], places: Sequence[tuple[int, int, int]]
) -> NDArray[np.int64] | None:
    """Predicted task of the window at each place, (video, first step, length); None without any."""
    predictions = [videos[video].predicted.get(length) for video, _, length in places]
    if not any(predictions):
        return None
    rows = zip(predictions, places, strict=True)
    return np.array([-1 if row is None else row[first] for row, (_, first, _) in rows])


def _seconds(video: Video, first: int, length: int) -> np.float32:
    """Seconds from the start of a step to the end of another; NaN if times are not in order."""
    seconds = video.steps[first + length - 1].end - video.steps[first].start
    return np.float32(seconds if seconds > 0 else np.nan)


def padded_rows(rows: Sequence[Sequence[int]], width: int = 0) -> NDArray[np.int64]:
    """Return rows of ids as one array [N, longest], at least `width`, with −1 after each row."""
    longest = max(map(len, rows), default=0)
    padded = np.full((len(rows), max(longest, width)), -1, dtype=np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


def reversed_windows(windows: Windows) -> Windows:
    """The same windows backwards: observations exchanged, actions in reverse order."""
    return replace(
        windows, initial=windows.goal, goal=windows.initial, actions=windows.actions[:, ::-1].copy()
    )


def fitting_windows(
    dataset: PreparedDataset,
    *,
    horizon: int,
    selection: Selection = "held-out",
    shortest: int | None = None,
    errors: Errors = "keep",
) -> tuple[Windows, Windows]:
    """The windows to train a planner on, and the windows to choose its epochs and weights on.

    They are of one horizon, or of all lengths from `shortest` to it. "held-out" gives the training
    split without its held-out videos, and the validation split; "published" gives all training
    windows, and the *test* windows, as all published work does. `errors` leaves out the "windows"
    with a step done wrongly, or those of "videos" with an error, but never test windows.

    Args:
        dataset: Opened data set.
        horizon: T.
        selection: Which windows choose epochs and weights.
        shortest: Shortest length; None for T alone.
        errors: What is left out for steps done wrongly.
    """
    cut = partial(cut_windows, dataset, horizon=horizon, shortest=shortest)
    train = without_errors(cut(split="train"), dataset.videos, errors)
    if selection == "held-out":
        val = without_errors(cut(split="val"), dataset.videos, errors)
        if len(np.unique(val.video)) == 1 and len(np.unique(train.video)) < FEW_VIDEOS:
            logger.warning(
                "epochs and weights are chosen on the %d windows of one video, '%s', after "
                "training on %d videos; mark more videos as 'val' or annotate more",
                len(val),
                dataset.videos[int(val.video[0])].video_id,
                len(np.unique(train.video)),
            )
        return train, val
    held = [dataset.videos[index] for index in split_videos(dataset.videos)["val"]]
    if count_windows([video for video in held if video.split == "train"], horizon):
        held_out = without_errors(cut(split="val"), dataset.videos, errors)
        train = joined_windows(train, held_out)
    return train, cut(split="test")


def without_errors(windows: Windows, videos: Sequence[Video], errors: Errors) -> Windows:
    """Leave out windows with a step done wrongly, or of videos with an error.

    Args:
        windows: Windows of one split.
        videos: Videos of the data set.
        errors: "windows" or "videos"; "keep" leaves nothing out.

    Raises:
        DataError: No window is left.
    """
    if errors == "keep" or windows.wrong is None:
        return windows
    clean = np.array([video.clean for video in videos])
    kept = clean[windows.video] if errors == "videos" else ~windows.wrong
    if not kept.any():
        problem = f"all {windows.split} windows have an error or are of a video with one"
        raise DataError(f"{problem}. Keep them.", setting="errors")
    return windows.subset(np.flatnonzero(kept))


def joined_windows(first: Windows, second: Windows) -> Windows:
    """Return the windows of both, ordered by video and start; everything else as in the first."""
    both: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in _ARRAYS
    }
    both["predicted"] = both["scenes"] = None  # of use in scoring alone
    if first.before is not None and second.before is not None:
        both["before"] = padded_rows([*first.before.tolist(), *second.before.tolist()])
    for name in ("remaining", "elapsed", "wrong", "groups"):
        pair = [getattr(first, name), getattr(second, name)]
        if not any(array is None for array in pair):
            both[name] = np.concatenate(pair)
    joined = replace(first, **both)
    return joined.subset(np.lexsort((joined.start, joined.video)))


def video_folds(videos: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Assign an equally large fold, 0 to `count` - 1, to the windows of each video [N]."""
    members, place = np.unique(videos, return_inverse=True)
    folds = np.random.default_rng(0).permutation(len(members)) % count
    return np.asarray(folds[place], dtype=np.int64)


@dataclass(frozen=True)
class ActionSpace:
    """The allowed actions of every task."""

    actions: tuple[tuple[int, ...], ...]  # ascending action ids, position = task id
    source: Literal["training", "taxonomy"]  # paper, Sec. 3.3, or released code
    fallback: tuple[int, ...]  # tasks without training windows, which use the taxonomy's actions

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ActionSpace:
        """Convert from the dictionary of `to_dict`, or from JSON."""
        actions, fallback = value["actions"], value["fallback"]
        return cls(tuple(map(tuple, actions)), value["source"], tuple(fallback))


def action_space(train: Windows, source: Literal["training", "taxonomy"]) -> ActionSpace:
    """Derive A(c) for all tasks; tasks without training windows always use the taxonomy."""
    rows, fallback = [], []
    for task in train.taxonomy.tasks:
        seen = train.actions[train.tasks == task.id]
        if not len(seen):
            fallback.append(task.id)
        rows.append(
            tuple(int(action) for action in np.unique(seen[seen >= 0]))
            if len(seen) and source == "training"
            else task.actions
        )
        if not rows[-1]:
            raise DataError(
                f"task {task.id} ('{task.name}') has neither training windows nor actions in the "
                "taxonomy. Give it actions there or remove it."
            )
    return ActionSpace(actions=tuple(rows), source=source, fallback=tuple(fallback))


def extended_space(
    earlier: Sequence[tuple[int, ...]],
    train: Windows,
    source: Literal["training", "taxonomy"],
    fallback: Collection[int] = (),
) -> ActionSpace:
    """Extend A(c) of known tasks by the actions of further training windows and by new tasks.

    New tasks have higher ids.

    Args:
        earlier: Actions of each task so far.
        train: Further training windows.
        source: Where the actions of tasks come from.
        fallback: Tasks without training windows so far.
    """
    seen = action_space(train, source)
    rows = [
        tuple(sorted({*earlier[task], *(row if task not in seen.fallback else ())}))
        if task < len(earlier)
        else row
        for task, row in enumerate(seen.actions)
    ]
    without = [task for task in seen.fallback if task >= len(earlier) or task in fallback]
    return ActionSpace(actions=tuple(rows), source=source, fallback=tuple(without))
