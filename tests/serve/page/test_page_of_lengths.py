"""The page on a run of several lengths, in a real browser."""

from __future__ import annotations

import pytest

from browsing import choose_video, faults, move_handle, names, plan_now, strips
from cefito.inference.answer import answer
from cefito.inference.query import query_from_video
from cefito.inference.question import planning

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def address(browser, drawn, listening, encoding_here):
    runs = (drawn.lengths.folder, drawn.run.folder)
    with listening(drawn.settings(runs=runs, encoder=str(drawn.encoder))) as address:
        yield address


def choose(page, video="film-13", step=2):
    choose_video(page, video)
    move_handle(page, "start", step)
    if page.locator("#handle-end").is_visible():
        move_handle(page, "end", min(5, step + 3))


def shares(page):
    """The distribution of the number of steps as shown."""
    return dict(
        page.locator("#shares li").evaluate_all(
            "all => all.map(one => [one.querySelector('b').innerText,"
            " one.querySelector('.share').innerText])"
        )
    )


def shown(found):
    return {str(length): f"{100 * share:.1f} %" for length, share in found.lengths.items()}


def test_any_number_of_steps(page, drawn):
    choose(page)
    assert page.locator("#end-said").inner_text() == "after: second 11.0"
    query, truth = query_from_video(drawn.lengths, "film-13", 2)
    assert page.locator("#elapsed").input_value() == "8"
    found = answer(drawn.lengths, query, elapsed=8)
    assert plan_now(page) == [plan.names for plan in found.plans]
    assert shares(page) == shown(found)
    assert page.locator("#shares-said").inner_text() == "number of steps"
    page.get_by_label("compare with the annotated steps").check()
    assert names(page.locator("#truth ol")) == drawn.dataset.taxonomy.names(truth)

    page.get_by_label("number of steps").select_option("2")
    assert page.locator("#end-said").inner_text() == "after: second 7.0"
    assert page.locator("#handle-start").get_attribute("aria-valuenow") == "2"
    run = planning(drawn.lengths, 2)
    page.get_by_label("seconds between both scenes, if known").fill("")
    found = answer(run, query_from_video(run, "film-13", 2)[0])
    assert plan_now(page) == [plan.names for plan in found.plans]
    assert page.locator("#shares").is_hidden()


def test_no_goal_and_steps_done(page, drawn):
    choose(page, step=3)
    page.locator("#end[src^='blob:']").wait_for()
    page.get_by_label("no goal picture: plan to the end").check()
    assert page.locator("#end").is_hidden()
    page.get_by_label("steps done before", exact=True).select_option("those of the video")
    query, _ = query_from_video(drawn.lengths, "film-13", 3, goal=False, done=True)
    found = answer(drawn.lengths, query)
    assert plan_now(page) == [plan.names for plan in found.plans]
    assert page.locator("#shares-said").inner_text() == "steps to the end, at most 4"
    assert shares(page) == shown(found)

    page.get_by_label("steps done before", exact=True).select_option("these")
    assert page.locator("#answer").is_hidden()
    assert page.locator("#done-none").is_visible()
    for name in ("slice bread", "cut"):
        page.get_by_label("next one done").select_option(label=name)
        page.get_by_role("button", name="Add", exact=True).click()
    assert page.locator("#done li > span").all_inner_texts() == ["slice bread", "cut"]
    query, _ = query_from_video(drawn.lengths, "film-13", 3, goal=False)
    found = answer(drawn.lengths, query, done=["slice bread", "cut"])
    assert plan_now(page) == [plan.names for plan in found.plans]
    assert faults(page) == []
    page.get_by_role("button", name="Remove step done: slice bread").click()
    found = answer(drawn.lengths, query, done=["cut"])
    assert plan_now(page) == [plan.names for plan in found.plans]
    page.goto(page.url)  # the link of the query
    page.locator("#said", has_text="plans in").wait_for()
    assert page.locator("#done li > span").all_inner_texts() == ["cut"]
    assert strips(page) == [plan.names for plan in found.plans]
