"""Runs that plan quickly, and features to ask them of."""

import json

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.planners.methods import load_config
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from tiny_runs import TINY_RUN

STEPS = ("boil", "pour", "stir", "drink")
EACH, WIDTH = 4, 5  # seconds of a step, numbers a second
TINY = TINY_RUN | {"chain.members": 1, "search.fitting_windows": 10}


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """A folder with `features/` of eight videos, a data set of them, and a run, T = 3, on it."""
    root = tmp_path_factory.mktemp("own")
    generator = np.random.default_rng(0)
    (root / "features").mkdir()
    lines = ["video,task,step,start,end,split"]
    for number in range(8):
        split = ("train", "train", "val", "test")[number % 4]
        for place, step in enumerate(STEPS):
            lines.append(f"v{number},tea,{step},{EACH * place + 1},{EACH * (place + 1)},{split}")
        features = generator.standard_normal((EACH * len(STEPS) + 1, WIDTH)).astype(np.float32)
        np.save(root / "features" / f"v{number}.npy", features)
    (root / "steps.csv").write_text("\n".join(lines) + "\n")
    data, features = str(root / "data"), str(root / "features")
    prepare = ["data", "prepare", "custom", str(root / "steps.csv"), data, "--features", features]
    assert main(prepare) == 0
    train = ["train", data, "--method", "nearest", "--horizon", "3", "--out", str(root / "run")]
    assert main(train) == 0
    return root


@pytest.fixture(scope="session")
def nearest(own):
    """The run of `own`; its observations are 15 numbers."""
    return open_run(own / "run")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A small run of CEFITO, whose last bits depend on the queries that are planned together."""
    folder = tmp_path_factory.mktemp("trained")
    world = write_world(folder / "world", knobs=WorldKnobs(train=24, val=8, test=24, dim=8))
    config = load_config(
        "small", method="cefito+chain", dataset="synthetic", horizon=3, overrides=TINY
    )
    return train_run(world, folder / "run", config=config, horizon=3, seed=0)


@pytest.fixture
def listed(tmp_path):
    """A function that writes rows as JSON lines; text is written as it is."""

    def write(rows, name="queries.jsonl"):
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def observed(count, width=15, seed=1):
    """Rows with observations as lists of numbers."""
    generator = np.random.default_rng(seed)
    pairs = generator.standard_normal((count, 2, width)).round(4).tolist()
    return [
        {"id": f"q{number}", "initial": initial, "goal": goal}
        for number, (initial, goal) in enumerate(pairs)
    ]
