"""A live session on the page that follows a camera or a film, in a real browser."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

from browsing import begin, chromium, faults_light_and_dark, open_session
from cefito.inference.observer import ObservationRecipe
from cefito.inference.session import Session
from grey_videos import LEVELS, RATE, draw_levels

VIDEO = "film-12"
WANTED = "Failed to load resource: "
PICTURE = re.compile(r"/pictures\?at=(\d+)$")


@pytest.fixture(scope="module")
def browser(drawn, tmp_path_factory):
    """A browser whose camera shows the video, and which is allowed to use it."""
    film = tmp_path_factory.mktemp("camera") / "greys.y4m"
    with film.open("wb") as file:
        file.write(b"YUV4MPEG2 W64 H48 F%d:1 Ip A1:1 C420\n" % RATE)
        for level in np.repeat(drawn.levels(VIDEO), RATE):
            luma = round(16 + level * 219 / 255)
            file.write(b"FRAME\n" + bytes([luma]) * (64 * 48) + bytes([128]) * (64 * 24))
    device = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with chromium(*device, f"--use-file-for-fake-video-capture={film}") as browser:
        yield browser


@pytest.fixture
def page(page):
    """The page of sessions with one begun."""
    return begin(open_session(page))


def button(page, name):
    return page.get_by_role("button", name=name, exact=True)


def shown(page, count):
    """Wait until so many pictures were answered; their seconds."""
    found = []
    while len(found) < count:
        with page.expect_response(PICTURE) as answer:
            pass
        assert answer.value.status == 200
        found.append(int(PICTURE.search(answer.value.url)[1]))
    return found


def state_of(page, address):
    """The state of the page's session, which the page shows."""
    id_ = page.url.partition("#session=")[2]
    state = page.request.get(f"{address}/v1/sessions/{id_}").json()
    followed = state["followed"]
    steps = [*followed["done"], *([followed["now"]] if followed["now"] else [])]
    now, over = followed["now"], followed["now"] is None and state["finished"] >= 0.5
    missing = [one["name"] for one in followed["findings"] if one["kind"] == "missing"]
    coming = ([*missing, "nothing"] if over else [state["next_steps"][0]["name"]])[0]
    expect(page.locator("#live-strip li > .named")).to_have_text([one["name"] for one in steps])
    rest = "finished" if over and not missing else "pause"
    expect(page.locator("#live-going")).to_have_text(now["name"] if now else rest)
    expect(page.locator("#live-coming")).to_have_text(coming)
    plans = page.locator("#live-plans ol")
    if over:
        rest = "" if missing else "Nothing is left to do."
        assert page.locator("#live-remaining").inner_text() == rest
        assert plans.count() == 0
    else:
        assert plans.first.locator("li").first.inner_text() == coming
        assert page.locator("#live-now li span").first.inner_text() == coming
    return state


def test_a_camera_is_followed_and_corrected(page, address):
    page.locator("#live-now-head").focus()
    for _ in range(40):
        if page.evaluate("document.activeElement.id") == "live-camera":
            break
        page.keyboard.press("Shift+Tab")
    asked = []
    page.on("request", lambda one: PICTURE.search(one.url) and asked.append(one.url))
    page.keyboard.press("Enter")
    seconds = shown(page, 3)
    assert seconds == sorted(set(seconds))
    width = "view => view.videoWidth"
    assert page.locator("#live-view").evaluate(width) == 64
    assert page.locator("#live-undo").is_disabled()
    assert page.locator("#live-now-head").inner_text() == "Not right? It is"
    button(page, "Stop the camera").click()
    button(page, "Use the camera").wait_for()
    assert not page.locator("#live-view").evaluate("view => view.srcObject")
    state = state_of(page, address)
    assert state["number"] >= 3
    assert len(asked) - state["number"] <= 1  # one may have been on its way

    other = state["next_steps"][-1]["name"]
    button(page, f"Now: {other}").click()
    page.locator("#live-going", has_text=other).wait_for()
    assert state_of(page, address)["followed"]["now"]["name"] == other
    assert state_of(page, address)["done"][-1]["reported"]
    button(page, "Undo the last report").click()
    expect(page.locator("#live-undo")).to_be_disabled()
    undone = state_of(page, address)
    assert undone["done"] == state["done"]
    assert undone["followed"]["seconds"] >= state["followed"]["seconds"]  # pictures stay
    assert faults_light_and_dark(page) == []
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert faults_light_and_dark(page) == []


def test_a_film_is_played_and_the_next_step_is_spoken(page, address, drawn, tmp_path):
    levels = [*drawn.levels(VIDEO), *LEVELS[10:] * 12]  # nothing is done at the end
    draw_levels(tmp_path / "film.mp4", levels, side=(640, 480))
    page.evaluate(
        "() => { window.said = []; speechSynthesis.speak = (one) => said.push(one.text);"
        "const { drawImage: draw } = CanvasRenderingContext2D.prototype;"
        "CanvasRenderingContext2D.prototype.drawImage = function (...all) {"
        "window.size = all.slice(3); draw.apply(this, all); }; }"
    )
    sent = []
    page.on("request", lambda one: sent.append(len(one.post_data_buffer or b"")))
    page.get_by_label("video file of your own").set_input_files(tmp_path / "film.mp4")
    page.get_by_label("say the next step and findings aloud").check()
    speed = page.get_by_label("speed", exact=True)
    assert speed.locator("option").evaluate_all("all => all.map(one => one.value)") == [
        "1",
        "4",
        "16",
    ]
    speed.select_option("16")
    button(page, "Play the film").click()
    button(page, "Stop the film").wait_for()
    with page.expect_request(re.compile("/events$")) as over:
        button(page, "Play the film").wait_for()  # its end
    assert over.value.post_data_json["over"] is True
    page.locator("#live:not([aria-busy])").wait_for()
    page.locator("#live-strip li").first.wait_for()
    assert page.evaluate("size") == [341, 256]
    assert 0 < max(sent) < (tmp_path / "film.mp4").stat().st_size  # it stays in the browser
    state = state_of(page, address)
    assert state["followed"]["seconds"] == len(levels)
    session, observer = Session(drawn.lengths), ObservationRecipe.of(drawn.lengths).open()
    for at, row in enumerate(observer.rows(tmp_path / "film.mp4")):
        session.observe(row, at=at)
    done = session.followed().done
    assert len(done) >= 4
    assert [step["action"] for step in state["followed"]["done"]] == [step.action for step in done]
    said = page.evaluate("said")
    assert state["finished"] >= 0.5
    # but for findings in the whole film, which may come later
    assert not any(one.startswith(("Now", "Next")) for one in said[said.index("Finished") :])
    assert said[0].startswith("Next: ")
    assert all(one != other for one, other in pairwise(said))


def test_a_page_that_is_loaded_while_the_service_is_busy_opens_its_session(page):
    failed = set()

    def busy(route):
        path = urlsplit(route.request.url).path
        if path in failed:
            return route.fallback()
        failed.add(path)
        if path.endswith("/model"):
            return route.abort()
        return route.fulfill(status=503, headers={"Retry-After": "1"}, json={"title": "busy"})

    session = page.url.partition("#session=")[2]
    for address in ("**/v1/model", f"**/v1/sessions/{session}", "**/v1/videos?*"):
        page.route(address, busy)
    page.reload()
    page.locator("#problem", has_text="busy").wait_for()
    page.locator("#live-open").wait_for()
    assert len(failed) == 3
    assert page.url.endswith(f"#session={session}")
    assert page.locator("#problem").inner_text() == ""


def test_a_film_that_ends_without_a_step_shows_it_as_the_next_one(page, drawn, tmp_path):
    def surer(route):
        if route.request.method == "GET":  # the stream, which would tell the state as it is
            return route.abort()
        state = (answer := route.fetch()).json()
        doubts = [one | {"evidence": "", "step": None} for one in state["followed"]["unsure"]]
        state["followed"] |= {"findings": doubts, "unsure": []}
        for task in state["tasks"]:
            task["probability"] /= 2  # the film may show another one
        return route.fulfill(response=answer, json=state)

    levels = drawn.levels(VIDEO)
    draw_levels(tmp_path / "film.mp4", levels[: len(levels) // 2])
    page.route("**/events", surer)
    page.reload()
    page.get_by_label("video file of your own").set_input_files(tmp_path / "film.mp4")
    page.get_by_label("speed", exact=True).select_option("16")
    button(page, "Play the film").click()
    button(page, "Stop the film").wait_for()
    finding = page.locator("#live-notes").get_by_text(": missing (").first
    finding.wait_for()
    missing = finding.inner_text().partition(":")[0]
    expect(page.locator("#live-coming")).to_have_text(missing)
    expect(page.locator("#live-going")).to_have_text("pause")
    expect(page.locator("#live-remaining")).to_have_text("")
    assert page.locator("#live-plans ol").count() == 0
    for _ in range(page.get_by_role("button", name="Dismiss").count()):
        page.get_by_role("button", name="Dismiss").first.click()
    expect(page.locator("#live-coming")).to_have_text("nothing")
    expect(page.locator("#live-going")).to_have_text("pause")
    expect(page.locator("#live-remaining")).to_have_text("")


@pytest.mark.parametrize("late", ["v1/model", "messages/en.json"])
def test_a_film_is_chosen_before_a_part_of_the_page_is_loaded(page, drawn, tmp_path, late):
    draw_levels(tmp_path / "film.mp4", drawn.levels(VIDEO))
    held = []
    page.route(f"**/{late}", lambda route: held.append(route))
    page.reload()
    page.get_by_label("video file of your own").set_input_files(tmp_path / "film.mp4")
    if late == "v1/model":
        expect(page.locator("#live-view")).to_have_js_property("videoWidth", 64)
    held[0].continue_()
    button(page, "Play the film").wait_for()


def test_a_camera_is_offered_once_the_encoder_is_loaded(page, address):
    page.route("**/ready", lambda route: route.fulfill(status=503, json={}))
    page.reload()
    page.locator("#live-wait").wait_for()
    assert button(page, "Use the camera").is_hidden()
    assert button(page, "Play the film").is_hidden()
    page.unroute_all()
    button(page, "Use the camera").wait_for()
    assert page.locator("#live-wait").is_hidden()
    for lacking in ({"recogniser": False}, {"uploads": ["video", "text"]}):  # of all runs

        def less(route, *, lacking=lacking):
            model = route.fetch().json()
            route.fulfill(json=model | {"runs": [run | lacking for run in model["runs"]]})

        page.route("**/v1/model", less)
        page.reload()
        page.locator("#live-open").wait_for()
        both = "all => all.map(one => one.hidden)"
        assert page.locator("#live-watch, #live-wait").evaluate_all(both) == [True, True]
        page.unroute_all()


def test_a_finding_is_heard_and_dismissed(page, address):
    """Of steps that are reported in another order than the usual one."""
    page.evaluate(
        "() => { window.said = []; speechSynthesis.speak = (one) => said.push(one.text); }"
    )
    page.get_by_label("say the next step and findings aloud").check()
    button(page, "Use the camera").click()
    for name in ("pour water", "boil water"):
        shown(page, 3)
        page.get_by_label("another step", exact=True).select_option(label=name)
        button(page, "Now: another step").click()
    dismiss = button(page, "Dismiss: pour water: out of order")
    dismiss.wait_for()
    button(page, "Stop the camera").click()
    page.locator("#live:not([aria-busy])").wait_for()
    finding = page.locator("#live-notes li", has=dismiss)
    expect(finding).to_contain_text("'add leaves' after 'pour water'")
    assert page.evaluate("said").count("pour water: out of order") == 1
    button(page, "Say: pour water: out of order").click()
    assert page.evaluate("said")[-1] == "pour water: out of order"
    assert faults_light_and_dark(page) == []
    others = page.locator("#live-notes li").count() - 1
    dismiss.click()
    expect(page.locator("#live-notes li")).to_have_count(others)
    assert "dismissed" not in page.evaluate("JSON.stringify(localStorage)")  # of this tab alone
    page.reload()
    button(page, "Use the camera").wait_for()
    page.locator("#live:not([aria-busy])").wait_for()
    assert page.locator("#live-notes li").count() == others
    begin(open_session_again(page))
    assert page.locator("#live-notes li").count() == 0


def open_session_again(page):
    """End the session of the page, so that another one can begin."""
    button(page, "End the session").click()
    page.locator("#live-begin:enabled").wait_for()
    return page


def test_the_page_speaks_the_language_that_is_chosen(page, address):
    page.evaluate("sessionStorage.clear()")
    tasks = page.locator("#task option").all_text_contents()[1:]
    page.get_by_label("Language").select_option("de")
    button(page, "Kamera benutzen").wait_for()
    assert page.locator("#task option").all_text_contents()[1:] == tasks != []
    assert page.locator("html").get_attribute("lang") == "de"
    assert page.locator("#live-now-head").inner_text() == "Jetzt"
    assert page.locator("#live-going").inner_text() == "warten auf das erste Bild"
    said = "() => { window.said = []; speechSynthesis.speak = (one) => said.push(one); }"
    page.evaluate(said)
    page.get_by_label("den nächsten Schritt und Befunde vorlesen").check()
    coming = page.locator("#live-coming").inner_text()
    assert coming == page.locator("#live-now li span").first.inner_text()
    assert page.evaluate("said.map((one) => [one.lang, one.text])") == [
        ["de-DE", f"Als Nächstes: {coming}"]
    ]
    assert " %" in page.locator("#live-task").inner_text()
    assert "," in page.locator("#live-task .number").first.inner_text()
    assert faults_light_and_dark(page) == []
    page.get_by_label("Sprache").select_option("en")
    button(page, "Use the camera").wait_for()


DENIED = "() => Promise.reject(new DOMException('no', 'NotAllowedError'))"
UNPLUG = "view => view.srcObject.getTracks()[0].dispatchEvent(new Event('ended'))"


def test_a_camera_that_is_refused_or_unplugged(page):
    problem = page.locator("#problem")
    given = "navigator.mediaDevices.getUserMedia"
    page.evaluate(f"() => {{ window.kept = {given}; {given} = {DENIED}; }}")
    button(page, "Use the camera").click()
    problem.get_by_text("The browser gives no camera to this page (no). Allow it").wait_for()
    page.evaluate(f"() => {{ {given} = window.kept; }}")
    button(page, "Use the camera").click()
    shown(page, 1)
    assert problem.inner_text() == ""
    page.locator("#live-view").evaluate(UNPLUG)
    problem.get_by_text("The camera has stopped. Connect it").wait_for()


def test_a_service_that_is_away_and_a_session_that_is_lost(page, address):
    button(page, "Use the camera").click()
    shown(page, 1)
    page.route(PICTURE, lambda route: route.abort())
    problem = page.locator("#problem")
    problem.get_by_text("The service does not answer.").wait_for()
    page.unroute_all()
    shown(page, 1)
    problem.locator("p").wait_for(state="detached")
    lost = {"type": "urn:cefito:not-found", "detail": "no such session is open"}
    page.route(PICTURE, lambda route: route.fulfill(status=404, json=lost))
    problem.get_by_text("The session has ended: the service does not have it").wait_for()
    page.unroute_all()
    assert not page.locator("#live-view").evaluate("view => view.srcObject")
    button(page, "Begin a session").click()
    button(page, "Use the camera").click()
    shown(page, 1)
