"""Orders of steps that all training videos of a task keep, for the order-tolerant success rate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

from cefito.data.prepared import PreparedDataset
from cefito.data.vocabulary import VocabularyMatch
from cefito.data.windows import split_videos

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
    every = dataset.videos
    for index in split_videos(every)["train"] if videos is None else videos:
        video = every[index]
        task, actions = video.task, [step.action for step in video.steps]
        if vocabulary is not None:
            actions = [int(known) for known in vocabulary.actions[task, actions] if known >= 0]
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
