"""Equality of weights."""

import torch


def same_weights(left, right):
    """Whether two networks have the same tensors, to the bit."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(map(torch.equal, ours.values(), theirs.values()))
