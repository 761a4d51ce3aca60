"""Plans that are kept, corrected and downloaded as a new annotation, in a real browser."""

from __future__ import annotations

import pytest

from browsing import choose_video, faults, move_handle, plan_now, strips
from cefito.data.readers.assemble import prepare
from cefito.data.readers.step_source import read_steps

pytestmark = pytest.mark.nightly


@pytest.fixture
def page(page):
    """The page with the plans of steps 2 to 4 of a video."""
    choose_video(page, "film-13")
    move_handle(page, "start", 2)
    plan_now(page)
    return page


def downloaded(page, path):
    """The downloaded table, as the preparation of data sets reads it."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Download STEPS.csv").click()
    assert download.value.suggested_filename == "STEPS.csv"
    download.value.save_as(path)
    return read_steps(path)


def steps_of(table):
    """Names and times of the steps of the one video of a table."""
    (video,) = table.annotations.videos
    names = table.annotations.taxonomy.names([step.action for step in video.steps])
    return video, [
        (name, step.start, step.end) for name, step in zip(names, video.steps, strict=True)
    ]


def test_a_plan_is_corrected_and_prepared_again(page, drawn, tmp_path):
    first, second, third = strips(page)[1]
    page.get_by_role("button", name="Keep plan 2 as an annotation").click()
    assert page.evaluate("document.activeElement.id") == "annotation-head"
    assert faults(page) == []
    video, steps = steps_of(downloaded(page, tmp_path / "kept.csv"))
    assert video.video_id == "film-13"
    assert steps == [(first, 3.0, 5.0), (second, 5.0, 7.0), (third, 7.0, 9.0)]  # as annotated

    page.get_by_label("Name of step 1 of film-13").fill('=a new one, “quoted” "twice"')
    page.get_by_label("Name of step 1 of film-13").press("Enter")  # downloads nothing
    page.get_by_role("button", name="Move down step 2 of film-13").click()
    page.get_by_role("button", name="Add a step to film-13").click()
    page.keyboard.type("cut")
    page.get_by_label("Second of the end of step 2").fill("7.5")
    assert page.get_by_label("Name of step 4").input_value() == "cut"
    page.get_by_role("button", name="Download STEPS.csv").click()  # the last has no times
    assert page.locator("#kept-0-start-3").evaluate("one => one.matches(':invalid')")
    page.get_by_role("button", name="Share the time of film-13 evenly").click()
    page.get_by_label("Task of film-13").fill("make another toast")
    page.get_by_label("Task of film-13").press("Tab")
    table = downloaded(page, tmp_path / "corrected.csv")
    video, steps = steps_of(table)
    names = ['=a new one, “quoted” "twice"', third, second, "cut"]
    assert steps == [(name, 3 + 1.5 * n, 4.5 + 1.5 * n) for n, name in enumerate(names)]
    assert [task.name for task in table.annotations.taxonomy.tasks] == ["make another toast"]

    page.get_by_role("button", name="Remove step 2 of film-13").click()
    page.get_by_label("Second of the end of step 3").fill("5")
    page.get_by_role("button", name="Download STEPS.csv").click()
    wrong = page.locator("#kept-0-end-2")
    assert wrong.evaluate("one => one.validationMessage") == "It ends before it starts."
    wrong.fill("10")
    _, steps = steps_of(downloaded(page, tmp_path / "STEPS.csv"))
    assert steps[-1] == ("cut", 7.0, 10.0)
    dataset = prepare(
        read_steps(tmp_path / "STEPS.csv"), drawn.folder / "features", tmp_path / "data", seconds=1
    )
    assert [len(video.steps) for video in dataset.videos] == [3]
