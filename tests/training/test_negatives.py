import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from cefito.errors import SamplingError
from cefito.training.negatives import ActionSets, NegativeSampler, check_negatives
from cefito.training.settings import NegativesConfig

from .made import generator
from .reference import SlowNegativeSampler, SlowStreamSampler

K = 10
Actions = Mapping[int, Sequence[int]]


def sampler(
    config: NegativesConfig, actions: Actions, horizon: int, *, slow: bool = False
) -> NegativeSampler | SlowNegativeSampler:
    if slow:
        return SlowNegativeSampler(config=config, actions=actions, horizon=horizon)
    return NegativeSampler(
        config=config, actions=ActionSets.build(actions), action_count=K, horizon=horizon
    )


def draw(
    config: NegativesConfig, actions: Actions, *positives: Sequence[int], seed: int = 0
) -> list[list[tuple[int, ...]]]:
    """The negatives of some positives of task 0."""
    tasks = torch.zeros(len(positives), dtype=torch.int64)
    made = sampler(config, actions, len(positives[0]))
    drawn = made.sample(torch.tensor(positives), tasks, generator(seed))
    return [[tuple(sequence) for sequence in row] for row in drawn.tolist()]


def check_row(
    negatives: list[tuple[int, ...]],
    given: Sequence[int],
    positive: tuple[int, ...],
    task: int,
    actions: Actions,
) -> None:
    """All distinct, none the truth, and each a member of the category that its place says."""
    assert sum(given) == len(negatives)
    assert len(set(negatives)) == len(negatives)
    assert positive not in negatives
    ends = [0, *itertools.accumulate(given)]
    permuted, edited, hard, easy = (
        negatives[first:last] for first, last in itertools.pairwise(ends)
    )
    of_task = set(actions[task])
    assert all(sorted(sequence) == sorted(positive) for sequence in permuted)
    assert all(
        sum(a != b for a, b in zip(sequence, positive, strict=True)) == 1
        and set(sequence) <= of_task
        for sequence in edited
    )
    assert all(set(sequence) <= of_task for sequence in hard)
    others = [set(those) for other, those in actions.items() if other != task]
    assert all(any(set(sequence) <= those for those in others) for sequence in easy)


@st.composite
def cases(draw):
    """Action sets, positives within them, and a number of negatives that they can give."""
    actions = {
        task: sorted(draw(st.sets(st.integers(0, K - 1), min_size=1, max_size=5)))
        for task in range(draw(st.integers(2, 4)))
    }
    horizon = draw(st.integers(1, 5))
    config = NegativesConfig(
        count=draw(st.integers(1, 20)),
        hard=draw(st.sampled_from([0, 0.5, 0.8, 1])),
        permuted=draw(st.sampled_from([0, 0.08, 0.3, 0.5])),
        edited=draw(st.sampled_from([0, 0.2, 0.5])),
    )
    every = {s for ids in actions.values() for s in itertools.product(ids, repeat=horizon)}
    assume(config.count < len(every) - 1)  # otherwise each gets all others, of whatever kind
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    tasks = random.integers(len(actions), size=draw(st.integers(1, 4)))
    positives = [tuple(random.choice(actions[task], size=horizon).tolist()) for task in tasks]
    slow = SlowNegativeSampler(config=config, actions=actions, horizon=horizon)
    for positive, task in zip(positives, tasks.tolist(), strict=True):
        easy = {
            sequence
            for other, ids in actions.items()
            if other != task
            for sequence in itertools.product(ids, repeat=horizon)
        }
        wanted = slow.counts(positive, task)[3]
        assume(not wanted or len(easy) > 2 * config.count)
    return config, actions, horizon, torch.tensor(positives), torch.from_numpy(tasks)


@given(case=cases(), seed=st.integers(0, 1000))
def test_kinds_and_their_numbers(case, seed):
    config, actions, horizon, positives, tasks = case
    fast, slow = sampler(config, actions, horizon), sampler(config, actions, horizon, slow=True)
    codes, given = fast.sample_codes(positives, tasks, generator(seed))
    negatives = {
        "fast": fast.sample(positives, tasks, generator(seed)),
        "slow": slow.sample(positives, tasks, generator(seed)),
    }
    place = K ** torch.arange(horizon - 1, -1, -1)
    assert torch.equal((negatives["fast"] * place).sum(dim=2), codes)
    for row, (positive, task) in enumerate(zip(positives.tolist(), tasks.tolist(), strict=True)):
        assert tuple(given[row].tolist()) == slow.counts(positive, task)
        for drawn in negatives.values():
            assert drawn.shape == (len(positives), config.count, horizon)
            check_row(
                [tuple(sequence) for sequence in drawn[row].tolist()],
                given[row].tolist(),
                tuple(positive),
                task,
                actions,
            )


@given(
    count=st.integers(1, 300),
    hard=st.floats(0, 1),
    permuted=st.floats(0, 0.5),
    edited=st.floats(0, 0.5),
)
def test_shares_add_up(count, hard, permuted, edited):
    shares = NegativesConfig(count=count, hard=hard, permuted=permuted, edited=edited).shares()
    assert sum(shares) == count
    assert min(shares) >= 0
    assert shares[0] == round(permuted * count)
    assert abs(shares[1] - edited * count) <= 1
    assert abs(shares[2] - hard * (count - shares[0] - shares[1])) <= 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"permuted": 0.6, "edited": 0.5}, "together exceed 1"),
        ({"edited": 0.5, "exact": False}, "exact"),
    ],
    ids=["shares", "edited"],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(ValidationError, match=message):
        NegativesConfig(**settings)


def distance_from(observed: Counter, expected: Mapping[tuple[int, ...], float]) -> float:
    """Chi-square statistic less its mean, in standard deviations."""
    assert set(observed) <= set(expected)
    statistic = sum((observed[key] - mean) ** 2 / mean for key, mean in expected.items())
    freedom = len(expected) - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


SETS = {0: (0, 1, 2), 1: (3, 4), 2: (5, 6, 7)}
# (settings, positive, which negatives are looked at, how likely each is to be there)
HARD = [pair for pair in itertools.product(SETS[0], repeat=2) if pair != (0, 1)]
EASY = [pair for task in (1, 2) for pair in itertools.product(SETS[task], repeat=2)]
ORDERS = [order for order in itertools.permutations((0, 1, 2)) if order != (0, 1, 2)]
EDITS = [(1, 1), (2, 1), (0, 0), (0, 2)]
REST = [pair for pair in HARD if pair != (1, 0)]
UNIFORM: dict[str, Any] = {
    "hard, listed": ({"count": 3, "hard": 1}, (0, 1), (0, 3), dict.fromkeys(HARD, 3 / 8)),
    "hard, drawn": ({"count": 2, "hard": 1}, (0, 1), (0, 2), dict.fromkeys(HARD, 2 / 8)),
    "hard, the second": ({"count": 2, "hard": 1}, (0, 1), (1, 2), dict.fromkeys(HARD, 1 / 8)),
    "easy": (
        {"count": 1, "hard": 0},
        (0, 1),
        (0, 1),
        {p: 0.5 / len(SETS[1 + (p[0] > 4)]) ** 2 for p in EASY},
    ),
    "permuted": (
        {"count": 2, "hard": 1, "permuted": 1},
        (0, 1, 2),
        (0, 2),
        dict.fromkeys(ORDERS, 2 / 5),
    ),
    "permuted, with a repeat": (
        {"count": 1, "permuted": 1},
        (0, 1, 1),
        (0, 1),
        dict.fromkeys([(1, 0, 1), (1, 1, 0)], 0.5),
    ),
    "edited": ({"count": 2, "hard": 1, "edited": 0.5}, (0, 1), (0, 1), dict.fromkeys(EDITS, 1 / 4)),
    "hard beside permuted": (
        {"count": 2, "hard": 1, "permuted": 0.5},
        (0, 1),
        (1, 2),
        dict.fromkeys(REST, 1 / 7),
    ),
}


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("kind", UNIFORM)
def test_draws_are_uniform(kind, slow):
    config, positive, part, likely = UNIFORM[kind]
    rows = 600 if slow else 4000
    one = sampler(NegativesConfig(**config), SETS, len(positive), slow=slow)
    positives = torch.tensor([positive]).expand(rows, -1)
    tasks = torch.zeros(rows, dtype=torch.int64)
    drawn = one.sample(positives, tasks, generator(1))[:, slice(*part)]
    observed = Counter(tuple(sequence) for sequence in drawn.flatten(0, 1).tolist())
    assert distance_from(observed, {key: share * rows for key, share in likely.items()}) < 5


LARGE = {0: tuple(range(7)), 1: tuple(range(5, 10))}  # 468 - 8 sequences of three actions


@pytest.mark.parametrize(("exact", "hard"), [(True, 0.8), (False, 0)])
def test_other_tasks_of_a_single_sequence(exact, hard):
    """Any sequences take the place of easy ones, if there are few enough to be listed."""
    config: dict[str, Any] = {
        "config": NegativesConfig(count=24, hard=hard, exact=exact),
        "action_count": 121,
    }
    given = torch.tensor([[0, 1, 2]]), torch.tensor([0]), generator()
    sets = [ActionSets.build({0: range(size), 1: [size]}) for size in (9, 120)]
    few, many = (NegativeSampler(actions=one, horizon=3, **config) for one in sets)
    (rows,) = few.sample(*given).tolist()
    assert [9, 9, 9] in rows
    assert len({*map(tuple, rows)} - {(0, 1, 2)}) == 24
    with pytest.raises(SamplingError, match=r"task 0 .* 24 distinct negatives"):
        many.sample(*given)


def test_more_than_there_are_is_refused():
    with pytest.raises(SamplingError, match="a single sequence of 3 actions"):
        sampler(NegativesConfig(count=1), {0: (4,)}, 3)
    for count in (460, 10_000):
        message = f"{count} negatives are configured, but all tasks together have only 460 seq"
        for attempt in (
            lambda config: sampler(config, LARGE, 3),
            lambda config: check_negatives(config, LARGE, action_count=K, horizon=3),
        ):
            with pytest.raises(SamplingError, match=message) as caught:
                attempt(NegativesConfig(count=count))
            assert caught.value.setting == "training.negatives.count"
    drawn = sampler(NegativesConfig(count=459), LARGE, 3).sample(
        torch.tensor([[0, 1, 2], [9, 9, 9]]), torch.tensor([0, 1]), generator()
    )
    assert all(len({tuple(one) for one in row}) == 459 for row in drawn.tolist())


@pytest.mark.parametrize("count", [6, 7, 24, 10_000])
def test_small_worlds_give_all_there_are(count, caplog):
    """Six other sequences, (1, 1) being of both tasks, however many were asked for."""
    config, actions = NegativesConfig(count=count, hard=0.5, edited=0.3), {0: (0, 1), 1: (1, 2)}
    fast = sampler(config, actions, 2)
    drawn = fast.sample(torch.tensor([[0, 1], [1, 1]]), torch.tensor([0, 1]), generator())
    every = {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)}
    for row, truth in zip(drawn.tolist(), [(0, 1), (1, 1)], strict=True):
        assert sorted(map(tuple, row)) == sorted(every - {truth})
    codes, given = fast.sample_codes(torch.tensor([[0, 1]]), torch.tensor([0]), generator())
    assert codes.shape == (1, 6)
    assert given.tolist() == [[0, 0, 3, 3]]
    with caplog.at_level(logging.WARNING, logger="cefito"):
        check_negatives(config, actions, action_count=K, horizon=2)
    assert len(caplog.messages) == (count > 6)
    assert all(
        message.startswith(f"{count} negatives are configured") for message in caplog.messages
    )


@pytest.mark.parametrize("slow", [False, True])
def test_without_another_task_easy_ones_are_hard(slow):
    one = sampler(
        NegativesConfig(count=24, hard=0.8, edited=0.5), {0: tuple(range(8))}, 3, slow=slow
    )
    positives, tasks = torch.tensor([[1, 2, 3]]), torch.tensor([0])
    (drawn,) = one.sample(positives, tasks, generator()).tolist()
    given = one.counts((1, 2, 3), 0) if slow else one.sample_codes(positives, tasks, generator())[1]
    assert (list(given) if slow else given[0].tolist()) == [0, 12, 12, 0]
    check_row([tuple(row) for row in drawn], [0, 12, 12, 0], (1, 2, 3), 0, {0: range(8)})


def test_sequences_must_be_countable():
    def large(horizon, actions):
        config, sets = NegativesConfig(count=5, hard=0), ActionSets.build(actions)
        return NegativeSampler(config=config, actions=sets, action_count=1000, horizon=horizon)

    with pytest.raises(SamplingError, match=r"1000 actions at horizon 7 .*2\^63"):
        large(7, {0: (0, 1)})
    made = large(6, {0: (0, 1), 1: (998, 999)})
    drawn = made.sample(torch.tensor([[0] * 6]), torch.tensor([0]), generator())
    assert set(drawn.flatten().tolist()) == {998, 999}


@given(horizon=st.integers(7, 8), seed=st.integers(0, 100))
def test_long_horizons(horizon, seed):
    """Beyond six steps permutations are drawn, not listed."""
    config = NegativesConfig(count=20, permuted=0.4, edited=0.2)
    actions = {0: (0, 1, 2, 3), 1: (3, 4, 5)}
    positive = torch.randint(4, (3, horizon), generator=generator(seed))
    positive[:, :4] = torch.arange(4)
    fast, tasks = sampler(config, actions, horizon), torch.zeros(3, dtype=torch.int64)
    codes, given = fast.sample_codes(positive, tasks, generator(seed))
    drawn = fast.sample(positive, tasks, generator(seed))
    assert given.tolist() == [[8, 4, 6, 2]] * 3
    assert codes.shape == (3, 20)
    for row, truth in zip(drawn.tolist(), positive.tolist(), strict=True):
        check_row([tuple(sequence) for sequence in row], (8, 4, 6, 2), tuple(truth), 0, actions)


@pytest.mark.parametrize(
    ("actions", "positive", "count", "permuted"),
    [
        ({0: (0, 1, 2, 3), 1: (3, 4, 5)}, (0, 1, 2), 6, 0.3),
        ({0: (0, 1), 1: (2, 3, 4)}, (0, 0, 0), 6, 0.5),  # nothing to permute
        ({0: (0, 1), 1: (2, 3)}, (0, 1), 5, 0.9),  # permutations soon run out
        ({0: (0, 1, 2)}, (0, 1, 2), 6, 0.3),  # no other task
    ],
)
def test_kinds_drawn_one_by_one_as_by_a_slow_loop(actions, positive, count, permuted):
    config = NegativesConfig(count=count, hard=0.7, permuted=permuted, exact=False)
    fast = sampler(config, actions, len(positive))
    slow = SlowStreamSampler(config=config, actions=actions, horizon=len(positive))
    draws = 1000
    positives = torch.tensor([positive]).expand(draws, -1)
    tasks = torch.zeros(draws, dtype=torch.int64)
    counts = []
    for one in (fast, slow):
        negatives = one.sample(positives, tasks, generator(1)).tolist()
        counts.append([Counter(tuple(row[place]) for row in negatives) for place in range(count)])
        for row in negatives[:100]:
            assert len({tuple(sequence) for sequence in row} | {positive}) == count + 1
    for ours, theirs in zip(*counts, strict=True):
        for sequence in ours.keys() | theirs.keys():
            share = (ours[sequence] + theirs[sequence]) / 2 / draws
            spread = (2 * share * (1 - share) / draws) ** 0.5
            assert abs(ours[sequence] - theirs[sequence]) / draws <= 5 * spread


@pytest.mark.parametrize(
    ("settings", "actions"),
    [
        ({"count": 3, "hard": 1}, {0: (0, 1)}),
        ({"count": 24, "exact": True}, {0: (0, 1)}),
        ({"count": 24, "exact": False}, {0: (0, 1)}),
        # the one permutation is soon found, and nothing else is drawn until it is given up
        ({"count": 3, "hard": 1.0, "permuted": 1.0, "exact": False}, {0: (0, 1), 1: (2, 3)}),
    ],
    ids=["single task", "too many", "too many one by one", "no more permutations"],
)
def test_all_there_are(settings, actions):
    for seed in range(20):
        (drawn,) = draw(NegativesConfig(**settings), actions, (0, 1), seed=seed)
        assert sorted(drawn) == [(0, 0), (1, 0), (1, 1)]
