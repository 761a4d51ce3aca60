"""Own features and several horizons, from the command line."""

import json
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from batch.conftest import own  # noqa: F401
from cefito.cli import main
from cefito.data import open_dataset
from cefito.runs.run import open_run

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"chain_training.optimiser.epochs": 1, "chain.hidden": 4, "chain.members": 1}


@pytest.fixture(scope="module")
def made(own):  # noqa: F811
    """The folder of `own`, with runs of T = 2 and 3."""
    train = ["train", str(own / "data"), "--method", "nearest", "--horizon", "2,3"]
    assert main([*train, "--out", str(own / "runs")]) == 0
    np.save(own / "row.npy", np.zeros(5, np.float32))
    return own


def test_planning_from_features_and_from_the_video(made, ran):
    plan = ("plan", made / "runs", "--horizon", 3, "--json")
    file = made / "features" / "v3.npy"
    ours = json.loads(ran(*plan, "--features", file, "--start", 5, "--end", 16).out)
    theirs = json.loads(ran(*plan, "--video", "v3", "--from-step", 2).out)
    assert theirs.pop("truth")["names"] == ["pour", "stir", "drink"]
    assert ours == theirs
    table = ran(*plan[:-1], "--features", file, "--start", 5, "--end", 16).out
    assert table.count(" → ") >= 2


def test_the_python_of_the_page_runs(made, tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "your-own-data.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    first, code = blocks
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    runpy.run_path("examples/table/features.py")["main"](Path("FEATURES"))
    exec(first.replace('"small"', '"small", method="chain", overrides=QUICK'), {"QUICK": QUICK})
    assert (open_dataset("DATA").name, open_run("RUN").horizon) == ("my kitchen", 3)
    shutil.rmtree("RUN")
    shutil.copytree(made / "runs" / "T3", "RUN")
    features = np.random.default_rng(1).standard_normal((120, 5)).astype(np.float32)
    np.save("NEW.npy", features)
    exec(code, {})
    assert capsys.readouterr().out.startswith("(")
