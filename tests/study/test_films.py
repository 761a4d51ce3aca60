"""Tasks that names of films and folders say."""

import pytest

from cefito.data.readers.feature_files import FileFolder
from cefito.study.films import named_tasks
from cefito.tracks import TimedStep, Track

TOAST = {"toast 1.mp4": "cd", "toast 2.mp4": "cd"}


def tasks_of(folder, **steps):
    """Return the tasks of films by their paths below a folder, and what said them."""
    tracks = []
    for path, names in steps.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"")
        timed = tuple(TimedStep(name=name, start=at, end=at + 1) for at, name in enumerate(names))
        if names:
            tracks.append(Track(video=path.removesuffix(".mp4"), task="", seconds=9, steps=timed))
    return named_tasks(tracks, FileFolder(folder, endings=[".mp4"]))


@pytest.mark.parametrize(
    ("folder", "films", "expected", "why"),
    [
        ("tea", {"P1/cam.mp4": "ab", "P2/cam.mp4": "ab"}, {"tea"}, "name of the folder"),
        ("films", {"tea/1.mp4": "ab", "toast/1.mp4": "cd"}, {"tea", "toast"}, "of folders"),
        (
            "kitchen",
            {
                "make_tea_1.mp4": "ab",
                "make_tea_2.mp4": "ab",
                "toast-1.mp4": "cd",
                "toast-2.mp4": "c",
            },
            {"make tea", "toast"},
            "of files",
        ),
        # labels of one film of toast, whose others have none
        (
            "kitchen",
            {"tea 1.mp4": "ab", "tea 2.mp4": "ab", "toast 1 (new).mp4": "cd", "toast 2.mp4": ""},
            {"tea", "toast"},
            "of files",
        ),
        # a film of a camera, which does what those of tea do
        (
            "kitchen",
            {**dict.fromkeys(["tea 1.mp4", "tea 2.mp4", "IMG_3.mp4"], "ab"), **TOAST},
            {"tea", "toast"},
            "of files",
        ),
        ("kitchen", {"tea1.mp4": "a", "tea2.mp4": "a", "jam.mp4": "b"}, {"kitchen"}, "the folder"),
        # who did it, not what was done
        (
            "tea",
            {"ann1.mp4": "ab", "ann2.mp4": "ab", "ben1.mp4": "a", "ben2.mp4": "ab"},
            {"tea"},
            "",
        ),
        ("videos 2026", {"2026-01-02 put up tent 1.mp4": "ab"}, {"put up tent"}, "of files"),
        ("labels", {"IMG_0001.mp4": "ab", "film 2.mp4": "ab"}, {""}, ""),
        ("films", {"1.mp4": "ab", "泡茶.mp4": "cd"}, {""}, ""),
        ("泡茶", {"1.mp4": "ab"}, {"泡茶"}, "name of the folder"),
    ],
)
def test_tasks_that_names_say(folder, films, expected, why, tmp_path):
    (tmp_path / folder).mkdir()
    tasks, said = tasks_of(tmp_path / folder, **films)
    assert {*tasks.values()} == expected
    assert why in said
    assert bool(said) == (expected != {""})
