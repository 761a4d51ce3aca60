"""Charts, as a parser of the page reads them."""

import re

import html5lib
import pytest

from cefito.evaluation.statistics import calibration
from cefito.report.page import coverage_chart, line_chart, reliability_chart

CALIBRATION = calibration([0.1, 0.4, 0.9], [0, 1, 1])


def line(*points):
    return line_chart(points, label="<l>", x="a < b", y="y")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: reliability_chart(CALIBRATION),
        lambda: coverage_chart([CALIBRATION] * 9),
        lambda: line((1, 3.0)),
        lambda: line((0, 0.0), (0, 5e-324)),
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
    drawing = str(line((0, 1.0), (1, 2.0)))
    assert 'aria-label="&lt;l&gt;"' in drawing
    assert "a &lt; b" in drawing
