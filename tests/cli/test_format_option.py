"""What `cefito plan-batch` prints in every format."""

import json

import pytest

from cefito.batch.batch import plan_batch
from cefito.inference.plan_formats import FORMATS
from cefito.inference.query import query_from_video
from cefito.runs.run import open_run

VIDEO = "world-0036"


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_printed_is_the_file_of_the_format(name, run_of_lengths, tmp_path, capfdbinary):
    from cefito.cli import main

    lines = []
    for video in (VIDEO, "world-0037"):
        query, _ = query_from_video(run_of_lengths, video)
        lines.append({"initial": query.initial[0].tolist(), "goal": query.goal[0].tolist()})
    table = tmp_path / "queries.jsonl"
    table.write_text("".join(f"\n{json.dumps(line)}\n" for line in lines))
    batch = plan_batch(
        open_run(run_of_lengths.folder), table, tmp_path / f"p{FORMATS[name].ending}"
    )
    asked = ["plan-batch", str(run_of_lengths.folder), str(table)]
    assert main([*asked, "--format", name]) == 0
    written = batch.plans.read_bytes()
    assert capfdbinary.readouterr().out == written
    if name in ("md", "jsonl"):  # the defaults
        assert main([*asked, *["--json"] * (name == "jsonl")]) == 0
        assert capfdbinary.readouterr().out == written


def test_formats_that_are_refused(refused, run_of_lengths, monkeypatch):
    asked = ("plan-batch", run_of_lengths.folder, "q.csv", "--format")
    assert "unknown. Choose one of jsonl" in refused(*asked, "xml")
    assert "Leave one out" in refused(*asked, "csv", "--json")
    assert "Leave one out" in refused(*asked, "csv", "--out", "plans.csv")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "is not text" in refused(*asked, "parquet")
