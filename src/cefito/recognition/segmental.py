"""The segmental recogniser: how `SegmentalModel` is trained, and its settings are chosen.

Training videos that are held out in turn choose a, then λ, w and s, for the best steps (edit score
and F1@50) or the best present label, and T by the Brier score of the labels. With few videos, the
usual networks learn the order more than the steps; networks of changes do not see it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.folds import FEW_VIDEOS, folds_of
from cefito.data.prepared import PreparedDataset
from cefito.data.vocabulary import Taxonomy
from cefito.recognition.attention import attention_steps, fit_attention
from cefito.recognition.chain import StepChain
from cefito.recognition.changes import Changes, left_behind
from cefito.recognition.classifier import (
    Standard,
    ahead_features,
    fit_classifier,
    past_features,
    whole_features,
)
from cefito.recognition.held_out import (
    AS_GOOD,
    HeldVideo,
    attention_harms,
    chosen_attention,
    chosen_doubt,
    chosen_rows,
)
from cefito.recognition.recogniser import AnnotatedRows, HeldFilm
from cefito.recognition.scores import HeldOutScores, segments
from cefito.recognition.segmental_model import SegmentalModel
from cefito.recognition.settings import RecogniserConfig, RecogniserSettings, settings_of
from cefito.recognition.stream import StepStream
from cefito.recognition.temporal import Rows, row_steps, temporal_steps
from cefito.recognition.trials import AlteredVideo, made_up
from cefito.training.steps import NetworkTraining
from cefito.training.trainer import TrainingContext

_MOST_TRIED = 30  # videos in which mistakes are made up


class SegmentalRecogniser(SegmentalModel):
    """Networks of rows and the chain of steps, of one taxonomy."""

    @property
    def follows(self) -> bool:
        """Whether it recognises row by row, too."""
        return self.config.chain

    def stream(self, task: int | None = None) -> StepStream:
        """Return a stream of rows of a video."""
        return StepStream(self, task) if self.follows else super().stream(task)

    @classmethod
    def fit(
        cls,
        dataset: PreparedDataset,
        videos: Sequence[int],
        *,
        config: RecogniserSettings | None = None,
        seed: int = 0,
        context: TrainingContext | None = None,
    ) -> Self:
        """Train on some videos of a data set with a timeline, or go on where a call was killed.

        Raises:
            DataError: The data set has no rows of whole videos, or no such video.
            RunError: The training diverged, or what the context's folder keeps is of another one.
        """
        context, known = context or TrainingContext(), AnnotatedRows.of(dataset, videos)
        config = settings_of(config, RecogniserConfig).at_rate(known.rate)
        chosen = [dataset.videos[video] for video in videos]
        order = folds_of(chosen, config.folds, seed, by_task=True)
        parts = int(order.max()) + 1 if len(videos) > 1 else 0
        lengths = np.array([len(rows) for rows in known.rows])
        sizes = [int(lengths[order != fold].sum()) for fold in range(parts)] + [int(lengths.sum())]
        # with few videos, half of those of other folds than the first show what more would bring
        few = parts > 0 and len(videos) < FEW_VIDEOS
        half = _half(np.flatnonzero(order != 0), known.tasks) if few else np.zeros(0, dtype=int)
        sizes = [int(lengths[half].sum())] * few + sizes
        steps = [config.members * row_steps(n, config) + temporal_steps(n, config) for n in sizes]
        changing = 2 * config.members * config.training_steps * config.sees_changes
        counts = [*(int((order != fold).sum()) for fold in range(parts)), len(videos)]
        attending = [attention_steps(count, config) for count in counts] if parts else [0]
        total = 2 * sum(steps) + steps[-1] + len(sizes) * changing + sum(attending)
        held: list[HeldVideo] = []
        by_half: list[HeldVideo] = []
        places: list[int] = []  # of them
        trials: list[tuple[AlteredVideo, HeldVideo]] = []
        mistakes: defaultdict[int, Counter[Any]] = defaultdict(Counter)  # made up, by task
        every, helps = max(1, len(videos) // _MOST_TRIED), True
        with context.progress("recogniser", total=total) as advance:
            given = config, dataset.taxonomy
            training = NetworkTraining(context=context, advance=advance, seed=seed)
            if few:
                fitted = cls._fitted(known.part(half), *given, training.of("half-"))
                by_half += (
                    fitted._held(known.rows[place], known.labels[place], known.tasks[place])
                    for place in np.flatnonzero(order == 0).tolist()
                )
            for fold in range(parts):
                rest = known.part(np.flatnonzero(order != fold))
                of_fold = training.of(f"fold-{fold + 1}-")
                fitted = cls._fitted(rest, *given, of_fold, attending=helps)
                if not helps:
                    advance(attending[fold])
                changes = left_behind(rest.rows, rest.labels, fitted.chain.background)
                for place in np.flatnonzero(order == fold).tolist():
                    truth, task = known.labels[place], known.tasks[place]
                    held.append(fitted._held(known.rows[place], truth, task))
                    places.append(videos[place])
                    if place % every:
                        continue
                    labelled = zip(rest.labels, rest.tasks, strict=True)
                    others = [labels for labels, other in labelled if other == task]
                    generator = np.random.default_rng([seed, place])
                    copies = made_up(
                        known.rows[place], truth, others, changes, mistakes[task], generator
                    )
                    trials += ((copy, fitted._held(copy.rows, truth, task)) for copy in copies)
                # the largest part of the training ends where the first folds say that it harms
                helps = helps and (few or not attention_harms(held, config))
            share = chosen_attention(held, config) if held and helps else 0.0
            fitted = cls._fitted(known, *given, training, ahead=True, attending=share > 0)
            if not share:
                advance(attending[-1])
        if not held:
            return fitted
        whole = chosen_rows([video.attending(share) for video in held], config, past=False)
        past = chosen_rows(held, config, past=True)
        doubts = [
            chosen_doubt([(a, v.attending(s)) for a, v in trials], config, seed, trust=whole.trust)
            for s in dict.fromkeys((0.0, share))
        ]
        attends = len(doubts) > 1 and doubts[1][0] >= doubts[0][0] - AS_GOOD
        _, doubt, seen, leasts = doubts[attends]
        fitted = replace(
            fitted,
            trusts=(whole.trust, past.trust),
            temperatures=(whole.temperature, past.temperature),
            shares=(whole.share, past.share),
            weights=(whole.weight, past.weight),
            attention_share=share,
            chained=(whole.chained, past.chained),
            doubt=doubt,
            doubt_attends=attends,
            least_ratios=leasts,
            seen=seen,
            held_out=HeldOutScores(
                videos=len(held),
                present=past.scores["frame"],
                learned=int((order != 0).sum()),
                half=len(half) or None,
                gain=whole.gain(held[: len(by_half)], by_half) if few else None,
                **{name: whole.scores[name] for name in ("frame", "edit", "f1_50")},
            ),
        )
        own = [video.attending(share * attends) for video in held]
        films = {
            place: HeldFilm.of(fitted._doubted(video.logs[False], video.chain))
            for place, video in zip(places, own, strict=True)
        }
        return replace(fitted, films=films)

    @classmethod
    def _fitted(
        cls,
        known: AnnotatedRows,
        config: RecogniserConfig,
        taxonomy: Taxonomy,
        training: NetworkTraining,
        *,
        ahead: bool = False,
        attending: bool = False,
    ) -> Self:
        count, rate = len(taxonomy.actions), known.rate
        standard = Standard.of(known.rows, config.directions)
        scaled = [standard.scaled(rows) for rows in known.rows]
        width = scaled[0].shape[1]
        tasks = [
            ("whole", whole_features, known.labels, width),
            ("past", past_features, known.labels, width),
        ]
        if ahead:
            coming = [next_labels(own, count) for own in known.labels]
            tasks.append(("ahead", ahead_features, coming, 2 * width + 1))
        networks = {
            part: fit_classifier(
                [features(rows, config, rate) for rows in scaled],
                labels,
                count + 1,
                config,
                training.of(part, 2 * training.seed + place),
                steps=row_steps(sum(map(len, scaled)), config),
                temporal=config,
                rows=own,
                causal=place > 0,
            )
            for place, (part, features, labels, own) in enumerate(tasks)
        }
        changes = None
        if config.sees_changes:
            changes = Changes.fit(scaled, known.labels, count, rate, config, training)
        attention = None
        if attending:
            attention = fit_attention(
                scaled, known.labels, count + 1, config, training.of("attention")
            )
        chain = StepChain.fit(
            known.labels,
            known.tasks,
            [task.actions for task in taxonomy.tasks],
            count,
            phases=config.phases,
            smoothing=config.smoothing,
        )
        counts = np.bincount(np.concatenate(known.labels), minlength=count + 1) + 1.0
        return cls(
            config=config,
            chain=chain,
            standard=standard,
            whole=networks["whole"],
            past=networks["past"],
            ahead=networks.get("ahead"),
            changes=changes,
            attention=attention,
            log_prior=np.log(counts / counts.sum()),
            trusts=(config.trusts[0], config.trusts[0]),
            temperatures=(1.0, 1.0),
            shares=(config.shares[0],) * 2 if changes else (0.0, 0.0),
            weights=(0.0, config.weights[0]),
            attention_share=0.0,
            chained=(1.0, 1.0),
            doubt=(0.0, config.trusts[0], config.doubts[0]),
            again=_again(known.labels, count),
            rate=rate,
            taxonomy=taxonomy,
        )

    def _held(self, rows: Rows, labels: NDArray[np.int64], task: int) -> HeldVideo:
        """Return what it says of a video that it was not trained on."""
        whole, past = (self.both_logs(rows, past=past) for past in (False, True))
        prior, unexpected = self.config.prior_power * self.log_prior, self.config.unexpected
        seen = self._attended(self.standard.scaled(rows), whole[0])
        return HeldVideo(self.chain, (whole, past), prior, labels, task, unexpected, seen)


def _half(places: NDArray[np.int64], tasks: Sequence[int]) -> NDArray[np.int64]:
    """Return half of the places of videos of each task, rounded up."""
    chosen = np.array([tasks[place] for place in places])
    return np.concatenate([places[chosen == task][::2] for task in np.unique(chosen)])


def _again(labels: Sequence[NDArray[np.integer]], count: int) -> tuple[tuple[float, ...], ...]:
    """Return, by action, the share of videos with 1, 2, … steps of it that have one more.

    It is (n₊ + ½) / (n + 1), where n₊ of n videos with so many steps have one more.
    """
    steps = [Counter(step.action for step in segments(own, count)) for own in labels]
    shares = []
    for action in range(count):
        counts = np.array([own[action] for own in steps])
        having = [int((counts >= number).sum()) for number in range(1, counts.max() + 2)]
        shares.append(tuple(round((b + 0.5) / (a + 1), 4) for a, b in pairwise(having)))
    return tuple(shares)


def next_labels(labels: NDArray[np.integer], background: int) -> NDArray[np.int64]:
    """Return the action of the next step to begin after each row [n]; else the background."""
    found = np.full(len(labels), background, dtype=np.int64)
    for one in reversed(segments(labels, background)):
        found[: one.start] = one.action
    return found
