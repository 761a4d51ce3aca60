"""Recognisers by name: each keeps the contract, and trains a run."""

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cefito
from cefito.cli import main
from cefito.data.timeline import row_labels
from cefito.errors import ConfigError
from cefito.evaluation.metrics import ScoredPlans
from cefito.evaluation.recogniser_metrics import ScoredVideo
from cefito.planners.methods import load_config, precisions
from cefito.plugins import Registry
from cefito.recognition.methods import RECOGNISERS, RecogniserMethod
from cefito.recognition.settings import ASFormerConfig, MSTCNConfig, NearestConfig, OnlineConfig
from cefito.recognition.yardsticks import NearestRecogniser
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.testing import RecogniserContract
from row_films import SMALL, prepared_films
from tiny_runs import TINY_LENGTHS, small_run


def test_the_help_lists_the_rows_of_all_recognisers(capsys):
    assert main(["compare", "--help"]) == 0
    shown = {*re.findall(r"\w+", capsys.readouterr().out)}
    names = RECOGNISERS.shipped
    assert {row for name in names for row in RECOGNISERS[name].rows} <= shown
    assert set(names) <= set(RECOGNISERS)


def test_a_shipped_preset_makes_a_small_recogniser_for_proposals():
    small, proposal = (load_config(name, method="any-length") for name in ("small", "proposal"))
    assert proposal.settings.any_length.members == 1
    changes = {"members": 1, "folds": 2, "temporal_layers": 0, "changes": 0}
    assert proposal.parts["recogniser"] == small.parts["recogniser"].model_copy(update=changes)
    chain = load_config("proposal", method="chain").settings
    assert chain == load_config("small", method="chain").settings


class TestSegmental(RecogniserContract):
    method = "segmental"
    config = SMALL


class TestRows(RecogniserContract):
    """The networks of single rows alone."""

    method = "segmental"
    config = SMALL.model_copy(update={"chain": False, "temporal_layers": 0})


class TestMSTCN(RecogniserContract):
    method = "mstcn"
    config = MSTCNConfig(epochs=8, channels=16, layers=3, refining_layers=2, refining_stages=1)


class TestASFormer(RecogniserContract):
    method = "asformer"
    config = ASFormerConfig(epochs=8, channels=16, layers=3, decoders=1, learning_rate=5e-3)


class TestTCN(RecogniserContract):
    method = "online"
    config = OnlineConfig(epochs=8, channels=16, layers=3)


class TestLSTM(RecogniserContract):
    method = "online"
    config = OnlineConfig(epochs=8, units=16, network="lstm")


class TestRule(RecogniserContract):
    """The causal network with the rule that keeps labels."""

    method = "online"
    config = OnlineConfig(epochs=8, channels=16, layers=3, rule=True)


class TestNearest(RecogniserContract):
    method = "nearest"
    config = NearestConfig()


PAGE: dict[str, Any] = {"__name__": "window"}
text = (Path(__file__).parents[2] / "docs" / "own-planners.md").read_text(encoding="utf-8")
exec(text.partition("```python\n")[2].partition("```")[0], PAGE)
WINDOW = PAGE["METHOD"]


def test_metrics_of_the_page():
    """Each counts what its meaning says."""
    page: dict[str, Any] = {}
    exec(text.split("```python\n")[2].partition("```")[0], page)
    plans, actual = np.array([[[1, 2, 3]], [[1, 3, 2]]]), np.array([[1, 3, 3], [1, 2, 3]])
    assert page["NEARLY"].total(ScoredPlans(plans=plans, actual=actual)) == (1, 2)
    labels, truth = np.array([4, 4, 0, 1]), np.array([4, 0, 4, 1])
    video = ScoredVideo(labels=labels, truth=truth, background=4, rate=1.0, steps=())
    assert page["PAUSE"].total(video) == (1, 2)


class TestOfThePage(RecogniserContract):
    """The recogniser that docs/own-planners.md writes."""

    method = "window"
    config = PAGE["WindowConfig"](epochs=4)

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def added(cls):
        RECOGNISERS["window"] = WINDOW
        yield
        del RECOGNISERS["window"]


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return prepared_films(tmp_path_factory.mktemp("films"))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("segmental", NearestConfig()),
        ("mstcn", SMALL),
        ("asformer", MSTCNConfig()),
        ("online", SMALL),
        ("nearest", SMALL),
    ],
)
def test_settings_of_another_recogniser_are_refused(films, name, config):
    with pytest.raises(ConfigError, match=f"expected those of {name}"):
        RECOGNISERS.named(name).kind.fit(films, [0, 1], config=config)


def test_a_run_has_the_recogniser_that_its_settings_name(films, tmp_path, capsys):
    changes = {"recogniser.method": "nearest", **TINY_LENGTHS}
    config = load_config("small", method="any-length", overrides=changes)
    videos = [replace(one, split="val") if one.video_id == "v9" else one for one in films.videos]
    divided = replace(films)
    vars(divided)["videos"] = tuple(videos)
    run = train_run(divided, tmp_path, config=config, horizon=3, shortest=1)
    opened = open_run(tmp_path)
    own = opened.own_recogniser
    assert isinstance(own, NearestRecogniser)
    assert len(own.fitted[0]) == sum(map(len, films.timeline.videos[:10]))  # v9, too, no test
    one_length = small_run(divided, tmp_path / "T3")  # of --horizon
    assert (one_length.recogniser, one_length.verifier) == (None, None)
    assert opened.info.config["recogniser"] == {"method": "nearest", "precision": "float32"}
    rows = films.timeline.videos[12].astype(np.float32)
    found = opened.recognise(rows)
    np.testing.assert_array_equal(found.rows, run.recognise(rows).rows)
    truth = row_labels(films.videos[12].steps, len(rows), 1.0, 6)
    assert (found.rows.argmax(axis=1) == truth).mean() > 0.9
    learned, labels = [], []
    for place in range(10):
        shown = films.timeline.videos[place].astype(np.float32)
        learned.append(own.standard.scaled(shown))
        labels.append(row_labels(films.videos[place].steps, len(shown), 1.0, 6))
    known = np.concatenate(learned)
    cosines = own.standard.scaled(rows) @ (known / np.linalg.norm(known, axis=1)[:, None]).T
    nearest = np.concatenate(labels)[cosines.argmax(axis=1)]
    assert (found.rows.argmax(axis=1) == nearest).all()
    with pytest.raises(ConfigError, match="cannot align steps"):
        opened.recognise(rows, task=0, plan=[0, 1, 2])
    with pytest.raises(ConfigError, match="cannot make use of orders"):
        own.given_orders({})
    with pytest.raises(ConfigError, match="cannot recognise row by row"):
        cefito.follow(opened)
    assert opened.verifier is not None
    assert main(["recognise", str(tmp_path), films.videos[12].video_id]) == 0
    assert "usual order" not in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"cannot recognise row by row.*method=segmental"):
        opened.own_recogniser.stream()


@pytest.mark.parametrize("method", RECOGNISERS)
def test_every_recogniser_has_a_precision(method):
    """So that --precision is of all trainings of a run."""
    changes = {"recogniser.method": method, **precisions("bfloat16", "any-length")}
    config = load_config("small", method="any-length", overrides=changes)
    assert config.parts["recogniser"].precision == "bfloat16"


def test_settings_of_each_recogniser():
    def settings(**changes):
        overrides = {f"recogniser.{name}": value for name, value in changes.items()}
        return load_config("small", method="any-length", overrides=overrides).parts["recogniser"]

    assert settings(method="mstcn", epochs=3) == MSTCNConfig(epochs=3)
    assert settings(members=1).members == 1
    with pytest.raises(ConfigError, match=r"'recogniser\.epochs'"):
        settings(epochs=3)
    with pytest.raises(ConfigError, match="no recogniser 'mine'; there are segmental"):
        settings(method="mine")


def registry_with(monkeypatch, name, entry):
    points = [EntryPoint(name, entry, "cefito.recognisers")]
    monkeypatch.setattr("cefito.plugins.entry_points", lambda group: points if group else ())
    return Registry("cefito.recognisers", "recogniser", dict(RECOGNISERS), RECOGNISERS.fault)


def test_a_recogniser_of_a_package(monkeypatch, capsys):
    found = registry_with(monkeypatch, "window", "recognition.test_methods:WINDOW")
    assert [*found] == [*RECOGNISERS, "window"]
    assert found["window"].settings().method == "window"
    monkeypatch.setattr("cefito.cli.methods.RECOGNISERS", found)
    assert main(["planners"]) == 0
    listed = capsys.readouterr().out.partition("cefito compare --recognisers")[2].splitlines()
    rows = [row for method in found.values() for row in method.rows]
    assert [line.split()[0] for line in listed[2:]] == rows


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("cefito.recognition.settings:NearestConfig", "is not a RecogniserMethod"),
        ("recognition.test_methods:OTHER", "do not say method = 'mine'"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_refused(monkeypatch, entry, problem):
    with pytest.raises(ConfigError, match=problem):
        registry_with(monkeypatch, "mine", entry)["mine"]


OTHER = RecogniserMethod(name="mine", recogniser="", settings=NearestConfig, rows={})


def test_names():
    assert [*RECOGNISERS] == ["segmental", "mstcn", "asformer", "online", "nearest"]
    assert RECOGNISERS.named("mstcn").settings().method == "mstcn"
