"""Features of a folder of videos, which may be stopped at any moment."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cefito.encoders import frames
from cefito.encoders import video as module
from cefito.encoders.extraction import Extraction, extract_videos, stored_rows
from cefito.encoders.frames import Sampling
from cefito.encoders.video import extract_features
from cefito.errors import ConfigError, DataError, RunError
from cefito.inference.observer import ObservationRecipe, Observer

av = pytest.importorskip("av")


@pytest.fixture
def folder(write_video, tmp_path):
    """Three videos, one of them in a folder of its own, and a text."""
    source = tmp_path / "videos"
    (source / "more").mkdir(parents=True)
    write_video(source / "a.mp4", 2)
    write_video(source / "b.mkv", 3, shift=30)
    write_video(source / "more" / "c.MP4", 1)
    (source / "notes.txt").write_text("no video")
    return source


def below(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_a_folder(folder, stub, log, tmp_path):
    out = tmp_path / "deep" / "out"
    result = extract_videos(folder, out, stub, progress=log)
    assert result == Extraction(written=["a.mp4", "b.mkv", "more/c.MP4"])
    assert below(out) == ["a.npy", "b.npy", "extract.json", "films.jsonl", "more/c.npy"]
    for name, video in (("a.npy", "a.mp4"), ("b.npy", "b.mkv"), ("more/c.npy", "more/c.MP4")):
        array = np.load(out / name, allow_pickle=False)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, extract_features(folder / video, stub))
    sampling = {"frames": 4, "rate": 4.0, "size": 32}
    made_with = json.loads((out / "extract.json").read_text())
    assert made_with == {"model": "stub", "layers": [1, 2], **sampling}
    assert log.works[0]["total"] == 3
    assert log.works[0]["done"] == pytest.approx(3)
    assert log.works[0]["notes"] == {"a.mp4", "b.mkv", "more/c.MP4"}


def test_endings_of_camcorders_and_capitals(write_video, stub, tmp_path):
    source = tmp_path / "videos"
    source.mkdir()
    for name in ("a.MTS", "b.m2ts", "c.MOV"):
        write_video(tmp_path / f"x.{'ts' if 't' in name.lower() else 'mov'}", 1).rename(
            source / name
        )
    result = extract_videos(source, tmp_path / "out", stub)
    assert result.written == ["a.MTS", "b.m2ts", "c.MOV"]


def test_a_single_video_of_any_ending(write_video, stub, tmp_path):
    path = write_video(tmp_path / "a.mp4", 2).rename(tmp_path / "recording.data")
    assert extract_videos(path, tmp_path / "out", stub).written == ["recording.data"]
    assert below(tmp_path / "out") == ["extract.json", "films.jsonl", "recording.npy"]


def test_complete_files_are_kept(folder, make_stub, log, tmp_path):
    out, stub = tmp_path / "out", make_stub()
    extract_videos(folder, out, make_stub())
    before = {name: (out / name).read_bytes() for name in below(out)}
    result = extract_videos(folder, out, stub, progress=log)
    assert (result.kept, result.written, stub.calls) == (["a.mp4", "b.mkv", "more/c.MP4"], [], [])
    assert log.works[0]["done"] == 3
    (out / "a.npy").unlink()
    content = (out / "b.npy").read_bytes()
    (out / "b.npy").write_bytes(content[: len(content) - 4])  # cut short by something else
    np.save(out / "more" / "c.npy", np.zeros(3))
    result = extract_videos(folder, out, stub)
    assert result.written == ["a.mp4", "b.mkv", "more/c.MP4"]
    again = {name: (out / name).read_bytes() for name in below(out)}
    assert again | {"films.jsonl": 2 * before["films.jsonl"]} == before | {
        "films.jsonl": again["films.jsonl"]
    }


def test_a_video_that_is_replaced(folder, stub, write_video, tmp_path):
    out = tmp_path / "out"
    extract_videos(folder, out, stub)
    write_video(folder / "a.mp4", 3, shift=90)
    result = extract_videos(folder, out, stub)
    assert (result.written, result.kept) == (["a.mp4"], ["b.mkv", "more/c.MP4"])
    assert len(np.load(out / "a.npy", allow_pickle=False)) == 3


def test_features_are_found_by_the_content_of_a_video(
    folder, stub, make_stub, write_video, tmp_path
):
    out, moved = tmp_path / "out", tmp_path / "renamed.mp4"
    assert stored_rows(out, folder / "a.mp4", stub) is None
    extract_videos(folder, out, stub)
    (folder / "a.mp4").rename(moved)
    np.testing.assert_array_equal(
        stored_rows(out, moved, stub), np.load(out / "a.npy", allow_pickle=False)
    )
    used, recipe = make_stub(), ObservationRecipe("RUN", {}, 1, 3, stored=out)
    rows = Observer(recipe, "stub", used).rows(moved)
    np.testing.assert_array_equal(rows, stored_rows(out, moved, stub))
    assert (len(rows), used.calls) == (2, [])  # not encoded again
    assert (
        stored_rows(out, moved, make_stub(description={"model": "other"})) is None
    )  # of another encoder
    write_video(folder / "a.mp4", 3, shift=90)
    extract_videos(folder, out, stub)
    assert stored_rows(out, moved, stub) is None  # its file now is of another video
    np.testing.assert_array_equal(
        stored_rows(out, folder / "a.mp4", stub), np.load(out / "a.npy", allow_pickle=False)
    )
    (out / "films.jsonl").write_text("{}")
    assert stored_rows(out, folder / "a.mp4", stub) is None
    with pytest.raises(DataError, match="not as cefito extract writes it"):
        extract_videos(folder, out, stub)


def test_an_interruption_leaves_whole_files_only(folder, stub, make_stub, tmp_path):
    out = tmp_path / "out"

    def before():
        if len(stopped.calls) == 3:
            raise KeyboardInterrupt

    stopped = make_stub(before=before)
    with pytest.raises(KeyboardInterrupt):
        extract_videos(folder, out, stopped, batch=1)
    assert below(out) == ["a.npy", "extract.json", "films.jsonl"]
    result = extract_videos(folder, out, stub)
    assert (result.kept, result.written) == (["a.mp4"], ["b.mkv", "more/c.MP4"])


def test_unreadable_videos_are_left_out(folder, stub, log, tmp_path):
    (folder / "b.mkv").write_bytes((folder / "b.mkv").read_bytes()[:300])
    (folder / "aa.mp4").write_bytes(b"nothing")
    out = tmp_path / "out"
    result = extract_videos(folder, out, stub, progress=log)
    assert result.written == ["a.mp4", "more/c.MP4"]
    assert list(result.failed) == ["aa.mp4", "b.mkv"]
    assert result.failed["aa.mp4"].startswith(f"{folder / 'aa.mp4'}: cannot be opened as a video")
    assert below(out) == ["a.npy", "extract.json", "films.jsonl", "more/c.npy"]
    assert log.works[0]["done"] == pytest.approx(4)


def test_a_video_that_fails_half_way(folder, stub, log, tmp_path, monkeypatch):
    original = frames.clips

    def failing(info, rows, sampling):
        for number, one in enumerate(original(info, rows, sampling)):
            if info.path.name == "b.mkv" and number == 2:
                raise DataError("b.mkv: cannot be decoded at second 2.4.")
            yield one

    monkeypatch.setattr(module, "clips", failing)
    result = extract_videos(folder, tmp_path / "out", stub, batch=1, progress=log)
    assert result.failed == {"b.mkv": "b.mkv: cannot be decoded at second 2.4."}
    assert not (tmp_path / "out" / "b.npy").exists()
    assert log.works[0]["done"] == pytest.approx(3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sampling": Sampling(frames=8, rate=4, size=32)}, "made with frames = 4, not 8"),
        ({"description": {"model": "other", "layers": [1, 2]}}, "with model = stub, not other"),
        ({"description": {"model": "stub"}}, r"made with layers = \[1, 2\], not None"),
    ],
)
def test_features_of_other_settings_are_not_mixed(
    folder, stub, make_stub, tmp_path, changed, message
):
    out = tmp_path / "out"
    extract_videos(folder, out, stub)
    with pytest.raises(ConfigError, match=message):
        extract_videos(folder, out, make_stub(**changed))
    (out / "extract.json").write_text("[]")
    with pytest.raises(ConfigError, match="model = None, not stub"):
        extract_videos(folder, out, stub)


def test_the_folder_of_the_encoder_may_move(folder, make_stub, tmp_path):
    out, described = tmp_path / "out", {"model": "stub", "layers": [1, 2]}
    extract_videos(folder, out, make_stub(description={**described, "folder": "/here"}))
    again = extract_videos(folder, out, make_stub(description={**described, "folder": "/there"}))
    assert again.written == []
    assert json.loads((out / "extract.json").read_text())["folder"] == "/here"


def test_features_of_unknown_origin(folder, stub, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    np.save(out / "b.npy", np.zeros((3, 3), np.float32))
    with pytest.raises(ConfigError, match=r"b\.npy: exists without .*extract\.json"):
        extract_videos(folder, out, stub)
    assert below(out) == ["b.npy"]


def test_two_videos_of_one_name(folder, stub, tmp_path):
    (folder / "a.webm").write_bytes(b"")
    result = extract_videos(folder, tmp_path / "out", stub)
    assert result.written == ["b.mkv", "more/c.MP4"]
    assert list(result.failed) == ["a.mp4", "a.webm"]
    for problem in result.failed.values():
        assert "'a.mp4' and 'a.webm' would be written to the same file. Rename" in problem


def test_unusable_places(folder, stub, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="file: cannot be made"):
        extract_videos(folder, tmp_path / "file", stub)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: holds no videos\. .*\.3gp, "):
        extract_videos(tmp_path / "empty", tmp_path / "out", stub)
    with pytest.raises(DataError, match="nowhere: no such file"):
        extract_videos(tmp_path / "nowhere", tmp_path / "out", stub)
