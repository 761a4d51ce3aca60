import re

import html5lib
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cefito.report.charts import Series, bar, heat_map, histogram, line_chart

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


def checked(drawing):
    """It is valid inside a page, and every number in it is one."""
    html5lib.HTMLParser(strict=True).parseFragment(str(drawing))
    assert not re.search(r"nan|inf|http", str(drawing))
    return str(drawing)


def test_a_bar():
    drawing = checked(bar(40, 30, 50.5))
    assert 'width="40"' in drawing
    assert 'x="30"' in drawing
    assert 'width="20.5"' in drawing
    assert "whisker" not in checked(bar(0))


def test_a_line_goes_where_its_points_are():
    drawing = checked(
        line_chart(
            [Series("a", [(0, 0), (50, 50), (100, 100)])],
            label="l",
            x="x",
            y="y",
            x_ends=(0, 100),
            y_ends=(0, 100),
        )
    )
    (path,) = re.findall(r'class="line h0" d="M([^"]*)"', drawing)
    places = [tuple(map(float, pair.split())) for pair in path.split("L")]
    assert places == [(54, 196), (232, 103), (410, 10)]  # the corners of the axes, and the middle


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=300))
@example([(0.0, 0.0), (0.0, 5e-324)])
@example([(0.0, 0.0), (0.0, 1e-322)])
def test_any_points(points):
    drawing = checked(line_chart([Series("<&>", points)], label='"', x="x", y="y"))
    assert ("<&>" in drawing) is False
    assert len(drawing) < 8000  # however many points there are


def test_powers_of_ten():
    series = [Series("a", [(3, 0.01), (4, 100)]), Series("b", [(3, 0)])]
    drawing = checked(line_chart(series, label="l", x="x", y="y", logarithmic=True))
    assert [found for found in ("0.01", "0.1", "1", "10", "100") if f">{found}</text>" in drawing]
    assert "h1" not in drawing or "circle" not in drawing  # 0 has no place there


def test_nothing_to_draw():
    assert line_chart([], label="l", x="x", y="y") == ""


def test_bars_of_a_histogram():
    drawing = checked(histogram([-1.0, 0.0, 1.0, 2.0], [1, 4, 2], label="l", x="x"))
    heights = [float(found) for found in re.findall(r'height="([\d.]+)"/>', drawing)]
    assert heights == pytest.approx([46.5, 186, 93], abs=0.06)
    assert drawing.count('class="wrong"') == 1


def test_cells_of_a_map():
    drawing = checked(
        heat_map(["a<", "b"], [[1, 0], [0.25, 0.75]], label="l", rows="r", columns="c")
    )
    assert drawing.count("<rect") == 4  # three shares and the frame
    assert "b → a&lt;: 25 %" in drawing
