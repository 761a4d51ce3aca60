"""What is mutated: a data set, runs and a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mutations import Answer, Subject, digest

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.training import trainer
from tiny_runs import TINY_RUN


def of_dataset(folder: Path) -> str:
    """Digest the windows, name and fingerprint of a data set."""
    data = open_dataset(folder)
    test = cut_windows(data, horizon=3, split="test")
    parts = (test.initial, test.goal, test.actions, test.tasks, test.video)
    return digest(data.name, data.fingerprint, data.provenance, data.taxonomy, *parts)


def of_plans(queries: Queries) -> Answer:
    """Digest the plans and the description of a run."""

    def answer(folder: Path) -> str:
        run = open_run(folder)
        parts: list[Any] = []
        for plans in run.planner.plan(queries, 3):
            names = [run.taxonomy.names(row) for row in plans.actions]
            parts += [plans.actions, plans.energies, plans.scores, plans.exact, names]
        return digest(run.horizon, run.method, run.info.dataset.name, *parts)

    return answer


def of_training(dataset: PreparedDataset) -> Answer:
    """Digest the weights of a killed training after it is continued."""

    def answer(folder: Path) -> str:
        train_run(dataset, folder, config=config("frequent"), horizon=3, seed=0)
        return digest((folder / "classifier.safetensors").read_bytes())

    return answer


def config(method: str) -> Any:
    """Settings of the smallest networks."""
    return load_config("small", method=method, overrides=TINY_RUN, shared=True)


class KilledError(Exception):
    """Stops a training."""


@contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """Stop trainings after some steps."""
    whole, left = trainer.Training._step, [steps]

    def step(self: Any, *rest: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return whole(self, *rest)

    trainer.Training._step = step  # type: ignore[method-assign]
    try:
        yield
    except KilledError:
        pass
    finally:
        trainer.Training._step = whole  # type: ignore[method-assign]


def stored(root: Path, methods: tuple[str, ...]) -> list[Subject]:
    """Make the subjects."""
    data = write_world(root / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    queries = Queries.from_windows(cut_windows(data, horizon=3, split="test")).subset(range(4))
    subjects = [Subject("data set", data.folder, ("*",), of_dataset)]
    for method in methods:
        run = train_run(data, root / method, config=config(method), horizon=3, seed=0)
        subjects.append(Subject(f"run of {method}", run.folder, ("*",), of_plans(queries)))
    killed = root / "killed"
    with killed_after(5):
        train_run(data, killed, config=config("frequent"), horizon=3, seed=0)
    files = ("classifier/checkpoint.safetensors", "classifier/metrics.jsonl")
    subjects.append(Subject("checkpoint", killed, files, of_training(data)))
    return subjects
