"""Planners that ask the stand-in: what they tell it, and what they make of its answers."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.evaluation import evaluate_planner
from cefito.evaluation.replies import Replies, replies_title
from cefito.planners.context import TrainingContext
from cefito.planners.language_model.planner import LlmEndsPlanner, LlmRankedPlanner
from cefito.planners.language_model.settings import LlmSettings
from cefito.planners.queries import Queries
from cefito.planners.registry import METHODS
from cefito.planners.settings import load_config
from language_model import MODEL, Told, answered, stand

HORIZON = 4
QUICK = {"pkg.training.optimiser.epochs": 3, "classifier_training.optimiser.epochs": 3}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    dataset = write_world(
        tmp_path_factory.mktemp("data") / "world",
        knobs=WorldKnobs(train=48, val=16, test=16, dim=12),
    )
    return {
        split: cut_windows(dataset, horizon=HORIZON, split=split)
        for split in ("train", "val", "test")
    }


def settings(**llm):
    overrides = QUICK | {f"llm.{key}": value for key, value in ({"model": MODEL} | llm).items()}
    return load_config("quickstart", overrides=overrides).settings(LlmSettings)


@pytest.fixture(scope="module")
def ends(world):
    return LlmEndsPlanner.fit(
        world["train"], world["val"], settings=settings(examples=3), seed=0
    ).planner


@pytest.fixture
def asking(ends, monkeypatch, tmp_path):
    """A planner of other settings and a server with no answers of before."""
    monkeypatch.setenv("CEFITO_LLM_CACHE", str(tmp_path / "answers"))
    with stand() as served:
        monkeypatch.setenv("CEFITO_LLM_BASE_URL", served.url)

        def make(kind=LlmEndsPlanner, **llm):
            config = settings(**{"retries": 0, **llm}).llm
            nearest = ends.nearest if config.examples else None
            parts = (ends.pkg, ends.task_model, nearest, ends.names, ends.task_actions)
            return kind(*parts, config), served

        yield make


@pytest.fixture
def queries(world):
    return Queries.from_windows(world["test"]).subset(range(8))


def told(request):
    return Told(request.messages[1][1])


def test_the_ends_that_are_told_are_those_of_pkg(asking, queries):
    planner, served = asking()
    recognised = planner.pkg.predict_ends(queries).tolist()
    tasks = planner.predict_tasks(queries).tolist()
    for request, (first, last), task in zip(
        planner.requests(queries), recognised, tasks, strict=True
    ):
        words = told(request)
        assert (words.first, words.last) == ([first], [last])
        assert set(words.actions) == {first, last, *planner.task_actions[task]}
        assert f"Task (recognised): {planner.names.tasks[task]}" in request.messages[1][1]
    for plan, (first, last) in zip(planner.plan(queries, 1), recognised, strict=True):
        assert (plan.actions[0, 0], plan.actions[0, -1]) == (first, last)
    assert len(served.asked) == len(set(served.questions))


def test_the_truth_is_told_to_the_oracle_alone(asking, queries, world):
    """No word of a request depends on the truth unless the query bears it."""
    truth = world["test"].actions[:8][:, [0, -1]]
    wrong = (truth + 1) % len(world["test"].taxonomy.actions)
    for kind in (LlmEndsPlanner, LlmRankedPlanner):
        planner, _ = asking(kind, graph=True, examples=3)
        plain = planner.requests(queries)
        assert not any("annotated" in request.messages[1][1] for request in plain)
        for given in (truth, wrong):
            oracle = planner.requests(replace(queries, ends=given))
            for request, (first, last) in zip(oracle, given.tolist(), strict=True):
                assert "First step (annotated)" in request.messages[1][1]
                assert (told(request).first, told(request).last) == ([first], [last])
                assert request.choices[0] == (first,)
                assert request.choices[-1] == (last,)


def test_what_is_ranked(asking, queries):
    planner, _ = asking(LlmRankedPlanner, candidates=3, tasks=2)
    shares = np.exp(planner.task_model.log_probabilities(queries))
    for request, row in zip(planner.requests(queries), shares, strict=True):
        words, text = told(request), request.messages[1][1]
        assert len(words.first) == len(words.last) == 3
        best = row.argsort()[::-1][:2]
        lines = [f"{row[task]:.2f} {planner.names.tasks[task]}: " for task in best]
        assert all(line in text for line in lines)
        assert request.choices == (tuple(words.actions),) * HORIZON
    known = planner.requests(queries.with_task(2))
    assert all(f"Task (given): {planner.names.tasks[2]}" in one.messages[1][1] for one in known)


def test_the_graph_that_is_told_is_enough_to_plan_as_pkg_does(asking, world):
    """Where all that PKG's path needs is listed, the stand-in finds a path as likely as it."""
    planner, _ = asking(graph=True, successors=1000, repairs=0)
    counts, compared = planner.pkg.counts, 0
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    known = Queries.from_windows(world["test"], oracle_task=True, oracle_ends=True)
    known = known.subset(range(20))
    paths, plans = planner.pkg.plan(known, 1), planner.plan(known, 1)
    for request, plan, path in zip(planner.requests(known), plans, paths, strict=True):
        best, found = (list(pairwise(one.actions[0].tolist())) for one in (path, plan))
        graph = told(request).graph
        if all(after in graph.get(action, {}) for action, after in best):
            likely = [np.prod([shares[pair] for pair in walk]) for walk in (best, found)]
            assert likely[1] == pytest.approx(likely[0], rel=0.1)
            compared += 1
    assert compared >= 10


def test_examples_are_of_training_windows_of_the_task(asking, queries, world):
    planner, _ = asking(examples=3)
    train = {tuple(row) for row in world["train"].actions.tolist()}
    for request, task in zip(
        planner.requests(queries), planner.predict_tasks(queries), strict=True
    ):
        text = request.messages[1][1]
        rows = text.split("most similar first:\n")[1].splitlines()
        sequences = [tuple(map(int, row.split(", "))) for row in rows]
        assert len(set(sequences)) == len(sequences) == 3
        assert set(sequences) <= train
        of_task = world["train"].actions[world["train"].tasks == task].tolist()
        assert all(list(sequence) in of_task for sequence in sequences)


def test_what_is_told_does_not_depend_on_other_queries(asking, queries):
    planner, _ = asking(LlmRankedPlanner, graph=True, examples=3)
    together = [request.messages for request in planner.requests(queries)]
    alone = [planner.requests(queries.subset([row]))[0].messages for row in range(8)]
    assert alone == together


def test_one_plan_unless_more_are_wanted(asking, queries):
    planner, _ = asking()
    assert [len(plan) for plan in planner.plan(queries, 5)] == [1] * 8
    several, _ = asking(plans=3)
    for plan in several.plan(queries, 5):
        assert 1 <= len(plan) <= 3
        assert plan.energies.tolist() == list(range(len(plan)))
        assert not plan.exact


def test_answers_of_no_use_are_replaced_by_pkg_and_counted(asking, queries, world):
    planner, served = asking(repairs=1)
    recognised = planner.predict_tasks(queries)

    def answer(body):
        task = re.search(r"Task \(recognised\): (.*)", body["messages"][1]["content"])[1]
        if task == planner.names.tasks[recognised[0]]:
            return "I cannot say."
        return answered(body) if len(body["messages"]) > 2 else "Let me think."

    served.answer = answer
    windows = world["test"].sample(20, 0)
    evaluation, plans = evaluate_planner(planner, windows, top_k=1)
    replies = evaluation.replies
    outcomes = [plan.reply.outcome for plan in plans]
    assert set(outcomes) == {"replaced", "repaired"}
    assert (replies.replaced, replies.repaired) == (
        outcomes.count("replaced"),
        outcomes.count("repaired"),
    )
    assert (replies.queries, replies.unasked) == (20, 0)
    assert replies.requests == len(served.asked)
    assert replies.prompt_tokens == 100 * len(served.asked)
    assert replies.completion_tokens == 10 * len(served.asked)
    assert replies.served == ("stand-in-2026-11",)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", replies.first)
    paths = planner.pkg.plan(Queries.from_windows(windows), 1)
    for plan, path, outcome in zip(plans, paths, outcomes, strict=True):
        if outcome == "replaced":
            assert plan.actions.tolist() == path.actions.tolist()
    again, _ = evaluate_planner(planner, windows, top_k=1)
    assert again.replies == replies
    assert replies.requests == len(served.asked)
    value = json.loads(json.dumps(evaluation.to_dict()))
    assert type(evaluation).model_validate_json(json.dumps(value), strict=True) == evaluation


def test_who_is_stopped_gets_plans_of_pkg(asking, queries):
    planner, served = asking()
    plans = planner.plan(queries, 1, stop=lambda: True)
    assert served.asked == []
    paths = planner.pkg.plan(queries, 1)
    assert [plan.actions.tolist() for plan in plans] == [path.actions.tolist() for path in paths]
    assert {plan.reply.outcome for plan in plans} == {"unasked"}


def test_nothing_is_asked_while_fitting(world, language_model):
    before = len(language_model.asked)
    LlmRankedPlanner.fit(world["train"], world["val"], settings=settings(), seed=1)
    assert len(language_model.asked) == before


def test_without_a_model_nothing_is_trained(world, monkeypatch):
    monkeypatch.setattr(
        "cefito.planners.context.train", lambda *_, **__: pytest.fail("training was begun")
    )
    with pytest.raises(ConfigError, match="no language model is named"):
        LlmEndsPlanner.fit(world["train"], world["val"], settings=settings(model=""), seed=0)


def test_tasks_and_ends_that_it_does_not_know(ends, queries):
    with pytest.raises(DataError, match=r"'tasks', row 0 .*: is 99"):
        ends.plan(queries.with_task(99), 1)
    many = np.full((8, 2), 9999)
    for planner in (ends, ends.pkg):
        with pytest.raises(
            DataError, match=r"'ends', row 0 \(counted from 0\): are \[9999, 9999\]"
        ):
            planner.plan(replace(queries, ends=many), 1)


@pytest.mark.parametrize(
    "given", [np.zeros(8, int), np.zeros((8, 2)), np.full((8, 2), -1), np.zeros((7, 2), int)]
)
def test_ends_that_are_none(given, queries):
    with pytest.raises(DataError, match="queries, 'ends'"):
        replace(queries, ends=given)


def test_names_say_what_is_told(asking):
    names = [
        asking(kind, **llm)[0].name
        for kind, llm in (
            (LlmEndsPlanner, {}),
            (LlmRankedPlanner, {"graph": True}),
            (LlmRankedPlanner, {"graph": True, "examples": 2}),
        )
    ]
    assert names == [
        "LLM, recognised ends (stand-in)",
        "LLM, ranked ends + PKG (stand-in)",
        "LLM, ranked ends + PKG + examples (stand-in)",
    ]
    description = asking()[0].describe()
    assert description.language_model.model == "stand-in"
    assert description.parameters.keys() == {"step model", "task classifier"}


def test_what_is_kept(ends, queries, tmp_path):
    ends.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "classifier.safetensors",
        "graph.safetensors",
        "llm.json",
        "proposal.safetensors",
        "windows.safetensors",
    ]

    def load(**llm):
        return LlmEndsPlanner.load(
            tmp_path, settings=settings(**{"examples": 3, **llm}), context=TrainingContext()
        )

    loaded = load()
    assert [one.messages for one in loaded.requests(queries)] == [
        one.messages for one in ends.requests(queries)
    ]
    path = tmp_path / "llm.json"
    whole = json.loads(path.read_text())
    for change, message in (
        ({"tasks": whole["tasks"][1:]}, "is of other tasks or actions"),
        ({"actions": [*whole["actions"], "more"]}, "is of other tasks or actions"),
        ({"task_actions": [[9999]] * len(whole["tasks"])}, "is of other tasks or actions"),
        ({"tasks": 3}, "holds no names and actions"),
        ({"more": 3}, "holds no names and actions"),
    ):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(RunError, match=rf"llm\.json: {message}"):
            load()


def test_titles_of_rows():
    def replies(**more):
        known = {"first": "2026-11-21", "last": "2026-11-22", "queries": 40, "repaired": 1}
        rest = dict.fromkeys(
            ("replaced", "unasked", "requests", "prompt_tokens", "completion_tokens"), 0
        )
        return Replies(model="m", host="h", served=("m",), **(rest | known | more))

    assert replies_title([None, None]) == ""
    assert replies_title([replies(), replies(replaced=3, last="2026-11-23")]) == (
        " (m, 2026-11-21 to 2026-11-23, 2.5 % repaired, 3.8 % replaced)"
    )
    one_day = replies(first="2026-11-22")
    assert replies_title([one_day]) == " (m, 2026-11-22, 2.5 % repaired, 0.0 % replaced)"
    assert "not asked" in replies_title([replies(first="", last="", unasked=40, repaired=0)])
    assert "1 had to be repaired and 0 replaced; 0 requests" in replies().in_words()


def test_abilities_are_said_as_they_are():
    for name in ("llm-ends", "llm-ranked"):
        abilities = METHODS[name].planner.abilities
        assert abilities.true_task
        assert abilities.true_ends
        others = (abilities.constraints, abilities.search, abilities.probabilities)
        assert not any((*others, abilities.finetuning))
