"""Small films, of which each action has its own direction of the rows."""

import json
from typing import Any

import numpy as np

from cefito.data.readers.custom import prepare
from cefito.recognition.settings import RecogniserConfig

SMALL = RecogniserConfig(
    members=1,
    width=16,
    training_steps=60,
    folds=2,
    learning_rate=0.02,
    weight_decay=0.01,
    temporal_steps=60,
    temporal_passes=20,
    attention_layers=0,
)
PLANS = [[0, 1, 2], [3, 4, 5]]


def film(rng, plan):
    """Rows of 8 numbers and steps [start, end, action]."""
    parts, steps, at = [], [], 0
    for action in [6, *(each for step in plan for each in (step, 6))]:
        count = int(rng.integers(2, 5) if action == 6 else rng.integers(6, 12))
        parts.append(3.0 * np.eye(8)[action] + 0.5 * rng.standard_normal((count, 8)))
        steps += [] if action == 6 else [[at, at + count, action]]
        at += count
    return np.concatenate(parts), steps


def prepared_films(folder):
    """A data set of 16 small films, six of them of the test split."""
    rng = np.random.default_rng(0)
    tasks = [
        {"id": place, "name": f"task {place}", "actions": one} for place, one in enumerate(PLANS)
    ]
    actions = [{"id": place, "name": f"step {place}"} for place in range(6)]
    taxonomy = {"dataset": "films", "tasks": tasks, "actions": actions}
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
    rows, lines = {}, []
    for number in range(16):
        task = number % 2
        plan = PLANS[task] if rng.random() < 0.7 else [PLANS[task][place] for place in (1, 0, 2)]
        rows[f"v{number}"], steps = film(rng, plan)
        split = "test" if number >= 10 else "train"
        line = {"video_id": f"v{number}", "split": split, "task_id": task, "steps": steps}
        lines.append(json.dumps(line) + "\n")
    (folder / "videos.jsonl").write_text("".join(lines))
    np.savez(folder / "timeline.npz", **rows)
    return prepare(folder, folder / "out")


def scene_films(folder, orders, splits):
    """A data set of one task; a step shows a sign in a scene that holds what steps left behind.

    Rows have 12 numbers, of which each direction is mixed: signs of four actions, what they left
    behind, four times as strong, and noise. Films are in the given orders of the actions 0 to 3.
    """
    rng = np.random.default_rng(3)
    mixed, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    taxonomy = {
        "dataset": "scenes",
        "tasks": [{"id": 0, "name": "task", "actions": [0, 1, 2, 3]}],
        "actions": [{"id": place, "name": f"step {place}"} for place in range(4)],
    }
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
    rows: dict[str, Any] = {}
    lines = []
    for number, (order, split) in enumerate(zip(orders, splits, strict=True)):
        scene, parts, steps, at = np.zeros(12), [], [], 0
        for action in order:
            pause, count = int(rng.integers(2, 4)), int(rng.integers(5, 8))
            sign, left = mixed[action], 4 * mixed[4 + action]
            parts += [np.tile(scene, (pause, 1)), np.tile(scene + sign, (count, 1))]
            scene = scene + left
            steps.append([at + pause, at + pause + count, action])
            at += pause + count
        parts.append(np.tile(scene, (3, 1)))
        shown = np.concatenate(parts)
        rows[f"v{number}"] = shown + 0.1 * rng.standard_normal(shown.shape)
        line = {"video_id": f"v{number}", "split": split, "task_id": 0, "steps": steps}
        lines.append(json.dumps(line) + "\n")
    (folder / "videos.jsonl").write_text("".join(lines))
    np.savez(folder / "timeline.npz", **rows)
    return prepare(folder, folder / "out")
