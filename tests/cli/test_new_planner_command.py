"""A package of a planner: made, installed, tested, listed, trained, compared, removed."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.errors import ConfigError, RunError
from cefito.parts.folder import RunInfo
from cefito.planners.example.new_package import write_package
from cefito.runs.run import open_run

ROOT = Path(__file__).parents[2]
NAME = "my-planner"
EPOCHS = ["--set", "my_planner.training.optimiser.epochs=1"]
CALLS = """
import json, sys
import pytest
from cefito.cli import main
for call in json.loads(sys.argv[1]):
    assert main(call) == 0, call
assert pytest.main(["-q", "-p", "no:cacheprovider"]) == 0
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages") / "package"
    write_package(NAME, folder)
    return folder


@pytest.fixture(scope="module")
def installed(package, tmp_path_factory):
    """A function that runs Python where the package is installed."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("pip and setuptools are not installed")
    site = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*argv):
        return subprocess.run(
            [sys.executable, *map(str, argv)],
            env=os.environ | {"PYTHONPATH": paths},
            cwd=package,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--target", site, package)
    return run


@pytest.mark.nightly
def test_it_is_listed_trained_compared_and_tested_and_missed_afterwards(
    installed, world, tmp_path, capsys
):
    """Its own test passes as it is."""
    run, study, data = tmp_path / "run", tmp_path / "study", str(world.folder)
    train = ["train", data, "--method", NAME, "--horizon", "3", "--out", str(run), *EPOCHS]
    compare = ["compare", data, "--planners", f"{NAME},nearest", "--horizons", "3", "--seeds", "1"]
    compare += ["--out", str(study), "--no-published", *EPOCHS]
    out = installed("-c", CALLS, json.dumps([["planners", "--json"], train, compare]))
    listed, _ = json.JSONDecoder().raw_decode(out)
    assert listed[-1]["name"] == NAME
    assert listed[-1]["package"] == "cefito-my-planner 0.1.0"
    assert listed[0]["package"] is None
    assert "My planner" in out
    assert " passed" in out.splitlines()[-1]
    info = RunInfo.read(run)
    assert info.package == "cefito-my-planner"
    assert info.versions["cefito-my-planner"] == "0.1.0"
    # here it is not installed
    with pytest.raises(RunError, match=r"of the package cefito-my-planner 0\.1\.0, which"):
        open_run(run)
    capsys.readouterr()
    assert main(["planners", "--json"]) == 0
    assert NAME not in [method["name"] for method in json.loads(capsys.readouterr().out)]
    assert main(["report", str(study), "--out", str(tmp_path / "report.html")]) == 0
    assert "My planner" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My-Planner", "expected lower-case words"),
        ("-x", "expected lower-case words"),
        ("a" * 50, "expected lower-case words"),
        ("nearest", "a method has this name"),
    ],
)
def test_names_that_are_refused(name, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        write_package(name, tmp_path / "package")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "method", "planner"),
    [
        ("student-planner", "student-planner", "StudentPlanner"),
        ("my_planner", "my-planner", "MyPlanner"),
        ("planner", "planner", "Planner"),
        ("student", "student", "StudentPlanner"),
    ],
)
def test_the_class_is_called_planner_once(name, method, planner, tmp_path):
    assert main(["new-planner", name, "--out", str(tmp_path / "new")]) == 0
    (path,) = tmp_path.glob("new/src/*/planner.py")
    code = path.read_text()
    assert re.findall(r"^class (\w*Planner)\(", code, re.MULTILINE) == [planner]
    assert (f'name="{method}"' in code, f"    planner={planner}," in code) == (True, True)
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["written"] = module  # where its dataclasses look for their types
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["written"]
    assert (module.METHOD.name, module.METHOD.planner.__name__) == (method, planner)


def test_folders_are_not_overwritten(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new-planner", NAME]) == 0
    (_, shown) = (ROOT / "docs" / "own-planners.md").read_text().split("\n```\n", 2)[:2]
    assert capsys.readouterr().err.split("next: ")[1].strip().split("; ") == shown.split("\n")[1:]
    assert main(["new-planner", NAME, "--out", str(tmp_path / NAME)]) == 2
    assert "exists already" in capsys.readouterr().err
    project = tomllib.loads((tmp_path / NAME / "pyproject.toml").read_text())["project"]
    assert [*project["optional-dependencies"]] == ["test"]  # of pip install
    text = "".join(path.read_text() for path in (tmp_path / NAME).rglob("*") if path.is_file())
    assert "example" not in text.lower()
    assert "class TestMyPlanner(PlannerContract)" in text
