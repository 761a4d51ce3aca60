from pathlib import Path

import numpy as np
import pytest

from cefito.data import read_annotations
from cefito.data.readers.custom import prepare_custom
from cefito.errors import DataError

STEPS, ACTIONS = 35, 8


def features(start=None, end=None):
    generator = np.random.default_rng(1)
    arrays = {
        name: generator.standard_normal((STEPS, 4)).astype(np.float32) for name in ("start", "end")
    }
    given = {"start": start, "end": end}
    return arrays | {name: array for name, array in given.items() if array is not None}


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "source")


def test_prepared_holds_what_the_source_holds(make_source, tmp_path):
    arrays, text = features(), np.arange(ACTIONS * 2, dtype=np.float16).reshape(ACTIONS, 2)
    source = make_source(features=arrays, text=text)
    dataset = prepare_custom(source, tmp_path / "new" / "out")
    assert dataset.folder == tmp_path / "new" / "out"
    assert dataset.name == "tiny"
    assert dataset.annotations == read_annotations(source)
    np.testing.assert_array_equal(dataset.start, arrays["start"])
    np.testing.assert_array_equal(dataset.end, arrays["end"])
    np.testing.assert_array_equal(dataset.action_text, text)
    assert dataset.start.dtype == np.float32
    assert dataset.action_text.dtype == np.float16
    assert dataset.first_row.tolist() == [0, 3, 8, 12, 13, 19, 23, 23, 27, 31]


def test_provenance_names_the_folder_but_no_path_and_repeats_exactly(make_source, tmp_path):
    source = make_source()
    first = prepare_custom(source, tmp_path / "one")
    second = prepare_custom(source, tmp_path / "two", name="another name")
    assert first.provenance["source"] == {"kind": "custom", "folder": "source"}
    assert first.provenance["observations"] == "as given"
    assert set(first.provenance) == {"observations", "source", "cefito"}
    assert str(tmp_path) not in (first.folder / "dataset.json").read_text()
    assert first.fingerprint == second.fingerprint
    assert second.name == "another name"


@pytest.mark.parametrize(("stored", "expected"), [("<f2", "f2"), ("<f8", "f4"), (">f4", "f4")])
def test_precision(make_source, tmp_path, stored, expected):
    values = np.random.default_rng(0).standard_normal((STEPS, 4)).astype(np.float16)
    for order in ("C", "F"):
        arrays = features(np.asarray(values.astype(stored), order=order), values.astype(stored))
        source = make_source(f"{stored}{order}", features=arrays)
        dataset = prepare_custom(source, tmp_path / f"out{order}")
        assert dataset.start.dtype == expected
        np.testing.assert_array_equal(dataset.start, values)
        np.testing.assert_array_equal(dataset.end, values)


def bad_row(row, value, name="start", dtype=np.float32):
    array = np.ones((STEPS, 4), dtype=dtype)
    array[row, 2] = value
    array[STEPS - 1, 0] = value
    return features(**{name: array})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (features(np.ones((STEPS - 1, 4))), r"'start': has shape \[34, 4\]; expected \[35, any\]"),
        (features(np.ones(STEPS)), r"'start': has shape \[35\]; "),
        (features(end=np.ones((STEPS, 5))), r"'start' has shape \[35, 4\] and 'end' \[35, 5\]"),
        (features(np.ones((STEPS, 0)), np.ones((STEPS, 0))), r"'start': has shape \[35, 0\]"),
        (features(np.ones((STEPS, 4), dtype=np.int64)), "'start': holds values of type int64"),
        # rows 3 to 7 are video b, 13 to 18 video e, 23 to 26 video h (g has no steps)
        (bad_row(3, np.nan), r"'start': 2 rows hold NaN .*row 3 .video 'b', step 1"),
        (bad_row(7, np.inf, "end"), r"'end': 2 rows hold NaN .*row 7 .video 'b', step 5"),
        (bad_row(23, np.nan, dtype=np.float16), r"'start': 2 rows .*row 23 .video 'h', step 1"),
        (bad_row(0, 1e300, dtype=np.float64), r"'start': 2 rows hold NaN or infinity, .*row 0"),
        ({"start": features()["start"]}, r"has no member 'end' \(found: start\)"),
        (features(np.array([[object()] * 4] * STEPS, dtype=object)), "holds pickled objects"),
    ],
)
def test_bad_features_are_refused_and_nothing_is_written(make_source, tmp_path, arrays, message):
    source = make_source(features=arrays)
    with pytest.raises(DataError, match=message) as caught:
        prepare_custom(source, tmp_path / "out")
    assert str(caught.value).startswith(str(source / "features.npz"))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (np.ones((ACTIONS - 1, 3)), r"has shape \[7, 3\]; expected \[8, any\]: taxonomy.json has"),
        (np.diag([1.0] * 5 + [np.nan] * 3), "NaN or infinity, the first is action 5"),
        (np.array([None] * ACTIONS), "holds pickled objects"),
    ],
)
def test_bad_action_text_is_refused(make_source, tmp_path, text, message):
    source = make_source(text=text)
    with pytest.raises(DataError, match=message) as caught:
        prepare_custom(source, tmp_path / "out")
    assert str(caught.value).startswith(str(source / "action_text_features.npy"))
    assert left_behind(tmp_path) == []
