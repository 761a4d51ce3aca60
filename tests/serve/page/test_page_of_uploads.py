"""Videos of the user's own on the page, in a real browser."""

from __future__ import annotations

import numpy as np
import pytest

from browsing import faults_light_and_dark, plan_now
from cefito.inference.answer import answer
from cefito.inference.observer import ObservationRecipe
from cefito.serve.settings import Limits

WANTED = "Failed to load resource: the server responded with a status of"


@pytest.fixture(scope="module")
def address(browser, drawn, listening, encoding_here):
    settings = drawn.settings(
        runs=(drawn.lengths.folder,), encoder="own", limits=Limits(upload_mib=1)
    )
    with listening(settings) as address:
        yield address


@pytest.mark.nightly
def test_two_moments_of_a_video_of_ones_own(page, drawn):
    assert page.locator("#no-uploads").is_hidden()
    page.get_by_label("a video of your own").check()
    assert page.locator("#plan").is_disabled()
    film = drawn.folder / "films" / "film-12.mp4"
    page.get_by_label("video file").set_input_files(film)
    page.locator("#timeline").wait_for()
    assert page.locator("#timeline-end").inner_text() == "12.0 s"
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Follow the procedure live").click()
    opened.value.locator("#live-view[src^=blob]").wait_for()  # the film goes with the link
    assert opened.value.locator("#live-view").evaluate("one => one.duration") == 12
    opened.value.close()
    start, end = page.locator("#handle-start"), page.locator("#handle-end")
    start.press("PageUp")
    start.press("ArrowLeft")
    assert start.get_attribute("aria-valuetext") == "second 4.5"
    page.get_by_label("second after the last step").fill("8.2")
    page.get_by_label("second after the last step").press("Tab")
    assert end.get_attribute("aria-valuetext") == "second 8.2"
    page.get_by_label("second before the first step").fill("3")
    page.get_by_label("second before the first step").press("Tab")
    assert page.locator("#end-film").evaluate("one => one.currentTime") == pytest.approx(8.2)

    query = ObservationRecipe.of(drawn.lengths).open().of_video(film, 3, 8.2)
    found = answer(drawn.lengths, query, elapsed=5.2)
    assert plan_now(page) == [plan.names for plan in found.plans]
    assert "start=3&end=8.2&elapsed=5.2" in page.url
    page.get_by_role("button", name="Keep plan 1 as an annotation").click()
    assert page.locator("#kept legend").inner_text() == "film-12, second 3.0 to 8.2"
    assert page.get_by_label("Task of film-12").input_value() == found.plans[0].task
    count = len(found.plans[0].names)
    ends = [
        float(page.get_by_label(f"Second of the end of step {step}").input_value())
        for step in range(1, count + 1)
    ]
    assert ends == pytest.approx(np.linspace(3, 8.2, count + 1)[1:], abs=0.01)
    assert faults_light_and_dark(page) == []

    other = page.context.new_page()
    other.goto(page.url)
    other.locator("#said", has_text="The link holds no files. Choose them again.").wait_for()
    assert other.locator("#time-end").input_value() == "8.2"
    other.close()
