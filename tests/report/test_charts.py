"""Charts, as a parser of the page reads them."""

import re

import html5lib
import pytest

from cefito.evaluation.statistics import calibration
from cefito.report.charts import (
    confusion_chart,
    coverage_chart,
    line_chart,
    reliability_chart,
)
from cefito.report.schema import Confusion

CALIBRATION = calibration([0.1, 0.4, 0.9], [0, 1, 1])
CONFUSION = Confusion(tasks={3: "a", 7: "b"}, pairs=[(3, 3, 4), (7, 3, 1), (7, 7, 3)])


def lines(points, **more):
    return line_chart(points, label="<l>", x="a < b", y="y", **more)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: reliability_chart(CALIBRATION),
        lambda: coverage_chart([CALIBRATION] * 9),
        lambda: confusion_chart(CONFUSION),
        lambda: lines([[(1, 3.0)], [(0, 1.0), (1, 5.0)]]),
        lambda: lines([[(0, 0.0), (0, 5e-324)]]),
        lambda: lines([[(3, 0.01), (4, 100.0)], [(3, 0.0)]], logarithmic=True),
    ],
)
def test_charts_are_valid_and_use_the_colours_of_the_page(draw):
    drawing = str(draw())
    html5lib.HTMLParser(strict=True).parseFragment(drawing)
    assert not re.search(r"nan|inf\b|http|url\(|#[0-9a-f]{6}(?![0-9a-f])|font-family", drawing)
    assert "var(--" in drawing
    ids = re.findall(r'id="([^"]*)"', drawing)
    assert set(re.findall(r'href="#([^"]*)"', drawing)) <= set(ids)
    assert len(drawing) < 20_000
    assert str(draw()) == drawing


def test_labels_are_escaped():
    drawing = str(lines([[(0, 1.0), (1, 2.0)]]))
    assert 'aria-label="&lt;l&gt;"' in drawing
    assert "a &lt; b" in drawing


def test_nothing_to_draw():
    assert lines([]) == lines([[(3, 0.0)]], logarithmic=True) == ""


def test_squares():
    drawing = str(confusion_chart(CONFUSION))
    shares = sorted(map(float, re.findall(r"opacity: ([\d.]+)", drawing)))
    assert shares == pytest.approx([0.12 + 0.88 / 4, 0.12 + 0.88 * 3 / 4])
    assert drawing.count("var(--blue)") == 2  # the third share is 1, which has no opacity
