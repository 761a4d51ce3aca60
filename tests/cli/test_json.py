"""Every command that says something says it as JSON, too."""

import json

import pytest

from cefito.data import open_dataset
from test_documentation import commands, options

SILENT = {
    *((), ("data",), ("data", "prepare"), ("config",), ("token",)),  # groups of commands
    *(("serve",), ("mcp",), ("label",)),  # which answer in JSON
    ("graph",),  # which prints a graph, as JSON unless asked for a picture
}


def test_every_command_has_it():
    assert {chain for chain in commands() if "--json" not in options(*chain)} == SILENT


@pytest.fixture
def said(ran):
    """What a command says: one value, and its talk elsewhere."""

    def value(*command):
        captured = ran(*command, "--json")
        assert "wrote" in captured.err
        return json.loads(captured.out)

    return value


def test_data_sets(said, tmp_path, tiny_dataset):
    text = tmp_path / "tea.txt"
    text.write_text("# Tea\n1. boil water\n2. pour milk\n")
    source, out = tiny_dataset.folder, tmp_path / "out"
    assert said("data", "procedure", text, out) == {"out": str(out), "tasks": 1, "steps": 2}
    for name, command in (("a", ("world",)), ("b", ("simulate", source))):
        value = said("data", *command, tmp_path / name)
        made = open_dataset(tmp_path / name)
        assert value == {
            "out": str(tmp_path / name),
            "name": made.name,
            "fingerprint": made.fingerprint,
        }


def test_files(said, tmp_path, run_of_lengths):
    archive, package = tmp_path / "run.zip", tmp_path / "mine"
    (file,) = said("export", run_of_lengths.folder, archive)["files"]
    assert file == {"file": str(archive), "bytes": archive.stat().st_size}
    value = said("new-planner", "my-planner", "--out", package)
    assert value["out"] == str(package)
    assert {*value["files"]} == {str(path) for path in package.rglob("*") if path.is_file()}
