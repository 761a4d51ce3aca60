"""Written instructions as tasks, actions and orders."""

from __future__ import annotations

import json

import pytest

from cefito.cli import main
from cefito.data.readers.procedure import read_procedures
from cefito.errors import DataError
from cefito.inference.constraints import parse_constraints
from cefito.inference.verifiers import open_verifier

TEA = """\ufeff
# Make tea
1. boil water
2. warm the pot (optional)
3. add green tea | add black tea
4. fetch a cup
4. fetch sugar [Optional].
5) pour
"""


@pytest.fixture
def tea(tmp_path):
    text = tmp_path / "tea.txt"
    text.write_text(TEA, encoding="utf-8")
    assert main(["data", "procedure", str(text), str(tmp_path / "tea")]) == 0
    return tmp_path / "tea"


def test_an_instruction_verifies_steps(tea, tmp_path, capsys):
    steps = tmp_path / "steps.csv"
    rows = ("add green tea,0,5", "boil water,6,40", "pour,50,60")
    lines = ["video,task,step,start,end", *(f"a,Make tea,{row}" for row in rows)]
    steps.write_text("\n".join(lines), encoding="utf-8")
    capsys.readouterr()
    assert main(["verify", str(tea), str(steps), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    kinds = {one["name"]: one["kind"] for one in found["deviations"]}
    assert kinds == {"boil water": "order", "fetch a cup": "missing"}
    assert found["repair"] == ["fetch a cup"]


def test_only_ends_of_lines_end_a_step(tmp_path):
    text = tmp_path / "tea.txt"
    text.write_bytes("# Tea\r\n1. boil\u2028water\r2. pour\x0bmilk\n".encode())
    assert read_procedures(text)[0].names == ["boil water", "pour milk"]


def test_its_orders_are_constraints(tea):
    taxonomy = open_verifier(tea)[1].taxonomy
    given = {"before": [str(tea / "order.json")]}
    pairs = parse_constraints(taxonomy, given).resolved(taxonomy).before
    names = [taxonomy.names([*pair]) for pair in pairs]
    assert ["boil water", "pour"] in names  # which follows from others
    assert ["fetch a cup", "fetch sugar"] not in names
    assert ["fetch sugar", "fetch a cup"] not in names


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1. boil", "line 1"),
        ("# tea\nboil", "line 2"),
        ("# tea\n1. boil\n2. boil", "line 3"),
        ("# tea\n1. boil |", "line 2"),
        ("# tea\n1. boil\n# tea\n1. pour", "two tasks have one name"),
        ("# tea\n1.1 boil", "line 2"),
        ("# tea", "without a name or steps"),
        ("", "without a name or steps"),
    ],
)
def test_other_texts_are_refused(tmp_path, text, place):
    path = tmp_path / "tea.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=place):
        read_procedures(path)
