"""Routes and tools of whole videos, against what the library says of the same ones."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import re
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import cefito
from cefito.data.timeline import Timeline
from cefito.inference.observer import ObservationRecipe
from cefito.serve.whole_videos import MOST_VIDEO_ROWS
from grey_videos import draw_greys
from part_worlds import part_of
from serve.bad_requests import packed
from serve.test_service import refused
from tiny_models import tiny_dinov2
from tiny_runs import rows_of

pytestmark = pytest.mark.usefixtures("encoding_here")
TASK = "Brew Spiced Tea"
SWAPPED = ["boil water", "crush spices", "add tea leaves", "pour milk", "add honey"]
TRACK = {
    "task": TASK,
    "steps": [
        {"name": name, "start": 20 * place, "end": 20 * place + 15.5}
        for place, name in enumerate([*SWAPPED, "stir mixture", "strain tea"])
    ],
}
SERVICE = {"request_id", "run", "horizon", "milliseconds"}


@pytest.fixture(scope="module")
def seen(world):
    """Id and rows of a test video, as a data set keeps them."""
    place = next(i for i, one in enumerate(world.videos) if one.split == "test")
    return world.videos[place].video_id, rows_of(world, place).astype(np.float16).astype(float)


@pytest.fixture(scope="module")
def films(world, tmp_path_factory):
    """The same videos with their rows."""
    every = [rows_of(world, video).astype(np.float16) for video in range(len(world.videos))]
    folder = tmp_path_factory.mktemp("films") / "films"
    tasks = range(len(world.taxonomy.tasks))
    return part_of(world, folder, tasks=tasks, timeline=Timeline(tuple(every)))


@pytest.fixture(scope="module")
def client(serving, run_with_recogniser, films, tmp_path_factory):
    """A client of a service with films and an encoder as wide as their rows."""
    pytest.importorskip("transformers")
    encoder = str(tiny_dinov2(tmp_path_factory.mktemp("dinov2"), size=24))
    runs = (run_with_recogniser.folder,)
    return serving(runs=runs, datasets=(films.folder,), encoder=encoder, mcp=True)


def ask(client, path, **body):
    response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    assert response.json().keys() == SERVICE | {"track"}
    assert response.json()["request_id"] == response.headers["x-request-id"]
    return response.json()["track"]


def saved(rows):
    file = io.BytesIO()
    np.save(file, rows)
    return file.getvalue()


def done(track):
    return [one for one in track["deviations"] if one["step"] is not None]


def in_json(track):
    return json.loads(track.model_dump_json())


def test_steps_are_those_of_the_library(client, run_with_recogniser, seen):
    name, rows = seen
    expected = in_json(cefito.recognise(run_with_recogniser, rows))
    assert len(expected["steps"]) > 3
    assert ask(client, "recognise", rows=rows.tolist()) == expected
    packed = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    assert ask(client, "recognise", rows=packed) == expected
    double = rows.repeat(2, axis=0).tolist()
    assert ask(client, "recognise", rows=double, rate=2.0)["seconds"] == expected["seconds"]
    stored = ask(client, "recognise", video={"id": name})
    assert (stored["video"], stored["steps"]) == (name, expected["steps"])
    assert stored["annotated"]
    known = [step["name"] for step in expected["steps"]][:2]
    asked = {"task": expected["task"], "steps_known": known}
    few = ask(client, "recognise", rows=rows.tolist(), **asked)
    assert [step["name"] for step in few["steps"]] == known
    assert ask(client, "recognise", rows=rows.tolist(), min_probability=1.0)["steps"] == []


def test_what_is_wrong_is_that_of_the_library(client, run_with_recogniser, seen):
    name, rows = seen
    expected = in_json(cefito.verify(run_with_recogniser, rows, least=0.01))
    least = {"min_probability": 0.01}
    assert ask(client, "verify", rows=rows.tolist(), **least) == expected
    assert (
        ask(client, "verify", video={"id": name}, **least)["deviations"] == (expected["deviations"])
    )
    for source in ({"rows": rows.tolist()}, {"video": {"id": name}}):
        track = ask(client, "recognise", **source)
        found = ask(client, "verify", track=track, **least)
        assert done(found) != []  # of the likeliest steps alone; rows also say how sure they are
    found = ask(client, "verify", track=TRACK)
    assert [(one["name"], one["words"]) for one in found["deviations"]] == [
        ("crush spices", "out of order")
    ]
    of_library = cefito.verify(run_with_recogniser, cefito.Track(**TRACK, seconds=0, video="video"))
    printed = json.loads(json.dumps(of_library.to_dict()))
    assert {"steps", "deviations", "repair", "notes"} <= printed.keys()
    assert [one | found["deviations"][0] for one in printed["deviations"]] == found["deviations"]
    assert {key: found[key] for key in ("steps", "repair")} == {
        key: printed[key] for key in ("steps", "repair")
    }
    short = TRACK | {"steps": TRACK["steps"][:-1]}
    for online in (False, True):  # a later step may follow
        told = ask(client, "verify", track=short, online=online)["deviations"]
        assert ("missing" in [one["kind"] for one in told]) == (not online)
    double = ask(client, "verify", rows=rows.repeat(2, axis=0).tolist(), rate=2.0, **least)
    assert double["seconds"] == expected["seconds"]
    bare = TRACK["steps"]
    assert (
        ask(client, "verify", track={"steps": bare}, task=TASK)["deviations"]
        == (found["deviations"])
    )


def test_uploads_of_features_and_films(client, run_with_recogniser, seen, tmp_path):
    _, rows = seen
    post = partial(client.post, data={"request": '{"min_probability": 0.01}'})
    file = {"features": ("../x", saved(rows.astype(np.float32)))}
    for path, of_library in (("recognise", cefito.recognise), ("verify", cefito.verify)):
        answer = post(f"/v1/{path}/upload", files=file)
        assert answer.status_code == 200, answer.text
        found = of_library(run_with_recogniser, rows, least=0.01)
        assert answer.json()["track"] == in_json(found)
    pytest.importorskip("av")
    draw_greys(tmp_path / "x.mp4", 40)
    encoder = client.app.state.service.encoding.function.encoder
    film = ObservationRecipe.of(run_with_recogniser).open(encoder).rows(tmp_path / "x.mp4")
    answer = client.post("/v1/recognise/upload", files={"video": (tmp_path / "x.mp4").read_bytes()})
    assert answer.status_code == 200, answer.text
    expected = in_json(cefito.recognise(run_with_recogniser, film))
    assert (answer.json()["track"]["seconds"], expected["seconds"]) == (40, 40)
    assert answer.json()["track"]["task"] == expected["task"]


ROW = [0.0] * 24


@pytest.mark.parametrize(
    ("path", "body", "words", "status"),
    [
        ("recognise", {}, "expected exactly one of 'rows', 'video'", 422),
        ("verify", {}, "expected exactly one of 'rows', 'video', 'track'", 422),
        ("verify", {"rows": [ROW], "track": TRACK}, "expected exactly one of", 422),
        ("recognise", {"rows": []}, "rows: expected a length of at least 1", 422),
        ("recognise", {"rows": [ROW, ROW[:3]]}, "rows.1: 3 numbers; expected [24]", 422),
        ("recognise", {"rows": [[1e39] * 24]}, "rows.0.0: 1e+39 is too large", 422),
        ("recognise", {"rows": [packed(*[math.nan] * 24)]}, "holds NaN or infinity", 422),
        ("recognise", {"rows": ["AADAfw==" * 24]}, "rows.0: is not base64", 422),
        ("verify", {"rows": [packed(0.5)]}, "rows.0: 1 numbers; expected [24]", 422),
        ("recognise", {"rows": [ROW], "task": "coffee"}, "unknown task 'coffee'", 422),
        ("verify", {"rows": [ROW], "task": "coffee"}, "unknown task 'coffee'", 422),
        ("recognise", {"rows": [ROW], "steps_known": ["pour"]}, "need their task", 422),
        ("recognise", {"rows": [ROW], "task": 0, "steps_known": []}, "not steps of one task", 422),
        ("recognise", {"rows": [ROW], "rate": 1e6}, "expected 0.01 to 1000 rows", 422),
        ("recognise", {"rows": [ROW] * 100, "rate": 0.01}, "10,000 rows: a video has at most", 413),
        ("recognise", {"rows": [[0]] * (MOST_VIDEO_ROWS + 1)}, "at most 7200", 422),
        ("recognise", {"rows": [ROW], "min_probability": 2}, "min_probability", 422),
        ("recognise", {"video": {"id": "none"}}, "no video of id 'none' there", 422),
        ("recognise", {"video": {"id": "none"}, "rate": 2.0}, "'rate' is of rows", 422),
        ("recognise", {"rows": [ROW], "run": "none"}, "no run fits", 422),
        ("recognise", {"rows": [ROW], "deadline_seconds": 0}, "deadline_seconds", 422),
        ("verify", {"rows": [ROW]}, "no step was recognised", 422),
        ("verify", {"rows": [ROW], "false_alarms": 0}, "cannot be promised", 422),
        ("verify", {"rows": [ROW], "per_steps": 100}, "steps are of a number", 422),
        ("verify", {"track": {"task": TASK, "steps": []}}, "track.steps: ", 422),
        ("verify", {"track": {"steps": TRACK["steps"]}}, "names no task", 422),
        ("verify", {"track": {**TRACK, "task": "coffee"}}, "unknown task 'coffee'", 422),
        ("verify", {"track": {**TRACK, "file": "/etc/passwd"}}, "track.file: ", 422),
        ("verify", {"track": {**TRACK, "steps": TRACK["steps"] * 300}}, "at most 2000", 422),
        ("verify", {"track": TRACK, "run": "none"}, "no run fits", 422),
        ("verify", {"track": TRACK, "horizon": 9}, "no run fits", 422),
        ("verify", {"track": {**TRACK, "present": [1.0]}}, "track.present: ", 422),
        ("verify", {"track": {**TRACK, "nonsense": 1}}, "track.nonsense: there is none", 422),
    ],
)
def test_refusals(client, path, body, words, status):
    problem = refused(client, status, f"/v1/{path}", **body)
    assert words in problem["detail"]
    assert len(problem["detail"]) < 1000


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"name": ""}, "track.steps.0.name: "),
        ({"name": "x" * 301}, "at most 300"),
        ({"end": -1}, "0 ≤ start ≤ end"),
        ({"end": 1e300}, "they seem to be dates"),
        ({"end": "5"}, "track.steps.0.end: "),
        ({"probability": 1.5}, "track.steps.0.probability: "),
    ],
)
def test_steps_that_cannot_be(client, step, words):
    steps = [{"name": "boil water", "start": 0, "end": 4, **step}]
    problem = refused(client, 422, "/v1/verify", track={"task": TASK, "steps": steps})
    assert words in problem["detail"]


def test_unknown_names_are_findings_also_online(client):
    steps = [
        {"name": "boil watr", "start": 0, "end": 4},
        {"name": "add tea leaves", "start": 5, "end": 9},
    ]
    for online in (False, True):
        body = {"track": {"task": TASK, "steps": steps}, "online": online}
        answer = client.post("/v1/verify", json=body)
        assert answer.status_code == 200, answer.text
        track = answer.json()["track"]
        unknown = [one for one in track["deviations"] if one["kind"] == "unknown"]
        assert [(one["name"], one["step"]) for one in unknown] == [("boil watr", 1)]
        assert "boil water" in unknown[0]["evidence"]
        assert [step["kinds"]["unknown"] for step in track["steps"]] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("files", "data", "words"),
    [
        ({"features": saved(np.zeros((2, 24, 1)))}, {}, "holds float64 [2, 24, 1]"),
        ({"features": saved(np.array(["a"]))}, {}, "expected numbers [rows, D]"),
        ({"features": saved(np.zeros((9, 5)))}, {}, "rows [9, 5]: expected [rows, 24]"),
        ({"features": saved(np.full((9, 24), np.nan))}, {}, "holds NaN or infinity"),
        ({"features": saved(np.zeros((0, 24)))}, {}, "rows [0, 24]: expected"),
        ({"features": saved(np.zeros((9, 24)))[:300]}, {}, "'features'"),
        ({"features": saved(np.array([{}], dtype=object))}, {}, "'features'"),
        ({"features": b"PK\x03\x04" + b"x" * 40}, {}, "'features' is not an array of NumPy"),
        ({"video": b"x" * 40}, {}, "'video' is not MP4"),
        ({"video": b"\x00\x00\x00\x18ftypisom" + b"x" * 20}, {}, "cannot be opened as a video"),
        ({"video": b"x"}, {"request": '{"rate": 2}'}, "'rate' is of features"),
        ({"features": b"x", "video": b"x"}, {}, "expected exactly one of 'features', 'video'"),
        ({"features": b"x"}, {"request": '{"rows": [[1]]}'}, "rows: there is none of that name"),
        ({"features": b"x"}, {"request": "{"}, "not valid JSON"),
    ],
)
@pytest.mark.parametrize("path", ["recognise", "verify"])
def test_uploads_that_cannot_be_used(client, path, files, data, words):
    response = client.post(f"/v1/{path}/upload", files=files, data=data)
    assert response.status_code == 422, response.text
    assert words in response.json()["detail"]
    assert "/tmp/" not in response.text


def test_runs_that_cannot(serving, run_of_lengths, place):
    """Without a recogniser, an encoder or orders; a track needs no recogniser."""
    client = serving(runs=(run_of_lengths.folder,))
    assert ask(client, "verify", track=TRACK)["deviations"]
    problem = refused(client, 422, "/v1/recognise", rows=[ROW])
    assert "cannot recognise steps" in problem["detail"]
    assert str(run_of_lengths.folder) not in problem["detail"]
    film = client.post("/v1/recognise/upload", files={"video": b"x"})
    assert (film.status_code, film.json()["type"]) == (422, "urn:cefito:no-encoder")
    still = serving(runs=(place.run,))
    problem = refused(still, 422, "/v1/verify", track=TRACK)
    assert "knows no orders of steps" in problem["detail"]
    video = {"id": place.world.videos[0].video_id}
    assert "cannot recognise" in refused(still, 422, "/v1/recognise", video=video)["detail"]


def test_a_service_without_an_encoder(serving, run_with_recogniser, place, seen):
    """A data set without rows is named without its folder; uploaded features are taken."""
    client = serving(runs=(run_with_recogniser.folder,))
    files = {"features": saved(seen[1])}
    assert client.post("/v1/recognise/upload", files=files).status_code == 200
    video = {"id": place.world.videos[0].video_id}
    for path in ("recognise", "verify"):
        problem = refused(client, 422, f"/v1/{path}", video=video)
        assert problem["detail"].startswith("world: holds no rows of whole videos.")
        assert problem["field"] == "video"


def test_a_late_answer_is_none(client):
    for path, asked in (("recognise", {"rows": [ROW]}), ("verify", {"track": TRACK})):
        problem = refused(client, 504, f"/v1/{path}", **asked, deadline_seconds=1e-9)
        assert problem["type"] == "urn:cefito:deadline"


def test_examples_of_the_documentation_are_valid_requests(client):
    from cefito.serve.whole_videos import RecogniseRequest, VerifyRequest

    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for kind in (RecogniseRequest, VerifyRequest):
        (example,) = schemas[kind.__name__]["examples"]
        kind.model_validate(example)
        least = 0.0 if kind is RecogniseRequest else 0.5
        assert kind.model_fields["min_probability"].default == least
        page = "recognise.md" if kind is RecogniseRequest else "verify.md"
        text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text("utf-8")
        text = text.partition("## Over HTTP")[2].partition("\n## ")[0]
        further = re.findall(r"`(\w+)`", text.partition("Further fields are")[2].partition(". ")[0])
        assert {*further} < {*kind.model_fields} <= {*re.findall(r"`(\w+)`", text)}


def test_tools_answer_as_the_routes(client, seen):
    def call(tool, **arguments):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        message["params"] = {"name": tool, "arguments": arguments}
        accepted = {"accept": "application/json, text/event-stream"}
        return client.post("/mcp", json=message, headers=accepted).json()["result"]

    for tool, arguments in (
        ("recognise", {"video": {"id": seen[0]}}),
        ("verify", {"track": TRACK}),
    ):
        track = call(tool, **arguments)["structuredContent"]["track"]
        own = ask(client, tool, **arguments)
        assert track["steps"] == own["steps"]
        assert track.get("deviations") == own.get("deviations")
    wrong = call("verify", track={**TRACK, "task": "coffee"})
    assert wrong["isError"]
    assert "unknown task 'coffee'" in wrong["content"][0]["text"]


def test_the_calls_of_the_pages(client, seen):
    files = {"NEW.npy": saved(seen[1]), "ROWS.json": json.dumps({"rows": seen[1].tolist()})}
    names = {"change tyre": TASK, "jack up": "boil water", "loosen nuts": "crush spices"}
    calls = []
    for page in ("recognise.md", "verify.md"):
        text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text(encoding="utf-8")
        for old, new in names.items():
            text = text.replace(old, new)
        lines = text.replace("\\\n", " ").split("\n")
        calls += [shlex.split(line) for line in lines if line.startswith("curl ")]
    assert len(calls) == 4
    for _, _, address, *rest in calls:
        sent = {}
        for option, value in itertools.pairwise(rest):
            name, _, part = value.partition("=")
            if option == "-d":
                sent["content"] = files.get(value.removeprefix("@"), value)
            elif option == "-F" and part.startswith("@"):
                sent["files"] = {name: files[part[1:]]}
            elif option == "-F":
                sent["data"] = {name: part}
            elif option == "-H":
                sent["headers"] = dict([value.split(": ")])
        answer = client.post(address.removeprefix("http://127.0.0.1:8000"), **sent)
        assert answer.status_code == 200, answer.text
        assert answer.json()["track"]["steps"]


@pytest.mark.parametrize("path", ["recognise", "verify"])
def test_rows_that_are_too_large_are_refused(client, seen, path):
    rows = seen[1][:4].copy()
    rows[2, 5] = -1e39
    answer = client.post(f"/v1/{path}", json={"rows": rows.tolist()})
    assert (answer.status_code, answer.json()["field"]) == (422, "rows.2")
    assert answer.json()["detail"].startswith("rows.2.5: -1e+39 is too large")
    np.save(file := io.BytesIO(), rows)
    answer = client.post(f"/v1/{path}/upload", files={"features": file.getvalue()})
    assert (answer.status_code, answer.json()["field"]) == (422, "features")
    assert answer.json()["detail"].startswith("features.2.5: -1e+39 is too large")
