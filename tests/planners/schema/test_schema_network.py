"""SCHEMA's network against slow loops, written from its tensors alone."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.methods import load_config
from cefito.planners.schema.method import SchemaConfig
from cefito.planners.schema.planner import SchemaNetwork, SchemaPlanner
from cefito.runtime import generator_for
from drawn import drawn, stirred
from planners.slow_layers import added, attention, linear, norm, position

SMALL = {"hidden": 12, "width": 8, "heads": 2, "feedforward": 10, "layers": 2}
E, C, K, T, W = 7, 3, 5, 3, 4


def network_of(*, horizon=T, kind="file.npy", **settings):
    config = SchemaConfig(**{**SMALL, "descriptions": kind, **settings})
    width = 0 if kind == "observations" else W
    shape = Shape(observation_dim=E, tasks=C, actions=K, horizon=horizon, text_dim=width)
    network = SchemaNetwork(config, shape)
    network.reset(generator_for("cpu", 0))
    for name, buffer in network.named_buffers():
        if name in ("mean", "descriptions"):
            buffer += 0.5 * drawn(*buffer.shape, seed=1)
    return stirred(network).eval()


def decoded(tokens, memory, decoder):
    """Tokens of one query through a decoder, with a memory of its own."""
    for layer in decoder.layers:
        seen = attention(tokens, tokens, layer.among)
        tokens = added(tokens, [norm(x, layer.among.norm) for x in seen], layer.norm_among)
        if memory is not None:
            seen = attention(tokens, memory, layer.crossing)
            tokens = added(
                tokens, [norm(x, layer.crossing.norm) for x in seen], layer.norm_crossing
            )
        mixed = [linear(F.gelu(linear(x, layer.fc1)), layer.fc2) for x in tokens]
        tokens = added(tokens, mixed, layer.norm)
    return tokens


def slow(network, initial, goal, task=None):
    """Logits of actions and tasks, encoded ends and decoded states of one query."""
    config, horizon = network.config, network.horizon
    ends = []
    for x in (initial, goal):
        if config.centre:
            x = x - network.mean
        if config.normalise:
            x = (x - x.mean()) / (x.var(unbiased=False) + 1e-6).sqrt()
        ends.append(linear(linear(x, network.encoder[0]), network.encoder[1]))
    memory = None
    if network.description is not None:
        memory = [
            linear(row, network.description) for action in network.descriptions for row in action
        ]
    tasks = linear(F.relu(linear(torch.cat(ends), network.task1)), network.task2)
    width = config.width
    first, last = (linear(end, network.ends) for end in ends)
    queries = [first, *[torch.zeros(width)] * (horizon - 1), last]
    told = linear(tasks, network.told) if network.told is not None else torch.zeros(width)
    queries = [query + position(place, width) + told for place, query in enumerate(queries)]
    between = [
        linear(x, network.between) for x in decoded(queries, memory, network.state_decoder)[1:-1]
    ]
    states = [ends[0], *between, ends[1]]
    of_task = network.task.weight[int(tasks.argmax()) if task is None else task]
    tokens = [
        position(place, width) + of_task + (0 if place % 2 else states[place // 2])
        for place in range(2 * horizon + 1)
    ]
    slots = decoded(tokens, memory, network.action_decoder)[1::2]
    actions = [linear(F.relu(linear(slot, network.action1)), network.action2) for slot in slots]
    return torch.stack(actions), tasks, torch.stack(ends), between


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"centre": True, "normalise": True, "kind": "observations"},
        {"state_task": False, "layers": 1},
        {"horizon": 1},
    ],
)
def test_forward_pass_against_slow_loops(settings):
    network = network_of(**settings)
    initial, goal, tasks = drawn(3, E), drawn(3, E, seed=3), torch.tensor([2, 0, 1])
    for given in (None, tasks):
        states = network.encode(initial, goal)
        outputs = network.decode(states, given, network.memory(), None)
        assert outputs.actions.shape == (3, network.horizon, K)
        for row in range(3):
            task = None if given is None else int(given[row])
            *expected, between = slow(network, initial[row], goal[row], task)
            expected.append(torch.stack(between) if between else outputs.between[row])
            parts = (outputs.actions, outputs.tasks, states, outputs.between)
            for found, value in zip(parts, expected, strict=True):
                torch.testing.assert_close(found[row], value, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_alignment_by_hand():
    network = network_of()
    initial, goal = drawn(3, E), drawn(3, E, seed=3)
    memory = network.memory()
    logits = network.alignment(network.encode(initial, goal), memory.encoded)
    assert logits.shape == (3, 2, K)
    ends = network.encoder(torch.stack([initial, goal], dim=1))
    for row, end, action in np.ndindex(3, 2, K):
        encoded = network.description(network.descriptions[action, 3 * end : 3 * end + 3])
        cosines = [float(F.cosine_similarity(ends[row, end], one, dim=0)) for one in encoded]
        expected = math.exp(float(network.scale)) * np.mean(cosines)
        assert float(logits[row, end, action]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("dataset", "width", "actions", "tasks", "millions"),
    [
        ("crosstask", 512, 133, 18, 1.675),
        ("coin", 1536, 778, 180, 6.279),
        ("niv", 1536, 48, 5, 6.117),
    ],
)
def test_published_size(dataset, width, actions, tasks, millions):
    """Published, a projection and a factor that nothing reads are counted."""
    settings = load_config("paper", method="schema", dataset=dataset).settings
    shape = Shape(observation_dim=width, tasks=tasks, actions=actions, horizon=3)
    (count,) = SchemaPlanner.sizes(settings, shape).values()
    assert round((count + 128 * 128 + 128 + 1) / 1e6, 3) == millions
