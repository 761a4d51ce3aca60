"""Windows made by hand, each of a video of its own."""

import numpy as np

from cefito.data.vocabulary import Action, Task, Taxonomy
from cefito.data.windows import Windows


def taxonomy_of(tasks, actions):
    """So many tasks of all of so many actions."""
    return Taxonomy(
        dataset="made",
        tasks=tuple(Task(task, f"task {task}", tuple(range(actions))) for task in range(tasks)),
        actions=tuple(Action(action, f"action {action}") for action in range(actions)),
    )


def windows_of(actions, observations, taxonomy, *, tasks=None, split="train"):
    """Windows of actions [N, T] and observations [2, N, E]; the first task by default."""
    count = len(actions)
    initial, goal = np.asarray(observations, np.float32)
    return Windows(
        initial=initial,
        goal=goal,
        actions=np.asarray(actions, np.int64),
        tasks=np.zeros(count, np.int64) if tasks is None else np.asarray(tasks, np.int64),
        video=np.arange(count),
        start=np.zeros(count, np.int64),
        taxonomy=taxonomy,
        action_text=None,
        dataset="made",
        split=split,
    )
