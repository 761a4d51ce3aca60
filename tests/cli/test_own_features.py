"""Own features and several horizons, from the command line."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from batch.conftest import own  # noqa: F401
from cefito.cli import main


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
    page = (Path(__file__).resolve().parents[2] / "docs" / "your-own-data.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "query_from_features" in block)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "runs" / "T3", "RUN")
    features = np.random.default_rng(1).standard_normal((120, 5)).astype(np.float32)
    np.save("NEW.npy", features)
    exec(code, {})
    assert capsys.readouterr().out.startswith("(")
