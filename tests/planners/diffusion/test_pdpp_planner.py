import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.planners.base import Queries
from cefito.planners.diffusion.planner import DiffusionLoss, PdppNetwork, PdppPlanner, best_plans
from cefito.planners.network import data_shape
from cefito.runtime import generator_for
from drawn import drawn, stirred
from planners.small_methods import small_method

KNOBS = {"train": 48, "val": 12, "test": 12}
TINY = {
    "pdpp.widths": "[16, 16]",
    "pdpp.steps": 20,
    "pdpp.sampling": 4,
    "pdpp.training.optimiser.epochs": 2,
    "pdpp.training.optimiser.learning_rate": 3e-3,
    "pdpp.training.optimiser.batch_size": 64,
    "pdpp.training.stopping.every": 1,
    "pdpp.training.stopping.windows": 0,
    "classifier_training.optimiser.epochs": 3,
}
tiny, fit = small_method("pdpp", TINY)


def pdpp_loss(world, **overrides):
    """The loss of an untrained network, with all weights away from their special beginnings."""
    train, val = world
    augmentation = {f"pdpp.training.augmentation.{name}": 0.0 for name in ("noise", "swap")}
    config = tiny(**{**augmentation, **overrides}).pdpp
    network = PdppNetwork(config, data_shape(train))
    network.reset(generator_for("cpu", 0))
    network.mean += 0.1 * drawn(*network.mean.shape)
    return DiffusionLoss(stirred(network, 0.1), train, val, train.tasks, val.tasks)


def test_validation_is_the_planner_on_the_sample(world):
    _, val = world
    made = pdpp_loss(world, **{"pdpp.training.stopping.windows": 20})
    sample = val.sample(20, seed=0)
    shown = (torch.from_numpy(part) for part in (sample.tasks, sample.initial, sample.goal))
    with torch.no_grad():
        best = made.module.scores(*shown).argmax(dim=2).numpy()
    scores = made.validate()
    assert list(scores) == ["success_rate", "mean_accuracy"]
    right = best == sample.actions
    assert scores["success_rate"] == pytest.approx(100 * right.all(axis=1).mean())
    assert scores["mean_accuracy"] == pytest.approx(100 * right.mean())


def test_validation_takes_the_predicted_tasks(world, monkeypatch):
    seen = []

    def look(train, val, settings, known, val_known, *, config, task_model, **_):
        seen.append(val_known)
        return PdppPlanner((), task_model.shape, config, task_model), {}

    monkeypatch.setattr(PdppPlanner, "train", look)
    planner = fit(world).planner
    predicted = planner.task_model.predict(Queries.from_windows(world[1]))
    np.testing.assert_array_equal(seen[0], predicted)


@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 130), st.booleans(), st.integers(0, 1000)
)
def test_best_sequences_against_all(horizon, actions, top_k, ties, seed):
    scores = np.random.default_rng(seed).standard_normal((horizon, actions))
    scores = (np.round(scores) if ties else scores).astype(np.float32)
    (best,) = best_plans(scores[None], top_k, 0)
    every = sorted(
        (-sum(float(scores[step, action]) for step, action in enumerate(row)), row)
        for row in itertools.product(range(actions), repeat=horizon)
    )[:top_k]
    np.testing.assert_allclose(best.energies, [energy for energy, _ in every], atol=1e-12)
    np.testing.assert_array_equal(best.actions, [row for _, row in every])
    np.testing.assert_array_equal(best.scores, best.energies)
    assert best.actions.dtype == np.int64
    assert best.energies.dtype == np.float64
