"""A written procedure, before any video and with five right ones.

Writes the official graph of each recipe of a folder (taxonomy.json, videos.jsonl, errors.jsonl) as
a text, in an order that the graph allows: each step with "(after …)" or "(at any time)". Recipes
whose official graph names two steps alike, or has a circle, are left out. The text is read as by
cefito data procedure, and verifies the steps of the test recordings, which are known: alone, with
the first five right training recordings (cefito verify RIGHT.csv NEW.csv --order order.json), and
these alone.

    python benchmarks/written.py --data FOLDER --graphs task_graphs.json --out FILE

Findings from 50 % on: a recording that is right, and those of errors of order and steps left out in
the others, with the share of these that is found. Per cent, with 90 % intervals over recordings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data.annotations import Video
from cefito.data.readers.procedure import orders_value, read_procedures, taxonomy_of
from cefito.data.source import read_common
from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError
from cefito.evaluation.statistics import video_interval
from cefito.files import write_json
from cefito.verification.order import reached
from cefito.verification.order_files import read_graphs, written_orders
from cefito.verification.verifier import Verifier
from graphs import official_graphs

_VIDEOS = 5
_SAID = 0.5


def procedure_text(task: Any, edges: set[Any], taxonomy: Taxonomy) -> str:
    """Write a graph as numbered steps, each after those that come right before it."""
    before = {action: {a for a, b in edges if b == action} - {"start"} for action in task.actions}
    numbers, lines = dict[int, int](), [f"# {task.name}"]
    while len(numbers) < len(before):
        action = next(a for a in before if a not in numbers and before[a] <= numbers.keys())
        after = sorted(numbers[other] for other in before[action])
        said = f"after {', '.join(map(str, after))}" if after else "at any time"
        numbers[action] = len(numbers) + 1
        lines.append(f"{numbers[action]}. {taxonomy.actions[action].name} ({said})")
    return "\n".join(lines) + "\n"


def scores(verifier: Verifier, videos: Sequence[Video]) -> dict[str, Any]:
    """Count findings in right recordings, and the errors found in the others."""
    rows = {name: list[tuple[float, float]]() for name in ("alarms", "order", "missing")}
    for video in videos:
        findings = verifier.verify(video.steps, video.task, least=_SAID).deviations
        if video.clean:
            rows["alarms"].append((len(findings), 1))
            continue
        order = {n for n, step in enumerate(video.steps, 1) if "Order Error" in step.errors}
        said = {one.step for one in findings if one.kind == "order"}
        lacking = {one.action for one in findings if one.kind == "missing"}
        rows["order"].append((100 * len(order & said), len(order)))
        rows["missing"].append((100 * len(lacking & {*video.missing}), len(video.missing)))
    result: dict[str, Any] = {}
    for name, counts in rows.items():
        found, size = np.array(counts).T
        low, high = video_interval(found, size)
        share = float(found.sum() / size.sum())
        result[name] = {"of": int(size.sum()), "mean": round(share, 2)}
        result[name] |= {"low": round(low, 2), "high": round(high, 2)}
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--graphs", type=Path, required=True)
    given = parser.parse_args(arguments)
    annotations = read_common(given.data).annotations
    taxonomy, official = annotations.taxonomy, official_graphs(given.graphs)
    tasks, texts = set[int](), list[str]()
    for task in taxonomy.tasks:
        edges = {edge for edge in official[task.id] if not {*edge} & {"start", "end"}}
        names = [taxonomy.actions[action].name for action in task.actions]
        try:
            reached(edges)
        except ConfigError:  # two steps of one name
            continue
        if len({*names}) == len(names):
            tasks.add(task.id)
            texts.append(procedure_text(task, edges, taxonomy))
    five = [
        video
        for task in tasks
        for video in [
            v for v in annotations.videos if v.task == task and v.split == "train" and v.clean
        ][:_VIDEOS]
    ]
    with tempfile.TemporaryDirectory() as folder:
        text, order = Path(folder) / "recipes.txt", Path(folder) / "order.json"
        text.write_text("\n".join(texts), encoding="utf-8")
        procedures = read_procedures(text)
        write_json(order, orders_value(procedures))
        assert {p.task for p in procedures} == {taxonomy.tasks[task].name for task in tasks}
        assert len(taxonomy_of(procedures, "recipes").tasks) == len(tasks)
        alone = Verifier(written_orders(order, taxonomy), taxonomy)
        learned = Verifier.fit(five, taxonomy)
        both = learned.given(read_graphs(order, taxonomy))
    test = [v for v in annotations.videos if v.split == "test" and v.steps and v.task in tasks]
    verifiers = {"text": alone, "five videos": learned, "text and five videos": both}
    report: dict[str, Any] = {
        "command": f"python benchmarks/written.py --data {given.data.name} --graphs FILE",
        "machine": common.machine(),
        "recipes": len(tasks),
        "right_videos": len(five),
        "test_videos": len(test),
        "rows": {name: scores(verifier, test) for name, verifier in verifiers.items()},
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
