"""The main directions of rows."""

import numpy as np

from cefito.recognition.classifier import Standard


def test_few_rows_have_no_direction_along_which_they_do_not_vary():
    draw = np.random.default_rng(0)
    standard = Standard.of([draw.normal(size=(20, 50)).astype(np.float32)], 30)
    assert standard.directions.shape == (50, 19)
    assert Standard.of([draw.normal(size=(90, 50))], 30).directions.shape == (50, 30)
