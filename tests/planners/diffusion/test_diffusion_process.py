import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.planners.diffusion.network import Diffusion
from drawn import drawn

# the schedule


@pytest.mark.parametrize("steps", [1, 7, 50, 200])
def test_signal_follows_the_cosine_schedule(steps):
    def share(time: int) -> float:
        return math.cos((time / steps + 0.008) / 1.008 * math.pi / 2) ** 2

    signal, expected = 1.0, [1.0]
    for time in range(1, steps + 1):
        signal *= 1 - min(1 - share(time) / share(time - 1), 0.999)
        expected.append(signal)
    np.testing.assert_allclose(
        Diffusion(steps=steps, sampling=1).signal.numpy(), expected, rtol=1e-9
    )
    if steps >= 50:
        assert expected[-1] < 1e-5


@given(st.integers(1, 300), st.data())
def test_times_are_uniform_and_end_at_0(steps, data):
    sampling = data.draw(st.integers(1, steps))
    times = Diffusion(steps=steps, sampling=sampling).times
    gaps = [one - two for one, two in itertools.pairwise(times)]
    assert times[0] == steps
    assert times[-1] == 0
    assert len(gaps) == sampling
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= (1 if steps % sampling else 0) + 1e-9
    assert all(
        abs(time - steps * left / sampling) <= 0.5
        for time, left in zip(times, range(sampling, -1, -1), strict=True)
    )


def test_sampling_against_a_slow_reference():
    diffusion, network_like = Diffusion(steps=20, sampling=5), drawn(4, 4, seed=3).double() / 4
    start = drawn(1, 3, 4, seed=1).double()
    result = diffusion.sample(
        lambda x, now: torch.tanh(x @ network_like + now / 20), start, lambda x: x
    )
    x = start.numpy().copy()
    for now, after in ((20, 16), (16, 12), (12, 8), (8, 4), (4, 0)):
        clean = np.tanh(x @ network_like.numpy() + now / 20)
        one, two = float(diffusion.signal[now]), float(diffusion.signal[after])
        noise = (x - math.sqrt(one) * clean) / math.sqrt(1 - one)
        x = math.sqrt(two) * clean + math.sqrt(1 - two) * noise
    np.testing.assert_allclose(result.numpy(), x, rtol=1e-9)
