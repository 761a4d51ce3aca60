"""Mistakes made up in videos that were held out: how surely a recogniser sees them.

In one copy of a video a usual step is cut out, in another one two neighbours are exchanged that
always come in one order (`changes.rearranged`), and a third one is as it was. Each video takes the
mistakes that were made up least often before, so that few videos try as many as they can. Drawn
sequences of steps say how probable each mistake is in its copy, and in the right one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cefito.recognition.changes import Labels, rearranged
from cefito.recognition.scores import segments
from cefito.recognition.temporal import Rows
from cefito.settings import Record

_USUAL = 0.7  # share of the videos of its task with an action, from which on it is cut out
_ENOUGH = 0.7  # share of mistakes that are seen, its mean by a uniform prior
_FEWEST = 4  # mistakes of a kind; fewer say too little
_MISTAKEN = 0.2  # m, share of videos with a mistake
_SAID = 0.5  # probability from which on a mistake is said


class SeenMistakes(Record):
    """How many mistakes that were made up in videos held out were seen, and how many were not."""

    skipped: int = Field(0, ge=0)  # steps cut out that were seen
    of_skipped: int = Field(0, ge=0)
    exchanged: int = Field(0, ge=0)
    of_exchanged: int = Field(0, ge=0)
    false: int = Field(0, ge=0)  # right videos in which such a mistake was seen
    right: int = Field(0, ge=0)  # right videos
    # actions cut out, and pairs (b, a) of which b then came before a, that were never seen
    unseen: tuple[tuple[int] | tuple[int, int], ...] = ()

    @property
    def enough(self) -> bool:
        """Whether most mistakes of both kinds are seen, by the mean after a prior Beta(1, 1)."""
        both = (self.skipped, self.of_skipped), (self.exchanged, self.of_exchanged)
        return all(tried >= _FEWEST and seen + 1 >= _ENOUGH * (tried + 2) for seen, tried in both)

    @property
    def more(self) -> int | None:
        """Further videos that make `enough`, if as many of their mistakes are seen; else None."""
        both, more = ((self.skipped, self.of_skipped), (self.exchanged, self.of_exchanged)), 0
        for seen, tried in both:
            beyond = seen - _ENOUGH * tried  # of so many videos
            if beyond <= 0:
                return None
            times = max((2 * _ENOUGH - 1) / beyond, _FEWEST / tried)  # as many as were tried
            more = max(more, math.ceil(self.right * (times - 1) - 1e-9))
        return more

    def words(self, names: Sequence[str]) -> str:
        """Return what was seen, as a sentence without its full stop, by the names of actions."""
        exchanged = "no neighbours were exchanged"
        skipped = "no step was cut out of its videos in training"
        if self.of_skipped:
            seen = f"{self.skipped} of {self.of_skipped} were seen to be missing"
            skipped = f"of steps that were cut out of its videos in training, {seen}"
        if self.of_exchanged:
            seen = f"{self.exchanged} of {self.of_exchanged}"
            exchanged = f"of neighbours that were exchanged, {seen}"
        listed = (" before ".join(f"'{names[action]}'" for action in one) for one in self.unseen)
        unseen = f"; not seen: {', '.join(listed)}" if self.unseen else ""
        return f"{skipped}; {exchanged}{unseen}"


@dataclass(frozen=True, eq=False)
class AlteredVideo:
    """A copy of a video, and the mistakes that are looked for in it."""

    rows: Rows  # [n, D]
    skipped: tuple[tuple[int, bool], ...]  # actions, and whether they were cut out
    exchanged: tuple[tuple[tuple[int, int], bool], ...]  # pairs (a, b), and whether b came first

    @property
    def right(self) -> bool:
        """Whether it has no mistake."""
        return not any(true for _, true in (*self.skipped, *self.exchanged))

    def probabilities(self, drawn: Labels) -> tuple[list[float], list[float]]:
        """Return p(skipped) and p(exchanged) of each, by drawn labels [count, n]."""
        first = first_rows(drawn, [action for action, _ in self.skipped])
        absent = [float(np.mean(row == drawn.shape[1])) for row in first]
        reversed_ = []
        for pair, _ in self.exchanged:
            a, b = first_rows(drawn, pair)
            reversed_.append(float(np.mean((b < a) & (a < drawn.shape[1]))))
        return absent, reversed_


def first_rows(drawn: Labels, actions: Sequence[int]) -> NDArray[np.int64]:
    """Return the first row of each action in drawn labels [count, n], n without one [A, count]."""
    shown = drawn[None] == np.array(actions, dtype=np.int64).reshape(-1, 1, 1)
    rows: NDArray[np.int64] = np.where(shown.any(axis=2), shown.argmax(axis=2), drawn.shape[1])
    return rows


def made_up(
    rows: Rows,
    labels: Labels,
    others: Sequence[Labels],
    changes: Rows,
    tried: Counter[Any],
    generator: np.random.Generator,
) -> Iterator[AlteredVideo]:
    """Yield the copies of a video.

    Args:
        rows: Its rows [n, D].
        labels: Its labels [n].
        others: Labels of the other videos of its task.
        changes: What each action leaves behind, of `changes.left_behind` [K, D].
        tried: How often each action was cut out and each pair exchanged in videos of its task; the
            mistakes of this video are counted, too.
        generator: Chooses among mistakes that were made up equally often.
    """
    background = len(changes)
    done = [step.action for step in segments(labels, background)]
    orders = [[*dict.fromkeys(s.action for s in segments(o, background))] for o in others]
    once = [place for place, action in enumerate(done) if done.count(action) == 1]
    usual = [p for p in once if sum(done[p] in o for o in orders) > _USUAL * len(orders)]
    fixed = [p for p in once if p + 1 in once and _always(done[p], done[p + 1], orders)]
    yield AlteredVideo(
        rows,
        tuple((done[place], False) for place in usual),
        tuple(((done[place], done[place + 1]), False) for place in fixed),
    )
    places = [*range(len(done))]
    if usual and len(done) > 1:
        cut = _rarest({place: done[place] for place in usual}, tried, generator)
        shorter, _ = rearranged(rows, labels, [p for p in places if p != cut], changes)
        yield AlteredVideo(shorter, ((done[cut], True),), ())
    if fixed:
        pairs = {place: (done[place], done[place + 1]) for place in fixed}
        early = _rarest(pairs, tried, generator)
        order = [*places[:early], early + 1, early, *places[early + 2 :]]
        swapped, _ = rearranged(rows, labels, order, changes)
        yield AlteredVideo(swapped, (), (((done[early], done[early + 1]), True),))


def _rarest(mistakes: dict[int, Any], tried: Counter[Any], generator: np.random.Generator) -> int:
    """Return the place of the mistake that was tried least often, which is counted now."""
    places = generator.permutation([*mistakes]).tolist()
    place: int = min(places, key=lambda place: tried[mistakes[place]])
    tried[mistakes[place]] += 1
    return place


def _always(a: int, b: int, orders: Sequence[Sequence[int]]) -> bool:
    both = [order for order in orders if a in order and b in order]
    return len(both) > 1 and all(order.index(a) < order.index(b) for order in both)


def score(
    trials: Sequence[tuple[AlteredVideo, int]], tasks: int, drawn: Callable[[int], Labels]
) -> tuple[float, tuple[SeenMistakes, ...]]:
    """Return the log-probability of what is so in the copies of videos, and what is seen.

    It is m · the mean over mistakes of log p(seen) + (1 − m) · that over right videos of
    Σ log p(not seen) of all mistakes that are looked for in it, with m = 1/5.

    Args:
        trials: The copies of videos, with their tasks.
        tasks: Number of tasks.
        drawn: Returns labels [count, n] that are drawn for a copy, by its number.
    """
    logs: dict[bool, list[float]] = {True: [], False: []}  # of mistakes, and of right videos
    totals = [Counter[str]() for _ in range(tasks)]
    unseen = [dict[tuple[int, ...], bool]() for _ in range(tasks)]
    for number, (trial, task) in enumerate(trials):
        labels, said, seen = drawn(number), False, totals[task]
        right, log = trial.right, 0.0
        for kind, asked, chances in zip(
            ("skipped", "exchanged"),
            (trial.skipped, trial.exchanged),
            trial.probabilities(labels),
            strict=True,
        ):
            for (mistake, true), chance in zip(asked, chances, strict=True):
                smooth = (chance * len(labels) + 0.5) / (len(labels) + 1)
                log += float(np.log(smooth if true else 1 - smooth))
                seen[kind] += true and chance >= _SAID
                seen[f"of_{kind}"] += true
                if true:
                    key = mistake[::-1] if isinstance(mistake, tuple) else (mistake,)
                    unseen[task][key] = unseen[task].get(key, True) and chance < _SAID
                said |= not true and chance >= _SAID
        logs[not right].append(log)
        seen["right"] += right
        seen["false"] += right and said
    weights = {True: _MISTAKEN, False: 1 - _MISTAKEN}
    means = [weights[wrong] * float(np.mean(own)) for wrong, own in logs.items() if own]
    return sum(means), tuple(
        SeenMistakes(**seen, unseen=tuple(sorted(key for key, never in keys.items() if never)))
        for seen, keys in zip(totals, unseen, strict=True)
    )
