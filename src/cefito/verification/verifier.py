"""What was wrong in a video: steps skipped, out of order, added, repeated, or done wrongly.

Each step has evidence (`StepEvidence`) from orders and lengths of right steps. Networks
learn the probabilities of no error, of an error of order and of another error from it, if enough
training videos name errors; the evidence of a training video comes from the other videos. Videos
that are held out in turn calibrate these probabilities and count false alarms. Without networks,
what right videos do is less of a mistake, by Bayes (`order.mistaken`), and so is a finding in a
film that right films held out have, too. `mistakes` says what each kind of mistake means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.annotations import Step, Video
from cefito.data.folds import folds_of
from cefito.data.vocabulary import Taxonomy, find_task, in_words
from cefito.errors import ConfigError, RunError
from cefito.files import Expected, check_tensors, load_tensors, load_weights, write_tensors
from cefito.recognition.chain import softened
from cefito.recognition.classifier import RowClassifier, fit_classifier
from cefito.recognition.held_out import best_temperature
from cefito.runtime import weights_to_come
from cefito.tracks.track import stored
from cefito.training.steps import NetworkTraining
from cefito.training.trainer import TrainingContext
from cefito.verification.correction import NONE, likelier_done, parted
from cefito.verification.evidence import StepEvidence
from cefito.verification.findings import Deviation, Findings, StepJudgement, Verification, repair
from cefito.verification.foresight import Foresight
from cefito.verification.mistakes import ORDER, OmittedAction, SeenStep, SeenVideo
from cefito.verification.order import Edges, Floats, TaskOrder
from cefito.verification.promise import HeldOutFindings, Promise, RightFindings
from cefito.verification.settings import VerifierConfig

if TYPE_CHECKING:
    from cefito.recognition.recogniser import HeldFilm

VERIFIER_FILE = "verifier.safetensors"
_REMEDY = "Train the run again."
_DEFAULTS = VerifierConfig()
_ALONE = TrainingContext()
_MOST = 1e300  # seconds
_NOTHING = HeldOutFindings.of([])
_FOLDS = 10  # of the right videos of a task, which are verified by the others
_HELD_OUT = 300  # videos, about
_STRIKING = 0.7  # probability of a mistake in a video that is said to be right
_MODES = "whole", "online", "films"


@dataclass(frozen=True, eq=False)
class Verifier:
    """The orders of tasks and networks of the evidence, of one taxonomy."""

    orders: tuple[TaskOrder, ...]  # by task
    taxonomy: Taxonomy
    config: VerifierConfig = _DEFAULTS
    network: RowClassifier | None = None  # of no error, an error of order, another error
    temperature: float = 1.0
    foresight: Foresight | None = None  # online, of a verifier without networks
    # findings in right videos held out: whole videos, each step from those before it, and whole
    # videos whose steps were recognised
    whole: HeldOutFindings = _NOTHING
    online: HeldOutFindings = _NOTHING
    films: HeldOutFindings = _NOTHING

    @classmethod
    def fit(
        cls,
        videos: Sequence[Video],
        taxonomy: Taxonomy,
        *,
        config: VerifierConfig = _DEFAULTS,
        seed: int = 0,
        context: TrainingContext = _ALONE,
        films: Mapping[str, HeldFilm] = MappingProxyType({}),
    ) -> Self:
        """Count the orders, and train networks if enough steps of the videos name errors.

        A training that was killed goes on if the context has a folder.

        Args:
            videos: Annotated videos.
            taxonomy: Their tasks and actions.
            config: Settings.
            seed: Seed of networks and folds.
            context: Where networks are trained and kept.
            films: What was recognised in these videos, by their ids, to count false alarms in.
        """
        counted = cls(cls._orders(videos, taxonomy), taxonomy, config)
        if sum(bool(s.errors) for video in videos for s in video.steps) < config.fewest_errors:
            learned = counted._foreseeing(videos) if config.online else counted
            return learned._holding_out(learned._of_others(videos), films)
        folds = folds_of(videos, config.folds, seed)
        held: list[tuple[Floats, NDArray[np.int64]]] = []
        others = list[tuple[Self, list[Video]]]()
        count = int(folds.max()) + 1
        total = (count + 1) * config.members * config.training_steps
        with context.progress("verifier", total=total) as advance:
            training = NetworkTraining(context=context, advance=advance, seed=seed)
            for fold in range(count):
                kept = [v for v, place in zip(videos, folds, strict=True) if place != fold]
                left = [v for v, place in zip(videos, folds, strict=True) if place == fold]
                fitted = cls(cls._orders(kept, taxonomy), taxonomy, config)
                fitted = fitted._trained(kept, training.of(f"fold-{fold + 1}"))
                held += [
                    (fitted.probabilities(v.steps, v.task), _labels(v)) for v in left if v.steps
                ]
                others.append((fitted, [v for v in left if v.clean and v.steps]))
            learned = counted._trained(videos, training.of("network"))
        rows, truth = (np.concatenate(parts) for parts in zip(*held, strict=True))
        temperature = best_temperature(rows, truth)
        return replace(learned, temperature=temperature)._holding_out(
            ((replace(fitted, temperature=temperature), left) for fitted, left in others), films
        )

    def _foreseeing(self, videos: Sequence[Video]) -> Self:
        """Learn what right videos say of each step from those before it."""
        foresight = Foresight.fit(self.orders, videos, self.taxonomy, self.config.mistakes)
        # without weights, each video would be judged by nothing
        return replace(self, foresight=foresight) if foresight.weights.any() else self

    def _of_others(self, videos: Sequence[Video]) -> Iterator[tuple[Self, list[Video]]]:
        """Yield verifiers that learned from most right videos, each with some of the others."""
        right = [video for video in videos if video.clean and video.steps]
        chosen = {place for place in range(len(right)) if place % -(-len(right) // _HELD_OUT) == 0}
        for task, order in enumerate(self.orders):
            places = [place for place, video in enumerate(right) if video.task == task]
            for fold in range(min(len(places), _FOLDS)):
                left = [right[place] for place in places[fold::_FOLDS] if place in chosen]
                if not left:
                    continue
                held = {id(right[place]) for place in places[fold::_FOLDS]}
                kept = [v for v in videos if v.task == task and id(v) not in held]
                changed = TaskOrder.of(kept, order.actions.tolist())
                orders = (*self.orders[:task], changed, *self.orders[task + 1 :])
                fitted = replace(self, orders=orders)
                if self.foresight is not None:
                    fitted = replace(fitted, foresight=self.foresight.relearned(order, changed))
                if fitted.knows(task):
                    yield fitted, left

    def among_right(self, videos: Sequence[Video]) -> Iterator[tuple[Video, Deviation]]:
        """Yield what others would call missing or out of order in right videos learned from."""
        for fitted, left in self._of_others(videos):
            for video in left:
                for one in fitted.verify(video.steps, video.task, least=_STRIKING).deviations:
                    if one.omitted or one.kind == ORDER:
                        yield video, one

    def _holding_out(
        self, others: Iterable[tuple[Self, Sequence[Video]]], films: Mapping[str, HeldFilm]
    ) -> Self:
        """Return it with findings of verifiers in right videos that they did not learn from."""
        pairs = [(fitted, video) for fitted, videos in others for video in videos]
        recognised = [(fitted, v.task, films.get(v.video_id)) for fitted, v in pairs]
        held_out = {
            "whole": [fitted._right_findings(video, online=False) for fitted, video in pairs],
            "online": [fitted._right_findings(video, online=True) for fitted, video in pairs],
            "films": [
                fitted._findings_in(f, task) for fitted, task, f in recognised if f is not None
            ],
        }
        fields: dict[str, Any] = {
            mode: HeldOutFindings.of(findings) for mode, findings in held_out.items()
        }
        return replace(self, **fields)

    def _findings_in(self, film: HeldFilm, task: int) -> RightFindings:
        """Return the findings in a right video whose steps were recognised."""
        task = task if task == film.task else -1  # recognised wrongly
        if not film.steps:  # which is refused
            return task, film.hours, 0, ()
        sure = [step.probability for step in film.steps]
        verification = self.verify(
            stored(film.steps),
            film.task,
            sure=sure,
            drawn=film.drawn or None,
            certainty=film.certainty,
            least=0.0,
        )
        return task, film.hours, len(sure), verification.chances

    def _right_findings(self, video: Video, *, online: bool) -> RightFindings:
        """Return the findings in a right video.

        A name that no right video has is unknown: it has the probability 1, as in a table, unless
        foresight counted such names.
        """
        new = {step.action for step in video.steps if not self._has_seen(step.action)}
        found = self.verify(video.steps, video.task, online=online, least=0.0)
        rows = [(1.0 if one[2] in new else one[0], *one[1:]) for one in found.chances]
        return video.task, max(step.end for step in video.steps) / 3600, len(video.steps), rows

    def _has_seen(self, action: int) -> bool:
        """Return whether a right video has an action, or new names are counted beside it."""
        orders = (order for order in self.orders if action in order.index)
        seen = any(order.occurs[order.index[action]] for order in orders)
        return seen or self.foresight is not None

    @staticmethod
    def _orders(videos: Sequence[Video], taxonomy: Taxonomy) -> tuple[TaskOrder, ...]:
        names = [action.name for action in taxonomy.actions]
        return tuple(
            TaskOrder.of([video for video in videos if video.task == task.id], task.actions, names)
            for task in taxonomy.tasks
        )

    def _trained(self, videos: Sequence[Video], training: NetworkTraining) -> Self:
        """Train on the evidence of each video by the others."""
        rows, labels = [], []
        for video in videos:
            if not video.steps:
                continue
            others = [other for other in videos if other.task == video.task and other != video]
            order = TaskOrder.of(others, self.orders[video.task].actions.tolist())
            rows.append(self._rows(order, video.steps))
            labels.append(_labels(video))
        network = fit_classifier(rows, labels, 3, self.config, training, section="verifier")
        return replace(self, network=network)

    def continued(self, before: Verifier) -> Self:
        """Return it with orders of an earlier verifier for the tasks of which it saw no video."""
        orders = list(self.orders)
        for task, order in enumerate(before.orders):
            orders[task] = orders[task] if orders[task].follows.any() else order
        return replace(self, orders=tuple(orders))

    def given(self, graphs: Mapping[int, tuple[Edges, Iterable[int]]]) -> Self:
        """Return it with a person's edges and optional actions (ConfigError for a circle)."""
        orders = list(self.orders)
        for task, graph in graphs.items():
            try:
                orders[task] = orders[task].with_edges(*graph)
            except ConfigError as problem:
                raise ConfigError(in_words(str(problem), self.taxonomy)) from problem
        return replace(self, orders=tuple(orders))

    def probabilities(self, steps: Sequence[Step], task: int) -> Floats:
        """Return p(no error, error of order, another error) of each step [n, 3]."""
        return self._errors([SeenVideo(self.orders[task], self.taxonomy, steps)])[0]

    def _errors(self, videos: Sequence[SeenVideo]) -> list[Floats]:
        """Return `probabilities` by networks, or by counts without them; online, of last steps."""
        if self.network is None:
            return [_by_order(video.order_errors, video.order_errors) for video in videos]
        matrices = [
            StepEvidence.of(video.order, video.steps, self.taxonomy).matrix()[-1:]
            if video.online
            else self._rows(video.order, video.steps)
            for video in videos
        ]
        logs = self.network.log_probabilities(np.concatenate(matrices))
        ends = np.cumsum([len(matrix) for matrix in matrices])
        return np.split(softened(np.exp(logs), self.temperature), ends[:-1])

    def _rows(self, order: TaskOrder, steps: Sequence[Step]) -> NDArray[np.float32]:
        """Return what networks learn of each step [n, F]."""
        if not self.config.online:
            return StepEvidence.of(order, steps, self.taxonomy).matrix()
        prefixes = (steps[:n] for n in range(1, len(steps) + 1))
        return np.stack([StepEvidence.of(order, p, self.taxonomy).matrix()[-1] for p in prefixes])

    def promise(
        self,
        alarms: float,
        *,
        per_steps: int | None = None,
        online: bool = False,
        films: bool = False,
    ) -> Promise:
        """Choose the least probability that keeps a number of false alarms in a new right video.

        Args:
            alarms: The number, an hour or in so many steps.
            per_steps: The number of steps; None for an hour.
            online: Whether each step is judged from those before it alone.
            films: Whether the steps of the video are recognised; of whole videos.

        Raises:
            ConfigError: A number below 0, too few right videos for it, or orders that a person gave
                after the false alarms were counted.
        """
        if any(order.given for order in self.orders):
            problem = "false alarms were not counted under the orders given. Give a probability"
            raise ConfigError(f"{problem}.", setting="false_alarms")
        whole = self.films if films and len(self.films.hours) else self.whole
        return (self.online if online else whole).promise(alarms, per_steps)

    def verify(
        self,
        steps: Sequence[Step],
        task: int,
        *,
        sure: Sequence[float] | None = None,
        drawn: Sequence[Sequence[Step]] | None = None,
        certainty: float = 1.0,
        finished: bool = True,
        online: bool = False,
        least: float = 0.5,
    ) -> Verification:
        """Say what was wrong.

        Args:
            steps: The steps in the order of their times; actions of other tasks count as added.
            task: Id of the task.
            sure: Probability of each step, if they were recognised; 1 by default.
            drawn: Sequences of steps that are as probable as they were drawn, if the steps were
                recognised: mistakes are judged in each of them. `steps` are the likeliest ones.
            certainty: Probability of the task.
            finished: Whether the video is over; else steps are missing only if later ones are done.
            online: Whether each step is judged from those before it alone; steps are missing as if
                the video were not over.
            least: Leave out what is less probable.

        Raises:
            ConfigError: No step, an unknown task or action, or a number that is none.
        """
        if not 0 <= least <= np.inf:
            raise ConfigError(f"probability {least}: expected at least 0.", setting="least")
        findings = self.judge(steps, task, sure=sure, drawn=drawn, finished=finished, online=online)
        done = [step.action for step in findings.corrected(steps) if step.action != NONE]
        left = [action for action in self.taxonomy.tasks[task].actions if action not in done]
        if not self.knows(task):
            return Verification(
                deviations=(),
                unseen=findings.unseen(left, self.taxonomy),
                steps=(StepJudgement(),) * len(steps),
                repair=(),
            )
        deviations = tuple(findings.deviations(steps, certainty, least))
        unsure = findings.unsure(steps, certainty, (self.config.unsure, least))
        # most sequences can lack a step that is shown
        lacking = {one.action for one in deviations if one.omitted and drawn}
        done = [action for action in done if action not in lacking]
        told = {one.action for one in deviations} | {one.action for one in unsure}
        left = [action for action in left if action not in told]
        return Verification(
            deviations=deviations,
            unsure=unsure,
            unseen=findings.unseen(left, self.taxonomy, certainty=certainty),
            steps=findings.judgements(steps),
            repair=repair(self.orders[task], done, self.taxonomy),
        )

    def judge(
        self,
        steps: Sequence[Step],
        task: int,
        *,
        sure: Sequence[float] | None = None,
        drawn: Sequence[Sequence[Step]] | None = None,
        finished: bool = True,
        online: bool = False,
    ) -> Findings:
        """Say how probable mistakes are if the task is sure; with `drawn`, whatever the steps are.

        Arguments and errors are those of `verify`. Nothing is found in a task without right videos.
        """
        if not len(steps):
            raise ConfigError("a video without steps cannot be verified.")
        task, count = find_task(self.taxonomy, task), len(self.taxonomy.actions)
        drawn = [tuple(sequence) for sequence in drawn or () if sequence]
        certain = np.ones(len(steps)) if sure is None else np.asarray(sure, dtype=np.float64)
        if certain.shape != (len(steps),) or not ((certain >= 0) & (certain <= 1)).all():
            raise ConfigError("sure: expected the probability of each step.", setting="sure")
        for place, step in chain(enumerate(steps, 1), *(enumerate(d, 1) for d in drawn)):
            if not (step.action in range(count) and abs(step.start) + abs(step.end) < _MOST):
                problem = f"step {place} ({step.start} to {step.end} s, action {step.action})"
                raise ConfigError(f"{problem}: expected seconds, and an action of the taxonomy.")
        # beside calibrated probabilities of steps, shares of omitted ones count from the default on
        findings = Findings() if self.foresight is None else Findings(least_omitted=0.5)
        if not self.knows(task):
            return findings
        order = self.orders[task]
        over = finished and not online
        corrected = partial(likelier_done, order, finished=over)
        split = ([step for _, step in parted(order, d, finished=over)] for d in drawn)
        done = [tuple(s for s in corrected(shown) if s.action != NONE) for shown in split]
        likely = Counter(tuple(step.action for step in sequence) for sequence in done)
        first = {tuple(step.action for step in sequence): sequence for sequence in reversed(done)}
        films = [(n / len(drawn), first[key], np.ones(len(key))) for key, n in likely.items()]
        if films:
            findings.of_drawn, findings.corrected = True, corrected
        films = films or [(1.0, tuple(steps), certain)]
        judged = self._judged(
            order, [film for _, film, _ in films], finished=finished, online=online
        )
        for (share, _, trusted), (videos, rows) in zip(films, judged, strict=True):
            for subject in _subjects(videos, rows, trusted):
                findings.add(subject, share)
        if drawn:
            findings.compare(*self.films.shown(task))
        return findings

    def _judged(
        self, order: TaskOrder, sequences: Sequence[Sequence[Step]], *, finished: bool, online: bool
    ) -> Iterator[tuple[list[SeenVideo], Floats]]:
        """Yield what was seen of each sequence, and p(no error, error of order, another) [n, 3].

        Online, each step is the last one of a video that is not over.
        """
        learned, foresight = self.network is not None, None if order.given else self.foresight
        facts = learned, finished and not online, online, foresight
        videos = [
            [
                SeenVideo(order, self.taxonomy, steps[:end], *facts)
                for end in (range(1, len(steps) + 1) if online else [len(steps)])
            ]
            for steps in sequences
        ]
        if foresight is not None:
            rows = [
                _by_order(*chances)
                for chances in foresight.chances(order, sequences, self.taxonomy)
            ]
        else:
            errors = iter(self._errors([*chain(*videos)]))
            rows = [
                np.array([next(errors)[-1] for _ in prefixes]) if online else next(errors)
                for prefixes in videos
            ]
        return zip(videos, rows, strict=True)

    def knows(self, task: int) -> bool:
        """Return whether anything is known of a task, or of others that share its actions."""
        order = self.orders[task]
        return bool(order.videos or order.given or self.foresight)

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        tensors = {
            f"order.{task}.{name}": torch.from_numpy(np.asarray(one))
            for task, order in enumerate(self.orders)
            for name, one in order.arrays().items()
        }
        for mode in _MODES:
            arrays = getattr(self, mode).arrays()
            tensors |= {f"{mode}.{name}": torch.from_numpy(a) for name, a in arrays.items()}
        if self.foresight is not None:
            arrays = self.foresight.arrays()
            tensors |= {f"foresight.{n}": torch.from_numpy(a) for n, a in arrays.items()}
        if self.network is not None:
            own = self.network.state_dict()
            tensors |= {f"network.{name}": tensor for name, tensor in own.items()}
            tensors["temperature"] = torch.tensor(self.temperature, dtype=torch.float64)
        write_tensors(folder / VERIFIER_FILE, tensors)

    @classmethod
    def load(cls, folder: Path, taxonomy: Taxonomy, *, config: VerifierConfig = _DEFAULTS) -> Self:
        """Read what `save` wrote into a run folder (RunError); `config` as of `fit`."""
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
        for name in ("alarms", "hours"):  # of an earlier version, without videos
            facts.pop(name, None)
        expected = {"temperature": Expected((), 1e-3, 1e3)} if weights else {}
        try:
            check_tensors(facts, expected, str(path))
            orders = tuple(
                TaskOrder.of_arrays(parts.pop(f"order.{task.id}", {}), task.actions, str(path))
                for task in taxonomy.tasks
            )
            held_out: dict[str, Any] = {
                mode: HeldOutFindings.loaded(parts.pop(mode), str(path))
                for mode in _MODES
                if mode in parts
            }
            foresight, count = parts.pop("foresight", None), len(taxonomy.actions)
            if parts:
                raise RunError(f"{path}: tensors '{min(parts)}' are unknown.")
            found = cls(orders, taxonomy, config, **held_out)
            if foresight is not None:
                shared = Foresight.of_arrays(foresight, orders, count, str(path))
                found = replace(found, foresight=shared)
            if not weights:
                return found
            with weights_to_come():
                network = RowClassifier(StepEvidence.width(), 3, config).eval()
            load_weights(network, weights, str(path), copy=False)
        except RunError as problem:
            raise RunError(f"{problem} {_REMEDY}") from problem
        return replace(found, network=network, temperature=float(facts["temperature"]))


def _labels(video: Video) -> NDArray[np.int64]:
    """Return 0 for each step without an error, 1 for one of order, 2 for another [n]."""
    return np.array(
        [1 if step.misplaced else 2 if step.errors else 0 for step in video.steps], dtype=np.int64
    )


def _by_order(misplaced: Floats, wrong: Floats) -> Floats:
    """Return p(no error, error of order, another error) by p(error of order) and p(error)."""
    return np.column_stack([1 - wrong, misplaced, np.zeros(len(wrong))])


def _subjects(
    videos: Sequence[SeenVideo], rows: Floats, certain: Floats
) -> Iterator[SeenStep | OmittedAction]:
    """Yield the steps that were done, and the actions of the task that were not.

    Args:
        videos: The video; online, one that ends with each step.
        rows: p(no error, error of order, another error) of each step [n, 3].
        certain: Probability of each step [n].
    """
    columns = zip(rows.tolist(), certain.tolist(), strict=True)
    for place, ((right, misplaced, mishandled), certainty) in enumerate(columns):
        video = videos[min(place, len(videos) - 1)]
        yield SeenStep(video, place, right, misplaced, mishandled, certainty)
    yield from videos[-1].omitted(float(certain.mean()))
