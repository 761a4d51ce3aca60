"""The released training against a slow evaluation of its own, from the tensors by their names."""

import math

import pytest
import torch
from torch.nn import functional as F

from cefito.field import EnergyField
from cefito.planners.settings import load_config
from cefito.training.field_loss import FieldLoss
from cefito.training.negatives import ActionSets, NegativeSampler

from .made import ACTIONS, ONE, ROWS, E, K, T, generator, windows

D, HEADS, DEPTH, TEXT = 24, 3, 2, 5


def norm(x, epsilon):
    return (x - x.mean()) / (x.var(unbiased=False) + epsilon).sqrt()


class SlowReleased:
    """Energies and logits of one sequence at a time, token by token, in float64."""

    def __init__(self, field: EnergyField) -> None:
        self.tensors = {
            name.removeprefix("predictor."): tensor.detach().double().requires_grad_(True)
            for name, tensor in field.named_parameters()
        }
        self.text = field.predictor.action_vectors.double()

    def linear(self, name, x):
        return self.tensors[f"{name}.weight"] @ x + self.tensors[f"{name}.bias"]

    def position(self, place):
        frequencies = [10_000 ** (-index / (D // 2)) for index in range(D // 2)]
        return torch.tensor(
            [math.sin(place * value) for value in frequencies]
            + [math.cos(place * value) for value in frequencies],
            dtype=torch.float64,
        )

    def blocks(self, tokens):
        x = [token + self.position(place) for place, token in enumerate(tokens)]
        for block in range(DEPTH):
            parts = [
                self.linear(f"blocks.{block}.attn.qkv", norm(token, 1e-6)).split(D) for token in x
            ]
            after = []
            for place, token in enumerate(x):
                heads = []
                for head in range(HEADS):
                    own = slice(head * D // HEADS, (head + 1) * D // HEADS)
                    scores = torch.stack(
                        [
                            parts[place][0][own] @ parts[other][1][own] / (D / HEADS) ** 0.5
                            for other in range(place + 1)
                        ]
                    ).softmax(dim=0)
                    heads.append(
                        sum(scores[other] * parts[other][2][own] for other in range(place + 1))
                    )
                mixed = token + self.linear(f"blocks.{block}.attn.proj", torch.cat(heads))
                hidden = self.linear(f"blocks.{block}.mlp.fc1", norm(mixed, 1e-6))
                hidden = F.gelu(hidden, approximate="tanh")
                after.append(mixed + self.linear(f"blocks.{block}.mlp.fc2", hidden))
            x = after
        return x

    def energy_and_reconstruction(self, initial, goal, actions):
        """Energy of a sequence, and the mean cross-entropy of its actions in the second pass."""
        start = self.linear("state_embed", norm(initial.double(), 1e-5))
        tokens = [start]
        for action in actions:
            tokens += [
                self.linear("action_embed", self.text[action]),
                self.tensors["state_mask_token"],
            ]
        latents = self.blocks(tokens)[2::2]
        scale, shift = self.tensors["norm.weight"], self.tensors["norm.bias"]
        predicted = self.linear("state_head", norm(latents[-1], 1e-6) * scale + shift)
        energy = (predicted - norm(goal.double(), 1e-5)).square().mean()
        tokens = [start]
        for latent in latents:
            tokens += [self.tensors["action_mask_token"], latent]
        read = self.blocks(tokens)[1::2]
        losses = [
            -self.linear("action_head", token).log_softmax(dim=0)[action]
            for token, action in zip(read, actions, strict=True)
        ]
        return energy, sum(losses) / len(losses)


def severity(positive, negative, order):
    ours, theirs = set(positive), set(negative)
    differing = sum(a != b for a, b in zip(positive, negative, strict=True)) / len(positive)
    return (1 - order) * len(theirs - ours) / len(theirs) + order * differing


@pytest.mark.parametrize("dataset", ["crosstask", "mine"])
def test_loss_and_gradients_of_the_released_training(dataset):
    config = load_config(
        "released",
        dataset=dataset,
        horizon=T,
        overrides={
            "field.width": D,
            "field.heads": HEADS,
            "field.depth": DEPTH,
            "field.mlp_ratio": 2.0,
            "field.action_encoding": "text",
            "training.negatives.count": 6,
            "training.auxiliary.weight": 0.7,
        },
    ).settings
    vectors = torch.randn(K, TEXT, generator=generator(4))
    field = EnergyField(
        config=config.field, observation_dim=E, action_count=K, horizon=T, action_vectors=vectors
    )
    field.reset(generator(1))
    with torch.no_grad():  # tokens of mask and bias other than zero, and energies far apart
        for parameter in field.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator(2)))
    made = FieldLoss(
        field=field, train=windows(), actions=ACTIONS, config=config.training, score=None
    )
    terms = made.terms(ROWS, generator(), ONE)
    loss = sum(term.weight * term.sum / term.count.clamp_min(1) for term in terms.values())
    loss.backward()

    # the same draws, in the order in which they are drawn: noise, then negatives
    draws, data = generator(), windows()
    observations = []
    for source in (data.initial, data.goal):
        x = torch.from_numpy(source)[ROWS]
        if noise := config.training.augmentation.noise:
            x = x + noise * x.std() * torch.randn(x.shape, generator=draws)
        observations.append(x)
    sampler = NegativeSampler(
        config=config.training.negatives,
        actions=ActionSets.build(ACTIONS),
        action_count=K,
        horizon=T,
    )
    negatives = sampler.sample(made.actions[ROWS], made.tasks[ROWS], draws)
    slow, margin = SlowReleased(field), config.training.loss.margin
    triplets, own, others = [], [], []
    for place, row in enumerate(ROWS.tolist()):
        truth = data.actions[row].tolist()
        initial, goal = (part[place] for part in observations)
        energy, reconstruction = slow.energy_and_reconstruction(initial, goal, truth)
        own.append(reconstruction)
        losses = []
        for sequence in negatives[place].tolist():
            wrong, reconstruction = slow.energy_and_reconstruction(initial, goal, sequence)
            bound = margin.low + (margin.high - margin.low) * severity(
                truth, sequence, margin.order
            )
            triplets.append((energy - wrong + bound).clamp_min(0))
            losses.append(reconstruction)
        others.append(sum(losses) / len(losses))
    violating = max(sum(float(value.detach()) > 0 for value in triplets), 1)
    assert violating < len(triplets)  # the two ways of averaging differ
    expected = sum(triplets) / violating + 0.7 * (sum(own) + sum(others)) / len(own) / 2
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    expected.backward()
    for name, parameter in field.named_parameters():
        theirs = slow.tensors[name.removeprefix("predictor.")].grad
        assert theirs is not None, name
        torch.testing.assert_close(
            parameter.grad.double(), theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max())
        )
