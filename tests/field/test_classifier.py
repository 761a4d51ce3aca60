import numpy as np
import pytest
import torch

from cefito.field import ClassifierConfig, TaskClassifier
from cefito.field.predictor import Dropout

E, TASKS = 9, 4


def make(seed: int = 0, **settings: object) -> TaskClassifier:
    """A classifier with random weights and biases."""
    classifier = TaskClassifier(
        config=ClassifierConfig(**settings), observation_dim=E, task_count=TASKS
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return classifier


def observations(batch: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, E, generator=generator), torch.randn(batch, E, generator=generator)


def test_layout_of_the_authors_checkpoints():
    classifier = make()
    assert {name: tuple(parameter.shape) for name, parameter in classifier.named_parameters()} == {
        "fc1.weight": (3, 9),
        "fc1.bias": (3,),
        "fc2.weight": (36, 3),
        "fc2.bias": (36,),
        "fc3.weight": (3, 36),
        "fc3.bias": (3,),
        "fc4.weight": (4, 3),
        "fc4.bias": (4,),
    }


def test_widths_can_be_set():
    classifier = make(hidden=(5, 0, 7))
    assert [
        classifier.fc1.out_features,
        classifier.fc2.out_features,
        classifier.fc3.out_features,
    ] == [5, 36, 7]


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_logits_by_hand(normalise, centre):
    """By hand: fc2(fc1(x)) without activation between, ReLU, fc3, ReLU, mean, fc4."""
    classifier = make(normalise=normalise, centre=centre)
    if centre:
        classifier.mean.copy_(torch.arange(E))
    weights = {name: tensor.double().numpy() for name, tensor in classifier.state_dict().items()}
    hidden = []
    for observation in observations():
        x = observation.double().numpy() - weights["mean"]
        if normalise:
            x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
        for layer in ("fc1", "fc2", "fc3"):
            x = x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
            if layer != "fc1":
                x = np.maximum(x, 0)
        hidden.append(x)
    expected = (hidden[0] + hidden[1]) / 2 @ weights["fc4.weight"].T + weights["fc4.bias"]
    np.testing.assert_allclose(
        classifier(*observations()).detach().numpy(), expected, rtol=1e-4, atol=1e-4
    )


def test_reset_depends_on_the_generator_alone():
    one, other = make(1), make(2)
    for classifier in (one, other):
        classifier.reset(torch.Generator().manual_seed(5))
    assert all(
        torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items()
    )
    other.reset(torch.Generator().manual_seed(6))
    assert not torch.equal(one.fc1.weight, other.fc1.weight)


def test_dropout_of_hidden_units():
    classifier = make(dropout=0.5)
    plain = classifier(*observations())
    one, other = (
        classifier(*observations(), dropout=Dropout(0.5, torch.Generator().manual_seed(1)))
        for _ in range(2)
    )
    assert torch.equal(one, other)
    assert not torch.allclose(one, plain)
