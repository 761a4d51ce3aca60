"""Trained chains: members, calibration, files; the network's independence from the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cefito.data.windows import action_space, joined_windows
from cefito.errors import RunError
from cefito.executors import SerialExecutor
from cefito.planners.chain.calibration import (
    Confidence,
    fit_confidence,
    fit_task_confidence,
    fit_task_power,
)
from cefito.planners.chain.inference import average
from cefito.planners.chain.method import ChainConfig
from cefito.planners.chain.model import ChainModel, task_costs
from cefito.planners.chain.network import ChainLoss, ChainNetwork
from cefito.planners.chain.states import TaskStates
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.training.trainer import TrainingContext
from drawn import drawn
from learned import same_weights

KNOBS = {"train": 36, "val": 12, "test": 12, "dim": 8}
TINY = {
    "chain.hidden": 16,
    "chain.width": 8,
    "chain.emission": 16,
    "chain.members": 2,
    "chain_training.optimiser.epochs": 3,
}


def chain_settings(**more):
    return load_config("small", method="chain", overrides={**TINY, **more}).settings


def fit(splits, *, seed=0, context=TrainingContext(), **more):
    windows, space = (splits["train"], splits["val"]), action_space(splits["train"], "training")
    given = {"settings": chain_settings(**more), "seed": seed, "context": context}
    return ChainModel.fit(*windows, space=space, **given)


@pytest.fixture(scope="module")
def model(splits):
    return fit(splits)[0]


@pytest.fixture
def queries(splits):
    return Queries.from_windows(splits["test"])


def same(left, right):
    pairs = zip(left.networks, right.networks, strict=True)
    return all(same_weights(*pair) for pair in pairs)


def test_several_workers_train_members_apart(model, splits, monkeypatch):
    """As jobs of processes, here one after the other."""
    workers = []
    monkeypatch.setattr(
        "cefito.planners.network.ProcessExecutor",
        lambda count: workers.append(count) or SerialExecutor(),
    )
    for worth, asked in ((10**9, []), (0, [2])):
        monkeypatch.setattr("cefito.planners.network.WORTH_A_PROCESS", worth)
        apart, _ = fit(splits, context=TrainingContext(workers=2))
        assert workers == asked
        assert same(apart, model)


@pytest.mark.nightly
def test_members_that_are_trained_side_by_side_are_equal(model, splits, monkeypatch):
    monkeypatch.setattr("cefito.planners.network.WORTH_A_PROCESS", 0)
    apart, results = fit(splits, context=TrainingContext(workers=2))
    assert same(apart, model)
    assert set(results) == {"chain", "chain-1"}
    with pytest.raises(RunError, match=r"network 1 of 2 .*CUDA"):
        fit(splits, context=TrainingContext(workers=2, device="cuda:7"))


def test_members_differ_and_the_first_is_that_of_one_member(model, splits):
    one, results = fit(splits, **{"chain.members": 1})
    assert set(results) == {"chain"}
    assert len(one.networks) == 1
    assert same(one, replace(model, networks=model.networks[:1]))
    assert not same_weights(*model.networks)
    assert 2 * one.parameters["chain"] == model.parameters["chain"]


def test_scores_are_the_members_mean_over_the_temperature(model, queries):
    scores = replace(model, task_power=1.0).scores(queries)
    initial, goal = map(torch.from_numpy, (queries.initial, queries.goal))
    with torch.inference_mode():
        parts = [network(initial, goal).scores for network in model.networks]
    mean = average(parts)
    torch.testing.assert_close(scores.emissions, mean.emissions / model.temperature)
    torch.testing.assert_close(scores.transitions, mean.transitions / model.temperature)


def test_calibration_is_that_of_validation_windows(model, splits):
    val = splits["val"]
    tasks, actions = map(torch.from_numpy, (val.tasks, val.actions))
    scores = replace(model, temperature=1.0, task_power=1.0).scores(Queries.from_windows(val))
    truth = scores.states.find(tasks, actions)
    videos = len(np.unique(val.video))
    power = fit_task_power(scores, truth, tasks, videos=videos)
    found = fit_confidence(scores, truth, actions, videos=videos, task_power=power)
    logs = scores.heated(found).log_tasks()
    surer = fit_task_confidence(logs, tasks, videos=videos, centre=power)
    assert model.task_power == surer != power
    assert model.temperature == found != 1


def test_training_on_all_videos_keeps_training_windows_as_calibrated(splits):
    train, val = splits["train"], splits["val"]
    shared = {
        "settings": chain_settings(
            **{"chain_training.all_videos": 1.0, "chain_training.optimiser.epochs": 20}
        ),
        "seed": 0,
        "context": TrainingContext(),
    }
    space = action_space(joined_windows(train, val), "training")
    model, _ = ChainModel.fit(train, val, space=space, **shared)
    after = model.on_all_videos(train, val, **shared)
    queries, actions = Queries.from_windows(train), torch.from_numpy(train.actions)
    ratios = []
    for one in (model, after, replace(after, temperature=model.temperature)):
        confidence = Confidence.of(one.scores(queries), actions)
        ratios.append(confidence.probability / confidence.right)
    assert ratios[1] == pytest.approx(ratios[0], rel=0.01)
    assert ratios[2] != pytest.approx(ratios[0], rel=0.02)
    assert after.task_power == model.task_power


def test_costs_are_shares_of_a_task(model, queries):
    few = queries.subset([0, 5])
    evidence, scores = model.evidence(few), model.scores(few)
    np.testing.assert_allclose(np.exp(evidence.log_tasks()).sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(evidence.log_tasks(), model.log_tasks(few))
    np.testing.assert_allclose(evidence.log_tasks(), scores.log_tasks().numpy(), atol=1e-5)
    for task in (0, 7):
        own = np.flatnonzero(scores.states.tasks == task)
        size = len(own)
        every = np.indices((size,) * 3).reshape(3, -1).T
        for query in range(2):
            logs = scores.rows([query]).scores(torch.from_numpy(own[every])[None])[0].numpy()
            costs = task_costs(scores, query, task).cost(every)
            np.testing.assert_allclose(costs, -logs, rtol=1e-4, atol=1e-4)
            sequences = scores.states.actions[own[every]].numpy()
            tasks = np.full(len(every), task)
            shares = np.exp(evidence.log_sequences(query, tasks, sequences))
            expected = np.exp(logs - logs.max())
            np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-3)


def network(**more):
    made = ChainNetwork(
        config=ChainConfig(**{"hidden": 16, "width": 8, "emission": 16, **more}),
        states=TaskStates.make([[0, 1, 2], [2, 3]], 4),
        observation_dim=6,
        horizon=3,
        transitions=torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(5)),
    )
    made.reset(torch.Generator().manual_seed(0))
    return made


def test_each_end_is_read_from_its_own_observation():
    one = network()
    initial, goal, other = drawn(3, 2, 6)
    with torch.inference_mode():
        plain, moved, turned = one(initial, goal), one(other, goal), one(initial, other)
    assert torch.equal(plain.last, moved.last)
    assert not torch.equal(plain.first, moved.first)
    assert torch.equal(plain.first, turned.first)
    assert not torch.equal(plain.last, turned.last)


def test_both_ends_are_cosines_with_a_cross_entropy_each(splits):
    plain = {"chain.dropout": 0.0, "chain.input_dropout": 0.0}
    (made, _), train = fit(splits, **plain)[0].networks, splits["train"]
    loss = ChainLoss(made, train, splits["val"], chain_settings(**plain).chain_training)
    tasks, actions = (torch.from_numpy(one[:7]) for one in (train.tasks, train.actions))
    initial, goal = loss.observations.draw(torch.arange(7), torch.Generator())
    with torch.no_grad():
        found = loss.terms(torch.arange(7), torch.Generator())["ends"]
        encoded = made.encoded(torch.stack([initial, goal], dim=1), None)[:, :, None]
        logits = made.scale * torch.cosine_similarity(encoded, made.ends, dim=-1)  # [B, 2, S]
        ends = made.states.find(tasks, actions)[:, [0, -1], None]
        logs = logits.log_softmax(dim=-1).gather(-1, ends)
    torch.testing.assert_close(found.sum / found.count, -logs.mean())
