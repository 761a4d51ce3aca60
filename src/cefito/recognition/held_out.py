"""Settings of the segmental recogniser chosen by videos held out: a, s, λ, T, w, and doubts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cefito.recognition.chain import Floats, StepChain, likelihoods, softened
from cefito.recognition.plan_chain import order_ratios
from cefito.recognition.scores import VideoScores, summary
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.trials import AlteredVideo, SeenMistakes, score

logger = logging.getLogger(__name__)
_TEMPERATURES = np.geomspace(0.5, 16, 31)
_LEAST = 1e-30  # probability of a label by the chain beside networks
AS_GOOD = 0.05  # difference of log-probabilities
_LEAST_RATIO = 0.7  # of the 5th percentile of ratios in right copies
_MOST_RATIO = 1e4


@dataclass(frozen=True, eq=False)
class HeldVideo:
    """A video that was held out: what networks and chain of the others say of it."""

    chain: StepChain
    # `SegmentalRecogniser.both_logs` by all rows, and by the past
    logs: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
    prior: Floats  # γ log p(label) [K + 1]
    labels: NDArray[np.int64]  # [n]
    task: int
    unexpected: float  # ε
    attended: Floats  # `logs` by the attention network, of all rows; the usual ones without it

    def attending(self, share: float) -> HeldVideo:
        """Return it with a share of the attention network in what the usual networks say."""
        usual, others = self.logs[False]
        whole = mixed((usual, self.attended), share), others
        return replace(self, logs=(whole, self.logs[True]))

    def likelihoods(self, share: float, trust: float, *, past: bool) -> Floats:
        """Return p(x | label) of each row [n, K + 1].

        Args:
            share: s.
            trust: λ.
            past: Whether each row is seen by the rows up to it alone.
        """
        return likelihoods(mixed(self.logs[past], share), trust, self.unexpected)

    def rows(self, share: float, trust: float, *, past: bool) -> Floats:
        """Return p(label) of each row [n, K + 1]; arguments as of `likelihoods`."""
        seen = self.likelihoods(share, trust, past=past)
        if not past:
            return self.chain.smoothed(seen).rows
        return self.chain.by_label(self.chain.filtered(seen).states)


@dataclass(frozen=True)
class RowChoice:
    """What videos held out choose for rows that are seen by all rows, or by those up to each."""

    share: float  # s
    trust: float  # λ
    weight: float  # w
    temperature: float  # T
    chained: float  # T of the chain alone, w = 0
    past: bool
    scores: dict[str, float] = field(default_factory=dict)  # `summary` of the videos

    def gain(self, held: Sequence[HeldVideo], by_fewer: Sequence[HeldVideo]) -> float:
        """Return the edit score of videos as others say, less that as fewer of them say."""
        edit, less = (summary(self._counts(videos))["edit"] for videos in (held, by_fewer))
        return edit - less

    def _counts(self, held: Sequence[HeldVideo]) -> list[VideoScores]:
        return [
            VideoScores.of(
                joined(
                    video.rows(self.share, self.trust, past=self.past),
                    mixed(video.logs[self.past], self.share) + video.prior,
                    self.weight,
                ).argmax(axis=1),
                video.labels,
                video.chain.background,
            )
            for video in held
        ]


def chosen_attention(held: Sequence[HeldVideo], config: RecogniserConfig) -> float:
    """Return the share of the attention network that gives the best edit score and F1@50."""
    if config.attention is None:
        return 0.0

    def score(share: float) -> float:
        counts = summary(_attending(held, config, share))
        return counts["edit"] + counts["f1_50"]

    return max(config.attention_shares, key=score)


def attention_harms(held: Sequence[HeldVideo], config: RecogniserConfig) -> bool:
    """Whether each share of the attention network lowers the scores of videos.

    That is, edit score and F1@50 of a video, by more than a standard error over videos.
    """
    without = np.array([_score(video) for video in _attending(held, config, 0.0)])
    for share in config.attention_shares if config.attention else ():
        gains = np.array([_score(video) for video in _attending(held, config, share)]) - without
        if share and gains.mean() + gains.std() / np.sqrt(max(len(gains) - 1, 1)) >= 0:
            return False
    return True


def _attending(
    held: Sequence[HeldVideo], config: RecogniserConfig, share: float
) -> list[VideoScores]:
    """Return the scores of whole videos with a share of the attention network, by the middle λ."""
    usual = RowChoice(0.0, config.trusts[len(config.trusts) // 2], 0.0, 1.0, 1.0, past=False)
    return usual._counts([video.attending(share) for video in held])


def _score(video: VideoScores) -> float:
    """Return the edit score of a video + its F1@50, of at most 1 each."""
    return video.edit + summary([video])["f1_50"] / 100


def chosen_rows(held: Sequence[HeldVideo], config: RecogniserConfig, *, past: bool) -> RowChoice:
    """Return what serves videos held out best, in the order s by the middle λ, λ, w.

    Whole videos are scored by edit score and F1@50, rows seen by the past by their labels. Of
    values as good as the best one, within a standard error over videos, the usual one is chosen:
    no changes, the middle λ, and the middle w of the past, but w = 0 of whole videos, in whose
    edit score networks alone are far behind where steps are hard to see.

    Args:
        held: The videos.
        config: The values to choose from.
        past: Whether each row is seen by the rows up to it alone.
    """
    truth, background = [video.labels for video in held], held[0].chain.background

    def shown(share: float, trust: float) -> list[Floats]:
        return [video.rows(share, trust, past=past) for video in held]

    def counts(shown: Sequence[Floats]) -> list[VideoScores]:
        labels = (rows.argmax(axis=1) for rows in shown)
        return [VideoScores.of(*pair, background) for pair in zip(labels, truth, strict=True)]

    def scores(shown: Sequence[Floats]) -> list[float]:
        return [video.right / video.rows if past else _score(video) for video in counts(shown)]

    shares, middle = _shares(config), len(config.trusts) // 2
    share = _usual({share: scores(shown(share, config.trusts[middle])) for share in shares}, 0)
    trust = _usual({trust: scores(shown(share, trust)) for trust in config.trusts}, middle)
    rows = shown(share, trust)
    chained = best_temperature(np.concatenate(rows), np.concatenate(truth))
    alone = [mixed(video.logs[past], share) + video.prior for video in held]

    def by_both(weight: float) -> list[Floats]:
        return [joined(*both, weight) for both in zip(rows, alone, strict=True)]

    # networks alone do not know which steps a task has
    weights = [weight for weight in config.weights if past or weight < 1] or [0.0]
    weight = _usual(
        {weight: scores(by_both(weight)) for weight in weights}, len(weights) // 2 * past
    )
    rows = by_both(weight)
    temperature = best_temperature(np.concatenate(rows), np.concatenate(truth))
    scores_of = summary(counts(rows))
    return RowChoice(share, trust, weight, temperature, chained, past, scores_of)


def _usual(scores: Mapping[float, Sequence[float]], usual: int) -> float:
    """Return the value nearest to the usual one that is as good as the best, by scores of videos.

    Args:
        scores: Values, and the score of each video with it.
        usual: Place of the usual value among them.
    """
    values, by_value = list(scores), np.array(list(scores.values()))
    less = by_value[by_value.mean(axis=1).argmax()] - by_value  # [values, videos]
    error = less.std(axis=1) / np.sqrt(max(less.shape[1] - 1, 1))
    as_good = np.flatnonzero(less.mean(axis=1) <= error + 1e-9)
    return values[min(as_good, key=lambda place: (abs(place - usual), less[place].mean()))]


def chosen_doubt(
    trials: Sequence[tuple[AlteredVideo, HeldVideo]],
    config: RecogniserConfig,
    seed: int,
    *,
    trust: float,
) -> tuple[float, tuple[float, float, float], tuple[SeenMistakes, ...], tuple[float, float]]:
    """Return a `score`, the s, λ and share of steps in any order that have it, and what is seen.

    The last values are ratios below which the order of two neighbours is in doubt, and a film by
    the median of its neighbours: `_LEAST_RATIO` of the 5th percentile of those in right copies
    (`order_ratios`), and at least 0.

    s is chosen first, by the λ of recognised rows and the middle share in any order, then these
    shares and that λ or one beside it.

    Args:
        trials: Altered videos, and what is said of them.
        config: The values to choose from.
        seed: Seed of the sequences that are drawn.
        trust: λ of recognised rows.
    """
    copies = [(altered, held.task) for altered, held in trials]
    count = len(trials[0][1].chain.actions)

    def drawn(number: int, choice: tuple[float, float, float]) -> NDArray[np.int64]:
        (share, trust, doubt), held = choice, trials[number][1]
        chain = held.chain.given([held.task]).loosened(doubt)
        seen = held.likelihoods(share, trust, past=False)
        generator = np.random.default_rng([seed, number])
        states = chain.filtered(seen).of_task(held.task)
        return chain.drawn(states, held.task, config.drawn, generator)

    def tried(choice: tuple[float, float, float]) -> tuple[float, tuple[SeenMistakes, ...]]:
        return score(copies, count, partial(drawn, choice=choice))

    place, doubt = config.trusts.index(trust), config.doubts[len(config.doubts) // 2]
    near_trusts = config.trusts[max(place - 1, 0) : place + 2]
    # mistakes made up are seen more easily than true ones, most of all by the usual networks: the
    # others are taken alone, and the most doubt of the other values, if that is about as good
    by_share = {share: tried((share, trust, doubt))[0] for share in _shares(config)}
    share, alone = max(by_share, key=lambda share: by_share[share]), max(by_share)
    share = alone if by_share[alone] >= by_share[share] - AS_GOOD else share
    choices = [(share, trust, doubt) for trust in near_trusts for doubt in config.doubts]
    scored = [(choice, *tried(choice)) for choice in choices]
    best = max(value for _, value, _ in scored)
    near = [(choice, seen) for choice, value, seen in scored if value >= best - AS_GOOD]
    choice, seen = max(near, key=lambda one: (one[0][2], one[0][1]))
    films = [
        [
            ratio
            for *_, ratio in order_ratios(
                drawn(number, choice),
                held.chain.given([held.task]).loosened(choice[2]),
                held.task,
                held.likelihoods(choice[0], choice[1], past=False),
            )
        ]
        for number, (altered, held) in enumerate(trials)
        if altered.right
    ]
    ratios = [ratio for film in films for ratio in film]
    medians = [float(np.median(film)) for film in films if film]
    return best, choice, seen, (_least(ratios), _least(medians))


def _least(ratios: Sequence[float]) -> float:
    """Return the ratio below which an order is in doubt, by those of right videos."""
    least = np.quantile(ratios, 0.05, method="lower") if ratios else 0.0
    return float(np.clip(_LEAST_RATIO * least, 0, _MOST_RATIO))


def _shares(config: RecogniserConfig) -> list[float]:
    """Return the s to choose from."""
    return [share for share in config.shares if share == 0 or config.sees_changes] or [0.0]


def mixed(both: tuple[Floats, Floats], share: float) -> Floats:
    """Return (1 − s) of the usual logarithms + s of other ones, each [n, K + 1]."""
    usual, others = both
    return usual if share == 0 else (1 - share) * usual + share * others


def joined(rows: Floats, alone: Floats, weight: float) -> Floats:
    """Return p(label) ∝ p(label | chain)^(1 − w) p(label | networks)^w [..., K + 1].

    A chain of steps hesitates to leave one, and networks of the past know the latest rows.

    Args:
        rows: p(label | chain) [..., K + 1].
        alone: log p(label | networks) [..., K + 1], up to a constant of each row.
        weight: w.
    """
    if weight == 0:
        return rows
    logs = (1 - weight) * np.log(np.maximum(rows, _LEAST)) + weight * alone
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    present: Floats = shares / shares.sum(axis=-1, keepdims=True)
    return present


def best_temperature(rows: Floats, truth: NDArray[np.int64]) -> float:
    """Return T of the least Brier score Σ (p − y)² over rows, by p(label) [n, K + 1].

    Few rows that are certainly wrong would decide the likelihood. A warning says if T is the
    highest one tried, so that probabilities may still be too sure; the lowest one makes rows that
    are all right surer.
    """

    def loss(temperature: float) -> float:
        shown = softened(rows, temperature)
        return float((shown**2).sum() - 2 * shown[np.arange(len(truth)), truth].sum())

    best = float(min(_TEMPERATURES, key=loss))
    if best == _TEMPERATURES[-1]:
        logger.warning(
            "the temperature %g is the highest that is tried: probabilities may be too sure.", best
        )
    return best
