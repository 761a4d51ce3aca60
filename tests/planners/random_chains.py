"""Chains with random weights, and the scores of all their sequences."""

import itertools

import torch

from cefito.planners.chain.method import ChainConfig
from cefito.planners.chain.network import ChainNetwork
from cefito.planners.chain.states import TaskStates


def random_chain(actions, *, width, seed, scale):
    """A chain of three steps of six actions; the scale makes its scores far from even."""
    generator, count = torch.Generator().manual_seed(seed), len(actions)
    network = ChainNetwork(
        config=ChainConfig(hidden=8, width=4, emission=8, ends=0.1),
        states=TaskStates.make(actions, 6),
        observation_dim=width,
        horizon=3,
        transitions=torch.randn(count, 4, 4, generator=generator),
    )
    network.reset(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        network.emission.weight.mul_(scale)
    return network.eval()


def every_score(model, queries, row, actions):
    """Scores of all sequences of all tasks, as (task, actions) → score, one after the other."""
    scores, found = model.scores(queries), {}
    for task, members in enumerate(actions):
        for sequence in itertools.product(members, repeat=3):
            states = scores.states.find(torch.tensor(task), torch.tensor(sequence))
            found[task, sequence] = float(scores.rows([row]).scores(states[None])[0])
    return found
