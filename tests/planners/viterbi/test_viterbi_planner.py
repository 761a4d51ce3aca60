from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.errors import RunError
from cefito.planners.base import Queries, Shape
from cefito.planners.shared.layers import keep
from cefito.planners.shared.transitions import k_best, transition_counts, transition_probabilities
from cefito.planners.viterbi.method import ViterbiConfig, ViterbiSettings
from cefito.planners.viterbi.planner import (
    ViterbiLoss,
    ViterbiNetwork,
    ViterbiPlanner,
    clamped_transitions,
    log_marginals,
)
from cefito.runtime import generator_for
from cefito.testing import assert_same_plans
from drawn import drawn
from learned import same_weights
from made_windows import taxonomy_of, windows_of
from planners.small_methods import small_method

KNOBS = {"train": 72, "val": 24, "test": 12}
SIZES = {"hidden": 24, "width": 16, "heads": 2, "feedforward": 20}
SMALL = SIZES | {"input_dropout": 0.1, "dropout": 0.1}
TRAINING = {"optimiser.epochs": 2, "optimiser.batch_size": 64, "stopping.every": 1}
TINY = SMALL | {f"training.{name}": value for name, value in TRAINING.items()}
TAXONOMY = taxonomy_of(4, 5)
small, fit = small_method("viterbi", TINY, preset="paper", section="viterbi")


def load(folder, **settings):
    return ViterbiPlanner.load(folder, settings=small(**settings))


@pytest.fixture(scope="module")
def planner(world):
    return fit(world).planner


@pytest.fixture(scope="module")
def unaligned(world):
    return fit(world, descriptions="none").planner


def mean_outputs(planner, queries):
    """The outputs of a planner of one member."""
    with torch.inference_mode():
        (outputs,) = planner.outputs(queries)
    return outputs


@pytest.mark.parametrize(
    ("actions", "tasks", "horizon", "expected"),
    [
        (133, 18, 3, 5_549_602),
        (778, 180, 3, 6_067_795),
        (778, 180, 6, 6_667_633),
        (48, 5, 3, 5_482_390),
    ],
)
def test_published_size(actions, tasks, horizon, expected):
    """5.55, 6.07, 6.67 and 5.48 million."""
    shape = Shape(observation_dim=1536, tasks=tasks, actions=actions, horizon=horizon)
    assert ViterbiPlanner.sizes(ViterbiSettings(), shape) == {"ViterbiPlanNet": expected}


def network_of(*, text_dim=0, **settings):
    shape = Shape(observation_dim=7, tasks=4, actions=5, horizon=3, text_dim=text_dim)
    network = ViterbiNetwork(ViterbiConfig(**{**SMALL, **settings}), shape)
    network.reset(generator_for("cpu", 0))
    network.counts.copy_(torch.arange(25).reshape(5, 5) % 4)
    return network


def observations(count=6):
    return drawn(count, 7, seed=1), drawn(count, 7, seed=2)


def test_emissions_are_those_of_slow_layers():
    """test_layers.py compares the transformer layer itself with torch."""
    network = network_of()
    initial, goal = observations()
    outputs = network(initial, goal)
    first, second = network.encoder
    states = torch.stack([second(first(initial)), second(first(goal))], dim=1)
    torch.testing.assert_close(outputs.states, states)
    assert network.layer.heads == 2
    tokens = network.norm(network.layer(states, keep))
    hidden = torch.sigmoid(network.fc(tokens.flatten(1)))
    expected = torch.log(torch.sigmoid(network.emission(hidden).reshape(6, 3, 5)))
    torch.testing.assert_close(outputs.emissions, expected)
    one, _, two = network.task
    torch.testing.assert_close(outputs.tasks, two(F.gelu(one(states.flatten(1)))))


@torch.no_grad()
def test_alignment():
    network = network_of(text_dim=3)
    initial, goal = observations()
    descriptions = drawn(5, 6, 3, seed=3)
    states = network(initial, goal).states
    logits = network.alignment(states, descriptions)
    assert logits.shape == (6, 2, 5)
    for row, end, action in np.ndindex(6, 2, 5):
        encoded = network.description(descriptions[action, 3 * end : 3 * end + 3])
        cosines = [float(F.cosine_similarity(states[row, end], one, dim=0)) for one in encoded]
        expected = np.mean(cosines) / 0.07
        assert float(logits[row, end, action]) == pytest.approx(expected, abs=1e-4)
    network.log_temperature.add_(1)  # its logarithm is learned
    torch.testing.assert_close(network.alignment(states, descriptions), np.e * logits)


def toy_windows(count=6):
    numbers = np.arange(count)
    actions = np.stack([numbers % 5, numbers % 3, numbers // 2], axis=1)
    observed = np.stack(observations(count))
    return windows_of(actions, observed, TAXONOMY, tasks=numbers % 4)


@torch.no_grad()
def test_losses_by_a_slow_loop():
    network = network_of(text_dim=3, input_dropout=0.0, dropout=0.0, alignment=0.5, task=2.0)
    windows = toy_windows()
    descriptions = np.random.default_rng(0).standard_normal((5, 6, 3)).astype(np.float32)
    loss = ViterbiLoss(network, windows, windows, descriptions)
    rows = torch.tensor([4, 1, 2])
    terms = loss.terms(rows, generator_for("cpu", 0))
    means = {name: (term.weight, float(term.sum / term.count)) for name, term in terms.items()}
    outputs = network(torch.from_numpy(windows.initial[rows]), torch.from_numpy(windows.goal[rows]))
    transitions = clamped_transitions(network.counts)
    marginals = log_marginals(outputs.emissions, transitions).exp()
    logits = network.alignment(outputs.states, torch.from_numpy(descriptions))
    squares, tasks, alignment = [], [], []
    for place, row in enumerate(rows.tolist()):
        for step, action in np.ndindex(3, 5):
            truth = float(action == windows.actions[row, step])
            squares.append((float(marginals[place, step, action]) - truth) ** 2)
        for task in range(4):
            truth = float(task == windows.tasks[row])
            tasks.append((float(outputs.tasks[place, task]) - truth) ** 2)
        ends = zip(logits[place], windows.actions[row, [0, -1]], strict=True)
        alignment += [float(one.logsumexp(0) - one[action]) for one, action in ends]
    expected: dict[str, Any] = {
        "marginals": (1.0, pytest.approx(np.mean(squares), rel=1e-4)),
        "alignment": (0.5, pytest.approx(np.mean(alignment), rel=1e-4)),
        "task": (2.0, pytest.approx(np.mean(tasks), rel=1e-4)),
    }
    assert means == expected


def test_plans(world, planner):
    train, val = world
    queries, network = Queries.from_windows(val), planner.network
    counts = transition_counts(train, len(train.taxonomy.actions))
    np.testing.assert_array_equal(network.counts.numpy(), counts)
    plans = planner.plan(queries, 6)
    assert len(plans) == len(val)
    clamped = clamped_transitions(network.counts)
    raw = transition_probabilities(counts)
    marginals = log_marginals(mean_outputs(planner, queries).emissions.double(), clamped)
    chances = marginals.exp().numpy()
    for row, plan in enumerate(plans):
        assert plan.actions.shape == (6, 3)
        assert plan.exact
        assert plan.evaluated.token_forwards == 2
        product = chances[row, range(3), plan.actions].prod(axis=1)
        product = product * raw[plan.actions[:, :-1], plan.actions[:, 1:]].prod(axis=1)
        np.testing.assert_allclose(np.exp(-plan.energies), product, rtol=1e-6)
    assert planner.name == "ViterbiPlanNet (name hashes)"


def test_without_task_head(world):
    planner = fit(world, task=0.0).planner
    assert planner.predict_tasks(Queries.from_windows(world[1])) is None
    assert not any(name.startswith("task") for name in planner.network.state_dict())


def test_without_alignment(world, unaligned):
    """Descriptions of no weight are not read."""
    planner = fit(world, descriptions="/nowhere.npy", alignment=0.0).planner
    assert same_weights(planner.network, unaligned.network)
    assert planner.describe() == unaligned.describe()


def test_members_are_averaged_saved_and_named(world, planner, tmp_path):
    training = fit(world, members=2)
    both, queries = training.planner, Queries.from_windows(world[1])
    assert set(training.trainings) == {"ViterbiPlanNet", "ViterbiPlanNet-1"}
    first, second = (replace(both, networks=(network,)) for network in both.networks)
    assert same_weights(first.network, planner.network)
    assert not same_weights(first.network, second.network)
    apart = [mean_outputs(one, queries) for one in (first, second)]
    tasks = (apart[0].tasks + apart[1].tasks).argmax(dim=1)
    np.testing.assert_array_equal(both.predict_tasks(queries), tasks.numpy())
    transitions = clamped_transitions(both.network.counts)
    marginals = log_marginals((apart[0].emissions + apart[1].emissions).double() / 2, transitions)
    shares = transition_probabilities(both.network.counts.numpy())
    raw = torch.from_numpy(shares).log()
    _, sums = k_best(marginals, raw, 1)
    best = [plan.energies[0] for plan in both.plan(queries, 1)]
    np.testing.assert_allclose(best, -sums[:, 0].numpy(), rtol=1e-6)  # float32 emissions
    assert both.parameters["ViterbiPlanNet"] == 2 * planner.parameters["ViterbiPlanNet"]
    assert "2 members" in both.name
    assert "members" not in planner.name
    both.save(tmp_path)
    assert_same_plans(both.plan(queries, 4), load(tmp_path, members=2).plan(queries, 4))
    with pytest.raises(RunError, match="missing"):
        load(tmp_path, members=3)
