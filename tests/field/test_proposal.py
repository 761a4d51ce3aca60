import numpy as np
import pytest
import torch

from cefito.field.predictor import Dropout
from cefito.field.proposal import ProposalNetwork
from cefito.field.settings import ProposalConfig

E, T, K = 9, 3, 5


def make(seed: int = 0, **settings: object) -> ProposalNetwork:
    """A network with random weights and biases."""
    config = ProposalConfig(**{"hidden": (7, 6), "action_dim": 4, **settings})
    network = ProposalNetwork(config=config, observation_dim=E, action_count=K, horizon=T)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network


def observations(batch: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, E, generator=generator), torch.randn(batch, E, generator=generator)


def test_shapes():
    assert make()(*observations()).shape == (5, T, K)
    assert make()(*observations(0)).shape == (0, T, K)
    assert {name: tuple(tensor.shape) for name, tensor in make().state_dict().items()} == {
        "fc1.weight": (7, 18),
        "fc1.bias": (7,),
        "fc2.weight": (6, 7),
        "fc2.bias": (6,),
        "fc3.weight": (12, 6),
        "linear.weight": (12, 18),
        "action_vectors": (5, 4),
        "bias": (3, 5),
        "mean": (9,),
    }


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_logits_by_hand(normalise, centre):
    network = make(normalise=normalise, centre=centre)
    network.mean.copy_(torch.arange(E))
    weights = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    logits = network(*observations()).detach().numpy()
    for row in range(5):
        parts = []
        for observation in observations():
            part = observation[row].double().numpy() - (weights["mean"] if centre else 0)
            parts.append((part - part.mean()) / np.sqrt(part.var() + 1e-6) if normalise else part)
        x = np.concatenate(parts)
        hidden = np.maximum(weights["fc1.weight"] @ x + weights["fc1.bias"], 0)
        hidden = np.maximum(weights["fc2.weight"] @ hidden + weights["fc2.bias"], 0)
        queries = (weights["fc3.weight"] @ hidden + weights["linear.weight"] @ x).reshape(T, -1)
        for step in range(T):
            for action in range(K):
                expected = (
                    queries[step] @ weights["action_vectors"][action]
                    + weights["bias"][step, action]
                )
                assert logits[row, step, action] == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_reset_depends_on_the_generator_alone():
    one, other = make(1), make(2)
    for network in (one, other):
        network.reset(torch.Generator().manual_seed(5))
    assert all(
        torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items()
    )
    other.reset(torch.Generator().manual_seed(6))
    assert not torch.equal(one.fc1.weight, other.fc1.weight)
    assert not torch.equal(one.action_vectors, other.action_vectors)


def test_dropout_is_repeated_by_its_generator():
    network = make(dropout=0.5)
    plain = network(*observations())
    one, other = (
        network(*observations(), dropout=Dropout(0.5, torch.Generator().manual_seed(1)))
        for _ in range(2)
    )
    assert torch.equal(one, other)
    assert not torch.allclose(one, plain)
