from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.data import cut_windows
from cefito.data.windows import action_space
from cefito.errors import ConfigError
from cefito.planners.any_length.network import History
from cefito.planners.any_length.planner import AnyLengthPlanner
from cefito.planners.any_length.usual import CENTRES, COUNTED, Usual, first_pool
from cefito.planners.chain.states import TaskStates
from cefito.planners.queries import Queries
from cefito.search.prior import GRID


def test_windows_of_all_lengths(small_world, windows):
    train, _ = windows
    counts = {length: len(train.of_length(length)) for length in (1, 2, 3)}
    for length, count in counts.items():
        alone = cut_windows(small_world, horizon=length, split="train")
        part = train.of_length(length)
        assert count == len(alone)
        np.testing.assert_array_equal(part.actions, alone.actions)
        np.testing.assert_array_equal(part.goal, alone.goal)
    for row in range(0, len(train), 97):
        steps = [step.action for step in small_world.videos[train.video[row]].steps]
        start = train.start[row]
        before = train.before[row]
        assert before[before >= 0].tolist() == steps[:start]
        assert train.remaining[row] == len(steps) - start
        times = small_world.videos[train.video[row]].steps
        last = times[start + train.lengths[row] - 1]
        assert train.elapsed[row] == pytest.approx(last.end - times[start].start)


def test_history_of_actions():
    done = torch.tensor([[2, 0, 2, -1], [-1, -1, -1, -1], [1, -1, 0, -1]])
    history = History.of_actions(done, torch.tensor([True, False, True]), 3, 0.5)
    assert history.done.tolist() == [[1, 0, 1], [0, 0, 0], [1, 1, 0]]
    # 0.5 ** number of steps after; both times that action 2 was done add up, to at most 1
    assert history.recent.tolist() == [[0.5, 0, 1], [0, 0, 0], [1, 0.5, 0]]
    assert history.last.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    np.testing.assert_allclose(history.facts.numpy(), [[1, np.log(4)], [0, 0], [1, np.log(3)]])


def test_the_length_with_nothing_seen(planner, windows):
    """One next step for all numbers of steps; those left by counts of the task, and the network."""
    val = windows[1]
    place = int(np.flatnonzero((val.before >= 0).sum(axis=1) == 2)[0])
    nothing = {"size": val.initial.shape[1], "done": val.before[place][:2]}
    alone, next_step = Queries.partial(**nothing), planner.with_lengths(1, 1)
    found, one = planner.marginals(alone), next_step.marginals(alone)
    np.testing.assert_allclose(found.steps[:, 0], one.steps[:, 0], atol=1e-5)
    usual, tasks = planner.model.usual, range(planner.vocabulary.tasks)
    ours = np.exp(
        [planner.log_lengths(replace(alone, tasks=np.array([task])))[0] for task in tasks]
    )
    assert np.abs(ours[0] - ours[1]).max() > 0.001
    # p(T) = Σ_t p(t) p(T | t)
    np.testing.assert_allclose(np.exp(planner.log_lengths(alone)), found.tasks @ ours, atol=1e-5)
    counts = (
        usual.left_after[0, alone.done[0, -1]],
        usual.left_at[0, 2],
        usual.left_at[0].sum(axis=0),
    )
    every = usual.left_at.sum(axis=(0, 1)) + 1 / 3
    of_task = (counts[2] + 0.5 * every / every.sum()) / (counts[2].sum() + 0.5)
    after, at = ((n + s * of_task) / (n.sum() + s) for n, s in zip(counts[:2], (5, 2), strict=True))
    expected = np.log(after * at / of_task)
    expected -= np.logaddexp.reduce(expected)
    known = usual.log_lengths(alone.done[:, -1], np.array([2]))[0, 0]
    np.testing.assert_allclose(known, expected, atol=1e-5)


@pytest.mark.parametrize("informed", [False, True])
def test_first_steps_follow_the_network_where_it_clearly_helps(informed):
    """Weights of 60 videos' first steps, of 6 states, beside uniform n-grams."""
    rng = np.random.default_rng(0)
    target = torch.from_numpy(rng.integers(6, size=60))
    told = target if informed else torch.from_numpy(rng.integers(6, size=60))
    logs = (0.8 * F.one_hot(told, 6) + 0.2 / 6).log()
    uniform = torch.full((60, 6), 1 / 6).log()
    weights = first_pool((logs, uniform, torch.zeros(60, 6)), target, centre=CENTRES["begin"])
    if informed:
        assert weights[0] > 0.5
    else:
        assert weights == COUNTED


def test_smoothing_of_first_steps_is_chosen_on_videos_held_out(windows):
    """Where all videos of a task begin alike, counts are smoothed least, whatever follows."""
    train, val = windows
    states = TaskStates.make(action_space(train, "training").actions, len(train.taxonomy.actions))
    first = np.array([states.by_task()[task][0] for task in train.tasks])
    alike = replace(train, actions=train.actions.copy(), before=None)
    alike.actions[:, 0] = first
    usual = Usual.fit(states, alike, replace(val, before=None).subset([]), range(1, 4))
    assert usual.first.order == 2
    assert usual.first.strengths[1] == min(GRID)
    arrays = usual.to_arrays()
    np.testing.assert_array_equal(Usual.from_arrays(arrays, states).left_at, usual.left_at)
    for name, wrong in (
        ("left_at", arrays["left_at"][1:]),
        ("left_after", arrays["left_after"] - 1),
        ("left_after", arrays["left_after"][:, 1:]),
        ("first.strengths", np.full(3, np.nan)),
    ):
        with pytest.raises(ValueError, match="counts"):
            Usual.from_arrays({**arrays, name: wrong}, states)


def test_hidden_observations_do_not_count(planner, windows):
    """Rows of unknown observations change nothing; known ones and steps done before do."""
    _, val = windows
    rows = val.subset(range(6))
    hidden = Queries.from_windows(rows, without_goal=True)
    other = Queries(initial=hidden.initial, goal=hidden.goal + 1, seen=hidden.seen)
    for one, two in zip(planner.plan(hidden, 3), planner.plan(other, 3), strict=True):
        np.testing.assert_array_equal(one.actions, two.actions)
        np.testing.assert_array_equal(one.probabilities, two.probabilities)
    for known in (
        Queries.from_windows(rows),
        Queries.from_windows(rows, without_goal=True, after_done=True),
    ):
        assert any(
            not np.allclose(one.probabilities, two.probabilities)
            for one, two in zip(planner.plan(hidden, 3), planner.plan(known, 3), strict=True)
        )


def test_the_time_between_observations_changes_lengths_alone(planner, windows):
    _, val = windows
    part = val.subset(range(6))
    part = replace(part, elapsed=np.array([20, 1, 600, np.nan, 30, np.nan], np.float32))
    plain, timed = (Queries.from_windows(part, with_elapsed=elapsed) for elapsed in (False, True))
    before, after = planner.log_lengths(plain), planner.log_lengths(timed)
    known = np.isfinite(part.elapsed)
    np.testing.assert_array_equal(before[~known], after[~known])
    assert (np.abs(before - after)[known].max(axis=1) > 1e-4).all()
    np.testing.assert_allclose(np.exp(after).sum(axis=1), 1, rtol=1e-5)
    both = [planner.with_lengths(2, 2).plan(queries, 3) for queries in (plain, timed)]
    for one, two in zip(*both, strict=True):  # p(plan | length)
        np.testing.assert_array_equal(one.actions, two.actions)
        np.testing.assert_allclose(one.probabilities, two.probabilities, rtol=1e-5)


def test_everything_else_is_learned_as_without_times(planner, windows, settings_for):
    train, val = (replace(part, elapsed=np.full_like(part.elapsed, np.nan)) for part in windows)
    without = AnyLengthPlanner.fit(train, val, settings=settings_for(), seed=0).planner
    assert planner.reads_elapsed
    assert not without.reads_elapsed
    for one, two in zip(planner.model.networks, without.model.networks, strict=True):
        weights, timed = two.state_dict(), one.state_dict()
        assert timed.keys() - weights.keys() == {"elapsed.time.weight", "elapsed.length.weight"}
        assert all(torch.equal(timed[name], weights[name]) for name in weights)
    queries = Queries.from_windows(windows[1].subset(range(3)), with_elapsed=True)
    with pytest.raises(ConfigError, match=r"did not learn from the time"):
        without.plan(queries, 1)
