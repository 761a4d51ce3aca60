"""Words that names of actions share: their weights, and their vectors in training."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from cefito.planners.any_length.method import AnyLengthConfig
from cefito.planners.any_length.network import AnyLengthNetwork
from cefito.planners.chain.method import ChainConfig
from cefito.planners.chain.network import ChainNetwork
from cefito.planners.chain.states import TaskStates, learning_words, shared_words

STATES = TaskStates.make([(0, 1, 2), (1, 3)], 4)
SIZES = {"hidden": 6, "width": 4, "emission": 5, "words": True}


def taxonomy(*names):
    return SimpleNamespace(actions=[SimpleNamespace(name=name) for name in names])


COOKING = taxonomy("cut the onion", "Cut bread", "fry the ONION 2 minutes", "serve")


def drawn(network):
    network.reset(torch.Generator().manual_seed(0))
    return network.eval()


def chain(**more):
    config = ChainConfig(**{**SIZES, **more})
    return drawn(ChainNetwork(config=config, states=STATES, observation_dim=3, horizon=3))


def outputs(network):
    generator = torch.Generator().manual_seed(1)
    initial, goal = (torch.randn(2, 3, generator=generator) for _ in range(2))
    found = network(initial, goal)
    return found.scores.emissions, found.first, found.last


def test_words_that_one_name_alone_has_weigh_nothing():
    found = shared_words([action.name for action in COOKING.actions])
    expected = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 0]])  # cut, onion, the
    torch.testing.assert_close(found, 0.5 * F.normalize(expected.float(), dim=1))


@pytest.mark.parametrize("names", [["one", "two"], ["12", "3"], ["same", "same"], [""]])
def test_names_may_share_nothing_or_everything(names):
    assert not shared_words(names).any()


def test_words_begin_at_zero_and_are_added_to_the_weights_in_the_end():
    network = chain()
    names, before = set(network.state_dict()), outputs(network)
    with learning_words(network, COOKING):
        torch.testing.assert_close(outputs(network), before, rtol=0, atol=0)
        network.words.reset(torch.Generator().manual_seed(2))
        changed = outputs(network)
        sum(part.sum() for part in changed).backward()
        assert network.words.emission.grad.abs().sum() > 0
        assert network.words.ends.grad.abs().sum() > 0
    assert all(not torch.equal(*pair) for pair in zip(before, changed, strict=True))
    torch.testing.assert_close(outputs(network), changed)
    assert set(network.state_dict()) == names


def test_states_share_the_vectors_of_their_words():
    """A state without shared words stays as it is; an action's states change alike."""
    network, other = chain(), chain()
    with learning_words(network, COOKING):
        network.words.reset(torch.Generator().manual_seed(2))
    change = (network.emission.weight - other.emission.weight).unflatten(0, (3, -1))
    assert not change[:, 4].any()  # "serve"
    torch.testing.assert_close(change[:, 1], change[:, 3])  # "Cut bread", of both tasks
    assert change[:, [0, 1, 2]].any(dim=2).all()


def test_resetting_draws_words_after_all_other_weights():
    network, plain = chain(), chain()
    with learning_words(network, COOKING):
        drawn(network)
        words = deepcopy(network.words)
        assert {name for name, _ in words.named_parameters()} == {"emission", "ends"}
        assert words.emission.any()
        assert words.ends.any()
        for name, tensor in plain.state_dict().items():
            torch.testing.assert_close(network.state_dict()[name], tensor, rtol=0, atol=0)


def test_all_lengths_share_words():
    network = drawn(
        AnyLengthNetwork(
            config=AnyLengthConfig(**SIZES),
            states=STATES,
            observation_dim=3,
            lengths=(1, 2),
            timed=False,
        )
    )
    with learning_words(network, COOKING):
        assert [head.words.emission.shape[1] for head in network.heads] == [1, 2]
        assert not any(head.words.emission.any() for head in network.heads)
    assert all(head.words is None for head in network.heads)
