"""P3IV from windows to plans: decoding, names in tables, files, presets, rows."""

import numpy as np
import pytest

from cefito.errors import ConfigError
from cefito.planners.network import data_shape
from cefito.planners.p3iv.planner import P3ivNetwork, P3ivPlanner
from cefito.runtime import generator_for
from cefito.training.trainer import TrainingContext
from learned import same_weights
from planners.small_methods import small_method
from tiny_runs import stopping_after

KNOBS = {"train": 24, "val": 8, "test": 8, "dim": 6}
SIZES = {"rows": 2, "hidden": 8, "width": 8, "heads": 2, "feedforward": 8, "name_width": 5}
TRAINING = {"training.optimiser.epochs": 2, "training.precision": "float32"}
TINY = SIZES | TRAINING | {"noise": 2, "slots": 3, "samples": 6}
tiny, fit = small_method("p3iv", TINY, preset="paper", section="p3iv")


def untrained(train, **settings):
    """A planner of a network that has seen training windows, with weights as drawn."""
    config = tiny(**settings).p3iv
    vectors = P3ivPlanner.text_vectors(config, train)
    shape = data_shape(train, vectors)
    network = P3ivNetwork(config, shape)
    P3ivPlanner.observe(network, train, *(() if vectors is None else (vectors,)))
    network.reset(generator_for("cpu", 0))
    return P3ivPlanner((network.eval(),), shape, config)


@pytest.fixture(scope="module")
def planner(world):
    """A fitted planner."""
    return fit(world).planner


def test_the_critic_serves_in_training_only(planner, tmp_path):
    assert planner.network.config.adversarial > 0
    assert not [name for name in planner.network.state_dict() if name.startswith("critic")]
    network = planner.network
    assert planner.parameters == {"P3IV": sum(one.numel() for one in network.parameters())}
    planner.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p3iv.safetensors"]


def test_a_training_killed_in_the_turn_of_the_critic_goes_on_with_the_same_weights(world, tmp_path):
    batches = -(-len(world[0]) // 32)
    settings = {"training.optimiser.epochs": 4, "training.augmentation.noise": 0.3}
    killed = TrainingContext(folder=tmp_path, progress=stopping_after(batches + batches // 2))
    with pytest.raises(KeyboardInterrupt):
        fit(world, context=killed, **settings)
    resumed = fit(world, context=TrainingContext(folder=tmp_path), **settings)
    assert resumed.trainings["P3IV"].resumed
    whole = fit(world, **settings)
    assert same_weights(resumed.planner.network, whole.planner.network)
    assert resumed.trainings["P3IV"].scores == whole.trainings["P3IV"].scores


def test_whitening_takes_two_numbers_from_the_training_windows(world, planner):
    train, _ = world
    both = np.stack([train.initial, train.goal]).astype(np.float64)
    network = planner.network
    np.testing.assert_allclose(network.mean, np.full(6, both.mean()), rtol=1e-5)
    assert float(network.scale) == pytest.approx(both.std(), rel=1e-5)
    raw = untrained(train, whiten=False).network
    assert not raw.mean.any()
    assert float(raw.scale) == 1
    centred = untrained(train, whiten=False, centre=True).network
    np.testing.assert_allclose(centred.mean, both.mean(axis=(0, 1)), rtol=1e-4, atol=1e-6)


def test_observations_that_are_no_rows_are_refused_before_anything_is_trained(world):
    with pytest.raises(ConfigError, match=r"are not 4 rows") as caught:
        fit(world, rows=4)
    assert caught.value.setting == "p3iv.rows"
