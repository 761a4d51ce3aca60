"""Breakdowns of plans: mistakes, confusion of tasks, groups of windows, a gallery."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.windows import Windows
from cefito.evaluation.metrics import unpadded
from cefito.evaluation.records import WindowPlans
from cefito.evaluation.statistics import video_interval
from cefito.report.schema import Confusion, GalleryQuery, Group, Kind, LossCurve, Unit
from cefito.study.results import Results
from cefito.study.trials import ScoredTrial
from cefito.training.checkpoint import incomplete, read_metrics

KINDS: tuple[str, ...] = ("substitution", "order", "repetition", "missing")
"""Kinds of mistakes, as whole plans have them; "missing" is of annotated steps."""


def step_kinds(planned: Sequence[int], actual: Sequence[int]) -> list[Kind]:
    """The kind of each planned step [T']; there may be more or fewer annotated ones [T].

    Each annotated step accounts for one planned step: first for the one in its own place, then,
    from left to right, for one of the same action in another place ("order"). Of the remaining
    steps, an action that the plan already has is a "repetition", any other a "substitution".
    """
    kinds: list[Kind | None] = [None] * len(planned)
    left = Counter(actual)
    for place, (ours, theirs) in enumerate(zip(planned, actual, strict=False)):
        if ours == theirs:
            kinds[place] = "right"
            left[ours] -= 1
    for place, ours in enumerate(planned):
        if kinds[place] is None and left[ours] > 0:
            kinds[place] = "order"
            left[ours] -= 1
    used = {ours for ours, kind in zip(planned, kinds, strict=True) if kind is not None}
    filled: list[Kind] = []
    for ours, kind in zip(planned, kinds, strict=True):
        filled.append(kind or ("repetition" if ours in used else "substitution"))
        used.add(ours)
    return filled


def missing_steps(planned: Sequence[int], actual: Sequence[int]) -> list[bool]:
    """Whether each annotated step [T] is missing: no planned step accounts for it."""
    return [kind not in ("right", "order") for kind in step_kinds(actual, planned)]


def plan_kinds(planned: Sequence[int], actual: Sequence[int]) -> list[str]:
    """The kinds of mistakes in a plan, in the order of `KINDS`; none if it is right."""
    mistakes: set[str] = {kind for kind in step_kinds(planned, actual) if kind != "right"}
    if any(missing_steps(planned, actual)):
        mistakes.add("missing")
    return [kind for kind in KINDS if kind in mistakes]


GALLERY_SEED = 0
"""Seed of the gallery's sample, so that samples of one size are the same everywhere."""
LISTED = 5
"""Number of plans of a query that count as listed."""
_SURE = 0.2  # share of windows that a run is sure of
_LEAST = 10  # fewer windows say nothing


def confusion(windows: Sequence[WindowPlans]) -> Confusion | None:
    """Annotated tasks against those of the best plans; None if a window has no planned task."""
    counts: Counter[tuple[int, int]] = Counter()
    names: dict[int, str] = {}
    for window in windows:
        if window.predicted_task is None or window.predicted_task_name is None:
            return None
        counts[window.true_task, window.predicted_task] += 1
        names[window.true_task] = window.true_task_name
        names[window.predicted_task] = window.predicted_task_name
    return Confusion(
        tasks=dict(sorted(names.items())),
        pairs=[(*pair, count) for pair, count in sorted(counts.items())],
    )


def by_seen(windows: Sequence[WindowPlans], train: Windows) -> list[Group]:
    """Success against whether the annotated sequence occurs in training windows."""
    seen = {tuple(unpadded(actions).tolist()) for actions in train.actions}
    groups: dict[str, list[WindowPlans]] = {"not in training": [], "in training": []}
    for window in windows:
        learned = tuple(window.true_actions) in seen
        groups["in training" if learned else "not in training"].append(window)
    return [_group(name, group) for name, group in groups.items() if group]


def surest(windows: Sequence[WindowPlans]) -> Group | None:
    """The most probable fifth of the windows, and all others of the same probability.

    None without probabilities, for fewer than 10 windows, and if that is more than half of all.
    """
    best = [window.plans[0].probability if window.plans else 0.0 for window in windows]
    probabilities = [probability for probability in best if probability is not None]
    if len(probabilities) < len(windows):
        return None
    least = sorted(probabilities, reverse=True)[math.ceil(_SURE * len(probabilities)) - 1]
    sure = [window for window, value in zip(windows, probabilities, strict=True) if value >= least]
    return _group("surest", sure) if _LEAST <= len(sure) <= len(windows) / 2 else None


def _group(name: str, windows: Sequence[WindowPlans]) -> Group:
    counts, right = Counter[str](), Counter[str]()
    for window in windows:
        counts[window.video] += 1
        right[window.video] += window.success
    low = high = None
    if len(counts) > 1:
        low, high = video_interval([100 * right[video] for video in counts], list(counts.values()))
    return Group(
        name=name,
        windows=len(windows),
        videos=len(counts),
        success_rate=100 * sum(right.values()) / len(windows),
        low=low,
        high=high,
        listed=100 * sum(_listed(window) for window in windows) / len(windows),
    )


def _listed(window: WindowPlans) -> bool:
    return window.rank is not None and window.rank <= LISTED


def gallery(windows: Sequence[WindowPlans], size: int) -> list[GalleryQuery]:
    """A fixed random sample of at most `size` windows, in their order."""
    rows = np.arange(len(windows))
    if size < len(windows):
        drawn = np.random.default_rng(GALLERY_SEED).choice(len(windows), size, replace=False)
        rows = np.sort(drawn)
    return [_query(windows[row]) for row in rows.tolist()]


def _query(window: WindowPlans) -> GalleryQuery:
    truth, best = window.true_actions, window.plans[0].actions if window.plans else None
    return GalleryQuery(
        **dict(window),
        outcome="right" if window.success else "listed" if _listed(window) else "wrong",
        mistakes=["missing"] if best is None else plan_kinds(best, truth),
        missing=[True] * len(truth) if best is None else missing_steps(best, truth),
        kinds=[step_kinds(plan.actions, truth) for plan in window.plans],
    )


def loss_curves(folders: Mapping[str, Path]) -> tuple[list[LossCurve], list[str]]:
    """The curves of trainings, of `metrics.jsonl` in folders, and which lack epochs.

    Networks of a part share a file, and count steps in place of epochs.
    """
    curves, notes = [], []
    for name, folder in sorted(folders.items()):
        if missing := incomplete(folder):
            notes.append(f"Curves are incomplete: metrics.jsonl of {name} {missing}.")
        path, networks = folder / "metrics.jsonl", defaultdict[str, list[dict[str, Any]]](list)
        for line in read_metrics(path) if path.exists() else []:
            if "loss" in line and ("epoch" in line or "step" in line):
                networks[line.get("network", "")].append(line)
        for network, lines in networks.items():
            unit: Unit = "step" if network else "epoch"
            keys = {key for line in lines for key in line if key.startswith("val_")}
            scores = sorted(key for key in keys if not key.endswith("_seconds"))
            curves.append(
                LossCurve(
                    name=f"{name}: {network}" if network else name,
                    unit=unit,
                    epochs=[int(line[unit]) for line in lines],
                    loss=[line["loss"] for line in lines],
                    scores={
                        key: [(int(line[unit]), line[key]) for line in lines if key in line]
                        for key in scores
                    },
                )
            )
    return curves, notes


def training_title(folder: Path, results: Results) -> str:
    """Name a training in the folder of a comparison by the rows that use it, network and seed.

    A row uses a training that reached the scores of one of its networks. The digest of the folder
    is in the name only if nothing else tells it from another one.
    """
    steps, seed = folder.parts[-4].removeprefix("T"), folder.parts[-3].removeprefix("seed")
    network, path = folder.name.rpartition("-")[0], folder / "metrics.jsonl"
    epochs = {line.get("epoch"): line for line in read_metrics(path)} if path.exists() else {}
    rows = dict.fromkeys(
        trial.row
        for trial in results.trials
        if isinstance(trial, ScoredTrial) and str(trial.seed) == seed
        for name, result in trial.training.items()
        if steps == (name.partition(", T = ")[2] or trial.steps)
        if (line := epochs.get(result.best_epoch)) is not None
        and [line.get(f"val_{metric}") for metric in result.metrics] == [*result.scores]
    )
    if rows:
        return f"{', '.join(rows)}: {network}, T = {steps}, seed {seed}"
    alone = len([*folder.parent.glob(f"{network}-{'?' * 12}")]) == 1
    return f"{network if alone else folder.name}, T = {steps}, seed {seed}"
