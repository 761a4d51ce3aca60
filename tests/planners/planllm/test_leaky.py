"""States between the steps reach the leaky method alone, and that by its queries alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cefito.data import cut_windows
from cefito.data.windows import joined_windows, reversed_windows, with_between
from cefito.errors import ConfigError, DataError
from cefito.evaluation.score import evaluate_planner
from cefito.planners.base import Queries
from cefito.planners.methods import load_config
from cefito.planners.planllm.planner import LeakyPlanner, PlanLlmPlanner
from cefito.planners.schema.planner import SchemaPlanner
from same import same_weights

KNOBS = {"train": 24, "val": 8, "test": 8, "dim": 12}
SIZES = {"hidden": 16, "width": 16, "training.optimiser.epochs": 1, "training.stopping.every": 1}
SECTIONS = ("planllm", "schema_model")
TINY = {f"{section}.{name}": value for section in SECTIONS for name, value in SIZES.items()}


@pytest.fixture(scope="module")
def splits(dataset, splits):
    """Windows that have the states between."""
    return {split: with_between(dataset, windows) for split, windows in splits.items()}


def fit(kind, splits):
    method = "schema" if kind is SchemaPlanner else "planllm"
    settings = load_config("small", method=method, overrides=TINY, shared=True).settings
    return kind.fit(splits["train"], splits["val"], settings=settings, seed=0).planner


@pytest.fixture(scope="module")
def leaky(splits):
    return fit(LeakyPlanner, splits)


def disturbed(windows):
    """The windows with other states between."""
    return replace(windows, between=windows.between[::-1] + 3)


def energies(planner, queries):
    return np.stack([plans.energies for plans in planner.plan(queries, 2)])


def test_states_between_by_hand(dataset, splits):
    windows = splits["test"]
    assert windows.between.shape == (len(windows), 2, 12)
    assert windows.between.dtype == np.float32
    for row in range(0, len(windows), 5):
        first = dataset.first_row[windows.video[row]] + windows.start[row]
        for step in range(2):
            end, start = dataset.end[first + step], dataset.start[first + step + 1]
            expected = (end.astype(float) + start.astype(float)) / 2
            np.testing.assert_allclose(windows.between[row, step], expected, rtol=1e-6)
    assert cut_windows(dataset, horizon=3, split="test").between is None
    alone = with_between(dataset, cut_windows(dataset, horizon=1, split="test"))
    assert alone.between.shape == (len(alone), 0, 12)


def test_windows_keep_them_in_order(splits):
    windows = splits["test"]
    assert np.array_equal(windows.subset([4, 1]).between, windows.between[[4, 1]])
    back = reversed_windows(windows)
    assert np.array_equal(back.between[:, 0], windows.between[:, 1])
    joined = joined_windows(windows.subset(range(5, 9)), windows.subset(range(5)))
    assert np.array_equal(joined.between, windows.between[:9])
    for pair in (
        (windows, replace(windows, between=None)),
        (replace(windows, between=None), windows),
    ):
        with pytest.raises(DataError, match="only one of the windows to join has observations"):
            joined_windows(*pair)


def test_queries_have_them_for_an_oracle_alone(splits):
    windows = splits["test"]
    assert Queries.from_windows(windows).between is None
    assert Queries.from_windows(windows, oracle_task=True, oracle_ends=True).between is None
    told = Queries.from_windows(windows, oracle_between=True)
    assert np.array_equal(told.between, windows.between)
    assert np.array_equal(told.subset([3, 0]).between, windows.between[[3, 0]])
    assert np.array_equal(told.blocks(4)[1].between, windows.between[4:8])
    with pytest.raises(DataError, match=r"^queries, 'between': has shape \[2, 12\]"):
        replace(told.subset([0, 1]), between=windows.between[:2, 0])
    damaged = windows.between[:2].copy()
    damaged[1, 1, 5] = np.nan
    with pytest.raises(DataError, match=r"^queries, 'between', row 3 .*: holds nan"):
        replace(told.subset([0, 1]), between=damaged)


@pytest.mark.parametrize("kind", [PlanLlmPlanner, SchemaPlanner])
def test_methods_that_plan_never_read_them(kind, splits):
    """Neither in training nor in planning, though windows and queries have them."""
    planner = fit(kind, splits)
    other = fit(kind, {split: disturbed(windows) for split, windows in splits.items()})
    assert same_weights(planner.network, other.network)
    windows = splits["test"]
    plain = energies(planner, Queries.from_windows(windows))
    for given in (windows, disturbed(windows)):
        told = Queries.from_windows(given, oracle_between=True)
        assert np.array_equal(energies(planner, told), plain)
    assert not planner.abilities.true_between
    with pytest.raises(ConfigError, match="makes no use of the states between"):
        evaluate_planner(planner, windows, oracle_between=True)


def test_the_leaky_method_reads_them(splits, leaky):
    """In training, in validation and in planning."""
    assert leaky.name == "PlanLLM-style (no BERT, sees the states between, mean observations)"
    windows = splits["test"]
    told = energies(leaky, Queries.from_windows(windows, oracle_between=True))
    other = energies(leaky, Queries.from_windows(disturbed(windows), oracle_between=True))
    assert not np.allclose(told, other)
    changed = fit(LeakyPlanner, splits | {"train": disturbed(splits["train"])})
    assert not same_weights(changed.network, leaky.network)


def test_the_leaky_encoder_by_hand(splits, leaky):
    """All four states see each other; the first and the last are picked."""
    network = leaky.network
    queries = Queries.from_windows(splits["test"], oracle_between=True)
    with torch.no_grad():
        for row in (0, 5):
            one = queries.subset([row])
            whole = np.concatenate([one.initial, one.between[0], one.goal])
            states = network.encoder(network.prepared(torch.from_numpy(whole)))[None]
            seen = network.first_exchange(states)[:, [0, 3]]
            found = leaky.encoded(one)
            torch.testing.assert_close(found.aligned, seen)
            torch.testing.assert_close(found.states, network.second_exchange(seen))
