"""Fitting the weight of the energy on validation windows."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from cefito.planners.cefito.fit import (
    CANDIDATES,
    _candidates,
    _temperature,
    energy_weight,
    fit_weights,
)
from cefito.planners.cefito.hypotheses import CHAIN, Weights
from cefito.planners.queries import Queries
from tiny_cefito import fit

KNOBS = {"train": 72, "val": 30, "test": 12}


@pytest.fixture(scope="module")
def trained(splits):
    """A planner trained briefly on a world whose tasks share actions, and its windows."""
    sizes = {"field.width": 32, "chain.hidden": 32, "chain.width": 16, "chain.emission": 32}
    more = {
        "training.optimiser.epochs": 4,
        "training.stopping.every": 4,
        "chain_training.optimiser.epochs": 8,
        "chain_training.all_videos": 0.0,
        "search.fitting_windows": 0,
    }
    return fit(splits, "small", **sizes, **more).planner, splits["val"]


def test_fitting_again_gives_the_same_and_depends_on_the_windows(trained, monkeypatch):
    planner, val = trained
    works, shown = [], []

    @contextmanager
    def progress(description, *, total=None):
        works.append((description, total))
        yield lambda count=1, **_: shown.append(count)

    def fitted(windows):
        parts = planner.chain, planner.incremental, val
        return fit_weights(*parts, windows=windows, progress=progress)

    monkeypatch.setattr("cefito.planners.cefito.fit.BATCH", 4 * CANDIDATES)
    assert fitted(0) == planner.fitted
    assert works == [("fitting the objective", len(val))]
    assert shown[:2] == [4, 4]
    assert sum(shown) == len(val)
    assert fitted(10) != planner.fitted


def test_without_a_true_candidate_the_chain_stays_as_it_is(trained):
    planner, val = trained
    wrong = replace(val, tasks=(val.tasks + 1) % len(val.taxonomy.tasks))
    allowed = [set(planner.space.actions[task]) for task in wrong.tasks]
    strange = [n for n, row in enumerate(val.actions) if not set(row.tolist()) <= allowed[n]]
    lost, none = wrong.subset(np.array(strange[:5])), val.subset(np.arange(0))
    assert len(lost) == 5
    for windows in (lost, none):
        assert fit_weights(planner.chain, planner.incremental, windows, windows=0) == CHAIN


def test_candidates_are_the_likeliest_over_all_tasks(trained):
    planner, val = trained
    sample = val.subset(np.arange(0, len(val), max(1, len(val) // 4))[:4])
    joint, actions, right = _candidates(planner.chain, sample)
    scores = planner.chain.scores(Queries.from_windows(sample))
    pairs = [
        (task, sequence)
        for task, allowed in enumerate(planner.space.actions)
        for sequence in product(allowed, repeat=3)
    ]
    tasks, sequences = (np.array(part) for part in zip(*pairs, strict=True))
    states = scores.states.find(torch.from_numpy(tasks), torch.from_numpy(sequences))
    for row in range(len(sample)):
        logs = scores.rows([row]).scores(states[None])[0].double().log_softmax(0).numpy()
        order = np.argsort(-logs, kind="stable")[:CANDIDATES]
        np.testing.assert_allclose(joint[row], logs[order], atol=1e-3)
        assert actions[row, 0].tolist() == sequences[order[0]].tolist()
        true = (sequences == sample.actions[row]).all(axis=1) & (tasks == sample.tasks[row])
        assert right[row].sum() == true[order].sum() <= 1
        assert (actions[row, right[row]] == sample.actions[row]).all()


WINDOWS, COUNT = 240, 12


def made(seed, weight, told=1.0):
    """Candidates whose truth is drawn with p ∝ q exp(−weight · E), by an energy told in part."""
    rng = np.random.default_rng(seed)
    joint = -np.sort(rng.exponential(3, size=(WINDOWS, COUNT)), axis=1)
    joint -= np.logaddexp.reduce(joint, axis=1, keepdims=True)
    energies = 10 + rng.standard_normal((WINDOWS, COUNT))
    truth = (joint - weight * energies + rng.gumbel(size=joint.shape)).argmax(axis=1)
    noise = rng.standard_normal(energies.shape)
    return joint, told * energies + (1 - told) * noise, np.eye(COUNT, dtype=bool)[truth]


@pytest.mark.parametrize("seed", range(3))
def test_the_weight_of_an_energy_that_tells_the_truth(seed):
    joint, energies, right = made(seed, 2.0)
    found = energy_weight(joint, energies, right)
    assert found == pytest.approx(2, rel=0.25)
    # of the same scale, whatever unit the energies have
    assert energy_weight(joint, 1000 * energies, right) == pytest.approx(found / 1000)
    # windows without the truth among their candidates say nothing
    missed = right & (np.arange(WINDOWS) % 2 == 0)[:, None]
    even = (part[::2] for part in (joint, energies, right))
    assert energy_weight(joint, energies, missed) == pytest.approx(energy_weight(*even))


def test_the_weight_is_that_of_the_greatest_likelihood():
    joint, energies, right = made(4, 0.7, told=0.5)
    joint[:, -3:] = np.where(right[:, -3:], joint[:, -3:], -np.inf)  # fewer candidates
    possible = np.isfinite(joint)
    centred = energies - np.where(possible, energies, 0).sum(1, keepdims=True) / possible.sum(
        1, keepdims=True
    )
    spread = np.sqrt(np.square(centred[possible]).mean())

    def loss(weight):
        scores = joint - weight * energies
        logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        return -logs[right].sum() + np.square(weight * spread) / 2

    best = minimize_scalar(loss, bounds=(0, 10), method="bounded", options={"xatol": 1e-8})
    assert energy_weight(joint, energies, right) == pytest.approx(best.x, rel=1e-4)


def test_an_energy_that_misleads_or_says_nothing_has_no_weight():
    joint, energies, right = made(0, -1.0)
    assert energy_weight(joint, energies, right) == 0
    assert energy_weight(joint, np.ones_like(energies), right) == 0
    sure = made(1, 0.0)
    assert energy_weight(*sure) < 0.15
    # an energy that always finds the truth has a bounded weight
    joint, _, right = made(2, 0.0)
    assert 1 < energy_weight(joint, -right.astype(float), right) < 100


def test_the_best_is_as_sure_as_it_is_right():
    joint, energies, right = made(0, 2.0)
    videos = np.arange(WINDOWS)
    for wrong in (0, 2):
        if wrong:
            right[::wrong] = False
        weight = energy_weight(joint, energies, right)
        temperature = _temperature(joint, joint - weight * energies, right, videos)
        weights = Weights(weight / temperature, 1 / temperature)
        scores = weights.chain * joint - weights.energy * energies
        shares = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
        rate = right[videos, scores.argmax(axis=1)].mean()
        assert shares.max(axis=1).mean() == pytest.approx(rate, abs=0.05)


def test_what_the_chain_gives_other_sequences_is_left_to_them():
    joint, energies, right = made(0, 2.0)
    given = (joint - 2 * energies, right, np.arange(WINDOWS))
    # 3 in 10 are not among the candidates
    assert _temperature(joint + np.log(0.7), *given) < _temperature(joint, *given)
