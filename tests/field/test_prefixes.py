import itertools
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.field.prefixes import PrefixTree


@st.composite
def batches(draw):
    """Distinct candidates [B, M, T] and K."""
    actions, horizon, batch = (
        draw(st.integers(1, 4)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
    )
    everything = np.array(list(itertools.product(range(actions), repeat=horizon)))
    count = draw(st.integers(1, min(10, len(everything))))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    rows = np.stack([generator.permutation(everything)[:count] for _ in range(batch)])
    return torch.from_numpy(rows), actions


def distinct_prefixes(rows: list[list[int]], level: int) -> int:
    return len({tuple(row[: level + 1]) for row in rows})


@given(batches())
def test_one_node_for_each_distinct_prefix(case):
    rows, actions = case
    tree = PrefixTree.build(rows, action_count=actions)
    widths = [
        max(distinct_prefixes(query, level) for query in rows.tolist())
        for level in range(rows.shape[2])
    ]
    assert [level.shape[1] for level in tree.actions] == widths
    assert tree.length == 1 + 2 * sum(widths)


@given(batches())
def test_a_goal_sees_its_own_path_and_nothing_else(case):
    rows, actions = case
    _, count, horizon = rows.shape
    tree = PrefixTree.build(rows, action_count=actions)
    mask = tree.mask()[:, 0]
    widths = [level.shape[1] for level in tree.actions]
    starts = [1 + 2 * sum(widths[:level]) for level in range(horizon)]
    for query, leaf in itertools.product(range(len(rows)), range(count)):
        seen = set(mask[query, starts[-1] + count + leaf].nonzero().flatten().tolist())
        path = []
        expected = {0}
        for level in range(horizon):
            (node,) = (
                column - starts[level]
                for column in seen
                if starts[level] <= column < starts[level] + widths[level]
            )
            path.append(int(tree.actions[level][query, node]))
            expected |= {starts[level] + node, starts[level] + widths[level] + node}
        assert seen == expected
        assert path == rows[query, tree.order[query, leaf]].tolist()
        # the leaf's action sees the same but for the goal
        action = set(mask[query, starts[-1] + leaf].nonzero().flatten().tolist())
        assert action == seen - {starts[-1] + count + leaf}


def test_packed_tokens():
    rows = torch.tensor([[[1, 0], [0, 2], [1, 2]]])
    tree = PrefixTree.build(rows, action_count=3)
    nodes: list[Any] = [
        ((torch.tensor([[10.0], [20.0], [30.0]]), torch.tensor([[0, 1]])), torch.tensor([5.0])),
        (torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[[6.0], [7.0], [8.0]]])),
    ]
    rows, index = tree.pack(torch.tensor([[[1.1]]]), nodes)
    packed = rows[index]
    expected = [1.1, 10, 20, 5, 5, 1, 2, 3, 6, 7, 8]
    torch.testing.assert_close(packed[0, :, 0], torch.tensor(expected))
    assert packed[0, tree.second_tokens(), 0].tolist() == [5, 5, 6, 7, 8]
    rows, index = tree.parents().pack(torch.tensor([[[1.1], [4.0]]]), nodes[:1])
    short = rows[index]
    torch.testing.assert_close(short[0, :, 0], torch.tensor([1.1, 4, 10, 20, 5, 5]))
    assert short[0, tree.parents().second_tokens(), 0].tolist() == [4, 5, 5]
