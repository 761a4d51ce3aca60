"""Files of the orders of tasks."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.errors import CefitoError
from cefito.report.picture import graph_picture
from cefito.verification.order import TaskOrder
from cefito.verification.order_files import graph_text, read_graphs, read_orders, written_orders
from cefito.verification.verifier import Verifier
from odd_names import ODD

NAMES = ["boil", "pour", "wait", "Käse & <b>", "cut"]
TAXONOMY = Taxonomy.from_names("made", [("tea", [0, 1, 2, 3]), ("bread", [4])], NAMES)


def video(actions):
    steps = [Step(10.0 * at, 10.0 * at + 5, action) for at, action in enumerate(actions)]
    return Video("v", "train", 0, tuple(steps))


@pytest.mark.parametrize("edges", [[["boil", "pour"], ["pour", "Käse & <b>"]], [[0, 1], [1, 3]]])
def test_files_of_orders(tmp_path, edges):
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"TEA": {"edges": [["start", 0], *edges, [3, "end"]], "more": 1}}))
    orders = read_orders(path, TAXONOMY)
    assert orders == {0: ((0, 1), (1, 3))}
    path.write_text(graph_text(orders, TAXONOMY, "json"))
    assert read_orders(path, TAXONOMY) == orders
    order = TaskOrder.of([], range(4)).with_edges(orders[0])
    assert "Käse &amp; &lt;b&gt;" in graph_picture({0: order}, TAXONOMY)


def test_an_edge_does_not_pass_behind_boxes():
    """0 → 1 → 2 → 3 and 4 → 3, which has a row of its own below 1 and 2."""
    order = TaskOrder.of([], range(5)).with_edges(((0, 1), (1, 2), (2, 3), (4, 3)))
    picture = graph_picture({0: order}, Taxonomy.from_names("made", [("tea", range(5))], NAMES))
    boxes = re.findall(r"<rect x='([\d.]+)' y='(\d+)' width='([\d.]+)' height='(\d+)'", picture)
    boxes = [[float(number) for number in box] for box in boxes]
    assert len(boxes) == 5
    for curve in re.findall(r"<path d='(M[^']+)' fill='none'", picture):
        numbers = np.array([float(number) for number in re.findall(r"[\d.]+", curve)])
        for x, y in numbers.reshape(-1, 2):
            inside = [
                left < x < left + width and top < y < top + height
                for left, top, width, height in boxes
            ]
            assert not any(inside), curve
    assert picture.count("<path d='M") == 5  # with the arrow's head


def test_steps_of_few_videos_are_optional(tmp_path):
    rows = [[0, 1], [0, 1], [0, 1, 2], [2, 0, 1]]
    orders = {0: TaskOrder.of([video(row) for row in rows], range(4))}
    assert not orders[0].optional  # half of the videos have "wait", none has the last
    orders[0] = TaskOrder.of([video(row) for row in rows[:3]], range(4))
    assert orders[0].optional == (2,)
    edges, optional = {0: orders[0].edges}, {0: orders[0].optional}
    text = graph_text(edges, TAXONOMY, "json", optional)
    assert json.loads(text)["tea"]["optional"] == ["wait"]
    (tmp_path / "order.json").write_text(text)
    written = written_orders(tmp_path / "order.json", TAXONOMY)
    assert [order.optional for order in written] == [(2,), ()]
    verifier = Verifier.fit([video(rows[0])] * 9, TAXONOMY)
    assert [one.kind for one in verifier.verify([Step(0, 5, 0)], 0).deviations] == ["missing"]
    (tmp_path / "order.json").write_text('{"tea": {"edges": [], "optional": [1]}}')
    given = verifier.given(read_graphs(tmp_path / "order.json", TAXONOMY))
    assert given.orders[0].optional == (1,)
    lacking = Verifier.fit([video(row) for row in rows[:3]], TAXONOMY)
    lacking = lacking.given(read_graphs(tmp_path / "order.json", TAXONOMY))
    assert lacking.orders[0].optional == (1, 2)  # a video has "wait", too
    assert not given.verify([Step(0, 5, 0)], 0).deviations
    dot = graph_text(edges, TAXONOMY, "dot", optional)
    assert [line.split()[0] for line in dot.splitlines() if "dashed" in line] == ["t0a2"]
    picture = graph_picture({0: orders[0], 1: written[1]}, TAXONOMY)
    assert re.findall(r"stroke-dasharray='4 3'><title>(\w+)<", picture) == ["wait"]
    assert re.findall(r"bold'>([^<]*)<", picture) == ["tea (dashed: optional)", "bread"]


def test_orders_of_any_names_are_read_back(tmp_path):
    """Numbers that are no ids, the nodes "start" and "end", and names of several actions."""
    names = [*ODD, *ODD[:3], "boil"]
    taxonomy = Taxonomy.from_names("odd", [("3", range(40)), ("tea", range(30, len(names)))], names)
    path = tmp_path / "orders.json"
    orders = {task.id: tuple(pairwise(task.actions)) for task in taxonomy.tasks}
    path.write_text(graph_text(orders, taxonomy, "json"))
    assert read_orders(path, taxonomy) == orders


def test_files_that_are_no_orders(tmp_path):
    for text, match in (
        ("[]", "not orders of tasks. Expected {task id or name"),
        ('{"tea": {"edges": [["boil"]]}}', "'tea'.*edges"),
        ('{"soup": {"edges": []}}', "unknown task 'soup'"),
        ('{"tea": {"edges": [["boil", "cut"]]}}', "'cut' is not one of the task 'tea'"),
        ('{"tea": {"edges": [[0, 1], [1, 0]]}}', "'tea': the order goes in a circle through.*boil"),
    ):
        (tmp_path / "orders.json").write_text(text)
        with pytest.raises(CefitoError, match=match):
            read_orders(tmp_path / "orders.json", TAXONOMY)
