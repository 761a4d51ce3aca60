"""Findings of a verification: what may be wrong in a video, and what is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from cefito.data.annotations import Step
from cefito.data.vocabulary import Taxonomy
from cefito.markup import counted, film_percent
from cefito.settings import Record
from cefito.verification.mistakes import (
    KINDS,
    OmittedAction,
    OmittedMistake,
    SeenStep,
    StepMistake,
    kinds_of,
    step_keys,
)
from cefito.verification.order import SURPRISING, TaskOrder, mistaken, present
from cefito.verification.promise import Chance

LEAST = 0.5
"""Least probability of a mistake that is reported, by default."""
_AS_SURE = 0.1  # difference in probability of findings that are about as sure
_LEAST = 1e-300  # probability of what is named at least, since one of 0 is none
_ALSO = 0.05  # p(mistake) of another kind, from which on it is named, too
_AFTER = 2.0  # steps that the prior of the next one counts as
_NEEDED = 3.0  # cost of a step that surely needs one that was not done


class Deviation(Record):
    """Something that was wrong in a video."""

    kind: str = Field(json_schema_extra={"enum": [*KINDS]})
    words: str  # the kind in words
    action: int | None  # None if its name is unknown
    name: str
    # counted from 1; None if it is missing, or if the likeliest steps of a film lack it
    step: int | None = None
    start: float | None = None  # seconds
    end: float | None = None
    probability: float  # that it is an error
    evidence: str  # in words

    @property
    def omitted(self) -> bool:
        """Whether an action was not done."""
        return isinstance(KINDS[self.kind], OmittedMistake)


class UnsureStep(Record):
    """A step of which a film shows neither that it was done rightly nor that it was not."""

    action: int
    name: str
    kind: str = Field(json_schema_extra={"enum": [*KINDS]})  # of the mistake that it may be
    words: str  # the kind in words
    probability: float  # that it is one
    evidence: str = ""  # in words

    @property
    def text(self) -> str:
        """What it may be, how probable that is, and what shows it."""
        shown = f"; {self.evidence}" * bool(self.evidence)
        return f"{self.name}, {self.words} ({film_percent(self.probability)}{shown})"


class UnseenStep(Record):
    """A step of the task that was not seen, with neither a finding nor a doubt about it."""

    action: int
    name: str
    probability: float | None = None  # that it is missing; None if nothing is known of the task
    evidence: str = ""  # how usual it is, in words


class StepJudgement(Record):
    """How probable it is that a step was recognised wrongly, and else that it was a mistake."""

    recognised_wrongly: float | None = None  # p(not done); None if nothing is known of the task
    done_wrongly: float | None = None  # p(done, and a mistake); the rest is p(done rightly)
    mistake: float | None = None  # p(a mistake, if it was done); None if a film lacks the step, too
    # of each kind, which may occur together
    kinds: dict[str, float] = Field(default_factory=dict)


class Verification(Record):
    """What was wrong in a video, and how to go on."""

    deviations: tuple[Deviation, ...]  # the likeliest first
    unsure: tuple[UnsureStep, ...] = ()  # that were likeliest not done first
    # the other steps of the task that were not seen, those that are likeliest missing first
    unseen: tuple[UnseenStep, ...] = ()
    steps: tuple[StepJudgement, ...]
    repair: tuple[int, ...]  # actions that lead to the end, those that were skipped first

    @property
    def chances(self) -> list[Chance]:
        """Probability of each deviation, whether it is of a step that was done, and its action."""
        return [
            (one.probability, one.step is not None, -1 if one.action is None else one.action)
            for one in self.deviations
        ]


class Findings:
    """What sequences of steps, each with its probability, say of mistakes."""

    def __init__(self, least_omitted: float = _LEAST) -> None:
        """Leave out actions that were not done with less than a probability."""
        self._least_omitted = least_omitted
        self._of_steps, self._of_omitted = kinds_of(StepMistake), kinds_of(OmittedMistake)
        self.of_drawn = False  # whether sequences were drawn
        # makes the steps shown those that were likelier done, as in sequences that were drawn
        self.corrected: Callable[[Sequence[Step]], Sequence[Step]] = lambda steps: steps
        self._suspects: dict[tuple[int, int], _Suspect] = {}

    def add(self, subject: SeenStep | OmittedAction, share: float) -> None:
        """Add a step, or an action that was not done, of a sequence of this probability."""
        if (key := subject.key) not in self._suspects:
            self._suspects[key] = _Suspect()
        done = isinstance(subject, SeenStep)
        self._suspects[key].add(subject, share, self._of_steps if done else self._of_omitted)

    def compare(self, shown: Mapping[int, Sequence[float]], videos: int) -> None:
        """Lower the probabilities of what is also found in right videos that were held out.

        `shown` has the probability of a finding of each action in those that have one, by its id.
        """
        for (action, _), suspect in self._suspects.items():
            if action in shown:
                suspect.compare(shown[action], videos)

    def judgements(self, shown: Sequence[Step]) -> tuple[StepJudgement, ...]:
        """Return how probable it is that each of the steps shown was a mistake."""
        keys = step_keys(self.corrected(shown))
        return tuple(self._suspects.get(key, _Suspect()).judgement() for key in keys)

    def deviations(self, shown: Sequence[Step], certainty: float, least: float) -> list[Deviation]:
        """Return the first ones of `possible`, whose arguments these are."""
        return [deviation for deviation, _ in self.possible(shown, certainty, least)]

    def unsure(
        self, shown: Sequence[Step], certainty: float, leasts: tuple[float, float]
    ) -> tuple[UnsureStep, ...]:
        """Return what a film leaves open, the likeliest first; nothing if steps were given.

        What right videos have often enough is no doubt, however sure the steps are.

        Args:
            shown: The steps.
            certainty: Probability of the task.
            leasts: Probability of a doubt, at least, and of a finding.
        """
        doubt, finding = leasts
        return tuple(
            UnsureStep(**{name: getattr(d, name) for name in UnsureStep.model_fields})
            for d, surest in self.possible(shown, certainty)
            if self.of_drawn
            and doubt <= d.probability < finding
            and (KINDS[d.kind].shown_in_doubt or d.probability >= LEAST)
            and surest >= LEAST
        )

    def possible(
        self, shown: Sequence[Step], certainty: float, least: float = _LEAST
    ) -> list[tuple[Deviation, float]]:
        """Return what may be wrong, the likeliest first, with places among the steps shown.

        Each has p(mistake) in the sequence of steps that shows it best.

        Args:
            shown: The steps.
            certainty: Probability of the task.
            least: Leave out what is less probable.
        """
        places = {key: place for place, key in enumerate(step_keys(self.corrected(shown)))}
        leasts = {
            name: max(least, self._least_omitted if isinstance(kind, OmittedMistake) else _LEAST)
            for name, kind in KINDS.items()
        }
        findings = [
            (
                suspect.deviation(places.get(key), shown, certainty, drawn=self.of_drawn),
                suspect.surest,
            )
            for key, suspect in self._suspects.items()
            if certainty * suspect.probability >= leasts.get(suspect.name, 2.0)
        ]
        return sorted(findings, key=lambda finding: -finding[0].probability)

    def unseen(
        self, actions: Iterable[int], taxonomy: Taxonomy, *, certainty: float = 1.0
    ) -> tuple[UnseenStep, ...]:
        """Return actions that the steps shown lack, those that are likeliest missing first.

        Args:
            actions: The actions.
            taxonomy: Names them.
            certainty: Probability of the task.
        """
        steps = []
        for action in actions:
            facts: dict[str, Any] = {"action": action, "name": taxonomy.actions[action].name}
            if (suspect := self._suspects.get((action, 0))) is not None:
                facts |= suspect.unseen(certainty, drawn=self.of_drawn)
            steps.append(UnseenStep(**facts))
        return tuple(sorted(steps, key=lambda unseen: -(unseen.probability or 0.0)))


class _Suspect:
    """A step of an action, and how probable it is that it was a mistake, in all sequences."""

    def __init__(self) -> None:
        self._kinds: dict[str, float] = {}  # p(mistake) that is named so
        self._best: dict[str, tuple[float, SeenStep | OmittedAction]] = {}
        # as it was done in a sequence, with p(mistake), and p(it was done so)
        self._done: list[tuple[SeenStep, float, float]] = []
        self._also = ""  # what right videos that were held out show, in words

    def add(self, subject: SeenStep | OmittedAction, share: float, kinds: list[Any]) -> None:
        """Add what a sequence of this probability says; of the kinds, the first names a mistake."""
        named = next((kind for kind in kinds if kind.applies(subject)), None)
        mistake = 0.0 if named is None else named.probability(subject)
        share *= subject.certainty
        if named is not None:
            name = named.name
            self._kinds[name] = self._kinds.get(name, 0.0) + mistake * share
            if name not in self._best or mistake > self._best[name][0]:
                self._best[name] = mistake, subject
        if isinstance(subject, SeenStep):
            self._done.append((subject, mistake, share))

    def compare(self, shown: Sequence[float], videos: int) -> None:
        """Lower p(mistake) of what was found about as surely in right videos held out."""
        least = max(LEAST, self.probability - _AS_SURE)
        if not (count := sum(probability >= least for probability in shown)):
            return
        most = mistaken(count, videos, SURPRISING)
        share = min(1.0, most / max(self.probability, _LEAST))
        self._kinds = {name: share * mistake for name, mistake in self._kinds.items()}
        self._done = [(step, share * mistake, p) for step, mistake, p in self._done]
        self._also = f"; wrongly found in {count} of {counted(videos, 'right video')} held out"

    @property
    def probability(self) -> float:
        """p(mistake)."""
        return min(1.0, sum(self._kinds.values()))

    @property
    def name(self) -> str:
        """The likeliest kind; empty if there is none."""
        return max(self._kinds, key=lambda kind: self._kinds[kind], default="")

    @property
    def surest(self) -> float:
        """p(mistake) of that kind in the sequence of steps that shows it best."""
        return self._best[self.name][0]

    @property
    def _drawn(self) -> str:
        return f"in {film_percent(self.done)} of the sequences drawn from the film"

    def unseen(self, certainty: float, *, drawn: bool) -> dict[str, Any]:
        """Return the probability that it is missing, and how usual it is, in words."""
        names = [kind.name for kind in kinds_of(OmittedMistake) if kind.name in self._best]
        evidence = [KINDS[name].evidence(self._best[name][1]) for name in names]
        evidence = evidence or ["no later step shows it"]  # of a video that is not over
        return {
            "probability": certainty * sum(self._kinds[name] for name in names),
            "evidence": "; ".join([*evidence, self._drawn] if drawn else evidence),
        }

    @property
    def done(self) -> float:
        """p(it was done)."""
        return min(1.0, sum(share for _, _, share in self._done))

    def judgement(self) -> StepJudgement:
        """Return the probabilities of a step; of mistakes none if no sequence has it."""
        done = self.done
        if not done:
            return StepJudgement(recognised_wrongly=1.0, done_wrongly=0.0)
        kinds = kinds_of(StepMistake)[::-1]
        mistake = sum(self._kinds.get(kind.name, 0.0) for kind in kinds)
        shares = {
            kind.name: sum(
                share * min(kind.share(step), wrong)  # none exceeds p(mistake)
                for step, wrong, share in self._done
            )
            for kind in kinds
        }
        return StepJudgement(
            recognised_wrongly=1 - done,
            done_wrongly=min(done, mistake),
            mistake=min(1.0, mistake / done),
            kinds={name: share / done for name, share in shares.items()},
        )

    def deviation(
        self, place: int | None, steps: Sequence[Step], certainty: float, *, drawn: bool
    ) -> Deviation:
        """Return what may be wrong, as its likeliest kind, with its place among the steps shown.

        Args:
            place: The place, from 0; None if the steps shown lack it.
            steps: The steps shown.
            certainty: Probability of the task.
            drawn: Whether sequences were drawn from a film.
        """
        name = self.name
        kind, (_, subject) = KINDS[name], self._best[name]
        times: dict[str, Any] = {}
        evidence = kind.evidence(subject) + self._also
        if isinstance(subject, SeenStep):
            step = subject.step if place is None else steps[place]
            times = {"step": None if place is None else place + 1}
            times |= {"start": step.start, "end": step.end}
        elif drawn:
            evidence += f"; {self._drawn}"
        for other, mistake in self._kinds.items():
            if other != name and mistake >= _ALSO:
                evidence += f"; or {KINDS[other].words}, {film_percent(certainty * mistake)}"
        return Deviation(
            kind=name,
            words=kind.words,
            action=subject.action,
            name=subject.video.name(subject.action),
            probability=certainty * self.probability,
            evidence=evidence,
            **times,
        )


def repair(order: TaskOrder, steps: Iterable[int], taxonomy: Taxonomy) -> tuple[int, ...]:
    """Return the actions that are left to do, in an order that the graph allows.

    Usual actions that were not done are left, and those that were undone. The graph allows an
    action after all that come before it. Of those allowed, the undone ones come first, then the one
    of the highest

        log(n(l, a) + 2 p(a occurs) / Σ p(b occurs))
            − 3 max p(b occurs) max(0, 2 p(b before a) − 1),

    where l is the last action done, and the maximum is over the actions b that are not. The 3 was
    chosen on training videos.

    Args:
        order: Order of the task.
        steps: Actions that were done, in order.
        taxonomy: Names of the actions.
    """
    done, undone = present(order, steps, taxonomy)
    usual = np.flatnonzero(order.usual >= 0.5).tolist()
    left = dict.fromkeys([*undone, *(place for place in usual if place not in done)])
    prior, places = _AFTER * order.usual / order.usual.sum(), np.nan_to_num(order.place)
    last, actions = (done[-1] if done else order.size), list[int]()
    while left:
        allowed = [place for place in left if not order.earlier[[*left], place].any()]
        again = [place for place in allowed if place in undone]
        lacking = np.delete(order.lead, done, axis=0).max(axis=0, initial=0)
        costs = _NEEDED * lacking - np.log(order.follows[last, : order.size] + prior)
        last = min(again or allowed, key=lambda place: (costs[place], places[place], place))
        done.append(last)
        actions.append(int(order.actions[last]))
        del left[last]
    return tuple(actions)
