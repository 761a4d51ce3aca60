"""Times in videos."""

import numpy as np
import pytest

from cefito.markup import as_seconds, parse_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("43,27", 43.27), ("00:43.27", 43.27), ("1:02:03,5", 3723.5), ("75:12", 4512.0)),
        *(("1e2", 100.0), (".5", 0.5), ("-3", -3.0), ("0:30", 30.0), (" 30,5 ", 30.5)),
    ],
)
def test_times(text, expected):
    assert parse_seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1:60",
        "1:75:00",
        "1:2:3:4",
        "1.234,5",
        "1,234,567",
        "-1:00",
        "1_000",
        "٣",
        "inf",
        "nan",
        "1e999",
        "9" * 99,
    ],
)
def test_texts_that_are_not_times(text):
    with pytest.raises(ValueError, match="is not a time"):
        parse_seconds(text)


def test_values_of_json_and_tables():
    assert [as_seconds(value) for value in (3, 4.5, np.float32(0.5), "0:30")] == [3, 4.5, 0.5, 30]
    for value in (True, np.True_, None, [1], "1_0"):
        with pytest.raises(ValueError, match="is not a time"):
            as_seconds(value)
