"""Uploads: which formats are decoded, the encoding process, and the route."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cefito.encoders.s3d import S3D
from cefito.inference.observer import ObservationRecipe
from cefito.runs.run import open_run
from cefito.serve import middleware
from cefito.serve import service as service_module
from cefito.serve.problems import ProblemError
from cefito.serve.uploads import Decoder, EncodingProcess, Upload, kept
from grey_videos import draw_greys
from serve.odd_uploads import behave, load_until, take
from tiny_models import tiny_dinov2

pytestmark = pytest.mark.usefixtures("encoding_here")
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20
TEA = "'tea' (horizon 3)"
RECIPE = ObservationRecipe(place="RUN", made_with={}, seconds=1, size=8)
MP4 = b"\x00\x00\x00\x18ftypisom" + b"x" * 20
UPLOAD = "/v1/plan/upload"


def opened(**files):
    """Files of an upload."""
    return {name: BytesIO(data) for name, data in files.items()}


@pytest.mark.parametrize(
    ("name", "head"),
    [
        *(("goal", head) for head in (PNG, b"\xff\xd8\xff\xe0", b"BM0", b"RIFF0000WEBPVP8 ")),
        *(("video", head) for head in (MP4, b"\x1aE\xdf\xa30000", b"RIFF0000AVI LIST")),
    ],
)
def test_formats_are_known_by_their_first_bytes(name, head):
    with kept(opened(**{name: head})) as paths:
        assert (paths[name].name, paths[name].read_bytes()) == (name, head)
    assert not paths[name].parent.exists()


@pytest.mark.parametrize("form", ["mp4", "mov", "mkv", "webm", "avi"])
def test_films_of_every_format_are_decoded(decoder, tmp_path, form):
    pytest.importorskip("av")
    draw_greys(tmp_path / f"x.{form}", 3)
    found = decoded(decoder, video=(tmp_path / f"x.{form}").read_bytes())
    assert found.known.tolist() == [[True, True]]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("initial", b""),
        ("initial", b"%!PS-Adobe-3.0 EPSF-3.0"),  # decoded by another program
        ("initial", b"GIF89a"),
        ("initial", b"<svg xmlns='http://www.w3.org/2000/svg'>"),
        ("initial", MP4),
        ("video", b"#EXTM3U\nfile:///etc/passwd\n"),  # refers to other files
        ("video", b"ffconcat version 1.0\nfile /etc/passwd\n"),
        ("video", b"<?xml version='1.0'?><MPD>"),
        ("video", PNG),
        ("video", b""),
    ],
)
def test_other_formats_are_not_decoded(name, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ProblemError, match="is not") as refusal, kept(opened(**{name: data})):
        pytest.fail("was accepted")
    assert refusal.value.field == name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_decoder_that_hangs_or_ends_is_replaced():
    process: Any = EncodingProcess(behave, threads=1, seconds=1.0)
    paths = {"initial": Path("/tmp/cefito-1/initial"), "goal": Path("/tmp/cefito-1/goal")}
    try:
        first, said = process("one", paths)
        assert said == "one"
        assert first != os.getpid()
        with pytest.raises(RuntimeError, match="a defect"):
            process("fail", paths)
        with pytest.raises(ProblemError) as refusal:
            process("refuse", paths)
        assert refusal.value.detail == "'initial': is damaged. Make it again."  # names no folder
        assert process("two", paths)[0] == first  # which keeps its encoders
        with pytest.raises(ProblemError, match="crashed the decoder"):
            process("crash", paths)
        second, _ = process("three", paths)
        began = time.monotonic()
        with pytest.raises(ProblemError, match="within 1 seconds"):
            process("hang", paths)
        assert time.monotonic() - began < 20
        assert len({first, second, process("four", paths)[0]}) == 3
    finally:
        process.close()


# the decoder, in this process


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("transformers")
    return tiny_dinov2(tmp_path_factory.mktemp("dinov2"), size=8)


def picture(seed, size=(40, 32)):
    """A PNG."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def decoder(model):
    return Decoder({TEA: RECIPE}, encoder=str(model), weights=None, pixels=10_000, memory=1 << 30)


def decoded(decoder, **files):
    times: dict[str, Any] = {"start": 0.0, "end": 1.0} if "video" in files else {}
    with kept(opened(**files)) as paths:
        return decoder(Upload(RECIPE, paths, **times))


@pytest.mark.nightly
def test_the_process_encodes_as_this_one(decoder):
    expected = decoded(decoder, initial=picture(0))
    decoder.opened.clear()
    process = EncodingProcess(decoder, threads=1, seconds=60)
    try:
        with kept(opened(initial=picture(0))) as paths:
            found = process(Upload(RECIPE, paths), paths)
    finally:
        process.close()
    np.testing.assert_allclose(found.initial, expected.initial, rtol=1e-5)
    assert found.known.tolist() == [[True, False]]


def test_versions_of_a_run_share_an_encoder(decoder):
    """So that an upgrade loads none, unless its features have another."""
    first = decoded(decoder, initial=picture(0))
    with kept(opened(initial=picture(0))) as paths:
        wider = decoder(Upload(replace(RECIPE, size=24), paths))
    assert np.array_equal(wider.initial, np.tile(first.initial, 3))
    one, other = decoder.opened.values()
    assert one.encoder is other.encoder
    assert (one.recipe.size, other.recipe.size) == (8, 24)


def test_a_process_that_is_closed_while_it_loads_says_nothing(tmp_path, caplog):
    process = EncodingProcess(partial(load_until, tmp_path / "never"), threads=1, seconds=60)
    started = process.start()
    process.close()
    assert isinstance(started.exception(), ProblemError)
    assert caplog.messages == []


@pytest.mark.nightly
def test_a_process_ends_after_the_uploads_that_wait():
    process: Any = EncodingProcess(behave, threads=1, seconds=60)
    first, _ = process("one", {})
    process.retire()
    second, said = process("late", {})  # which came while another took its place
    assert said == "late"
    assert second != first


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"initial": PNG, "goal": PNG}, "cannot be read"),
        ({"initial": picture(0)[:200], "goal": PNG}, "cannot be read"),
        ({"initial": picture(0, (200, 200)), "goal": PNG}, "too large"),
        ({"video": MP4}, "cannot be opened as a video"),
    ],
)
def test_files_that_cannot_be_decoded(decoder, files, words):
    pytest.importorskip("av")
    assert words in decoded(decoder, **files)


@pytest.mark.parametrize("size", [(200_000, 1), (1, 200_000)])
def test_a_long_picture_is_refused(decoder, size):
    decoder.pixels = 10**6
    said = decoded(decoder, initial=picture(0, size), goal=picture(1))
    assert f"{size[0]:,} × {size[1]:,} pixels is too long" in said


@pytest.mark.parametrize(
    "problem", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: …")]
)
def test_an_upload_that_does_not_fit_into_memory(decoder, monkeypatch, problem):
    def fail(*given):
        raise problem

    monkeypatch.setattr("cefito.encoders.images.load_image", fail)
    said = decoded(decoder, initial=picture(0), goal=picture(1))
    assert said == "the upload takes too much memory to encode. Send a smaller one."


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits the address space")
def test_the_memory_of_the_encoding_process_is_bounded():
    process: Any = EncodingProcess(take, threads=1, seconds=60)
    try:
        assert process(100, {}) == [100, 1 << 18]
        with pytest.raises(ProblemError, match="True"):
            process(400, {})
        assert process(100, {}) == [100, 1 << 18]
    finally:
        process.close()


# the route


@pytest.fixture(scope="module")
def taking(serving, model):
    """A client of a service that decodes uploads in this process."""
    return serving(encoder=str(model))


def test_pictures_are_planned_between(taking, decoder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = {"initial": ("../../x.png", picture(0)), "goal": ("y", picture(1))}
    service = taking.app.state.service
    now, jobs, submit = time.monotonic(), [], service.scheduler.submit
    for module, seconds in ((middleware, now), (service_module, now + 7)):  # arrivals; later
        clock = SimpleNamespace(monotonic=lambda seconds=seconds: seconds)
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(service.scheduler, "submit", lambda job: jobs.append(job) or submit(job))
    response = taking.post(UPLOAD, files=files, data={"request": '{"run": "tea", "top_k": 2}'})
    assert response.status_code == 200, response.text
    assert len(response.json()["plans"]) == 2
    assert [*tmp_path.iterdir()] == []  # they are deleted
    found = decoded(decoder, initial=picture(0), goal=picture(1))
    listed = {name: getattr(found, name)[0].tolist() for name in ("initial", "goal")}
    same = taking.post("/v1/plan", json={"run": "tea", "top_k": 2, "observations": listed})
    assert same.json()["plans"] == response.json()["plans"]
    # deadlines begin with arrivals; of an upload, with the end of its encoding
    assert [job.deadline - now for job in jobs] == pytest.approx([37, 30])
    assert taking.get("/v1/model").json()["runs"][0]["uploads"] == ["pictures", "video"]


BOTH = {"initial": PNG, "goal": PNG}


@pytest.mark.parametrize(
    ("files", "data", "words"),
    [
        ({"initial": picture(0)}, {}, "needs both observations and takes no steps done before"),
        ({"initial": PNG, "video": MP4}, {}, "found 'initial', 'video'"),
        (BOTH, {"start": "1"}, "found 'goal', 'initial', 'start'"),
        ({"video": MP4}, {}, "found 'video'"),
        ({"video": MP4}, {"start": "x", "end": "2"}, "start: "),
        ({"video": MP4}, {"start": "1", "end": "nan"}, "end: "),
        ({"initial": PNG}, {"goal": "/etc/passwd"}, "goal: "),
        ({"initial": PNG, "goal": b"text"}, {}, "'goal' is not JPEG"),
        (BOTH, {"request": "{"}, "not valid JSON"),
        (BOTH, {"request": '{"observations": 1}'}, "none of that name"),
        (BOTH, {"nonsense": "1"}, "nonsense: there is none"),
        (BOTH, {}, "cannot be read as a picture"),
    ],
)
def test_uploads_that_cannot_be_used(taking, files, data, words):
    response = taking.post(UPLOAD, files=files, data={"request": '{"run": "tea"}', **data})
    assert response.status_code == 422, response.text
    assert words in response.json()["detail"]
    assert "/tmp/" not in response.text


def test_three_files_and_no_form(taking):
    three = [("initial", PNG), ("goal", PNG), ("video", MP4)]
    assert taking.post(UPLOAD, files=three).status_code == 400
    assert taking.post(UPLOAD, json={}).status_code == 422
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert taking.post(UPLOAD, content=b"nonsense", headers=broken).status_code == 400


def test_too_large_and_too_many_uploads(serving, taking, model, monkeypatch):
    client = serving(encoder=str(model), limits={"upload_mib": 0.01})
    files = {"initial": PNG + b"x" * 20_000, "goal": PNG}
    assert client.post(UPLOAD, files=files).status_code == 413
    monkeypatch.setattr(taking.app.state.service, "uploads", 16)
    response = taking.post(UPLOAD, files=BOTH, data={"request": '{"run": "tea"}'})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "5"


def test_the_file_of_weights_of_s3d_is_that_of_the_settings(serving, tmp_path):
    torch.save(S3D().state_dict(), tmp_path / "moved.pth")
    service = serving(encoder="s3d", weights=tmp_path / "moved.pth").app.state.service
    assert service.starting.result(60) == ""  # it was loaded, and encodes


@pytest.mark.nightly
def test_requests_are_told_that_the_encoder_is_loading(taking, place, monkeypatch, tmp_path):
    encoding = EncodingProcess(partial(load_until, tmp_path / "there"), threads=1, seconds=60)
    started = encoding.start()
    service = taking.app.state.service
    monkeypatch.setattr(service, "encoding", encoding)
    monkeypatch.setattr(service, "starting", started)
    try:
        for response in (taking.post(UPLOAD, files=BOTH), taking.get("/ready")):
            assert response.status_code == 503
            assert response.json()["type"] == "urn:cefito:not-ready"
            assert response.json()["detail"].startswith("loading the encoder of uploads.")
            assert int(response.headers["retry-after"]) > 0
        query = {"run": "tea", "observations": place.observations()}
        assert taking.post("/v1/plan", json=query).status_code == 200
        (tmp_path / "there").touch()
        started.result(120)
        assert taking.get("/ready").json() == {"status": "ready"}
        response = taking.post(UPLOAD, files=BOTH, data={"request": '{"run": "tea"}'})
        assert response.json()["detail"] == "loaded"  # by the process
    finally:
        encoding.close()


def test_an_upload_waits_no_longer_than_its_own_encoding_may_take(decoder, monkeypatch):
    process = EncodingProcess(decoder, threads=1, seconds=-1)
    try:
        with pytest.raises(ProblemError, match="too many uploads came before") as refused:
            process(Upload(RECIPE, {}), {})
        assert refused.value.status_code == 429
    finally:
        process.close()


def test_runs_of_one_title_are_encoded_by_their_own_recipes(place):
    """As for a session that still follows a run whose place another one has taken."""
    run = open_run(place.run)
    recipe = ObservationRecipe.of(run)
    assert recipe.digest == ObservationRecipe.of(open_run(place.run)).digest
    changes = {"seconds": 7}, {"names": ("x",)}, {"mean": np.ones(8)}, {"made_with": {"a": 1}}
    digests = {replace(recipe, **change).digest for change in ({}, *changes)}
    assert len(digests) == 5


def test_a_run_whose_encoder_takes_no_pictures(taking, monkeypatch):
    for served in taking.app.state.service.models.runs:
        monkeypatch.setitem(served.__dict__, "pictures", False)
    response = taking.post(UPLOAD, files=BOTH, data={"request": '{"run": "tea"}'})
    assert "takes no such upload. Send a video" in response.json()["detail"]
