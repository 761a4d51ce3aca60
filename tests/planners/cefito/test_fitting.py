"""Fitting weights of the objective and the number of tasks on validation windows."""

import json
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from cefito.planners.cefito import fitting
from cefito.planners.cefito.fitting import (
    _ENERGY,
    _JOINT,
    _PRIOR,
    CANDIDATES,
    MOST_TASKS,
    _best_tasks,
    _Candidates,
    _candidates,
    _earned,
    _fitted,
    _temperature,
    fit_objective,
)
from cefito.planners.cefito.logistic import choose_terms
from cefito.planners.cefito.objective import OBJECTIVES, PAPER, UNFITTED, Weights
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.queries import Queries
from cefito.search.settings import search_settings
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


def success(planner, val, weights, tasks):
    """Share of validation windows whose best sequence is the true one."""
    settings = search_settings(planner.settings.search, objective="fitted", tasks=tasks)
    fitted = replace(planner.fitted, weights={"fitted": weights})
    weighted = replace(planner, fitted=fitted).with_search(settings)
    found = weighted.plan(Queries.from_windows(val), 1)
    truth = zip(found, val.actions, val.tasks, strict=True)
    return np.mean(
        [(best.actions[0] == row).all() and best.tasks[0] == task for best, row, task in truth]
    )


def test_the_fitted_objective_does_better_than_the_energy_alone(trained):
    planner, val = trained
    fitted = planner.fitted
    assert fitted.weights.keys() == OBJECTIVES.keys()
    assert fitted.weights["energy"] == replace(PAPER, task=fitted.weights["energy"].task)
    assert fitted.weights["prior"].chain == 0
    assert fitted.weights["prior"].energy == 1
    best = fitted.weights["fitted"]
    assert best.chain == best.task > 0
    assert fitted.guide.energy == 0 < fitted.guide.chain == fitted.guide.task
    assert 1 <= fitted.tasks <= MOST_TASKS
    assert (best.energy > 0) == fitted.evidence.kept
    assert fitted.evidence.low < fitted.evidence.coefficient < fitted.evidence.high
    assert 0 < fitted.evidence.windows <= len(val)
    if not fitted.evidence.kept:
        assert best == fitted.guide
    alone, every = (
        success(planner, val, fitted.weights[name], fitted.tasks) for name in ("energy", "fitted")
    )
    assert every > alone + 0.02
    assert every >= success(planner, val, fitted.guide, fitted.tasks)


def test_fitting_again_gives_the_same_and_depends_on_the_windows(trained):
    planner, val = trained

    def fitted(windows):
        return fit_objective(
            planner.chain, planner.incremental, planner.prior, val, windows=windows
        )

    assert fitted(0) == planner.fitted
    assert fitted(10).weights != planner.fitted.weights


def test_progress_goes_window_by_window(trained, monkeypatch):
    planner, val = trained
    works, shown = [], []

    @contextmanager
    def progress(description, *, total=None):
        works.append((description, total))
        yield lambda count=1, **_: shown.append(count)

    monkeypatch.setattr(fitting, "_BATCH", 4 * CANDIDATES)
    fitted = fit_objective(
        planner.chain, planner.incremental, planner.prior, val, windows=0, progress=progress
    )
    assert works == [("fitting the objective", len(val))]
    assert shown[:2] == [4, 4]
    assert sum(shown) == len(val)
    assert fitted == planner.fitted


def test_no_window_to_learn_from_leaves_the_defaults(trained):
    """No true sequence is of the task that it is said to be of, nor of its actions."""
    planner, val = trained
    tasks = (val.tasks + 1) % len(val.taxonomy.tasks)
    allowed = [set(planner.space.actions[task]) for task in tasks]
    strange = [
        row for row, actions in enumerate(val.actions) if not set(actions.tolist()) <= allowed[row]
    ]
    lost = replace(val, tasks=tasks).subset(np.array(strange[:5]))
    assert len(lost) == 5
    fitted = fit_objective(planner.chain, planner.incremental, planner.prior, lost, windows=0)
    assert fitted == replace(UNFITTED, weights=fitted.weights)
    assert fitted.weights == {"energy": PAPER, "prior": PAPER, "fitted": UNFITTED.guide}


def test_one_video_says_nothing_of_the_energy_and_can_be_saved(trained, tmp_path):
    planner, val = trained
    lone = val.subset(np.flatnonzero(val.video == val.video[0]))
    fitted = fit_objective(planner.chain, planner.incremental, planner.prior, lone, windows=0)
    assert fitted.evidence is None
    assert fitted.weights["fitted"].energy == 0
    replace(planner, fitted=fitted).save(tmp_path)
    assert json.loads((tmp_path / "planner.json").read_text())["evidence"] is None
    again = CefitoPlanner.load(tmp_path, settings=planner.settings)
    assert again.fitted == fitted


def test_candidates_are_the_likeliest_over_all_tasks(trained):
    planner, val = trained
    sample = val.subset(np.arange(0, len(val), max(1, len(val) // 4))[:4])
    shown = []
    parts = (planner.chain, planner.incremental, planner.prior)
    found = _candidates(*parts, sample, lambda count=1, **_: shown.append(count))
    assert sum(shown) == len(sample)
    scores = planner.chain.scores(Queries.from_windows(sample))
    pairs = [
        (task, sequence)
        for task, actions in enumerate(planner.space.actions)
        for sequence in product(actions, repeat=3)
    ]
    tasks = np.array([task for task, _ in pairs])
    sequences = np.array([sequence for _, sequence in pairs])
    states = scores.states.find(torch.from_numpy(tasks), torch.from_numpy(sequences))
    for row in range(len(sample)):
        logs = scores.rows([row]).scores(states[None])[0].double()
        logs = (logs - logs.logsumexp(0)).numpy()
        order = np.argsort(-logs, kind="stable")[:CANDIDATES]
        np.testing.assert_allclose(found.features[row, :, _JOINT], logs[order], atol=1e-3)
        top = found.features[row, :, _JOINT].argmax()
        assert top == 0
        first = order[0]
        right = (sequences[first] == sample.actions[row]).mean()
        assert found.correct[row, 0] == (right if tasks[first] == sample.tasks[row] else 0)
        assert found.features[row, 0, _PRIOR] == pytest.approx(
            planner.prior.log_probability(sequences[[first]], tasks[[first]])[0]
        )
        asked = (sample.initial[[row]], sample.goal[[row]], sequences[[first]])
        with torch.inference_mode():
            energy = planner.incremental.energy(*map(torch.from_numpy, asked))
        assert found.features[row, 0, _ENERGY] == pytest.approx(-float(energy), rel=1e-4)
        sums = np.array(
            [np.exp(logs[tasks == task]).sum() for task in range(len(planner.space.actions))]
        )
        assert found.log_task[row, 0] == pytest.approx(np.log(sums[tasks[first]]), abs=1e-3)
        assert found.rank[row, 0] == (sums > sums[tasks[first]]).sum()
        true = (sequences == sample.actions[row]).all(axis=1) & (tasks == sample.tasks[row])
        place = found.truth[row]
        assert (place >= 0) == bool(true[order].any())
        assert place < 0 or found.correct[row, place] == 1
    assert found.possible.all()
    assert found.videos.tolist() == sample.video.tolist()


WINDOWS, COUNT = 240, 12


def made(seed, logits, energy):
    """Candidates, likeliest first, whose truths are drawn from logits."""
    rng = np.random.default_rng(seed)
    joint = -np.sort(rng.exponential(3, size=(WINDOWS, COUNT)), axis=1)
    joint -= np.log(np.exp(joint).sum(axis=1, keepdims=True))
    hidden = rng.standard_normal((WINDOWS, COUNT))
    truth = (logits(joint, hidden) + rng.gumbel(size=joint.shape)).argmax(axis=1)
    correct = rng.integers(0, 3, joint.shape) / 3
    correct[np.arange(WINDOWS), truth] = 1
    noise = rng.standard_normal((WINDOWS, COUNT))
    features = np.stack([joint, noise, -energy(joint, hidden)], axis=2)
    return _Candidates(
        features=features,
        log_task=np.zeros_like(joint),
        correct=correct,
        possible=np.ones_like(joint, dtype=bool),
        rank=np.zeros(joint.shape, dtype=np.int64),
        truth=truth,
        videos=np.arange(WINDOWS) // 4,
    )


def judged(candidates):
    """What is found of the energy beside the chain, and whether it is kept."""
    comparison = choose_terms(
        candidates.columns([_ENERGY]),
        candidates.truth.tolist(),
        videos=candidates.videos.tolist(),
        earn=[0],
        offsets=candidates.offsets(),
    )
    return comparison, _earned(candidates, comparison, [], [_ENERGY])


def telling(seed=0):
    """An energy that knows of the truth what the chain does not."""
    return made(seed, lambda joint, hidden: joint + 2 * hidden, lambda _, hidden: -hidden)


def noise(seed=0):
    """An energy of pure noise."""
    return made(seed, lambda joint, _: joint, lambda _, hidden: hidden)


def test_an_energy_of_pure_noise_is_not_kept():
    assert sum(judged(noise(seed))[1] for seed in range(20)) <= 1


def test_an_energy_that_tells_the_truth_is_kept():
    for seed in range(5):
        comparison, kept = judged(telling(seed))
        assert kept
        assert comparison.fit.weights[0] == pytest.approx(2, rel=0.35)


def test_an_energy_that_only_flattens_is_not_kept():
    for seed in range(5):
        flat = made(seed, lambda joint, _: 0.4 * joint, lambda joint, _: 0.5 * joint)
        comparison, kept = judged(flat)
        assert comparison.kept.all()
        assert comparison.gain > 3 * comparison.error
        assert not kept


def test_an_energy_that_costs_plans_is_not_kept():
    candidates = telling()
    correct = np.zeros_like(candidates.correct)
    correct[:, 0] = 1
    comparison, kept = judged(replace(candidates, correct=correct))
    assert comparison.kept.all()
    assert not kept


def test_terms_that_an_overall_gain_does_not_carry_are_refused_at_once():
    comparison, _ = judged(noise())
    assert not _earned(noise(), replace(comparison, kept=np.array([False])), [], [_ENERGY])


def test_the_best_is_as_sure_as_it_is_right():
    candidates = replace(telling(), videos=np.arange(WINDOWS))
    correct = candidates.correct.copy()
    correct[np.arange(0, WINDOWS, 2), candidates.truth[::2]] = 0
    for found in (candidates, replace(candidates, correct=correct)):
        weights = _fitted(found, [_ENERGY])
        assert weights.chain == weights.task
        assert weights.energy / weights.chain == pytest.approx(found.fit([_ENERGY])[0])
        scores = found.features @ [weights.chain, weights.prior, weights.energy]
        shares = np.exp(scores - np.logaddexp.reduce(scores, axis=1)[:, None])
        right = found.correct_at(scores.argmax(axis=1)) == 1
        assert shares.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.04)


def test_what_the_chain_gives_other_sequences_is_left_to_them():
    candidates = telling()
    features = candidates.features.copy()
    features[:, :, 0] += np.log(0.7)  # 3 in 10 are not among the candidates
    assert _temperature(replace(candidates, features=features), [_ENERGY]) < _temperature(
        candidates, [_ENERGY]
    )


def test_the_number_of_tasks_under_which_most_windows_are_right():
    candidates = noise()
    weights = Weights(energy=0.0, chain=1.0, task=1.0)
    assert _best_tasks(candidates, weights) == 1  # fewer where more are no better
    # the best of the likeliest task is never right, that of the third always is
    rank = np.zeros_like(candidates.rank)
    rank[:, 0], rank[:, 1] = 1, 2
    correct = np.zeros_like(candidates.correct)
    correct[:, 0] = 1
    assert _best_tasks(replace(candidates, rank=rank, correct=correct), weights) == 2
