import itertools

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


@given(batches())
def test_every_token_sees_what_it_would_in_its_own_sequence(case):
    """A token sees x_s, the pairs of its ancestors, itself and, if it is a state, its action."""
    rows, actions = case
    tree = PrefixTree.build(rows, action_count=actions)
    seen = tree.mask()[:, 0].sum(dim=2)
    first = 1
    for level, nodes in enumerate(tree.actions):
        width = nodes.shape[1]
        assert (seen[:, first : first + width] == 2 * level + 2).all()
        assert (seen[:, first + width : first + 2 * width] == 2 * level + 3).all()
        first += 2 * width
    assert (seen[:, 0] == 1).all()


@given(batches())
def test_padding_is_seen_by_nobody(case):
    rows, actions = case
    tree = PrefixTree.build(rows, action_count=actions)
    mask = tree.mask()[:, 0].clone()
    first = 1
    for level, nodes in enumerate(tree.actions):
        width = nodes.shape[1]
        for query, own in enumerate(rows.tolist()):
            for node in range(distinct_prefixes(own, level), width):
                pair = [first + node, first + width + node]
                mask[query, pair] = False  # what padding sees does not matter
                assert not mask[query][:, pair].any()
        first += 2 * width


def test_packed_tokens():
    rows = torch.tensor([[[1, 0], [0, 2], [1, 2]]])
    tree = PrefixTree.build(rows, action_count=3)
    nodes = [
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


@given(batches())
def test_paths_hold_the_candidates_prefixes(case):
    rows, actions = case
    tree = PrefixTree.build(rows, action_count=actions)
    last = torch.cat(tree.actions, dim=1)  # the last action of each node
    paths = tree.paths()
    assert torch.equal(last.gather(1, paths.flatten(1)).view_as(rows), rows)
    for query, candidates in zip(paths.tolist(), rows.tolist(), strict=True):
        prefixes = {}
        for path, candidate in zip(query, candidates, strict=True):
            for level, node in enumerate(path):
                assert prefixes.setdefault(node, candidate[: level + 1]) == candidate[: level + 1]


@given(batches())
def test_without_the_last_level_the_root_is_a_pair_too(case):
    rows, actions = case
    tree = PrefixTree.build(rows, action_count=actions)
    parents, whole = tree.parents(), tree.mask()[:, 0]
    mask = parents.mask()[:, 0]
    assert (parents.roots, parents.widths) == (2, tree.widths[:-1])
    # x_s sees itself, the token after it both, and all nodes both and what they saw before
    assert mask[:, 0].sum() == len(rows)
    assert mask[:, 1:, :2].all()
    assert not mask[:, 1, 2:].any()
    assert torch.equal(mask[:, 2:, 2:], whole[:, 1 : parents.length - 1, 1 : parents.length - 1])


@given(batches())
def test_leaves_come_back_in_the_candidates_order(case):
    rows, actions = case
    tree = PrefixTree.build(rows, action_count=actions)
    powers = actions ** torch.arange(rows.shape[2] - 1, -1, -1)
    codes = rows @ powers
    leaves = codes.gather(1, tree.order)
    assert torch.equal(leaves, codes.sort(dim=1).values)
    assert torch.equal(tree.unsort(leaves), codes)
