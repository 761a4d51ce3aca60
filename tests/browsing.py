"""A real browser for tests, and what it finds: requests, complaints, faults of accessibility."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "CEFITO_CHROMIUM"
"""Environment variable that may name the browser."""


@contextmanager
def chromium(*options: str) -> Iterator:
    """The browser, started; skips the test where there is none.

    As long as it is open no other event loop can run in this thread.
    """
    pytest.importorskip("playwright", reason="playwright is not installed")
    names = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else NAMES
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(
            f"no browser here ({', '.join(names)}): apt-get install chromium, or name one by "
            f"{VARIABLE}"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # no sandbox: it needs rights that containers do not give; only our own pages are opened
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage", *options]
        )
        yield browser
        browser.close()


ELEMENT = "{http://www.w3.org/1999/xhtml}"
"""Before the names of elements of a parsed page."""


def parsed(page: str):
    """A page as a tree; it must be valid to the letter."""
    import html5lib

    return html5lib.HTMLParser(strict=True).parse(page)


WAIT = 60_000
"""Milliseconds that nothing in a page should take."""


def open_page(page, address: str):
    """Open the page of the service and wait until it is ready."""
    page.goto(address)
    page.locator("#plan:enabled").wait_for()
    return page


def plan_now(page) -> list[list[str]]:
    """Ask for plans; their strips, as names."""
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#said", has_text="plans in").wait_for()
    page.locator("#answer:not([aria-busy])").wait_for()
    return strips(page)


def strips(page) -> list[list[str]]:
    """Names of the steps of all plans that the page of the service shows."""
    return [names(strip) for strip in page.locator("#plans ol").all()]


def names(strip) -> list[str]:
    """Names of the steps of a strip, without the words for screen readers."""
    return strip.locator("li > *").evaluate_all("all => all.map(one => one.firstChild.data)")


def open_session(page):
    """Follow the link of the planning page to sessions of its second run, in the same tab."""
    assert page.locator("#follow").is_hidden()  # the first run has none
    page.get_by_label("run", exact=True).select_option(index=1)
    page.locator("#plan:enabled").wait_for()
    page.locator("#follow").evaluate("one => { one.target = ''; }")
    page.locator("#follow").click()
    page.locator("#live-begin:enabled").wait_for()
    return page


def begin(page):
    """Begin a session."""
    page.get_by_role("button", name="Begin a session").click()
    page.locator("#live-open").wait_for()
    return page


def choose_video(page, video: str) -> None:
    """Choose a video on the page of the service by its id."""
    field = page.get_by_label("video", exact=True)
    field.fill(video)
    page.locator(
        "#videos li[aria-selected=true]", has=page.get_by_text(video, exact=True)
    ).wait_for()
    field.press("Enter")


def move_handle(page, side: str, value: int) -> None:
    """Move a handle of the timeline by keys: to the start, or to the end, of a step."""
    handle = page.locator(f"#handle-{side}")
    while (now := int(handle.get_attribute("aria-valuenow"))) != value:
        handle.press("ArrowRight" if now < value else "ArrowLeft")
        assert int(handle.get_attribute("aria-valuenow")) != now


def faults(page, rules=None) -> list[tuple[str, str, str]]:
    """What axe-core finds in a page, by some rules or all: rule, element, and what is wrong."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    found = Axe().run(page, options=options).response
    assert found["passes"]  # it has looked
    return [
        (violation["id"], node["html"][:200], node.get("failureSummary", ""))
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


def faults_light_and_dark(page) -> list[tuple[str, str, str]]:
    """All that axe-core finds in a page, and its contrasts in the dark."""
    page.emulate_media(color_scheme="dark")
    dark = faults(page, ["color-contrast"])
    page.emulate_media(color_scheme="light")
    return dark + faults(page)


_CUT = """() => [...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const all = chart.getBoundingClientRect();
  return [...chart.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < all.left - 1 || box.right > all.right + 1 ||
      box.top < all.top - 1 || box.bottom > all.bottom + 1;
  }).map((text) => "cut off: " + text.textContent);
})"""


def check_file(path: Path) -> None:
    """See that a page in a file asks for nothing, complains of nothing and has no fault.

    It is looked at in light and dark, with all its details open. No label of a chart is cut off,
    and on a phone nothing is wider than the screen.
    """
    with chromium() as browser:
        page = browser.new_page()
        asked, said = [], []
        page.on("request", lambda one: asked.append(one.url))
        page.on("console", lambda one: said.append(one.text))
        page.on("pageerror", lambda problem: said.append(str(problem)))
        page.goto(path.as_uri())
        page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
        assert faults_light_and_dark(page) + page.evaluate(_CUT) == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
