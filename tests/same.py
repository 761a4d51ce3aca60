"""Equality of plans and of weights."""

import numpy as np
import torch


def assert_same_plans(left, right, *, rtol=0.0, atol=0.0):
    """The same actions, tasks and exactness; numbers within a tolerance, by default to the bit."""
    assert len(left) == len(right)
    for ours, theirs in zip(left, right, strict=True):
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.tasks, theirs.tasks)
        assert (ours.exact, ours.searched) == (theirs.exact, theirs.searched)
        for name in ("energies", "scores", "probabilities", "task_probabilities"):
            one, other = getattr(ours, name), getattr(theirs, name)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def same_weights(left, right):
    """Whether two networks have the same tensors, to the bit."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(map(torch.equal, ours.values(), theirs.values()))
