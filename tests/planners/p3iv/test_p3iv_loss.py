"""What P3IV is trained for: each loss by plain loops, and whose turn it is."""

import math

import numpy as np
import pytest
import torch

from cefito.planners.network import data_shape
from cefito.planners.p3iv.method import P3ivConfig
from cefito.planners.p3iv.planner import FACTOR, P3ivLoss, P3ivNetwork, P3ivPlanner, diversity
from cefito.runtime import generator_for

KNOBS = {"train": 24, "val": 8, "test": 8, "dim": 6}
SIZES = {"rows": 2, "hidden": 8, "width": 8, "heads": 2, "feedforward": 8, "name_width": 5}
TINY = SIZES | {"noise": 2, "slots": 3, "samples": 4, "dropout": 0.0, "token_dropout": 0.0}


def make(windows, **settings):
    """A loss with a freshly drawn network."""
    train, val = windows
    config = P3ivConfig(**{**TINY, **settings})
    names = P3ivPlanner.text_vectors(config, train)
    network = P3ivNetwork(config, data_shape(train, names))
    P3ivPlanner.observe(network, train)
    network.reset(generator_for("cpu", 0))
    network.counts.zero_()
    return P3ivLoss(network, train, val, names)


ROWS = torch.arange(5)


def terms(loss, *, seed=0, rows=ROWS):
    return loss.terms(rows, generator_for("cpu", seed))


def first_outputs(loss, *, seed=0):
    """What the network gives for the batch, with the first of the two noises that are drawn."""
    noise = torch.randn(2, len(ROWS), 2, generator=generator_for("cpu", seed))[0]
    initial, goal = loss.observations.initial[ROWS], loss.observations.goal[ROWS]
    return loss.module(loss.module.encode(initial, goal), noise)


@torch.no_grad()
def test_actions_and_names_by_plain_loops(world):
    loss = make(world, adversarial=0.0, diversity=0.0)
    made, outputs = terms(loss), first_outputs(loss)
    assert {name: term.weight for name, term in made.items()} == {"actions": 1.0, "names": 0.5}
    names = loss.module.named(loss.names).numpy()
    actions, named = 0.0, 0.0
    for row, step in np.ndindex(len(ROWS), 3):
        truth = int(world[0].actions[row, step])
        logits = outputs.logits[row, step].tolist()
        actions -= logits[truth] - math.log(sum(map(math.exp, logits)))
        logits = [math.exp(0.7) * float(outputs.states[row, step].numpy() @ name) for name in names]
        named -= logits[truth] - math.log(sum(map(math.exp, logits)))
    assert float(made["actions"].sum) == pytest.approx(actions, rel=1e-5)
    assert float(made["names"].sum) == pytest.approx(named, rel=1e-5)
    assert int(made["actions"].count) == int(made["names"].count) == 15
    assert math.exp(0.7) == FACTOR


@torch.no_grad()
def test_diversity_by_hand(world):
    left, right = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 1.0], [3.0, 7.0]])
    one, other = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [1.0]])
    assert float(diversity(left, right, one, other)) == pytest.approx(1 / (1e-5 + 1.0 / 1.0))
    assert float(diversity(left, left, one, other)) == pytest.approx(1e5)
    loss = make(world, adversarial=0.0)
    term = terms(loss)["diversity"]
    first, second = torch.randn(2, 5, 2, generator=generator_for("cpu", 0))
    encoded = loss.module.encode(loss.observations.initial[ROWS], loss.observations.goal[ROWS])
    expected = diversity(
        loss.module(encoded, first).logits, loss.module(encoded, second).logits, first, second
    )
    assert float(term.sum / term.count) == pytest.approx(float(expected), rel=1e-5)
    assert term.weight == 0.1


def gradients(loss, made):
    """Names of the parts of the network that a batch's terms give a gradient."""
    loss.module.zero_grad(set_to_none=True)
    sum(term.weight * term.sum / term.count for term in made.values()).backward()
    return {
        name.partition(".")[0]
        for name, parameter in loss.module.named_parameters()
        if parameter.grad is not None
    }


def test_generator_and_critic_learn_in_alternate_epochs(world):
    """Odd epochs, counted from 0, are the critic's; each leaves the other alone."""
    loss = make(world)
    whole = torch.arange(len(loss))
    for epoch in range(4):
        for part in whole.split(7):
            made = terms(loss, rows=part, seed=epoch)
            learning = gradients(loss, made)
            if epoch % 2:
                assert set(made) == {"critic"}
                assert learning == {"critic"}
            else:
                assert set(made) == {"actions", "names", "adversarial", "diversity"}
                assert {"encoder", "layers", "action", "state", "language"} <= learning
                assert "critic" not in learning
    assert int(loss.module.critic.seen) == 4 * len(loss)
    # it stands in the weights, so that a resumed training goes on with the turn it was
    assert int(loss.module.state_dict()["critic.seen"]) == 4 * len(loss)
