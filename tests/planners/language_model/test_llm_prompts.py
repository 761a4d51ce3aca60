"""The wording of prompts, and the parsing of answers."""

import re

import pytest

from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import (
    InvalidAnswerError,
    Names,
    PromptContext,
    first_request,
    parse,
    repair_request,
)

NAMES = Names.of(["make tea", "make\ntoast"], ["boil", "pour", "cut  bread", "heat", "spread"])


def build(horizon=3, *, last=3, true=False, **config):
    given = {"true_ends": true, "true_task": true}
    context = PromptContext(task=0, task_actions=(0, 1), first=0, last=last, **given)
    return first_request(context, NAMES, horizon, LlmConfig(model="m", **config))


def test_the_prompt():
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
    true = build(true=True).messages[1][1]
    marked = facts.replace("Task (recognised)", "Task (given)")
    assert true == marked.replace("step (recognised)", "step (annotated)")


def test_request_fields():
    assert build().body.keys() == {"model", "temperature", "seed"}
    bare = build(temperature=-1.0, seed=-1, extra='{"top_k": 1}').body
    assert bare == {"model": "m", "extra_body": {"top_k": 1}}


def test_the_key_depends_on_all_that_determines_the_answer():
    changes = [{"horizon": 4}, {"seed": 1}, {"temperature": 0.5}, {"extra": '{"a": 1}'}]
    different = [repair_request(build(), "x", "y"), build(last=1)]
    different += [build(**change) for change in changes]
    keys = {build().key("a"), build().key("b"), *(request.key("a") for request in different)}
    assert len(keys) == 8
    for same in ({"concurrency": 3}, {"retries": 1}, {"timeout": 3.0}, {"budget": 7}):
        assert build(**same).key("a") == build().key("a")


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
