import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.field.children import FrozenLinear
from cefito.field.fields import IncrementalField
from drawn import drawn
from random_fields import random_field

ACTIONS = st.integers(0, 5)


@st.composite
def added(draw, known: list[tuple[int, ...]], horizon: int):
    """A call on a cache of prefixes (query, actions …), which are appended, and its sequences."""
    levels = []
    for length in range(1, horizon + 1):
        parents = [number for number, row in enumerate(known) if len(row) == length]
        fewest = int(length == horizon and bool(parents))
        pairs = []
        if parents:
            pair = st.tuples(st.sampled_from(parents), ACTIONS)
            pairs = draw(st.lists(pair, min_size=fewest, max_size=6))
        rows = [(*known[parent], action) for parent, action in pairs]
        levels.append(tuple(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T))
        if length < horizon:
            known += rows
    return levels, rows


@given(
    data=st.data(),
    seed=st.integers(0, 1000),
    horizon=st.integers(1, 4),
    depth=st.integers(1, 3),
    skip=st.booleans(),
    queries=st.integers(1, 3),
)
def test_energies_are_those_of_full_sequences(data, seed, horizon, depth, skip, queries):
    """Whatever was added before, in whatever order, and after prefixes were forgotten."""
    field = random_field(seed, horizon=horizon, depth=depth, skip=skip)
    initial, goal = drawn(2, queries, field.predictor.observation_dim, seed=seed)
    incremental = IncrementalField(field)
    cache = incremental.cached(initial, goal)
    empty = cache.kept_bytes
    known: list[tuple[int, ...]] = [(query,) for query in range(queries)]
    for _ in range(3):
        if data.draw(st.booleans()):
            cache.clear()
            del known[queries:]
            assert cache.kept_bytes == empty
        levels, rows = data.draw(added(known, horizon))
        if not rows:  # no prefix is long enough
            del known[len(known) - sum(len(level[0]) for level in levels[:-1]) :]
            continue
        found = incremental.sequence_energies(cache, levels)
        query = torch.tensor([row[0] for row in rows])
        with torch.no_grad():
            expected = field.energy(
                initial[query], goal[query], torch.tensor([row[1:] for row in rows])
            )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_every_weight_is_read_once(monkeypatch):
    """Prefixes of all lengths and the sequences below them make one product a matrix."""
    field = IncrementalField(random_field(horizon=3, depth=3))
    cache = field.cached(*drawn(2, 2, field.field.predictor.observation_dim))
    products, plain = [], FrozenLinear.__call__

    def counted(layer, x):
        products.append(id(layer))
        return plain(layer, x)

    monkeypatch.setattr(FrozenLinear, "__call__", counted)
    levels = [
        (torch.tensor([0, 1, 1]), torch.tensor([4, 0, 3])),  # prefixes 2 to 4
        (torch.tensor([2, 4]), torch.tensor([1, 1])),  # prefixes 5 and 6
        (torch.tensor([5, 5, 6]), torch.tensor([0, 2, 5])),
    ]
    assert field.sequence_energies(cache, levels).shape == (3,)
    # Of the first block the projections are known. The next has four products; the last one of keys
    # and values, one of queries and three more; the state head is one.
    assert len(products) == len(set(products)) == 3 + 4 + 5 + 1
