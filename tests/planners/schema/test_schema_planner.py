from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cefito.planners.base import Queries
from cefito.planners.network import data_shape
from cefito.planners.schema.planner import SchemaLoss, SchemaNetwork, SchemaPlanner
from cefito.planners.shared.descriptions import EndMeans
from cefito.planners.shared.transitions import counted_transitions
from cefito.runtime import generator_for
from cefito.testing import assert_same_plans
from drawn import drawn
from planners.small_methods import small_method

KNOBS = {"train": 48, "val": 12, "test": 12, "dim": 12}
SIZES = {"hidden": 16, "width": 16, "heads": 2, "name_width": 8}
TINY = SIZES | {"training.optimiser.epochs": 2, "training.stopping.every": 1}
tiny, fit = small_method("schema", TINY, section="schema_model")


@pytest.fixture(scope="module")
def planner(world):
    return fit(world).planner


def loss_of(world, **overrides):
    """The loss of an untrained network without dropout, noise and swaps."""
    augmentation = {f"training.augmentation.{name}": 0.0 for name in ("noise", "swap")}
    quiet = {"input_dropout": 0.0, "dropout": 0.0, **augmentation}
    train, val = world
    config = tiny(**{**quiet, **overrides}).schema_model
    text = SchemaPlanner.text_vectors(config, train)
    network = SchemaNetwork(config, data_shape(train, text))
    network.reset(generator_for("cpu", 0))
    if text is not None:
        network.descriptions.copy_(torch.from_numpy(text))
    return SchemaLoss(network, train, val)


@torch.no_grad()
def test_losses_by_slow_loops(world):
    loss, (train, _) = loss_of(world, descriptions="names", states=0.3, alignment=0.5), world
    rows = torch.tensor([4, 1, 11])
    terms = loss.terms(rows, generator_for("cpu", 0))
    network = loss.module
    memory = network.memory()
    initial, goal, tasks = (
        torch.from_numpy(part[rows]) for part in (train.initial, train.goal, train.tasks)
    )
    encoded = network.encode(initial, goal)
    outputs = network.decode(encoded, tasks, memory, None)  # the true tasks
    logits = network.alignment(encoded, memory.encoded)
    actions, tasks, ends, states = [], [], [], []
    for place, row in enumerate(rows.tolist()):
        truth = train.actions[row].tolist()
        actions += [
            float(outputs.actions[place, step].logsumexp(0) - outputs.actions[place, step, action])
            for step, action in enumerate(truth)
        ]
        own = outputs.tasks[place]
        tasks.append(float(own.logsumexp(0) - own[train.tasks[row]]))
        ends += [
            float(logits[place, end].logsumexp(0) - logits[place, end, truth[-end]])
            for end in (0, 1)
        ]
        for step in (0, 1):
            six = [*memory.encoded[truth[step], 1], *memory.encoded[truth[step + 1], 0]]
            target = sum(six) / 6
            states += ((outputs.between[place, step] - target) ** 2).tolist()
    means = {name: (term.weight, float(term.sum / term.count)) for name, term in terms.items()}
    expected: dict[str, Any] = {
        "actions": (1.0, pytest.approx(np.mean(actions), rel=1e-4)),
        "task": (1.0, pytest.approx(np.mean(tasks), rel=1e-4)),
        "alignment": (0.5, pytest.approx(np.mean(ends), rel=1e-4)),
        "states": (0.3, pytest.approx(np.mean(states), rel=1e-4)),
    }
    assert means == expected


def test_no_gradient_flows_into_the_targets_of_states(world):
    loss = loss_of(world, descriptions="names", alignment=0.0)
    network = loss.module
    # with the memory's keys apart, descriptions reach the error by the targets alone
    for decoder in (network.state_decoder, network.action_decoder):
        for layer in decoder.layers:
            layer.crossing.key.weight.data.zero_()
            layer.crossing.value.weight.data.zero_()
    term = loss.terms(torch.arange(4), generator_for("cpu", 0))["states"]
    term.sum.backward()
    assert not network.description.weight.grad.any()
    assert network.between.weight.grad.any()


def test_windows_do_not_recognise_themselves_in_the_means(world, monkeypatch):
    """Mean observations are drawn without the videos of the batch, kept with all."""
    train, _ = world
    network = fit(world).planner.network
    means = EndMeans(train, network.prepared).all()
    torch.testing.assert_close(network.descriptions, means)
    loss, given, memory = SchemaLoss(network, train, train), [], network.memory

    def noted(vectors, **rest):
        given.append(vectors)
        return memory(vectors, **rest)

    monkeypatch.setattr(network, "memory", noted)
    loss.terms(torch.tensor([0, 1]), generator_for("cpu", 0))
    others = train.actions[train.video != train.video[0], 0]
    assert not torch.equal(given[0], means)
    assert not given[0][np.setdiff1d(train.actions[:, 0], others), 0].any()


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_plans_are_the_best_of_all_sequences(world, planner, smoothing):
    """By enumeration."""
    train, val = world
    config = planner.config.model_copy(update={"smoothing": smoothing})
    planner, network = replace(planner, config=config), planner.network
    queries = Queries.from_windows(val).subset(range(4))
    with torch.no_grad():
        states = network.encode(*planner.observations(queries))
        outputs = network.decode(states, None, network.memory(), None)
    emissions = outputs.actions.double().log_softmax(dim=2).numpy()
    size = len(train.taxonomy.actions)
    counts = counted_transitions(train, size)
    np.testing.assert_array_equal(planner.network.counts.numpy(), counts)
    shares = np.full((size, size), 1 / size)
    for row in range(size):
        if counts[row].sum() + smoothing:
            shares[row] = (counts[row] + smoothing) / (counts[row] + smoothing).sum()
    for row, plan in enumerate(planner.plan(queries, 5)):
        chances = np.exp(emissions[row])
        values = np.einsum("a,b,c,ab,bc->abc", *chances, shares, shares).ravel()
        order = np.argsort(-values, kind="stable")[:5]
        found = np.stack(np.unravel_index(order, (size, size, size)), axis=1)
        assert plan.exact
        assert plan.evaluated.token_forwards == 11
        np.testing.assert_array_equal(plan.actions, found)
        np.testing.assert_allclose(np.exp(-plan.energies), values[order], rtol=1e-6)


@pytest.mark.parametrize(("kind", "said"), [("file", ""), ("names", " (name hashes)")])
def test_descriptions_of_each_kind(world, kind, said, tmp_path):
    train, val = world
    value = str(tmp_path / "given.npy") if kind == "file" else kind
    np.save(tmp_path / "given.npy", drawn(len(train.taxonomy.actions), 6, 5).half().numpy())
    planner = fit(world, descriptions=value, **{"training.optimiser.epochs": 1}).planner
    assert planner.name == f"SCHEMA{said}"
    weights = planner.network.state_dict()
    if kind == "file":
        expected = np.load(value).astype(np.float32)
        np.testing.assert_array_equal(weights["descriptions"].numpy(), expected)
    planner.save(tmp_path)
    (tmp_path / "given.npy").unlink()  # it is not needed any more
    loaded = SchemaPlanner.load(tmp_path, settings=tiny(descriptions=value))
    queries = Queries.from_windows(val)
    assert_same_plans(planner.plan(queries, 3), loaded.plan(queries, 3))
