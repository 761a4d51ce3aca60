"""The Dockerfile, as far as it can be checked without an engine to build it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path

import pytest

dockerfile_parse = pytest.importorskip("dockerfile_parse")

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def steps():
    """Instructions and their values, of each stage."""
    parser = dockerfile_parse.DockerfileParser(fileobj=BytesIO(TEXT.encode()))
    stages = []
    for step in parser.structure:
        if step["instruction"] == "COMMENT":
            continue
        if step["instruction"] == "FROM":
            stages.append([])
        stages[-1].append((step["instruction"], step["value"]))
    return stages


def values(stage, instruction):
    return [value for name, value in stage if name == instruction]


def test_it_can_be_parsed(steps):
    assert len(steps) == 2
    for stage in steps:
        assert stage[0][0] == "FROM"
    for name in ("ENTRYPOINT", "CMD"):
        (value,) = values(steps[1], name)
        assert all(isinstance(part, str) for part in json.loads(value))
    (check,) = values(steps[1], "HEALTHCHECK")
    options, _, command = check.partition(" CMD ")
    assert re.fullmatch(r"(--(interval|timeout|start-period|retries)=\w+ *)+", options)
    compile(json.loads(command)[2], "healthcheck", "exec")


def test_its_shell_can_be_parsed(steps):
    for stage in steps:
        for value in values(stage, "RUN"):
            subprocess.run(["sh", "-n", "-c", value], check=True)
            assert shlex.split(value)


def test_what_it_copies_is_there_and_reaches_the_builder(steps):
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    copies = [value for stage in steps for value in values(stage, "COPY")]
    sources = [part for value in copies if "--from=" not in value for part in value.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), f"{source} is copied, but not there"
        assert any(fnmatch(source, pattern) for pattern in kept), f"{source} is ignored"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {project["readme"], *project["license-files"]} <= set(sources)


def test_stages_are_named_before_they_are_used(steps):
    names = [value.split(" AS ")[1] for value in values(steps[0], "FROM")]
    used = re.findall(r"--from=(\S+)", " ".join(values(steps[1], "COPY")))
    assert used
    assert set(used) <= set(names)


def test_it_runs_as_a_user_without_rights(steps):
    order = [name for name, _ in steps[1]]
    (user,) = values(steps[1], "USER")
    assert int(user) > 0
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert max(index for index, name in enumerate(order) if name == "RUN") < order.index("USER")


def test_what_it_starts_is_a_command(steps, capsys):
    from cefito.cli import main

    (entry,) = values(steps[1], "ENTRYPOINT")
    (extra,) = values(steps[1], "CMD")
    command = [*json.loads(entry), *json.loads(extra)]
    assert command[0] == "cefito"
    assert main(command[1:]) == 0
    assert "--token-file" in capsys.readouterr().out
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "serve" in extras["optional-dependencies"]
    assert "'.[serve]'" in TEXT
