import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.training.losses import adaptive_margins, softmax_contrastive, triplet
from cefito.training.settings import MarginConfig

from .reference import margin

sequences = st.integers(1, 6).flatmap(
    lambda horizon: st.lists(
        st.lists(st.integers(0, 4), min_size=horizon, max_size=horizon), min_size=2, max_size=8
    )
)
energies = st.lists(
    st.lists(st.floats(0, 5, width=32), min_size=4, max_size=4), min_size=1, max_size=5
)


@given(
    rows=sequences,
    low=st.floats(0, 0.2),
    high=st.floats(0.2, 1),
    order=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
)
def test_margins_are_those_of_the_sets(rows, low, high, order):
    positive, *negatives = rows
    value = adaptive_margins(
        torch.tensor([positive, positive]),
        torch.tensor([negatives, negatives]),
        MarginConfig(low=low, high=high, order=order),
    )
    expected = [
        margin(positive, negative, low=low, high=high, order=order) for negative in negatives
    ]
    assert value[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(value[0], value[1])


@given(rows=energies, reduction=st.sampled_from(["mean", "violating"]))
def test_triplet_is_that_of_explicit_loops(rows, reduction):
    values = torch.tensor(rows)
    margins = torch.linspace(0, 1, 3).expand(len(rows), -1)
    total, count = 0.0, 0
    for row in values.tolist():
        for negative, bound in zip(row[1:], margins[0].tolist(), strict=True):
            loss = max(row[0] - negative + bound, 0.0)
            total += loss
            count += 1 if reduction == "mean" or loss > 0 else 0
    value, divisor = triplet(values[:, 0], values[:, 1:], margins, reduction)
    assert value.item() == pytest.approx(total, rel=1e-5, abs=1e-5)
    # rounding may move a loss of nearly nothing to either side
    near = sum(
        abs(row[0] - negative + bound) < 1e-6
        for row in values.tolist()
        for negative, bound in zip(row[1:], margins[0].tolist(), strict=True)
    )
    assert abs(int(divisor) - count) <= (near if reduction == "violating" else 0)


@given(rows=energies, temperature=st.floats(0.05, 3))
def test_softmax_is_a_log_sum_exp(rows, temperature):
    values = torch.tensor(rows)
    total = 0.0
    for row in values.double().tolist():
        logits = [-energy / temperature for energy in row]
        top = max(logits)
        total += top + math.log(sum(math.exp(logit - top) for logit in logits)) - logits[0]
    value, count = softmax_contrastive(values[:, 0], values[:, 1:], temperature)
    assert value.item() == pytest.approx(total, rel=1e-4, abs=1e-4)
    assert int(count) == len(rows)
