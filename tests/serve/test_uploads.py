"""Uploads: what is decoded at all, by whom, and what becomes of what was sent."""

from __future__ import annotations

import os
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fastapi import UploadFile

from cefito.inference.observer import Recipe
from cefito.planners.queries import Queries
from cefito.serve import uploads
from cefito.serve.problems import ProblemError
from cefito.serve.schemas import UploadForm
from cefito.serve.uploads import Decoder, EncodingProcess, kept

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20
TEA = "'tea' (horizon 3)"
MP4 = b"\x00\x00\x00\x18ftypisom" + b"x" * 20


@pytest.fixture(autouse=True)
def _bound_of_pictures(monkeypatch):
    """A decoder sets it for its process, which here is that of all tests."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", image.MAX_IMAGE_PIXELS)


def form(**files):
    """An upload of these files."""
    times = {"start": 0.0, "end": 1.0} if "video" in files else {}
    given = {name: UploadFile(BytesIO(data)) for name, data in files.items()}
    return UploadForm.model_construct(_fields_set=None, **given, **times)


@pytest.mark.parametrize("head", [PNG, b"\xff\xd8\xff\xe0", b"BM" + b"0" * 20, b"RIFF0000WEBPVP8 "])
def test_pictures_are_known_by_their_first_bytes(head):
    with kept(form(initial=head, goal=PNG)) as paths:
        assert paths["initial"].read_bytes() == head
        assert [path.name for path in paths.values()] == ["initial", "goal"]
        folder = paths["initial"].parent
    assert not folder.exists()


@pytest.mark.parametrize("head", [MP4, b"\x1aE\xdf\xa3" + b"0" * 20, b"RIFF0000AVI LIST"])
def test_videos_are_known_by_their_first_bytes(head):
    with kept(form(video=head)) as paths:
        assert paths["video"].read_bytes() == head


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("initial", b""),
        ("initial", b"%!PS-Adobe-3.0 EPSF-3.0"),  # which a program would be run for
        ("initial", b"GIF89a"),
        ("initial", b"<svg xmlns='http://www.w3.org/2000/svg'>"),
        ("initial", MP4),
        ("video", b"#EXTM3U\nfile:///etc/passwd\n"),  # which names other files
        ("video", b"ffconcat version 1.0\nfile /etc/passwd\n"),
        ("video", b"<?xml version='1.0'?><MPD>"),
        ("video", PNG),
        ("video", b""),
    ],
)
def test_other_formats_are_not_decoded(name, data):
    files = form(**{"goal": PNG, name: data})
    before = set(Path(uploads.tempfile.gettempdir()).glob("cefito-*"))
    with pytest.raises(ProblemError, match="expected") as refusal, kept(files):
        pytest.fail("was taken")
    assert refusal.value.field == name
    assert set(Path(uploads.tempfile.gettempdir()).glob("cefito-*")) <= before


# the process


def behave(asked):
    """The function of the process."""
    if asked is None:
        return None
    if asked == "hang":
        time.sleep(60)
    if asked == "crash":
        os._exit(3)
    if asked == "fail":
        raise ValueError("a defect")
    if asked == "refuse":
        return "/tmp/cefito-1/initial: is damaged. Make it again."
    return [asked.upper(), os.getpid()]


def test_a_decoder_that_hangs_or_ends_is_replaced():
    process = EncodingProcess(behave, threads=1, seconds=1.0)
    paths = {"initial": Path("/tmp/cefito-1/initial"), "goal": Path("/tmp/cefito-1/goal")}
    try:
        said, first = process("one", paths)
        assert said == "ONE"
        assert first != os.getpid()
        with pytest.raises(RuntimeError, match="a defect"):
            process("fail", paths)
        with pytest.raises(ProblemError) as refusal:  # names no files of the server
            process("refuse", paths)
        assert refusal.value.detail == "'initial': is damaged. Make it again."
        assert process("two", paths) == ["TWO", first]  # the same process, which keeps its encoders
        with pytest.raises(ProblemError, match="crashed the decoder"):
            process("crash", paths)
        said, second = process("three", paths)
        assert second != first
        began = time.monotonic()
        with pytest.raises(ProblemError, match="within 1 seconds"):
            process("hang", paths)
        assert time.monotonic() - began < 20
        assert process("four", paths)[1] not in (first, second)
    finally:
        process.close()


# what it does, in this process


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a tiny DINOv2, randomly initialised."""
    import json

    import torch

    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("dinov2")
    torch.manual_seed(1)
    config = transformers.Dinov2Config(
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    transformers.Dinov2Model(config).save_pretrained(folder)
    about = {
        "size": {"shortest_edge": 28},
        "crop_size": {"height": 28, "width": 28},
        "image_mean": [0.5] * 3,
        "image_std": [0.2] * 3,
        "image_processor_type": "BitImageProcessor",
        "do_resize": True,
        "do_center_crop": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_convert_rgb": True,
        "resample": 3,
        "rescale_factor": 1 / 255,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return folder


def picture(seed, size=(40, 32)):
    """A PNG."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def decoder(model):
    recipe = Recipe(place="RUN", made_with={}, seconds=1, size=8)
    return Decoder({TEA: recipe}, encoder=str(model), weights=None, pixels=10_000)


def test_two_pictures_become_observations(decoder):
    with kept(form(initial=picture(0), goal=picture(1))) as paths:
        found = decoder((TEA, paths, None, None))
    assert isinstance(found, Queries)
    assert found.initial.shape == (1, 8)
    assert not np.array_equal(found.initial, found.goal)
    assert list(decoder.opened) == [TEA]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (PNG, "cannot be read"),
        (picture(0)[:200], "cannot be read"),
        (picture(0, (200, 200)), "too large"),
    ],
)
def test_pictures_that_cannot_be_used(decoder, data, words):
    with kept(form(initial=data, goal=picture(1))) as paths:
        found = decoder((TEA, paths, None, None))
    assert isinstance(found, str)
    assert words in found


def test_a_video_that_cannot_be_used(decoder):
    pytest.importorskip("av")
    with kept(form(video=MP4)) as paths:
        found = decoder((TEA, paths, 0.0, 1.0))
    assert isinstance(found, str)
    assert "cannot be opened as a video" in found


# the route


@pytest.fixture
def taking(serving, model, decoder, monkeypatch):
    """A client of a service that takes uploads, decoded in this process."""
    client = serving(encoder=str(model))
    service = client.app.state.service
    assert service.encoding is not None

    encoding = EncodingProcess(decoder, threads=1, seconds=1)
    monkeypatch.setattr(encoding, "_encode", decoder)
    monkeypatch.setattr(service, "encoding", encoding)
    return client


def test_pictures_are_planned_between(taking, decoder, place):
    files = {"initial": ("../../x.png", picture(0)), "goal": ("y", picture(1))}
    response = taking.post(
        "/v1/plan/upload", files=files, data={"request": '{"run": "tea", "top_k": 2}'}
    )
    assert response.status_code == 200, response.text
    assert len(response.json()["plans"]) == 2
    with kept(form(initial=picture(0), goal=picture(1))) as paths:
        found = decoder((TEA, paths, None, None))
    listed = {name: getattr(found, name)[0].tolist() for name in ("initial", "goal")}
    same = taking.post("/v1/plan", json={"run": "tea", "top_k": 2, "observations": listed})
    assert same.json()["plans"] == response.json()["plans"]
    assert taking.get("/v1/model").json()["runs"][0]["uploads"] == ["pictures", "video"]


@pytest.mark.parametrize(
    ("files", "data", "words"),
    [
        ({"initial": PNG}, {}, "found 'initial'"),
        ({"initial": PNG, "goal": PNG}, {"start": "1"}, "found 'goal', 'initial', 'start'"),
        ({"video": MP4}, {}, "found 'video'"),
        ({"video": MP4}, {"start": "x", "end": "2"}, "start: "),
        ({"video": MP4}, {"start": "1", "end": "nan"}, "end: "),
        ({"initial": PNG, "goal": b"text"}, {}, "'goal' is of another format"),
        ({"initial": PNG, "goal": PNG}, {"request": "{"}, "Invalid JSON"),
        ({"initial": PNG, "goal": PNG}, {"request": '{"observations": 1}'}, "Extra inputs"),
        ({"initial": PNG, "goal": PNG}, {"nonsense": "1"}, "nonsense: Extra"),
        ({"initial": PNG, "goal": PNG}, {}, "cannot be read as a picture"),
    ],
)
def test_uploads_that_cannot_be_used(taking, files, data, words):
    request = data.pop("request", '{"run": "tea"}')
    response = taking.post("/v1/plan/upload", files=files, data={"request": request, **data})
    assert response.status_code == 422, response.text
    assert words in response.json()["detail"]
    assert "/tmp/" not in response.text


def test_three_files_and_no_form(taking):
    three = [("initial", PNG), ("goal", PNG), ("video", MP4)]
    response = taking.post("/v1/plan/upload", files=three)
    assert response.status_code == 400
    assert taking.post("/v1/plan/upload", json={}).status_code == 422
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert taking.post("/v1/plan/upload", content=b"nonsense", headers=broken).status_code in (
        400,
        422,
    )


def test_too_large_an_upload(serving, model, monkeypatch):
    client = serving(encoder=str(model), limits={"upload_mib": 0.01})
    files = {"initial": PNG + b"x" * 20_000, "goal": PNG}
    response = client.post("/v1/plan/upload", files=files)
    assert response.status_code == 413


def test_too_many_uploads(taking, monkeypatch):
    monkeypatch.setattr(taking.app.state.service, "_uploads", 4)
    files = {"initial": picture(0), "goal": picture(1)}
    response = taking.post("/v1/plan/upload", files=files, data={"request": '{"run": "tea"}'})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "5"


@pytest.mark.slow
def test_the_process_of_a_real_service(serving, model):
    """Once with a process of its own."""
    client = serving(encoder=str(model))
    files = {"initial": picture(0), "goal": picture(1)}
    response = client.post("/v1/plan/upload", files=files, data={"request": '{"run": "tea"}'})
    assert response.status_code == 200, response.text
