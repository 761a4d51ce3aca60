import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.mtid.latents import Interpolation, LatentAttention
from cefito.planners.mtid.network import MtidNetwork, gradient_weights, task_actions
from cefito.planners.mtid.planner import MtidPlanner
from cefito.planners.mtid.settings import MtidClassifierConfig, MtidConfig
from cefito.planners.mtid.tasks import MtidTaskNetwork
from cefito.planners.settings import load_config
from cefito.runtime import generator_for
from drawn import drawn, stirred

TASKS, ACTIONS, DIM = 3, 5, 8


def network(
    *, horizon: int = 3, widths: tuple[int, ...] = (8, 16), seed: int = 0, **settings: object
) -> MtidNetwork:
    sizes = {"widths": widths, "steps": 20, "sampling": 5, "layers": 2, "feedforward": 12}
    made = MtidNetwork(
        MtidConfig(**{**sizes, **settings}),
        Shape(observation_dim=DIM, tasks=TASKS, actions=ACTIONS, horizon=horizon),
    )
    made.reset(generator_for("cpu", seed, 1))
    return stirred(made)


def condition(batch: int = 2, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tasks = torch.randint(TASKS, (batch,), generator=generator_for("cpu", seed, 9))
    return tasks, drawn(batch, DIM, seed=seed), drawn(batch, DIM, seed=seed + 1)


# sizes


@pytest.mark.parametrize(
    ("dataset", "actions", "tasks", "millions"),
    [("crosstask", 105, 18, 219.0), ("coin", 778, 180, 251.5), ("niv", 48, 5, 171.6)],
)
def test_published_sizes(dataset, actions, tasks, millions):
    settings = load_config("paper", method="mtid", dataset=dataset).settings
    shape = Shape(observation_dim=1536, tasks=tasks, actions=actions, horizon=3)
    sizes = MtidPlanner.sizes(settings, shape)
    assert sizes["MTID network"] == pytest.approx(millions * 1e6, abs=5e4)
    if dataset == "crosstask":
        assert sizes["MTID task classifier"] == pytest.approx(28.4e6, abs=5e4)


def test_published_values_by_data_set():
    for dataset, steps, layers, encodings, rate in (
        ("crosstask", 250, 5, 2, 5e-4),
        ("coin", 300, 7, 2, 1e-5),
        ("niv", 50, 2, 3, 3e-4),
    ):
        config = load_config("paper", method="mtid", dataset=dataset).settings.mtid
        assert (config.steps, config.layers, config.encodings) == (steps, layers, encodings)
        assert config.training.optimiser.learning_rate == rate
        small = load_config("small", method="mtid", dataset=dataset).settings.mtid
        assert (small.steps, small.layers, small.encodings) == (250, 1, 2)
        assert small.training.optimiser.learning_rate == 8.5e-4


# weights of rows


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [
        (1, [6]),
        (2, [6, 6]),
        (3, [6, 1, 6]),
        (4, [6, 1, 1, 6]),
        (5, [6, 3.5, 1, 3.5, 6]),
        (6, [6, 3.5, 1, 1, 3.5, 6]),
    ],
)
def test_weights_fall_from_the_ends_to_the_middle(horizon, expected):
    assert gradient_weights(horizon, 6.0).tolist() == expected
    assert gradient_weights(horizon, 1.0).tolist() == [1] * horizon


# latents, against slow loops


def normed(x: np.ndarray, layer: torch.nn.LayerNorm) -> np.ndarray:
    scaled = (x - x.mean()) / math.sqrt(x.var() + layer.eps)
    return scaled * layer.weight.detach().numpy() + layer.bias.detach().numpy()


def linear(x: np.ndarray, layer: torch.nn.Linear) -> np.ndarray:
    return layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()


def slow_attention(
    asking: list[np.ndarray], keys: list[np.ndarray], values: list[np.ndarray], heads: int
) -> list[np.ndarray]:
    """What each asking vector is told, head by head."""
    part, told = len(asking[0]) // heads, []
    for one in asking:
        answer = np.zeros(len(one))
        for head in range(heads):
            own = slice(head * part, (head + 1) * part)
            weights = [math.exp(one[own] @ key[own] / math.sqrt(part)) for key in keys]
            for weight, value in zip(weights, values, strict=True):
                answer[own] += weight / sum(weights) * value[own]
        told.append(answer)
    return told


@pytest.mark.parametrize("encodings", [2, 3, 4])
def test_interpolation_against_a_slow_loop(encodings):
    module = Interpolation(
        dim=DIM, count=5, encodings=encodings, layers=2, heads=4, feedforward=12, dropout=0.5
    )
    module.reset(generator_for("cpu", 0))
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
        for place in range(5):
            logit = float((module.share.weight[place, 0] + module.share.bias[place]).detach())
            share = 1 / (1 + math.exp(-logit))
            mixed.append((1 - share) * ends[0] + share * ends[1])
        tokens = mixed
        for layer in module.layers:
            assert layer.heads == 4
            made = [linear(token, layer.qkv) for token in tokens]
            parts = [[one[at * DIM : (at + 1) * DIM] for one in made] for at in range(3)]
            told = slow_attention(*parts, heads=4)
            tokens = [
                normed(token + linear(one, layer.proj), layer.norm1)
                for token, one in zip(tokens, told, strict=True)
            ]
            tokens = [
                normed(
                    token + linear(np.maximum(linear(token, layer.fc1), 0), layer.fc2), layer.norm2
                )
                for token in tokens
            ]
        for place in range(5):
            np.testing.assert_allclose(result[query, place], mixed[place] + tokens[place])


def test_attention_to_a_latent_against_a_slow_loop():
    """Full attention of four heads over the one key there is."""
    module = stirred(LatentAttention(16, DIM)).double()
    x, latent = drawn(2, 16, 3).double(), drawn(2, DIM, seed=1).double()
    result = module(x, latent).detach()
    for query in range(2):
        told = linear(latent[query].numpy(), module.latent)
        for place in range(3):
            own = x[query, :, place].numpy()
            (answer,) = slow_attention(
                [linear(own, module.query)],
                [linear(told, module.key)],
                [linear(told, module.value)],
                heads=4,
            )
            attended = own + linear(answer, module.out)
            hidden = linear(normed(attended, module.norm2), module.fc1)
            hidden = hidden * np.tanh(np.log1p(np.exp(hidden)))  # Mish
            expected = own + normed(attended, module.norm1) + linear(hidden, module.fc2)
            np.testing.assert_allclose(result[query, :, place], expected)


def test_heads_divide_the_features_of_an_observation():
    sizes = {"count": 2, "encodings": 2, "layers": 1, "feedforward": 4, "dropout": 0.0}
    for dim, heads in ((12, 6), (7, 7), (13, 1), (1, 1), (1536, 8)):
        with torch.device("meta"):
            (layer,) = Interpolation(dim=dim, heads=8, **sizes).layers
        assert layer.heads == heads


# the network


@pytest.mark.parametrize(("widths", "horizon"), [((8,), 1), ((8, 16), 2), ((8, 16, 24), 4)])
def test_a_latent_for_each_residual_block(widths, horizon):
    made = network(widths=widths, horizon=horizon)
    latents = made.latents(made.projection(*condition()))
    assert latents.shape == (2, 4 * len(widths), DIM)
    blocks = [module for module in made.modules() if isinstance(module, LatentAttention)]
    assert len(blocks) == 4 * len(widths)
    assert made.scores(*condition()).shape == (2, horizon, ACTIONS)


def test_all_that_acts_is_learned():
    made = network(encodings=3)
    parts = condition()
    project = made.projection(*parts)
    matrix = project(drawn(2, 3, TASKS + ACTIONS + DIM))
    made(matrix, torch.tensor([1, 7]), made.latents(project)).square().sum().backward()
    idle = {
        name.rpartition(".")[0].rpartition(".")[2]
        for name, parameter in made.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    }
    assert idle == {"query", "key"}  # a single key; the rest of attention is linear in its value
    for encoder in made.interpolation.encoders:
        assert not encoder.weight.grad[:, :, [0, 2]].any()
        assert encoder.weight.grad[:, :, 1].any()


def test_latents_are_dropped_out_in_training_alone():
    made, parts = network(latent_dropout=0.5), condition()
    project = made.projection(*parts)
    torch.testing.assert_close(made.latents(project), made.latents(project), rtol=0, atol=0)
    one, same, other = (
        made.latents(project, generator=generator_for("cpu", seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_without_interpolation_there_is_the_plain_network():
    made, parts = network(interpolation=False), condition()
    assert made.latents(made.projection(*parts)) is None
    assert not [name for name in made.state_dict() if "interpolation" in name or "inside" in name]
    names = {name for name in network().state_dict() if "interpolation" in name or "inside" in name}
    assert set(network().state_dict()) - names == set(made.state_dict())


# the mask


def test_actions_of_tasks():
    windows = np.array([[0, 1, 0], [1, 2, 1], [4, 4, 4]])
    known = task_actions(np.array([0, 0, 2]), windows, 3, 5)
    assert known.dtype == torch.bool
    assert [row.nonzero()[:, 0].tolist() for row in known] == [[0, 1, 2], [0, 1, 2, 3, 4], [4]]


def test_masked_plans_keep_to_the_actions_of_their_task():
    made = network(mask=True)
    made.task_actions.copy_(
        torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
    )
    _, initial, goal = condition(3)
    tasks = torch.tensor([0, 1, 2])
    scores = made.scores(tasks, initial, goal)
    for row in range(3):
        assert torch.equal(scores[row].isfinite(), made.task_actions[row].expand(3, -1))
    free = network()
    free.load_state_dict({k: v for k, v in made.state_dict().items() if k != "task_actions"})
    torch.testing.assert_close(
        free.scores(tasks, initial, goal)[2], scores[2], rtol=1e-4, atol=1e-4
    )


# the task classifier


def test_task_classifier_averages_the_observations():
    config = MtidClassifierConfig(width=16, heads=4, feedforward=12, hidden=8)
    shape = Shape(observation_dim=DIM, tasks=TASKS, actions=ACTIONS, horizon=3)
    made = MtidTaskNetwork(config, shape)
    made.reset(generator_for("cpu", 0))
    stirred(made)
    _, initial, goal = condition()
    x = F.relu(made.embed(torch.stack([initial, goal], dim=1)))
    for layer in made.layers:
        x = layer(x, lambda part: part)
    x = F.layer_norm((x[:, 0] + x[:, 1]) / 2, (16,), made.norm.weight, made.norm.bias)
    expected = made.fc3(F.relu(made.fc2(F.relu(made.fc1(x)))))
    torch.testing.assert_close(made(initial, goal), expected)
    torch.testing.assert_close(made(goal, initial), made(initial, goal))


# what cannot be


def test_settings_that_cannot_be():
    with pytest.raises(ValidationError, match="10 cannot be divided among 4 heads"):
        MtidClassifierConfig(width=10)
    with pytest.raises(ValidationError, match="at most 64 GiB"):
        MtidConfig(widths=(80_000,))
