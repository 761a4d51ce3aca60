import csv
from dataclasses import replace

import numpy as np
import pytest

from cefito.data.simulation.films import FILMS, write_films

av = pytest.importorskip("av")

FEW = replace(FILMS, train=4, val=0, test=4, pace=0.1)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Folder of eight drawn films, two a task."""
    return write_films(tmp_path_factory.mktemp("films"), seed=1, knobs=FEW).parent


def pictures(path):
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def table(folder):
    with (folder / "steps.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_films_last_beyond_their_steps(films):
    rows = table(films)
    assert {path.stem for path in (films / "videos").iterdir()} == {row["video"] for row in rows}
    assert {row["split"] for row in rows} == {"train", "test"}
    for video in {row["video"] for row in rows}:
        shown = pictures(films / "videos" / f"{video}.mp4")  # two a second
        last = max(float(row["end"]) for row in rows if row["video"] == video)
        assert shown.shape[1:] == (232, 320, 3)
        assert len(shown) / 2 == pytest.approx(last + 1.5, abs=0.5)


def test_the_seed_decides_steps_and_pictures(films, tmp_path):
    again = write_films(tmp_path / "again", seed=1, knobs=replace(FEW, train=1, test=0)).parent
    other = write_films(tmp_path / "other", seed=2, knobs=replace(FEW, train=1, test=0)).parent
    name = "world-0000"
    steps = [
        [row for row in table(folder) if row["video"] == name] for folder in (films, again, other)
    ]
    assert steps[0] == steps[1] != steps[2]
    same, made = (pictures(folder / "videos" / f"{name}.mp4") for folder in (films, again))
    np.testing.assert_array_equal(same, made)
