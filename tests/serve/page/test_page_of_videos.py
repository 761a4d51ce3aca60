"""The choice of a video and a gap on the page, and its link, in a real browser."""

from __future__ import annotations

import pytest

from browsing import choose_video, faults, move_handle, open_page, plan_now, strips

WANTED = "Failed to load resource: the server responded with a status of 422"


def listed(page):
    return page.locator("#videos li b").all_inner_texts()


@pytest.mark.nightly
def test_the_list_narrows_while_words_are_typed(page):
    field = page.get_by_role("combobox", name="video")
    assert page.locator("#lead").is_visible()
    assert page.locator("#videos-said").inner_text() == "14 videos"
    field.click()
    page.locator("#videos").wait_for()
    assert listed(page)[:4] == [f"film-{number}" for number in (10, 11, 12, 13)]  # of test first
    for words, count in (("TOAST", 7), ("toast film-1", 3), ("leaves", 7), ("no such", 0)):
        field.fill(words)
        said = f"{count} videos" if count else "No video fits."
        page.locator("#videos-said", has_text=said).wait_for()
        assert len(listed(page)) == count
    assert page.locator("#videos").is_hidden()
    field.press("Escape")
    assert field.input_value() == "film-10"

    field.fill("film-1")  # also a part of other ids
    page.locator("#videos-said", has_text="5 videos").wait_for()
    assert listed(page)[0] == "film-1"
    assert faults(page) == []
    field.press("ArrowDown")
    active = page.locator(f"#{field.get_attribute('aria-activedescendant')}")
    assert active.locator("b").inner_text() == listed(page)[1]
    field.press("Enter")
    assert field.input_value() == "film-10"
    assert field.get_attribute("aria-expanded") == "false"


def test_what_the_service_declares_without_messages_is_shown_in_its_own_words(page, address):
    def fewer(route):
        messages = route.fetch().json().items()
        route.fulfill(json={key: text for key, text in messages if not key.startswith("held.")})

    page.route("**/messages/en.json", fewer)
    page.reload()
    page.locator("#plan:enabled").wait_for()
    page.evaluate("import('/static/constraints.js').then((one) => one.add('pin', [2, 1]))")
    page.locator("#held", has_text="action warm the pot at step 2").wait_for()
    finding = "{ name: 'pour', kind: 'spilt', words: 'spilt a little' }"
    told = f"import('/static/findings.js').then((one) => one.findingWords({finding}))"
    assert page.evaluate(told) == {"step": "pour", "finding": "spilt a little"}


@pytest.mark.nightly
def test_a_link_holds_the_query(page):
    page.get_by_label("task", exact=True).select_option(label="make toast")
    page.locator("#plan:enabled").wait_for()
    page.get_by_label("tell the planner the task").check()
    choose_video(page, "film-11")
    move_handle(page, "start", 2)
    plans = plan_now(page)
    page.locator("#plans ol").nth(1).locator("button").first.click()
    page.get_by_role("button", name="Pin it to step 1").click()
    page.locator("#plans li[data-pinned]").first.wait_for()
    page.locator("#add-no_repeats").evaluate("one => one.requestSubmit()")
    page.locator("#held li").nth(1).wait_for()
    page.locator("#answer:not([aria-busy])").wait_for()
    plans, held = strips(page), page.locator("#held span").all_inner_texts()

    other = open_page(page.context.new_page(), page.url)
    other.locator("#said", has_text="plans in").wait_for()
    assert strips(other) == plans
    assert other.locator("#held span").all_inner_texts() == held
    assert other.get_by_label("tell the planner the task").is_checked()
    assert other.get_by_label("video", exact=True).input_value() == "film-11"
    assert other.locator("#handle-start").get_attribute("aria-valuenow") == "2"
    other.close()


def test_options_are_fields_of_the_query_and_warnings_are_shown(page):
    def reading(route):  # as if the encoder of the run read texts
        model = route.fetch().json()
        model["runs"][1]["uploads"].append("text")
        route.fulfill(json=model)

    def warning(route):
        route.fulfill(json=route.fetch().json() | {"warnings": ["the scenes say otherwise"]})

    page.route("**/v1/model", reading)
    page.route("**/v1/plan", warning)
    open_page(page, page.url)
    page.locator("#options").evaluate("one => { one.open = true; }")
    for shown in (page.locator("#graph"), page.get_by_label("or the goal in words")):
        assert shown.is_hidden()  # of a run without orders, whose encoder reads no texts
    page.get_by_label("run", exact=True).select_option(index=1)
    page.locator("#plan:enabled").wait_for()
    page.get_by_label("number of plans").fill("2")
    assert len(plan_now(page)) == 2
    assert page.locator("#warnings li").all_inner_texts() == ["the scenes say otherwise"]
    page.unroute("**/v1/plan")
    page.locator("#graph").wait_for()  # the order of the task's steps
    page.get_by_label("task", exact=True).select_option(label="make tea")
    page.locator("#videos-said", has_text="7 videos").wait_for()  # of 14
    page.get_by_label("tell the planner the task").check()
    page.get_by_label("share of new videos to cover").fill("0.5")
    page.get_by_label("or the goal in words").fill("a cup of tea")
    for given in ("a video of the data set", "nothing: the task or the steps done alone"):
        page.get_by_label(given).check()
        with page.expect_request("**/v1/plan") as asked:
            page.get_by_role("button", name="Plan", exact=True).click()
        question = asked.value.post_data_json
        facts = {"top_k": 2, "task": 0, "coverage": 0.5, "goal_text": "a cup of tea"}
        assert question.items() >= facts.items()
        assert question.get("video", {}).get("goal") == (False if "video" in given else None)
