import json

import pytest

from cefito.cli import main
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.planners.settings import load_config
from cefito.runs.train import train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    world = write_world(place / "world", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    config = load_config("small", method="nearest")
    return train_run(world, place / "run", config=config, horizon=3, seed=0)


def call(capsys, *argv, code=0):
    capsys.readouterr()
    assert main(["report", *(str(part) for part in argv)]) == code
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing to write: give --out report.html, or --json."),
        (("--out", "report.txt"), "expected a file that ends in .html. (--out)"),
        (("--json", "--split", "all"), "--split all: expected one of train, val, test."),
        (("--json", "--sample", "0"), "expected at least 1. (--sample)"),
        (("--json", "--queries", "-1"), "expected 0 or more. (--queries)"),
    ],
)
def test_refusals(run, capsys, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    said = call(capsys, run.folder, *options, code=2)
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.rstrip().endswith(message)
    assert not list(tmp_path.iterdir())


def test_neither_run_nor_comparison(capsys, tmp_path):
    said = call(capsys, tmp_path, "--json", code=2)
    assert said.err.startswith(f"error: {tmp_path}")
    assert not list(tmp_path.iterdir())
