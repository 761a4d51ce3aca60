"""Commands that ask a language model, with a stand-in server; also killed and repeated."""

import json
import os
from pathlib import Path

import pytest

from cefito.cli import main
from language_model import MODEL, stand
from tiny_runs import as_arguments

QUICK = {
    "llm.model": MODEL,
    "llm.concurrency": 2,
    "pkg.training.optimiser.epochs": 2,
    "classifier_training.optimiser.epochs": 2,
}
SET = as_arguments(QUICK)


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "llm"
    call = ["train", world.folder, "--horizon", "4", "--out", out, "--method", "llm-ends", *SET]
    assert main([str(part) for part in call]) == 0
    return out


@pytest.fixture
def served(monkeypatch, tmp_path):
    """A stand-in that has answered nothing yet."""
    with stand() as served:
        monkeypatch.setenv("CEFITO_LLM_BASE_URL", served.url)
        monkeypatch.setenv("CEFITO_LLM_CACHE", str(tmp_path / "answers"))
        yield served


@pytest.fixture(scope="module")
def simple(world, tmp_path_factory):
    """A run that asks no language model."""
    out = tmp_path_factory.mktemp("runs") / "nearest"
    call = ["train", world.folder, "--horizon", "4", "--out", out, "--method", "nearest"]
    assert main([str(part) for part in call]) == 0
    return out


def test_a_model_has_to_be_named(world, refused, tmp_path):
    train = ("train", world.folder, "--horizon", 3, "--out", tmp_path / "run")
    assert "llm.model: no language model is named." in refused(*train, "--method", "llm-ends")


def test_a_method_without_language_model_and_true_ends(simple, refused):
    err = refused("evaluate", simple, "--oracle-ends")
    assert "nearest window makes no use of the true first and last action" in err
    assert "--oracle-ends" in err


def test_scores_say_who_answered_and_when(run, served, call):
    served.answer = lambda body: "What?" if len(body["messages"]) == 2 else "0"
    code, out, err = call("evaluate", run, "--sample", 6, "--json")
    assert code == 0
    replies = json.loads(out)["replies"]
    assert (replies["model"], replies["host"], replies["queries"]) == (MODEL, "127.0.0.1", 6)
    assert (replies["repaired"], replies["replaced"]) == (0, 6)
    assert replies["requests"] == len(served.asked)
    assert json.loads((run / "evaluation-test-sample-6.json").read_text())["replies"] == replies
    code, _, err = call("evaluate", run, "--sample", 6)
    assert (
        f"{MODEL} at 127.0.0.1, {replies['last']}: of 6 queries 0 had to be repaired and 6" in err
    )


def test_no_key_reaches_a_file(world, served, call, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", served.url)
    out = tmp_path / "run"
    train = ("train", world.folder, "--horizon", 3, "--out", out, "--method", "llm-ends", *SET)
    assert call(*train)[0] == 0
    assert call("evaluate", out, "--sample", 3)[0] == 0
    sent = {name.lower(): value for name, value in served.headers[0].items()}
    assert sent["authorization"] == "Bearer sk-very-secret"
    for path in (Path(name) / file for name, _, files in os.walk(tmp_path) for file in files):
        assert b"sk-very-secret" not in path.read_bytes(), path
