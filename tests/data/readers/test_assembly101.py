"""Assembly101's labels of mistakes: a table of right videos, and of test videos with mistakes."""

import zipfile

import pytest

from assembly_files import LABELS, RIGHT, WRONG, write_files
from cefito.data.readers.assembly101 import read_assembly101
from cefito.errors import DataError


def test_test_videos_end_with_their_first_mistake(tmp_path):
    right, wrong = read_assembly101(write_files(tmp_path / "FILES"))
    assert (right.video, right.task, right.split) == (RIGHT, "toy b06", "train")
    steps = [(step.name, step.start, step.end, step.errors) for step in right.steps]
    assert steps == [("attach-engine_cover", 1.0, 2.5, ()), ("attach-figurine", 2.5, 3.33, ())]
    assert (wrong.video, wrong.task, wrong.split, wrong.seconds) == (WRONG, "toy c07", "test", 2)
    assert [(step.name, step.errors) for step in wrong.steps] == [
        ("attach-body", ()),
        ("attach-cabin", ("wrong order",)),
    ]
    _, whole = read_assembly101(tmp_path / "FILES", whole=True)
    assert [step.errors for step in whole.steps] == [(), ("wrong order",), (), ("error",)]


def test_a_copy_of_the_project_does_as_well_as_its_archive(tmp_path):
    folder = write_files(tmp_path / "FILES")
    expected = read_assembly101(folder)
    archive = folder / "assembly101-mistake-detection.zip"
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    archive.unlink()
    (folder / "project-41f6" / "annots").rename(folder / "annots")
    assert read_assembly101(folder) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,x,attach,body,chassis,correct,\n", "line 1: Expected first frame, last frame"),
        ("0,5,attach,body,chassis,right,\n", "one of correct, mistake, correction"),
        ("0,5,attach\n", "line 1: Expected first frame"),
        ("0,5,attach,body,chassis,correct,\n9,5,attach,body,chassis,correct,\n", "line 2"),
    ],
)
def test_damaged_labels_are_named_with_their_line(tmp_path, text, words):
    folder = write_files(tmp_path / "FILES", {RIGHT: LABELS[RIGHT], WRONG: text})
    with pytest.raises(DataError, match=words):
        read_assembly101(folder)


def test_missing_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="Download it: cefito data download assembly101"):
        read_assembly101(tmp_path)
    folder = write_files(tmp_path / "FILES", test="nusar-2021_action_both_9099-a01_9099")
    with pytest.raises(DataError, match="which has no labels"):
        read_assembly101(folder)
    folder = write_files(tmp_path / "FILES", {"a": LABELS[RIGHT], RIGHT: LABELS[RIGHT]}, test="a")
    with pytest.raises(DataError, match="has no toy"):
        read_assembly101(folder)
    (folder / "assembly101-mistake-detection.zip").write_bytes(b"PK no archive")
    with pytest.raises(DataError, match="is damaged"):
        read_assembly101(folder)
