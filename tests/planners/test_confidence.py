"""The temperature of confidence."""

import math

import numpy as np
import pytest

from cefito.planners.shared.task_model import COLDEST, HOTTEST, confident_temperature


def heated(logit):
    return lambda temperature: np.full(100, 1 / (1 + math.exp(-logit / temperature)))


def test_many_videos_decide_and_few_leave_the_centre():
    right = np.arange(100) < 60
    few, more, many = (
        confident_temperature(heated(2.0), right, videos=videos, centre=1.5)
        for videos in (1, 30, 100_000)
    )
    assert 1.5 < few < more < many
    assert heated(2.0)(many)[0] == pytest.approx(0.6, abs=1e-3)


def test_nothing_is_known_without_queries():
    nobody = np.zeros(0)
    assert confident_temperature(lambda _: nobody, nobody == 1, videos=0, centre=1.2) == 1.2


def test_it_stays_between_its_bounds_where_all_or_none_are_right():
    for right in (np.zeros(100, dtype=bool), np.ones(100, dtype=bool)):
        found = confident_temperature(heated(2.0), right, videos=10_000)
        assert COLDEST <= found <= HOTTEST
