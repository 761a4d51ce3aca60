"""Metrics of procedure planning, in per cent.

Each is a sum over windows and a count, so parts of a split can be added up. A metric that is
registered in `METRICS`, or by another package as an entry point of the group `cefito.metrics`,
appears in all evaluations and tables. Sequences may have different lengths: shorter ones are padded
with -1 at the end. The order-tolerant success rate needs the orders of steps that all training
videos of a task keep.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import split_videos
from cefito.parts.matching import VocabularyMatch
from cefito.plugins import Registry

TOP_K = 5
"""Number of plans of each window that metrics see, and the k of the top-k success rate."""
_PADDING = -1  # fills sequences after their end, and plans that a planner could not give
_EPSILON = 1e-6

Sum: TypeAlias = float | NDArray[np.float64]
Part: TypeAlias = tuple[Sum, Sum]
"""Sum of a metric over some windows and its divisor, each perhaps by position [L]."""


def metric_value(
    name: str, predicted: ArrayLike, actual: ArrayLike, **facts: Any
) -> float | list[float]:
    """Return a metric of plans, per cent; a list for metrics of each position that is annotated.

    Args:
        name: Its key in `METRICS`, such as "edit_similarity".
        predicted: Action ids of the best plans [N, L], or of the k best [N, k, L], padded with -1
            at the end; nothing else for a missing plan.
        actual: Action ids [N, L], padded with -1 at the end, at least one for each window.
        facts: Fields of `ScoredPlans` that the metric needs, such as `actual_tasks` and `orders`.

    Raises:
        ValueError: Not such integers, not equal in shape, no window, or something that the metric
            needs is not known.
    """
    sums = METRICS[name].total(_scored(predicted, actual, **{"lengths_given": False, **facts}))
    if sums is None:
        raise ValueError(f"{name}: needs more than plans and actions")
    return _percents(*sums)


def unpadded(actions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The actions of one sequence [L] without the padding after its end [T]."""
    return np.asarray(actions[actions != _PADDING])


@dataclass(frozen=True, kw_only=True)
class ScoredPlans:
    """Input of a metric: plans of some windows and the true sequences, padded with -1."""

    plans: NDArray[np.int64]  # the k best of each window, best first [N, k, L]; -1 if missing
    actual: NDArray[np.int64]  # [N, L]
    tasks: NDArray[np.int64] | None = None  # of the plans [N]; None without a notion of tasks
    actual_tasks: NDArray[np.int64] | None = None  # [N]; None if tasks are not scored
    orders: Orders | None = None  # that training keeps; None if they are not known
    lengths_given: bool = True  # whether the planner is told the number of actions
    positions: int | None = None  # number of positions that are scored one by one; None for L

    @property
    def best(self) -> NDArray[np.int64]:
        """The best plan of each window [N, L]."""
        return self.plans[:, 0]

    @cached_property
    def planned(self) -> NDArray[np.bool_]:
        """Whether each window has a plan [N]."""
        return np.asarray((self.best != _PADDING).any(axis=1))


Scored = TypeVar("Scored")


@dataclass(frozen=True)
class Metric(Generic[Scored]):
    """A metric of evaluations and tables.

    `total` returns its sum over windows and the divisor (or both [L]); None if it does not apply.
    What it is a function of is `ScoredPlans`, or a `ScoredVideo` of recognised steps.

    Raises:
        TypeError: It has no meaning.
    """

    total: Callable[[Scored], Part | None]
    head: str = ""  # of its column in tables; empty without a column
    meaning: str = ""  # in legends
    brief: bool = False  # whether tables with few columns have it, too
    percent: bool = True  # else it is shown as it is

    def __post_init__(self) -> None:
        if not self.meaning.strip():
            raise TypeError(f"the metric '{self.head}' has no meaning. Say it for legends.")


def _success(scored: ScoredPlans) -> tuple[float, float]:
    return float((scored.best == scored.actual).all(axis=1).sum()), len(scored.actual)


def _accuracy(scored: ScoredPlans) -> tuple[float, float]:
    """Positions, up to the end of the longer sequence, whose action is right."""
    steps = (scored.best != _PADDING) | (scored.actual != _PADDING)  # up to the longer end [N, L]
    return float(((scored.best == scored.actual) & steps).sum()), int(steps.sum())


def _iou(scored: ScoredPlans) -> tuple[float, float]:
    """Intersection over union of both sets of actions."""
    total = 0.0
    for row, actual in zip(scored.best.tolist(), scored.actual.tolist(), strict=True):
        ours, theirs = set(row) - {_PADDING}, set(actual) - {_PADDING}
        total += len(ours & theirs) / len(ours | theirs)
    return total, len(scored.actual)


def _edit(scored: ScoredPlans) -> tuple[float, float]:
    """1 − Levenshtein distance / length of the longer sequence.

    The segmental edit score (Lea et al., CVPR 2017), which RAP (arXiv 2403.18600) scores plans of
    unknown length by. Equal neighbours are steps of their own and are not merged.
    """
    from rapidfuzz.distance import Levenshtein

    pairs = zip(scored.best, scored.actual, strict=True)
    shares = (
        Levenshtein.normalized_similarity(unpadded(ours).tolist(), unpadded(theirs).tolist())
        for ours, theirs in pairs
    )
    return float(sum(shares)), len(scored.actual)


def _next(scored: ScoredPlans) -> tuple[float, float]:
    return float((scored.best[:, 0] == scored.actual[:, 0]).sum()), len(scored.actual)


def _length(scored: ScoredPlans) -> tuple[float, float] | None:
    if scored.lengths_given:
        return None
    ours, theirs = ((rows != _PADDING).sum(axis=1) for rows in (scored.best, scored.actual))
    return float((ours == theirs).sum()), len(scored.actual)


def _order_tolerant(scored: ScoredPlans) -> tuple[float, float] | None:
    """Windows with the annotated actions in an order that training does not rule out.

    A plan has every action as often as the annotation, and never b before a if the orders of the
    window's true task [N] have (a, b). The annotated sequence itself is always right. The motive:
    similarity to one sequence misjudges other valid plans (SurgGoal, arXiv 2601.10455).
    """
    if scored.orders is None or scored.actual_tasks is None:
        return None
    right = (scored.best == scored.actual).all(axis=1)  # [N]
    same_actions = (np.sort(scored.best) == np.sort(scored.actual)).all(axis=1)
    for row in np.flatnonzero(same_actions & ~right):
        orders = scored.orders.get(int(scored.actual_tasks[row]), ())
        right[row] = keeps_orders(scored.best[row].tolist(), orders)
    return float(right.sum()), len(right)


def _bitwise(scored: ScoredPlans) -> tuple[float, float]:
    """The "element-wise mIoU" of published tables: bitwise AND over bitwise OR of action *ids*.

    The mean over windows of Σ_t (predicted & actual) / (Σ_t (predicted | actual) + 1e-6), reported
    only for comparison with such tables. It does not measure overlap but depends on how actions are
    numbered: 6 for 7 counts 6/7, 8 for 7 nothing, action 0 for 0 nothing; if the ids of a task are
    neighbours, random steps score above 90 %. Padding counts as action 0.
    """
    # rows without a plan add nothing; 0 is neutral in AND and OR
    rows = (scored.best[scored.planned], scored.actual[scored.planned])
    ours, theirs = (ids.clip(min=0) for ids in rows)
    shares = (ours & theirs).sum(axis=1) / ((ours | theirs).sum(axis=1) + _EPSILON)
    return float(shares.sum()), len(scored.actual)


def _top_k(scored: ScoredPlans) -> tuple[float, float]:
    right = (scored.plans == scored.actual[:, None]).all(axis=2).any(axis=1)
    return float(right.sum()), len(scored.actual)


def _tasks(scored: ScoredPlans) -> tuple[float, float] | None:
    if scored.tasks is None or scored.actual_tasks is None:
        return None
    return float((scored.tasks == scored.actual_tasks).sum()), len(scored.actual_tasks)


def _positions(scored: ScoredPlans) -> Part:
    """Annotated actions that are right at each position."""
    ours, theirs = (rows[:, : scored.positions] for rows in (scored.best, scored.actual))
    steps = theirs != _PADDING
    right, count = ((ours == theirs) & steps).sum(axis=0), steps.sum(axis=0)  # [L]
    return right.astype(np.float64), count.astype(np.float64)


def checked_sums(sums: Part, metric: Metric[Any]) -> Part:
    """Check a sum and its divisor (ValueError)."""
    total, count = (np.asarray(number, dtype=np.float64) for number in sums)
    whole = np.isfinite(total).all() and np.isfinite(count).all() and (count >= 0).all()
    if not whole or total.shape != count.shape or total.ndim > (not metric.head):
        expected = "finite numbers" if metric.head else "finite numbers, or arrays [L] of them"
        raise ValueError(f"expected a sum and a divisor, {expected}, not {sums!r}")
    return (total, count) if total.ndim else (float(total), float(count))


def metric_fault(entry: Any, others: Registry[Any]) -> str:
    """Return what is wrong with a metric of another package, beside others."""
    if not isinstance(entry, Metric) or not callable(entry.total):
        return "its entry point is not a Metric of a function"
    words = isinstance(entry.head, str) and isinstance(entry.meaning, str)
    if not words:
        return "its head or meaning is no text"
    metrics = [*map(others.__getitem__, others.shipped), *others.loaded.values()]
    taken = entry.head and entry.head in {metric.head for metric in metrics}
    return f"its head '{entry.head}' is that of another metric" if taken else ""


METRICS: Registry[Metric[ScoredPlans]] = Registry(
    "cefito.metrics",
    "metric",
    {
        "success_rate": Metric(_success, "SR", "every step is right", brief=True),
        "mean_accuracy": Metric(_accuracy, "mAcc", "steps right in their places", brief=True),
        "mean_iou": Metric(_iou, "mIoU", "overlap of the sets of steps", brief=True),
        "edit_similarity": Metric(_edit, "edit", "1 − edit distance / longer length", brief=True),
        "next_step_accuracy": Metric(_next, "next", "the first step is right", brief=True),
        "length_accuracy": Metric(_length, "length", "the number of steps is right", brief=True),
        "order_tolerant_success": Metric(
            _order_tolerant,
            "order SR",
            "the annotated steps, with no order broken that all training videos of the task keep",
        ),
        "mean_iou_bitwise": Metric(
            _bitwise, "bitwise mIoU", "overlap of the bits of action ids, as in published tables"
        ),
        f"top_{TOP_K}_success_rate": Metric(
            _top_k, f"top-{TOP_K} SR", "the annotated steps are among the best plans"
        ),
        "task_accuracy": Metric(_tasks, "task", "the plan is for the annotated task", brief=True),
        "position_accuracy": Metric(_positions, meaning="steps right at each position"),
    },
    lambda _, entry: metric_fault(entry, METRICS),
)
"""All metrics by name, in the order of tables."""


def metric_heads(*, brief: bool = False) -> dict[str, str]:
    """Heads of the columns of tables, all or few, by the names of metrics."""
    return {
        name: metric.head
        for name, metric in METRICS.items()
        if metric.head and (metric.brief or not brief)
    }


def metric_meanings(names: Container[str]) -> dict[str, str]:
    """What the metrics with these names mean, by the heads of their columns."""
    return {
        metric.head: metric.meaning
        for name, metric in METRICS.items()
        if metric.head and name in names
    }


@dataclass
class MetricSums:
    """All metrics accumulated over parts of a split."""

    orders: Orders | None = None  # as in `ScoredPlans`
    lengths_given: bool = True  # as in `ScoredPlans`
    sums: dict[str, Sum] = field(default_factory=dict)  # sum of each metric over windows
    counts: dict[str, Sum] = field(default_factory=dict)  # divisor of each sum
    without_plan: int = 0  # windows without any plan; they count as wrong

    def add(
        self,
        plans: list[NDArray[np.int64]],
        actual: NDArray[np.int64],
        *,
        tasks: NDArray[np.int64] | None = None,
        actual_tasks: NDArray[np.int64] | None = None,
    ) -> None:
        """Add some windows: plans [k, L'] of each, k ≥ 0, sequences [N, L] and tasks [N].

        Plans may be narrower or wider than the sequences; L is the same in all parts.

        Args:
            plans: Plans of each window, best first [k, L'].
            actual: True action ids [N, L], padded with −1.
            tasks: Planned tasks [N].
            actual_tasks: True tasks [N].
        """
        count, positions = actual.shape
        width = max([positions, *(plan.shape[1] for plan in plans)])
        padded = np.full((count, TOP_K, width), _PADDING, dtype=np.int64)
        for row, plan in enumerate(plans):
            padded[row, : min(len(plan), TOP_K), : plan.shape[1]] = plan[:TOP_K]
        scored = ScoredPlans(
            plans=padded,
            actual=np.pad(actual, ((0, 0), (0, width - positions)), constant_values=_PADDING),
            tasks=tasks,
            actual_tasks=actual_tasks,
            orders=self.orders,
            lengths_given=self.lengths_given,
            positions=positions,
        )
        self.without_plan += int((~scored.planned).sum())
        for array in (scored.plans, scored.actual):  # a metric of a package shall not change them
            array.flags.writeable = False
        for name, metric in list(METRICS.items()):
            with METRICS.trying(name):
                if (sums := metric.total(scored)) is None:
                    continue
                total, count = checked_sums(sums, metric)
                self.sums[name] = self.sums.get(name, 0.0) + total
                self.counts[name] = self.counts.get(name, 0.0) + count

    def percents(self) -> dict[str, float | list[float]]:
        """Every metric in per cent; a list for metrics of each position that some window has."""
        return {
            name: _percents(total, self.counts[name])
            for name in METRICS
            if (total := self.sums.get(name)) is not None and np.any(self.counts[name])
        }


def _scored(predicted: ArrayLike, actual: ArrayLike, **facts: Any) -> ScoredPlans:
    plans, right = np.asarray(predicted), np.asarray(actual)
    plans = plans[:, None] if plans.ndim == 2 else plans
    shapes = plans.ndim == 3 and plans.size > 0 and plans[:, 0].shape == right.shape
    if not shapes or plans.dtype.kind not in "iu" or right.dtype.kind not in "iu":
        raise ValueError(
            f"predicted is {plans.dtype} {list(plans.shape)}, actual {right.dtype} "
            f"{list(right.shape)}; expected integers [N, L], or plans [N, k, L], and [N, L], not "
            "empty"
        )
    for name, array, first in (("predicted", plans[:, 0], _PADDING), ("actual", right, 0)):
        resumed = (array[:, :-1] == _PADDING) & (array[:, 1:] != _PADDING)
        if array.min() < _PADDING or array[:, 0].min() < first or resumed.any():
            raise ValueError(
                f"{name} has negative ids; expected only -1 after the end of a sequence, and a "
                "first action in each row of actual"
            )
    return ScoredPlans(plans=plans.astype(np.int64), actual=right.astype(np.int64), **facts)


def _percents(total: Sum, count: Sum) -> float | list[float]:
    """One percentage, or one for each position with windows."""
    if not isinstance(total, np.ndarray):
        return float(100 * total / count)
    counts = np.asarray(count)
    shares: list[float] = (100 * total[counts > 0] / counts[counts > 0]).tolist()
    return shares


MIN_VIDEOS = 2
"""Number of training videos with both steps from which on their order counts as kept.

One video has an order of all its steps, whether it matters or not; two that agree are the least
evidence. More would free the orders of tasks with few videos.
"""
Orders: TypeAlias = Mapping[int, Collection[tuple[int, int]]]
"""By task, the pairs of actions (a, b) of which a precedes b in training."""


def training_orders(
    dataset: PreparedDataset,
    vocabulary: VocabularyMatch | None = None,
    videos: Collection[int] | None = None,
) -> dict[int, frozenset[tuple[int, int]]]:
    """Orders that all training videos of a task keep, by task.

    Action a precedes b ≠ a if at least `MIN_VIDEOS` training videos of the task have both, and in
    each of these the last occurrence of a is before the first of b.

    Args:
        dataset: An opened data set.
        vocabulary: Translation to the ids of a run, if they differ; steps that are new to the run
            are left out.
        videos: Indices of the training videos; by default those of `split_videos`.
    """
    together: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)  # videos with both
    ordered: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)  # those that keep the order
    dataset_videos = dataset.videos
    for index in split_videos(dataset_videos)["train"] if videos is None else videos:
        video = dataset_videos[index]
        task, actions = video.task, [step.action for step in video.steps]
        if vocabulary is not None:
            actions = [int(action) for action in vocabulary.actions[task, actions] if action >= 0]
            task = int(vocabulary.tasks[task])
        first = {action: place for place, action in reversed([*enumerate(actions)])}
        last = {action: place for place, action in enumerate(actions)}
        for a, b in combinations(first, 2):
            together[task].update([(a, b), (b, a)])
            ordered[task].update([(a, b)] * (last[a] < first[b]) + [(b, a)] * (last[b] < first[a]))
    return {
        task: frozenset(
            pair for pair, videos in pairs.items() if MIN_VIDEOS <= videos == together[task][pair]
        )
        for task, pairs in ordered.items()
        if task >= 0
    }


def keeps_orders(plan: Sequence[int], orders: Collection[tuple[int, int]]) -> bool:
    """Whether no action of a plan precedes one that the orders put before it."""
    return all((later, earlier) not in orders for earlier, later in combinations(plan, 2))
