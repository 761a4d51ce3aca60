"""The page driven in a real browser: choose, plan, pin, see it planned again, see errors."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browsing import choose_video, faults_light_and_dark, move_handle, plan_now, strips
from cefito.inference.answer import answer
from cefito.inference.constraints import NamedConstraints
from cefito.inference.query import query_from_video
from cefito.report.breakdowns import step_kinds

KINDS = {"r": "right", "u": "substitution", "o": "order", "a": "repetition"}
WANTED = (
    "Failed to load resource: the server responded with a status of 422",
    "Failed to load resource: net::ERR_INTERNET_DISCONNECTED",
)


def planned_again(page):
    """Wait for plans after a change of constraints; their strips, as names."""
    page.locator("#said", has_text="Planned again").wait_for()
    page.locator("#answer:not([aria-busy])").wait_for()
    return strips(page)


def choose(page, task="make toast", video="film-13", step=2):
    page.get_by_label("task", exact=True).select_option(label=task)
    page.locator("#plan:enabled").wait_for()
    choose_video(page, video)
    move_handle(page, "start", step)


def wanted(drawn, video="film-13", step=2, **constraints):
    """The plans of the library."""
    query, truth = query_from_video(drawn.run, video, step)
    found = answer(drawn.run, query, constraints=NamedConstraints(**constraints), truth=truth)
    return [plan.names for plan in found.plans], found


def test_choose_plan_pin_and_see_it_planned_again(page, drawn):
    choose(page)
    for frame in ("#start", "#end"):
        page.locator(f"{frame}[src^='blob:']").wait_for()
        width = "image => image.decode().then(() => image.naturalWidth)"
        assert page.locator(frame).evaluate(width) == 64
    assert page.locator("#start-said").inner_text() == "before: second 3.0"
    plans, found = wanted(drawn)
    assert plan_now(page) == plans
    assert found.task in page.locator("#task-said").inner_text()
    assert (
        f"{100 * found.plans[0].probability:.1f} %" in page.locator("#plans .p").first.inner_text()
    )

    # the first step of the first plan that begins otherwise than the best one
    other = next(number for number, plan in enumerate(plans) if plan[0] != plans[0][0])
    page.locator("#plans ol").nth(other).locator("button").first.click()
    dialog = page.get_by_role("dialog", name=f"Step 1: {plans[other][0]}")
    dialog.get_by_role("button", name="Pin it to step 1").click()
    again = planned_again(page)
    assert again == wanted(drawn, pinned=((1, plans[other][0]),))[0]
    assert {plan[0] for plan in again} == {plans[other][0]}
    assert page.locator("#plans li[data-pinned]").count() == len(again)
    assert page.locator("#held").inner_text().startswith(f"“{plans[other][0]}” at step 1")

    page.get_by_role("button", name="Remove all").click()
    page.locator("#constraints").wait_for(state="hidden")
    page.locator("#said", has_text="Planned again").wait_for()
    page.locator("#plans li[data-pinned]").first.wait_for(state="detached")
    assert strips(page) == plans
    assert page.locator("#plans .p:has(.bar)").count() == len(plans)

    first, *_, last = plans[0]
    page.locator("#plans ol").first.locator("button").last.click()
    page.get_by_label("it comes before").select_option(label=first)
    page.get_by_role("button", name="Order").click()
    assert planned_again(page) == wanted(drawn, before=((last, first),))[0] != plans


@pytest.mark.nightly
def test_an_error_says_what_to_do_and_can_be_undone(page, drawn):
    choose(page)
    plans = plan_now(page)
    name = plans[0][1]
    for button in ("Pin it to step 2", "Forbid it"):
        page.locator("#plans ol").first.locator("button").nth(1).click()
        page.get_by_role("button", name=button).click()
        if button != "Forbid it":
            planned_again(page)
    alert = page.get_by_role("alert")
    alert.locator("p").wait_for()
    assert name in alert.inner_text()
    assert "satisfies all constraints" in alert.inner_text()
    assert alert.inner_text().count("\n") == 0
    assert page.locator("#old-said").is_visible()

    page.get_by_role("button", name=f"Remove: “{name}” forbidden").click()
    page.locator("#problem p").wait_for(state="detached")
    assert {plan[1] for plan in planned_again(page)} == {name}
    assert page.locator("#old-said").is_hidden()


@pytest.mark.nightly
def test_with_the_keyboard_alone(page):
    def focused():
        return page.evaluate("document.activeElement.id || document.activeElement.textContent")

    def tab_to(name, most=60):
        for _ in range(most):
            page.keyboard.press("Tab")
            if focused() == name:
                return
        raise AssertionError(f"{name} cannot be reached")

    page.locator("#options").evaluate("one => { one.open = false; }")
    tab_to("Options: run, task, number of steps, constraints")
    page.keyboard.press("Enter")
    tab_to("task")
    page.keyboard.press("ArrowDown")
    page.locator("#given:enabled").wait_for()
    page.locator("#plan:enabled").wait_for()
    tab_to("video")
    page.keyboard.type("leaves 12")
    page.locator("#videos li").first.wait_for()
    page.keyboard.press("Enter")
    expect(page.locator("#video")).to_have_value("film-12")
    tab_to("handle-start")
    page.keyboard.press("ArrowRight")
    assert page.locator("#handle-start").get_attribute("aria-valuenow") == "2"
    tab_to("plan")
    page.keyboard.press("Enter")
    page.locator("#said", has_text="plans in").wait_for()
    page.locator("#answer:not([aria-busy])").wait_for()
    first = strips(page)[0][0]
    tab_to(first)
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    assert focused() == "step-pin"
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    assert focused() == first  # where it was
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused() == "step-forbid"
    page.keyboard.press("Enter")
    assert all(first not in plan for plan in planned_again(page))
    assert focused() == "plans-head"


@pytest.mark.nightly
def test_nothing_serious_for_axe(page):
    assert faults_light_and_dark(page) == []
    plan_now(page)
    page.get_by_label("compare with the annotated steps").check()
    page.get_by_label("add a constraint").select_option("no_repeats")
    page.locator("#plans ol button").first.click()
    assert faults_light_and_dark(page) == []  # the dialog
    page.get_by_role("button", name="Pin it to step 1").click()
    planned_again(page)
    page.locator("#plans ol button").first.click()
    page.get_by_role("button", name="Forbid it").click()
    page.locator("#problem p").wait_for()
    assert faults_light_and_dark(page) == []  # plans, truth, constraints, a problem
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert faults_light_and_dark(page) == []
    heights = "all => all.map(one => one.getBoundingClientRect().height).filter(Boolean)"
    steps = page.locator("#plans li").evaluate_all(heights)
    assert min(steps) > max(page.locator("button:not(#plans *)").evaluate_all(heights))


def test_steps_are_marked_numbers_explained_and_the_page_is_small_and_printed(page, drawn):
    choose(page)
    plan_now(page)
    page.locator("#compare").check()
    _, found = wanted(drawn)
    marks = "all => all.map(one => one.className)"
    for strip, plan in zip(page.locator("#plans ol").all(), found.plans, strict=True):
        kinds = step_kinds(plan.actions, found.truth.actions)
        shown = [KINDS[mark] for mark in strip.locator("li").evaluate_all(marks)]
        assert shown == list(kinds)
    numbers = page.locator(".number")
    titles = numbers.evaluate_all("all => all.map(one => one.title)")
    means = numbers.evaluate_all(
        "all => all.map(one => document.getElementById("
        "one.getAttribute('aria-describedby')).textContent)"
    )
    assert titles == means
    assert len(titles) > len(found.plans)
    assert all(titles)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.pdf().startswith(b"%PDF")
