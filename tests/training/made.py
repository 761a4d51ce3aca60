"""Windows that the tests of losses share."""

from dataclasses import replace

import numpy as np
import torch

from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import Windows
from made_windows import windows_of

E, T, K = 8, 3, 7
ACTIONS = {0: (0, 1, 2, 3), 1: (3, 4, 5, 6)}
NAMES = [(f"task {task}", actions) for task, actions in ACTIONS.items()]
TAXONOMY = Taxonomy.from_names("made", NAMES, [f"action {index}" for index in range(K)])
ROWS = torch.tensor([5, 0, 3])


def windows(
    videos: tuple[int, ...] = (0, 0, 0, 1, 2, 2), seed: int = 0, horizon: int = T
) -> Windows:
    generator = np.random.default_rng(seed)
    tasks = np.array([video % 2 for video in videos])
    observations = generator.standard_normal((2, len(videos), E), np.float32)
    actions = [generator.choice(ACTIONS[int(task)], size=horizon) for task in tasks]
    made = windows_of(actions, observations, TAXONOMY, tasks=tasks)
    return replace(made, video=np.array(videos), start=np.arange(len(videos)))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
