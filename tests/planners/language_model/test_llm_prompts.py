"""The wording of prompts, and the parsing of answers."""

import re
from dataclasses import replace

import numpy as np
import pytest

from cefito.planners.language_model.dialogue import InvalidAnswerError, parse
from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import (
    Names,
    PromptContext,
    first_request,
    most_probable,
    probable_successors,
    repair_request,
)

NAMES = Names.of(["make tea", "make\ntoast"], ["boil", "pour", "cut  bread", "heat", "spread"])
ENDS = PromptContext(
    tasks=((0, 0.9),),
    task_actions={0: (0, 1)},
    first=((0, 0.8),),
    last=((3, 0.6),),
    fixed_ends=True,
)
RANKED = PromptContext(
    tasks=((0, 0.75), (1, 0.25)),
    task_actions={0: (0, 1), 1: (2, 3)},
    first=((0, 0.8), (2, 0.104)),
    last=((3, 0.6), (1, 0.4)),
    fixed_ends=False,
    successors={0: ((1, 0.666), (3, 0.1)), 2: ((3, 1.0),)},
)


def build(context=ENDS, horizon=3, **config):
    return first_request(context, NAMES, horizon, LlmConfig(model="m", **config))


def test_the_prompt_of_recognised_ends():
    (_, instructions), (_, facts) = build().messages
    assert facts == (
        "Task (recognised): make tea\n"
        "Actions:\n0: boil\n1: pour\n3: heat\n"
        "Number of steps: 3\n"
        "First step (recognised): 0\n"
        "Last step (recognised): 3"
    )
    assert "Keep the first and the last step as they are given" in instructions
    assert instructions.endswith('nothing else: {"step_1": id, "step_2": id, "step_3": id}')
    true = build(replace(ENDS, true_ends=True, true_task=True)).messages[1][1]
    marked = facts.replace("Task (recognised)", "Task (given)")
    assert true == marked.replace("step (recognised)", "step (annotated)")


def test_the_prompt_of_ranked_ends():
    (_, instructions), (_, facts) = build(RANKED).messages
    assert facts == (
        "Tasks that were recognised, with their probabilities and actions:\n"
        "0.75 make tea: 0, 1\n"
        "0.25 make toast: 2, 3\n"
        "Actions:\n0: boil\n1: pour\n2: cut bread\n3: heat\n"
        "Number of steps: 3\n"
        "First step (recognised): 0 (0.80), 2 (0.10)\n"
        "Last step (recognised): 3 (0.60), 1 (0.40)\n"
        "What follows each action in training videos, with probabilities:\n"
        "0 -> 1 0.67, 3 0.10\n"
        "2 -> 3 1.00"
    )
    assert "What is recognised may be wrong" in instructions


def test_the_schema_fixes_length_and_ids():
    sent = build().body["response_format"]["json_schema"]
    assert sent["strict"]
    schema = sent["schema"]
    assert schema["required"] == list(schema["properties"]) == ["step_1", "step_2", "step_3"]
    assert not schema["additionalProperties"]
    assert [step["enum"] for step in schema["properties"].values()] == [[0], [0, 1, 3], [3]]
    free = build(RANKED).body["response_format"]["json_schema"]["schema"]["properties"]
    assert [step["enum"] for step in free.values()] == [[0, 1, 2, 3]] * 3


def test_request_fields():
    assert build().body.keys() == {"model", "temperature", "seed", "response_format"}
    bare = build(temperature=-1.0, seed=-1, answer_format="text", extra='{"top_k": 1}').body
    assert bare == {"model": "m", "extra_body": {"top_k": 1}}
    assert build(answer_format="object").body["response_format"] == {"type": "json_object"}


def test_the_key_depends_on_all_that_determines_the_answer():
    changes = [{"horizon": 4}, {"seed": 1}, {"temperature": 0.5}]
    changes += [{"answer_format": "text"}, {"extra": '{"a": 1}'}, {"context": RANKED}]
    different = [repair_request(build(), "x", "y"), *(build(**change) for change in changes)]
    keys = {build().key("a"), build().key("b"), *(request.key("a") for request in different)}
    assert len(keys) == 9
    for same in ({"concurrency": 3}, {"retries": 1}, {"timeout": 3.0}, {"budget": 7}):
        assert build(**same).key("a") == build().key("a")


def test_most_probable_ids_and_successors():
    assert most_probable(np.array([0.1, 0.4, 0.4, 0.1]), 3) == ((1, 0.4), (2, 0.4), (0, 0.1))
    transitions = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0], [0.9, 0.1, 0.0]])
    assert probable_successors(transitions, (0, 2), 5) == {0: ((2, 0.5),), 2: ((0, 0.9),)}
    assert probable_successors(transitions, (0, 1, 2), 1) == {0: ((1, 0.5),), 2: ((0, 0.9),)}


GOOD = '{"step_1": 0, "step_2": 1, "step_3": 3}'


@pytest.mark.parametrize("text", [GOOD, f"\n {GOOD} ", f"```json\n{GOOD}\n```"])
def test_valid_answers(text):
    assert parse(build(), text) == (0, 1, 3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 100_000, "not valid JSON"),
        ("[0, 1, 3]", "expected an object of step_1, step_2, step_3"),
        (f'{{"step_1": 1}} or {GOOD}', "not valid JSON"),
        (GOOD.replace(": 1", ": 4"), "step_2 is 4, expected one of 0, 1, 3"),
        (GOOD.replace(": 0", ": 1"), "step_1 is 1, expected one of 0"),
        (GOOD.replace(": 1", ': "1"'), 'step_2 is "1"'),
        (GOOD.replace(": 1", ": true"), "step_2 is true"),
        (GOOD.replace(": 1", ": 1.0"), "step_2 is 1.0"),
        (GOOD[:-1] + ', "why": "tea"}', "expected an object of"),
        ('{"step_1": 0, "step_2": 1}', "expected an object of"),
        (GOOD[:-3], "not valid JSON"),
        ("0, 1, 3", "not valid JSON"),
    ],
)
def test_invalid_answers(text, problem):
    with pytest.raises(InvalidAnswerError, match=re.escape(problem)):
        parse(build(), text)
