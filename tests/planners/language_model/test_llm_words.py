"""What is told and asked, and how answers are read."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.planners.language_model.parsing import InvalidAnswerError, parse_leniently, read
from cefito.planners.language_model.prompt import Names, first_request, next_request
from cefito.planners.language_model.prompt_context import (
    PromptContext,
    likeliest,
    listed_successors,
)
from cefito.planners.language_model.settings import LlmConfig
from cefito.planners.settings import load_config

NAMES = Names.of(["make tea", "make\ntoast"], ["boil", "pour", "cut  bread", "heat", "spread"])
ENDS = PromptContext(
    tasks=((0, 0.9),),
    task_actions={0: (0, 1)},
    first=((0, 0.8),),
    last=((3, 0.6),),
    settled=True,
)
RANKED = PromptContext(
    tasks=((0, 0.75), (1, 0.25)),
    task_actions={0: (0, 1), 1: (2, 3)},
    first=((0, 0.8), (2, 0.104)),
    last=((3, 0.6), (1, 0.4)),
    settled=False,
    successors={0: ((1, 0.666), (3, 0.1)), 2: ((3, 1.0),)},
    examples=((0, 1, 4), (2, 3, 3)),
)


def asked(sight=ENDS, horizon=3, **config):
    return first_request(sight, NAMES, horizon, LlmConfig(model="m", **config))


def test_what_is_told_of_the_likeliest_ends():
    (_, role), (_, words) = asked().messages
    assert words == (
        "Task (recognised): make tea\n"
        "Actions:\n0: boil\n1: pour\n3: heat\n"
        "Number of steps: 3\n"
        "First step (recognised): 0\n"
        "Last step (recognised): 3"
    )
    assert "Keep the first and the last step as they are given" in role
    assert role.endswith('nothing else: {"step_1": id, "step_2": id, "step_3": id}')


def test_what_is_told_of_ranked_ends():
    (_, role), (_, words) = asked(RANKED).messages
    assert words == (
        "Tasks that were recognised, with their probabilities and actions:\n"
        "0.75 make tea: 0, 1\n"
        "0.25 make toast: 2, 3\n"
        "Actions:\n0: boil\n1: pour\n2: cut bread\n3: heat\n4: spread\n"
        "Number of steps: 3\n"
        "First step (recognised): 0 (0.80), 2 (0.10)\n"
        "Last step (recognised): 3 (0.60), 1 (0.40)\n"
        "What follows each action in training videos, with probabilities:\n"
        "0 -> 1 0.67, 3 0.10\n"
        "2 -> 3 1.00\n"
        "Steps between similar moments of training videos, most similar first:\n"
        "0, 1, 4\n"
        "2, 3, 3"
    )
    assert "What is recognised may be wrong" in role


def test_what_is_true_is_said_to_be():
    sight = PromptContext(**{**vars(ENDS), "annotated": True, "known_task": True})
    words = asked(sight).messages[1][1]
    assert "Task (given): make tea" in words
    assert "First step (annotated): 0\nLast step (annotated): 3" in words
    assert "recognised" not in words


def test_the_schema_holds_answers_to_length_and_ids():
    sent = asked().body["response_format"]["json_schema"]
    assert sent["strict"]
    schema = sent["schema"]
    assert schema["required"] == list(schema["properties"]) == ["step_1", "step_2", "step_3"]
    assert not schema["additionalProperties"]
    assert [step["enum"] for step in schema["properties"].values()] == [[0], [0, 1, 3], [3]]
    several = asked(RANKED, plans=2).body["response_format"]["json_schema"]["schema"]
    assert list(several["properties"]) == ["plan_1", "plan_2"]
    free = several["properties"]["plan_2"]["properties"]
    assert [step["enum"] for step in free.values()] == [[0, 1, 2, 3, 4]] * 3


def test_what_is_sent_along():
    assert asked().body.keys() == {"model", "temperature", "seed", "response_format"}
    bare = asked(temperature=-1.0, seed=-1, answer_format="text", extra='{"top_k": 1}').body
    assert bare == {"model": "m", "extra_body": {"top_k": 1}}
    assert asked(answer_format="object").body["response_format"] == {"type": "json_object"}


def test_the_key_is_of_all_that_determines_the_answer():
    keys = {
        asked().key("a"),
        asked().key("b"),
        asked(RANKED).key("a"),
        asked(horizon=4).key("a"),
        asked(seed=1).key("a"),
        asked(temperature=0.5).key("a"),
        asked(answer_format="text").key("a"),
        asked(extra='{"a": 1}').key("a"),
        asked(plans=2).key("a"),
        next_request(asked(), "x", "y").key("a"),
    }
    assert len(keys) == 10
    same = ("concurrency", 3), ("retries", 1), ("timeout", 3.0), ("budget", 7), ("repairs", 3)
    assert {asked(**dict([entry])).key("a") for entry in same} == {asked().key("a")}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("temperature", -0.5, "expected 0 to 2, or -1"),
        ("extra", "{", "not valid JSON"),
        ("extra", "[]", "expected a JSON object"),
        ("extra", "[" * 100_000, "not valid JSON"),
        ("answer_format", "yaml", "'schema', 'object' or 'text'"),
        ("plans", 0, "greater than or equal to 1"),
        ("budget", 0, "greater than or equal to 1"),
    ],
)
def test_settings_that_cannot_be(key, value, message):
    with pytest.raises(ConfigError, match=message):
        load_config("small", overrides={"llm": {key: value}})


def test_likeliest_and_successors():
    assert likeliest(np.array([0.1, 0.4, 0.4, 0.1]), 3) == ((1, 0.4), (2, 0.4), (0, 0.1))
    transitions = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0], [0.9, 0.1, 0.0]])
    listed = listed_successors(transitions, (0, 2), 5)
    assert listed == {0: ((2, 0.5),), 2: ((0, 0.9),)}
    assert listed_successors(transitions, (0, 1, 2), 1) == {0: ((1, 0.5),), 2: ((0, 0.9),)}


GOOD = '{"step_1": 0, "step_2": 1, "step_3": 3}'


@pytest.mark.parametrize("text", [GOOD, f"\n {GOOD} ", f"```json\n{GOOD}\n```"])
def test_an_answer_that_is_valid(text):
    assert read(asked(), text) == ((0, 1, 3),)


@pytest.mark.parametrize(
    ("text", "problem", "made"),
    [
        ("", "not valid JSON", ()),
        ("I refuse.", "not valid JSON", ()),
        ("[" * 100_000, "not valid JSON", ()),
        ("[0, 1, 3]", "expected an object of step_1, step_2, step_3", ((0, 1, 3),)),
        (f"Sure! {GOOD} Enjoy.", "not valid JSON", ((0, 1, 3),)),
        (f'{{"step_1": 1}} or {GOOD}', "not valid JSON", ((0, 1, 3),)),
        (GOOD.replace(": 1", ": 4"), "step_2 is 4, expected one of 0, 1, 3", ()),
        (GOOD.replace(": 0", ": 1"), "step_1 is 1, expected one of 0", ()),
        (GOOD.replace(": 1", ': "1"'), 'step_2 is "1"', ((0, 1, 3),)),
        (GOOD.replace(": 1", ": true"), "step_2 is true", ()),
        (GOOD.replace(": 1", ": 1.0"), "step_2 is 1.0", ()),
        (GOOD.replace(": 1", ": null"), "step_2 is null", ()),
        (GOOD[:-1] + ', "why": "tea"}', "expected an object of", ((0, 1, 3),)),
        ('{"step_1": 0, "step_2": 1}', "expected an object of", ()),
        (GOOD[:-3], "not valid JSON", ()),
        ("Steps:\n0, 1, 3\n", "not valid JSON", ((0, 1, 3),)),
        ("0 then 1 then 3, I am 0.9 sure", "not valid JSON", ((0, 1, 3),)),
        ("0, 1, 3, 3", "not valid JSON", ()),
        ("0, 1, " + "9" * 5000, "not valid JSON", ()),
    ],
)
def test_an_answer_that_is_not(text, problem, made):
    if problem:
        with pytest.raises(InvalidAnswerError, match=re.escape(problem)):
            read(asked(), text)
    assert parse_leniently(asked(), text) == made


def test_several_plans():
    request = asked(RANKED, plans=3)
    plans = [{"step_1": 0, "step_2": number, "step_3": 3} for number in (1, 2, 1)]
    text = json.dumps({f"plan_{place}": plan for place, plan in enumerate(plans, 1)})
    assert read(request, text) == parse_leniently(request, text) == ((0, 1, 3), (0, 2, 3))
    with pytest.raises(InvalidAnswerError, match="expected an object of plan_1, plan_2, plan_3"):
        read(request, GOOD)
    assert parse_leniently(request, GOOD) == ((0, 1, 3),)


@given(st.text() | st.from_regex(r"(\{|\}|\[|\]|\"step_[1-3]\"|:|,| |\d|true|null){0,40}"))
def test_whatever_is_answered_only_allowed_plans_come_of_it(text):
    request = asked()
    try:
        plans = read(request, text)
    except InvalidAnswerError:
        plans = parse_leniently(request, text)
    for plan in plans:
        assert len(plan) == 3
        assert all(action in allowed for action, allowed in zip(plan, request.choices, strict=True))
