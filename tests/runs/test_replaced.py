"""An opened run stays what it was, whatever becomes of its folder; no answer is of two runs."""

from __future__ import annotations

import shutil

import pytest

from cefito.data import cut_windows
from cefito.errors import RunError
from cefito.evaluation.conformal import calibrate_run
from cefito.inference.answer import answer
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from tiny_runs import TINY_RUN, small_run

TINY = TINY_RUN | {"chain.members": 1, "chain_training.all_videos": 0.0}


@pytest.fixture(scope="module")
def two(world, tmp_path_factory):
    """Two calibrated runs of one data set and method with other weights."""
    place = tmp_path_factory.mktemp("two")
    found = []
    for seed in (0, 1):
        folder = place / str(seed)
        run = small_run(world, folder, "chain", overrides=TINY, shared=True, seed=seed)
        calibrate_run(run, folds=0)
        found.append(open_run(folder))
    return found


def said(run, query):
    found = answer(run, query, coverage=0.8)
    return found.plans[0].score, found.sets.plans.size


def replaced(folder, other):
    """Put the files of another run in the place of a run's, each written over the old one."""
    for path in sorted(other.iterdir()):
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())


def test_an_opened_run_is_not_its_files(two, world, tmp_path):
    query = Queries.from_windows(cut_windows(world, horizon=3, split="test").subset([0]))
    folder = shutil.copytree(two[0].folder, tmp_path / "run")
    run, expected = open_run(folder), [said(one, query) for one in two]
    assert expected[0] != expected[1]
    replaced(folder, two[1].folder)
    assert (said(run, query), said(open_run(folder), query)) == (expected[0], expected[1])
    for path in folder.glob("*.*"):
        path.write_bytes(b"")  # a mapped file would end this process
    assert said(run, query) == expected[0]
    with pytest.raises(RunError):
        open_run(folder)
