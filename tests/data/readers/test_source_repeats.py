"""What stands twice in a source, and names in two Unicode forms."""

import unicodedata

import numpy as np
import pytest

from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.readers.custom import prepare_custom
from cefito.data.readers.feature_files import FileFolder
from cefito.data.simulation.observations import simulate
from cefito.data.source import read_common
from cefito.errors import DataError


def repeated(videos):
    videos[1]["steps"][2] = videos[1]["steps"][0]


def negative(videos):
    videos[1]["steps"][0][0] = -1.0


REPEATED = (
    r"videos.jsonl: steps 1 and 3 \(counted from 1\) of video 'b' are identical, 'cut' from 0 s to "
    r"1.5 s. Remove all but one of each."
)
NEGATIVE = r"videos.jsonl, 'b', step 1: the step runs from -1.0 to 1.5 "
READERS = {
    "custom": lambda source, out: prepare_custom(source, out),
    "common": lambda source, _: read_common(source),
    "niv": lambda source, _: read_benchmark("niv", source),
    "simulate": lambda source, out: simulate(source, out),
}


@pytest.mark.parametrize(("edit", "match"), [(repeated, REPEATED), (negative, NEGATIVE)])
@pytest.mark.parametrize("reader", READERS)
def test_folders(make_source, tiny_videos, tmp_path, reader, edit, match):
    edit(tiny_videos)
    source = make_source(videos=tiny_videos)
    with pytest.raises(DataError, match=match):
        READERS[reader](source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_published_repeats_are_kept_and_told(make_source, tiny_videos, tiny_taxonomy):
    repeated(tiny_videos)
    tiny_taxonomy["dataset"] = "crosstask"
    found = read_common(make_source(taxonomy=tiny_taxonomy, videos=tiny_videos, features=None))
    assert found.annotations.step_count == 35
    (note,) = found.notes
    assert note.startswith("The published annotations repeat 1 step of 1 video")


def test_published_windows_of_crosstask(shared_data):
    found = read_benchmark("crosstask", shared_data / "crosstask")
    assert found.notes[0].startswith("The published annotations repeat 129 steps of 44 videos")


def test_window_files_of_repeated_steps(make_source, tiny_videos, write_windows, tmp_path):
    tiny_videos[1]["steps"] += tiny_videos[1]["steps"][:3]
    source = make_source(videos=tiny_videos, features=None)
    write_windows(source, tmp_path / "windows", horizons=(3,))
    found = read_benchmark("crosstask", tmp_path / "windows")
    assert any("repeat 3 steps of 1 video" in note for note in found.notes)
    with pytest.raises(DataError, match="'b' are identical, 'action 3'"):
        read_benchmark("niv", tmp_path / "windows")


def test_features_of_a_name_with_its_accents_apart(tmp_path):
    name = unicodedata.normalize("NFD", "Brühe_é")
    np.save(tmp_path / f"{name}.npy", np.ones((3, 2), np.float32))
    folder = FileFolder(tmp_path)
    for wanted in ("Brühe_é", name, "é", "Brühe"):
        assert folder.find([wanted])[0].name == f"{name}.npy"
