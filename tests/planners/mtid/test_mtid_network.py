import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.methods import load_config
from cefito.planners.mtid.method import MtidConfig
from cefito.planners.mtid.planner import Interpolation, LatentAttention, MtidNetwork, MtidPlanner
from cefito.planners.shared.layers import draw_layers, keep
from cefito.runtime import generator_for
from drawn import drawn, stirred
from planners.slow_layers import linear, norm

TASKS, ACTIONS, DIM = 3, 5, 8


def network(*, horizon=3, **settings):
    sizes = {"widths": (8, 16), "steps": 20, "sampling": 5, "layers": 2, "feedforward": 12}
    shape = Shape(observation_dim=DIM, tasks=TASKS, actions=ACTIONS, horizon=horizon)
    made = MtidNetwork(MtidConfig(**{**sizes, **settings}), shape)
    made.reset(generator_for("cpu", 0, 1))
    return stirred(made)


@pytest.mark.parametrize(
    ("dataset", "actions", "tasks", "millions"),
    [("crosstask", 105, 18, 219.0), ("coin", 778, 180, 251.5), ("niv", 48, 5, 171.6)],
)
def test_published_sizes(dataset, actions, tasks, millions):
    settings = load_config("paper", method="mtid", dataset=dataset).settings
    shape = Shape(observation_dim=1536, tasks=tasks, actions=actions, horizon=3)
    sizes = MtidPlanner.sizes(settings, shape)
    assert sizes["MTID network"] == pytest.approx(millions * 1e6, abs=5e4)


@pytest.mark.parametrize("encodings", [2, 3, 4])
def test_interpolation_against_a_slow_loop(encodings):
    sizes = {"widths": (8,), "layers": 2, "heads": 4, "feedforward": 12, "latent_dropout": 0.5}
    module = Interpolation(MtidConfig(encodings=encodings, **sizes), DIM)
    draw_layers(module, generator_for("cpu", 0))
    stirred(module).double()
    initial, goal = drawn(2, DIM, seed=1).double(), drawn(2, DIM, seed=2).double()
    result = module(initial, goal).detach()
    first, between, last = module.encoders
    for query in range(2):
        ends = []
        for x in (initial[query].numpy(), goal[query].numpy()):
            value = x
            for encoder in [first, *[between] * (encodings - 2), last]:
                padded = np.stack([np.zeros(DIM), value, np.zeros(DIM)])  # a single position
                value = encoder.bias.detach().numpy().copy()
                for tap in range(3):
                    value += encoder.weight[:, :, tap].detach().numpy() @ padded[tap]
                value = np.maximum(value, 0)
            ends.append(value)
        mixed = []
        for place in range(4):
            logit = float((module.share.weight[place, 0] + module.share.bias[place]).detach())
            share = 1 / (1 + math.exp(-logit))
            mixed.append((1 - share) * ends[0] + share * ends[1])
        mixed = torch.from_numpy(np.stack(mixed))
        tokens = mixed[None]
        for layer in module.layers:  # test_layers.py compares them with torch
            assert layer.heads == 4
            tokens = layer(tokens, keep)
        torch.testing.assert_close(result[query], mixed + tokens[0])


@torch.no_grad()
def test_attention_to_a_latent_against_a_slow_loop():
    """Over the one key that there is, attention is the value."""
    module = stirred(LatentAttention(16, DIM)).double()
    x, latent = drawn(2, 16, 3).double(), drawn(2, DIM, seed=1).double()
    result = module(x, latent)
    for query in range(2):
        told = linear(linear(linear(latent[query], module.latent), module.value), module.out)
        for place in range(3):
            own = x[query, :, place]
            hidden = F.mish(linear(norm(own + told, module.norm2), module.fc1))
            expected = own + norm(own + told, module.norm1) + linear(hidden, module.fc2)
            torch.testing.assert_close(result[query, :, place], expected)


def test_masked_plans_keep_to_the_actions_of_their_task():
    made = network(mask=True)
    known = [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]
    made.task_actions.copy_(torch.tensor(known, dtype=torch.bool))
    initial, goal = drawn(3, DIM, seed=5), drawn(3, DIM, seed=6)
    tasks = torch.tensor([0, 1, 2])
    scores = made.scores(tasks, initial, goal)
    for row in range(3):
        assert torch.equal(scores[row].isfinite(), made.task_actions[row].expand(3, -1))
    free = network()
    free.load_state_dict({k: v for k, v in made.state_dict().items() if k != "task_actions"})
    unmasked = free.scores(tasks, initial, goal)[2]
    torch.testing.assert_close(unmasked, scores[2], rtol=1e-4, atol=1e-4)
