"""`cefito config show`, what presets come to as files that can be used again, and `planners`."""

import json
import tomllib

import pytest

from cefito.planners.methods import METHODS, load_config, preset_names, run_settings
from cefito.runs.settings_export import changes_of_preset, settings_text, settings_values
from cefito.runs.train import train_run
from cefito.study.trials import ROWS


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize(("dataset", "horizon"), [("", 0), ("coin", 4)])
def test_what_is_shown_is_a_preset_of_the_same_settings(preset, dataset, horizon, tmp_path):
    overrides = {"chain.members": 4, "pkg.width": 3}
    given = {"dataset": dataset, "horizon": horizon, "overrides": overrides}
    (tmp_path / "mine.toml").write_text(settings_text(settings_values(preset, **given), preset))
    assert settings_values(str(tmp_path / "mine.toml")) == settings_values(preset, **given)


def test_what_a_method_reads(ran):
    for method in METHODS:
        captured = ran("config", "show", "paper", "--method", method, "--json")
        assert list(json.loads(captured.out)) == list(run_settings(method).model_fields)
    text = ran("config", "show", "paper", "--planner", method).out  # the same option
    assert set(tomllib.loads(text)) == set(run_settings(method).model_fields)


def test_what_a_run_changes_of_its_preset(world, tmp_path, ran):
    config = load_config("small", method="pkg", overrides={"pkg.width": 3}, shared=True)
    run = train_run(world, tmp_path / "run", config=config, horizon=3, seed=0)
    changes = changes_of_preset(run)
    assert changes is not None
    (change,) = changes
    assert (change.setting, change.ours) == ("pkg.width", 3)
    text = ran("config", "show", "small", "--dataset", world.folder, "--horizon", 3).out
    assert f"data set {world.taxonomy.dataset}, T = 3" in text  # of a folder


def test_methods_and_rows_as_tables(ran):
    out, err = ran("planners")
    assert err == ""
    methods, rows = out.partition("recognisers, as")[0].split("rows, as cefito compare")
    lines = {line.split()[0]: line for line in methods.splitlines()[2:]}
    assert list(lines) == list(METHODS)
    for part in ("ViterbiPlanNet", "5.55 M", "(CVPR 2026, arXiv 2603.04265)"):
        assert part in lines["viterbi"]
    assert "descriptions of states (if given)" in lines["viterbi"]
    assert "constraints" in lines["cefito"]
    assert "constraints" not in lines["viterbi"]
    assert "not published" in lines["nearest"]
    assert sorted(line.split()[0] for line in rows.splitlines()[2:]) == sorted(ROWS)
    kinds = {line.split()[0]: line.split()[-1] for line in rows.splitlines()[2:]}
    assert kinds["pkg"] == "pkg"
