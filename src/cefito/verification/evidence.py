"""What the right steps of training videos say of each step of a video, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Step
from cefito.data.vocabulary import Taxonomy
from cefito.verification.order import Floats, TaskOrder, log_length, repetitions, signed_log


@dataclass(frozen=True, eq=False)
class StepEvidence:
    """The evidence of n steps; columns [n] first, then numbers of the whole video.

    For the step k of the action a, p(a before b) is that of `TaskOrder`. Numbers are 0 if a is not
    an action of the task, unless something else is said. Networks see the columns in this order.
    """

    orders_before: Floats  # −Σ log p(b before a) over first steps b before k; 0 if k is not a first
    orders_after: Floats  # −Σ log p(a before b) over first steps b after it
    worst_before: Floats  # largest part of `orders_before`
    worst_after: Floats  # largest part of `orders_after`
    unseen_before: Floats  # number of these orders that no video has, of those that could be seen
    unseen_after: Floats
    from_previous: Floats  # −log p(a comes next after the step before k), or first
    to_next: Floats  # −log p(the step after k comes next after a), or nothing does
    length_change: Floats  # log seconds less their mean
    length_distance: Floats  # |length_change|
    length_score: Floats  # length_change in standard deviations
    place_change: Floats  # place in the video, 0 to 1, less its mean
    place_distance: Floats  # |place_change|
    place: Floats  # (k + 1/2) / n
    number: Floats  # k
    repetitions: Floats  # earlier steps of a that were not undone
    usual: Floats  # p(a occurs in a video)
    unmet: Floats  # Σ max(0, 2 p(b before a) − 1) p(b occurs) over actions b not done before k
    overlap: Floats  # 1 if k begins more than half a second before the step before it ends, else 0
    pause: Floats  # seconds between the step before k and k
    lacking: float  # Σ p(b occurs) over actions b without a step
    most_lacking: float  # the largest of these
    steps: float  # n
    videos: float  # that were counted

    @classmethod
    def of(cls, order: TaskOrder, steps: Sequence[Step], taxonomy: Taxonomy) -> Self:
        """Compute the evidence of steps, in the order of their times, by names of actions."""
        size, count = order.size, len(steps)
        row = np.array([order.index.get(step.action, -1) for step in steps])  # −1: of no action
        chances, places, first = order.next_costs, np.arange(count), order.first_steps(steps)
        first_places, actions = [*first], [*first.values()]
        met = np.full(size, count)  # place of the first step of each action
        met[actions] = first_places
        pairs = np.zeros((6, count))
        if actions:
            costs = order.done_costs(actions)
            never = np.triu(order.never[np.ix_(actions, actions)])
            pairs[:, first_places] = [
                *(costs.sum(axis) for axis in (0, 1)),
                *(costs.max(axis) for axis in (0, 1)),
                *(never.sum(axis) for axis in (0, 1)),
            ]
        length = np.array([log_length(step.start, step.end) for step in steps])
        ends = np.array([0.0, *(step.end for step in steps[:-1])])
        pause, place_share = np.array([step.start for step in steps]) - ends, (places + 0.5) / count
        length_change = np.where(row >= 0, length - np.append(order.length, 0)[row], 0)
        mean_place = np.append(order.place, np.nan)[row]
        place_change = np.where(np.isnan(mean_place), 0, place_share - mean_place)
        unmet = np.pad(order.lead, ((0, 0), (0, 1)))[:, row].T * (met >= places[:, None])
        lacking = order.usual[~np.isin(np.arange(size), row)]
        return cls(
            orders_before=pairs[0],
            orders_after=pairs[1],
            worst_before=pairs[2],
            worst_after=pairs[3],
            unseen_before=pairs[4],
            unseen_after=pairs[5],
            from_previous=chances[np.append(size, row[:-1]), row],
            to_next=chances[row, np.append(row[1:], size)],
            length_change=length_change,
            length_distance=np.abs(length_change),
            length_score=length_change / np.append(order.spread, 1)[row],
            place_change=place_change,
            place_distance=np.abs(place_change),
            place=place_share,
            number=places.astype(np.float64),
            repetitions=np.array(
                repetitions(order, (step.action for step in steps), taxonomy), dtype=np.float64
            ),
            usual=np.append(order.usual, 0)[row],
            unmet=unmet.sum(axis=1),
            overlap=((places > 0) & (pause < -0.5)).astype(np.float64),
            pause=pause,
            lacking=float(lacking.sum()),
            most_lacking=float(lacking.max(initial=0)),
            steps=count,
            videos=order.videos,
        )

    def matrix(self) -> NDArray[np.float32]:
        """Return what networks see [n, F]: sign and logarithm of each number.

        Columns, then the mean and the maximum of each over the video, then the other numbers.
        """
        values = [getattr(self, column.name) for column in fields(self)]
        columns = np.column_stack([value for value in values if np.ndim(value)])
        numbers = [value for value in values if not np.ndim(value)]
        shared = np.concatenate([columns.mean(axis=0), columns.max(axis=0), numbers])
        repeated = np.repeat(shared[None], len(columns), axis=0)
        return signed_log(np.concatenate([columns, repeated], axis=1))

    @classmethod
    def width(cls) -> int:
        """Return F, the numbers of a step that networks see."""
        taxonomy = Taxonomy.from_names("", [("", [0])], [""])
        return int(cls.of(TaskOrder.of([], [0]), [Step(0, 1, 0)], taxonomy).matrix().shape[1])
