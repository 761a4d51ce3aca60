"""P3IV from windows to plans: decoding, names in tables, files, presets, rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from cefito.errors import ConfigError
from cefito.planners.base import Queries
from cefito.planners.context import TrainingContext
from cefito.planners.p3iv.decoding import best_sequences, greedy
from cefito.planners.p3iv.planner import P3ivPlanner
from cefito.planners.p3iv.settings import P3ivSettings
from cefito.planners.settings import load_config
from cefito.study.variants import find_rows

KNOBS = {"train": 24, "val": 8, "test": 8, "dim": 6}
TINY = {
    "rows": 2,
    "hidden": 8,
    "width": 8,
    "noise": 2,
    "heads": 2,
    "feedforward": 8,
    "slots": 3,
    "samples": 6,
    "name_width": 5,
    "training.optimiser.epochs": 2,
    "training.precision": "float32",
}


def tiny(**settings: object) -> P3ivSettings:
    overrides = {f"p3iv.{name}": value for name, value in {**TINY, **settings}.items()}
    return load_config("paper", method="p3iv", overrides=overrides).settings


def fit(world, *, seed=0, context=TrainingContext(), **settings):
    return P3ivPlanner.fit(*world, settings=tiny(**settings), seed=seed, context=context)


@pytest.fixture(scope="module")
def planner(world):
    """A fitted planner."""
    return fit(world).planner


@pytest.fixture(scope="module")
def queries(world):
    return Queries.from_windows(world[1]).subset(range(5))


def weights(planner):
    return planner.network.state_dict()


def same_weights(left, right):
    ours, theirs = weights(left), weights(right)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


# decoding


def shares(counts):
    """Probability of each next action; uniform after an action that nothing follows."""
    rows = np.asarray(counts, dtype=float)
    return np.array(
        [row / row.sum() if row.sum() else np.full(len(row), 1 / len(row)) for row in rows]
    )


def test_plans_are_the_best_of_all_sequences(world, planner, queries):
    network = planner.network
    with torch.no_grad():
        emissions = network.emissions(*planner.observations(queries)).exp().numpy()
    transitions = shares(network.counts)
    every = np.array(list(product(range(network.action_count), repeat=3)))
    for plans, emitted in zip(planner.plan(queries, 6), emissions, strict=True):
        likely = emitted[range(3), every].prod(axis=1)
        likely *= transitions[every[:, :-1], every[:, 1:]].prod(axis=1)
        best = np.argsort(-likely, kind="stable")[:6]
        assert plans.actions.tolist() == every[best].tolist()
        np.testing.assert_allclose(np.exp(-plans.energies), likely[best], rtol=1e-9)
        np.testing.assert_array_equal(plans.energies, plans.scores)
        assert plans.exact
        assert plans.evaluated.token_forwards == 6 * 4


@pytest.mark.parametrize("horizon", [1, 2, 4])
def test_greedy_decoding_by_plain_loops(horizon):
    """The released way: from the end, each action by its own emission and the next one alone."""
    generator = torch.Generator().manual_seed(horizon)
    emissions = torch.rand(3, horizon, 5, generator=generator)
    counts = torch.randint(0, 3, (5, 5), generator=generator)
    counts[2] = 0
    shared = counts.double().numpy()
    shared = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1)
    decoded = greedy(emissions.log(), counts, 5)
    for row in range(3):
        for rank in range(5):
            actions = [sorted(range(5), key=lambda i: -float(emissions[row, -1, i]))[rank]]
            for step in range(horizon - 2, -1, -1):
                following, scores = actions[0], []
                total = sum(np.exp(shared[i, following]) for i in range(5))
                for i in range(5):
                    transition = np.exp(shared[i, following]) / total
                    scores.append(float(emissions[row, step, i]) * transition)
                actions.insert(0, int(np.argmax(scores)))
            assert decoded.sequences[row, rank].tolist() == actions
            assert float(decoded.sums[row, rank].exp()) == pytest.approx(
                float(emissions[row, -1, actions[-1]]), rel=1e-6
            )
    assert not decoded.possible.any()
    assert best_sequences(emissions.log(), counts, 2, "greedy").sequences.shape == (3, 2, horizon)


def test_greedy_decoding_misses_the_best_plan():
    """The last action alone decides, though nothing likely leads there."""
    emissions = torch.tensor([[[0.9, 0.1], [0.4, 0.6]]]).log()
    counts = torch.tensor([[99, 1], [1, 1]])
    best = best_sequences(emissions, counts, 1, "viterbi").sequences[0, 0]
    assert best.tolist() == [0, 0]
    assert greedy(emissions, counts, 1).sequences[0, 0].tolist() == [0, 1]


# what it is called, what is kept


@pytest.mark.parametrize(
    ("settings", "text", "name"),
    [
        ({}, True, "P3IV"),
        ({}, False, "P3IV (name hashes)"),
        ({"language": "names"}, True, "P3IV (name hashes)"),
        ({"contrastive": 0.0}, True, "P3IV (no language)"),
        ({"noise": 0, "diversity": 0.0}, True, "P3IV (no noise)"),
        (
            {"memory": "released", "decoding": "greedy", "test_dropout": True},
            False,
            "P3IV (one memory vector a layer, greedy, dropout in planning, name hashes)",
        ),
    ],
)
def test_names_say_what_is_not_as_described_and_survive_saving(
    world, settings, text, name, tmp_path
):
    if text:
        vectors = np.random.default_rng(0).random((len(world[0].taxonomy.actions), 7), np.float32)
        world = tuple(replace(windows, action_text=vectors) for windows in world)
    planner = fit(world, **settings, **{"training.optimiser.epochs": 1}).planner
    assert planner.name == planner.describe().name == name
    planner.save(tmp_path)
    loaded = P3ivPlanner.load(tmp_path, settings=tiny(**settings))
    assert loaded.describe() == planner.describe()
    assert same_weights(loaded, planner)


def test_the_critic_serves_in_training_only(planner, tmp_path):
    assert planner.network.config.adversarial > 0
    assert not [name for name in weights(planner) if name.startswith("critic")]
    network = planner.network
    assert planner.parameters == {"P3IV": sum(one.numel() for one in network.parameters())}
    planner.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p3iv.safetensors"]


def test_a_training_killed_in_the_turn_of_the_critic_goes_on_with_the_same_weights(world, tmp_path):
    class KilledError(Exception):
        pass

    @contextmanager
    def dying(label: str, *, total: float) -> Iterator[object]:
        done = 0

        def advance(count: float, note: str = "") -> None:
            nonlocal done
            done += count
            if done > 0.6 * total:
                raise KilledError

        yield advance

    settings = {"training.optimiser.epochs": 4, "training.augmentation.noise": 0.3}
    with pytest.raises(KilledError):
        fit(world, context=TrainingContext(folder=tmp_path, progress=dying), **settings)
    resumed = fit(world, context=TrainingContext(folder=tmp_path), **settings)
    assert resumed.trainings["P3IV"].resumed
    whole = fit(world, **settings)
    assert same_weights(resumed.planner, whole.planner)
    assert resumed.trainings["P3IV"].scores == whole.trainings["P3IV"].scores


def test_whitening_takes_two_numbers_from_the_training_windows(world, planner):
    train, _ = world
    both = np.stack([train.initial, train.goal]).astype(np.float64)
    network = planner.network
    np.testing.assert_allclose(network.mean, np.full(6, both.mean()), rtol=1e-5)
    assert float(network.scale) == pytest.approx(both.std(), rel=1e-5)
    raw = fit(world, whiten=False).planner.network
    assert not raw.mean.any()
    assert float(raw.scale) == 1
    centred = fit(world, whiten=False, centre=True).planner.network
    np.testing.assert_allclose(centred.mean, both.mean(axis=(0, 1)), rtol=1e-4, atol=1e-6)


def test_observations_that_are_no_rows_are_refused_before_anything_is_trained(world):
    with pytest.raises(ConfigError, match=r"are not 4 rows") as caught:
        fit(world, rows=4)
    assert caught.value.setting == "p3iv.rows"


# presets and rows


def test_published_settings():
    plain = load_config("paper", method="p3iv", dataset="crosstask", horizon=3).settings.p3iv
    assert P3ivSettings().p3iv == plain
    assert (plain.rows, plain.samples, plain.dropout, plain.noise) == (3, 1500, 0.3, 32)
    assert (plain.contrastive, plain.adversarial, plain.diversity) == (0.5, 0.1, 0.1)
    assert plain.critic_rate * plain.training.optimiser.learning_rate == pytest.approx(1e-5)
    for dataset, rate, factor, epochs in (
        ("crosstask", 7e-4, 0.65, 20),
        ("coin", 7e-4, 0.5, 10),
        ("niv", 1e-3, 0.7, 5),
    ):
        optimiser = load_config(
            "paper", method="p3iv", dataset=dataset, horizon=4
        ).settings.p3iv.training.optimiser
        assert (optimiser.epochs, optimiser.batch_size, optimiser.weight_decay) == (200, 32, 0)
        assert (optimiser.learning_rate, optimiser.factor) == (rate, factor)
        assert optimiser.interval * optimiser.epochs == pytest.approx(epochs)
    for dataset in ("coin", "niv"):
        config = load_config("paper", method="p3iv", dataset=dataset, horizon=3).settings.p3iv
        assert (config.contrastive, config.adversarial, config.diversity) == (0.5, 0, 0)
        assert config.passes == 1
    niv = load_config("paper", method="p3iv", dataset="niv", horizon=3).settings.p3iv
    assert (niv.noise, niv.dropout, niv.whiten, niv.token_width) == (0, 0.1, False, 128)


@pytest.mark.parametrize("name", ["p3iv", "p3iv-noiseless", "p3iv-released"])
@pytest.mark.parametrize("dataset", ["crosstask", "coin", "niv", "captaincook4d"])
def test_rows_fit_every_preset(name, dataset):
    (row,) = find_rows([name])
    for preset in ("paper", "small", "quickstart"):
        config = load_config(
            preset, method="p3iv", dataset=dataset, horizon=3, overrides=row.settings
        ).settings.p3iv
        assert (config.noise == 0) == (name == "p3iv-noiseless" or dataset == "niv")
        assert (config.decoding == "greedy") == (name == "p3iv-released")
