"""The order of a task's steps, on videos made by hand."""

import json

import numpy as np
import pytest

from cefito.data.annotations import Step, Taxonomy, Video
from cefito.errors import CefitoError, DataError
from cefito.timeline.order import TaskOrder, graph_text, reached, read_orders
from cefito.timeline.picture import graph_picture

NAMES = ["boil", "pour", "wait", "Käse & <b>", "cut"]
TAXONOMY = Taxonomy.from_names("made", [("tea", [0, 1, 2, 3]), ("a much longer task", [4])], NAMES)


def video(actions, number=0, task=0):
    steps = [Step(10.0 * at, 10.0 * at + 5, action) for at, action in enumerate(actions)]
    return Video(f"v{number}", "train", task, tuple(steps))


# 0 → {1, 3} → 2 but for one video in four that has 1 and 3 the other way; 2 is left out once
VIDEOS = [video(row) for row in ([0, 1, 3, 2], [0, 1, 3, 2], [0, 3, 1, 2], [0, 1, 1, 3])]


@pytest.fixture
def order():
    return TaskOrder.of(VIDEOS, [3, 2, 1, 0])


def test_counts_and_probabilities(order):
    assert order.actions.tolist() == [0, 1, 2, 3]
    assert order.before.tolist() == [[0, 4, 3, 4], [0, 0, 3, 3], [0, 0, 0, 0], [0, 1, 3, 0]]
    assert order.probability[0, 1] == 4.5 / 5
    assert order.probability[3, 1] == 1.5 / 5
    assert (order.probability + order.probability.T == 1).all()
    assert order.usual.tolist() == [4.5 / 5, 4.5 / 5, 3.5 / 5, 4.5 / 5]
    assert order.repeated.tolist() == [0, 0.25, 0, 0]
    assert order.follows[4].tolist() == [4, 0, 0, 0, 0]  # the start
    assert order.follows.sum() == 4 * 5
    assert np.exp(order.length) == pytest.approx(5)
    assert order.place[0] == 0.125


def test_the_graph_leaves_out_what_follows(order):
    assert order.edges == ((0, 1), (0, 3), (1, 2), (3, 2))
    assert order.earlier[0, 2]
    assert reached(order.edges) == {*order.edges, (0, 2)}
    assert TaskOrder.of([], [0, 1]).edges == ()
    circle = [video(row) for row in ([0, 1], [1, 2], [2, 0], [0, 1])]
    earlier = TaskOrder.of(circle, [0, 1, 2]).earlier
    assert earlier[0, 1]  # the surest
    assert not (earlier & earlier.T).any()


def test_orders_that_a_person_gives(order):
    given = order.with_edges([(3, 1), (1, 0), (3, 0)])
    assert given.edges == ((1, 0), (3, 1))
    assert given.probability[3, 0] > 0.98
    assert given.probability[0, 2] == given.probability[2, 0] == 0.5
    assert given.usual.tolist() == order.usual.tolist()
    assert order.with_edges([]).edges == ()
    assert set(order.with_edges(order.edges).edges) == set(order.edges)
    with pytest.raises(CefitoError, match="the order goes in a circle through "):
        order.with_edges([(0, 1), (1, 2), (2, 0)])


@pytest.mark.parametrize("task", ["tea", "TEA", "0"])
@pytest.mark.parametrize("edges", [[["boil", "pour"], ["pour", "Käse & <b>"]], [[0, 1], [1, 3]]])
def test_files_of_orders(tmp_path, task, edges):
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({task: {"edges": [["start", 0], *edges, [3, "end"]], "more": 1}}))
    orders = read_orders(path, TAXONOMY)
    assert orders == {0: ((0, 1), (1, 3))}
    path.write_text(graph_text(orders, TAXONOMY, "json"))
    assert read_orders(path, TAXONOMY) == orders


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[]", "not orders of tasks. Expected {task id or name"),
        ("{", "orders.json"),
        ('{"tea": {}}', "'tea'.*edges"),
        ('{"tea": {"edges": [["boil"]]}}', "'tea'.*edges"),
        ('{"soup": {"edges": []}}', "unknown task 'soup'"),
        ('{"tea": {"edges": [["boil", "fry"]]}}', "unknown action 'fry'"),
        ('{"tea": {"edges": [["boil", "cut"]]}}', "'cut' is not one of the task 'tea'"),
    ],
)
def test_files_that_are_no_orders(tmp_path, text, match):
    path = tmp_path / "orders.json"
    path.write_text(text)
    with pytest.raises(CefitoError, match=match) as caught:
        read_orders(path, TAXONOMY)
    assert isinstance(caught.value, DataError) or "unknown" in match or "not one" in match


def test_graphs_for_graphviz_and_as_a_picture(order):
    orders = {0: order.edges, 1: ()}
    dot = graph_text(orders, TAXONOMY, "dot")
    assert dot.count(" -> ") == len(order.edges)
    assert 'label="a much longer task"' in dot
    picture = graph_picture(orders, TAXONOMY)
    assert picture.count("<path") == len(order.edges) + 1  # and the arrow's head
    assert "Käse &amp; &lt;b&gt;" in picture
    assert "<b>" not in picture
