"""Advice about a data set: whether it has enough videos, and what would help most.

Everything is measured on training and validation videos; the test split is never read.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Taxonomy, Video
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows, count_windows, cut_windows, split_videos
from cefito.evaluation.score import successes
from cefito.evaluation.statistics import video_interval
from cefito.planners.base import Queries
from cefito.planners.simple.nearest import NearestPlanner

FEW = 5
"""Number of videos below which a task, or the scores of a number of steps, has too few."""
SHARES = (25, 50, 100)  # per cent of the training videos of each task
DRAWS = 5  # random choices of a share of the videos, whose scores are averaged
LONGEST = 6
_NAMED = 3  # names of tasks or actions in a sentence

Rows = list[dict[str, Any]]
Estimate = dict[str, float | None]  # value, and low and high of its 90 % interval or None


def advise(dataset: PreparedDataset, *, horizon: int = 3) -> dict[str, Any]:
    """Measure whether a data set is enough for plans of T = horizon steps; for JSON.

    Percentages: "repeated", training windows of a task that another of its videos shows as well;
    "seen", validation windows whose steps training shows; "curve", success rates with intervals
    over validation videos; "outcomes", validation windows that the nearest window plans "right",
    wrong although training shows the steps ("seen"), and others with an action that at most one
    training video shows ("rare") or without one ("new"). "sentences" say what follows.

    Raises:
        DataError: Training or validation videos have no windows of the horizon.
    """
    train, val = (cut_windows(dataset, horizon=horizon, split=name) for name in ("train", "val"))
    parts = split_videos(dataset.videos)
    videos, held = ([dataset.videos[index] for index in parts[name]] for name in ("train", "val"))
    scores = {share: _success(train, val, share) for share in SHARES}
    half, full, most = scores[50]["nearest"], scores[100]["nearest"], scores[100]["frequent"]
    shown = Counter(action for one in videos for action in {step.action for step in one.steps})
    rare = sorted(action for action, count in shown.items() if count == 1)
    found = {
        "dataset": dataset.name,
        "horizon": horizon,
        "tasks": _tasks(dataset.taxonomy, videos, held, horizon),
        "steps": [_steps(videos, held, steps) for steps in range(1, max(LONGEST, horizon) + 1)],
        "curve": [
            {"share": share, "videos": score["videos"]}
            | {name: _estimate(score[name], val.video) for name in ("nearest", "frequent")}
            for share, score in scores.items()
        ],
        "gain": _estimate(full - half, val.video),
        "frequent_gain": _estimate(most - full, val.video),
        "outcomes": _outcomes(train, val, full == 1, shown),
        "actions": len(shown),
        "rare_actions": dataset.taxonomy.names(rare),
    }
    return found | {"sentences": [*_about_videos(found), *_about_steps(found), _most(found)]}


def _sequences(video: Video, length: int) -> list[tuple[int, ...]]:
    """The actions of each window of a video."""
    actions = [step.action for step in video.steps]
    return [tuple(actions[first : first + length]) for first in range(len(actions) - length + 1)]


def _percent(flags: Iterable[bool]) -> float | None:
    values = list(flags)
    return 100 * sum(values) / len(values) if values else None


def _tasks(
    taxonomy: Taxonomy, videos: Sequence[Video], held: Sequence[Video], horizon: int
) -> Rows:
    rows = []
    for task in taxonomy.tasks:
        train, val = ([one for one in part if one.task == task.id] for part in (videos, held))
        windows = [_sequences(video, horizon) for video in train]
        owners = Counter(sequence for each in windows for sequence in set(each))
        rows.append(
            {
                "id": task.id,
                "name": task.name,
                "train_videos": len(train),
                "val_videos": len(val),
                "train_windows": count_windows(train, horizon),
                "val_windows": count_windows(val, horizon),
                "repeated": _percent(owners[one] > 1 for each in windows for one in each),
            }
        )
    return rows


def _steps(videos: Sequence[Video], held: Sequence[Video], steps: int) -> dict[str, Any]:
    known = {sequence for video in videos for sequence in _sequences(video, steps)}
    return {
        "steps": steps,
        "train_windows": count_windows(videos, steps),
        "val_windows": count_windows(held, steps),
        "val_videos": sum(len(video.steps) >= steps for video in held),
        "seen": _percent(one in known for video in held for one in _sequences(video, steps)),
    }


def _success(train: Windows, val: Windows, share: int) -> dict[str, Any]:
    """Success [N] after a share of the videos: nearest window, and its task's most frequent.

    Videos are chosen for each task, rounded up; a smaller share is part of a larger one.
    """
    queries, nearest, frequent, counts = Queries.from_windows(val), [], [], []
    for seed in range(DRAWS if share < 100 else 1):
        generator = np.random.default_rng(seed)
        chosen: list[int] = []
        for task in np.unique(train.tasks):
            members = generator.permutation(np.unique(train.video[train.tasks == task]))
            chosen.extend(members[: math.ceil(share * len(members) / 100)].tolist())
        part = train.subset(np.flatnonzero(np.isin(train.video, chosen)))
        planner = NearestPlanner.fit(part, val).planner
        nearest.append(successes(planner.plan(queries, 1), val))
        sequences: dict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
        for task, actions in zip(part.tasks.tolist(), part.actions.tolist(), strict=True):
            sequences[task][tuple(actions)] += 1
        best = {task: counter.most_common(1)[0][0] for task, counter in sequences.items()}
        plans = np.array([best[task] for task in planner.predict_tasks(queries).tolist()])
        frequent.append((plans == val.actions).all(axis=1))
        counts.append(len(chosen))
    rates = {"nearest": np.mean(nearest, axis=0), "frequent": np.mean(frequent, axis=0)}
    return {"videos": float(np.mean(counts)), **rates}


def _estimate(right: NDArray[np.float64], video: NDArray[np.int64]) -> Estimate:
    """Mean of [N] in per cent; the bootstrap draws whole videos."""
    _, group = np.unique(video, return_inverse=True)
    sums, counts = np.bincount(group, weights=100 * right), np.bincount(group)
    low, high = video_interval(sums, counts) if len(sums) > 1 else (None, None)
    return {"value": float(sums.sum() / counts.sum()), "low": low, "high": high}


def _outcomes(
    train: Windows, val: Windows, right: NDArray[np.bool_], shown: Counter[int]
) -> dict[str, float]:
    known = set(map(tuple, train.actions.tolist()))
    counts = dict.fromkeys(("right", "seen", "new", "rare"), 0)
    for actions, success in zip(val.actions.tolist(), right, strict=True):
        rare = "rare" if min(shown[action] for action in actions) < 2 else "new"
        counts["right" if success else "seen" if tuple(actions) in known else rare] += 1
    return {name: 100 * count / len(val) for name, count in counts.items()}


def _about_videos(found: dict[str, Any]) -> list[str]:
    tasks, last, gain = found["tasks"], found["curve"][-1]["nearest"], found["gain"]
    said = [f"Every task has at least {FEW} training videos."]
    if few := [one for one in tasks if one["train_videos"] < FEW]:
        names = ", ".join(f"{one['name']} ({one['train_videos']})" for one in few)
        said = [f"{len(few)} of {len(tasks)} tasks have fewer than {FEW} training videos: {names}."]
    if blind := [one["name"] for one in tasks if not one["val_windows"]]:
        said.append(f"Tasks without validation windows, which no score covers: {', '.join(blind)}.")
    words = "More videos help.", "More videos do not help.", "more videos help"
    said.append(
        f"The nearest window is right for {last['value']:.1f} % of the validation windows"
        f"{_ends(last)}, {gain['value']:+.1f} points from half of the training videos to all"
        f"{_ends(gain)}. {_verdict(gain, *words)}"
    )
    gain, win = found["frequent_gain"], "is the one to beat."
    words = f"It {win}", f"The nearest window {win}", "it is better"
    said.append(
        "The most frequent sequence of the nearest window's task scores "
        f"{gain['value']:+.1f} points beside it{_ends(gain)}. {_verdict(gain, *words)}"
    )
    return said


def _ends(one: Estimate) -> str:
    return "" if one["low"] is None else f" (90 % interval {one['low']:.1f} to {one['high']:.1f})"


def _verdict(one: Estimate, above: str, below: str, question: str) -> str:
    low, high = one["low"], one["high"]
    if low is None or high is None or low <= 0 <= high:
        return f"These validation videos cannot tell whether {question}."
    return above if low > 0 else below


def _about_steps(found: dict[str, Any]) -> list[str]:
    rows, horizon = found["steps"], found["horizon"]
    known = [one for one in rows if one["seen"] is not None]
    said = []
    if mostly := [one["steps"] for one in known if one["seen"] >= 50]:
        said.append(f"Training shows at least half of the validation plans of {_listed(mostly)}.")
    if fewer := [one["steps"] for one in known if one["seen"] < 50]:
        said.append(
            f"Training shows less than half of the validation plans of {_listed(fewer)}: only "
            "planners that make new sequences, such as chain and cefito, can plan the others."
        )
    scored = [one for one in rows if one["val_videos"] >= FEW]
    if not scored:
        return [*said, f"No number of steps has {FEW} validation videos: scores will say little."]
    total = sum(one["train_windows"] for one in scored)
    times = total / rows[horizon - 1]["train_windows"]
    return [
        *said,
        f"At least {FEW} validation videos have windows of {_listed([o['steps'] for o in scored])},"
        f" which can be scored. One run of all these lengths has {total:,} training windows, "
        f"{times:.1f} times as many as one of {horizon}.",
    ]


def _listed(numbers: Sequence[int]) -> str:
    """Ascending numbers such as "1-3 steps", or "2, 4 steps" if some between are missing."""
    whole = len(numbers) > 1 and numbers[-1] - numbers[0] + 1 == len(numbers)
    words = f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers))
    return f"{words} step{'s' * (list(numbers) != [1])}"


def _most(found: dict[str, Any]) -> str:
    """Name the largest group of failures, and what makes it smaller."""
    share, name = max((found["outcomes"][name], name) for name in ("seen", "new", "rare"))
    if not share:
        return "The nearest window fails nowhere: nothing here shows what would help."
    head = f"The largest group of failures is {share:.1f} % of the validation windows:"
    if name == "seen":
        return f"{head} training shows their steps. A trained planner or better features may help."
    if name == "rare":
        few = found["rare_actions"]
        more = f" (such as {', '.join(few[:_NAMED])})" if few else ""
        return (
            f"{head} an action that at most one training video shows. Merge rare actions by a map "
            f"or film them; {len(few)} of {found['actions']} actions are in one video only{more}."
        )
    tasks = [one for one in found["tasks"] if one["repeated"] is not None]
    tasks.sort(key=lambda one: one["repeated"])
    least = ", ".join(f"{one['name']} ({one['repeated']:.0f} %)" for one in tasks[:_NAMED])
    return (
        f"{head} new sequences of known actions. More videos or a planner that makes new sequences "
        f"may help, first in the tasks whose videos share fewest sequences: {least}."
    )
