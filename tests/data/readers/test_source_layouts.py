"""Folders and layouts of feature files: subfolders, rows a second, exchanged axes."""

import numpy as np
import pytest

from cefito import prepare
from cefito.arrays import load_npy
from cefito.cli import main
from cefito.data import open_dataset
from cefito.data.readers.observing import check_layout
from cefito.errors import DataError
from cefito.files import load_tensors


@pytest.fixture
def made(tmp_path):
    """Prepare a table of videos and steps (start, end) with arrays by their paths."""

    def make(videos, arrays, **settings):
        lines = [
            f"{video},tea,step {number},{start},{end}\n"
            for video, steps in videos.items()
            for number, (start, end) in enumerate(steps)
        ]
        (tmp_path / "steps.csv").write_text("video,task,step,start,end\n" + "".join(lines))
        for name, array in arrays.items():
            path = tmp_path / "features" / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, array)
        return prepare(
            tmp_path / "steps.csv", tmp_path / "out", features=tmp_path / "features", **settings
        )

    return make


def seconds_of(rows, rate=1.0):
    """Features [rows, 2] that hold the second in the middle of each row, and 1."""
    times = (np.arange(rows) + 0.5) / rate
    return np.stack([times, np.ones(rows)], axis=1).astype(np.float32)


STEPS = [(0, 2), (2, 4), (4, 6)]


def test_files_in_subfolders_are_found_by_their_paths(made):
    arrays = {f"{name}/cam": seconds_of(8) + place for place, name in enumerate(("P01", "P02"))}
    videos = {"P01/cam": STEPS, "videos/P02/cam.mp4": STEPS}
    dataset = made(videos, arrays, seconds=1)
    start = load_tensors(dataset.folder / "features.safetensors", "np", "")[0]["start"]
    assert start[:, 0].tolist() == [0.5, 2.5, 4.5, 1.5, 3.5, 5.5]


@pytest.mark.parametrize(
    ("videos", "arrays", "message"),
    [
        (["P01/cam", "P02/cam"], ["cam"], "may belong to video 'P01/cam' and to video 'P02/cam'"),
        (["cam"], ["P01/cam", "P02/cam"], "several files may belong to video 'cam': P01/cam.npy, "),
        (["P01/cam"], ["P02/front"], r"no file for video 'P01/cam' \(looked for P01/cam, cam, as"),
    ],
)
def test_files_of_doubtful_videos_are_left_out(made, videos, arrays, message):
    with pytest.raises(DataError, match=message):
        made(dict.fromkeys(videos, STEPS), dict.fromkeys(arrays, seconds_of(8)))


def test_a_file_of_another_folder_is_not_taken(made):
    dataset = made({"P01/cam": STEPS, "P02/cam": STEPS}, {"P01/cam": seconds_of(8)})
    (left_out,) = dataset.provenance["preparation"]["left_out"]
    assert left_out["videos"] == ["P02/cam"]
    assert "belongs to 'P01/cam'" in left_out["example"]


@pytest.mark.parametrize("rate", [25, 1.875, 0.5, 1])
def test_rows_a_second(made, rate):
    dataset = made(
        {"a": STEPS}, {"a": seconds_of(int(9 * rate), rate)}, feature_rate=rate, seconds=1
    )
    tensors, _ = load_tensors(dataset.folder / "features.safetensors", "np", "")
    for name, times in (("start", (0, 2, 4)), ("end", (2, 4, 6))):
        expected = np.array(times) + 0.5  # the row that shows the middle of each second
        assert np.abs(tensors[name][:, 0].astype(float) - expected).max() <= 0.5 / rate + 0.01
    assert dataset.provenance["observed"].get("feature_rate", 1) == rate
    assert dataset.timeline.rate == 1
    assert len(dataset.timeline.videos[0]) == pytest.approx(9, abs=1)
    assert open_dataset(dataset.folder).provenance["preparation"]["beyond"]["steps"] == 0


def test_features_of_another_rate_are_refused_and_then_read(made, tmp_path):
    videos = {f"v{n}": [(0, 4), (4, 12 + n)] for n in range(6)}
    arrays = {f"v{n}": seconds_of(25 * (13 + n), 25) for n in range(6)}
    with pytest.raises(DataError, match=r"at most 26\.5 rows a second") as caught:
        made(videos, arrays)
    assert caught.value.setting == "feature_rate"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "steps.csv"]
    assert (
        made(videos, arrays, feature_rate=25).provenance["preparation"]["videos"]["prepared"] == 6
    )


LONG = np.array([30.0, 55, 41, 35, 48, 60])  # ends of the last steps
FILMS = LONG * [1.02, 1.1, 1.05, 1.0, 1.08, 1.04]  # lengths of the films


@pytest.mark.parametrize(
    ("shapes", "ends", "message"),
    [
        *(
            ([(round(rate * film), 512) for film in FILMS], LONG, f"seem to have at most {rate}")
            for rate in (25, 30, 4, 2)
        ),
        ([(64, round(film)) for film in FILMS], LONG, r"the files hold \[64, 31\], .* …, with the"),
        (
            [(512, 40), (512, 55)],
            [38.0, 50.0],
            r"this looks like \[D, seconds\]. Say that they are",
        ),
        ([(512, 60)] * 6, [58.0] * 6, r"transposed, or give the rows a second\."),
        ([(round(15 / 16 * end), 512) for end in LONG], LONG, "at most 0.9"),
    ],
)
def test_layouts_that_are_refused(tmp_path, shapes, ends, message):
    with pytest.raises(DataError, match=message):
        check_layout(tmp_path, shapes, list(ends), None)


def test_exchanged_axes_are_refused_whatever_the_rate(tmp_path):
    with pytest.raises(DataError, match=r"Say that they are transposed\.$"):
        check_layout(tmp_path, [(64, round(film)) for film in FILMS], list(LONG), 25)


@pytest.mark.parametrize(
    ("shapes", "ends", "noted"),
    [
        ([(round(film), 512) for film in FILMS], LONG, False),
        ([(round(film), 512) for film in FILMS * [1, 1.6, 1.2, 2, 1.1, 1.5]], LONG, True),
        ([(600, 512)] * 6, LONG, True),
        ([(n, 512) for n in (600, 480, 310, 720, 550, 400)], LONG, True),
        ([(750, 512)], [29.0], True),
        ([(512, 40)], [38.0], True),
        ([(round(25 / 16 * film), 512) for film in FILMS[:3]], LONG[:3], True),
        ([(60, 39), (60, 39), (60, 42)], [58.0] * 3, False),
        ([(60, 512), (60, 1024)], [58.0] * 2, False),
    ],
)
def test_layouts_that_pass(tmp_path, shapes, ends, noted):
    notes = check_layout(tmp_path, shapes, list(ends), None)
    assert len(notes) == noted
    assert all("If that is wrong, give the feature rate" in note for note in notes)
    assert check_layout(tmp_path, shapes, list(ends), 1) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n", "is a Git LFS p"),
        (b"\xef\xbb\xbf <!-- x -->\n<HTML><title>Virus scan warning</title>", "is a page of HTML"),
    ],
)
def test_texts_in_the_place_of_arrays(tmp_path, content, message):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_npy(tmp_path / "a.npy")


def test_transposed_features_are_read_by_the_command(tmp_path):
    """An array [D, rows] gives the observations of [rows, D]."""
    rows = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    (tmp_path / "STEPS.csv").write_text(
        "video,task,step,start,end\n"
        + "".join(f"{name},tea,boil,0,9\n{name},tea,pour,10,20\n" for name in "ab")
    )
    made = []
    for folder, turned in (("plain", False), ("turned", True)):
        (tmp_path / folder).mkdir()
        for name in "ab":
            np.save(tmp_path / folder / f"{name}.npy", rows.T if turned else rows)
        call = ["data", "prepare", "custom", tmp_path / "STEPS.csv", tmp_path / f"{folder}-data"]
        call += ["--features", tmp_path / folder, *["--transposed"] * turned]
        assert main([str(part) for part in call]) == 0
        made.append(open_dataset(tmp_path / f"{folder}-data"))
    assert made[0].start.shape == (4, 24)
    np.testing.assert_array_equal(made[0].start, made[1].start)
