import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from cefito.errors import RunError
from cefito.parts.folder import MANIFEST, recorded
from cefito.runs.run import open_run


@pytest.fixture
def folder(nearest_run, tmp_path):
    return Path(shutil.copytree(nearest_run.folder, tmp_path / "copy"))


def test_it_lists_what_was_written_and_nothing_else(folder, nearest_run):
    manifest = json.loads((folder / MANIFEST).read_text())
    expected = ["run.json", "taxonomy.json", "videos.json", "windows.safetensors"]
    assert sorted(manifest["files"]) == expected
    (folder / "notes.json").write_text("mine")
    (folder / "evaluation-test.json").write_text("{}")
    assert open_run(folder).info == nearest_run.info
    open_run(folder).written()  # written anew, my own files are not its own
    assert json.loads((folder / MANIFEST).read_text()) == manifest


def test_sizes_are_compared_before_anything_is_hashed(folder):
    with (folder / "windows.safetensors").open("r+b") as file:
        file.truncate(20 << 30)  # takes no room
    with pytest.raises(RunError, match=r"windows\.safetensors: has changed .*its size differs"):
        open_run(folder)


@pytest.mark.parametrize("name", ["run.json", "taxonomy.json", "windows.safetensors"])
def test_a_changed_or_missing_file_is_refused_by_name(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-3] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(RunError, match=rf"{name}: has changed"):
        open_run(folder)
    (folder / name).unlink()
    with pytest.raises(RunError, match=rf"{name}: no such file, but .*manifest\.json"):
        open_run(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "not a manifest of this version \\(format_version"),
        ({"files": {"run.json": 3}}, "not a manifest of this version \\(files.run.json"),
        ({"files": {}}, "lists no hash of run.json"),
        ({"files": {"../copy/run.json": ""}}, "not a manifest of this version.*beside it"),
        ({"colour": "red"}, "not a manifest of this version \\(colour"),
    ],
)
def test_a_damaged_manifest_is_refused_by_name(folder, change, message):
    value = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(value | change))
    with pytest.raises(RunError, match=rf"manifest\.json: {message}"):
        open_run(folder)


def test_a_run_that_was_cut_short_while_it_was_written_anew_is_refused(folder):
    with suppress(ZeroDivisionError), recorded(folder):
        (folder / "taxonomy.json").write_text("{}")
        raise ZeroDivisionError
    with pytest.raises(RunError, match=r"taxonomy\.json: has changed"):
        open_run(folder)


def test_a_run_without_a_manifest_is_refused(folder):
    (folder / MANIFEST).unlink()
    with pytest.raises(RunError, match=r"copy/manifest\.json: no such file"):
        open_run(folder)
