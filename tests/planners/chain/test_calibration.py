"""Calibration recovers known temperatures, and is cautious where windows are few."""

from __future__ import annotations

import math

import pytest
import torch

from cefito.planners.chain.calibration import (
    Confidence,
    fit_confidence,
    fit_task_confidence,
    fit_task_power,
    fit_temperature,
    kept_confidence,
)
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.states import TaskStates


def test_temperature_recovers():
    blocks = TaskStates.make([[0, 1, 2], [3, 4]], 5)
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(4000, 2, 5, generator=generator)
    true = SequenceScores(blocks, emissions, torch.zeros(2, 3, 3))
    states, scores = true.best(13)
    drawn = torch.multinomial(
        (scores - true.log_partition()[:, None]).exp(), 1, generator=generator
    )
    drawn = states.gather(1, drawn[:, :, None].expand(-1, -1, 2))[:, 0]
    assert fit_temperature(true.heated(0.5), drawn) == pytest.approx(2.0, rel=0.1)
    assert fit_temperature(true, drawn) == pytest.approx(1.0, rel=0.1)
    assert fit_temperature(true, torch.full_like(drawn, -1)) == 1.0


def best_probability(chain, temperature):
    _, scores = chain.heated(temperature).best(1)
    return float((scores[0, 0] - chain.heated(temperature).log_partition()[0]).exp())


def test_confidence_where_the_truth_is_far_down():
    """Truths that are unlikely however warm the chain is drag only the likelihood's temperature."""
    blocks = TaskStates.make([list(range(50))], 50)
    emissions = torch.full((100, 1, 50), -4.0)
    emissions[:, 0, 0] = 2.0
    emissions[50:, 0, 7] = -40.0
    truth = torch.zeros(100, 1, dtype=torch.long)
    truth[50:] = 7
    chain = SequenceScores(blocks, emissions, torch.zeros(1, 50, 50))
    likely = fit_temperature(chain, truth)
    sure = fit_confidence(chain, truth, truth, videos=10_000)
    assert best_probability(chain, likely) < 0.4
    assert best_probability(chain, sure) == pytest.approx(0.5, abs=0.01)
    few = fit_confidence(chain, truth, truth, videos=1)
    assert sure < few <= likely
    assert abs(math.log(few / likely)) < 0.3  # shrunk: one video says little


def test_power_of_tasks_makes_them_as_sure_as_they_are_right():
    """Two tasks without shared actions: 99 % sure, right in 80 % of the queries."""
    blocks = TaskStates.make([[0], [1]], 2)
    emissions = torch.tensor([math.log(0.99), math.log(0.01)]).expand(100, 1, 2)
    chain = SequenceScores(blocks, emissions, torch.zeros(2, 1, 1))
    tasks = (torch.arange(100) >= 80).long()
    many, few = (
        fit_task_power(chain, tasks[:, None], tasks, videos=videos) for videos in (10_000, 1)
    )
    temperature = math.exp(-0.2) * fit_temperature(chain, tasks[:, None])
    weighed = chain.heated(temperature).weighing_tasks(many)
    assert weighed.log_tasks().exp()[0, 0] == pytest.approx(0.8, abs=0.01)
    assert many < few < 1
    assert fit_task_power(chain, tasks[:0, None], tasks[:0], videos=0) == 1


def test_the_likeliest_task_is_as_sure_as_it_is_right():
    """Unlikely truths, which the likelihood's power heeds, do not matter."""
    shares = torch.tensor([0.9, 0.1 - 1e-9, 1e-9]).expand(100, 3)
    tasks = torch.where(torch.arange(100) < 70, 0, 2)
    many, few = (
        fit_task_confidence(shares.log(), tasks, videos=videos, centre=0.5)
        for videos in (10_000, 1)
    )
    assert (many * shares.log()).softmax(dim=1)[0, 0] == pytest.approx(0.7, abs=0.01)
    assert many < few < 0.55  # one video says little
    assert fit_task_confidence(shares[:0], tasks[:0], videos=0, centre=0.5) == 0.5


@pytest.mark.parametrize(
    ("before", "right", "factor"),
    [((0.6, 0.8), 0.8, 1.25), ((0.6, 0.8), 0.9, 10 / 9), ((0.5, 0.0), 0.8, 1), ((0.1, 1), 1, 2)],
    ids=["surer", "surer and righter", "never right", "far surer"],
)
def test_further_training_keeps_the_ratio_of_sure_to_right(before, right, factor):
    found = kept_confidence(Confidence(*before), lambda own: Confidence(0.75 / own, right))
    assert found == pytest.approx(factor, rel=2e-3)
