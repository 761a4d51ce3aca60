"""What is proposed after mistakes, against what people did next.

Learns from the right videos of a table with the columns video, task, step, start, end, split and
label (correct, mistake or correction). In each test video of a task with right videos, the steps
left are asked for after each mistake or correction that a correct step follows, which is the truth.

    python benchmarks/repairs.py --table whole.csv --out FILE

The rule was chosen among six on the test videos of even places; those of odd places measure it.
`before` is the rule that it replaced: steps that were undone count as done, and of those that the
graph allows, the one comes first that is usually the earliest. `again` proposes the step undone
last, if there is one. Per cent, with 90 % intervals over videos.
"""

from __future__ import annotations

import csv
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data.vocabulary import Action
from cefito.evaluation.statistics import video_interval
from cefito.files import write_json
from cefito.inference.verification import open_verifier
from cefito.verification.findings import repair
from cefito.verification.order import TaskOrder, present

Rule = Callable[[TaskOrder, list[int]], Sequence[int]]
Question = tuple[list[int], int]


def before(order: TaskOrder, steps: list[int]) -> list[int]:
    """Propose the usual actions that were never done, the usually earliest first."""
    usual = np.flatnonzero(order.usual >= 0.5).tolist()
    left, actions = {a for a in usual if int(order.actions[a]) not in steps}, []
    while left:
        free = [a for a in left if not order.earlier[[*left], a].any()]
        actions.append(min(free, key=lambda a: (float(order.place[a]), a)))
        left.remove(actions[-1])
    return [int(action) for action in order.actions[actions]] if actions else []


def _asked(steps: Sequence[dict[str, str]], ids: dict[str, int]) -> Iterator[Question]:
    """Yield the actions done and the next one, of each mistake that a correct step follows."""
    actions = [ids[step["step"]] for step in steps]
    for place in range(1, len(steps)):
        if steps[place - 1]["label"] != "correct" == steps[place]["label"]:
            yield actions[:place], actions[place]


def scores(rule: Rule, videos: Sequence[tuple[TaskOrder, Sequence[Question]]]) -> dict[str, Any]:
    """Count proposals of a rule that are right."""
    rows = []
    for order, questions in videos:
        plans = [(rule(order, done), truth) for done, truth in questions]
        first = sum(truth in plan[:1] for plan, truth in plans)
        rows.append((first, sum(truth in plan for plan, truth in plans), len(plans)))
    first, listed, asked = np.array(rows).T
    low, high = video_interval(100 * first, asked)
    return {
        "asked": int(asked.sum()),
        "first": int(first.sum()),
        "listed": int(listed.sum()),
        "first_per_cent": round(100 * float(first.sum() / asked.sum()), 1),
        "low": round(low, 1),
        "high": round(high, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--table", type=Path, required=True)
    given = parser.parse_args(arguments)
    videos: dict[str, list[dict[str, str]]] = defaultdict(list)
    with given.table.open(newline="") as file:
        for row in csv.DictReader(file):
            videos[row["video"]].append(row)
    columns = ["video", "task", "step", "start", "end"]
    with tempfile.TemporaryDirectory() as folder:
        right = Path(folder) / "right.csv"
        with right.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            for steps in videos.values():
                writer.writerows(step for step in steps if step["split"] == "train")
        verifier = open_verifier(right, online=True)[1]
    known = verifier.taxonomy.actions
    names = [*dict.fromkeys(step["step"] for steps in videos.values() for step in steps)]
    ids = {action.name: action.id for action in known}
    for name in names:
        ids.setdefault(name, len(ids))
    taxonomy = replace(verifier.taxonomy, actions=tuple(Action(n, name) for name, n in ids.items()))
    orders = {t.name: verifier.orders[t.id] for t in verifier.taxonomy.tasks}

    def again(order: TaskOrder, steps: list[int]) -> Sequence[int]:
        undone = present(order, steps, taxonomy)[1]
        last = [int(order.actions[undone[-1]])] if undone else []
        return [*last, *(a for a in repair(order, steps, taxonomy) if a not in last)]

    rules: dict[str, Rule] = {"before": before, "again": again}
    rules["repair"] = lambda order, steps: repair(order, steps, taxonomy)
    test = [steps for steps in videos.values() if steps[0]["split"] == "test"]
    test = [steps for steps in test if steps[0]["task"] in orders]
    asked = [[*_asked(steps, ids)] for steps in test]
    tasks = [orders[steps[0]["task"]] for steps in test]
    report: dict[str, Any] = {
        "command": "python benchmarks/repairs.py --table whole.csv",
        "machine": common.machine(),
        "test_videos": len(test),
    }
    for part, first in (("chosen on", 0), ("measured on", 1)):
        chosen = [*zip(tasks[first::2], asked[first::2], strict=True)]
        report[part] = {name: scores(rule, chosen) for name, rule in rules.items()}
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
