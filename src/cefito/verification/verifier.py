"""What was wrong in a video: steps skipped, out of order, added, repeated, or done wrongly.

Each step has an evidence vector, of the orders and lengths in videos without errors (`TaskOrder`).
Where training videos name errors, networks learn from it the probability of no error, an error of
order, and another one; each video's evidence then comes from the others. They are tempered on
videos held out in turn, whose alarms are counted, too. Otherwise the probabilities are counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.annotations import Step, Taxonomy, Video
from cefito.data.vocabulary import find_task
from cefito.errors import ConfigError, RunError
from cefito.files import Expected, check_tensors, load_tensors, load_weights, write_tensors
from cefito.markup import counted, shortened
from cefito.progress import Advance
from cefito.recognition.classifier import RowClassifier, fit_classifier
from cefito.recognition.segmental import best_temperature, softened
from cefito.settings import Record
from cefito.training.trainer import TrainingContext
from cefito.verification.order import Floats, TaskOrder, log_length
from cefito.verification.settings import VerifierConfig

VERIFIER_FILE = "verifier.safetensors"
DeviationKind = Literal["missing", "order", "added", "repeated", "long", "short", "wrong"]
_REMEDY = "Train the run again."
_MOST = 1e300  # seconds, or hours
_LEAST = 1e-300  # probability of what is named at least, since one of 0 is none
_LONGEST_WORDS = 60  # letters of a name
_WORDS: dict[DeviationKind, str] = {
    "missing": "missing",
    "order": "out of order",
    "added": "not a step of the task",
    "repeated": "repeated",
    "long": "too long",
    "short": "too short",
    "wrong": "done wrongly",
}


class Deviation(Record):
    """Something that was wrong in a video."""

    kind: DeviationKind
    action: int
    name: str
    step: int | None = None  # counted from 1; None if it is missing
    start: float | None = None  # seconds
    end: float | None = None
    probability: float  # that it is an error
    evidence: str  # in words

    @property
    def words(self) -> str:
        """The kind in words."""
        return _WORDS[self.kind]


class Verification(Record):
    """What was wrong in a video, and how to go on."""

    deviations: tuple[Deviation, ...]  # the likeliest first
    repair: tuple[int, ...]  # actions that lead to the end, those that were skipped first


@dataclass(frozen=True, eq=False)
class Verifier:
    """The orders of tasks and networks of the evidence, of one taxonomy."""

    orders: tuple[TaskOrder, ...]  # by task
    taxonomy: Taxonomy
    config: VerifierConfig = field(default_factory=VerifierConfig)
    network: RowClassifier | None = None  # of no error, an error of order, another error
    temperature: float = 1.0
    alarms: tuple[float, ...] = ()  # p(error) of right steps held out, ascending
    hours: float = 0.0  # length of the videos held out

    @classmethod
    def fit(
        cls,
        videos: Sequence[Video],
        taxonomy: Taxonomy,
        *,
        config: VerifierConfig | None = None,
        seed: int = 0,
        context: TrainingContext | None = None,
    ) -> Self:
        """Count the orders, and train networks if enough steps of the videos name errors.

        A training that was killed goes on if the context has a folder.
        """
        config, context = config or VerifierConfig(), context or TrainingContext()
        found = cls(cls._orders(videos, taxonomy), taxonomy, config)
        named = sum(bool(step.errors) for video in videos for step in video.steps)
        if named < config.fewest_errors:
            return found
        parts = np.random.default_rng(seed).permutation(len(videos)) % config.folds
        held: list[tuple[Floats, NDArray[np.int64]]] = []
        total = (config.folds + 1) * config.members * config.training_steps
        with context.progress("verifier", total=total) as advance:
            for part in range(config.folds):
                rest = [one for one, of in zip(videos, parts, strict=True) if of != part]
                own = [one for one, of in zip(videos, parts, strict=True) if of == part]
                fitted = cls(cls._orders(rest, taxonomy), taxonomy, config)
                fitted = fitted._trained(rest, seed, context, advance, f"fold-{part + 1}")
                held += [
                    (fitted.probabilities(v.steps, v.task), _labels(v)) for v in own if v.steps
                ]
            found = found._trained(videos, seed, context, advance, "network")
        rows, truth = (np.concatenate(each) for each in zip(*held, strict=True))
        temperature = best_temperature(rows, truth)
        wrong = 1 - softened(rows, temperature)[:, 0]
        seconds = sum(max(step.end for step in video.steps) for video in videos if video.steps)
        return replace(
            found,
            temperature=temperature,
            alarms=tuple(np.sort(wrong[truth == 0]).tolist()),
            hours=seconds / 3600,
        )

    @staticmethod
    def _orders(videos: Sequence[Video], taxonomy: Taxonomy) -> tuple[TaskOrder, ...]:
        clean = [video for video in videos if video.clean]
        return tuple(
            TaskOrder.of([video for video in clean if video.task == task.id], task.actions)
            for task in taxonomy.tasks
        )

    def _trained(
        self,
        videos: Sequence[Video],
        seed: int,
        context: TrainingContext,
        advance: Advance,
        name: str,
    ) -> Self:
        """Train on the evidence of each video by the others without errors."""
        rows, labels = [], []
        for video in videos:
            if not video.steps:
                continue
            order = self.orders[video.task]
            if video.clean:
                others = [
                    one for one in videos if one.clean and one.task == video.task and one != video
                ]
                order = TaskOrder.of(others, order.actions.tolist())
            rows.append(evidence(order, video.steps))
            labels.append(_labels(video))
        network = fit_classifier(
            rows,
            labels,
            3,
            self.config,
            seed=seed,
            name=name,
            section="verifier",
            context=context,
            advance=advance,
        )
        return replace(self, network=network)

    def continued(self, before: Verifier) -> Self:
        """Return it with orders of an earlier verifier for the tasks of which it saw no video."""
        orders = list(self.orders)
        for task, order in enumerate(before.orders):
            orders[task] = orders[task] if orders[task].follows.any() else order
        return replace(self, orders=tuple(orders))

    def given(self, edges: dict[int, tuple[tuple[int, int], ...]]) -> Self:
        """Return the verifier with the orders that a person gives for some tasks.

        Raises:
            ConfigError: Edges in a circle.
        """
        orders = list(self.orders)
        for task, own in edges.items():
            orders[task] = orders[task].with_edges(own)
        return replace(self, orders=tuple(orders))

    def probabilities(self, steps: Sequence[Step], task: int) -> Floats:
        """Return p(no error, error of order, another error) of each step [n, 3]."""
        order = self.orders[task]
        rows = evidence(order, steps)
        if self.network is not None:
            return softened(np.exp(self.network.log_probabilities(rows)), self.temperature)
        # 1 − 2 p of the least probable order of first times, 0 if both orders are as usual; of both
        # steps, the one that breaks more orders is to blame
        first = _first_times(order, steps)
        found, blame = np.zeros((len(steps), 3)), rows[:, 0] + rows[:, 1]
        for late, b in first.items():
            for early, a in first.items():
                if early < late and order.probability[a, b] < 0.5:
                    which = late if blame[late] >= blame[early] else early
                    found[which, 1] = max(found[which, 1], 1 - 2 * order.probability[a, b])
        found[:, 0] = 1 - found[:, 1]
        return found

    def threshold(self, alarms_an_hour: float) -> float:
        """Return the least p(error) that gives at most so many false alarms an hour.

        Raises:
            ConfigError: Training named too few errors to count false alarms.
        """
        if not self.hours:
            problem = "training named too few errors to count false alarms. Give a probability"
            raise ConfigError(f"{problem}.", setting="false_alarms")
        if not 0 <= alarms_an_hour < np.inf:
            problem = f"{alarms_an_hour}: expected a number of at least 0"
            raise ConfigError(f"false alarms an hour {problem}.", setting="false_alarms")
        place = len(self.alarms) - 1 - int(alarms_an_hour * self.hours)
        return 0.0 if place < 0 else float(np.nextafter(self.alarms[place], 1))

    def verify(
        self,
        steps: Sequence[Step],
        task: int,
        *,
        sure: Sequence[float] | None = None,
        finished: bool = True,
        least: float = 0.5,
    ) -> Verification:
        """Say what was wrong.

        Args:
            steps: The steps in the order of their times; actions of other tasks count as added.
            task: Id of the task.
            sure: Probability of each step, if they were recognised; 1 by default.
            finished: Whether the video is over; else steps are missing only if later ones are done.
            least: Leave out what is less probable.

        Raises:
            ConfigError: No step, an unknown task or action, or a number that is none.
        """
        if not len(steps):
            raise ConfigError("a video without steps cannot be verified.")
        task, count = find_task(self.taxonomy, task), len(self.taxonomy.actions)
        certain = np.ones(len(steps)) if sure is None else np.asarray(sure, dtype=np.float64)
        if certain.shape != (len(steps),) or not ((certain >= 0) & (certain <= 1)).all():
            raise ConfigError("sure: expected the probability of each step.", setting="sure")
        if not 0 <= least <= np.inf:
            raise ConfigError(f"probability {least}: expected at least 0.", setting="least")
        for place, step in enumerate(steps, 1):
            if not (step.action in range(count) and abs(step.start) + abs(step.end) < _MOST):
                problem = f"step {place} ({step.start} to {step.end} s, action {step.action})"
                raise ConfigError(f"{problem}: expected seconds, and an action of the taxonomy.")
        order = self.orders[task]
        if not (order.videos or order.given):  # nothing is known of the task
            return Verification(deviations=(), repair=())
        rows, first = self.probabilities(steps, task).tolist(), _first_times(order, steps)
        earlier = _earlier([step.action for step in steps])
        every = zip(steps, rows, earlier, certain.tolist(), strict=True)
        found = [
            self._deviation(place, step, task, row, first, before=before, sure=sure_, least=least)
            for place, (step, row, before, sure_) in enumerate(every)
        ]
        found += self._missing(order, steps, certain, finished)
        kept = [one for one in found if one and one.probability >= max(least, _LEAST)]
        return Verification(
            deviations=tuple(sorted(kept, key=lambda one: -one.probability)),
            repair=repair(order, {step.action for step in steps}),
        )

    def _deviation(
        self,
        place: int,
        step: Step,
        task: int,
        row: Sequence[float],
        first: dict[int, int],
        *,
        before: int,
        sure: float,
        least: float,
    ) -> Deviation | None:
        """Return what may be wrong with one step; None if it is less probable.

        Args:
            place: Its place among the steps.
            step: The step.
            task: Id of the task.
            row: p(no error, error of order, another error).
            first: The steps that are the first of an action, as `_first_times` returns them.
            before: Number of earlier steps of its action.
            sure: p(step).
            least: Least probability.
        """
        order = self.orders[task]
        kind: DeviationKind = "order" if row[1] >= row[2] else "wrong"
        probability, own = 1 - row[0], order.index.get(step.action, -1)
        said = "unlike the videos without errors"
        if own < 0 or not order.occurs[own]:
            kind = "added"
            said = f"in none of {counted(order.videos, 'video')} without errors"
            probability = max(probability, 1 - (0.0 if own < 0 else float(order.usual[own])))
        elif before and order.repeated[own] < 0.5:
            kind, said = "repeated", f"done {before + 1} times"
            probability = max(probability, 1 - float(order.repeated[own]))
        elif kind == "order" and (pair := _worst_pair(order, place, first)) is not None:
            a, b, kept, seen = pair
            which = (
                "the order given has" if order.given else f"{kept} of {counted(seen, 'video')} have"
            )
            said = f"'{self._name(a)}' after '{self._name(b)}'; {which} it before"
        else:
            seconds, log = step.end - step.start, log_length(step.start, step.end)
            score = (log - order.length[own]) / order.spread[own]
            if abs(score) > self.config.unusual:
                kind = "long" if score > 0 else "short"
                said = f"{seconds:.0f} s; usual are {np.exp(order.length[own]):.0f} s"
                if self.network is None:
                    probability = max(probability, 1 - 1 / float(score) ** 2)  # Chebyshev
        if probability * sure < least:
            return None
        return Deviation(
            kind=kind,
            action=step.action,
            name=self._name(step.action),
            step=place + 1,
            start=step.start,
            end=step.end,
            probability=probability * sure,
            evidence=said,
        )

    def _missing(
        self, order: TaskOrder, steps: Sequence[Step], certain: Floats, finished: bool
    ) -> list[Deviation]:
        """Return the usual steps that were not done."""
        done = {order.index[step.action] for step in steps if step.action in order.index}
        found = []
        for own in sorted(set(range(order.size)) - done):
            probability = float(order.usual[own])
            said = f"in {order.occurs[own]:.0f} of {counted(order.videos, 'video')} without errors"
            if not order.videos:
                said = "a step of the instruction"
            if not finished:
                late = max(done, key=lambda other: order.probability[own, other], default=None)
                if late is None:
                    continue
                probability *= float(order.probability[own, late])
                seen = order.before[own, late] + order.before[late, own]
                said = f"before '{self._name(int(order.actions[late]))}'"
                if not order.given:
                    kept = f"{order.before[own, late]:.0f} of {counted(round(seen), 'video')}"
                    said += f" in {kept} without errors"
            action = int(order.actions[own])
            found.append(
                Deviation(
                    kind="missing",
                    action=action,
                    name=self._name(action),
                    probability=probability * float(certain.mean()),
                    evidence=said,
                )
            )
        return found

    def _name(self, action: int) -> str:
        return shortened(self.taxonomy.actions[action].name, _LONGEST_WORDS)

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        tensors = {
            f"order.{task}.{name}": torch.from_numpy(np.asarray(one))
            for task, order in enumerate(self.orders)
            for name, one in order.arrays().items()
        }
        for name, one in (("alarms", self.alarms), ("hours", self.hours)):
            tensors[name] = torch.tensor(one, dtype=torch.float64)
        if self.network is not None:
            own = self.network.state_dict()
            tensors |= {f"network.{name}": tensor for name, tensor in own.items()}
            tensors["temperature"] = torch.tensor(self.temperature, dtype=torch.float64)
        write_tensors(folder / VERIFIER_FILE, tensors)

    @classmethod
    def load(
        cls, folder: Path, taxonomy: Taxonomy, *, config: VerifierConfig | None = None
    ) -> Self:
        """Read what `save` wrote into a run folder, with the settings of the run (RunError)."""
        config = config or VerifierConfig()
        path = folder / VERIFIER_FILE
        tensors, _ = load_tensors(path, "pt", _REMEDY, RunError)
        weights: dict[str, torch.Tensor] = {}
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for name, tensor in tensors.items():
            if name.startswith("network."):
                weights[name.removeprefix("network.")] = tensor
            else:
                part, _, entry = name.rpartition(".")
                parts.setdefault(part, {})[entry] = tensor.numpy()
        facts = parts.pop("", {})
        alarms = facts.get("alarms", np.zeros(0))
        expected = {"alarms": Expected(alarms.shape[:1], 0, 1), "hours": Expected((), 0, _MOST)}
        if weights:
            expected["temperature"] = Expected((), 1e-3, 1e3)
        try:
            check_tensors(facts, expected, str(path))
            orders = tuple(
                TaskOrder.of_arrays(parts.pop(f"order.{task.id}", {}), task.actions, str(path))
                for task in taxonomy.tasks
            )
            if parts:
                raise RunError(f"{path}: tensors '{min(parts)}' are unknown.")
            found = cls(orders, taxonomy, config)
            if not weights:
                return found
            with torch.device("meta"):  # no memory is taken before the shapes are compared
                network = RowClassifier(_width(), 3, config).eval()
            load_weights(network, weights, str(path), copy=False)
        except RunError as problem:
            raise RunError(f"{problem} {_REMEDY}") from problem
        return replace(
            found,
            network=network,
            temperature=float(facts["temperature"]),
            alarms=tuple(np.sort(alarms).tolist()),
            hours=float(facts["hours"]),
        )


def _labels(video: Video) -> NDArray[np.int64]:
    """Return 0 for each step without an error, 1 for one of order, 2 for another [n]."""
    kinds = ([kind.casefold() for kind in step.errors] for step in video.steps)
    return np.array([0 if not own else 1 if any("order" in k for k in own) else 2 for own in kinds])


def _first_times(order: TaskOrder, steps: Sequence[Step]) -> dict[int, int]:
    """Return the steps that are the first of an action of the task: its place by theirs."""
    first: dict[int, int] = {}
    for place, step in enumerate(steps):
        if step.action in order.index:
            first.setdefault(order.index[step.action], place)
    return {place: own for own, place in first.items()}


def _earlier(values: Iterable[int]) -> list[int]:
    """Return how many equal values come before each one."""
    counts, found = dict[int, int](), []
    for value in values:
        found.append(counts.get(value, 0))
        counts[value] = found[-1] + 1
    return found


def _worst_pair(
    order: TaskOrder, place: int, first: dict[int, int]
) -> tuple[int, int, int, int] | None:
    """Return the order that the step at a place breaks most: a, done after b; videos that keep it.

    None if it breaks none; `first` as `_first_times` returns it.
    """
    worst = (0.5, 0, 0)
    for other, index in first.items() if place in first else ():
        if other != place:
            a, b = (first[place], index) if place > other else (index, first[place])
            worst = max(worst, (float(order.probability[a, b]), a, b))
    share, a, b = worst
    if share <= 0.5:
        return None
    kept, broken = order.before[a, b], order.before[b, a]
    return int(order.actions[a]), int(order.actions[b]), int(kept), int(kept + broken)


def repair(order: TaskOrder, done: set[int]) -> tuple[int, ...]:
    """Return the usual actions that were not done, in an order that the graph allows.

    Of those that may come next, the one comes first that is usually the earliest.
    """
    usual = np.flatnonzero(order.usual >= 0.5).tolist()
    left = {own for own in usual if int(order.actions[own]) not in done}
    found = []
    while left:
        free = [own for own in left if not any(order.earlier[other, own] for other in left)]
        found.append(min(free, key=lambda own: (float(order.place[own]), own)))
        left.remove(found[-1])
    return tuple(order.actions[found].tolist()) if found else ()


def evidence(order: TaskOrder, steps: Sequence[Step]) -> NDArray[np.float32]:
    """Return what is known of each step [n, F], with the sign and logarithm of each number.

    For the step k of the action a: how unlikely the orders with the steps before and after it are,
    −Σ log p and its largest part, and how many of them never were; −log p of a after the step
    before it and of the step after it; the deviation of its log-length; that of its place; earlier
    steps of a; how usual a is; the usual steps before it that are not there; overlap and pause.
    Then the mean and the maximum of each over the video, and the usual steps that it lacks.
    """
    size, count = order.size, len(steps)
    row = np.array([order.index.get(step.action, -1) for step in steps])
    log, seen = -np.log(order.probability), order.before + order.before.T
    never = (order.before == 0) & (seen >= 2)
    chances = -np.log((order.follows + 0.1) / (order.follows.sum(1, keepdims=True) + 0.1 * size))
    lead = np.maximum(0, 2 * order.probability - 1) * order.usual[:, None]
    np.fill_diagonal(lead, 0)
    known, places = row >= 0, np.arange(count)
    sides, met = (
        np.zeros((count, 6)),
        np.full(size, count),
    )  # place of the first step of each action
    first = _first_times(order, steps)
    for number, (place, own) in enumerate(first.items()):
        before, after = list(first.values())[:number], list(first.values())[number + 1 :]
        met[own], both = place, (log[before, own], log[own, after])
        sides[place, :4] = *map(np.sum, both), *(each.max(initial=0) for each in both)
        sides[place, 4:] = never[before, own].sum(), never[own, after].sum()
    length = np.array([log_length(step.start, step.end) for step in steps])
    ends = np.array([0.0, *(step.end for step in steps[:-1])])
    gap, where = np.array([step.start for step in steps]) - ends, (places + 0.5) / count
    off = np.where(known, length - np.append(order.length, 0)[row], 0)
    usually = np.append(order.place, np.nan)[row]
    there = np.where(np.isnan(usually), 0, where - usually)
    unmet = np.pad(lead, ((0, 0), (0, 1)))[:, row].T * (met >= places[:, None])
    own_rows = np.column_stack(
        [
            sides,
            chances[np.append(size, row[:-1]), row],
            chances[row, np.append(row[1:], size)],
            off,
            np.abs(off),
            off / np.append(order.spread, 1)[row],
            there,
            np.abs(there),
            where,
            places,
            _earlier(row.tolist()),
            np.append(order.usual, 0)[row],
            unmet.sum(axis=1),
            (places > 0) & (gap < -0.5),
            gap,
        ]
    )
    lacking = order.usual[~np.isin(np.arange(size), row)]
    video = [lacking.sum(), lacking.max(initial=0), count, order.videos]
    shared = np.concatenate([own_rows.mean(axis=0), own_rows.max(axis=0), video])
    every = np.concatenate([own_rows, np.repeat(shared[None], count, axis=0)], axis=1)
    found: NDArray[np.float32] = (np.sign(every) * np.log1p(np.abs(every))).astype(np.float32)
    return found


def _width() -> int:
    """Numbers of the evidence of a step."""
    order = TaskOrder.of([], [0])
    return int(evidence(order, [Step(0, 1, 0)]).shape[1])
