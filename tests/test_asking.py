"""Every command, output and request of docs/asking.md, on the run that the page trains.

In expected output "…" stands for anything in a line, and alone for any lines. Numbers may differ as
training on another processor makes them.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from cefito.cli import main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "asking.md"
INTRODUCTION, *SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def matches(expected, found, same):
    """Whether two sequences are the same, part by part; "…" stands for any parts."""
    if not expected:
        return not found
    first, *rest = expected
    if first == "…":
        return any(matches(rest, found[number:], same) for number in range(len(found) + 1))
    return bool(found) and same(first, found[0]) and matches(rest, found[1:], same)


def same_word(expected, found):
    if NUMBER.sub("0", expected) != NUMBER.sub("0", found):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(found), strict=True)
    return all(close(*(float(one.replace(",", "")) for one in pair)) for pair in pairs)


def close(one, other):
    return abs(one - other) <= 0.1 + 0.1 * max(one, other)


def same_line(expected, found):
    return matches(expected.split(), found.split(), same_word)


def commands(text):
    """Each command of a console block as words, and the lines of its output."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, *output = part.splitlines()
        yield shlex.split(command), output


def run_command(words, output):
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written):
        code = main(words[1:])
    refused = any(line.startswith("error: ") for line in output)
    found = written.getvalue().splitlines()
    assert code == (2 if refused else 0), written.getvalue()
    assert not output or matches(output, found, same_line), written.getvalue()


def run_python(code, names):
    """Run code statement by statement; a comment behind a print is what it prints."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        written = io.StringIO()
        with redirect_stdout(written):
            exec(compile(ast.Module([statement], []), str(PAGE), "exec"), names)
        _, given, comment = lines[statement.end_lineno - 1].partition("  # ")
        if given:
            assert same_line(comment, written.getvalue()), written.getvalue()


def run_blocks(text, names, ask):
    for language, block in BLOCK.findall(text):
        if language == "console":
            for words, output in commands(block):
                run_command(words, output)
        elif language == "python":
            run_python(block, names)
        elif language == "http":  # a session that is told the same as the Python before it
            state, session = converse(block, ask), names["session"]
            assert [step["name"] for step in state["done"]] == [
                step.name for step in session.belief().done
            ]
            likely = {step["name"]: step["probability"] for step in state["next_steps"]}
            assert likely == pytest.approx(dict(session.next_steps(5)), rel=1e-3)
        else:  # a request, which asks the same as the Python before it
            assert language == "json"
            answer, found = ask("POST", "/v1/plan", block), names["found"]
            best = answer["plans"][0]
            assert best["names"] == list(found.best)
            assert best["probability"] == pytest.approx(found.plans[0].probability, rel=1e-3)
            assert answer["warnings"] == found.warnings


def converse(block, ask):
    """Send each request of a block, with the id of the first answer; the last answer."""
    answer, id_ = {}, None
    for line in block.splitlines():
        method, path, *body = line.split(" ", 2)
        answer = ask(method, path.replace("ID", id_ or "ID"), *body)
        id_ = answer["id"]
    return answer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder in which the page is worked through, and the names that its Python defines."""
    folder, names = tmp_path_factory.mktemp("asking"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_blocks(INTRODUCTION, names, None)
    return folder, names


@pytest.fixture(scope="module")
def client(place):
    """A client of the service that the page starts."""
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from cefito.serve.app import create_app
    from cefito.serve.settings import ServiceSettings

    folder, _ = place
    settings = ServiceSettings(runs=(folder / "RUN",), datasets=(folder / "DATA",))
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize("section", SECTIONS, ids=lambda text: text.splitlines()[0])
def test_a_section(section, place, request, monkeypatch):
    folder, names = place

    def ask(method, path, body=None):
        client = request.getfixturevalue("client")
        headers = {"content-type": "application/json"}
        reply = client.request(method, path, content=body, headers=headers)
        assert reply.is_success, reply.text
        return reply.json()

    monkeypatch.chdir(folder)
    run_blocks(section, names, ask)
