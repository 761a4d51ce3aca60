"""Settings of the segmental recogniser that videos held out choose: s, λ, T, and the doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from cefito.recognition.chain import Floats, StepChain, likelihoods, softened
from cefito.recognition.scores import VideoScores, summary
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.trials import AlteredVideo, SeenMistakes, score

_TEMPERATURES = np.geomspace(0.5, 16, 31)
_AS_GOOD = 0.05  # difference of log-probabilities


@dataclass(frozen=True, eq=False)
class HeldVideo:
    """A video that was held out: what networks and chain of the others say of it."""

    chain: StepChain
    # `SegmentalRecogniser.both_logs` by all rows, and by the past
    logs: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
    labels: NDArray[np.int64]  # [n]
    task: int
    unexpected: float  # ε

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


def chosen_shares(
    held: Sequence[HeldVideo], config: RecogniserConfig, *, past: bool
) -> tuple[float, float, float]:
    """Return the s and λ that serve videos held out best, and T for them.

    Args:
        held: The videos.
        config: The values to choose from.
        past: Whether each row is seen by the rows up to it alone.
    """
    truth = np.concatenate([video.labels for video in held])
    scored = []
    for share, trust in product(_shares(config), config.trusts):
        rows = [video.rows(share, trust, past=past) for video in held]
        scores = summary(
            VideoScores.of(shown.argmax(axis=1), video.labels, video.chain.background)
            for shown, video in zip(rows, held, strict=True)
        )
        value = scores["frame"] if past else scores["edit"] + scores["f1_50"]
        scored.append((value, share, trust, np.concatenate(rows)))
    _, share, trust, best = max(scored, key=lambda score: score[0])
    return share, trust, best_temperature(best, truth)


def chosen_doubt(
    trials: Sequence[tuple[AlteredVideo, HeldVideo]], config: RecogniserConfig, seed: int
) -> tuple[tuple[float, float, float], tuple[SeenMistakes, ...]]:
    """Return s, λ and the share of steps in any order that show mistakes made up best, and how.

    s is chosen first, by the middle ones of the others.

    Args:
        trials: Altered videos, and what is said of them.
        config: The values to choose from.
        seed: Seed of the sequences that are drawn.
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

    trust, doubt = (values[len(values) // 2] for values in (config.trusts, config.doubts))
    share = max(_shares(config), key=lambda share: tried((share, trust, doubt))[0])
    choices = [(share, *pair) for pair in product(config.trusts, config.doubts)]
    scored = [(choice, *tried(choice)) for choice in choices]
    best = max(value for _, value, _ in scored)
    # mistakes made up are seen more easily than true ones: of values as good, the most doubt
    near = [(choice, seen) for choice, value, seen in scored if value >= best - _AS_GOOD]
    return max(near, key=lambda one: (one[0][2], one[0][1]))


def _shares(config: RecogniserConfig) -> list[float]:
    """Return the s to choose from."""
    return [share for share in config.shares if share == 0 or config.sees_changes] or [0.0]


def mixed(both: tuple[Floats, Floats], share: float) -> Floats:
    """Return (1 − s) of the usual logarithms + s of those by changes, each [n, K + 1]."""
    usual, changes = both
    logs: Floats = usual if share == 0 else (1 - share) * usual + share * changes
    return logs


def best_temperature(rows: Floats, truth: NDArray[np.int64]) -> float:
    """Return T of the least Brier score Σ (p − y)² over rows, by p(label) [n, K + 1].

    Few rows that are certainly wrong would decide the likelihood.
    """

    def loss(temperature: float) -> float:
        shown = softened(rows, temperature)
        return float((shown**2).sum() - 2 * shown[np.arange(len(truth)), truth].sum())

    return float(min(_TEMPERATURES, key=loss))
