"""The task classifier and the proposal network against evaluations by hand."""

import numpy as np
import pytest
import torch

from cefito.field.classifier import ProposalNetwork, TaskClassifier
from cefito.field.settings import ClassifierConfig, ProposalConfig
from drawn import drawn

E, TASKS, T, K = 9, 4, 3, 5


def classifier(seed: int = 0, **settings: object) -> TaskClassifier:
    made = TaskClassifier(config=ClassifierConfig(**settings), observation_dim=E, task_count=TASKS)
    return randomised(made, seed)


def proposal(seed: int = 0, **settings: object) -> ProposalNetwork:
    config = ProposalConfig(**{"hidden": (7, 6), "action_dim": 4, **settings})
    made = ProposalNetwork(config=config, observation_dim=E, action_count=K, horizon=T)
    return randomised(made, seed)


def randomised(module, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def observations(batch: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(drawn(2, batch, E, seed=1))


def shapes(module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def test_layout_of_the_authors_classifier():
    linear = {"fc1": (3, 9), "fc2": (36, 3), "fc3": (3, 36), "fc4": (4, 3)}
    expected: dict[str, tuple[int, ...]] = {
        f"{name}.weight": shape for name, shape in linear.items()
    }
    expected |= {f"{name}.bias": shape[:1] for name, shape in linear.items()}
    assert shapes(classifier()) == expected | {"mean": (9,)}
    wide = classifier(hidden=(5, 0, 7))
    assert [wide.fc1.out_features, wide.fc2.out_features, wide.fc3.out_features] == [5, 36, 7]


def by_hand(module, *, normalise, centre):
    """Weights and observations [5, E], float64; these are centred and normalised where asked."""
    module.mean.copy_(torch.arange(E) if centre else torch.zeros(E))
    weights = {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}
    parts = [part.double().numpy() - weights["mean"] for part in observations()]
    if normalise:
        parts = [
            (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
            for x in parts
        ]
    return weights, parts


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_classifier_logits_by_hand(normalise, centre):
    """By hand: fc2(fc1(x)) without activation between, ReLU, fc3, ReLU, mean, fc4."""
    made = classifier(normalise=normalise, centre=centre)
    weights, parts = by_hand(made, normalise=normalise, centre=centre)
    hidden = []
    for x in parts:
        for layer in ("fc1", "fc2", "fc3"):
            x = x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
            if layer != "fc1":
                x = np.maximum(x, 0)
        hidden.append(x)
    expected = (hidden[0] + hidden[1]) / 2 @ weights["fc4.weight"].T + weights["fc4.bias"]
    found = made(*observations()).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_proposal_logits_by_hand(normalise, centre):
    made = proposal(normalise=normalise, centre=centre)
    weights, parts = by_hand(made, normalise=normalise, centre=centre)
    logits = made(*observations()).detach().numpy()
    for row, x in enumerate(np.concatenate(parts, axis=1)):
        hidden = np.maximum(weights["fc1.weight"] @ x + weights["fc1.bias"], 0)
        hidden = np.maximum(weights["fc2.weight"] @ hidden + weights["fc2.bias"], 0)
        queries = (weights["fc3.weight"] @ hidden + weights["linear.weight"] @ x).reshape(T, -1)
        expected = queries @ weights["action_vectors"].T + weights["bias"]
        np.testing.assert_allclose(logits[row], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("make", [classifier, proposal])
def test_reset_depends_on_the_generator_alone(make):
    one, other = make(1), make(2)
    for module in (one, other):
        module.reset(torch.Generator().manual_seed(5))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    other.reset(torch.Generator().manual_seed(6))
    assert not torch.equal(one.fc1.weight, other.fc1.weight)
