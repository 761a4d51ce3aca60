"""Metrics of recognised steps, by hand."""

import numpy as np
import pytest

from cefito.data.annotations import Step
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS, FollowedRows, ScoredVideo

# two rows a second: nothing, step 0 from 1 to 3 s, nothing, step 1 from 4 to 5 s
TRUTH = np.array([2, 2, 0, 0, 0, 0, 2, 2, 1, 1])
STEPS = (Step(1.0, 3.0, 0), Step(4.0, 5.0, 1))
OURS = np.array([2, 2, 0, 0, 2, 2, 2, 2, 1, 1])


def sums(**changes):
    given = {"labels": OURS, "truth": TRUTH, "background": 2, "rate": 2.0, "steps": STEPS}
    video = ScoredVideo(**{**given, **changes})
    return {name: metric.total(video) for name, metric in RECOGNISER_METRICS.items()}


def test_rows_and_segments():
    found = sums()
    assert found["frame"] == (8, 10)
    assert found["edit"] == (1, 1)
    assert (found["f1_25"], found["f1_50"], found["count"]) == ((2, 2), (2, 2), (2, 2))
    assert sums(labels=np.where(OURS == 0, 1, OURS))["f1_10"] == (1, 2)
    assert found["task"] is None
    assert sums(task_right=True)["task"] == (1, 1)
    online = ("current", "next", "done", "done_difference", "detected", "delay_seconds")
    assert [found[name] for name in online] == [None] * 6


def test_rows_that_were_followed():
    now = np.array([2, 2, 2, 0, 0, 0, 2, 2, 2, 2])  # step 0 from its second row on, step 1 never
    ahead = np.array([0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    found = sums(followed=FollowedRows(now, ahead, done=3))
    assert found["current"] == (7, 10)
    # up to 1 s comes step 0, then step 1, up to 4 s; a row counts as at its middle
    assert found["next"] == (7, 8)
    assert found["done"] == (3, 2)
    assert found["done_difference"] == (pytest.approx(1 / 2), 1)
    assert found["detected"] == (1, 2)
    assert found["delay_seconds"] == (pytest.approx(4 / 2 - 1.0), 1)
