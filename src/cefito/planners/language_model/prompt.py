"""Requests to a language model: prompts that are equal to the letter for equal queries.

Answers are ids, since data sets have several actions of one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from cefito.planners.language_model.method import LlmConfig

PROMPT_VERSION = 2  # of the wording below; raised with every change
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class PromptContext:
    """The facts that the prompt of one query states."""

    task: int
    task_actions: tuple[int, ...]  # in training windows
    first: int  # action that plans must keep
    last: int
    true_ends: bool = False  # annotated rather than recognised
    true_task: bool = False

    @property
    def actions(self) -> tuple[int, ...]:
        """All actions that a plan may contain, ascending: of the task and of the ends."""
        return tuple(sorted({self.first, self.last, *self.task_actions}))

    def choices(self, horizon: int) -> tuple[tuple[int, ...], ...]:
        """The allowed actions of each step [T]."""
        return ((self.first,), *[self.actions] * (horizon - 2), (self.last,))


@dataclass(frozen=True)
class Names:
    """Names of tasks and actions, index = id, each on one line."""

    tasks: tuple[str, ...]
    actions: tuple[str, ...]

    @classmethod
    def of(cls, tasks: Sequence[str], actions: Sequence[str]) -> Names:
        """Return the names with all white space collapsed to single spaces."""
        return cls(*(tuple(" ".join(name.split()) for name in names) for names in (tasks, actions)))


@dataclass(frozen=True)
class Request:
    """One request for a plan."""

    messages: tuple[tuple[str, str], ...]  # role and content
    choices: tuple[tuple[int, ...], ...]  # [T], the allowed actions of each step
    body: dict[str, Any]  # all other fields that determine the answer

    def key(self, host: str) -> str:
        """Return the SHA-256 of all that determines the answer: host, messages and body."""
        value = [host, PROMPT_VERSION, self.messages, self.body]
        return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class InvalidAnswerError(ValueError):
    """The answer does not have the requested form; the message is for the model."""


def first_request(context: PromptContext, names: Names, horizon: int, config: LlmConfig) -> Request:
    """Build the request for one query's plan of T = `horizon` actions."""
    body: dict[str, Any] = {"model": config.model}
    if config.temperature >= 0:
        body["temperature"] = config.temperature
    if config.seed >= 0:
        body["seed"] = config.seed
    if config.extra:
        body["extra_body"] = json.loads(config.extra)
    form = "{" + ", ".join(f'"step_{step}": id' for step in range(1, horizon + 1)) + "}"
    instructions = (
        "You plan procedures. You are told what is known of a video in which a person carries out "
        "a task: the task, its actions as `id: name`, how many steps lie between two moments of "
        "the video, and the first and the last of these steps. Say which actions "
        "the steps are, in the order in which they are done; an action may recur. "
        "Keep the first and the last step as they are given, and choose those between. "
        f"Answer with one JSON object of ids and nothing else: {form}"
    )
    task, ends = (
        "given" if context.true_task else "recognised",
        "annotated" if context.true_ends else "recognised",
    )
    facts = (
        f"Task ({task}): {names.tasks[context.task]}",
        "Actions:",
        *(f"{action}: {names.actions[action]}" for action in context.actions),
        f"Number of steps: {horizon}",
        f"First step ({ends}): {context.first}",
        f"Last step ({ends}): {context.last}",
    )
    messages = (("system", instructions), ("user", "\n".join(facts)))
    return Request(messages, context.choices(horizon), body)


def repair_request(request: Request, answer: str, problem: str) -> Request:
    """Build the request that follows an invalid answer, stating what is wrong with it."""
    more = (
        ("assistant", answer or "(no answer)"),
        ("user", f"This answer is invalid: {problem}. Answer again, with the JSON object alone."),
    )
    return replace(request, messages=(*request.messages, *more))


def parse(request: Request, content: str) -> tuple[int, ...]:
    """Return the plan of a JSON object of exactly the requested steps."""
    text = content.strip()
    fenced = _FENCE.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as problem:
        raise InvalidAnswerError("it is not valid JSON") from problem
    names = [f"step_{step}" for step in range(1, len(request.choices) + 1)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise InvalidAnswerError(f"expected an object of {', '.join(names)}")
    for name, allowed in zip(names, request.choices, strict=True):
        given = value[name]
        if type(given) is not int or given not in allowed:
            shown = json.dumps(given)[:40]
            raise InvalidAnswerError(
                f"{name} is {shown}, expected one of {', '.join(map(str, allowed))}"
            )
    return tuple(value[name] for name in names)
