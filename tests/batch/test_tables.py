"""Tables of queries, read row by row."""

import csv
import io
import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.batch.shards import ShardRows
from cefito.batch.sources import open_table
from cefito.errors import ConfigError, DataError
from refusals import refusal

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def parsed(path):
    """All rows of a table, with their JSON parsed."""
    source = open_table(path)
    rows = [row.parsed() for row in source.rows()]
    assert source.count == len(rows)
    return rows


def values(rows):
    assert all(not row.problem for row in rows), rows
    return [row.value for row in rows]


@given(
    lines=st.lists(
        st.one_of(
            st.dictionaries(TEXT, TEXT, max_size=2).map(json.dumps),
            st.dictionaries(TEXT, TEXT, max_size=2).map(partial(json.dumps, ensure_ascii=False)),
            st.sampled_from(["", "  ", "\r"]),
        ),
        max_size=50,
    ),
    bom=st.booleans(),
)
def test_rows_of_json_lines(lines, bom, tmp_path_factory):
    path = tmp_path_factory.mktemp("jsonl") / "q.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" * bom + "\n".join(lines).encode())
    rows = parsed(path)
    wanted = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    assert values(rows) == [json.loads(line) for _, line in wanted]
    assert [row.number for row in rows] == [number for number, _ in wanted]
    assert [row.place for row in rows] == [f"{path}, line {number}" for number, _ in wanted]


@given(cells=st.lists(st.tuples(TEXT, TEXT), max_size=50))
def test_rows_of_csv(cells, tmp_path_factory):
    """Cells may hold commas, quotes and ends of lines."""
    path = tmp_path_factory.mktemp("csv") / "q.csv"
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("id", "features"), *cells])
    path.write_bytes(text.getvalue().encode())
    wanted = [
        {name: cell for name, cell in zip(("id", "features"), row, strict=True) if cell.strip()}
        for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
    ][1:]
    assert values(parsed(path)) == wanted


def test_damaged_lines_do_not_affect_others(tmp_path):
    path = tmp_path / "q.jsonl"
    good = [b'{"id": "%d"}' % number for number in range(5)]
    bad = [b"{", b"\xff\xfe", b"[" * 5000]
    path.write_bytes(b"\n".join([*good[:3], *bad, *good[3:], b'{"id": "\xe9"}']))
    rows = parsed(path)
    problems = {row.number: row.problem for row in rows if row.problem}
    assert set(problems) == {4, 5, 6, 9}
    assert problems[4].startswith("not valid JSON")
    assert problems[5] == problems[9] == "is not UTF-8. Save the table as UTF-8."
    assert [row.value["id"] for row in rows if not row.problem] == [str(n) for n in range(5)]


def test_damaged_rows_of_csv_do_not_affect_others(tmp_path):
    path = tmp_path / "q.csv"
    lines = [b"id,features", *(b"a%d,b" % number for number in range(10))]
    lines[5:5] = [b"one", b"1,2,3", b'"x"y,2', b"\xff,2"]
    path.write_bytes(b"\n".join([*lines, b'never,"ends']))
    rows = parsed(path)
    problems = [row.problem for row in rows if row.problem]
    assert problems[:2] == [
        f"has {cells} cells, the header 2. Correct the line." for cells in (1, 3)
    ]
    assert problems[2].startswith("not readable as CSV ('")
    assert problems[3:-1] == ["is not UTF-8. Save the table as UTF-8."]
    assert problems[-1].startswith("not readable as CSV (unexpected end of data)")
    assert len(rows) == 15


@pytest.fixture
def parquet(tmp_path):
    """A function that writes columns into Parquet."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as module

    def write(columns, name="q.parquet", **how):
        module.write_table(pyarrow.table(columns), tmp_path / name, **how)
        return tmp_path / name

    return write


@pytest.mark.parametrize("group", [7, 100, 1000])
def test_rows_of_parquet(parquet, group):
    pyarrow = pytest.importorskip("pyarrow")
    generator = np.random.default_rng(0)
    arrays = generator.standard_normal((200, 3)).astype(np.float32)
    path = parquet(
        {
            "id": list(range(200)),
            "initial": list(arrays),
            "goal": pyarrow.FixedSizeListArray.from_arrays(arrays.ravel(), 3),
            "task": pyarrow.array([None if number % 3 else float(number) for number in range(200)]),
        },
        row_group_size=group,
    )
    rows = parsed(path)
    assert [row.value["id"] for row in rows] == list(range(200))
    assert [row.value["task"] for row in rows[:4]] == [0, None, None, 3]
    for row, array in zip(rows, arrays, strict=True):
        assert row.value["initial"] == row.value["goal"] == array.tolist()
    shards = ShardRows(open_table(path), 64, [1, 3])
    numbers = [(shard, [row.number for row in some]) for shard, some in shards]
    assert numbers == [(1, list(range(65, 129))), (3, list(range(193, 201)))]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.txt", b"", "expected .jsonl, .csv or .parquet."),
        ("q.csv", b"id,video\n", "column 'video': no such column. Columns are task,"),
        ("q.csv", b"id,id\n", "column 'id' occurs twice"),
        ("q.csv", b'"id\n', "cannot be read"),
        ("q.parquet", b"", "cannot be read ("),
        ("q.parquet", b"PAR1" + bytes(100) + b"PAR1", "cannot be read ("),
    ],
)
def test_invalid_tables(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    found = refusal((ConfigError, DataError), open_table, path)
    assert found.startswith(f"{path}: ")
    assert message in found


def test_columns_of_parquet(parquet):
    with pytest.raises(DataError, match="column 'video': no such column"):
        open_table(parquet({"video": ["a"]}))
    with pytest.raises(DataError, match="no such file"):
        open_table(parquet({"id": ["a"]}).with_name("gone.parquet"))
    path = parquet({"id": ["a"], "__index_level_0__": [0]})  # as pandas writes it
    assert values(parsed(path)) == [{"id": "a"}]


def test_memory_of_parquet_is_bounded(parquet):
    pyarrow = pytest.importorskip("pyarrow")
    numbers = np.random.default_rng(0).standard_normal((80 * 64, 256)).astype(np.float32)
    path = parquet({"initial": list(numbers)}, row_group_size=2 * 64)
    held = [pyarrow.total_allocated_bytes() for _ in open_table(path).rows()]
    assert len(held) == len(numbers)
    assert max(held) < numbers.nbytes / 2
