import math

import numpy as np
import pytest
import torch

from cefito.planners.base import Shape
from cefito.planners.diffusion.method import DiffusionConfig
from cefito.planners.diffusion.network import DiffusionNetwork
from cefito.planners.diffusion.planner import DiffusionLoss
from cefito.planners.kepp.method import KeppConfig, KeppSettings, PlanConfig
from cefito.planners.kepp.planner import KeppPlanner, KeppStepNetwork, PlanNetwork, StepModel
from cefito.runtime import generator_for
from drawn import drawn, stirred
from made_windows import taxonomy_of, windows_of

ACTIONS, DIM, STEPS = 3, 2, 20
TAXONOMY = taxonomy_of(1, 8)
TINY = {"widths": (8, 16), "steps": STEPS, "sampling": 4}


def made(kind, horizon=3, **settings):
    """A network with all weights away from their special beginnings."""
    config = KeppConfig(step=DiffusionConfig(**TINY), plan=PlanConfig(**TINY), **settings)
    network = kind(config, shape_of(horizon))
    network.reset(generator_for("cpu", 0))
    network.mean += 0.1 * drawn(DIM, seed=99)
    return stirred(network)


def shape_of(horizon):
    return Shape(observation_dim=DIM, tasks=1, actions=ACTIONS, horizon=horizon)


class Slow:
    """The temporal U-Net without the last connection past it, two levels, by loops over places."""

    def __init__(self, network: DiffusionNetwork) -> None:
        state = network.state_dict()
        self.tensors = {name: tensor.double().numpy() for name, tensor in state.items()}
        self.network = network

    def __call__(self, matrix: np.ndarray, now: int) -> np.ndarray:
        first = self.network.config.widths[0]
        frequency = [10_000 ** -(2 * place / first) for place in range(first // 2)]
        angles = [now * value for value in frequency]
        place = np.array([*map(math.sin, angles), *map(math.cos, angles)])
        time = mish(self.linear("time.2", mish(self.linear("time.0", place))))
        high = self.level("down.0", matrix.T, time)
        low = self.level("down.1", self.convolution("shrink.0", high, 0), time)
        x = self.level("middle", low, time)
        x = self.level("up.0", np.concatenate([x, low]), time)
        weight, grown = self.tensors["unet.grow.0.weight"], np.zeros((x.shape[0], x.shape[1] + 1))
        for place, tap in np.ndindex(x.shape[1], 2):
            grown[:, place + tap] += weight[:, :, tap].T @ x[:, place]
        x = grown + self.tensors["unet.grow.0.bias"][:, None]
        return self.convolution("end.1", self.unit("end.0", x), 0).T

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return self.tensors[f"unet.{name}.weight"] @ x + self.tensors[f"unet.{name}.bias"]

    def convolution(self, name: str, x: np.ndarray, padding: int) -> np.ndarray:
        weight, bias = self.tensors[f"unet.{name}.weight"], self.tensors[f"unet.{name}.bias"]
        taps, length = weight.shape[2], x.shape[1]
        result = np.zeros((len(weight), length + 2 * padding - taps + 1))
        for place in range(result.shape[1]):
            result[:, place] = bias
            for tap in range(taps):
                if 0 <= place + tap - padding < length:
                    result[:, place] += weight[:, :, tap] @ x[:, place + tap - padding]
        return result

    def unit(self, name: str, x: np.ndarray) -> np.ndarray:
        x = self.convolution(f"{name}.convolution", x, 1)
        for first in range(0, len(x), 8):  # eight channels a group
            part = x[first : first + 8]
            x[first : first + 8] = (part - part.mean()) / math.sqrt(part.var() + 1e-5)
        scale, shift = (self.tensors[f"unet.{name}.norm.{part}"] for part in ("weight", "bias"))
        return mish(scale[:, None] * x + shift[:, None])

    def level(self, name: str, x: np.ndarray, time: np.ndarray) -> np.ndarray:
        for block in (f"{name}.blocks.0", f"{name}.blocks.1"):
            between = self.unit(f"{block}.first", x) + self.linear(f"{block}.time", time)[:, None]
            past = f"unet.{block}.past.weight" in self.tensors
            x = self.unit(f"{block}.second", between) + (
                self.convolution(f"{block}.past", x, 0) if past else x
            )
        return x

    def scores(self, given: np.ndarray, actions: slice, rows: list[int]) -> np.ndarray:
        """Sampled actions, given a matrix and the rows of it whose actions are open."""
        signal = self.network.diffusion.signal.numpy()
        x = given.copy()
        x[rows, actions] = self.tensors["noise"][rows]
        for now, after in ((20, 15), (15, 10), (10, 5), (5, 0)):
            clean, here = self(x, now), x.copy()
            x = given.copy()
            for row in rows:
                for column in range(actions.start, actions.stop):
                    noise = (here[row, column] - signal[now] ** 0.5 * clean[row, column]) / (
                        1 - signal[now]
                    ) ** 0.5
                    x[row, column] = (
                        signal[after] ** 0.5 * clean[row, column]
                        + (1 - signal[after]) ** 0.5 * noise
                    )
        return x[:, actions]


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.log1p(np.exp(x)))


def slow_told(walks: list[list[int]]) -> np.ndarray:
    """The block of two walks."""
    told = np.zeros((len(walks[0]), ACTIONS))
    for weight, walk in zip((2 / 3, 1 / 3), walks, strict=True):
        for step, action in enumerate(walk):
            told[step, action] = weight
    return told


def observed(network: DiffusionNetwork, initial: torch.Tensor, goal: torch.Tensor) -> np.ndarray:
    """The observation block of one plan."""
    block = np.zeros((network.horizon, DIM))
    block[0], block[-1] = initial - network.mean, goal - network.mean
    return block


@pytest.mark.parametrize("horizon", [2, 3, 4])
def test_the_step_network_against_a_slow_reference(horizon):
    network, (initial, goal) = made(KeppStepNetwork, horizon), drawn(2, 3, DIM, seed=5)
    scores = network.scores(initial, goal).detach().numpy()
    for row in range(3):
        given = np.zeros((horizon, ACTIONS + DIM))
        given[:, ACTIONS:] = observed(network, initial[row], goal[row])
        expected = Slow(network).scores(given, slice(0, ACTIONS), [0, horizon - 1])
        np.testing.assert_allclose(scores[row], expected, atol=2e-4, rtol=2e-4)
        assert not scores[row, 1:-1].any()


@pytest.mark.parametrize("horizon", [2, 3, 4])
def test_the_plan_network_against_a_slow_reference(horizon):
    network, (initial, goal) = made(PlanNetwork, horizon), drawn(2, 3, DIM, seed=5)
    walks = torch.randint(ACTIONS, (3, 2, horizon), generator=generator_for("cpu", 7))
    scores = network.scores(walks, walks, initial, goal).detach().numpy()
    for row in range(3):
        told = slow_told(walks[row].tolist())
        actions, seen = np.zeros_like(told), observed(network, initial[row], goal[row])
        given = np.concatenate([told, told, actions, seen], axis=1)
        expected = Slow(network).scores(
            given, slice(2 * ACTIONS, 3 * ACTIONS), list(range(horizon))
        )
        np.testing.assert_allclose(scores[row], expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(
    ("actions", "step", "plan"), [(105, 41.8, 42.1), (133, None, 42.2), (778, None, 44.7)]
)
def test_published_sizes(actions, step, plan):
    shape = Shape(observation_dim=1536, tasks=18, actions=actions, horizon=3)
    sizes = KeppPlanner.sizes(KeppSettings(), shape)
    assert step is None or round(sizes[StepModel.title] / 1e6, 1) == step
    assert round(sizes[KeppPlanner.title] / 1e6, 1) == plan


@pytest.mark.parametrize(("ends", "between"), [(10.0, 0.0), (5.0, 1.0)])
def test_losses_against_a_slow_loop(ends, between):
    generator = np.random.default_rng(0)
    actions, observations = (
        generator.integers(0, ACTIONS, (6, 4)),
        generator.normal(size=(2, 6, DIM)),
    )
    train = windows_of(actions, observations, TAXONOMY)
    walks = generator.integers(0, ACTIONS, (6, 2, 4))
    network = made(PlanNetwork if between else KeppStepNetwork, 4)
    loss = DiffusionLoss(network, train, train, *((walks, walks) if between else ()))
    rows = torch.tensor([3, 0, 5])
    term = loss.terms(rows, generator_for("cpu", 1))["squared_error"]
    draws = generator_for("cpu", 1)
    times = torch.randint(1, STEPS + 1, (3,), generator=draws).tolist()
    noise = torch.randn(3, 4, ACTIONS, generator=draws).numpy()
    slow, total = Slow(network), 0.0
    for place, row in enumerate(rows.tolist()):
        signal = float(network.diffusion.signal[times[place]])
        clean = np.eye(ACTIONS)[train.actions[row]]
        noised = signal**0.5 * clean + (1 - signal) ** 0.5 * noise[place]
        if not between:
            noised[1:-1] = 0
        told = [slow_told(walks[row].tolist())] * 2 if between else []
        seen = observed(network, *(torch.from_numpy(x[row]) for x in (train.initial, train.goal)))
        restored = slow(np.concatenate([*told, noised, seen], axis=1), times[place])
        first = len(told) * ACTIONS
        for step in range(4):
            error = ((restored[step, first : first + ACTIONS] - clean[step]) ** 2).sum()
            total += error * (ends if step in (0, 3) else between)
    assert float(term.sum.detach()) == pytest.approx(total, rel=1e-3)
    assert int(term.count) == 3
