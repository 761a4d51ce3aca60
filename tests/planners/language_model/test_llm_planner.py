"""Planners that ask the stand-in server: their prompts, and the plans made of its answers."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from cefito.errors import DataError
from cefito.evaluation import evaluate_planner
from cefito.planners.language_model.planner import LlmPlanner
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from language_model import MODEL, ParsedPrompt, answered, stand

HORIZON = 4
KNOBS = {"train": 48, "val": 16, "test": 16, "dim": 12}
QUICK = {"pkg.training.optimiser.epochs": 3, "classifier_training.optimiser.epochs": 3}


def settings(**llm):
    overrides = QUICK | {f"llm.{key}": value for key, value in ({"model": MODEL} | llm).items()}
    return load_config("quickstart", method="llm-ends", overrides=overrides, shared=True).settings


@pytest.fixture(scope="module")
def ends(splits, language_model):
    given = {"settings": settings(), "seed": 0}
    planner = LlmPlanner.fit(splits["train"], splits["val"], **given).planner
    assert language_model.asked == []  # nothing is asked while fitting
    return planner


@pytest.fixture
def make(ends, monkeypatch, tmp_path):
    """A planner of other settings and its server, with an empty cache."""
    monkeypatch.setenv("CEFITO_LLM_CACHE", str(tmp_path / "answers"))
    with stand() as served:
        monkeypatch.setenv("CEFITO_LLM_BASE_URL", served.url)

        def make(**llm):
            config = settings(**{"retries": 0, **llm}).llm
            parts = (ends.pkg, ends.task_model, ends.names, ends.task_actions)
            return LlmPlanner(*parts, config), served

        yield make


@pytest.fixture
def queries(splits):
    return Queries.from_windows(splits["test"]).subset(range(8))


def facts(request):
    return request.messages[1][1]


def test_prompts_state_the_ends_that_pkg_recognises(make, queries):
    planner, served = make()
    recognised = planner.pkg.predict_ends(queries).tolist()
    tasks = planner.predict_tasks(queries).tolist()
    requests = planner.requests(queries)
    for request, (first, last), task in zip(requests, recognised, tasks, strict=True):
        prompt = ParsedPrompt(facts(request))
        assert (prompt.first, prompt.last) == (first, last)
        assert set(prompt.actions) == {first, last, *planner.task_actions[task]}
        assert f"Task (recognised): {planner.names.tasks[task]}" in facts(request)
    for plan, (first, last) in zip(planner.plan(queries, 1), recognised, strict=True):
        assert (plan.actions[0, 0], plan.actions[0, -1]) == (first, last)
    assert len(served.asked) == len(set(served.questions))


def test_only_oracle_prompts_state_the_truth(make, queries, splits):
    truth = splits["test"].actions[:8][:, [0, -1]]
    wrong = (truth + 1) % len(splits["test"].taxonomy.actions)
    planner, _ = make()
    assert not any("annotated" in facts(request) for request in planner.requests(queries))
    for given in (truth, wrong):
        oracle = planner.requests(replace(queries, ends=given))
        for request, (first, last) in zip(oracle, given.tolist(), strict=True):
            assert "First step (annotated)" in facts(request)
            prompt = ParsedPrompt(facts(request))
            assert (prompt.first, prompt.last) == (first, last)
            assert (request.choices[0], request.choices[-1]) == ((first,), (last,))


def test_useless_answers_are_replaced_by_pkg_and_counted(make, queries, splits):
    planner, served = make(repairs=1)
    recognised = planner.predict_tasks(queries)

    def answer(body):
        task = re.search(r"Task \(recognised\): (.*)", body["messages"][1]["content"])[1]
        if task == planner.names.tasks[recognised[0]]:
            return "I cannot say."
        return answered(body) if len(body["messages"]) > 2 else "Let me think."

    served.answer = answer
    windows = splits["test"].sample(20, 0)
    evaluation, plans = evaluate_planner(planner, windows)
    replies = evaluation.replies
    outcomes = [plan.reply.outcome for plan in plans]
    assert set(outcomes) == {"replaced", "repaired"}
    counts = (outcomes.count("replaced"), outcomes.count("repaired"), 20, 0)
    assert (replies.replaced, replies.repaired, replies.queries, replies.unasked) == counts
    asked = len(served.asked)
    tokens = (replies.requests, replies.prompt_tokens, replies.completion_tokens)
    assert tokens == (asked, 100 * asked, 10 * asked)
    assert replies.served == ("stand-in-2026-11",)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", replies.first)
    paths = planner.pkg.plan(Queries.from_windows(windows), 1)
    for plan, path, outcome in zip(plans, paths, outcomes, strict=True):
        if outcome == "replaced":
            assert plan.actions.tolist() == path.actions.tolist()
    again, _ = evaluate_planner(planner, windows)
    assert again.replies == replies
    assert replies.requests == len(served.asked)
    value = json.dumps(evaluation.to_dict())
    assert type(evaluation).model_validate_json(value, strict=True) == evaluation


def test_stopped_queries_get_plans_of_pkg(make, queries):
    planner, served = make()
    plans = planner.plan(queries, 1, stop=lambda: True)
    assert served.asked == []
    paths = planner.pkg.plan(queries, 1)
    assert [plan.actions.tolist() for plan in plans] == [path.actions.tolist() for path in paths]
    assert {plan.reply.outcome for plan in plans} == {"unasked"}


def test_unknown_tasks_and_ends(ends, queries):
    with pytest.raises(DataError, match=r"'tasks', row 0 .*: 99"):
        ends.plan(queries.with_task(99), 1)
    many = np.full((8, 2), 9999)
    for planner in (ends, ends.pkg):
        with pytest.raises(DataError, match=r"'ends', row 0"):
            planner.plan(replace(queries, ends=many), 1)


def test_malformed_ends(queries):
    whole = np.zeros((8, 2), int)
    for given in (whole[:, 0], whole.astype(float), whole - 1, whole[:7]):
        with pytest.raises(DataError, match="queries, 'ends'"):
            replace(queries, ends=given)
