"""A live session on the page, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from browsing import begin, choose_video, faults_light_and_dark, open_session
from cefito.inference.query import observation_of_step
from cefito.inference.session import Session

WANTED = "Failed to load resource: "
VIDEO = "film-13"
STEPS = ["slice bread", "toast slices", "spread butter"]


@pytest.fixture
def page(page):
    """The page of sessions with a video chosen; its run is said to be simulated."""

    def simulated(route):
        model = route.fetch().json()
        model["runs"][1]["simulated"] = True
        route.fulfill(json=model)

    assert page.locator("#simulated").is_hidden()
    page.route("**/v1/model", simulated)
    open_session(page)
    page.locator("#simulated").wait_for()
    choose_video(page, VIDEO)
    return page


def act(page, work):
    """Do something that the service is told, and wait for its answer."""
    with page.expect_response(re.compile("/events$")) as told:
        work()
    assert told.value.status == 200
    page.locator("#live:not([aria-busy])").wait_for()


def press(page, name):
    act(page, lambda: page.get_by_role("button", name=name, exact=True).click())


def percent(value):
    return f"{100 * value:.1f} %"


def same(page, session, run):
    """The panel shows what a session of the library believes."""
    belief = session.belief()
    assert page.locator("#live-done li").all_inner_texts() == [
        f"{step.name} "
        + ("reported" if step.reported else f"inferred, {percent(step.probability)}")
        for step in belief.done
    ]
    assert page.locator("#live-nothing").is_visible() == (not belief.done)
    task = belief.tasks[0]
    assert (
        f"Task: {task.name}, {percent(task.probability)}" in page.locator("#live-task").inner_text()
    )
    shown = page.locator("#live-now li").evaluate_all(
        "all => all.map(one => [...one.querySelectorAll('span')].slice(0, 2)"
        ".map(part => part.innerText))"
    )
    assert shown == [[name, percent(share)] for name, share in session.next_steps(5)]
    plans = session.plans_by_next(5)[:3]
    assert [
        one.locator("li").all_inner_texts() for one in page.locator("#live-plans ol").all()
    ] == [run.taxonomy.names(plan.actions) for plan in plans]
    assert page.locator("#live-notes li").all_inner_texts() == list(session.notes)


def test_three_steps_and_an_undo(page, drawn):
    run = drawn.lengths
    session = Session(run)
    assert faults_light_and_dark(page) == []
    expect(page.locator("#live-view")).to_have_attribute("src", re.compile(f"film.*{VIDEO}"))
    begin(page)
    same(page, session, run)
    assert page.locator("#live-undo").is_disabled()
    remaining = page.locator("#live-remaining").inner_text()
    assert remaining.startswith("Steps that remain: ")
    size = "one => parseFloat(getComputedStyle(one).fontSize)"
    for part in ("#live-going", "#live-coming"):  # to be read from afar
        assert page.locator(part).evaluate(size) >= 1.5 * page.locator("body").evaluate(size)
    assert "4 or more" in remaining

    # seen in the video, done by a button of the list, done by the list of all steps
    session.observe(observation_of_step(drawn.dataset, VIDEO, 1, "start"))
    page.get_by_label("seen, in the video").select_option("1")
    press(page, "Observe: the video")
    same(page, session, run)
    first = session.next_steps(1)[0][0]
    session.done(first)
    press(page, f"Done: {first}")
    same(page, session, run)
    assert page.locator("#live-now-head").evaluate("one => one === document.activeElement")
    assert f"Done: {first}." in page.locator("#live-said").inner_text()
    assert page.locator("#live-going").inner_text() == session.next_steps(1)[0][0]
    for name in STEPS[1:]:
        session.done(name)
        page.get_by_label("another step", exact=True).select_option(label=name)
        press(page, "Done: another step")
        same(page, session, run)
    assert faults_light_and_dark(page) == []

    session.undo()
    press(page, "Undo the last event")
    same(page, session, run)

    # the page says when nothing is left
    for name in ("add jam <& honey>", "cut"):
        session.done(name)
        page.get_by_label("another step", exact=True).select_option(label=name)
        press(page, "Done: another step")
    while session.belief().finished < 0.5 and session.belief().unseen is not None:
        name = session.next_steps(1)[0][0]
        session.done(name)
        press(page, f"Done: {name}")
    assert page.locator("#live-going").inner_text() == "finished"
    assert page.locator("#live-coming").inner_text() == "nothing"
    assert page.locator("#live-remaining").inner_text() == "Nothing is left to do."
    assert page.locator("#live-plans ol").count() == 0
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.pdf().startswith(b"%PDF")
    page.get_by_role("button", name="End the session").click()
    page.locator("#live-closed").wait_for()
    assert "#session=" not in page.url


@pytest.mark.nightly
def test_it_goes_on_after_a_reload_and_shows_what_others_tell(page, address, drawn):
    begin(page)
    session = Session(drawn.lengths)
    page.reload()
    page.locator("#live-open").wait_for()
    same(page, session, drawn.lengths)
    assert page.locator("#video").input_value() == VIDEO
    place = f"{address}/v1/sessions/{page.url.partition('#session=')[2]}"
    session.done("cut")
    found = page.request.post(f"{place}/events", data={"done": "cut"})
    assert found.ok
    page.locator("#live-done li", has_text="cut").wait_for()
    same(page, session, drawn.lengths)
    assert page.request.delete(place).ok
    page.locator("#problem", has_text="The session has ended").wait_for()
    assert page.locator("#live-open").is_hidden()


@pytest.mark.nightly
def test_it_goes_on_after_a_proxy_has_answered_for_the_service(page, address):
    for path in ("**/v1/sessions/*/events", "**/v1/sessions/*"):
        page.route(path, lambda route: route.fulfill(status=502), times=1)
    begin(page)
    page.locator("#problem", has_text="The page tries again").wait_for()
    expect(page.locator("#problem")).to_be_empty()
    place = f"{address}/v1/sessions/{page.url.partition('#session=')[2]}"
    assert page.request.post(f"{place}/events", data={"done": "cut"}).ok
    page.locator("#live-done li", has_text="cut").wait_for()


@pytest.mark.nightly
def test_a_goal_and_a_task(page, drawn):
    page.get_by_label("task", exact=True).select_option(label="make tea")
    expect(page.locator("#video")).not_to_have_value("film-13")
    video = page.locator("#video").input_value()
    page.get_by_label("goal", exact=True).select_option("4")
    begin(page)
    goal = observation_of_step(drawn.dataset, video, 4, "end")
    session = Session(drawn.lengths, goal=goal, task="make tea")
    same(page, session, drawn.lengths)
    assert "4 or more" not in page.locator("#live-remaining").inner_text()


@pytest.mark.parametrize(("run", "problems"), [("lengths", 0), ("none", 1)])
def test_a_link_that_names_a_run_needs_no_number_of_steps(page, run, problems):
    page.goto(f"{page.url.partition('?')[0]}?run={run}")
    page.locator("#live-begin:enabled").wait_for()
    assert page.locator("#problem p").count() == problems
