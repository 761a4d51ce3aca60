import json

import pytest

from cefito.data import Step, Taxonomy, Video, read_annotations
from cefito.data.annotations import read_videos, write_videos
from cefito.errors import DataError


def test_taxonomy_round_trip(tiny_taxonomy):
    taxonomy = Taxonomy.from_dict(tiny_taxonomy)
    assert taxonomy.tasks[1].actions == (2, 3, 4, 5)
    assert taxonomy.names([6, 2]) == ["jack up", "wait"]
    assert taxonomy.to_dict() == tiny_taxonomy
    assert Taxonomy.from_dict(taxonomy.to_dict()) == taxonomy


def _set(path, value):
    def change(taxonomy):
        place = taxonomy
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(("actions", 3, "id"), 9), "action ids must run from 0 to 7 without gap or repeat"),
        (_set(("actions", 3, "id"), 2), "action ids must run from 0 to 7"),
        (_set(("tasks", 1, "id"), 3), "task ids must run from 0 to 2"),
        (_set(("actions", 0, "id"), False), r"not a taxonomy \(actions.0.id: "),
        (_set(("actions", 0, "name"), " "), r"actions.0.name"),
        (_set(("actions",), []), "not a taxonomy"),
        (_set(("tasks", 1, "actions"), [2, 8]), r"task 1 \('toast'\) names action 8, which is"),
        (_set(("tasks", 1, "actions"), [2.0]), r"not a taxonomy \(tasks.1.actions.0: "),
    ],
)
def test_bad_taxonomy_names_file_and_entry(tmp_path, tiny_taxonomy, change, message):
    change(tiny_taxonomy)
    path = tmp_path / "taxonomy.json"
    path.write_text(json.dumps(tiny_taxonomy))
    with pytest.raises(DataError, match=message) as caught:
        Taxonomy.read(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff"])
def test_unreadable_taxonomy(tmp_path, content):
    path = tmp_path / "taxonomy.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"taxonomy.json: not"):
        Taxonomy.read(path)


def test_missing_files_are_named(tmp_path, make_source):
    with pytest.raises(DataError, match=r"taxonomy.json: no such file. Expected"):
        read_annotations(tmp_path)
    folder = make_source()
    (folder / "videos.jsonl").unlink()
    with pytest.raises(DataError, match=r"videos\.jsonl: no such file"):
        read_annotations(folder)


def test_shared_space_is_read_and_written(shared_taxonomy):
    taxonomy = Taxonomy.from_dict(shared_taxonomy)
    assert Taxonomy.from_dict(taxonomy.to_dict()) == taxonomy
    assert [action.name for action in taxonomy.shared] == ["liquid", "food", "jack"]
    assert taxonomy.to_shared == tuple(shared_taxonomy["map_8_to_3"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(("map_8_to_3",), [0, 0]), "'map_8_to_3': has 2 ids. Expected one"),
        (_set(("map_8_to_3",), [0, 0, 1, 1, 1, 1, 2, 3]), "'map_8_to_3' names action 3"),
        (lambda taxonomy: taxonomy.pop("actions_3"), r"not valid \(names: .*'actions_3'"),
    ],
)
def test_bad_shared_space(shared_taxonomy, change, message):
    change(shared_taxonomy)
    with pytest.raises(DataError, match=message):
        Taxonomy.from_dict(shared_taxonomy, place="taxonomy.json")


def test_videos_round_trip(tmp_path, tiny_taxonomy):
    taxonomy = Taxonomy.from_dict(tiny_taxonomy)
    names = ["plain", "ümläut", "line\u2028separator", "next\x85line", "form\x0cfeed", 'quote"']
    videos = tuple(
        Video(
            video_id=name,
            split="val",
            task=2,
            steps=(Step(0.5, 0.5, 6), Step(0.25, 3.0, 7)),
            in_protocol=index % 2 == 0,
        )
        for index, name in enumerate(names)
    )
    write_videos(tmp_path / "videos.jsonl", videos)
    assert read_videos(tmp_path / "videos.jsonl", taxonomy) == videos


def _video(**change):
    def edit(video):
        video.update(change)

    return edit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_video(video_id=""), r"not a video \(video_id: "),
        (_video(split="validation"), "split: expected 'train', 'val' or 'test'"),
        (_video(task_id=3), "task_id is 3; expected 0 to 2"),
        (_video(in_protocol="false"), r"not a video \(in_protocol: "),
        (_video(steps=[[0, 1, 3], [2, 3, 99]]), r"step 2 \(counted from 1\) has action 99"),
        (_video(steps=[[0, 1, 3.0]]), r"not a video \(steps.0.2: "),
        (_video(steps=[[0, 1, 3], [2, 3, 6]]), r"step 2 .* has action 6, which .* does not list"),
        (_video(steps=[[0, 1, 3], [5.5, 4, 3]]), r"step 2 .* 5.5 s to 4.0 s; expected"),
        (_video(steps=[[0, float("nan"), 3]]), "steps.0.1: expected a finite number"),
        (_video(steps=[[0, 10**400, 3]]), "not a video"),
        (lambda video: video.pop("task_id"), r"not a video \(task_id: is missing\). Expected"),
        (_video(video_id="a"), "repeats the video 'a' of line 1"),
    ],
)
def test_bad_video_names_file_and_line(make_source, tiny_videos, change, message):
    change(tiny_videos[1])
    folder = make_source(videos=tiny_videos, features=None)
    with pytest.raises(DataError, match=message) as caught:
        read_annotations(folder)
    assert str(caught.value).startswith(f"{folder / 'videos.jsonl'}, line 2: ")


@pytest.mark.parametrize(
    ("line", "message"), [('{"video_id": "x", ', "not valid JSON"), ("[1, 2]", "not a video")]
)
def test_malformed_line_names_file_and_line(make_source, tiny_videos, line, message):
    text = json.dumps(tiny_videos[0]) + "\n\n" + line + "\n"
    folder = make_source(videos=text, features=None)
    with pytest.raises(DataError, match=message) as caught:
        read_annotations(folder)
    assert str(caught.value).startswith(f"{folder / 'videos.jsonl'}, line 3: ")


def test_empty_and_binary_videos(make_source):
    folder = make_source(videos="\n \n", features=None)
    with pytest.raises(DataError, match=r"videos.jsonl: holds no videos"):
        read_annotations(folder)
    (folder / "videos.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"videos.jsonl: cannot be read"):
        read_annotations(folder)


@pytest.mark.parametrize(
    ("name", "videos", "tasks", "actions", "steps"),
    [
        ("crosstask", 2748, 18, 133, 20897),
        pytest.param("coin", 10070, 180, 778, 39409, marks=pytest.mark.nightly),
        ("niv", 142, 5, 48, 1251),
        ("captaincook4d", 383, 24, 350, 5404),
    ],
)
def test_real_annotations(real_annotations, tmp_path, name, videos, tasks, actions, steps):
    annotations = real_annotations(name)
    assert len(annotations.videos) == videos
    assert len(annotations.taxonomy.tasks) == tasks
    assert len(annotations.taxonomy.actions) == actions
    assert annotations.step_count == steps
    write_videos(tmp_path / "videos.jsonl", annotations.videos)
    assert read_videos(tmp_path / "videos.jsonl", annotations.taxonomy) == annotations.videos
    assert Taxonomy.from_dict(annotations.taxonomy.to_dict()) == annotations.taxonomy


def test_crosstask_shared_space(real_annotations):
    annotations = real_annotations("crosstask")
    assert len(annotations.taxonomy.shared) == 105
    # equal names, and only those, share an id
    names = {}
    for action, target in zip(
        annotations.taxonomy.actions, annotations.taxonomy.to_shared, strict=True
    ):
        names.setdefault(target, set()).add(action.name)
    assert sorted(names) == list(range(105))
    assert all(len(members) == 1 for members in names.values())
