import json
import shutil

import pytest

from cefito.cli import main
from cefito.planners.methods import load_config
from cefito.runs.train import train_run


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    config, folder = load_config("small", method="nearest"), tmp_path_factory.mktemp("place")
    return train_run(world, folder / "run", config=config, horizon=3, seed=0)


def call(capsys, *argv):
    capsys.readouterr()
    assert main(["report", *map(str, argv)]) == 0
    return capsys.readouterr()


def test_page_and_json_hold_the_same(run, capsys, tmp_path):
    said = call(capsys, run.folder, "--out", tmp_path / "report.html", "--json")
    found = json.loads(said.out)
    assert found["kind"] == "run"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{found['scores']['metrics']['success_rate']:.2f}" in page
    assert f"wrote {tmp_path / 'report.html'}" in said.err
    again = call(capsys, run.folder, "--json").out
    assert again == said.out


def test_of_a_run_of_several_lengths(run_of_lengths, capsys, tmp_path):
    folder = shutil.copytree(run_of_lengths.folder, tmp_path / "run")
    options = ["--steps", "2-3", "--without-goal", "--after-done", "--queries", "0", "--json"]
    scores = json.loads(call(capsys, folder, *options).out)["scores"]
    assert (scores["shortest"], scores["horizon"]) == (2, 3)
    assert scores["without_goal"]
    assert scores["after_done"]
    report = json.loads(call(capsys, folder, "--with-elapsed", "--queries", "0", "--json").out)
    assert report["scores"]["with_elapsed"]
    assert "--with-elapsed" in report["commands"][1]
