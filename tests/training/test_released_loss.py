"""The released training against a slow evaluation of its own, from the tensors by their names."""

import pytest
import torch
from torch.nn import functional as F

from cefito.field.energy import EnergyField
from cefito.planners.methods import load_config
from cefito.training.field_loss import FieldLoss
from cefito.training.negatives import ActionSets, NegativeSampler
from slow_predictor import SlowPredictor, norm

from .made import ACTIONS, ROWS, E, K, T, generator, windows
from .reference import margin

D, HEADS, TEXT = 24, 3, 5


class SlowReleased(SlowPredictor):
    """Energies and losses of one sequence at a time."""

    def energy_and_reconstruction(self, initial, goal, actions, text):
        """Energy of a sequence, and the mean cross-entropy of its actions in the second pass."""
        initial, goal = norm(initial.double(), 1e-5), norm(goal.double(), 1e-5)
        latents = self.latents(initial, text[actions])
        predicted = self.linear("state_head", self.last_norm(latents[-1]))
        tokens = [self.linear("state_embed", initial)]
        for latent in latents:
            tokens += [self.tensors["action_mask_token"], latent]
        logits = self.linear("action_head", self.blocks(tokens)[1::2])
        return (predicted - goal).square().mean(), F.cross_entropy(logits, torch.tensor(actions))


@pytest.mark.parametrize("dataset", ["crosstask", "mine"])
def test_loss_and_gradients_of_the_released_training(dataset):
    config = load_config(
        "released",
        dataset=dataset,
        horizon=T,
        overrides={
            "field.width": D,
            "field.heads": HEADS,
            "field.depth": 2,
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
        field=field, train=windows(), actions=ACTIONS, config=config.training, score=lambda _: {}
    )
    terms = made.terms(ROWS, generator())
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
    slow, bounds = (
        SlowReleased(dict(field.named_parameters()), heads=HEADS),
        config.training.loss.margin,
    )
    triplets, own, others = [], [], []
    for place, row in enumerate(ROWS.tolist()):
        truth = data.actions[row].tolist()
        initial, goal = (part[place] for part in observations)
        energy, reconstruction = slow.energy_and_reconstruction(initial, goal, truth, vectors)
        own.append(reconstruction)
        losses = []
        for sequence in negatives[place].tolist():
            wrong, reconstruction = slow.energy_and_reconstruction(initial, goal, sequence, vectors)
            bound = margin(truth, sequence, **bounds.model_dump())
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
