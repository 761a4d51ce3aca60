"""`cefito plan-batch`: what it prints and how it ends."""

import json

import pytest

from batch.conftest import own  # noqa: F401
from cefito.cli import main
from cefito.errors import RunError

FOLDER = "features"


@pytest.fixture
def plan(own, tmp_path, monkeypatch, capsys):  # noqa: F811
    """A function that plans a source of `own` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(source, *options, out="plans.jsonl"):
        capsys.readouterr()
        target = [] if out is None else ["--out", out]
        code = main(["plan-batch", str(own / "run"), str(own / source), *target, *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_data_set_and_again(plan, tmp_path):
    code, out, err = plan("data", "--top-k", "2")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == "wrote plans.jsonl: 8 plans of 4 queries"
    record = json.loads((tmp_path / "plans.jsonl.batch.json").read_text())
    assert record["depends_on"]["threads"] == 1  # unless --threads says others
    rows = [json.loads(line) for line in (tmp_path / "plans.jsonl").read_text().splitlines()]
    assert [(row["query"], row["rank"]) for row in rows] == [
        (name, rank) for name in ("v3:0", "v3:1", "v7:0", "v7:1") for rank in (1, 2)
    ]
    code, out, err = plan("data", "--top-k", "2", "--json")
    counts = {"queries": 4, "plans": 8, "bad": 0, "queries_before": 4}
    assert json.loads(out) == {**counts, "files": {"plans": "plans.jsonl", "bad": None}}
    assert err.splitlines()[0] == "4 of 4 queries were done before"
    code, out, err = plan("data")
    assert code == 2
    assert (
        "is of a batch with settings.top_k 2, not 5. To plan anew remove it and plans.jsonl, or"
        in err
    )
    for path in tmp_path.iterdir():  # these two
        path.unlink()
    assert plan("data")[0] == 0


def test_some_and_all_that_cannot_be_planned(plan, own, tmp_path):  # noqa: F811
    head, bad = "features,start,end\n", f"{FOLDER}/v0.npy,1,99\n"
    (own / "some.csv").write_text(f"{head}{FOLDER}/v0.npy,1,9\n{bad}")
    (own / "none.csv").write_text(head + bad)
    code, _, err = plan("some.csv", "--quiet")
    assert code == 0
    assert err == "1 of 2 queries could not be planned; plans.jsonl.bad.jsonl says why\n"
    (bad,) = map(json.loads, (tmp_path / "plans.jsonl.bad.jsonl").read_text().splitlines())
    assert "second 99 is outside of" in bad["reason"]
    code, out, err = plan("some.csv", out=None)
    assert (code, out.count("\n")) == (0, 4)  # a table in Markdown
    assert err.startswith("failed: ")
    assert "some.csv, line 3: second 99 is outside of" in err
    assert '"rank":1,' in plan("some.csv", "--format", "jsonl", out=None)[1]
    code, _, err = plan("none.csv", out="none.jsonl")
    assert code == 1
    assert "1 of 1 queries could not be planned" in err
    assert (tmp_path / "none.jsonl").read_text() == ""
    assert plan("none.csv", out=None)[0] == 1


def test_a_shard_that_cannot_be_written(plan, monkeypatch):
    def full(path, data):
        raise RunError(f"{path}: could not be written (No space left on device).")

    monkeypatch.setattr("cefito.batch.shards.write_bytes", full)
    code, _, err = plan("data", "--quiet")
    assert code == 1
    failed, error = err.splitlines()
    assert failed.startswith("failed: queries 1 to 4: plans.jsonl.parts/00000000.shard: could not")
    assert error == "error: no plans were written. Repeat the command."


def test_a_binary_table_on_a_terminal_is_refused(refused, run_of_lengths, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    asked = ("plan-batch", run_of_lengths.folder, "q.csv", "--format", "parquet")
    assert "is not text" in refused(*asked)
