import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cefito.files import load_tensors, write_tensors
from cefito.search.prior import DEFAULT_ORDER, DEFAULT_STRENGTHS, GRID, NGramPrior

ACTION_COUNT = 6
ACTIONS = ((0, 1, 2), (5, 1, 3), (4,), (2, 5))  # in no order; task 3 never has windows
START = "start"


@dataclass
class Corpus:
    """Windows as lists; arrays where the library wants them."""

    rows: Any
    owners: Any

    @property
    def sequences(self):
        return np.array(self.rows)

    @property
    def tasks(self):
        return np.array(self.owners)

    def fit(self, **settings):
        return NGramPrior.fit(
            self.sequences, self.tasks, action_count=ACTION_COUNT, actions=ACTIONS, **settings
        )


@st.composite
def corpora(draw):
    horizon = draw(st.integers(1, 5))
    owners = draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=1, max_size=12))
    # now and then an action that the task does not allow
    rows = [
        draw(
            st.lists(st.sampled_from(ACTIONS[task] * 4 + (3,)), min_size=horizon, max_size=horizon)
        )
        for task in owners
    ]
    return Corpus(rows, owners)


settings_of_priors = {
    "order": st.integers(1, 3),
    "strengths": st.tuples(*[st.sampled_from([1e-3, 0.3, 1.0, 30.0])] * 3),
}
# task 0: 0 1 2 a lot, one return and one repeat; task 1: its own; task 2: a single action
SMALL = Corpus(
    [[0, 1, 2], [0, 1, 2], [0, 1, 0], [1, 1, 2], [5, 1, 3], [5, 3, 3], [4, 4, 4]],
    [0, 0, 0, 0, 1, 1, 2],
)


def reference(
    corpus: Corpus, task: int, actions, order: int, strengths, context: list[int]
) -> dict[int, float]:
    """The formulas of p(a | the actions so far, task), by counting words in dictionaries."""

    def counted(of, allowed):
        """Steps as (two before, before, action)."""
        found = []
        for row, owner in zip(corpus.rows, corpus.owners, strict=True):
            padded = [START, START, *row]
            if owner == of:
                found += [
                    tuple(padded[step : step + 3])
                    for step in range(len(row))
                    if row[step] in allowed
                ]
        return found

    def rates(measure):
        """Rate of what `measure` gives for (steps of the task, step); None has no part in it."""
        parts = {}
        for of, allowed in enumerate(ACTIONS):
            steps = counted(of, allowed)
            parts[of] = [value for step in steps if (value := measure(steps, step)) is not None]
        overall = (sum(map(sum, parts.values())) + 0.5) / (sum(map(len, parts.values())) + 1)
        return (sum(parts[task]) + 20 * overall) / (len(parts[task]) + 20)

    def is_between(d, c):
        return START not in (d, c) and d != c

    def share_of_pair(steps, c, d):
        after = Counter(last for _, before, last in steps if before == c)
        return after[d] / after.total()

    repeat = rates(lambda _, step: None if step[1] == START else float(step[2] == step[1]))
    returned = rates(lambda _, step: float(step[2] == step[0]) if is_between(*step[:2]) else None)
    expected = rates(
        lambda steps, step: (
            share_of_pair(steps, step[1], step[0]) if is_between(*step[:2]) else None
        )
    )
    factor = (returned / (1 - returned)) / (expected / (1 - expected))

    steps = counted(task, actions)

    def interpolated(level, matching, below):
        count, strength = Counter(step[2] for step in matching), strengths[level - 1]
        return {a: (count[a] + strength * below[a]) / (len(matching) + strength) for a in actions}

    single = interpolated(1, steps, {a: 1 / len(actions) for a in actions})
    if order == 1:
        return single
    d, c = [START, START, *context][-2:]
    if c == START or len(actions) == 1:
        below = single
    else:
        below = {
            a: repeat
            if a == c
            else (1 - repeat) * single[a] / sum(single[b] for b in actions if b != c)
            for a in actions
        }
    pair = interpolated(2, [step for step in steps if step[1] == c], below)
    if order == 2 or c == START:
        return pair
    weight = {a: pair[a] * (factor if a == d and is_between(d, c) else 1) for a in actions}
    below = {a: weight[a] / sum(weight.values()) for a in actions}
    return interpolated(3, [step for step in steps if step[:2] == (d, c)], below)


@given(corpus=corpora(), task=st.integers(0, 3), **settings_of_priors)
@example(corpus=SMALL, task=0, order=3, strengths=(1.0, 1.0, 1.0))
@example(corpus=SMALL, task=2, order=3, strengths=(1.0, 1.0, 1.0))
def test_every_distribution_sums_to_one_and_is_the_reference(corpus, task, order, strengths):
    prior = corpus.fit(order=order, strengths=strengths)
    ids, chain = prior.actions[task], prior.costs(task, 4)
    assert [cost.ndim for cost in chain.costs] == [min(step + 1, order) for step in range(4)]
    for length in range(4):
        for places in itertools.product(range(len(ids)), repeat=length):
            probabilities = np.exp(
                -chain.children(np.array([places], dtype=np.int64).reshape(1, length))
            )[0]
            assert probabilities.sum() == pytest.approx(1, abs=1e-9)
            expected = reference(
                corpus, task, ids, order, strengths, [ids[place] for place in places]
            )
            np.testing.assert_allclose(
                probabilities, [expected[action] for action in ids], rtol=1e-9
            )


@given(corpus=corpora(), horizon=st.integers(1, 4), **settings_of_priors)
@example(corpus=SMALL, horizon=4, order=3, strengths=(1.0, 2.0, 3.0))
def test_costs_of_chains_are_minus_log_probabilities(corpus, horizon, order, strengths):
    prior = corpus.fit(order=order, strengths=strengths)
    sequences, tasks, costs = [], [], []
    for task, ids in enumerate(ACTIONS):
        places = np.array(list(itertools.product(range(len(ids)), repeat=horizon)))
        costs.append(prior.costs(task, horizon).cost(places))
        sequences.append(np.array(ids)[places])
        tasks.append(np.full(len(places), task))
    together = prior.levels.log_probability(np.concatenate(sequences), np.concatenate(tasks))
    np.testing.assert_allclose(together, -np.concatenate(costs), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["actions", "counts", "events", "settings", "sizes", "strengths"])
@pytest.mark.parametrize("wrong", ["nan", "negative", "large", "short"])
def test_arrays_that_are_no_counts_are_refused(name, wrong):
    arrays = SMALL.fit().to_arrays()
    array = arrays[name].astype(float) if wrong == "nan" else arrays[name].copy()
    array.flat[0] = {"nan": np.nan, "negative": -2, "large": 10**6}.get(wrong, array.flat[0])
    arrays[name] = array[:-1] if wrong == "short" else array
    if wrong == "large" and name in ("counts", "strengths"):
        NGramPrior.from_arrays(arrays)  # many videos, much smoothing
        return
    with pytest.raises(ValueError, match=r"counts|fit each other|unpack"):
        NGramPrior.from_arrays(arrays)


def test_arrays_and_back(tmp_path):
    prior = SMALL.fit(order=2, strengths=(0.3, 2.0, 5.0))
    write_tensors(tmp_path / "prior.safetensors", {**prior.to_arrays(), "weights": np.ones(3)})
    arrays, _ = load_tensors(tmp_path / "prior.safetensors", "np", "")
    again = NGramPrior.from_arrays(arrays)
    assert (again.order, again.strengths, again.actions, again.action_count) == (
        2,
        (0.3, 2.0, 5.0),
        ACTIONS,
        ACTION_COUNT,
    )
    for task in range(4):
        for one, two in zip(prior.costs(task, 3).costs, again.costs(task, 3).costs, strict=True):
            np.testing.assert_array_equal(one, two)


def walks(seed: int, count: int, horizon: int, span: int) -> Corpus:
    """Sequences of 0, 1, 2 whose next action depends on the last `span` actions."""
    generator = np.random.default_rng(seed)
    table = np.random.default_rng(3).dirichlet([0.3] * 3, size=(3,) * span)
    rows = []
    for _ in range(count):
        row = generator.integers(3, size=span).tolist()
        while len(row) < span + horizon:
            row.append(int(generator.choice(3, p=table[tuple(row[len(row) - span :])])))
        rows.append(row[span:])
    return Corpus(rows, [0] * count)


def tune(train: Corpus, val: Corpus, **settings) -> NGramPrior:
    return NGramPrior.tuned(
        train.sequences,
        train.tasks,
        action_count=ACTION_COUNT,
        actions=ACTIONS,
        val_sequences=val.sequences,
        val_tasks=val.tasks,
        **settings,
    )


def test_tuned_is_the_best_of_what_one_change_reaches():
    # where one round over the strengths is not enough
    train, val = walks(5, 60, 4, 2), walks(6, 60, 4, 2)

    def score(order, strengths):
        return (
            train.fit(order=order, strengths=strengths)
            .levels.log_probability(val.sequences, val.tasks)
            .mean()
        )

    prior = tune(train, val)
    best = score(prior.order, prior.strengths)
    assert prior.order == 3
    for level in range(3):
        for value in GRID:
            assert (
                score(3, (*prior.strengths[:level], value, *prior.strengths[level + 1 :])) <= best
            )
    assert best > score(DEFAULT_ORDER, DEFAULT_STRENGTHS)
    for order in (1, 2):
        assert best > score(order, tune(train, val, orders=(order,)).strengths)
    assert tune(train, val).strengths == prior.strengths


def test_tuned_leaves_out_windows_that_no_setting_explains():
    train, val = walks(1, 60, 4, 1), walks(2, 60, 4, 1)
    expected = tune(train, val)
    val.rows += [[0, 3, 0, 0]] * 50
    val.owners += [0] * 50
    prior = tune(train, val)
    assert (prior.order, prior.strengths) == (expected.order, expected.strengths)
    assert expected.strengths != DEFAULT_STRENGTHS


NONE = Corpus(np.zeros((0, 2), np.int64), np.zeros(0, np.int64))


@pytest.mark.parametrize("val", [Corpus([[3, 3]], [0]), NONE])
def test_tuned_without_windows_to_tune_on_keeps_the_defaults(val):
    prior = tune(SMALL, val)
    assert (prior.order, prior.strengths) == (DEFAULT_ORDER, DEFAULT_STRENGTHS)


def test_tuned_goes_on_counting():
    first, second, val = (walks(seed, 20, 3, 1) for seed in range(3))
    known = NGramPrior.fit(
        first.sequences, first.tasks, action_count=3, actions=[(0, 1, 2)], order=2
    )
    both = Corpus(first.rows + second.rows, first.owners + second.owners)
    ours, theirs = tune(second, val, learned=known), tune(both, val)
    assert (ours.order, ours.strengths) == (theirs.order, theirs.strengths)
    for name, array in theirs.to_arrays().items():
        np.testing.assert_array_equal(ours.to_arrays()[name], array)
    assert known.to_arrays()["counts"].sum() == first.sequences.size
