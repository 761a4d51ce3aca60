"""Metrics of a training, read from its folder."""

import json


def metrics(folder):
    """The epochs of a training."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
