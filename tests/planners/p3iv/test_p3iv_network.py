"""P3IV's network: against a reference of plain loops, its sizes, its memory, its samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.p3iv.method import P3ivConfig
from cefito.planners.p3iv.planner import Critic, P3ivNetwork
from cefito.runtime import count_parameters, generator_for
from drawn import drawn, stirred
from planners.slow_layers import added, attention, linear, position

ACTIONS, DIM, LANGUAGE = 4, 6, 5
SHAPE = Shape(observation_dim=DIM, tasks=1, actions=ACTIONS, horizon=3, text_dim=LANGUAGE)
SIZES = {"rows": 2, "hidden": 5, "width": 8, "heads": 2, "feedforward": 7, "slots": 3}
TINY = SIZES | {"noise": 2, "samples": 9, "contrastive": 0.5, "adversarial": 0.0}


def network(*, horizon=3, critic=False, **settings):
    """A network all of whose parameters are away from special beginnings."""
    made = P3ivNetwork(P3ivConfig(**{**TINY, **settings}), replace(SHAPE, horizon=horizon))
    if critic:
        made.add_critic()
    made.reset(generator_for("cpu", 0, 1))
    return stirred(made, 0.3)


def mlp(x, layers):
    return linear(F.relu(linear(x, layers[0])), layers[2])


@torch.no_grad()
def slow(made, initial, goal, noise):
    """Logits of actions and states of one query."""
    config, values = made.config, []
    for x in (initial, goal):
        rows = ((x - made.mean) / made.scale).reshape(config.rows, -1)
        values.append(torch.stack([mlp(row, made.encoder) for row in rows]).mean(dim=0))
    width = config.token_width
    values[1:1] = [torch.zeros(width)] * (made.horizon - 1)
    tokens = [
        torch.cat([linear(torch.cat([value, position(place, width)]).double(), made.token), noise])
        for place, value in enumerate(values)
    ]
    if made.horizon > 1:  # the goal moves before the last empty token
        tokens.insert(-1, tokens.pop())
    for layer in made.layers:
        tokens = added(tokens, attention(tokens, tokens, layer.tokens), layer.norms[0])
        tokens = added(tokens, attention(tokens, made.memory, layer.memory), layer.norms[1])
        mixed = [linear(F.relu(linear(x, layer.fc1)), layer.fc2) for x in tokens]
        tokens = added(tokens, mixed, layer.norms[2])
    return [torch.stack([mlp(x, head) for x in tokens[:-1]]) for head in (made.action, made.state)]


@pytest.mark.parametrize("horizon", [1, 2, 3, 5])
@pytest.mark.parametrize("settings", [{}, {"noise": 0, "diversity": 0.0}])
def test_forward_against_plain_loops(horizon, settings):
    made = network(horizon=horizon, **settings).double()
    made.mean += 0.5
    made.scale *= 1.7
    initial, goal = drawn(2, DIM).double(), drawn(2, DIM, seed=1).double()
    noise = drawn(2, made.config.noise, seed=2).double()
    outputs = made(made.encode(initial, goal), noise)
    for row in range(2):
        logits, states = slow(made, initial[row], goal[row], noise[row])
        # the outputs are single precision
        np.testing.assert_allclose(outputs.logits[row].tolist(), logits, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(outputs.states[row].tolist(), states, rtol=1e-5, atol=1e-5)


def test_published_sizes():
    """Generator and critic on CrossTask: 105 actions and a start class, rows of 512 + 128."""
    sizes = {"observation_dim": 3 * (512 + 128), "actions": 105 + 1, "text_dim": 512}
    made = P3ivNetwork(P3ivConfig(), replace(SHAPE, **sizes))
    made.add_critic()
    assert made.critic is not None
    critic = count_parameters(made.critic)
    generator = count_parameters(made) - critic
    dead = 2 * 4 * (128 * 128 + 128)  # second projections of self-attention, never used
    assert [round(size / 1e6, 2) for size in (generator, generator + dead, critic)] == [
        0.83,
        0.96,
        0.59,
    ]


@torch.no_grad()
def test_emissions_count_the_likeliest_action_of_each_noise():
    made = network()
    initial, goal = drawn(3, DIM), drawn(3, DIM, seed=1)
    emissions = made.emissions(initial, goal)
    assert emissions.dtype == torch.float64
    for row in range(3):
        counts, sums = np.zeros((3, ACTIONS)), np.zeros((3, ACTIONS))
        for noise in made.noises:
            encoded = made.encode(initial[row, None], goal[row, None])
            logits = made(encoded, noise[None]).logits[0].double()
            for step in range(3):
                counts[step, int(logits[step].argmax())] += 1
                sums[step] += logits[step].softmax(dim=0).numpy()
        expected = (counts + sums / 9) / 10
        np.testing.assert_allclose(emissions[row].exp(), expected, rtol=1e-5)
    fewer = made.emissions(initial, goal, 4).exp() * 5
    assert torch.equal(fewer.floor().sum(dim=2), torch.full((3, 3), 4.0, dtype=torch.float64))


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [{"samples": 1}, {"noise": 0, "diversity": 0.0}, {"noise": 0, "diversity": 0.0, "samples": 1}],
)
def test_a_single_pass_is_taken_as_it_is(settings):
    made = network(**settings)
    initial, goal = drawn(3, DIM), drawn(3, DIM, seed=1)
    logits = made(made.encode(initial, goal), made.noises[:1].expand(3, -1)).logits
    torch.testing.assert_close(
        made.emissions(initial, goal), logits.double().log_softmax(dim=2), rtol=1e-6, atol=1e-6
    )


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"noise": 0, "diversity": 0.0}, {"samples": 1}])
def test_dropout_in_planning_is_the_same_for_every_query(settings):
    made = network(test_dropout=True, **settings)
    initial, goal = drawn(3, DIM), drawn(3, DIM, seed=1)
    emissions = made.emissions(initial, goal)
    assert torch.equal(emissions, made.emissions(initial, goal))
    assert torch.equal(emissions[2:], made.emissions(initial[2:], goal[2:]))
    assert not torch.allclose(emissions, network(**settings).emissions(initial, goal))


@torch.no_grad()
def test_critic_against_plain_loops():
    critic = Critic(states=3, embedding=2, action_count=ACTIONS, rate=0.1).double()
    stirred(critic, 1.0)
    states = drawn(2, 3, 3, seed=50).double()
    actions = drawn(2, 3, ACTIONS, seed=51).double().softmax(dim=2)

    def linear(layer, x):
        return 0.1 * (layer.weight.numpy() @ x + layer.bias.numpy())

    for row in range(2):
        steps = []
        for step in range(3):
            embedded = 0.1 * critic.embedding.weight.numpy() @ actions[row, step].numpy()
            x = np.append(states[row, step].numpy(), embedded)
            for layer in critic.steps:
                x = np.maximum(linear(layer, x), 0)
            steps.append(x)
        x = np.mean(steps, axis=0)
        for layer in critic.plan[:2]:
            x = np.maximum(linear(layer, x), 0)
        (expected,) = linear(critic.plan[2], x)
        assert float(critic(states, actions)[row]) == pytest.approx(expected, rel=1e-5)


def test_the_critic_moves_at_its_own_rate():
    """A step of AdamW moves what the critic multiplies by `rate` times the step size."""
    made = network(critic=True, adversarial=0.1, critic_rate=0.01)
    critic = made.critic
    before = [0.01 * parameter.detach().clone() for parameter in critic.parameters()]
    optimiser = torch.optim.AdamW(critic.parameters(), lr=0.1, weight_decay=0.0)
    critic(drawn(2, 3, 6), drawn(2, 3, ACTIONS, seed=1).softmax(dim=2)).sum().backward()
    optimiser.step()
    moved = [
        float((0.01 * parameter.detach() - start).abs().max())
        for parameter, start in zip(critic.parameters(), before, strict=True)
    ]
    assert max(moved) == pytest.approx(0.01 * 0.1, rel=1e-2)
