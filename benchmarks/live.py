"""Live sessions on whole test videos: accuracy of the next step, and the time of an update.

Before each step of a video, a session is given the observation at its start, or the step before, or
both, and asked for the next step. Rows of comparison plan anew from the present observation, look
for the nearest training observation, or go by n-grams of the steps done; orders and factors of
n-grams are chosen on validation videos. Needs a run of the method any-length.

    OMP_NUM_THREADS=1 python benchmarks/live.py DATA RUN --out FILE
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

import common
from cefito.cli.console import progress
from cefito.data import PreparedDataset, open_dataset
from cefito.data.windows import split_videos
from cefito.evaluation.statistics import paired_difference, video_interval
from cefito.files import write_json
from cefito.inference.session import Session
from cefito.planners.base import Queries
from cefito.runs.run import Run, open_run
from cefito.search.prior import DEFAULT_STRENGTHS, START, Levels

TOP = 3  # next steps that are compared
KINDS = {
    "observations": {"observe": True, "report": False},
    "steps reported": {"observe": False, "report": True},
    "observations and steps reported": {"observe": True, "report": True},
}
Ids = NDArray[np.int64]
Ranking = Ids  # likeliest next steps before each step of a video [D, TOP]


@dataclass(frozen=True)
class Walk:
    """The steps of one video and what is seen of them."""

    task: int
    actions: Ids  # [D]
    seen: NDArray[np.float32]  # observation at the start of each step [D, E]
    goal: NDArray[np.float32]  # at the end of the last [E]


@dataclass
class Times:
    """Seconds that updates of sessions took: an event, and the next steps after it."""

    wall: list[float]
    processor: list[float]

    def measure(self, began: tuple[float, float]) -> None:
        """Add the time since `began`, of `clocks`."""
        self.wall.append(time.perf_counter() - began[0])
        self.processor.append(time.thread_time() - began[1])

    def summary(self) -> dict[str, float]:
        """Milliseconds."""
        return {
            f"{name}_{quantile}": round(1000 * float(np.percentile(values, quantile)), 2)
            for name, values in (("wall", self.wall), ("processor", self.processor))
            for quantile in (50, 95)
        }


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def walks(data: PreparedDataset, split: str) -> list[Walk]:
    found = []
    for index in split_videos(data.videos)[split]:
        video, first = data.videos[index], int(data.first_row[index])
        rows = slice(first, first + len(video.steps))
        found.append(
            Walk(
                task=video.task,
                actions=np.array([step.action for step in video.steps]),
                seen=data.start[rows].astype(np.float32),
                goal=data.end[rows][-1].astype(np.float32),
            )
        )
    return found


def follow(
    session: Session, walk: Walk, times: Times, *, observe: bool, report: bool
) -> tuple[Ranking, list[int]]:
    """The next steps before each step, and the steps that the session believes done at the end."""
    found = []
    for place, row in enumerate(walk.seen):
        if report and place:
            began = clocks()
            session.done(int(walk.actions[place - 1]))
            session.likely_next(TOP)
            times.measure(began)
        if observe:
            began = clocks()
            session.observe(row)
            session.likely_next(TOP)
            times.measure(began)
        found.append([one.id for one in session.likely_next(TOP)])
    padded = [row + [-1] * (TOP - len(row)) for row in found]
    return np.array(padded), [step.id for step in session.belief().done]


def anew(run: Run, walk: Walk, *, goal: bool, task: bool) -> tuple[Ranking, Ranking]:
    """Next steps of plans from the present observation: the best plan's, and the likeliest."""
    queries = Queries(
        initial=walk.seen,
        goal=np.broadcast_to(walk.goal, walk.seen.shape),
        seen=np.tile([True, goal], (len(walk.seen), 1)),
        tasks=np.full(len(walk.seen), walk.task) if task else None,
    )
    best = [plans.actions[0, :1] for plans in run.planner.plan(queries, 1)]
    steps = run.planner.marginals(queries).steps
    assert steps is not None
    return np.array(best), ranked(steps[:, 0])


def ranked(values: NDArray[Any]) -> Ranking:
    return (-values).argsort(axis=1, kind="stable")[:, :TOP]


def nearest(train: Sequence[Walk], walk: Walk, *, task: bool) -> Ranking:
    """Steps at the nearest training observations, at unit length."""
    kept = [one for one in train if not task or one.task == walk.task]
    rows, actions = (
        np.concatenate([getattr(one, name) for one in kept]) for name in ("seen", "actions")
    )
    near = unit(walk.seen) @ unit(rows).T
    found = []
    for row in actions[(-near).argsort(axis=1, kind="stable")].tolist():
        found.append((list(dict.fromkeys(row)) + [-1] * TOP)[:TOP])
    return np.array(found)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-12))


@dataclass(frozen=True)
class NGrams:
    """Smoothed n-grams of the steps of whole videos, summed over tasks as the steps done tell."""

    levels: Levels
    log_prior: NDArray[np.float64]  # of tasks [C]
    count: int  # K
    again: float = 1.0  # factor of actions that were done before

    @classmethod
    def fit(cls, train: Sequence[Walk], tasks: int, count: int) -> NGrams:
        """Count the steps of training videos."""
        rows = []
        for walk in train:
            padded = np.pad(walk.actions, (2, 0), constant_values=START)
            places = np.arange(len(walk.actions))
            task = np.full(len(places), walk.task)
            rows.append(np.stack([task, padded[places], padded[places + 1], walk.actions], axis=1))
        events, counts = np.unique(np.concatenate(rows), axis=0, return_counts=True)
        levels = Levels.counted(
            events,
            counts.astype(np.int64),
            sizes=[count] * tasks,
            action_count=count,
            order=3,
            strengths=DEFAULT_STRENGTHS,
        )
        videos = np.bincount([walk.task for walk in train], minlength=tasks) + 0.5
        return cls(levels, np.log(videos / videos.sum()), count)

    def tuned(self, val: Sequence[Walk]) -> NGrams:
        """The order and factor of the best next steps on validation videos."""
        choices = [
            replace(self, levels=replace(self.levels, order=order), again=again)
            for order, again in product((1, 2, 3), (1.0, 0.3, 0.1, 0.03, 0.01))
        ]
        return max(choices, key=lambda one: np.mean([np.mean(one.hits(walk)) for walk in val]))

    def hits(self, walk: Walk) -> NDArray[np.bool_]:
        """Whether each step is the likeliest one [D]."""
        return np.asarray(self.next_steps(walk, task=False)[:, 0] == walk.actions)

    def next_steps(self, walk: Walk, *, task: bool) -> Ranking:
        """The likeliest next steps, with the true task if `task`."""
        return ranked(self.shares(walk, task=task))

    def shares(self, walk: Walk, *, task: bool) -> NDArray[np.float64]:
        """Probabilities of the next step [D, K], with the true task if `task`."""
        tasks, ids = np.arange(len(self.log_prior))[:, None], np.arange(self.count)
        log_tasks = self.log_prior
        if task:
            log_tasks = np.where(tasks[:, 0] == walk.task, 0.0, -np.inf)
        found, weights = [], np.ones(self.count)
        for step, action in enumerate(walk.actions):
            before = [np.array(one) for one in walk.actions[:step]]
            shares = self.levels.step(step, tasks, [*before, ids])  # p(a | last two, c) [C, K]
            found.append(np.exp(log_tasks - log_tasks.max()) @ shares * weights)
            log_tasks = log_tasks + np.log(shares[:, action])
            weights[action] = self.again
        values = np.array(found)
        return np.asarray(values / values.sum(axis=1, keepdims=True))


def transitions(walk: Walk) -> list[tuple[int, int, int]]:
    """The task of each step, the action before it and its own."""
    actions = walk.actions.tolist()
    return [(walk.task, *pair) for pair in zip([START, *actions], actions, strict=False)]


def unexpected(train: Sequence[Walk], test: Sequence[Walk]) -> list[NDArray[np.bool_]]:
    """Whether each step follows the one before it in no training video of the task."""
    known = {pair for walk in train for pair in transitions(walk)}
    return [np.array([pair not in known for pair in transitions(walk)]) for walk in test]


def share(values: NDArray[np.bool_]) -> float | None:
    return round(100 * float(values.mean()), 2) if len(values) else None


def scores(
    rankings: Sequence[Ranking], test: Sequence[Walk], odd: Sequence[NDArray[np.bool_]]
) -> tuple[dict[str, Any], NDArray[np.bool_]]:
    """Accuracies in per cent, and the hits of all steps in the order of videos."""
    parts = [rows[:, 0] == walk.actions for rows, walk in zip(rankings, test, strict=True)]
    sizes = np.array([len(part) for part in parts])
    low, high = video_interval([100 * part.sum() for part in parts], sizes)
    report: dict[str, Any] = {
        "next_step_accuracy": share(np.concatenate(parts)),
        "interval": [round(low, 2), round(high, 2)],
    }
    if all(rows.shape[1] == TOP for rows in rankings):
        among = [
            (rows == walk.actions[:, None]).any(axis=1)
            for rows, walk in zip(rankings, test, strict=True)
        ]
        report[f"among_{TOP}"] = share(np.concatenate(among))
    after = [np.concatenate([[False], one[:-1]]) for one in odd]
    for name, kept in (
        ("after_unexpected", after),
        ("after_expected", [~one & (np.arange(len(one)) > 0) for one in after]),
    ):
        report[name] = share(
            np.concatenate([part[own] for part, own in zip(parts, kept, strict=True)])
        )
    report["by_position"] = [
        share(np.array([part[place] for part in parts if len(part) > place]))
        for place in range(sizes.max())
    ]
    return report, np.concatenate(parts)


def live(data: PreparedDataset, run: Run, split: str) -> dict[str, Any]:
    train, val, test = (walks(data, name) for name in ("train", "val", split))
    odd = unexpected(train, test)
    rows: dict[str, dict[str, Any]] = {}
    hits: dict[str, NDArray[np.bool_]] = {}
    times: dict[str, Times] = {}

    def add(name: str, rankings: Sequence[Ranking], **more: Any) -> None:
        rows[name], hits[name] = scores(rankings, test, odd)
        rows[name] |= more

    variants = {"": (False, False), ", task": (False, True), ", goal": (True, False)}
    with progress("sessions", total=len(variants) * len(KINDS) * len(test)) as advance:
        for (words, (goal, task)), (kind, given) in product(variants.items(), KINDS.items()):
            name = f"session, {kind}{words}"
            spent, rankings, alike = times.setdefault(name, Times([], [])), [], []
            for walk in test:
                session = Session(
                    run, goal=walk.goal if goal else None, task=walk.task if task else None
                )
                found, done = follow(session, walk, spent, **given)
                rankings.append(found)
                alike.append(Levenshtein.normalized_similarity(done, walk.actions[:-1].tolist()))
                advance()
            more = {} if given["report"] else {"steps_done": round(100 * float(np.mean(alike)), 2)}
            add(name, rankings, **more)
    for words, (goal, task) in variants.items():
        pairs = [anew(run, walk, goal=goal, task=task) for walk in test]
        add(f"planning anew, best plan{words}", [best for best, _ in pairs])
        add(f"planning anew, likeliest step{words}", [likeliest for _, likeliest in pairs])
    grams = NGrams.fit(train, len(data.taxonomy.tasks), len(data.taxonomy.actions)).tuned(val)
    for words, (goal, task) in variants.items():
        if not goal:
            add(f"n-grams{words}", [grams.next_steps(walk, task=task) for walk in test])
            add(f"nearest{words}", [nearest(train, walk, task=task) for walk in test])
    video = np.repeat(np.arange(len(test)), [len(walk.actions) for walk in test])
    against = {}
    for kind in KINDS:
        ours = rows[f"session, {kind}"]["next_step_accuracy"]
        for other in (
            "planning anew, best plan",
            "planning anew, likeliest step",
            "nearest",
            "n-grams",
        ):
            gain = paired_difference(hits[f"session, {kind}"][None], hits[other][None], video)
            against[f"{kind} against {other}"] = {
                "ratio": round(ours / max(rows[other]["next_step_accuracy"], 0.01), 3),
                "difference": round(gain.mean, 2),
                "interval": [round(gain.low, 2), round(gain.high, 2)],
            }
    positions = max(len(walk.actions) for walk in test)
    return {
        "videos": len(test),
        "steps": len(video),
        "unexpected_steps": share(np.concatenate(odd)),
        "videos_at_position": [
            sum(len(walk.actions) > place for walk in test) for place in range(positions)
        ],
        "n_grams": {"order": grams.levels.order, "factor_of_steps_done": grams.again},
        "milliseconds_of_an_update": {name: spent.summary() for name, spent in times.items()},
        "differences": against,
        "rows": rows,
    }


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", default="test")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run, data = open_run(given.run), open_dataset(given.data)
    report = {
        "command": f"OMP_NUM_THREADS=1 python benchmarks/live.py DATA RUN --split {given.split}",
        "dataset": data.name,
        "split": given.split,
        "steps_of_plans": run.steps,
        **live(data, run, given.split),
    }
    for name, row in report["rows"].items():
        print(f"{name}: {row['next_step_accuracy']} % ({row['interval']})")
    for name, spent in report["milliseconds_of_an_update"].items():
        print(f"{name}: {spent}")
    if given.out is not None:
        write_json(given.out, report)


if __name__ == "__main__":
    main()
