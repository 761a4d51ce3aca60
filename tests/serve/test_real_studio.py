"""The back end in the real Label Studio, which the environment variable names."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

from cefito.inference.proposals import compare
from cefito.tracks import TimedStep
from serve.label_films import LONGER, make_place
from serve.studios import TOKEN, configuration, read_steps, regions

pytest.importorskip("av")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.nightly, pytest.mark.slow]

COMMAND = os.environ.get("CEFITO_LABEL_STUDIO", "")
OPEN = {"ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false"}
PASSWORD = "a-token-of-24-characters"


@contextmanager
def process(arguments, log, **more):
    """Run a program with a log until the context ends."""
    with log.open("w") as out:
        environment = {**os.environ, **more}
        started = subprocess.Popen(arguments, stdout=out, stderr=out, env=environment)
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(30)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def waited(look, seconds=900):
    """What a look gives once it gives something."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if value := look():
                return value
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("waited in vain")


class Caller:
    """Calls the server as a program with a user's token does."""

    def __init__(self, address):
        self.address = address

    def __call__(self, path, body=None, *, method=None, kind="application/json"):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"authorization": f"Token {TOKEN}", "content-type": kind}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as problem:
            raise AssertionError(f"{path}: {problem.code} {problem.read()[:500]!r}") from problem

    def upload(self, project, film):
        """Upload a film, which becomes a task."""
        border = secrets.token_hex(8)
        head = f'--{border}\r\nContent-Disposition: form-data; name="f"; filename="{film.name}"'
        parts = f"{head}\r\nContent-Type: video/mp4\r\n\r\n".encode(), film.read_bytes()
        body = b"".join((*parts, f"\r\n--{border}--\r\n".encode()))
        kind = f"multipart/form-data; boundary={border}"
        self(f"/api/projects/{project}/import", body, kind=kind)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture
def started(tmp_path):
    """Label Studio and the back end of a run of drawn films, both listening."""
    if not COMMAND:
        pytest.skip("CEFITO_LABEL_STUDIO names no command of Label Studio, such as label-studio")
    truth = make_place(tmp_path, new=11)
    port, user = free_port(), ["--username", "a@example.org", "--password", "12345678"]
    start = [*shlex.split(COMMAND), "start", "--no-browser", "--internal-host", "127.0.0.1"]
    start += ["--port", str(port), "--data-dir", str(tmp_path / "studio"), *user]
    start += ["--user-token", TOKEN, "--enable-legacy-api-token"]
    label = [sys.executable, "-m", "cefito", "label", str(tmp_path / "RUN"), "--port", "0"]
    label += ["--retrain-after", "10"]
    with ExitStack() as stack:
        more = {**OPEN, "LABEL_STUDIO_HOST": f"http://127.0.0.1:{port}"}
        stack.enter_context(process(start, tmp_path / "studio.log", **more))
        stack.enter_context(process(label, tmp_path / "label.log", CEFITO_TOKEN=PASSWORD))
        said = waited(lambda: re.search(r"on (http\S+)", (tmp_path / "label.log").read_text()))
        call = Caller(f"http://127.0.0.1:{port}")
        waited(lambda: urllib.request.urlopen(f"{call.address}/health", timeout=5).status == 200)
        yield call, said[1], tmp_path, truth


def test_ten_films_labelled_save_edits_of_the_eleventh(started):
    call, back_end, folder, truth = started
    names = {"title": "films", "label_config": configuration(LONGER)}
    project = call("/api/projects/", names)["id"]
    for name in truth:
        call.upload(project, folder / "new" / name)
    access = {"auth_method": "BASIC_AUTH", "basic_auth_user": "cefito", "basic_auth_pass": PASSWORD}
    call("/api/ml/", {"project": project, "url": back_end, "title": "cefito", **access})
    (hook,) = call(f"/api/webhooks/?project={project}")
    headers = {"headers": {"Authorization": f"Bearer {PASSWORD}"}}
    call(f"/api/webhooks/{hook['id']}/", headers, method="PATCH")

    listed = f"/api/tasks?project={project}&fields=all"
    tasks = call(listed)["tasks"]
    assert [task["data"]["video"].rpartition("-")[2] for task in tasks] == list(truth)
    ids = [task["id"] for task in tasks]
    (first,) = call(f"/api/tasks/{ids[-1]}")["predictions"]

    def opened():
        """Id, version and proposed steps of the film that a person gets to label next."""
        task = call(f"/api/projects/{project}/next")
        (proposal,) = task["predictions"]
        return task["id"], proposal["model_version"], read_steps(proposal)

    def edits(proposed):
        """What a person changes in the proposal of the eleventh film."""
        mine, right = (
            [TimedStep(name=name, start=start, end=end) for name, start, end in steps]
            for steps in (proposed, truth["n10.mp4"])
        )
        return compare([(mine, right)]).edits

    for number, steps in zip(ids[:-1], truth.values(), strict=False):
        assert opened()[:2] == (number, "cefito RUN v0")
        call(f"/api/tasks/{number}/annotations/", {"result": regions(steps)})

    def learned():
        with urllib.request.urlopen(f"{back_end}/health", timeout=10) as answer:
            status = json.load(answer)
        assert not status["failed"]
        return status["model_version"] == "cefito RUN v1" and status

    assert waited(learned)["learned"] == 10
    number, version, steps = opened()
    assert (number, version) == (ids[-1], "cefito RUN v1")
    before, after = edits(read_steps(first)), edits(steps)
    assert after < before < 3 * len(LONGER)
    assert [name for name, *_ in steps] == [*LONGER]
    every = {"selectedItems": {"all": True, "excluded": []}}
    call(f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", every)
    made = [{one["model_version"] for one in task["predictions"]} for task in call(listed)["tasks"]]
    assert made == [{"cefito RUN v0", "cefito RUN v1"}] * 11
