"""Windows that the tests of losses share."""

import numpy as np
import torch

from cefito.data.annotations import Action, Task, Taxonomy
from cefito.data.windows import Windows

E, T, K = 8, 3, 7
ACTIONS = {0: (0, 1, 2, 3), 1: (3, 4, 5, 6)}
TAXONOMY = Taxonomy(
    dataset="made",
    tasks=tuple(Task(task, f"task {task}", actions) for task, actions in ACTIONS.items()),
    actions=tuple(Action(index, f"action {index}") for index in range(K)),
)
ROWS = torch.tensor([5, 0, 3])


def windows(
    videos: tuple[int, ...] = (0, 0, 0, 1, 2, 2), seed: int = 0, horizon: int = T
) -> Windows:
    generator = np.random.default_rng(seed)
    tasks = np.array([video % 2 for video in videos])
    return Windows(
        initial=generator.standard_normal((len(videos), E), np.float32),
        goal=generator.standard_normal((len(videos), E), np.float32),
        actions=np.stack([generator.choice(ACTIONS[int(task)], size=horizon) for task in tasks]),
        tasks=tasks,
        video=np.array(videos),
        start=np.arange(len(videos)),
        taxonomy=TAXONOMY,
        action_text=None,
        dataset="made",
        split="train",
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
