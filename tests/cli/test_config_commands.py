"""`cefito config`: what presets come to, as files that can be used again, and differences."""

import json
import tomllib

import pytest

from cefito.cli import main
from cefito.planners.methods import METHODS, load_config, preset_names
from cefito.runs.folder import DatasetReference, RunInfo
from cefito.runs.settings_export import settings_text, settings_values


def call(capsys, *argv):
    code = main([str(part) for part in argv])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured


@pytest.fixture
def run(tmp_path):
    """What `run.json` of a finished training says; nothing else of a run is looked at."""
    folder = tmp_path / "run"
    folder.mkdir()
    config = load_config("small", dataset="crosstask", horizon=3, overrides={"chain.members": 2})
    RunInfo(
        dataset=DatasetReference(name="crosstask", path="data", fingerprint="0" * 64),
        horizon=3,
        seed=0,
        preset="small",
        config=config.sections,
        finished=True,
    ).write(folder)
    return folder


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize(("dataset", "horizon"), [("", 0), ("coin", 4)])
def test_what_is_shown_is_a_preset_of_the_same_settings(preset, dataset, horizon, tmp_path):
    overrides = {"chain.members": 4, "pkg.width": 3}
    given = {"dataset": dataset, "horizon": horizon, "overrides": overrides}
    (tmp_path / "mine.toml").write_text(settings_text(preset, **given))
    assert settings_values(str(tmp_path / "mine.toml")) == settings_values(preset, **given)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_reads(method, capsys):
    captured = call(capsys, "config", "show", "paper", "--method", method, "--json")
    assert list(json.loads(captured.out)) == list(METHODS[method].settings.model_fields)
    text = call(capsys, "config", "show", "paper", "--planner", method).out  # the same option
    assert set(tomllib.loads(text)) == set(METHODS[method].settings.model_fields)


def test_a_run_beside_its_preset(run, capsys):
    lines = call(capsys, "config", "diff", run, "small").out.splitlines()
    assert [line.split() for line in lines] == [
        ["setting", str(run), "small"],
        ["chain.members", "2", "3"],
    ]
    same = call(capsys, "config", "diff", run, "small", "--set", "chain.members=2")
    assert (same.out, same.err) == ("", f"{run} has the settings of small.\n")
    same = call(capsys, "config", "diff", run, run, "--json")
    assert json.loads(same.out) == []
