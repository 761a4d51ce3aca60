"""Metrics and weights of a training."""

import json

import torch


def metrics(folder):
    """The epochs of a training."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same_tensors(ours, theirs):
    """Whether there are the same tensors by the same names, to the bit."""
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


def same_weights(left, right):
    """Whether two networks have the same tensors."""
    return same_tensors(left.state_dict(), right.state_dict())
