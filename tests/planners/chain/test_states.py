import numpy as np
import pytest
import torch

from cefito.planners.chain.states import TaskStates, smoothed_transitions


def test_owners_of_actions():
    states = TaskStates.make([[0, 2], [2, 3], [], [0, 2]], 5)
    rows = [[0, 3, 4], [4, 4, 4], [0, 1, 3], [1, 4, 4], [4, 4, 4]]  # 4: no task
    assert states.owners.tolist() == rows
    assert states.shared.tolist() == [True, True, True, False, True, True]


def test_transitions_are_smoothed_shares_of_the_task():
    blocks = TaskStates.make([[0, 1], [1, 2, 3]], 4)
    logs = smoothed_transitions(
        blocks, np.array([[0, 1, 1], [1, 2, 3], [1, 3, 3]]), np.array([0, 1, 1]), 0.2
    )
    shares = logs.exp()
    assert shares[0, :2, :2].tolist() == [
        pytest.approx([0.2 / 1.4, 1.2 / 1.4]),
        pytest.approx([0.2 / 1.4, 1.2 / 1.4]),
    ]
    assert shares[1, 0].tolist() == pytest.approx([0.2 / 2.6, 1.2 / 2.6, 1.2 / 2.6])
    torch.testing.assert_close(shares[1].sum(dim=1), torch.ones(3))


def test_states_come_back_from_their_lookup():
    states = TaskStates.make([[0, 2], [1, 2, 3], []], 5)
    assert states.lookup.nbytes == 8 * 3 * 5  # tasks × actions, as docs/scale.md says
    again = TaskStates.of(states.lookup)
    assert all(torch.equal(getattr(states, name), getattr(again, name)) for name in vars(states))
