import torch
from torch.nn import functional as F

from cefito.planners.base import Shape
from cefito.planners.pdpp.method import PdppConfig
from cefito.planners.pdpp.planner import PdppNetwork
from cefito.runtime import generator_for
from drawn import drawn

TASKS, ACTIONS, DIM = 3, 5, 4


def network(*, horizon=3, **settings):
    sizes = {"widths": (8, 16), "steps": 20, "sampling": 5}
    shape = Shape(observation_dim=DIM, tasks=TASKS, actions=ACTIONS, horizon=horizon)
    made = PdppNetwork(PdppConfig(**{**sizes, **settings}), shape)
    made.reset(generator_for("cpu", 0, 1))
    return made


def condition(batch=2):
    tasks = torch.randint(TASKS, (batch,), generator=generator_for("cpu", 5, 9))
    return tasks, drawn(batch, DIM, seed=5), drawn(batch, DIM, seed=6)


def test_treatment_of_the_observations():
    tasks, initial, goal = condition()
    plain = network().projection(tasks, initial, goal).given
    assert torch.equal(plain[:, 0, -DIM:], initial)
    centred = network(centre=True)
    centred.mean.fill_(2)
    assert torch.equal(centred.projection(tasks, initial, goal).given[:, -1, -DIM:], goal - 2)
    normal = network(normalise=True).projection(tasks, initial, goal).given[:, [0, -1], -DIM:]
    ends = torch.stack([initial, goal], dim=1)
    torch.testing.assert_close(normal, F.layer_norm(ends, (DIM,)), atol=1e-4, rtol=0)
