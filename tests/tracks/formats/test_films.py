"""A name stands for one film and one coding of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks.document import Choices, StepRow, film_address, named_films
from tracks.formats.samples import VTT

TEA = Choices(task="tea")


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("s3://rec/P01/front.mp4", "rec/P01/front"),
        ("s3://rec/P01/front.mp4?X-Amz-Signature=1a#t=3", "rec/P01/front"),
        ("file:///D:/My%20films/tea #1.mp4", "D/My films/tea #1"),
        ("C:\\films\\P01\\one.avi", "C/films/P01/one"),
        ("/data/upload/1/0a1b2c3d-tea_01.mp4", "data/upload/1/0a1b2c3d/tea_01"),
        ("/data/local-files/?d=P01/front.mp4", "P01/front"),
        ("https://rec.org/P01/front.mp4?d=7", "rec.org/P01/front"),
        ("front.mp4", "here/front"),
        ("./front.mp4", "here/front"),
        ("../P01/front.mp4", "P01/front"),
        ("tea.1", "here/tea.1"),
        ("e\u0301.mp4", "here/é"),
        (" ", ""),
        ("..", ""),
        ("http://[", ""),
    ],
)
def test_addresses(location, address):
    assert film_address(location, "/here") == address


ADDRESS = st.lists(st.sampled_from(["P1", "P2", "cam", "top"]), min_size=1, max_size=4)


@given(st.sets(ADDRESS.map("/".join), min_size=1, max_size=6))
def test_names_are_the_shortest_ends_that_one_film_has(addresses):
    films = [
        film
        for film in sorted(addresses)
        if not any(other != film and f"/{other}".endswith(f"/{film}") for other in addresses)
    ]
    rows = [StepRow(film, "boil", 0, 1, f"{film}, step 1", coding=film) for film in films]
    for film, row in zip(films, named_films(rows)[0], strict=True):
        assert f"/{film}".endswith(f"/{row.video}")
        owners = [other for other in films if f"/{other}".endswith(f"/{row.video}")]
        assert owners == [film]
        shorter = row.video.partition("/")[2]
        assert not shorter or sum(f"/{other}".endswith(f"/{shorter}") for other in films) > 1


def task(number, location, label="boil", **more):
    value = {"start": 0, "end": number, "labels": [label]}
    result = {"id": f"r{number}", "type": "labels", "from_name": "steps", "value": value}
    one = {"id": number, "result": [result], "updated_at": f"2026-01-0{number}"}
    return {"id": number, "data": {"video": location}, "annotations": [one]} | more


@pytest.fixture
def read(tmp_path):
    """Read tasks of Label Studio from one file for each list of them."""

    def read(*files, names=(), **choices):
        paths = []
        for number, tasks in enumerate(files):
            paths.append(tmp_path / (names[number] if names else f"{number}.json"))
            paths[-1].parent.mkdir(exist_ok=True)
            paths[-1].write_text(json.dumps(tasks))
        return read_steps(paths, choices=Choices(**{"task": "tea"} | choices))

    return read


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("s3://rec/P01/front.mp4", "s3://rec/P02/front.mp4", ["P01/front", "P02/front"]),
        ("s3://rec/P01/a/x.mp4", "s3://rec/P02/a/x.mp4", ["P01/a/x", "P02/a/x"]),
        ("s3://one/x.mp4", "https://two/x.mp4", ["one/x", "two/x"]),
        (
            "/data/upload/1/aaaaaaaa-x.mp4",
            "/data/upload/1/bbbbbbbb-x.mp4",
            ["aaaaaaaa/x", "bbbbbbbb/x"],
        ),
        ("s3://rec/P01/front.mp4", "s3://rec/P01/top.mp4", ["front", "top"]),
    ],
)
def test_films_are_told_apart_by_their_folders(first, second, names, read):
    found = read([task(1, first), task(2, second)])
    assert [video.video_id for video in found.annotations.videos] == names
    assert [len(video.steps) for video in found.annotations.videos] == [1, 1]
    said = [note for note in found.notes if note.startswith("2 videos have file names")]
    assert bool(said) == ("/" in names[0])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s3://rec/front.mp4", "s3://rec/front.mp4"),
        ("s3://rec/front.mp4?sig=1", "s3://rec/front.mp4?sig=2"),
        ("https://x.org/stream.mp4?id=1", "https://x.org/stream.mp4?id=2"),
        ("/P01/front.mp4", "https://x.org/P01/front.mp4"),
    ],
)
def test_two_codings_of_a_film_are_an_error_that_names_both(first, second, read):
    with pytest.raises(DataError, match=r"annotates video '\w+', as") as caught:
        read([task(1, first), task(2, second)])
    for number, location in ((1, first), (2, second)):
        assert f"task {number}, {location}" in str(caught.value)
    assert caught.value.setting == ""  # both are in one file


def test_a_table_of_videos_tells_films_apart_too(read, tmp_path):
    table = tmp_path / "videos.csv"
    tasks = [task(1, "s3://rec/P01/front.mp4"), task(2, "s3://rec/P02/front.mp4")]
    table.write_text("video,task\nP01/front.mp4,tea\nP02/front.mp4,soup\n")
    found = read(tasks, task=None, video_table=table)
    assert [each.name for each in found.annotations.taxonomy.tasks] == ["tea", "soup"]
    for count, text, match in (
        (2, "task\nfront.mp4,tea", "cannot tell videos with the same file name apart, front"),
        (1, "task\na/front,tea\nb/front,tea", r"a/front, b/front for .*Write them with their fol"),
        (2, "task\nx,tea\nx,tea", "line 3: repeats a video"),
        (2, "frame_rate\nx,1e9", r"line 2: 1e\+09 frames per second; expected at most"),
    ):
        table.write_text(f"video,{text}\n")
        with pytest.raises(DataError, match=match):
            read(tasks[:count], task=None, video_table=table)


def test_a_table_of_steps_and_a_tool_may_not_share_a_film(tmp_path):
    (tmp_path / "a.csv").write_text("video,task,step,start,end\ncam,tea,boil,0,1\n")
    (tmp_path / "cam.vtt").write_text(VTT)
    with pytest.raises(DataError, match=r"cam.vtt \(WebVTT\): annotates video 'cam', as|a.csv"):
        read_steps([tmp_path / "a.csv", tmp_path / "cam.vtt"], choices=TEA)
    with pytest.raises(DataError, match="table, which names its videos"):
        read_steps(tmp_path / "a.csv", choices=Choices(by_file=True))


def test_tables_without_steps_are_left_out_and_named(tmp_path):
    for name, line in (("a", "cam,tea,boil,0,1\n"), ("b", "")):
        (tmp_path / f"{name}.csv").write_text(f"video,task,step,start,end\n{line}")
    found = read_steps([tmp_path / "a.csv", tmp_path / "b.csv"])
    said = f"table of steps: left out, since they hold no steps: {tmp_path / 'b.csv'}."
    assert said in found.notes


def test_files_without_steps_are_left_out_and_named(read, tmp_path):
    empty = {"id": 9, "data": {"video": "s3://x/e.mp4"}, "annotations": []}
    files = [task(1, "s3://x/a.mp4")], [empty], [task(2, "s3://x/b.mp4")], [empty | {"id": 7}]
    found = read(*files)
    assert len(found.annotations.videos) == 2
    assert found.notes[1:3] == (
        "Label Studio: left out 2 tasks without an annotation.",
        f"Label Studio: left out, since they hold no region with a label: {tmp_path / '1.json'}, "
        f"{tmp_path / '3.json'}.",
    )
    with pytest.raises(DataError, match=r"0\.json .*: holds no region .*1\.json"):
        read([empty], [empty])
    with pytest.raises(DataError, match=r"tag 'x', only 'steps' \(1\)") as caught:
        read([task(1, "s3://x/a.mp4")], tier="x")
    assert caught.value.setting == "tier"
