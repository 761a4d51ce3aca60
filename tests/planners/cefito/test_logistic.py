"""Weights of terms: recovery, intervals, and terms that must earn their place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.planners.cefito.logistic import choose_terms, fit_weights


def world(seed, weights, *, queries=400, per_video=8, candidates=12, shared=0.0):
    """Features, truth and videos; the weights of a video differ from `weights` by `shared`."""
    rng = np.random.default_rng(seed)
    features, truth = [], []
    videos = np.arange(queries) // per_video
    tilt = rng.normal(size=(videos[-1] + 1, len(weights))) * shared
    for query in range(queries):
        x = rng.normal(size=(candidates, len(weights))) * [1, 10, 0.1][: len(weights)]
        logits = x @ (np.array(weights) + tilt[videos[query]])
        share = np.exp(logits - logits.max())
        features.append(x)
        truth.append(int(rng.choice(candidates, p=share / share.sum())))
    return features, truth, videos


def test_recovers_the_weights():
    features, truth, videos = world(0, [1.0, 0.1, 5.0], queries=3000)
    fit = fit_weights(features, truth, videos=videos)
    np.testing.assert_allclose(fit.weights, [1.0, 0.1, 5.0], rtol=0.1)
    assert [c.value for c in fit.coefficients] == pytest.approx(fit.weights.tolist(), rel=1e-3)
    assert fit.queries == 3000


def test_negative_terms_get_no_weight_but_say_so():
    features, truth, videos = world(1, [1.0, -0.1])
    fit = fit_weights(features, truth, videos=videos)
    assert fit.weights[1] == 0
    assert fit.coefficients[1].high < 0


def test_intervals_cover_nine_times_in_ten_where_windows_of_a_video_are_alike():
    inside = naive = 0
    for seed in range(50):
        features, truth, videos = world(seed, [0.5], queries=320, per_video=8, shared=0.5)
        kept = [row for row, true in enumerate(truth) if true < 6]
        features, rows = [features[row][:6] for row in kept], [truth[row] for row in kept]
        own = fit_weights(features, rows, videos=videos[kept], ridge=1e-6).coefficients[0]
        lone = fit_weights(features, rows, ridge=1e-6).coefficients[0]
        # the mean over videos of tilted weights is drawn towards zero
        inside += own.low < 0.45 < own.high
        naive += lone.low < 0.45 < lone.high
    assert inside > naive
    assert inside >= 40


def test_no_queries_and_truth_not_among_candidates():
    assert fit_weights([], []).weights.tolist() == []
    features, truth, videos = world(2, [1.0])
    some = [t if query % 2 else -1 for query, t in enumerate(truth)]
    fit = fit_weights(features, some, videos=videos)
    assert fit.queries == 200
    odd = fit_weights(features[1::2], truth[1::2], videos=videos[1::2])
    np.testing.assert_allclose(fit.weights, odd.weights)
    assert fit_weights(features, [-1] * 400, videos=videos).weights.tolist() == [0.0]
    assert fit_weights([x * 0 for x in features], truth, videos=videos).weights.tolist() == [0.0]


def test_offsets_count_with_weight_one():
    features, truth, videos = world(3, [1.0, 0.1], queries=2000)
    fit = fit_weights(
        [x[:, 1:] for x in features], truth, videos=videos, offsets=[x[:, 0] for x in features]
    )
    assert fit.weights.tolist() == pytest.approx([0.1], rel=0.15)


def test_shrinkage_grows():
    features, truth, videos = world(4, [1.0], queries=40)
    fits = [fit_weights(features, truth, videos=videos, ridge=ridge) for ridge in (0, 1, 30)]
    weights = [float(fit.weights[0]) for fit in fits]
    assert weights[0] > weights[1] > weights[2] > 0


def test_terms_earn_their_place():
    features, truth, videos = world(5, [1.0, 0.1])
    useful = choose_terms(features, truth, videos=videos, earn=[1])
    assert useful.kept.tolist() == [True, True]
    assert useful.gain > 3 * useful.error
    kept = 0
    for seed in range(30):
        features, truth, videos = world(100 + seed, [1.0, 0.0], queries=160)
        result = choose_terms(features, truth, videos=videos, earn=[1])
        kept += bool(result.kept[1])
        if not result.kept[1]:
            assert result.fit.weights[1] == 0
    assert kept <= 6


def test_one_video_cannot_show_anything():
    features, truth, _ = world(6, [1.0, 0.1], queries=20)
    result = choose_terms(features, truth, videos=[0] * 20, earn=[1])
    assert result.kept.tolist() == [True, False]
    assert result.error == np.inf


def random_queries(seed, *, terms, queries=0):
    """Features of a few candidates a query, of uneven scales, and a true one at random."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((terms, terms))
    features = [
        rng.standard_normal((int(rng.integers(2, 6)), terms)) @ mix
        for _ in range(queries or int(rng.integers(1, 12)))
    ]
    return features, [int(rng.integers(len(part))) for part in features]


def loss(weights, features, truth):
    """What is minimised, written down plainly."""
    centred = np.concatenate([part - part.mean(axis=0) for part in features])
    value = (weights * torch.from_numpy(np.sqrt((centred**2).mean(axis=0)))).square().sum() / 2
    for part, true in zip(features, truth, strict=True):
        value = value - torch.log_softmax(torch.from_numpy(part) @ weights, dim=0)[true]
    return value


@given(seed=st.integers(0, 10_000), terms=st.integers(1, 4))
def test_no_weights_of_at_least_zero_are_better(seed, terms):
    """No term has anything to gain: slopes are zero, or uphill where a weight is zero."""
    features, truth = random_queries(seed, terms=terms)
    found = fit_weights(features, truth)
    assert (found.weights >= 0).all()
    weights = torch.from_numpy(found.weights).requires_grad_()
    (slope,) = torch.autograd.grad(loss(weights, features, truth), weights)
    unit = np.concatenate([part - part.mean(axis=0) for part in features]).std(axis=0)
    assert (slope.numpy() / unit >= -1e-3).all()
    assert np.abs(slope.numpy() / unit)[found.weights > 0].max(initial=0.0) < 1e-3


@given(
    seed=st.integers(0, 10_000),
    terms=st.integers(1, 4),
    powers=st.lists(st.integers(-4, 4), min_size=4, max_size=4),
)
def test_units_do_not_matter(seed, terms, powers):
    features, truth = random_queries(seed, terms=terms)
    factors = 10.0 ** np.array(powers[:terms])
    scaled = fit_weights([part * factors for part in features], truth).weights * factors
    np.testing.assert_allclose(scaled, fit_weights(features, truth).weights, rtol=1e-3, atol=1e-5)


@given(
    seed=st.integers(0, 10_000),
    constant=st.sampled_from([0.1, 3.0, 16.635532333438686, 1e6]),
    place=st.integers(0, 2),
)
def test_a_term_alike_for_all_candidates_changes_nothing(seed, constant, place):
    features, truth = random_queries(seed, terms=2, queries=20)
    more = [np.insert(part, place, constant, axis=1) for part in features]
    weights = fit_weights(more, truth).weights
    assert weights[place] == 0
    np.testing.assert_allclose(
        np.delete(weights, place), fit_weights(features, truth).weights, rtol=1e-3, atol=1e-6
    )


def test_what_the_candidates_of_a_query_share_changes_nothing():
    features, truth, videos = world(8, [1.0, 0.1], queries=80)
    moved = [part + 100.0 * row for row, part in enumerate(features)]
    np.testing.assert_allclose(
        fit_weights(moved, truth, videos=videos).weights,
        fit_weights(features, truth, videos=videos).weights,
        rtol=1e-4,
    )


def test_truths_told_apart_perfectly_have_finite_weights():
    fit = fit_weights([np.array([[2.0], [1.0], [0.0]])] * 50, [0] * 50)
    assert 1 < fit.weights[0] < 100
    assert np.isfinite(fit.coefficients[0].error)
