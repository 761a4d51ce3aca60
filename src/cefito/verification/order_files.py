"""Files of the orders of tasks: graphs that a person wrote, or that `cefito graph` learned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from cefito.data.vocabulary import Taxonomy, find_action, find_task, in_words, name_or_id
from cefito.errors import ConfigError, DataError
from cefito.files import read_json
from cefito.settings import Record, read_record
from cefito.verification.order import Edges, TaskOrder, reached

_USUAL = 0.99  # p(a step that is not optional occurs), if no video is known
_SHAPE = 'Expected {task id or name: {"edges": [[action, action], …]}}, ids or names.'


class _Graph(Record, extra="ignore"):
    edges: tuple[tuple[int | str, int | str], ...]
    optional: tuple[int | str, ...] = ()  # actions that may be left out


def written_orders(path: Path, taxonomy: Taxonomy) -> tuple[TaskOrder, ...]:
    """Return the orders that a file alone gives; steps that are not optional are usual.

    Raises:
        DataError: Another content.
        ConfigError: A task or action that the taxonomy lacks, or orders in a circle.
    """
    graphs, orders = read_graphs(path, taxonomy), []
    for task in taxonomy.tasks:
        usual = TaskOrder.of([], task.actions)
        usual = replace(usual, occurs=np.full(usual.size, _USUAL - 0.5))
        order = usual.with_edges(*graphs.get(task.id, ((), ())))
        places = np.argsort(np.argsort(order.earlier.sum(axis=0), kind="stable")) + 0.5
        orders.append(
            replace(
                order,
                spread=np.full(order.size, np.inf),  # no length is known
                place=places / max(order.size, 1),
            )
        )
    return tuple(orders)


def read_orders(path: Path, taxonomy: Taxonomy) -> dict[int, Edges]:
    """Read a file of orders, by task; "start" and "end" say nothing if they are no actions.

    Raises:
        DataError: Another content.
        ConfigError: A task or action that the taxonomy lacks, or orders in a circle.
    """
    return {task: edges for task, (edges, _) in read_graphs(path, taxonomy).items()}


def read_graphs(path: Path, taxonomy: Taxonomy) -> dict[int, tuple[Edges, tuple[int, ...]]]:
    """Read the edges and the optional actions in a file of orders, by task, as `read_orders`."""
    value, found = read_json(path, _SHAPE), {}
    if not isinstance(value, dict):
        raise DataError(f"{path}: not orders of tasks. {_SHAPE}")
    for name, entry in value.items():
        graph = read_record(_Graph, entry, f"{path}: '{name}'", _SHAPE, DataError)
        try:
            task = find_task(taxonomy, name)
            own = partial(find_action, taxonomy, task=task, setting="order")
            names = {taxonomy.actions[action].name for action in taxonomy.tasks[task].actions}
            start, end = {"start"} - names, {"end"} - names  # nodes that are no actions
            edges = tuple(
                (own(a), own(b)) for a, b in graph.edges if a not in start and b not in end
            )
            reached(edges)  # refuses a circle
            found[task] = edges, tuple(own(name) for name in graph.optional)
        except ConfigError as problem:
            said = in_words(str(problem), taxonomy)
            raise ConfigError(f"{path}, '{name}': {said}", setting="order") from problem
    return found


_quoted = partial(json.dumps, ensure_ascii=False)
GraphForm = Literal["json", "dot"]


def graph_text(
    orders: dict[int, Edges],
    taxonomy: Taxonomy,
    form: GraphForm,
    optional: Mapping[int, Iterable[int]] = MappingProxyType({}),
) -> str:
    """Return the graphs of tasks: as JSON that `read_orders` reads, or for Graphviz.

    Args:
        orders: Edges of each task, by its id.
        taxonomy: Names of tasks and actions.
        form: "json" or "dot".
        optional: Actions of each task that may be left out, which `written_orders` reads.
    """
    if form == "json":
        value = {}
        for task, edges in orders.items():
            actions = [taxonomy.actions[action] for action in taxonomy.tasks[task].actions]
            named = partial(name_or_id, actions)
            graph: dict[str, Any] = {"edges": [[*map(named, edge)] for edge in edges]}
            if free := [*map(named, optional.get(task, ()))]:
                graph["optional"] = free
            value[name_or_id(taxonomy.tasks, task)] = graph
        return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    lines = ["digraph {", "  rankdir=LR; node [shape=box];"]
    for task, edges in orders.items():
        lines.append(f"  subgraph cluster_{task} {{ label={_quoted(taxonomy.tasks[task].name)};")
        for action in taxonomy.tasks[task].actions:
            label = _quoted(taxonomy.actions[action].name)
            dashed = ", style=dashed" * (action in optional.get(task, ()))
            lines.append(f"    t{task}a{action} [label={label}{dashed}];")
        lines += [f"    t{task}a{a} -> t{task}a{b};" for a, b in edges]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"
