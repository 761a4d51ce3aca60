from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.diffusion.method import DiffusionConfig
from cefito.planners.diffusion.network import ColumnBlock, DiffusionNetwork, Layout
from cefito.runtime import generator_for
from drawn import drawn, stirred

ACTIONS, DIM = 5, 4


def twice(values: torch.Tensor) -> torch.Tensor:
    return 2 * values


def layout(horizon: int = 4, **changes: Any) -> Layout:
    """Tasks, then a block with a number for every row, then actions and observations."""
    task = ColumnBlock(3, lambda tasks: F.one_hot(tasks, 3)[:, None])
    blocks = (task, ColumnBlock(2, twice))
    shape = Shape(observation_dim=DIM, tasks=3, actions=ACTIONS, horizon=horizon)
    values: dict[str, Any] = {"before": blocks, **changes}
    return Layout(shape=shape, **values)


def known(horizon: int = 4, seed: int = 0) -> tuple[torch.Tensor, ...]:
    return (
        torch.tensor([2, 0]),
        drawn(2, horizon, 2, seed=seed),
        drawn(2, DIM, seed=seed + 1),
        drawn(2, DIM, seed=seed + 2),
    )


@given(st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 100))
def test_projection_against_a_slow_loop(horizon, ends_only, masked, seed):
    tasks, numbers, initial, goal = parts = known(horizon, seed)
    allowed = torch.rand(2, 1, ACTIONS, generator=generator_for("cpu", seed, 9)) < 0.5
    project = layout(horizon, ends_only=ends_only).projection(
        *parts, allowed=allowed if masked else None
    )
    matrix = drawn(2, horizon, 3 + 2 + ACTIONS + DIM, seed=seed + 3)
    result = project(matrix)
    for plan in range(2):
        for row in range(horizon):
            at_end = row in (0, horizon - 1)
            expected = [float(task == tasks[plan]) for task in range(3)]
            expected += [2 * float(number) for number in numbers[plan, row]]
            for action in range(ACTIONS):
                opened = (at_end or not ends_only) and (allowed[plan, 0, action] or not masked)
                expected.append(float(matrix[plan, row, 5 + action]) if opened else 0.0)
            seen = goal[plan] if row == horizon - 1 else initial[plan] if row == 0 else [0.0] * DIM
            expected += [float(value) for value in seen]
            np.testing.assert_array_equal(result[plan, row].numpy(), np.array(expected, np.float32))
    assert torch.equal(project(result), result)


def network(**changes: Any) -> DiffusionNetwork:
    made = DiffusionNetwork(
        config=DiffusionConfig(widths=(8, 16), steps=20, sampling=5), layout=layout(**changes)
    )
    made.reset(generator_for("cpu", 1))
    return stirred(made)
