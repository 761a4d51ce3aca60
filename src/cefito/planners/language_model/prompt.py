"""The words of a request: what is told, in lines that are the same to the letter wherever made.

Actions are named once, as `id: name`, and ids are asked for: data sets have actions of one name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from cefito.planners.language_model.prompt_context import PromptContext, Ranked
from cefito.planners.language_model.settings import LlmConfig

__all__ = ["PROMPT", "Names", "Request", "first_request", "next_request"]

PROMPT = 1
"""Version of the words below; raised whenever they change."""


@dataclass(frozen=True)
class Names:
    """Names of tasks and actions, position = id, each on one line."""

    tasks: tuple[str, ...]
    actions: tuple[str, ...]

    @classmethod
    def of(cls, tasks: Sequence[str], actions: Sequence[str]) -> Names:
        """Names with whatever breaks a line as one space."""
        return cls(*(tuple(" ".join(name.split()) for name in names) for names in (tasks, actions)))


@dataclass(frozen=True)
class Request:
    """One request, and what its answer may hold.

    Attributes:
        messages: Role and content of each message.
        choices: The actions that each step may have [T].
        plans: Plans wanted.
        body: All else that is sent and determines the answer.
    """

    messages: tuple[tuple[str, str], ...]
    choices: tuple[tuple[int, ...], ...]
    plans: int
    body: dict[str, Any]

    def key(self, host: str) -> str:
        """SHA-256 of all that determines the answer: the host, the messages, what is sent along."""
        value = [host, PROMPT, self.messages, self.body]
        return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def first_request(sight: PromptContext, names: Names, horizon: int, config: LlmConfig) -> Request:
    """The request for a query's plans.

    Args:
        sight: What is told of the query.
        names: Names of tasks and actions.
        horizon: T, the actions of a plan.
        config: The model and how it answers.
    """
    choices = sight.choices(horizon)
    body: dict[str, Any] = {"model": config.model}
    if config.temperature >= 0:
        body["temperature"] = config.temperature
    if config.seed >= 0:
        body["seed"] = config.seed
    if config.answer_format == "schema":
        schema = {"name": "plan", "strict": True, "schema": _schema(choices, config.plans)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif config.answer_format == "object":
        body["response_format"] = {"type": "json_object"}
    if config.extra:
        body["extra_body"] = json.loads(config.extra)
    return Request(
        messages=(
            ("system", _role(sight, horizon, config.plans)),
            ("user", "\n".join(_lines(sight, names, horizon))),
        ),
        choices=choices,
        plans=config.plans,
        body=body,
    )


def next_request(request: Request, answered: str, problem: str) -> Request:
    """The request that is made where an answer is invalid.

    Args:
        request: The request that was made.
        answered: What came.
        problem: What is wrong with it.
    """
    more = (
        ("assistant", answered or "(no answer)"),
        ("user", f"This answer is invalid: {problem}. Answer again, with the JSON object alone."),
    )
    return replace(request, messages=(*request.messages, *more))


def _role(sight: PromptContext, horizon: int, plans: int) -> str:
    ends = (
        "Keep the first and the last step as they are given, and choose those between."
        if sight.settled
        else "What is recognised may be wrong: choose every step so that the whole is likeliest."
    )
    one = "{" + ", ".join(f'"step_{step}": id' for step in range(1, horizon + 1)) + "}"
    form = one
    if plans > 1:
        form = "{" + ", ".join(f'"plan_{plan}": {one}' for plan in range(1, plans + 1)) + "}"
    many = "" if plans == 1 else f" Give {plans} different plans, the likeliest first."
    return (
        "You plan procedures. You are told what is known of a video in which a person carries out "
        "a task: the task, its actions as `id: name`, how many steps lie between two moments of "
        "the video, and what is known of the first and the last of these steps. Say which actions "
        f"the steps are, in the order in which they are done; an action may recur. {ends}{many} "
        f"Answer with one JSON object of ids and nothing else: {form}"
    )


def _lines(sight: PromptContext, names: Names, horizon: int) -> list[str]:
    (task, _), *others = sight.tasks
    if others:
        lines = ["Tasks that were recognised, with their probabilities and actions:"]
        lines += [
            f"{share:.2f} {names.tasks[one]}: {_ids(sight.task_actions[one])}"
            for one, share in sight.tasks
        ]
    else:
        known = "given" if sight.known_task else "recognised"
        lines = [f"Task ({known}): {names.tasks[task]}"]
    lines += ["Actions:", *(f"{action}: {names.actions[action]}" for action in sight.actions)]
    lines.append(f"Number of steps: {horizon}")
    seen = "annotated" if sight.annotated else "recognised"
    lines.append(f"First step ({seen}): {_ranked(sight.first)}")
    lines.append(f"Last step ({seen}): {_ranked(sight.last)}")
    if sight.successors:
        lines.append("What follows each action in training videos, with probabilities:")
        lines += [
            f"{action} -> " + ", ".join(f"{after} {share:.2f}" for after, share in row)
            for action, row in sight.successors.items()
        ]
    if sight.examples:
        lines.append("Steps between similar moments of training videos, most similar first:")
        lines += [_ids(row) for row in sight.examples]
    return lines


def _ranked(candidates: Ranked) -> str:
    if len(candidates) == 1:
        return str(candidates[0][0])
    return ", ".join(f"{action} ({share:.2f})" for action, share in candidates)


def _ids(actions: Sequence[int]) -> str:
    return ", ".join(map(str, actions))


def _schema(choices: Sequence[Sequence[int]], plans: int) -> dict[str, Any]:
    """A JSON schema of an answer: every step an id that it may have, none left out."""
    steps = {
        f"step_{step}": {"type": "integer", "enum": list(allowed)}
        for step, allowed in enumerate(choices, 1)
    }
    one = _object(steps)
    return one if plans == 1 else _object({f"plan_{plan}": one for plan in range(1, plans + 1)})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
