from dataclasses import replace

import pytest

from cefito.data.readers.custom import prepare_custom
from cefito.errors import ConfigError
from cefito.study.published import published_rows
from cefito.study.reproduce import EXPERIMENTS, experiment_study, find_experiment
from cefito.study.study import Study
from tiny_runs import TINY_RUN

SETTINGS = TINY_RUN | {"chain.width": 8, "search.fitting_windows": 10}


def study(world, out, **changes):
    given = {"rows": (), "seeds": (0, 1), "preset": "paper", "settings": SETTINGS, "device": "cpu"}
    return Study(dataset=world, out=out, **{**given, **changes})


def named(study, name):
    """A study of a data set of another name."""
    dataset = study.dataset
    taxonomy = replace(dataset.taxonomy, dataset=name)
    annotations = replace(dataset.annotations, taxonomy=taxonomy)
    return replace(study, dataset=replace(dataset, annotations=annotations))


@pytest.mark.parametrize("preset", ["paper", "small"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_of_every_experiment_load(name, preset, tiny_dataset, tmp_path):
    ours = experiment_study(name, study(tiny_dataset, tmp_path, preset=preset, settings={}))
    assert ours.horizons == EXPERIMENTS[name].horizons
    names = {row.name for row in ours.rows}
    assert len(names) == len({row.title for row in ours.rows}) == len(ours.rows) > 0
    for dataset in ("crosstask", "coin (simulated)", "niv", "tiny"):
        for trial in named(ours, dataset).trials:
            assert trial.config.preset == preset
            for key, expected in trial.row.settings.items():
                value = trial.config.settings
                for part in key.split("."):
                    value = getattr(value, part)
                assert value == expected
    assert EXPERIMENTS[name].against in {"", *names}


def test_experiments_say_which_published_table_they_are_of():
    for name, entry in EXPERIMENTS.items():
        assert find_experiment(name) is entry
        if entry.published:
            assert published_rows(entry.dataset or "crosstask", entry.horizons[0], entry.published)


def test_rows_of_experiments(tiny_dataset, make_source, tmp_path):
    def rows(name, dataset=tiny_dataset):
        return {row.name: row for row in EXPERIMENTS[name].rows(dataset)}

    assert set(rows("text-encoder")) == {"actions-learned", "actions-observed", "actions-text"}
    plain = prepare_custom(make_source("plain-source"), tmp_path / "plain")
    assert set(rows("text-encoder", plain)) == {"actions-learned", "actions-observed"}
    assert rows("negatives")["N-50"].settings["training.negatives.hard"] == 0.8
    assert [row.true_task for row in rows("oracle").values()] == [False, True, False, True]
    assert [name for name, row in rows("niv").items() if row.true_task] == ["cefito-true-task"]
    assert not any(row.true_task for row in rows("coin").values())


def test_unknown_tables():
    with pytest.raises(
        ConfigError, match=r"no table 'table-9'; there are crosstask, coin, .*runtime"
    ):
        find_experiment("table-9")
