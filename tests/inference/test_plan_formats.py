"""Formats of plans: every one holds the same rows."""

import csv
import html
import io
import json
import re

import pytest

from cefito.errors import ConfigError
from cefito.inference import plan_formats
from cefito.inference.answer import answer
from cefito.inference.plan_formats import FORMATS, PlanRow, find_format, format_of, json_line
from cefito.inference.query import query_from_video

ODD = 'pour "it", <b>now</b> | é'


@pytest.fixture(scope="module")
def rows(run_of_lengths):
    """Rows of two queries; one has a name with signs that formats must escape, one has no task."""
    found = []
    for line, video in enumerate(("world-0036", "world-0037"), 1):
        query, _ = query_from_video(run_of_lengths, video)
        found += PlanRow.of(answer(run_of_lengths, query, top_k=3), video, line)
    first, *rest, last = found
    first = first.model_copy(update={"names": [ODD, *first.names[1:]], "sure": True})
    bare = {"task": None, "task_id": None, "probability": None}
    return [first, *rest, last.model_copy(update=bare)]


@pytest.fixture(params=FORMATS)
def written(request, rows):
    """The name of a format, and the rows in it."""
    file = io.BytesIO()
    FORMATS[request.param].write(map(json_line, rows), file)
    return request.param, file.getvalue()


def rows_of_jsonl(data):
    return [json.loads(line) for line in data.decode().splitlines()]


def rows_of_csv(data):
    def value(cell, name):
        if name in ("query", "task"):
            return cell or None
        return json.loads(cell) if cell else None

    text = io.StringIO(data.decode(), newline="")
    return [{name: value(cell, name) for name, cell in row.items()} for row in csv.DictReader(text)]


def rows_of_parquet(data):
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(io.BytesIO(data)).to_pylist()


def shown(row):
    """What formats for people have of a row."""
    return {"query": row["query"], "task": row["task"], "names": row["names"], "rank": row["rank"]}


def rows_of_md(data):
    heads, rule, *lines = data.decode().splitlines()
    assert heads == "| query | rank | task | probability | score (lower is better) | plan |"
    assert set(rule) <= set("|- ")
    cells = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in lines]
    plain = [[html.unescape(cell.replace("\\", "")) for cell in row] for row in cells]
    return [
        {"query": query, "task": task or None, "names": plan.split(" → "), "rank": int(rank)}
        for query, rank, task, _, _, plan in plain
    ]


READERS = {"jsonl": rows_of_jsonl, "csv": rows_of_csv, "md": rows_of_md, "parquet": rows_of_parquet}


def test_every_format_holds_the_rows(written, rows):
    name, data = written
    values = [row.model_dump(mode="json") for row in rows]
    expected = list(map(shown, values)) if name == "md" else values
    assert READERS[name](data) == expected
    FORMATS["csv"].write(
        [json_line(rows[0].model_copy(update={"query": "=1+1"}))], odd := io.BytesIO()
    )
    assert b"\n'=1+1," in odd.getvalue()


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows(name):
    file = io.BytesIO()
    FORMATS[name].write(iter(()), file)
    assert READERS[name](file.getvalue()) == []


def test_endings_are_of_one_format_each(tmp_path):
    for name, chosen in FORMATS.items():
        assert format_of(tmp_path / f"plans{chosen.ending}", "out") == chosen == find_format(name)


def test_formats_that_cannot_be_written(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(plan_formats, "import_module", absent)
    with pytest.raises(ConfigError, match=r"format 'xml': .* jsonl, csv"):
        find_format("xml")
    with pytest.raises(ConfigError, match=r"parquet: pyarrow .* install .*\[table"):
        find_format("parquet")
    with pytest.raises(ConfigError, match=r"\.parquet: pyarrow is not installed"):
        format_of(tmp_path / "plans.parquet", "out")
