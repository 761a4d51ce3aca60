import pytest

from cefito.data.listing import annotations_of, list_actions, list_tasks, list_videos
from cefito.errors import DataError


def test_lists(make_source, tiny_dataset):
    prepared = annotations_of(tiny_dataset.folder)
    assert annotations_of(make_source(features=None)) == prepared == tiny_dataset.annotations
    taxonomy = prepared.taxonomy
    assert [tuple(row.values()) for row in list_tasks(taxonomy, prepared)] == [
        (0, "tea", 3, 6),
        (1, "toast", 4, 2),
        (2, "tyre", 2, 2),
    ]
    assert [row["videos"] for row in list_tasks(taxonomy, task=1)] == [None]
    rows = list_actions(taxonomy, prepared)
    assert [row["id"] for row in rows] == list(range(8))
    assert (rows[2]["name"], rows[2]["tasks"], rows[2]["steps"]) == ("wait", ["tea", "toast"], 9)
    assert sum(row["steps"] for row in rows) == prepared.step_count
    toast = list_actions(taxonomy, prepared, task=1)
    assert [(row["name"], row["steps"]) for row in toast] == [
        ("wait", 2),
        ("cut", 4),
        ("heat", 3),
        ("spread", 2),
    ]
    assert [row["steps"] for row in list_actions(taxonomy)] == [None] * 8
    videos = list_videos(prepared, task=2)
    assert [(row["id"], row["split"], row["task"], row["steps"]) for row in videos] == [
        ("c", "train", "tyre", ["jack up", "jack down", "jack up", "jack down"]),
        ("g", "test", "tyre", []),
    ]
    assert len(list_videos(prepared)) == 10


def test_what_has_no_lists(tmp_path):
    with pytest.raises(DataError, match=r"dataset.json: no such file"):
        annotations_of(tmp_path)
