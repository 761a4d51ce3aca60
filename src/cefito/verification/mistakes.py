"""Kinds of mistakes: each is a class with its name, words, evidence and probability.

To add one, write a subclass of `StepMistake` (of a step that was done) or of `OmittedMistake` (of
an action that was not). It is registered by its declaration; pages, reports, the command line and
the service take its words from here. Of kinds that apply, the one that is declared last names a
mistake, so general kinds come first. Its test is in tests/verification/test_mistakes.py, and
docs/verify.md describes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import atan, exp, lgamma, pi, sqrt
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from cefito.data.annotations import Step
from cefito.data.vocabulary import Taxonomy, similar_names, tasks_of
from cefito.markup import counted, shortened
from cefito.verification.foresight import ADDED, LENGTH, REPEATED, UNKNOWN, Foresight
from cefito.verification.order import (
    SURPRISING,
    UNUSUAL,
    Floats,
    TaskOrder,
    by_bayes,
    log_length,
    mistaken,
    repetitions,
    right_share,
    signed_log,
)

ORDER = "order"  # name of the kind of a step out of order
_LONGEST_NAME = 60  # letters
_UNLIKE = "unlike right steps"
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True)
class BrokenOrder:
    """An order of two actions that a video breaks: `early` came after `late`, or not yet."""

    early: int
    late: int
    kept: int  # videos that keep it
    seen: int  # videos with both actions
    done: bool  # whether `early` came


def share_within(score: float, freedom: float) -> float:
    """Return p(|t| ≤ score) of Student's t with ν degrees of freedom.

    2 Γ((ν + 1) / 2) / (√π Γ(ν / 2)) ∫ cos^(ν − 1) from 0 to arctan(score / √ν), by Gauss-Legendre;
    to import it from scipy.special takes a third of a second.
    """
    end = atan(score / sqrt(freedom))
    integral = end / 2 * float(_WEIGHTS @ np.cos(end / 2 * (_NODES + 1)) ** (freedom - 1))
    gammas = lgamma((freedom + 1) / 2) - lgamma(freedom / 2)
    return 2 * exp(gammas) / sqrt(pi) * integral


def step_keys(steps: Iterable[Step]) -> list[tuple[int, int]]:
    """Return the action and the number of earlier steps of it, of each step."""
    totals, keys = Counter[int](), []
    for step in steps:
        keys.append((step.action, totals[step.action]))
        totals[step.action] += 1
    return keys


@dataclass(frozen=True, eq=False)
class SeenVideo:
    """The steps of a video, beside what is known of its task."""

    order: TaskOrder
    taxonomy: Taxonomy
    steps: Sequence[Step]
    learned: bool = False  # whether networks gave the probabilities of its steps
    finished: bool = False  # else steps may follow
    online: bool = False  # whether its last step is judged, before others are seen
    foresight: Foresight | None = None  # that gave the probabilities of its steps

    @cached_property
    def first(self) -> dict[int, int]:
        """As `TaskOrder.first_steps` returns it."""
        return self.order.first_steps(self.steps)

    @cached_property
    def keys(self) -> list[tuple[int, int]]:
        """Action and number of earlier steps of it, of each step."""
        return step_keys(self.steps)

    @cached_property
    def repetitions(self) -> list[int]:
        """As `cefito.verification.order.repetitions` returns it."""
        return repetitions(self.order, (step.action for step in self.steps), self.taxonomy)

    def strange(self, name: str, wrong: float) -> float:
        """Return p(mistake) of a step that is strange in a way, which is p(mistake) by counts.

        It is 0 if right videos have that too often, or if the task has none, so that it tells
        nothing.
        """
        if self.foresight is None:
            return wrong
        tells = self.foresight.told(name) and (self.order.videos or name == UNKNOWN)
        return self.foresight.strange[name] if tells else 0.0

    @cached_property
    def order_errors(self) -> Floats:
        """p(error of order) of each step by counts [n].

        (1 − 2 q) `mistaken` of the order of first times for which it is largest, where q is the
        probability that a right video has it; 0 if both orders are as usual. Of both steps, the one
        that breaks more orders is to blame. Online, the last step may need an action not done.
        """
        errors = np.zeros(len(self.steps))
        places, actions = [*self.first], [*self.first.values()]  # in order
        before = self.order.before[np.ix_(actions, actions)]
        shares = self.order.probability[np.ix_(actions, actions)]
        broken = np.argwhere(np.triu(shares < 0.5, 1)).tolist()
        if broken:
            seen = before + before.T
            wrong = (1 - 2 * right_share(before, seen)) * mistaken(before, seen, SURPRISING)
            costs = self.order.done_costs(actions)
            blame = signed_log(costs.sum(axis=0)) + signed_log(costs.sum(axis=1))
        for a, b in broken:
            place = places[b if blame[b] >= blame[a] else a]
            errors[place] = max(errors[place], wrong[a, b])
        if self.online:
            needs = self.order.needs(self.first, len(errors) - 1)
            errors[-1] = max(errors[-1], needs.max(initial=0))
        return errors

    def omitted(self, certainty: float) -> Iterator[OmittedAction]:
        """Yield the actions of the task that were not done, with p(not done)."""
        done = [*set(self.first.values())]
        left = [index for index in range(self.order.size) if index not in done]
        pairs = np.ix_(left, done)
        chances = self.order.probability[pairs] * self.order.earlier[pairs]
        for index, row in zip(left, chances, strict=True):
            later = done[row.argmax()] if row.any() else None
            yield OmittedAction(self, index, later, certainty)

    def name(self, action: int) -> str:
        """Return the name of an action for messages."""
        return shortened(self.taxonomy.actions[action].name, _LONGEST_NAME)


@dataclass(frozen=True, eq=False)
class SeenStep:
    """A step that was done, with its probabilities."""

    video: SeenVideo
    place: int  # among the steps of the video, from 0
    right: float  # p(no error)
    misplaced: float  # p(error of order)
    mishandled: float  # p(another error)
    certainty: float  # p(it was done)

    @property
    def step(self) -> Step:
        """The step itself."""
        return self.video.steps[self.place]

    @property
    def action(self) -> int:
        """Id of its action."""
        return self.step.action

    @property
    def key(self) -> tuple[int, int]:
        """Its action, and the number of earlier steps of it."""
        return self.video.keys[self.place]

    @cached_property
    def index(self) -> int | None:
        """Place of its action in the order of the task; None if it is of another task."""
        return self.video.order.index.get(self.action)

    @property
    def unknown(self) -> bool:
        """Whether its action is of no task."""
        return self.index is None and not tasks_of(self.video.taxonomy, self.action)

    @property
    def goes_on(self) -> bool:
        """Whether it may still go on, as the last step of a video that is not over."""
        video = self.video
        return not video.finished and not video.online and self.place == len(video.steps) - 1

    @property
    def in_videos(self) -> bool:
        """Whether a training video has its action as a right step."""
        return self.index is not None and bool(self.video.order.occurs[self.index])

    @property
    def usual(self) -> float:
        """p(its action occurs in a video); 0 if it is of another task."""
        return 0.0 if self.index is None else float(self.video.order.usual[self.index])

    @property
    def repetitions(self) -> int:
        """Number of earlier steps of its action that were not undone."""
        return self.video.repetitions[self.place]

    @property
    def usual_repetitions(self) -> float:
        """Mean number of repetitions of its action in a video; 0 if it is of another task."""
        return 0.0 if self.index is None else float(self.video.order.repeated[self.index])

    @property
    def repetition(self) -> float:
        """p(mistake) of a repetition of its action, by counts; 1 if it is of another task."""
        return 1.0 if self.index is None else float(self.video.order.repetition[self.index])

    def mistake_by(self, share: float) -> float:
        """Return p(mistake), at least that by counts.

        Networks have seen it of each action of the task, and decide alone.
        """
        wrong = 1 - self.right
        return wrong if self.video.learned and self.index is not None else max(wrong, share)

    @cached_property
    def length_score(self) -> float:
        """Deviation of the logarithm of its seconds, in standard deviations; 0 if no usual one."""
        if not self.in_videos:
            return 0.0
        order, length = self.video.order, log_length(self.step.start, self.step.end)
        return float((length - order.length[self.index]) / order.spread[self.index])

    @cached_property
    def unusual_length(self) -> float:
        """p(mistake) of a length as far from usual, `by_bayes`; 0 if its action is of another task.

        q = n p is how many of the n steps of a right video are as far, by Student's t: lengths are
        as those that have been seen, whose mean and deviation are estimates (prediction interval of
        the logarithm).
        """
        if self.index is None:
            return 0.0
        done = float(self.video.order.follows[:, self.index].sum())
        score = abs(self.length_score) / np.sqrt(1 + 1 / max(done, 1e-9))
        chance = 1 - share_within(score, max(done - 0.5, 0.5))
        return float(by_bayes(min(1.0, len(self.video.steps) * chance), SURPRISING))

    @cached_property
    def broken(self) -> BrokenOrder | None:
        """The order that it breaks most; None if it breaks none, or is not a first step.

        If it is judged online and breaks none, the order of an action that it needs before it.
        """
        order, first, worst = self.video.order, self.video.first, (0.5, 0, 0)
        for place, index in first.items() if self.place in first else ():
            if place != self.place:
                here = first[self.place]
                a, b = (here, index) if self.place > place else (index, here)
                worst = max(worst, (float(order.probability[a, b]), a, b))
        share, a, b = worst
        done, needs = share > 0.5, order.needs(first, self.place) if self.video.online else ()
        if not done and np.any(needs):
            a, b, done = int(np.argmax(needs)), first[self.place], False
        elif not done:
            return None
        kept, seen = order.before[a, b], order.before[a, b] + order.before[b, a]
        return BrokenOrder(int(order.actions[a]), int(order.actions[b]), int(kept), int(seen), done)


@dataclass(frozen=True, eq=False)
class OmittedAction:
    """An action of the task that was not done."""

    video: SeenVideo
    index: int  # place in the order of the task
    later: int | None  # place of the action done that it precedes most surely by the graph
    certainty: float  # p(it was not done)

    @property
    def action(self) -> int:
        """Id of the action."""
        return int(self.video.order.actions[self.index])

    @property
    def key(self) -> tuple[int, int]:
        """The action, of which there is no earlier step."""
        return self.action, 0


Subject = TypeVar("Subject", SeenStep, OmittedAction)


class Mistake(Generic[Subject]):
    """A kind of mistake of a step, or of an action that was not done."""

    name: ClassVar[str]
    words: ClassVar[str]
    shown_in_doubt: ClassVar[bool] = False  # also if it is likelier no mistake

    def __init_subclass__(cls) -> None:
        """Register a kind; one without a whole meaning, or of a name in use, is a TypeError."""
        if Mistake in cls.__bases__:
            return
        declared = ("name", "words", "applies", "probability", "evidence")
        values = {attribute: getattr(cls, attribute, None) for attribute in declared}
        lacking = [
            attribute
            for attribute, value in values.items()
            if value in (None, getattr(Mistake, attribute, None)) or not str(value).strip()
        ]
        if lacking:
            raise TypeError(f"the mistake {cls.__name__} lacks {', '.join(lacking)}.")
        if cls.name in KINDS:
            raise TypeError(f"two mistakes are named '{cls.name}'.")
        KINDS[cls.name] = cls()

    def applies(self, subject: Subject) -> bool:
        """Return whether a mistake of the subject would be of this kind."""
        raise NotImplementedError

    def probability(self, subject: Subject) -> float:
        """Return the probability that it is a mistake, if the steps are certain."""
        raise NotImplementedError

    def evidence(self, subject: Subject) -> str:
        """Return in words what shows it."""
        raise NotImplementedError


class StepMistake(Mistake[SeenStep]):
    """A kind of mistake of a step that was done."""

    def share(self, subject: SeenStep) -> float:
        """Return the probability of a mistake of this kind, whatever kind names it."""
        return self.probability(subject) if self.applies(subject) else 0.0


class OmittedMistake(Mistake[OmittedAction]):
    """A kind of mistake of an action that was not done."""


KINDS: dict[str, Mistake[Any]] = {}
"""Each kind by its name; of those that apply, the last one names a mistake."""


def kinds_of(base: type[Mistake[Any]]) -> list[Any]:
    """Return the kinds of `StepMistake` or `OmittedMistake`, the one declared last first."""
    return [kind for kind in [*KINDS.values()][::-1] if isinstance(kind, base)]


class _Omitted(OmittedMistake):
    """A usual step that was not done; before the end of a video, if a later one was done."""

    name, words, shown_in_doubt = "missing", "missing", True

    def applies(self, subject: OmittedAction) -> bool:
        return subject.video.finished or subject.later is not None

    def probability(self, subject: OmittedAction) -> float:
        order = subject.video.order
        wrong = float(order.omission[subject.index])
        if subject.video.finished:
            return wrong
        return wrong * float(order.probability[subject.index, subject.later])

    def evidence(self, subject: OmittedAction) -> str:
        order, index, later = subject.video.order, subject.index, subject.later
        if not subject.video.finished and later is not None:
            before = f"before '{subject.video.name(int(order.actions[later]))}'"
            if order.given:
                return before
            kept, seen = order.before[index, later], order.before[[index, later], [later, index]]
            return f"{before} in {kept:.0f} of {counted(round(seen.sum()), 'training video')}"
        if not order.videos:
            return "a step of the instruction"
        return f"done in {order.occurs[index]:.0f} of {counted(order.videos, 'training video')}"


class _DoneWrongly(StepMistake):
    """Another mistake, which the networks see."""

    name, words = "wrong", "done wrongly"

    def applies(self, subject: SeenStep) -> bool:  # noqa: ARG002
        return True

    def probability(self, subject: SeenStep) -> float:
        return 1 - subject.right

    def share(self, subject: SeenStep) -> float:
        return subject.mishandled

    def evidence(self, subject: SeenStep) -> str:  # noqa: ARG002
        return _UNLIKE


class _TooLong(StepMistake):
    """A step of an unusual length, by its prediction interval if no network is trained."""

    name, words = "long", "too long"

    def applies(self, subject: SeenStep) -> bool:
        return subject.length_score > UNUSUAL

    def probability(self, subject: SeenStep) -> float:
        wrong = 1 - subject.right
        return wrong if subject.video.learned else max(wrong, self.share(subject))

    def share(self, subject: SeenStep) -> float:
        if not self.applies(subject):
            return 0.0
        if subject.video.learned:
            return subject.mishandled
        return subject.video.strange(LENGTH, subject.unusual_length)

    def evidence(self, subject: SeenStep) -> str:
        step, mean = subject.step, np.exp(subject.video.order.length[subject.index])
        return f"{step.end - step.start:.0f} s; usually {float(mean):.0f} s"


class _TooShort(_TooLong):
    """The same of a short step."""

    name, words = "short", "too short"

    def applies(self, subject: SeenStep) -> bool:
        return subject.length_score < -UNUSUAL and not subject.goes_on


class _OutOfOrder(StepMistake):
    """A step before or after the steps that it should follow."""

    name, words, shown_in_doubt = ORDER, "out of order", True

    def applies(self, subject: SeenStep) -> bool:
        if subject.misplaced < subject.mishandled:
            return False
        return abs(subject.length_score) <= UNUSUAL or subject.broken is not None

    def probability(self, subject: SeenStep) -> float:
        return 1 - subject.right

    def share(self, subject: SeenStep) -> float:
        return subject.misplaced

    def evidence(self, subject: SeenStep) -> str:
        if (broken := subject.broken) is None:
            return _UNLIKE
        shares = f"{broken.kept} of {counted(broken.seen, 'video')} have"
        have = "the order given has" if subject.video.order.given else shares
        early, late = map(subject.video.name, (broken.early, broken.late))
        when = f"after '{late}'" if broken.done else "was not done"
        return f"'{early}' {when}; {have} it before"


class _Repeated(StepMistake):
    """A step that is usually done once."""

    name, words = REPEATED, "repeated"

    def applies(self, subject: SeenStep) -> bool:
        return (
            subject.repetitions > 0
            and subject.usual_repetitions < 0.5
            and subject.video.strange(self.name, subject.repetition) > 0
        )

    def probability(self, subject: SeenStep) -> float:
        return subject.mistake_by(subject.repetition)

    def share(self, subject: SeenStep) -> float:
        wrong = subject.repetition
        return subject.video.strange(self.name, wrong) if self.applies(subject) else 0.0

    def evidence(self, subject: SeenStep) -> str:
        return f"done {subject.repetitions + 1} times"


class _Added(StepMistake):
    """A step that no training video has, but as an error."""

    name, words = ADDED, "not a step of the task"

    def applies(self, subject: SeenStep) -> bool:
        strange = not subject.in_videos and not subject.unknown
        return strange and subject.video.strange(self.name, 1 - subject.usual) > 0

    def probability(self, subject: SeenStep) -> float:
        return subject.mistake_by(self.share(subject))

    def share(self, subject: SeenStep) -> float:
        wrong = 1 - subject.usual
        return subject.video.strange(self.name, wrong) if self.applies(subject) else 0.0

    def evidence(self, subject: SeenStep) -> str:
        return f"done in none of {counted(subject.video.order.videos, 'training video')}"


class _Unknown(_Added):
    """A step of a name that no task has; it may be misspelt."""

    name, words = UNKNOWN, "not a known step"

    def applies(self, subject: SeenStep) -> bool:
        return subject.unknown

    def evidence(self, subject: SeenStep) -> str:
        taxonomy, order = subject.video.taxonomy, subject.video.order
        names = [taxonomy.actions[action].name for action in order.actions]
        near = similar_names(taxonomy.actions[subject.action].name, names)[:1]
        return f"the nearest name is '{near[0]}'" if near else "no name of the task is similar"
