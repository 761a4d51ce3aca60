"""Steps recognised row by row, as a camera gives them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import Step
from cefito.data.vocabulary import find_task
from cefito.errors import ConfigError, DataError
from cefito.recognition.chain import Filtered, Floats, StepChain, likelihoods, softened
from cefito.recognition.classifier import RowMemory
from cefito.recognition.plan_chain import either_order
from cefito.recognition.recogniser import Recogniser, refused
from cefito.recognition.scores import Segment, recognised_step, recognised_steps, segments
from cefito.recognition.segmental_model import SegmentalModel
from cefito.recognition.temporal import Rows
from cefito.tracks import TimedStep

LOST = 3600
"""Rows that may be lost, each of which still gets a label, before any was observed."""
LOST_MORE = 10
"""Further ones for each row that was observed."""
FILM = 3600
"""Rows that are kept, of a shorter video, for networks of whole videos."""
_LATEST = 3600  # seconds before the first row; more are no time of a video
_SHOWN = 8  # rows kept
_DRAWN_EVERY = 5  # rows
_IMPOSSIBLE = 1e-15  # p(task) up to which a task says nothing of its rows
_SURE = 0.8  # a, share of the recognised steps that are taken for right in what comes next
_LATER = 0.5  # share of the weight of networks in a row that is told later
_TOLD = 1e-6  # share of a step that was not recognised before it was told


class _Belief:
    """What one chain believes of the rows so far: the states of recent ones, and settled steps."""

    def __init__(self, chain: StepChain, temperature: float) -> None:
        self.chain, self.temperature = chain, temperature
        self.recent: list[tuple[Filtered, Floats]] = []  # states and likelihoods of rows
        self.settled: list[tuple[Segment, float]] = []  # with the sums of their probabilities
        self.states: Filtered | None = None
        self._tasks = np.arange(len(chain.actions)), chain  # those that are possible

    def copy(self) -> Self:
        other = copy(self)
        other.recent, other.settled = [*self.recent], [*self.settled]
        return other

    def push(self, seen: Floats) -> None:
        """Add a row by its likelihoods [K + 1]."""
        self.states = self.chain.filtered(seen[None], self.states)
        self.recent.append((self.states, seen))

    def lose(self, rows: int) -> None:
        """Pass rows that say nothing at once."""
        states = self.states
        if states is None:
            states, rows = self.chain.start, rows - 1
        self.states = self.chain.ahead(states, rows)

    def settle(self, count: int, first: int) -> None:
        """Fix the steps of the oldest rows, the first of which has the number `first`."""
        self.join(self.settled, first, self.window()[:count])
        del self.recent[:count]

    def window(self) -> Floats:
        """Return p(label) of the recent rows [n, K + 1], given all rows."""
        if not self.recent:
            return np.zeros((0, self.chain.background + 1))
        states, rows = zip(*self.recent, strict=True)
        tasks = np.flatnonzero(states[-1].tasks[0] > _IMPOSSIBLE)
        if not np.array_equal(tasks, self._tasks[0]):
            self._tasks = tasks, self.chain.among(tasks)
        chain = self._tasks[1]
        joints = [*chain.backward(Filtered.joined(states).among(tasks), np.stack(rows))]
        return softened(chain.by_label(np.concatenate(joints[::-1])), self.temperature)

    def join(self, steps: list[tuple[Segment, float]], first: int, rows: Floats) -> None:
        """Add the labels of more rows, by p(label) [n, K + 1], to the segments before them."""
        for action, start, end in segments(rows.argmax(axis=1), self.chain.background):
            total = float(rows[start:end, action].sum())
            segment = Segment(action, first + start, first + end)
            if steps and steps[-1][0].action == action and steps[-1][0].end == segment.start:
                before, sum_before = steps.pop()
                segment, total = segment._replace(start=before.start), sum_before + total
            steps.append((segment, total))


class StepStream:
    """Recognises the steps of a video row by row; its size grows with the number of steps alone.

    With doubt, it keeps up to `FILM` rows, too.

    A row's step is settled by the rows of some seconds after it (`lag`, up to twice as many), and
    may change until then.
    Rows that are lost in gaps get labels, too, as long as their number is in proportion to the rows
    observed. A gap of more is passed at once: what follows is the same, but it holds no step.

    Args:
        recogniser: A `SegmentalRecogniser`.
        task: Id of the task; None to have it inferred.
        lost: Number of lost rows that get labels, beside `LOST_MORE` for each row observed.
    """

    def __init__(
        self, recogniser: SegmentalModel, task: int | None = None, *, lost: int = LOST
    ) -> None:
        self.recogniser = recogniser
        self._chain: StepChain = recogniser.chain
        if task is not None:
            self._chain = self._chain.given([find_task(recogniser.taxonomy, task)])
        self._belief = _Belief(self._chain, recogniser.chained[1])
        self._doubt: _Belief | None = None
        # all rows, scaled, for `drawn_again`; None if `keeps_rows` is false
        self._film: list[Rows] | None = None
        # rows, what was doubted then, and p(task) then [C]
        self._drawn_from: tuple[int, _Belief, Floats] | None = None
        self._memory = RowMemory(recogniser.config, recogniser.rate)
        self._past, self._seen_ahead = (
            [] if network is None else network.beginning()
            for network in (recogniser.past, recogniser.ahead)
        )
        self._ahead: Floats | None = None  # log p(next action | rows) [K] of the network
        self._seen: Floats | None = None  # what networks say of the present row [K + 1]
        # the same of rows that are not settled; None of those lost, or of a step that was told
        self._recent: list[Floats | None] = []
        self.strange = False  # whether the film shows none of the tasks, as `drawn_again` sees it
        self._going_on: int | None = None  # action of the present step, if it was told
        self._lag = max(1, round(recogniser.config.lag * recogniser.rate))
        self.shown: list[Rows] = []  # the last rows as they were given, all after the last lost one
        self._count = 0  # rows
        self._most_lost = lost  # of the next gap, if each lost row is to get a label
        self._told: list[int] = []  # rows at which a step was told
        # rows, steps told and `later` of the last `steps`, and what it returned
        self._steps: tuple[tuple[int, int, int], list[TimedStep]] = (-1, 0, 0), []

    @property
    def seconds(self) -> float:
        """Time up to which rows were seen."""
        return self._count / float(self.recogniser.rate)

    def observe(self, row: NDArray[np.floating[Any]] | None, at: float | None = None) -> bool:
        """Add the row [D] of a time in seconds, the next one by default; None if it is lost.

        Return whether it was new: rows before the next one in time are passed over, and rows that
        are missing in between are lost. Rows with NaN or infinity are lost, too.

        Raises:
            DataError: A row of another width, or a time that is NaN or infinite, or of a first row
                after an hour, as Unix times are.
        """
        recogniser = self.recogniser
        if at is not None and not np.isfinite(at * recogniser.rate):
            raise DataError(f"time of a row {at}: expected seconds.")
        if at is not None and not self._count and at > _LATEST:
            problem = f"the first row is at second {at:,.0f}"
            raise DataError(f"{problem}. Give seconds from the start of the video.")
        seen = None
        if row is not None:
            numbers = np.asarray(row, dtype=np.float32)
            if numbers.shape != (recogniser.width,):
                raise DataError(
                    f"row {list(numbers.shape)}: expected [{recogniser.width}], as in training."
                )
            seen = numbers if np.isfinite(numbers).all() else None
        place = self._count if at is None else int(np.floor(at * recogniser.rate + 1e-6))
        if place < self._count:
            return False
        self._lose(place - self._count)
        self._push(seen)
        self._most_lost += LOST_MORE
        return True

    def copy(self) -> Self:
        """Return a stream of the same rows, which goes on by itself."""
        other = copy(self)
        other._memory = copy(self._memory)
        other._past, other._seen_ahead = (
            [deque(features, features.maxlen) for features in past]
            for past in (self._past, self._seen_ahead)
        )
        other.shown, other._told, other._recent = [*self.shown], [*self._told], [*self._recent]
        other._belief = self._belief.copy()
        other._doubt = None if self._doubt is None else self._doubt.copy()
        other._film = None if self._film is None else [*self._film]
        return other

    def doubted(self) -> Self:
        """Doubt the usual order from now on, beside what is recognised by it; return itself."""
        if self._doubt is None:
            loose = self._chain.loosened(self.recogniser.doubt[2])
            self._doubt = _Belief(loose, self.recogniser.chained[1])
            self._film = None if self._count else []
        return self

    @property
    def _beliefs(self) -> list[_Belief]:
        return [self._belief] if self._doubt is None else [self._belief, self._doubt]

    def _lose(self, count: int) -> None:
        """Add rows that are lost."""
        if count <= self._most_lost:
            self._most_lost -= count
            for _ in range(count):
                self._push(None)
            return
        self._settle(len(self._belief.recent))  # lost rows say nothing of those before
        for belief in self._beliefs:
            belief.lose(count)
        self._count += count
        self._ahead, self._seen, self.shown, self._film = None, None, [], None

    def correct(self, action: int) -> None:
        """Tell that the step of an action goes on now, whatever was recognised."""
        of_task = 0 <= action < self._chain.background
        told = [
            belief.chain.told(belief.states or belief.chain.start, action, _TOLD)
            if of_task
            else None
            for belief in self._beliefs
        ]
        if told[0] is None:
            raise ConfigError("the step is not one of the task.", setting="done")
        self._settle(len(self._belief.recent) - 1)
        for belief, states in zip(self._beliefs, told, strict=True):
            assert states is not None  # both chains have the same actions
            belief.states = states
            if belief.recent:  # the present row
                belief.recent = [(states, belief.recent[-1][1])]
        self._told.append(self._count - 1)
        self._going_on, self._film = action, None
        self._recent = [None] * len(self._belief.recent)
        self._keep_doubt()

    def _push(self, row: Rows | None) -> None:
        recogniser = self.recogniser
        self._ahead = self._seen = None
        self.shown = [] if row is None else [*self.shown, row][-_SHOWN:]
        seen = doubted = np.ones(self._chain.background + 1)
        scaled = self._film[-1] if self._film else None  # a lost row looks like the one before it
        if row is not None:
            scaled = recogniser.standard.scaled(row)
            features = self._memory.features(scaled)
            if recogniser.ahead is not None:
                ahead = self._memory.ahead(features, self.seconds)
                self._ahead = recogniser.ahead.ahead(ahead, self._seen_ahead)[:-1]
            logs = recogniser.of_features(features[None], past=True, seen=self._past)
            seen, self._seen = recogniser.likelihoods(logs, past=True)[0], logs[0]
            if self._doubt is not None:
                doubted = likelihoods(logs, recogniser.doubt[1], recogniser.config.unexpected)[0]
        if self._film is not None and scaled is not None and len(self._film) < FILM:
            self._film.append(scaled)
        else:
            self._film = None
        for belief, likely in zip(self._beliefs, (seen, doubted), strict=False):
            belief.push(likely)
        if self._going_on is not None and int(self._by_chain.argmax()) != self._going_on:
            self._going_on = None
        self._recent.append(None if self._going_on is not None else self._seen)
        self._count += 1
        if self._count % _DRAWN_EVERY == 0:
            self._keep_doubt()
        if len(self._belief.recent) > 2 * self._lag:
            self._settle(self._lag)

    def _keep_doubt(self) -> None:
        """Keep what is doubted now, to draw sequences of steps from."""
        if self._doubt is not None:
            self._drawn_from = self._count, self._doubt.copy(), self.tasks

    def _settle(self, count: int) -> None:
        """Fix the steps of the oldest rows."""
        for belief in self._beliefs if count > 0 else ():
            belief.settle(count, self._count - len(belief.recent))
        del self._recent[: max(count, 0)]

    @property
    def _by_chain(self) -> Floats:
        """p(label of the present row) [K + 1] by the chain; the background before the first row."""
        states = self._belief.states
        if states is None:
            nothing: Floats = np.eye(self._chain.background + 1)[-1]
            return nothing
        label: Floats = self._chain.by_label(states.states)[0]
        return label

    @property
    def _present(self) -> tuple[Floats, float]:
        """p(label of the present row) [K + 1], and its temperature.

        As long as the chain stays in a step that was told, networks have no say.
        """
        rows, recogniser = self._by_chain, self.recogniser
        if self._seen is None or self._going_on is not None:
            return rows, self._belief.temperature
        rows = recogniser.with_networks(rows, self._seen, past=True)
        return rows, recogniser.temperatures[1]

    @property
    def now(self) -> Floats:
        """p(label of the present row) [K + 1]; the background before the first row."""
        return softened(*self._present)

    @property
    def ended(self) -> float:
        """Probability that the last step of the procedure is over."""
        return float((self._belief.states or self._chain.start).ended[0])

    @property
    def tasks(self) -> Floats:
        """p(task) [C]."""
        tasks: Floats = (self._belief.states or self._chain.start).tasks[0]
        return tasks

    @property
    def next_states(self) -> Floats:
        """Return p(task, action of the next step to begin), by the action's place [C, A].

        The sum over tasks is proportional to √(p by the chain · p by the network · s). Of an action
        of which k steps were recognised, s = 1 − a + a r, where r is the share of the training
        videos with k of them that have more; else it is 1.
        """
        chain, present = self._chain, self._belief.states or self._chain.start
        if self._seen is not None:  # states whose label is the present one
            ratio = self._present[0] / np.maximum(self._by_chain, 1e-30)
            present = replace(present, within=present.within * ratio[chain.labels])
        states: Floats = chain.next_states(present)[0]
        weights, again = np.ones(chain.background + 1), self.recogniser.again
        for action, count in Counter(step.action for step in self.steps() if again).items():
            if action is not None and (more := again[action]):
                weights[action] += _SURE * (more[min(count, len(more)) - 1] - 1)
        if self._ahead is not None:
            weights[:-1] *= np.exp(self._ahead) / np.maximum(chain.summed(states), 1e-12)
        states = states * np.sqrt(weights)[chain.actions]
        shares: Floats = states / max(states.sum(), 1e-300)
        return shares

    @property
    def next_actions(self) -> Floats:
        """p(action of the next step to begin) [K]."""
        return self._chain.summed(self.next_states)

    @property
    def actions(self) -> NDArray[np.int64]:
        """Action at each place of each task [C, A]; K where there is none."""
        return self._chain.actions

    def steps(self, later: int = 0) -> list[TimedStep]:
        """Return the steps recognised so far in order, the present one among them.

        Steps of a mean probability below `sure_step` are left out, and those too short for
        their action.

        Args:
            later: Number of the last rows that belong to no step, but make those before surer.
        """
        state = self._count, len(self._told), later
        if state == self._steps[0]:
            return [*self._steps[1]]
        belief = self._belief
        shown, first = [*belief.settled], self._count - len(belief.recent)
        rows, end = belief.window(), self._count - later
        rows[-1:] = self.now
        if 0 < later < len(rows) and (seen := self._recent[-1 - later]) is not None:
            told = self.recogniser.with_networks(rows[-1 - later], seen, past=True, share=_LATER)
            rows[-1 - later] = told
        belief.join(shown, first, rows[: max(len(rows) - later, 0)])
        recogniser, config = self.recogniser, self.recogniser.config
        shortest = config.shortest_step * self._chain.lasting

        def counts(segment: Segment, total: float) -> bool:
            length = segment.end - segment.start
            told = bisect_left(self._told, segment.start) < bisect_left(self._told, segment.end)
            whole = length >= shortest[segment.action] or segment.end == end
            return told or (whole and total >= config.sure_step * length)

        steps = [
            recognised_step(
                segment, total / (segment.end - segment.start), recogniser.taxonomy, recogniser.rate
            )
            for segment, total in shown
            if counts(segment, total)
        ]
        self._steps = state, steps
        return [*steps]

    @property
    def doubted_rows(self) -> int:
        """Number of rows that `drawn_steps` has seen."""
        return 0 if self._drawn_from is None else self._drawn_from[0]

    @property
    def doubted_tasks(self) -> Floats:
        """p(task) [C] after the rows that `drawn_steps` has seen; the present one without any."""
        return self.tasks if self._drawn_from is None else self._drawn_from[2]

    def drawn_steps(self, task: int, count: int) -> list[tuple[Step, ...]]:
        """Return the steps so far in sequences that are drawn with doubt in a task's usual order.

        Settled steps are in each of them. They are drawn for the first `doubted_rows` rows, a
        number that grows by five. Without `doubted`, there is none.
        """
        if self._drawn_from is None or not self._drawn_from[1].recent:
            return []
        rows, belief, _ = self._drawn_from
        settled = self._timed((segment for segment, _ in belief.settled), 0)
        filtered = Filtered.joined(states for states, _ in belief.recent).of_task(task)
        drawn = belief.chain.drawn(filtered, task, count, np.random.default_rng(0))
        first = rows - len(belief.recent)
        background = belief.chain.background
        return [_gone_on(settled, self._timed(segments(row, background), first)) for row in drawn]

    def _timed(self, parts: Iterable[Segment], first: int) -> list[Step]:
        """Return the steps of segments of rows, the first of which has the number `first`."""
        rate = self.recogniser.rate
        return [Step((s.start + first) / rate, (s.end + first) / rate, s.action) for s in parts]

    @property
    def keeps_rows(self) -> bool:
        """Whether all rows so far are kept, for `drawn_again`.

        That takes `doubted` before the first row. It ends with a gap, with a step that a person
        told, and after `FILM` rows.
        """
        return bool(self._film)

    def drawn_again(
        self, task: int, count: int, rows: int, *, either: bool = False
    ) -> list[tuple[Step, ...]]:
        """Return steps in sequences drawn with doubt by the networks of whole videos.

        They see what came after each row, too, and take as long as to recognise these rows. Without
        rows that are kept, there is none.

        Args:
            task: Id of the task.
            count: Number of sequences.
            rows: Number of rows from the first one on.
            either: Whether the order of neighbours is left open where rows do not show it.
        """
        if not self._film or self._doubt is None:
            return []
        chain, seen, filtered = self._filtered_again(task, rows)
        generator = np.random.default_rng(0)
        drawn = chain.drawn(filtered.of_task(0), 0, count, generator)
        if either:
            leasts = self.recogniser.least_ratios
            drawn, strange = either_order(drawn, chain, 0, seen, generator, leasts=leasts)
            self.strange = strange and self._chain is self.recogniser.chain
        return [tuple(self._timed(segments(row, chain.background), 0)) for row in drawn]

    def steps_again(self, task: int) -> list[TimedStep]:
        """Return the steps in all rows as `drawn_again` sees them; none without rows kept."""
        if not self._film or self._doubt is None:
            return []
        chain, seen, filtered = self._filtered_again(task, len(self._film))
        rows = softened(chain.smoothed(seen, filtered).rows, self.recogniser.chained[0])
        rate, taxonomy = self.recogniser.rate, self.recogniser.taxonomy
        return recognised_steps(
            rows, segments(rows.argmax(axis=1), chain.background), taxonomy, rate
        )

    def _filtered_again(self, task: int, rows: int) -> tuple[StepChain, Floats, Filtered]:
        """Return the chain of a task, and what the first rows say by networks of whole videos."""
        assert self._film
        assert self._doubt
        chain = self._doubt.chain.among(np.array([task]))
        seen = self.recogniser.doubted_so_far(np.stack(self._film[:rows]))
        return chain, seen, chain.filtered(seen)


def step_stream(recogniser: Recogniser, task: int | None = None) -> StepStream:
    """Return a stream with next steps and corrections (ConfigError if the recogniser has none)."""
    stream = recogniser.stream(task)
    if not isinstance(stream, StepStream):
        raise refused("tell next steps")
    return stream


def _gone_on(steps: Sequence[Step], later: Sequence[Step]) -> tuple[Step, ...]:
    """Return steps and later ones, the first of which may go on with the last of them."""
    if steps and later and (steps[-1].end, steps[-1].action) == (later[0].start, later[0].action):
        return *steps[:-1], replace(later[0], start=steps[-1].start), *later[1:]
    return *steps, *later
