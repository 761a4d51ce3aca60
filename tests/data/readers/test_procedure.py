"""Written instructions as tasks, actions and orders."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.annotations import Step
from cefito.data.readers.procedure import read_procedures
from cefito.errors import DataError
from cefito.inference.constraints import parse_constraints
from cefito.inference.verification import open_verifier
from cefito.verification.order import reached

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
    rows = ("add green tea,0,5", "boil water,6,40", "pour,50,60", "juggle,70,80")
    lines = ["video,task,step,start,end", *(f"a,Make tea,{row}" for row in rows)]
    steps.write_text("\n".join(lines), encoding="utf-8")
    capsys.readouterr()
    assert main(["verify", str(tea), str(steps), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    kinds = {one["name"]: one["kind"] for one in found["deviations"]}
    assert kinds == {"boil water": "order", "fetch a cup": "missing", "juggle": "unknown"}
    assert found["repair"] == ["fetch a cup"]


def test_orders_of_the_text_and_lengths_of_right_videos(tmp_path, capsys):
    (tmp_path / "tea.txt").write_text("# tea\n1. pour\n2. boil\n")
    assert main(["data", "procedure", str(tmp_path / "tea.txt"), str(tmp_path / "tea")]) == 0
    lines = [f"{video},tea,boil,0,5\n{video},tea,pour,10,15\n" for video in "abcd"]
    head, new = "video,task,step,start,end\n", "x,tea,pour,0,90\nx,tea,boil,100,105\n"
    for name, text in (("RIGHT", "".join(lines)), ("NEW", new)):
        (tmp_path / f"{name}.csv").write_text(head + text)
    call = ["verify", *(str(tmp_path / f"{name}.csv") for name in ("RIGHT", "NEW")), "--json"]
    for order, kind in (([], "order"), (["--order", str(tmp_path / "tea/order.json")], "long")):
        capsys.readouterr()
        assert main([*call, *order]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert {one["kind"] for one in found["deviations"]} == {kind}
    (tmp_path / "NEW.csv").write_text(new.join((head, "x,tea,boil,110,115\n")))
    for learned, kinds in ((call[1], {"long", "repeated"}), (str(tmp_path / "tea"), set())):
        assert main(["verify", learned, *call[2:], *(order if kinds else [])]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert {one["kind"] for one in found["deviations"]} == kinds


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


def test_a_step_comes_after_the_numbers_that_it_names(tmp_path):
    text = tmp_path / "tea.txt"
    lines = ["# Tea", "1. boil", "2. cut lemon (at any time)", "3. pour", "4. sweeten (optional)"]
    lines += ["5. wash up (after 1 and 2)", "5. dry up (after 1, 2)", "6. drink"]
    text.write_text("\n".join(lines))
    (procedure,) = read_procedures(text)
    orders = reached_names(procedure)
    assert {a for a, b in orders if b == "cut lemon"} == set()
    assert {a for a, b in orders if b == "pour"} == {"boil", "cut lemon"}
    for name in ("wash up", "dry up"):
        assert {a for a, b in orders if b == name} == {"boil", "cut lemon"}
    assert {a for a, b in orders if b == "drink"} == {*procedure.names} - {"drink"}
    assert procedure.optional == ["sweeten"]


def reached_names(procedure):
    ids = {name: number for number, name in enumerate(procedure.names)}
    orders = reached((ids[a], ids[b]) for a, b in procedure.edges())
    return {(procedure.names[a], procedure.names[b]) for a, b in orders}


def random_procedure(generator):
    """A text of numbered steps, some of which may be left out, chosen or done early."""
    lines, count = ["# Work"], 0
    for number in range(1, int(generator.integers(3, 10))):
        for _ in range(generator.integers(1, 4)):
            names = [f"step {count + at}" for at in range(generator.choice([1, 1, 1, 2, 3]))]
            count += len(names)
            line = f"{number}. {' | '.join(names)}"
            line += " (optional)" * bool(generator.random() < 0.2)
            if generator.random() < 0.2:
                above = generator.permutation(number - 1)[:2] + 1
                line += f" (after {', '.join(map(str, above))})" if len(above) else " (at any time)"
            lines.append(line)
    return "\n".join(lines)


def random_order(procedure, generator):
    """Names in an order that the text allows: one of alternatives, some optional steps left out."""
    chosen = {
        place: str(generator.choice(step.names))
        for place, step in enumerate(procedure.steps)
        if not step.optional or generator.random() < 0.5
    }
    orders, done, names = reached_names(procedure), set(), []
    while left := [place for place in chosen if place not in done]:
        free = [p for p in left if not any((chosen[q], chosen[p]) in orders for q in left)]
        done.add(place := int(generator.choice(free)))
        names.append(chosen[place])
    return names


@pytest.mark.parametrize("seed", range(12))
def test_no_order_that_the_text_allows_is_wrong(tmp_path, seed):
    generator, text = np.random.default_rng(seed), tmp_path / "work.txt"
    text.write_text(random_procedure(generator))
    assert main(["data", "procedure", str(text), str(tmp_path / "work")]) == 0
    verifier, (procedure,) = open_verifier(tmp_path / "work")[1], read_procedures(text)
    ids, lengths = {a.name: a.id for a in verifier.taxonomy.actions}, generator.gamma(1, 30, 99)
    for _ in range(12):
        names = random_order(procedure, generator)
        ends = lengths[: len(names)].cumsum()
        steps = [
            Step(end - length, end, ids[name])
            for name, end, length in zip(names, ends, lengths, strict=False)
        ]
        for online in (False, True):
            assert verifier.verify(steps, 0, online=online).deviations == ()
        kinds = {one.kind for one in verifier.verify(steps, 0, least=0).deviations}
        assert kinds <= {"missing"}  # an alternative, or what is optional
        orders = [
            (names.index(a), names.index(b))
            for a, b in reached_names(procedure)
            if {a, b} <= {*names}
        ]
        if orders:
            early, late = orders[0]
            steps[early], steps[late] = (
                replace(steps[a], action=steps[b].action) for a, b in ((early, late), (late, early))
            )
            assert "order" in {one.kind for one in verifier.verify(steps, 0).deviations}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1. boil", "line 1"),
        ("# tea\nboil", "line 2"),
        ("# tea\n1. boil\n2. boil", "line 3"),
        ("# tea\n1. boil |", "line 2"),
        ("# tea\n1. boil\n# tea\n1. pour", "two tasks have one name"),
        ("# tea\n1.1 boil", "line 2"),
        ("# tea\n1. boil\n2. pour (after 3)\n3. drink", "line 3: comes after 3"),
        ("# tea\n1. boil (after 1)", "line 2: comes after 1"),
        ("# tea", "without a name or steps"),
        ("", "without a name or steps"),
    ],
)
def test_other_texts_are_refused(tmp_path, text, place):
    path = tmp_path / "tea.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=place):
        read_procedures(path)
