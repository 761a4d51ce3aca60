"""The pages as sent: valid, escaped, nothing from other origins; frames, films and graphs."""

import re
import shutil

import pytest
from fastapi.testclient import TestClient

from browsing import ELEMENT, parsed
from cefito.cli import main
from cefito.serve.app import create_app
from cefito.serve.middleware import CONTENT_POLICY
from grey_videos import grey_of, read_grey


@pytest.fixture(scope="module")
def client(drawn):
    runs = (drawn.run.folder, drawn.lengths.folder)
    with TestClient(create_app(drawn.settings(runs=runs))) as client:
        yield client


@pytest.mark.parametrize(
    ("address", "run"),
    [("/", "tea-and-toast: 3 steps, steps"), ("/session", "lengths: 1 to 4 steps, steps")],
)
def test_the_first_view_is_made_on_the_server(client, address, run):
    """Sessions are of runs of several lengths; options are folded."""
    answer = client.get(address)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "needs JavaScript" in answer.text
    tree = parsed(answer.text)
    texts = [option.text for option in tree.iter(f"{ELEMENT}option")]
    assert run in texts
    of_one_length = [text for text in texts if text and text.startswith("tea-and-toast")]
    assert bool(of_one_length) == (address == "/")
    folded = [
        one.get("open") for one in tree.iter(f"{ELEMENT}details") if one.get("id") == "options"
    ]
    assert folded == [None] * (address == "/")
    assert {"make tea", "make toast"} <= set(texts)
    assert 'id="simulated" hidden' in answer.text  # the features are of films
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(set(ids)) == len(ids)
    labelled = {label.get("for") for label in tree.iter(f"{ELEMENT}label")}
    fields = {one.get("id") for kind in ("select", "input") for one in tree.iter(ELEMENT + kind)}
    assert fields
    assert fields - {None} <= labelled


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere(client):
    answer = client.get("/")
    assert answer.headers["content-security-policy"] == CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY
    assert not re.search(r"<script(?! src=)|<style|\son\w+=|\sstyle=", answer.text)


def test_the_page_of_the_routes_needs_no_other_place(client):
    answer = client.get("/docs")
    scripts = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert {client.get(path).status_code for path in scripts} == {200}
    policy = answer.headers["content-security-policy"]
    assert policy.replace(" 'unsafe-inline'", "") == CONTENT_POLICY


def test_names_are_escaped(drawn, tmp_path):
    hostile = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(drawn.run.folder, hostile)
    with TestClient(create_app(drawn.settings(runs=(hostile,)))) as client:
        tree = parsed(client.get("/").text)
    assert not [
        image for image in tree.iter(f"{ELEMENT}img") if image.get("src") or image.get("onerror")
    ]
    assert any("<img src=x" in (option.text or "") for option in tree.iter(f"{ELEMENT}option"))


def test_frames_are_of_the_start_and_the_end_of_a_window(client, drawn):
    query = {"run": "tea-and-toast", "horizon": 3, "dataset": drawn.dataset.name}
    for number, step in ((10, 1), (13, 3)):
        for side, second in (("start", 2 * step - 1), ("end", 2 * step + 5)):
            answer = client.get(
                "/frame", params=query | {"video": f"film-{number}", "step": step, "side": side}
            )
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "image/jpeg"
            size, level = read_grey(answer.content)
            assert size == (64, 48)
            assert level == pytest.approx(grey_of(second, number % 5), abs=6)


def test_a_film_is_sent_in_parts(client, drawn):
    query = {"run": "lengths", "horizon": 4, "dataset": drawn.dataset.name, "video": "film-10"}
    answer = client.get("/film", params=query, headers={"range": "bytes=4-7"})
    assert (answer.status_code, answer.content) == (206, b"ftyp")
    assert answer.headers["content-type"] == "video/mp4"


def test_the_graph_of_a_task_is_that_of_the_command_line(client, drawn, capsys, tmp_path):
    place = "/v1/runs/lengths/graph"
    command = ("graph", str(drawn.lengths.folder), "--task", "make tea")
    for form, kind in (("svg", "image/svg+xml"), ("json", "application/json")):
        assert main([*command, "--out", str(tmp_path / f"graph.{form}")]) == 0
        for asked in ({"params": {"format": form}}, {"headers": {"accept": kind}}):
            asked["params"] = {"task": "make tea", **asked.get("params", {})}
            answer = client.get(place, **asked)
            assert answer.headers["content-type"].split(";")[0] == kind
            assert answer.text == (tmp_path / f"graph.{form}").read_text(encoding="utf-8")
    assert "Train one of several" in client.get("/v1/runs/tea-and-toast/graph").text


@pytest.mark.parametrize(
    "change",
    [
        *({"video": video} for video in ("../films/film-10", "/etc/passwd", "film-99")),
        *({"step": step} for step in (0, 4, 999_999_999)),
        *({"run": "another"}, {"horizon": 4}, {"dataset": "another"}),
    ],
)
def test_no_frame_where_there_is_none(client, drawn, change):
    query = {"run": "tea-and-toast", "horizon": 3, "dataset": drawn.dataset.name}
    query |= {"video": "film-10", "step": 1, "side": "start"}
    assert client.get("/frame", params=query).status_code == 200
    routes = ["/frame"] if "step" in change else ["/frame", "/film"]
    for answer in (client.get(route, params=query | change) for route in routes):
        assert answer.status_code == 204
        assert answer.content == b""


def test_videos_that_cannot_be_read_or_are_gone_have_no_frames(drawn, tmp_path):
    for name in ("data", "films"):
        shutil.copytree(drawn.folder / name, tmp_path / name)
    (tmp_path / "films" / "film-10.mp4").write_bytes(b"no video")
    (tmp_path / "films" / "film-11.mp4").unlink()
    query = {"run": "tea-and-toast", "horizon": 3, "dataset": drawn.dataset.name, "step": 1}
    with TestClient(create_app(drawn.settings(datasets=(tmp_path / "data",)))) as client:
        codes = [
            client.get("/frame", params=query | {"video": video, "side": "end"}).status_code
            for video in ("film-10", "film-11", "film-12")
        ]
        shutil.copy(drawn.folder / "films" / "film-10.mp4", tmp_path / "films")
        params = query | {"video": "film-10", "side": "end"}
        codes.append(client.get("/frame", params=params).status_code)  # it was repaired
    assert codes == [204, 204, 200, 200]
