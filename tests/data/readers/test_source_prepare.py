"""From annotations and feature files to a prepared data set.

It is compared with a slow reference that looks at one step at a time.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.data import open_dataset
from cefito.data.annotations import Annotations, Step
from cefito.data.readers.assemble import prepare, summary_rows
from cefito.data.readers.observing import is_beyond, kept_steps
from cefito.data.source import Source, read_common
from cefito.errors import DataError

WIDTH = 6


def slow_row(features, second):
    if second < 0:
        return features[0]
    return features[second] if second < len(features) else features[-1]


def slow_observation(features, time, beyond="drop"):
    centre = int(np.rint(time))
    if beyond == "rewrite":  # the reference loader repeats the last of the rows that there are
        rows = list(features[max(centre - 1, 0) : centre + 2])
        return np.concatenate([*rows, *[rows[-1]] * (3 - len(rows))])
    return np.concatenate(
        [slow_row(features, second) for second in (centre - 1, centre, centre + 1)]
    )


def slow_loader(steps, rows):
    """The reference loader's rule for one sequence of steps, as the facts about it say."""
    found = []
    for step in steps:
        if int(np.rint(step.end)) < rows:
            found.append(step)
        elif found:
            found.append(found[-1])
    while found and len(found) < len(steps):
        found.append(found[-1])
    return found


STEPS = st.lists(
    st.tuples(st.integers(0, 24), st.integers(0, 12), st.integers(0, 3)).map(
        lambda made: Step(start=made[0] / 2, end=(made[0] + made[1]) / 2, action=made[2])
    ),
    min_size=1,
    max_size=8,
)


@given(STEPS, st.integers(1, 20))
def test_steps_beyond_the_features(steps, rows):
    inside = [step for step in steps if round(step.end) < rows]
    assert [steps[place] for place in kept_steps(steps, rows, "drop")] == inside
    rewritten = [steps[place] for place in kept_steps(steps, rows, "rewrite")]
    assert rewritten == slow_loader(steps, rows)
    for horizon in (1, 2, 3):
        # the loader works window by window; those that begin inside the features it makes alike
        for first in range(len(steps) - horizon + 1):
            if steps and not is_beyond(steps[0], rows) and not is_beyond(steps[first], rows):
                assert rewritten[first : first + horizon] == slow_loader(
                    steps[first : first + horizon], rows
                )


def check_against_reference(dataset, videos, arrays, beyond="drop", precision="float16"):
    """Every stored observation is that of the slow reference, in order."""
    row = 0
    for video, given_video in zip(dataset.videos, videos, strict=True):
        features = arrays[video.video_id]
        steps = (
            slow_loader(given_video.steps, len(features))
            if beyond == "rewrite"
            else [step for step in given_video.steps if int(np.rint(step.end)) < len(features)]
        )
        assert video == replace(given_video, steps=tuple(steps))
        for step in steps:
            for stored, time in ((dataset.start, step.start), (dataset.end, step.end)):
                assert np.array_equal(
                    stored[row], slow_observation(features, time, beyond).astype(precision)
                )
            row += 1
    assert row == len(dataset.start) == len(dataset.end)


@pytest.mark.parametrize("beyond", ["drop", "rewrite"])
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_observations_against_the_slow_reference(store, source, tmp_path, beyond, precision):
    _, features, arrays = store
    dataset = prepare(source, features, tmp_path / "out", beyond=beyond, precision=precision)
    assert dataset.start.dtype == precision
    assert dataset.observation_dim == 3 * WIDTH
    open_dataset(tmp_path / "out")
    usable = [video for video in source.annotations.videos if video.video_id not in ("d", "g")]
    check_against_reference(dataset, usable, arrays, beyond, precision)
    told = dataset.provenance["preparation"]
    assert told["videos"] == {"annotated": 10, "prepared": 8}
    assert told["steps"] == {"annotated": 35, "prepared": len(dataset.start)}
    assert told["beyond"] == {"policy": beyond, "steps": 2, "videos": ["i"]}
    late = [note for note in told["notes"] if note.startswith("left out, beyond the features: ")]
    assert len(late) == (beyond == "drop")
    for note in late:
        (video,) = (video for video in source.annotations.videos if video.video_id == "i")
        rows = len(arrays["i"])
        steps = [step for step in video.steps if round(step.end) >= rows]
        names = source.annotations.taxonomy.names([step.action for step in steps])
        assert note.count(f"'i' ends at {rows:g} s, but its step ") == len(names) == 2
        for name, step in zip(names, steps, strict=True):
            assert f"'{name}' is from {step.start:g} to {step.end:g} s" in note
    assert [(entry["reason"], entry["videos"], entry["steps"]) for entry in told["left_out"]] == [
        ("all steps beyond", ["d"], 1),
        ("no steps", ["g"], 0),
    ]
    example = "d.npy: the features end at 1 s, and all steps end later."
    assert summary_rows(dataset) == [
        ["prepared", 8, 34 - (2 if beyond == "drop" else 0), None],
        [f"steps beyond the features, {'dropped' if beyond == 'drop' else 'rewritten'}", 1, 2, "i"],
        ["left out: all steps beyond", 1, 1, example],
        ["left out: no steps", 1, 0, "video 'g' has no annotated steps."],
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "out", "source"]


def test_a_step_beyond_can_be_an_error(store, source, tmp_path):
    _, features, _ = store
    with pytest.raises(DataError, match=r"end at 1 s.*step 1 .*'d'"):
        prepare(source, features, tmp_path / "out", beyond="error")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("beyond", ["drop", "error", "rewrite"])
@pytest.mark.parametrize(("end", "near"), [(4.4, True), (4.5, True), (4.51, False), (9, False)])
def test_steps_that_end_by_rounding_behind_the_features(
    make_source, features_of, tmp_path, beyond, end, near
):
    """Four rows; the last two steps overlap, both end behind the features."""
    steps = [[0, 2, 0], [2.5, 4.2, 1], [3, end, 2]]
    video = {"video_id": "a", "split": "train", "task_id": 0, "steps": steps}
    source = read_common(make_source(videos=[video], features=None))
    (tmp_path / "features").mkdir()
    rows = features_of("a", 4)
    np.save(tmp_path / "features" / "a.npy", rows)
    if beyond == "error" and not near:
        with pytest.raises(DataError, match=r"end at 4 s.*step 2 "):
            prepare(source, tmp_path / "features", tmp_path / "out", beyond=beyond)
        return
    options = {"beyond": beyond, "precision": "float32"}
    dataset = prepare(source, tmp_path / "features", tmp_path / "out", **options)
    told = dataset.provenance["preparation"]
    if beyond == "rewrite":  # as the published loader does
        assert [step.action for step in dataset.videos[0].steps] == [0, 0, 0]
        assert (told["clamped"]["steps"], told["beyond"]["steps"]) == (0, 2)
    elif not near:
        assert [step.action for step in dataset.videos[0].steps] == [0]
        assert (told["clamped"]["steps"], told["beyond"]["steps"]) == (0, 2)
    else:
        assert dataset.videos == source.annotations.videos
        assert told["clamped"] == {"steps": 2, "videos": ["a"]}
        assert told["beyond"]["steps"] == 0
        assert told["notes"][0].startswith("The last row stands for what ends up to half a second")
        assert dataset.end[2].tolist() == np.concatenate(rows[[2, 3, 3]]).tolist()
        assert dataset.start[2].tolist() == np.concatenate(rows[[2, 3, 3]]).tolist()


def test_everything_left_out_is_told(store, source, tmp_path, write_archive, features_of):
    _, features, _ = store
    (features / "a.npy").unlink()
    (features / "b.npy").write_bytes((features / "b.npy").read_bytes()[:200])
    write_archive(features / "c.npy", features_of("c", 14, width=5))
    (features / "e.npy").write_text("no array")
    spoilt = features_of("f", 14)
    spoilt[4, 1] = np.nan
    write_archive(features / "f.npy", spoilt)
    write_archive(features / "h.npy", features_of("h", 14) + np.float32(70000))
    dataset = prepare(source, features, tmp_path / "out")
    assert [video.video_id for video in dataset.videos] == ["i", "j"]
    assert dataset.provenance["preparation"]["beyond"]["policy"] == "drop"
    told = {
        entry["videos"][0]: (entry["reason"], entry["example"])
        for entry in dataset.provenance["preparation"]["left_out"]
    }
    assert {video: reason for video, (reason, _) in told.items()} == {
        **{"a": "no features", "b": "unreadable", "c": "wrong dimension", "d": "all steps beyond"},
        **{"f": "NaN or infinity", "g": "no steps", "h": "too large for float16"},
    }
    assert told["f"][1].startswith("f.npy: second 4 (row 4, counted from 0) holds NaN")
    assert told["c"][1].startswith("c.npy: gives observations of 15 numbers, most videos give 18")
    assert told["h"][1].endswith("Prepare in precision float32.")
    assert str(tmp_path) not in json.dumps(dataset.provenance)


def test_no_video_can_be_used(source, tmp_path):
    (tmp_path / "others").mkdir()
    np.save(tmp_path / "others" / "other.npy", np.ones((3, 2), np.float32))
    match = r"no video can be used; the first: .*others: no file for video 'a'"
    with pytest.raises(DataError, match=match):
        prepare(source, tmp_path / "others", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "others", "source"]


def test_a_file_is_taken_by_the_video_that_has_most_of_its_name(tmp_path, source):
    folder = tmp_path / "some"
    folder.mkdir()
    taxonomy, video = source.annotations.taxonomy, source.annotations.videos[0]
    for name in ("1_7_360p", "x_b", "101_z"):
        np.save(folder / f"{name}.npy", np.ones((14, 2), np.float32))
    videos = tuple(replace(video, video_id=name) for name in ("1", "1_7", "b", "x_b", "z"))
    made = Source(annotations=Annotations(taxonomy=taxonomy, videos=videos), form="test", files=())
    found = prepare(made, folder, tmp_path / "out")
    assert [video.video_id for video in found.videos] == ["1_7", "x_b", "z"]
    told = found.provenance["preparation"]
    assert told["left_out"][0]["videos"] == ["1", "b"]
    assert told["left_out"][0]["example"].startswith("1_7_360p.npy: belongs to '1_7', and there")
    assert told["notes"][0].startswith("2 videos were matched with files of longer names")


def test_one_second_is_the_middle_of_three(store, source, tmp_path):
    three = prepare(source, store[1], tmp_path / "three")
    one = prepare(source, store[1], tmp_path / "one", seconds=1)
    assert one.observation_dim == WIDTH
    assert np.array_equal(one.start, three.start[:, WIDTH : 2 * WIDTH])
