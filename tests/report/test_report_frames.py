"""Frames in reports: the right moments, small pictures, and what is said where there are none."""

import base64
import json
import shutil
import sys

import numpy as np
import pytest
import torch

from browsing import ELEMENT, parsed
from cefito.cli import main
from cefito.data.readers.assemble import prepare
from cefito.data.readers.step_source import read_steps
from cefito.encoders.frames import thumbnail, thumbnails
from cefito.errors import ConfigError
from cefito.report import rendered, report_run
from cefito.report.frames import EACH, TOTAL, find_video_files, with_frames
from grey_videos import draw_greys, grey_of, read_grey
from tiny_runs import small_run

pytest.importorskip("av")

SECONDS = 10  # of a video
COUNT = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Annotations, features and videos of `COUNT` videos."""
    place = tmp_path_factory.mktemp("place")
    (place / "films").mkdir()
    (place / "features").mkdir()
    draw_greys(place / "films" / "film-0.mp4", SECONDS)
    generator = np.random.default_rng(0)
    lines = ["video,task,step,start,end,split"]
    for number in range(COUNT):
        if number:
            shutil.copy(place / "films" / "film-0.mp4", place / "films" / f"film-{number}.mp4")
        np.save(
            place / "features" / f"film-{number}.npy", generator.random((SECONDS, 3), np.float32)
        )
        split = "test" if number >= COUNT - 3 else "train"
        for step, (start, end) in enumerate([(1.2, 3), (3, 5.4), (5.4, 7.8)]):
            lines.append(f"film-{number},brew,step {step},{start},{end},{split}")
    (place / "steps.csv").write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture(scope="module")
def dataset(place):
    table, films = read_steps(place / "steps.csv"), place / "films"
    return prepare(table, place / "features", place / "data", videos=films)


@pytest.fixture(scope="module")
def run(dataset, place):
    return small_run(dataset, place / "run")


def test_the_data_set_says_where_its_videos_lie(dataset, place):
    header = json.loads((place / "data/dataset.json").read_text())
    assert header["provenance"]["video_folder"] == "../films"
    assert dataset.video_folder == (place / "films").resolve()


def test_frames_without_the_library_that_decodes_them(run, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    assert any(one.startswith("Frames are not shown: ") for one in report_run(run).notes)
    with pytest.raises(ConfigError, match="pip install"):
        report_run(run, videos=place / "films")


def test_frames_are_of_the_start_and_the_end(run, tmp_path):
    report = report_run(run)
    assert len(report.gallery) == 3
    for query in report.gallery:
        assert (query.start, query.end) == (1.2, 7.8)
        for picture, second in zip(query.frames or (), (1, 8), strict=True):
            size, level = read_grey(base64.b64decode(picture))
            assert size == (64, 48)
            assert level == pytest.approx(grey_of(second), abs=6)
    assert not any("frames" in note.lower() for note in report.notes)
    page = rendered(report)
    pictures = list(parsed(page).iter(f"{ELEMENT}img"))
    assert len(pictures) == 2 * (1 + len(report.gallery))  # first an example of the one outcome
    assert all(picture.get("src").startswith("data:image/jpeg;base64,") for picture in pictures)
    sides = {picture.get("alt") for picture in pictures}
    assert sides == {f"Frame of the video {side} the steps" for side in ("before", "after")}
    assert "img-src data:" in page
    again = report_run(run)
    assert (again, rendered(again)) == (report, page)  # equal input, equal bytes
    page = tmp_path / "page.html"
    assert main(["report", str(run.folder), "--without-frames", "--out", str(page)]) == 0
    assert "<img" not in page.read_text(encoding="utf-8")


def test_videos_that_are_missing_or_broken(run, place, tmp_path):
    films = tmp_path / "elsewhere"
    (films / "below").mkdir(parents=True)
    first, second, third = (f"film-{number}" for number in range(COUNT - 3, COUNT))
    shutil.copy(place / "films" / f"{first}.mp4", films / "below" / f"{first}_360p.MP4")
    (films / f"{second}.mp4").write_bytes(b"no video")
    report = report_run(run, videos=films)
    shown = {query.video: query.frames is not None for query in report.gallery}
    assert shown == {first: True, second: False, third: False}
    notes = " ".join(report.notes)
    assert "1 of 3 queries have no frames: no file of their video." in notes
    assert f"1 video cannot be read; the first: {films / second}.mp4: cannot be opened" in notes
    assert f"--videos {films}" in report.commands[-1]


def test_a_file_is_never_that_of_two_videos(dataset, place, tmp_path):
    shutil.copy(place / "films/film-0.mp4", tmp_path / "film-0_film-1.mp4")
    shutil.copy(place / "films/film-0.mp4", tmp_path / "a_film-2.mp4")
    shutil.copy(place / "films/film-0.mp4", tmp_path / "b_film-2.mp4")
    files = find_video_files(dataset, tmp_path)
    assert len(files.paths) == len(set(files.paths.values())) == 1
    assert "film-2" not in files.paths  # several files


def test_no_videos_at_all(run, dataset, tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="one video file a video") as told:
        report_run(run, videos=tmp_path / "empty")
    assert told.value.setting == "videos"
    shutil.copytree(place / "data", tmp_path / "data")  # moved away from its videos
    notes = report_run(run, dataset=tmp_path / "data").notes
    assert any("video folder films has no videos" in note for note in notes)


def test_thumbnails_are_of_rounded_seconds_and_never_beyond_the_end(place):
    found = dict(thumbnails(place / "films/film-0.mp4", [0.4, 3.6, 500.0], most=EACH))
    levels = [read_grey(found[time])[1] for time in (0.4, 3.6, 500.0)]
    assert levels == pytest.approx([grey_of(0), grey_of(4), grey_of(SECONDS - 1)], abs=6)


@pytest.mark.parametrize("most", [EACH, TOTAL * 3 // 4 // 600, 1000])
def test_pictures_hold_to_their_bytes(most):
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 540, 960), np.uint8))
    data = thumbnail(noise, most=most)
    assert len(data) <= most
    assert data == thumbnail(noise, most=most)
    (width, height), _ = read_grey(data)
    assert width <= 160
    assert width / height == pytest.approx(16 / 9, rel=0.1)


def test_many_frames_hold_to_their_bytes_together(run, monkeypatch):
    """Where there are many, each gets less."""
    (query, *_) = report_run(run, frames=False).gallery
    many = [query.model_copy(update={"start": float(number)}) for number in range(400)]

    def full(video, times, *, most):
        yield from ((time, bytes(most)) for time in times)

    monkeypatch.setattr("cefito.encoders.frames.thumbnails", full)
    files = find_video_files(run.dataset())
    found, note = with_frames(many, files)
    assert note == ""
    taken = sum(len(picture) for one in found for picture in one.frames or ())
    assert 0.99 * TOTAL < taken <= TOTAL
    found, note = with_frames(many * 4, files)
    assert note == "Only the first 937 queries got frames, to keep the file small."
    assert [one.frames is None for one in found] == [False] * 937 + [True] * 663
    (alone,), _ = with_frames(many[:1], files)
    assert len(alone.frames[0]) == EACH * 4 / 3
