"""Metrics and weights of a training."""

import json

import torch


def metrics(folder):
    """The epochs of a training."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same_weights(left, right):
    """Whether two networks have the same tensors, to the bit."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(map(torch.equal, ours.values(), theirs.values()))
