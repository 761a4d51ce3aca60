import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.field.classifier import TaskClassifier
from cefito.field.settings import ClassifierConfig
from cefito.training.losses import ClassifierLoss
from cefito.training.settings import ClassifierTrainingConfig

from .made import ROWS, E, generator, windows


def classifier_loss(**training: object) -> ClassifierLoss:
    module = TaskClassifier(
        config=ClassifierConfig(hidden=(6, 9, 6)), observation_dim=E, task_count=2
    )
    module.reset(generator(1))
    config = ClassifierTrainingConfig(**training)
    return ClassifierLoss(module, windows(), windows((3, 4, 5, 5)), config)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_the_task(smoothing):
    made, data = classifier_loss(label_smoothing=smoothing), windows()
    term = made.terms(ROWS, generator())["cross_entropy"]
    logits = made.module(
        torch.from_numpy(data.initial[ROWS]), torch.from_numpy(data.goal[ROWS])
    ).log_softmax(dim=1)
    target = (1 - smoothing) * F.one_hot(torch.from_numpy(data.tasks[ROWS]), 2) + smoothing / 2
    torch.testing.assert_close(term.sum, -(target * logits).sum())
    assert int(term.count) == 3
    assert term.weight == 1


@pytest.mark.parametrize("pairs", ["windows", "all"])
def test_pairs_of_a_video(pairs, monkeypatch):
    """A window's start goes with its end, or with any of the same video that begins no earlier."""
    made, data = classifier_loss(pairs=pairs), windows()
    draw, met = made.observations.draw, set()

    def watched(rows, generator, ends):
        met.update(zip(rows.tolist(), ends.tolist(), strict=True))
        return draw(rows, generator, ends)

    monkeypatch.setattr(made.observations, "draw", watched)
    for seed in range(40):
        made.terms(torch.arange(6), generator(seed))
    assert met == {
        (first, last)
        for first in range(6)
        for last in range(first, 6 if pairs == "all" else first + 1)
        if data.video[first] == data.video[last]
    }


@torch.no_grad()
def test_scores_of_the_classifier():
    made = classifier_loss()
    scores = made.validate()
    assert list(scores) == ["task_accuracy", "log_likelihood"]
    data = windows((3, 4, 5, 5))
    chance = (
        made.module(torch.from_numpy(data.initial), torch.from_numpy(data.goal))
        .softmax(dim=1)
        .numpy()
    )
    assert scores["task_accuracy"] == 100 * (chance.argmax(axis=1) == data.tasks).mean()
    assert scores["log_likelihood"] == pytest.approx(
        np.log(chance[np.arange(4), data.tasks]).mean(), rel=1e-5
    )
    made.module.fc4.weight.zero_()
    made.module.fc4.bias.copy_(torch.tensor([0.0, 30.0]))
    assert made.validate()["task_accuracy"] == 75  # videos 3, 5, 5 are of task 1
