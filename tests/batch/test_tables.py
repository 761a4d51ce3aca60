"""Tables of queries: what pieces of them hold, against reading all at once."""

import csv
import io
import json
import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.batch.parquet import ParquetTable
from cefito.batch.rows import PIECE
from cefito.batch.sources import open_table
from cefito.errors import ConfigError, DataError

TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)


def pieces(source):
    """All rows, piece by piece, of a copy that has travelled."""
    source = pickle.loads(pickle.dumps(source))
    firsts = range(0, len(source), PIECE)
    return list(chain.from_iterable(source.rows(first, PIECE) for first in firsts))


def values(rows):
    assert all(not row.problem for row in rows), rows
    return [row.value for row in rows]


@settings(max_examples=25, deadline=None)
@given(
    lines=st.lists(
        st.one_of(
            st.dictionaries(TEXT, TEXT, max_size=2).map(lambda value: json.dumps(value)),
            st.dictionaries(TEXT, TEXT, max_size=2).map(
                lambda value: json.dumps(value, ensure_ascii=False)
            ),
            st.sampled_from(["", "  ", "\r"]),
        ),
        max_size=3 * PIECE,
    ),
    bom=st.booleans(),
)
def test_pieces_of_json_lines_are_all_lines(lines, bom, tmp_path_factory):
    path = tmp_path_factory.mktemp("jsonl") / "q.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" * bom + "\n".join(lines).encode())
    rows = pieces(open_table(path))
    wanted = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    assert values(rows) == [json.loads(line) for _, line in wanted]
    assert [row.number for row in rows] == [number for number, _ in wanted]
    assert [row.place for row in rows] == [f"{path}, line {number}" for number, _ in wanted]


@settings(max_examples=25, deadline=None)
@given(cells=st.lists(st.tuples(TEXT, TEXT), max_size=2 * PIECE))
def test_pieces_of_csv_are_all_rows(cells, tmp_path_factory):
    """Cells may hold commas, quotes and ends of lines."""
    path = tmp_path_factory.mktemp("csv") / "q.csv"
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("id", "features"), *cells])
    path.write_bytes(text.getvalue().encode())
    wanted = [
        {name: cell for name, cell in zip(("id", "features"), row, strict=True) if cell.strip()}
        for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
    ][1:]
    assert values(pieces(open_table(path))) == wanted


def test_damaged_lines_hold_up_no_other(tmp_path):
    path = tmp_path / "q.jsonl"
    good = [b'{"id": "%d"}' % number for number in range(130)]
    path.write_bytes(
        b"\n".join([*good[:70], b"{", b"\xff\xfe", b"[" * 5000, *good[70:], b'{"id": "\xe9"}'])
    )
    rows = pieces(open_table(path))
    problems = {row.number: row.problem for row in rows if row.problem}
    assert set(problems) == {71, 72, 73, 134}
    assert problems[71].startswith("not valid JSON")
    assert problems[72] == problems[134] == "is not UTF-8. Save the list as UTF-8."
    assert [row.value["id"] for row in rows if not row.problem] == [str(n) for n in range(130)]


def test_damaged_rows_of_csv_hold_up_no_other(tmp_path):
    path = tmp_path / "q.csv"
    lines = [b"id,features", *(b"a%d,b" % number for number in range(100))]
    lines[50:50] = [b"one", b"1,2,3", b'"x"y,2', b"\xff,2"]
    path.write_bytes(b"\n".join([*lines, b'never,"ends']))
    rows = pieces(open_table(path))
    problems = [row.problem for row in rows if row.problem]
    assert problems[:2] == ["has not as many cells as the head. Mend the line."] * 2
    assert problems[2].startswith("not readable as CSV ('")
    assert problems[3:-1] == ["is not UTF-8. Save the list as UTF-8."]
    assert problems[-1].startswith("not readable as CSV (unexpected end of data)")
    assert len(rows) == 105


def test_lines_that_are_too_long_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr("cefito.batch.text_tables._LONGEST", 50)
    for name, head in (("q.jsonl", ""), ("q.csv", "id,task\n")):
        path = tmp_path / name
        short, long = ('{"id": "a"}', '{"id": "%s"}') if not head else ("a,b", "%s,b")
        longs = [long % ("x" * count) for count in (60, 49, 100, 200)]
        path.write_text(head + "\n".join([short, *longs, short, longs[-1]]))
        rows = pieces(open_table(path))
        assert [bool(row.problem) for row in rows] == [False, *[True] * 4, False, True]
        assert rows[1].problem == "is longer than 0 MiB"
        first = 1 + bool(head)
        assert [row.number for row in rows] == list(range(first, first + 7))


@pytest.fixture
def parquet(tmp_path):
    """A function that writes columns into Parquet."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as module

    def write(columns, name="q.parquet", **how):
        module.write_table(pyarrow.table(columns), tmp_path / name, **how)
        return tmp_path / name

    return write


@pytest.mark.parametrize("group", [7, PIECE, 100, 1000])
def test_pieces_of_parquet_are_all_rows(parquet, group):
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
    table = open_table(path)
    assert len(table) == 200
    rows = pieces(table)
    assert [row.value["id"] for row in rows] == list(range(200))
    assert [row.value["task"] for row in rows[:4]] == [0, None, None, 3]
    for row, array in zip(rows, arrays, strict=True):
        assert row.value["initial"].tolist() == row.value["goal"].tolist() == array.tolist()
    again = list(table.rows(PIECE, PIECE))  # back and forth
    assert [row.number for row in again] == list(range(PIECE + 1, 2 * PIECE + 1))
    assert [row.number for row in table.rows(0, PIECE)] == list(range(1, PIECE + 1))
    assert [row.number for row in table.rows(3 * PIECE, PIECE)] == list(range(193, 201))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.txt", b"", "expected a list of queries that ends in .jsonl, .csv or .parquet."),
        ("q.csv", b"id,video\n", "column 'video': no such column. There are id, features, start"),
        ("q.csv", b"id,id\n", "column 'id' occurs twice"),
        ("q.csv", b'"id\n', "its head is not readable as CSV"),
        ("q.parquet", b"", "cannot be read as Parquet ("),
        ("q.parquet", b"PAR1" + bytes(100) + b"PAR1", "cannot be read as Parquet ("),
    ],
)
def test_tables_that_are_none(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((ConfigError, DataError)) as caught:
        open_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_of_parquet(parquet):
    with pytest.raises(DataError, match="column 'video': no such column"):
        open_table(parquet({"video": ["a"]}))
    with pytest.raises(DataError, match="no such file"):
        open_table(parquet({"id": ["a"]}).with_name("gone.parquet"))
    path = parquet({"id": ["a"], "__index_level_0__": [0]})  # as pandas writes it
    assert [row.value for row in pieces(open_table(path))] == [{"id": "a"}]


def test_parquet_without_its_library(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install cefito\[table\], or use \.jsonl"):
        ParquetTable.open(tmp_path / "q.parquet")


@pytest.mark.parametrize("name", ["q.jsonl", "q.csv", "q.parquet"])
def test_a_table_that_changes_while_it_is_read(name, tmp_path, parquet):
    if name == "q.parquet":
        parquet({"id": ["a"] * 100})
    else:
        head = "id,features\n" if name == "q.csv" else ""
        (tmp_path / name).write_text(head + ("1,2\n" if head else "{}\n") * 100)
    path = tmp_path / name
    table = open_table(path)
    assert len(list(table.rows(0, PIECE))) == PIECE
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(DataError, match="has changed while it was read"):
        list(table.rows(PIECE, PIECE))


def test_what_was_read_of_parquet_is_let_go(parquet):
    pyarrow = pytest.importorskip("pyarrow")
    numbers = np.random.default_rng(0).standard_normal((20 * PIECE, 256)).astype(np.float32)
    path = parquet({"initial": list(numbers)}, row_group_size=2 * PIECE)
    table, held = open_table(path), []
    for first in range(0, len(table), PIECE):
        assert len(list(table.rows(first, PIECE))) == PIECE
        held.append(pyarrow.total_allocated_bytes())
    assert max(held) < numbers.nbytes / 2
