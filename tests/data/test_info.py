import pytest

from cefito.data.info import describe
from cefito.errors import DataError


def test_prepared(tiny_dataset):
    value = describe(tiny_dataset.folder)
    assert value["name"] == "tiny"
    assert value["kind"] == "prepared"
    assert (value["tasks"], value["actions"], value["steps"]) == (3, 8, 35)
    counts = {split: (each["all"], each["in_protocol"]) for split, each in value["videos"].items()}
    assert counts == {"train": (7, 7), "test": (3, 3)}
    # train videos have 3, 5, 4, 1, 4, 4, 4 steps, test videos 6, 4, 0
    assert value["windows"] == {
        "1": {"train": 25, "test": 10},
        "2": {"train": 18, "test": 8},
        "3": {"train": 12, "test": 6},
        "4": {"train": 6, "test": 4},
        "5": {"train": 1, "test": 2},
        "6": {"train": 0, "test": 1},
    }
    # task 0 has five training videos, so one is held out
    totals = {horizon: sum(held.values()) for horizon, held in value["held_out"].items()}
    assert totals == {"1": 25, "2": 18, "3": 12, "4": 6, "5": 1, "6": 0}
    # T = 3: four windows of a task with 4 actions, two of one with 3
    assert value["candidates"]["3"] == {"mean": (4 * 4**3 + 2 * 3**3) / 6, "median": 64.0}
    assert value["candidates"]["6"] == {"mean": 4096.0, "median": 4096.0}
    assert (value["observation_dim"], value["action_text_dim"]) == (4, 3)
    assert value["provenance"]["source"]["kind"] == "custom"
    assert value["fingerprint"] == tiny_dataset.fingerprint


def test_annotations(make_source, tiny_videos):
    for video in tiny_videos:
        video["split"] = "val" if video["video_id"] == "b" else "train"
    tiny_videos[2]["in_protocol"] = False
    value = describe(make_source(videos=tiny_videos, features=None))
    assert value["kind"] == "annotations"
    assert value["videos"] == {
        "train": {"all": 9, "in_protocol": 8},
        "val": {"all": 1, "in_protocol": 1},
    }
    assert value["windows"]["4"] == {"train": 7, "val": 2}
    assert value["held_out"] is None
    assert value["candidates"] == {}
    assert not {"fingerprint", "provenance", "observation_dim"} & set(value)


def test_what_cannot_be_described(tmp_path):
    with pytest.raises(DataError, match=r"no such file"):
        describe(tmp_path / "nowhere")
