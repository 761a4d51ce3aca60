"""A conditional logistic model of the truth among candidates, with selection of terms.

p(i) = exp(o_i + w · x_i) / Σ_j exp(o_j + w · x_j) over the candidates of a query, with offsets o
and features x for which higher is better (minus an energy, a log-probability).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficient:
    """Estimate of one weight without the bound at zero."""

    value: float  # the unconstrained estimate, per unit of the given feature
    error: float  # its standard error, with whole videos as units
    low: float  # lower end of the 90 % interval
    high: float  # upper end


@dataclass(frozen=True)
class Fit:
    """Fitted weights."""

    weights: Reals  # weight of each feature, at least 0, per unit of the given feature, [F]
    coefficients: tuple[Coefficient, ...]  # unconstrained estimate of each weight
    log_likelihood: float  # mean log-likelihood of the truth among the candidates under `weights`
    queries: int  # number of queries with the truth among their candidates


@dataclass(frozen=True)
class Comparison:
    """Comparison of the model with all terms and the model without the optional ones."""

    fit: Fit  # the chosen model, on all queries; dropped terms have weight 0
    full: Fit  # the model with all terms, on all queries
    kept: NDArray[np.bool_]  # which features the chosen model has, [F]
    # held-out log-likelihood gained per query by the optional terms, cross-fitted by video
    gain: float
    error: float  # its standard error, with whole videos as units
    folds: int


@dataclass(frozen=True)
class _Problem:
    """Candidates of all queries, concatenated, relative to the truth, with scaled features."""

    rows: Reals  # (x_j − x_truth) / scale of each candidate, [R, F]
    offsets: Reals  # o_j − o_truth, [R]
    first: NDArray[np.int64]  # first row of each query [n]
    of: NDArray[np.int64]  # query of each row [R]
    videos: NDArray[np.int64]  # video of each query [n]
    scale: Reals  # deviation of each feature [F]

    @classmethod
    def make(
        cls,
        features: Sequence[Reals],
        truth: Sequence[int],
        videos: Sequence[int] | None,
        offsets: Sequence[Reals] | None,
    ) -> _Problem:
        used = [query for query, row in enumerate(truth) if row >= 0]
        width = features[0].shape[1] if len(features) else 0
        if not used:
            nothing = np.zeros(0, np.int64)
            rows, offset = np.zeros((0, width)), np.zeros(0)
            return cls(rows, offset, nothing, nothing, nothing, np.ones(width))
        parts = [np.asarray(features[query], dtype=np.float64) for query in used]
        bases = [
            np.zeros(len(features[query]))
            if offsets is None
            else np.asarray(offsets[query], np.float64)
            for query in used
        ]
        sizes = np.array([len(part) for part in parts])
        first = np.concatenate([[0], sizes.cumsum()[:-1]])
        rows, base = np.concatenate(parts), np.concatenate(bases)
        of = np.repeat(np.arange(len(used)), sizes)
        own = first + np.array([truth[query] for query in used])
        rows, base = rows - rows[own][of], base - base[own][of]
        centred = rows - (np.add.reduceat(rows, first) / sizes[:, None])[of]
        scale = np.sqrt(np.square(centred).mean(axis=0))
        scale[scale < 1e-12] = 1.0
        groups = (
            np.arange(len(used))
            if videos is None
            else np.unique(np.asarray(videos)[used], return_inverse=True)[1]
        )
        return cls(rows / scale, base, first, of, groups, scale)

    @property
    def queries(self) -> int:
        return len(self.first)

    def subset(self, queries: NDArray[np.bool_]) -> _Problem:
        inside = queries[self.of]
        sizes = np.bincount(self.of, minlength=self.queries)[queries]
        return _Problem(
            self.rows[inside],
            self.offsets[inside],
            np.concatenate([[0], sizes.cumsum()[:-1]]).astype(np.int64),
            np.repeat(np.arange(len(sizes)), sizes),
            self.videos[queries],
            self.scale,
        )

    def shares(self, weights: Reals) -> tuple[Reals, Reals]:
        """Return log p(truth) of each query [n], and p of each candidate [R]."""
        logits = self.offsets + self.rows @ weights
        top = np.maximum.reduceat(logits, self.first)
        exponentials = np.exp(logits - top[self.of])
        total = np.add.reduceat(exponentials, self.first)
        return -(np.log(total) + top), exponentials / total[self.of]

    def gradients(self, share: Reals) -> Reals:
        """Return ∇ log p(truth) = −Σ_j p_j x_j of each query [n, F]; x_truth = 0."""
        return -np.add.reduceat(share[:, None] * self.rows, self.first)

    def information(self, share: Reals) -> Reals:
        """Return the Fisher information Σ_queries (E[x xᵀ] − E[x] E[x]ᵀ), [F, F]."""
        mean = np.add.reduceat(share[:, None] * self.rows, self.first)
        return np.asarray((share[:, None] * self.rows).T @ self.rows - mean.T @ mean)

    def solve(self, ridge: float, bounded: bool, free: NDArray[np.bool_]) -> Reals:
        """Maximise Σ log p(truth) − ridge / 2 · |w|² over the free weights, [F]."""
        from scipy.optimize import minimize

        places = np.flatnonzero(free)
        result = np.zeros(self.rows.shape[1])
        if not self.queries or not len(places):
            return result

        def loss(part: Reals) -> tuple[float, Reals]:
            weights = np.zeros(len(free))
            weights[places] = part
            logs, share = self.shares(weights)
            slope = -self.gradients(share).sum(axis=0)[places] + ridge * part
            return float(-logs.sum() + ridge / 2 * part @ part), slope

        found = minimize(
            loss,
            np.zeros(len(places)),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None) if bounded else (None, None)] * len(places),
            options={"maxiter": 500, "ftol": 1e-12, "gtol": 1e-8 * max(1, self.queries)},
        )
        result[places] = found.x
        return result

    def fit(self, ridge: float, kept: NDArray[np.bool_]) -> Fit:
        """Fit the kept weights, with sandwich errors clustered by video."""
        weights = self.solve(ridge, True, kept)
        loose = self.solve(ridge, False, kept)
        errors = np.full(len(loose), np.inf)
        places = np.flatnonzero(kept)
        value = float("nan")
        if self.queries:
            value = float(self.shares(weights)[0].mean())
            share = self.shares(loose)[1]
            # covariance = H⁻¹ (Σ_videos g gᵀ) H⁻¹, g the gradient summed over a video
            gradients = self.gradients(share)[:, places]
            sums = np.zeros((int(self.videos.max()) + 1, len(places)))
            np.add.at(sums, self.videos, gradients)
            count = len(np.unique(self.videos))
            bread = np.linalg.pinv(
                self.information(share)[np.ix_(places, places)] + ridge * np.eye(len(places))
            )
            sums -= sums.sum(axis=0) / len(sums)  # removes the gradient of the ridge
            meat = sums.T @ sums * count / max(count - 1, 1)
            errors[places] = np.sqrt(np.diagonal(bread @ meat @ bread).clip(0))
        width = NormalDist().inv_cdf(0.95)
        coefficients = tuple(
            Coefficient(
                value=float(w / s),
                error=float(e / s),
                low=float((w - width * e) / s),
                high=float((w + width * e) / s),
            )
            for w, e, s in zip(loose, errors, self.scale, strict=True)
        )
        return Fit(
            weights=np.asarray(weights / self.scale),
            coefficients=coefficients,
            log_likelihood=value,
            queries=self.queries,
        )


def fit_weights(
    features: Sequence[Reals],
    truth: Sequence[int],
    *,
    videos: Sequence[int] | None = None,
    offsets: Sequence[Reals] | None = None,
    ridge: float = 1.0,
) -> Fit:
    """Fit non-negative weights by maximum penalised likelihood.

    Features are scaled to unit deviation among the candidates of a query; weights are shrunk by
    ridge / 2 · |w|². L-BFGS-B finds the optimum with bounds at zero. Standard errors are sandwich
    errors with whole videos as units, at the unconstrained optimum.
    """
    # features: features of each query's candidates, finite, higher is better, [n, F]; videos: video
    # of each query, for the errors; None for one video each; offsets: fixed scores of each query's
    # candidates [n], of weight 1
    problem = _Problem.make(features, truth, videos, offsets)
    return problem.fit(ridge, np.ones(problem.rows.shape[1], dtype=np.bool_))


def choose_terms(
    features: Sequence[Reals],
    truth: Sequence[int],
    *,
    videos: Sequence[int],  # video of each query, the unit of folds and errors
    earn: Sequence[int],
    offsets: Sequence[Reals] | None = None,
    ridge: float = 1.0,  # as in `fit_weights`; in a fold as on the whole
    folds: int = 5,  # most folds; at most one for each video
    seed: int = 0,
    errors: float = 1.0,  # standard errors that the gain must exceed
) -> Comparison:
    """Fit weights, and keep optional terms only if they improve held-out videos."""
    problem = _Problem.make(features, truth, videos, offsets)
    every = np.ones(problem.rows.shape[1], dtype=np.bool_)
    simple = every.copy()
    simple[list(earn)] = False
    full = problem.fit(ridge, every)
    count = len(np.unique(problem.videos))
    folds = min(folds, count)
    if folds < 2:
        return Comparison(problem.fit(ridge, simple), full, simple, 0.0, np.inf, folds)
    fold = np.empty(count, dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(count)] = np.arange(count) % folds
    gains = np.zeros(problem.queries)
    for number in range(folds):
        held = fold[problem.videos] == number
        inside, outside = problem.subset(~held), problem.subset(held)
        rich, poor = (inside.solve(ridge, True, kept) for kept in (every, simple))
        gains[held] = outside.shares(rich)[0] - outside.shares(poor)[0]
    sums = np.bincount(problem.videos, gains - gains.mean(), minlength=count)
    gain, error = (
        float(gains.mean()),
        float(np.sqrt(np.square(sums).sum() * count / (count - 1)) / problem.queries),
    )
    kept = every if gain > errors * error else simple
    return Comparison(problem.fit(ridge, kept), full, kept, gain, error, folds)
