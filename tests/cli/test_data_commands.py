import json
import re
import sys

import pytest

from cefito.cli import COMMANDS, console, main
from cefito.data import open_dataset
from consoles import Terminal


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        ([], COMMANDS),
        (["data"], ("prepare", "info", "simulate", "world")),
        *(([name], ()) for name in sorted(COMMANDS)),
    ],
)
def test_help(argv, names, capsys):
    assert main([*argv, "--help"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"\b{name}\b", out) for name in (*names, *argv))


def test_version(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize("argv", ["nonsense", "data inf", "data info", "data prepare custom a"])
def test_wrong_calls_exit_2_with_one_line(argv, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(*argv.split())


def test_prepare_and_info(make_source, tmp_path, ran, refused):
    target = tmp_path / "out"
    said = ran("data", "prepare", "custom", make_source(), target, "--name", "My kitchen")
    dataset = open_dataset(target)
    wrote = f"wrote {target}: My kitchen, fingerprint {dataset.fingerprint[:12]}\n"
    assert said == ("", wrote)

    out, err = ran("data", "info", target)
    assert err == ""
    lines = out.splitlines()
    assert "name              My kitchen" in lines
    assert "kind              prepared data set" in lines
    heads, *rows = lines[lines.index("Windows") + 1 :][:7]
    assert [int(row.split()[0]) for row in rows] == [1, 2, 3, 4, 5, 6]
    parts = (re.split(r"\s\s+", line.strip()) for line in (heads, rows[2]))
    found = dict(zip(*parts, strict=True))
    assert (found["horizon"], found["train"], found["test"]) == ("3", "12", "6")
    assert int(found["train after hold-out"]) + int(found["val held out"]) == 12
    value = json.loads(ran("data", "info", target, "--json").out)
    assert value["fingerprint"] == dataset.fingerprint
    assert value["windows"]["3"] == {"train": 12, "test": 6}
    some = ran("data", "info", target, "--json", "--steps", "2-3").out
    assert list(json.loads(some)["windows"]) == ["2", "3"]
    line = refused("data", "info", target, "--steps", "3-2")
    assert "expected a number of steps, or a range, as in 3 or 1-6. (--steps)" in line


def test_interrupt_exits_130_with_one_line(tiny_dataset, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cefito.data.info.describe", interrupted)
    assert main(["data", "info", str(tiny_dataset.folder)]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_plain_table(capsys):
    rows = [("a long name", 1234567, 0.12345), ("[b]x[/b]", None, True)]
    console.table("Title", ("name", "number", "share"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "Title",
        "name            number   share",
        "a long name  1,234,567  0.1235",
        "[b]x[/b]                   yes",
    ]
    console.table("", ("name",), [])
    assert capsys.readouterr().out == "name\n"
    with pytest.raises(ValueError, match="shorter"):
        console.table("x", ("a", "b"), [("only one",)])


def test_framed_table_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    console.table("Title", ("name", "number"), [("[b]x[/b]", 12)])
    out = sys.stdout.getvalue()
    assert "┃" in out
    assert "[b]x[/b]" in out  # names are never read as markup
    assert "12" in out
