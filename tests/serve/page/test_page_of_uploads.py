"""Videos of the user's own on the page, in a real browser."""

from __future__ import annotations

import pytest

from browsing import faults_light_and_dark, open_page, plan_now
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
    page.get_by_label("two moments of a video of your own").check()
    assert page.locator("#plan").is_disabled()
    film = drawn.folder / "films" / "film-12.mp4"
    page.get_by_label("video file").set_input_files(film)
    page.locator("#timeline").wait_for()
    assert page.locator("#timeline-end").inner_text() == "12.0 s"
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
    assert faults_light_and_dark(page) == []

    other = page.context.new_page()
    other.goto(page.url)
    other.locator("#said", has_text="The link holds no files. Choose them again.").wait_for()
    assert other.locator("#time-end").input_value() == "8.2"
    other.get_by_label("video file").set_input_files(film)
    other.locator("#timeline").wait_for()
    assert other.locator("#handle-end").get_attribute("aria-valuetext") == "second 8.2"
    other.close()

    page.get_by_label("no goal picture: plan to the end").check()
    assert page.locator("#end-film").is_hidden()
    query = ObservationRecipe.of(drawn.lengths).open().of_video(film, 3, None)
    assert plan_now(page) == [plan.names for plan in answer(drawn.lengths, query).plans]


@pytest.mark.nightly
def test_a_video_that_the_browser_cannot_show_and_one_that_is_too_large(page, tmp_path):
    page.get_by_label("two moments of a video of your own").check()
    (tmp_path / "odd.avi").write_bytes(b"RIFF0000AVI LIST" + bytes(100))
    page.get_by_label("video file").set_input_files(tmp_path / "odd.avi")
    page.locator("#film-said", has_text="The browser cannot show this video.").wait_for()
    assert page.locator("#timeline").is_hidden()
    page.get_by_label("second before the first step").fill("1")
    page.get_by_label("second after the last step").fill("4")
    page.get_by_label("second after the last step").press("Tab")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#problem", has_text="cannot be opened as a video").wait_for()

    (tmp_path / "large.mp4").write_bytes(bytes(3 << 20))
    page.get_by_label("video file").set_input_files(tmp_path / "large.mp4")
    said = "large.mp4 has 3.0 MiB; this service takes uploads up to 1.0 MiB."
    page.locator("#problem", has_text=said).wait_for()
    assert page.locator("#plan").is_disabled()


@pytest.mark.nightly
def test_a_service_without_an_encoder_says_so(browser, drawn, listening):
    with listening(drawn.settings()) as address:
        page = open_page(browser.new_page(), address)
        assert "without an encoder" in page.locator("#no-uploads").inner_text()
        assert page.locator("#of-film").is_hidden()
        page.close()
