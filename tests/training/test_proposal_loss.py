import numpy as np
import pytest
import torch

from cefito.data.windows import Windows
from cefito.field.classifier import ProposalNetwork
from cefito.field.settings import ProposalConfig
from cefito.training.losses import ProposalLoss
from cefito.training.settings import AugmentationConfig, TrainingConfig

from .made import E, K, T, generator
from .made import windows as made_windows


def windows(count: int = 6, seed: int = 0) -> Windows:
    return made_windows(tuple(range(count)), seed)


def proposal_loss(*, dropout: float = 0.0, noise: float = 0.0, swap: float = 0.0) -> ProposalLoss:
    config = ProposalConfig(hidden=(6, 5), action_dim=4, dropout=dropout)
    network = ProposalNetwork(config=config, observation_dim=E, action_count=K, horizon=T)
    network.reset(generator(1))
    with torch.no_grad():
        network.bias.copy_(torch.randn(network.bias.shape, generator=generator(2)))
    training = TrainingConfig(augmentation=AugmentationConfig(noise=noise, swap=swap))
    return ProposalLoss(network, windows(), windows(4, seed=1), training)


@torch.no_grad()
def slow_steps(made: ProposalLoss, data: Windows) -> tuple[list[float], list[bool]]:
    """Log-likelihood of each step's action; whether it is the likeliest."""
    likelihoods, right = [], []
    for row in range(len(data)):
        one = (torch.from_numpy(part[[row]]) for part in (data.initial, data.goal))
        logits = made.module(*one)[0].double()
        for step, true in enumerate(data.actions[row].tolist()):
            weights = np.exp(logits[step].numpy())
            right.append(weights.argmax() == true)
            likelihoods.append(float(np.log(weights[true] / weights.sum())))
    return likelihoods, right


@torch.no_grad()
def test_terms_and_scores_against_slow_loops():
    made = proposal_loss()
    assert len(made) == 6
    term = made.terms(torch.arange(6), generator())["cross_entropy"]
    likelihoods, _ = slow_steps(made, windows())
    assert (int(term.count), term.weight) == (18, 1)
    assert float(term.sum) == pytest.approx(-sum(likelihoods), rel=1e-5)
    likelihoods, right = slow_steps(made, windows(4, seed=1))
    assert made.validate() == {
        "step_log_likelihood": pytest.approx(np.mean(likelihoods), rel=1e-5),
        "step_accuracy": pytest.approx(100 * np.mean(right)),
    }
