"""The back end of Label Studio, against a server that serves films and asks as it does."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path
from unittest import mock

import anyio
import numpy as np
import pytest

from cefito.cli import main
from cefito.cli.serve import _FILMS, label
from cefito.data import open_dataset
from cefito.errors import DataError, RunError
from cefito.evaluation.sharing import export_run
from cefito.files import file_digest
from cefito.inference.next_films import next_films
from cefito.inference.recordings import Recording
from cefito.inference.whole_videos import recognise
from cefito.parts.folder import RunInfo
from cefito.runs.corrected import CorrectedFilms, Retraining
from cefito.runs.run import open_run
from cefito.serve.labels import Labels, create_label_app
from cefito.serve.settings import ServiceSettings
from cefito.serve.studio import Studio, fetch_film
from cefito.tracks.document import Choices
from cefito.tracks.formats import label_studio
from cefito.tracks.formats.label_studio import Tags
from cefito.tracks.reading import read
from serve.label_films import LONGER, PLAN, make_place
from serve.studios import CONFIG, TOKEN, configuration, read_steps, regions, studio_of

pytest.importorskip("av")
pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("encoding_here")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "label-studio.md").read_text("utf-8")
AUDIO = """<View><Labels name="kind" toName="sound">{labels}</Labels>
<Audio name="sound" value="$clip"/></View>"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run, and films that have a step more than those of its data set."""
    folder = tmp_path_factory.mktemp("labels")
    return folder, make_place(folder)


@pytest.fixture
def films(place, tmp_path):
    start = open_run(place[0] / "RUN")
    return CorrectedFilms(tmp_path / "labels", start, start.dataset())


@pytest.fixture
def studio(place):
    with studio_of(place[0] / "new") as server:
        yield server


@pytest.fixture
def back_end(place):
    """Start back ends, which are closed with the test."""
    from fastapi.testclient import TestClient

    opened = []

    def start(films, *, every=0, again=60.0, **settings):
        made = ServiceSettings(**{"runs": (place[0] / "RUN",), "encoder": "own"} | settings)
        app = create_label_app(made, films, every=every, studio=None, again=again)
        client = TestClient(app, raise_server_exceptions=False)
        opened.append(client.__enter__())
        return opened[-1]

    yield start
    for client in opened:
        client.__exit__(None, None, None)


def connect(client, studio, names=LONGER, form=CONFIG):
    sent = {"project": "7.17", "schema": configuration(names, form)}
    return client.post("/setup", json={**sent, "hostname": studio.address, "access_token": TOKEN})


def asked(client, *films, names=LONGER, form=CONFIG, entry="video", **data):
    """Proposals for films, as the server asks for them."""
    tasks = [
        {"id": number, "project": 7, "data": {entry: film, **data}}
        for number, film in enumerate(films, 1)
    ]
    body = {"tasks": tasks, "label_config": configuration(names, form), "project": "7.17"}
    return client.post("/predict", json={**body, "params": {"login": None, "context": None}})


def hook(action, number, steps, film, **changes):
    """An event of an annotation at ten frames a second, as the server sends it."""
    annotation = {"id": 40 + number, "result": regions(steps), "was_cancelled": False, **changes}
    project = {"id": 7, "label_config": configuration(LONGER)}
    task = {"id": number, "data": {"video": film}, "project": 7}
    return {"action": action, "annotation": annotation, "task": task, "project": project}


def about(steps, seconds):
    """The same names at times that differ by at most so many seconds."""
    near = [[pytest.approx(time, abs=seconds) for time in times] for _, *times in steps]
    return [(name, *times) for (name, *_), times in zip(steps, near, strict=True)]


def waited(client, done):
    """The status once it is as wanted."""
    for _ in range(1200):
        status = client.get("/health").json()
        if done(status):
            return status
        time.sleep(0.1)
    raise AssertionError(status)


def test_proposals_are_the_steps_of_the_library(place, films, studio, back_end):
    client = back_end(films)
    assert connect(client, studio).json() == {"model_version": "cefito RUN v0"}
    addresses = ["/data/upload/1/n0.mp4", "/data/local-files/?d=x%2Fn1.mp4"]
    answer = asked(client, *addresses, f"{studio.address}/open/n2.mp4").json()
    assert [entry["model_version"] for entry in answer["results"]] == ["cefito RUN v0"] * 3
    for number, proposal in enumerate(answer["results"]):
        film = place[0] / "new" / f"n{number}.mp4"
        track = recognise(films.start, film)
        assert read_steps(proposal) == about([(s.name, s.start, s.end) for s in track.steps], 0.05)
        ((_, facts),) = next_films(films.start, [str(film)])
        assert proposal["score"] == pytest.approx(1 - facts.help, abs=1e-4)
        assert facts.new > 0
        scores = [region["score"] for region in proposal["result"]]
        assert scores == [round(step.probability, 4) for step in track.steps]
    assert {shown for _, shown in studio.asked} == {f"Token {TOKEN}"}


def test_rows_of_a_run_may_be_more_than_one_a_second(studio, back_end, place, tmp_path):
    """As of `cefito data prepare custom --videos FILMS --row-rate 2`."""
    truth = make_place(tmp_path, 1, row_rate=2)["n0.mp4"]
    start = open_run(tmp_path / "RUN")
    films = CorrectedFilms(tmp_path / "labels", start, start.dataset())
    client = back_end(films, runs=(start.folder,))
    connect(client, studio)
    (proposal,) = asked(client, f"{studio.address}/open/n0.mp4").json()["results"]
    track = recognise(start, place[0] / "new" / "n0.mp4")
    assert read_steps(proposal) == about([(s.name, s.start, s.end) for s in track.steps], 0.05)
    event = hook("ANNOTATION_CREATED", 1, truth, f"{studio.address}/open/n0.mp4")
    assert client.post("/webhook", json=event).status_code == 200
    data = open_dataset(films.folder / "versions" / str(films.prepare()) / "data")
    (kept,) = (films.folder / "features").glob("*.npy")
    assert len(np.load(kept)) == truth[-1][2] + 1  # encoded at one row a second
    assert data.timeline.rate == 2
    assert len(data.timeline.videos[-1]) == 2 * (truth[-1][2] + 1)
    Retraining(films.folder, start.folder)(1)
    assert open_run(films.run(1)).own_recogniser.rate == 2


def test_films_that_were_encoded_before_the_time_out_are_kept(films, studio, back_end, monkeypatch):
    """Label Studio goes after 100 s, here with the first film; asking again goes on."""
    client, encoded = back_end(films), []
    connect(client, studio)
    encoding = client.app.state.service.encoding
    encode = encoding.function
    monkeypatch.setattr(encoding, "function", lambda of: encoded.append(of) or encode(of))
    addresses = [f"/data/upload/1/n{number}.mp4" for number in range(3)]
    tasks = [{"id": at, "data": {"video": address}} for at, address in enumerate(addresses)]
    body = json.dumps({"tasks": tasks, "label_config": configuration(LONGER), "project": "7"})
    messages = [{"type": "http.request", "body": body.encode()}]
    sent = []

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = {"host": "testserver", "content-type": "application/json"}
    scope = {
        **{"type": "http", "method": "POST", "path": "/predict", "query_string": b""},
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    client.portal.call(client.app, scope, receive, send)
    assert len(encoded) == 1
    assert len(asked(client, *addresses).json()["results"]) == 3
    assert len(encoded) == 3


def test_labels_for_a_project_are_the_steps_of_the_run(films):
    names = [action.name for action in films.start.taxonomy.actions]
    assert Tags.of(films.labels.read_text("utf-8")) == Tags(labels=names)
    quoted = ('add "salt" & oil', "the cook's < 3 eggs")
    assert Tags.of(label_studio.configuration(quoted)).labels == quoted


def test_rows_of_a_film_are_kept_by_its_digest(place, films, studio, back_end, monkeypatch):
    client = back_end(films)
    connect(client, studio)
    first = asked(client, "/data/upload/1/n0.mp4").json()
    encoded = [path.stem for path in (films.folder / "features").glob("*.npy")]
    monkeypatch.setattr(client.app.state.service, "encoding", None)  # nothing can be encoded
    again = asked(client, "/data/local-files/?d=n0.mp4").json()
    assert (again, encoded) == (first, [file_digest(place[0] / "new" / "n0.mp4")])
    refused = asked(client, "/data/upload/1/n1.mp4")
    assert refused.json()["type"] == "urn:cefito:no-encoder"


def test_seconds_for_labels_of_sounds_and_labels_that_are_missing(films, studio, back_end):
    client, form = back_end(films), {"form": AUDIO, "names": ("Boil!", "stir")}
    assert connect(client, studio, **form).status_code == 200
    (proposal,) = asked(client, "/data/upload/1/n0.mp4", entry="clip", **form).json()["results"]
    (region,) = proposal["result"]
    assert (region["type"], region["from_name"], region["to_name"]) == ("labels", "kind", "sound")
    track = recognise(films.start, Path(studio.films / "n0.mp4"))
    step = next(step for step in track.steps if step.name == "boil")
    times = {"start": round(step.start, 3), "end": round(step.end, 3)}
    assert region["value"] == {**times, "labels": ["Boil!"]}


def test_the_task_that_the_data_name_is_that_of_the_film(films, studio, back_end, monkeypatch):
    client, noted = back_end(films), mock.Mock(side_effect=Recording.recognition)
    connect(client, studio)
    monkeypatch.setattr(Recording, "recognition", lambda *given, **how: noted(*given, **how))
    for data in ({"task": "Tea!"}, {"task": "toast"}, {}):
        assert asked(client, "/data/upload/1/n0.mp4", **data).status_code == 200
    assert [call.kwargs["task"] for call in noted.mock_calls] == [0, None, None]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"tasks": []}, 422, "a length of at least 1"),
        ({"label_config": "<View>"}, 422, "cannot be read"),
        ({"label_config": "<View><Choices name='a' toName='b'/></View>"}, 422, "no control tag"),
        ({"tasks": [{"id": 1, "data": {}}]}, 422, "no address of a film in 'video'"),
        ({"tasks": [{"id": 1, "data": {"video": "s3://b/n.mp4"}}]}, 422, "presigned"),
        ({"tasks": [{"id": 1, "data": {"video": "file:///etc/passwd"}}]}, 422, "address of http"),
        ({"tasks": [{"id": 1, "data": {"video": "/data/upload/none"}}]}, 422, "404"),
        ({"tasks": [{"id": 1, "data": {"video": "https://127.0.0.1:1/n"}}]}, 422, "be fetched"),
        ({"project": "8.1", "tasks": [{"id": 1, "data": {"video": "/a"}}]}, 422, "is unknown"),
    ],
)
def test_what_cannot_be_read_is_a_problem(films, studio, back_end, change, status, words):
    client = back_end(films)
    connect(client, studio)
    tasks = [{"id": 1, "data": {"video": "/data/upload/1/n0.mp4"}}]
    body = {"tasks": tasks, "label_config": configuration(LONGER), "project": "7.17"}
    answer = client.post("/predict", json={**body, **change})
    form = answer.headers["content-type"]
    assert (answer.status_code, form) == (status, "application/problem+json")
    assert words in answer.json()["detail"]


def test_one_film_that_is_missing_leaves_the_others_their_proposals(
    films, studio, back_end, caplog
):
    client = back_end(films)
    connect(client, studio)
    answer = asked(client, "/data/upload/1/x.mp4", "/data/upload/1/n0.mp4").json()
    missing, there = answer["results"]
    assert missing == []
    assert there["result"]
    assert caplog.messages[-1].startswith("no proposal for task 1: /data/upload/1/x.mp4: cannot be")


def test_labels_must_name_steps(films, studio, back_end):
    answer = connect(back_end(films), studio, names=("dog", "cat"))
    assert (answer.status_code, answer.json()["field"]) == (422, "schema")
    assert "boil" in answer.json()["detail"]


def test_a_token_is_needed_but_for_health(films, studio, back_end):
    client = back_end(films, token="a-token-of-24-characters")
    posted = ("/setup", "/predict", "/webhook", "/train")
    assert {*client.app.openapi()["paths"]} == {"/", "/health", "/ready", "/metrics", *posted}
    assert client.get("/health").json()["status"] == "UP"
    assert connect(client, studio).status_code == 401
    client.auth = ("anyone", "a-token-of-24-characters")  # as Label Studio shows it
    assert connect(client, studio).status_code == 200


def test_a_film_that_is_too_large_is_refused(place, tmp_path, studio):
    server = Studio(address=studio.address, token=TOKEN)
    with pytest.raises(DataError, match="more than 0 MiB"):
        fetch_film("/data/upload/1/n0.mp4", tmp_path / "film", studio=server, most=100)


def test_a_film_that_finds_the_disk_full_says_so(tmp_path, studio, largest):
    server = Studio(address=studio.address, token=TOKEN)
    largest(100)
    with pytest.raises(DataError, match="Raise the limit of a file's size"):
        fetch_film("/data/upload/1/n0.mp4", tmp_path / "film", studio=server, most=1 << 20)


def test_only_the_server_sees_the_token(tmp_path, studio):
    other = Studio(address="http://127.0.0.1:1", token=TOKEN)
    fetch_film(f"{studio.address}/open/n0.mp4", tmp_path / "film", studio=other, most=1 << 20)
    assert studio.asked == [("/open/n0.mp4", None)]


def test_a_token_of_long_life_is_exchanged(tmp_path, studio):
    server = Studio(address=studio.address, token="a.b.c")
    fetch_film("/data/upload/1/n0.mp4", tmp_path / "film", studio=server, most=1 << 20)
    assert studio.asked == [("/data/upload/1/n0.mp4", "Bearer access")]


def test_corrected_films_are_written_down_before_the_answer(place, films, studio, back_end):
    client, truth = back_end(films), place[1]
    path = films.folder / "corrected" / "7-1.json"
    event = hook("ANNOTATION_CREATED", 1, truth["n0.mp4"], "/data/upload/1/n0.mp4")
    assert client.post("/webhook", json=event).json() == {"status": "ok", "corrected": 1}
    assert json.loads(path.read_text())["annotations"] == [event["annotation"]]
    (track,) = read([path], Choices(task="tea")).tracks  # as `cefito data prepare custom` does
    assert [(step.name, step.start, step.end) for step in track.steps] == truth["n0.mp4"]
    fewer = hook("ANNOTATION_UPDATED", 1, truth["n0.mp4"][:2], "/data/upload/1/n0.mp4")
    assert client.post("/webhook", json=fewer).json()["corrected"] == 1
    assert json.loads(path.read_text())["annotations"] == [fewer["annotation"]]
    for changes in ({"was_cancelled": True}, {"result": []}):  # skipped, emptied
        other = hook("ANNOTATION_UPDATED", 1, truth["n0.mp4"], "/data/upload/1/n0.mp4", **changes)
        assert client.post("/webhook", json=other).json()["corrected"] == 0
        assert client.post("/webhook", json=event).json()["corrected"] == 1
    gone = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 41}], "project": None}
    assert client.post("/webhook", json=gone).json()["corrected"] == 0
    assert not path.exists()
    assert client.post("/webhook", json=event).json()["corrected"] == 1
    gone = {"action": "TASKS_DELETED", "tasks": [{"id": 1}], "project": event["project"]}
    assert client.post("/webhook", json=gone).json()["corrected"] == 0
    assert client.post("/webhook", json={"action": "PROJECT_UPDATED"}).json()["corrected"] == 0
    many = {**event, "action": "ANNOTATIONS_CREATED", "annotation": [event["annotation"]] * 2}
    assert client.post("/webhook", json={**many, "task": [event["task"]]}).status_code == 422
    assert waited(client, lambda status: not status["training"])["failed"] == ""  # never tried


def test_corrections_at_once_are_all_written_down(place, films, back_end):
    client, steps = back_end(films), place[1]["n0.mp4"]
    events = [
        hook("ANNOTATION_CREATED", number, steps, "/data/upload/1/n0.mp4", id=place)
        for number in (1, 2)
        for place in range(10 * number, 10 * number + 8)
    ]
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda event: client.post("/webhook", json=event), events)
    assert [answer.status_code for answer in answers] == [200] * 16
    for number in (1, 2):
        record = json.loads((films.folder / "corrected" / f"7-{number}.json").read_text())
        ids = {annotation["id"] for annotation in record["annotations"]}
        assert ids == {*range(10 * number, 10 * number + 8)}


@pytest.mark.slow
def test_it_learns_from_corrected_films(place, films, studio, back_end):
    client, truth = back_end(films, every=3), place[1]
    connect(client, studio)
    address = "/data/upload/1/n4.mp4"
    before = read_steps(asked(client, address).json()["results"][0])
    assert "stir" not in [name for name, *_ in before]
    for number, name in enumerate(list(truth)[:3], 1):
        event = hook("ANNOTATION_CREATED", number, truth[name], f"/data/upload/1/{name}")
        assert client.post("/webhook", json=event).status_code == 200
    status = waited(
        client, lambda status: status["model_version"].endswith("v1") and not status["training"]
    )
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert status == json.loads(shown) | {"corrected": 3, "learned": 3}
    after = read_steps(asked(client, address).json()["results"][0])
    assert [name for name, *_ in after] == list(LONGER)
    assert after == about(truth["n4.mp4"], 1)
    newer = open_run(films.run(1))
    assert newer.info.started_from.folder == str(films.start.folder)
    assert open_run(films.start.folder).files == films.start.files  # as it was
    assert newer.own_recogniser.config == films.start.own_recogniser.config
    data = newer.dataset()
    learned = [data.taxonomy.names([s.action for s in video.steps]) for video in data.videos]
    assert learned == [[*PLAN]] * 8 + [[*LONGER]] * 3
    films = CorrectedFilms(films.folder, films.start, films.videos)
    again = back_end(films)
    assert again.get("/").json()["model_version"] == "cefito RUN v1"
    keep(films, 4, "n3.mp4", truth["n3.mp4"])
    again.post("/train", json={"label_config": configuration(LONGER)})
    waited(again, lambda _: (films.run(2) / "run.json").exists())
    assert RunInfo.read(films.run(2)).started_from == newer.info.started_from  # RUN


def test_training_that_is_asked_for_takes_what_the_server_has(place, films, studio, back_end):
    client, truth = back_end(films), place[1]
    connect(client, studio)
    event = hook("ANNOTATION_CREATED", 1, truth["n0.mp4"], "/data/upload/1/n0.mp4")
    studio.exported = [{**event["task"], "annotations": [event["annotation"]]}]
    start = {"action": "START_TRAINING", "project": event["project"]}
    assert client.post("/webhook", json=start).json()["corrected"] == 1
    waited(client, lambda status: status["learned"] == 1)
    tasks, labels = studio.exported, configuration(LONGER)
    older = {"annotations": tasks, "label_config": labels, "project": "7.1"}
    assert client.post("/train", json=older).json() == {"status": "ok", "corrected": 1}


@pytest.mark.slow
def test_a_training_that_was_ended_goes_on_to_the_same_weights(place, films, back_end):
    for number, (name, steps) in enumerate(place[1].items(), 1):
        keep(films, number, name, steps)
    number = films.prepare()
    assert (films.unfinished, films.version, films.new) == (1, 0, 0)
    shutil.copytree(films.folder, films.folder.with_name("whole"))
    Retraining(films.folder.with_name("whole"), films.start.folder)(number)
    client = back_end(films, again=600.0)
    waited(client, lambda _: active_children())
    (training,) = active_children()
    training.kill()
    assert waited(client, lambda status: status["failed"])["failed"] == "its process was ended"
    client.post("/train", json={"label_config": configuration(LONGER)})
    waited(client, lambda status: status["training"])  # at once
    client.__exit__(None, None, None)  # the process that trains is killed
    assert films.unfinished == 1
    waited(back_end(films), lambda status: status["model_version"].endswith("v1"))
    whole, resumed = films.folder.with_name("whole"), films.folder
    weights = sorted(whole.glob("versions/1/run/**/*.safetensors"))
    assert weights
    for path in weights:
        assert (resumed / path.relative_to(whole)).read_bytes() == path.read_bytes()


@pytest.fixture
def largest():
    """A function that bounds the bytes of files that are written; None for no bound."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def bound(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))

    yield bound
    bound(None)


@pytest.mark.slow
def test_a_retraining_waits_for_space_on_the_disk(place, films, back_end, largest):
    truth, run = place[1], place[0] / "RUN"
    for number, name in enumerate(list(truth)[:2], 1):
        keep(films, number, name, truth[name])
    assert films.prepare() == 1
    before = films.corrected
    event = hook("ANNOTATION_CREATED", 3, truth["n2.mp4"], "/data/upload/1/n2.mp4")
    # the recogniser that knows a step more than that of the run is larger
    largest(max(path.stat().st_size for path in run.glob("*")))
    client = back_end(films, every=2, again=0.2)
    status = waited(client, lambda status: status["failed"])
    assert "/recogniser.safetensors: could not be written" in status["failed"]
    assert (status["model_version"], status["corrected"]) == ("cefito RUN v0", 2)
    largest(200)
    refused = client.post("/webhook", json=event)
    assert (refused.status_code, films.corrected) == (503, before)
    assert "written down as soon as there is space" in refused.json()["detail"]
    largest(None)
    status = waited(client, lambda status: status["model_version"].endswith("v1"))
    status = waited(client, lambda status: status["corrected"] == 3)
    assert (status["learned"], status["failed"]) == (2, "")
    record = json.loads((films.folder / "corrected" / "7-3.json").read_text())
    assert record["annotations"] == [event["annotation"]]


def test_films_whose_rows_cannot_be_kept_get_proposals(films, studio, back_end, monkeypatch):
    client, encoded = back_end(films), []
    connect(client, studio)
    first = asked(client, "/data/upload/1/n0.mp4").json()
    encoding = client.app.state.service.encoding
    encode = encoding.function
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "function", lambda of: encoded.append(of) or encode(of))
        shutil.move(films.folder / "features", films.folder / "moved")
        for number in (1, 2):
            assert asked(client, "/data/upload/1/n0.mp4").json() == first
            assert len(encoded) == number
    shutil.move(films.folder / "moved", films.folder / "features")
    films.folder.joinpath("films.json").unlink()
    films.folder.joinpath("films.json").mkdir()  # in the way
    assert asked(client, "/data/local-files/?d=n0.mp4").json() == first
    assert films.film("/data/local-files/?d=n0.mp4") is None


def test_a_correction_that_cannot_be_used_holds_up_no_other(place, films, back_end):
    client, truth = back_end(films), place[1]
    damaged = films.folder / "corrected" / "7-1.json"
    damaged.write_text("{")
    for number, status in ((1, 422), (2, 200)):
        event = hook("ANNOTATION_CREATED", number, truth["n0.mp4"], "/data/upload/1/n0.mp4")
        assert client.post("/webhook", json=event).status_code == status
    assert damaged.read_text() == "{"
    event["annotation"]["result"][0]["value"]["timelinelabels"] = ["\ud800"]
    answer = client.post(
        "/webhook", content=json.dumps(event), headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "annotation")


def test_pauses_before_further_attempts_double(monkeypatch):
    """By a clock that leaps to the end of each pause."""
    films = mock.Mock(unfinished=1, new=0)
    failing = mock.PropertyMock(side_effect=[RunError("full")] * 8 + [asyncio.CancelledError])
    type(films).folder = failing  # of the training's first look
    labels = Labels(mock.Mock(), films, every=0, studio=None)
    times, scope = list[float](), anyio.CancelScope

    def leap(deadline):
        times.append(deadline if deadline < math.inf else 0)
        return scope(deadline=-math.inf)

    monkeypatch.setattr(anyio, "CancelScope", leap)
    monkeypatch.setattr(anyio, "current_time", lambda: times[-1])
    with suppress(asyncio.CancelledError):
        asyncio.run(labels._retrain())
    assert "after one minute, then two, four, at most an hour" in PAGE
    assert np.diff(times).tolist() == [60, 120, 240, 480, 960, 1920, 3600, 3600]


@pytest.mark.slow
def test_a_version_that_failed_gives_way_to_one_of_more_films(place, films, studio, back_end):
    truth = place[1]
    keep(films, 1, "n0.mp4", truth["n0.mp4"])
    assert films.prepare() == 1
    films.run(1).write_text("in the way")
    client = back_end(films)
    connect(client, studio)
    assert waited(client, lambda status: status["failed"])["learned"] == 1
    event = hook("ANNOTATION_CREATED", 2, truth["n1.mp4"], "/data/upload/1/n1.mp4")
    studio.exported = [{**event["task"], "annotations": [event["annotation"]]}]
    start = {"action": "START_TRAINING", "project": event["project"]}
    assert client.post("/webhook", json=start).json()["corrected"] == 2
    waited(client, lambda status: status["model_version"].endswith("v2"))
    assert [path.name for path in (films.folder / "versions").iterdir()] == ["2"]


def keep(films, number, name, steps, **data):
    event = hook("ANNOTATION_CREATED", number, steps, f"/data/upload/1/{name}")
    event["task"]["data"] |= data
    rows = np.random.default_rng(number).standard_normal((40, films.start.own_recogniser.width))
    films.keep_rows(f"/data/upload/1/{name}", f"{number:064x}", rows.astype(np.float32))
    films.keep("7", event["task"], event["annotation"], Tags.of(configuration(LONGER)))


def test_films_that_cannot_be_used_are_left_out(place, films):
    steps = place[1]["n0.mp4"]
    event = hook("ANNOTATION_CREATED", 1, steps, "/data/upload/1/gone.mp4")
    films.keep("7", event["task"], event["annotation"], Tags.of(configuration(LONGER)))
    assert films.unread == {"/data/upload/1/gone.mp4": "7"}
    with pytest.raises(DataError, match=r"gone\.mp4 is not encoded yet\."):
        films.prepare()  # as when it is corrected while others are fetched
    with pytest.raises(DataError, match=r"gone\.mp4 could not be read: no film"):
        films.prepare({"/data/upload/1/gone.mp4": "no film"})
    keep(films, 2, "n1.mp4", place[1]["n1.mp4"], task="Coffee")  # a new one
    assert films.prepare() == 1
    assert (list(films.learned), films.new) == (["7-2"], 1)
    data = open_dataset(films.folder / "versions" / "1" / "data")
    assert [task.name for task in data.taxonomy.tasks] == ["tea", "Coffee"]


def test_rows_of_another_encoder_are_refused(films):
    (films.folder / "features" / "extract.json").write_text('{"model": "other"}')
    with pytest.raises(RunError, match="another encoder"):
        CorrectedFilms(films.folder, films.start, films.videos)


def test_defaults_and_limits_of_the_page():
    (block,) = re.findall(r"^ *<View>.*</View>", PAGE, re.MULTILINE | re.DOTALL)
    assert Tags.of(block) == Tags(labels=("boil water", "pour water"))
    assert Tags.of(block.replace("TimelineLabels", "Labels")).kind == "labels"  # of a Video tag
    outside = (Path(__file__).resolve().parents[2] / "Makefile").read_text("utf-8")
    assert f"Label Studio {re.search('label-studio==(.*)', outside)[1]}," in PAGE
    defaults = label.__kwdefaults__ or {}
    assert f"films ({defaults['retrain_after']} by default, 0 for never)" in PAGE
    assert f"Connect Model: `http://127.0.0.1:{defaults['port']}`" in PAGE
    assert (_FILMS.body_mib, _FILMS.upload_mib) == (64, 16 * 1024)


def test_the_address_and_a_token_of_label_studio_may_be_given(place, tmp_path, studio, monkeypatch):
    """As where its own address is wrong; the run is a shared file."""
    from fastapi.testclient import TestClient

    apps = []
    monkeypatch.setattr("cefito.serve.process.serve", lambda app, *_, **__: apps.append(app))
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", TOKEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    export_run(place[0] / "RUN", tmp_path / "run.zip")
    (tmp_path / "token").write_text("a-token-of-24-characters")
    call = f"label {tmp_path}/run.zip --dataset {place[0]}/DATA --encoder {place[0]}/dinov2"
    call += f" --studio {studio.address} --token-file {tmp_path}/token --port 0"
    assert main(call.split()) == 0
    assert apps[0].state.service.limits == _FILMS
    with TestClient(apps[0], "http://localhost") as client:
        assert connect(client, studio).status_code == 401
        client.auth = ("cefito", "a-token-of-24-characters")
        connect(client, mock.Mock(address="http://127.0.0.1:1"))
        assert asked(client, "/data/upload/1/n0.mp4").json()["results"][0]["result"]
    assert studio.asked[-1][1] == f"Token {TOKEN}"
    assert (tmp_path / "run.zip.labels" / "labels.xml").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--retrain-after", "-1"], "--retrain-after"),
        (["--studio", "http://x"], "LABEL_STUDIO_API_KEY"),
        (["--host", "0.0.0.0"], "token"),
    ],
)
def test_options_are_refused_in_one_line(place, tmp_path, capsys, monkeypatch, more, words):
    monkeypatch.delenv("LABEL_STUDIO_API_KEY", raising=False)
    call = ["label", str(place[0] / "RUN"), "--folder", str(tmp_path / "labels"), *more]
    assert main(call) == 2
    assert words in capsys.readouterr().err
