"""Requests to a language model, equal to the letter for equal queries, and what answers mean.

Answers are ids, since data sets have several actions of one name. What queries of a task share
comes first, since servers keep what they have read of a common beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.planners.language_model.method import LlmConfig

_LEAST = 0.01  # probability of candidates that are told
_LINE = re.compile(r"[\[(]?\s*(\d+(?:(?:\s*(?:,|->|→)\s*|\s+)\d+)*)\s*[\])]?\.?")
_RULES = {
    "task": "Nothing was recognised of the steps: choose the likeliest ones.",
    "ends": "Keep the first and the last step as they are told, and choose those between.",
    "ranked": "What was recognised may be wrong: choose every step so that the whole is likeliest.",
    "pictures": "The first picture shows the moment before the first step, the second picture the "
    "moment after the last step.",
}
_RULES["graph"] = _RULES["ends"]

Ranked = tuple[tuple[int, float], ...]
"""Ids with their probabilities, most probable first."""


def most_probable(probabilities: NDArray[np.floating[Any]], count: int) -> Ranked:
    """Return at most `count` ids of `probabilities` [K], the first and those of 1 % or more."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    ranked = tuple((int(index), float(probabilities[index])) for index in order)
    return ranked[:1] + tuple(entry for entry in ranked[1:] if entry[1] >= _LEAST)


@dataclass(frozen=True, kw_only=True)
class PromptFacts:
    """What the request about one query tells."""

    tasks: Ranked
    task_actions: Sequence[tuple[int, ...]]  # of every task
    horizon: int
    first: Ranked = ()  # recognised actions of the first step; none to tell nothing
    last: Ranked = ()
    successors: Mapping[int, Ranked] | None = None  # of each action; None to tell nothing
    pictures: tuple[str, ...] = ()  # JPEG files in base64

    @property
    def actions(self) -> tuple[int, ...]:
        """The actions that a plan may contain: of the likeliest task first, ends outside last."""
        ends = [action for action, _ in (*self.first, *self.last)]
        listed = (action for task, _ in self.tasks for action in self.task_actions[task])
        return tuple(dict.fromkeys([*listed, *ends]))

    def choices(self, told: str) -> tuple[tuple[int, ...], ...]:
        """The allowed actions of each step [T]; those told for certain are kept."""
        if told not in ("ends", "graph"):
            return (self.actions,) * self.horizon
        first, last = self.first[0][0], self.last[0][0]
        if self.horizon == 1:
            return (tuple(dict.fromkeys([first, last])),)
        return ((first,), *[self.actions] * (self.horizon - 2), (last,))

    def lines(self, tasks: Sequence[str], actions: Sequence[str]) -> list[str]:
        """The lines of the request, with the names of all tasks and actions."""
        lines = [f"Task: {tasks[self.tasks[0][0]]}", "Actions:"]
        lines += [f"{action}: {actions[action]}" for action in self.actions]
        if self.successors is not None:
            lines.append("What follows each action in other videos, with probabilities:")
            following = self.successors.items()
            lines += [f"{action} -> {_listed(ranked)}" for action, ranked in following if ranked]
        if len(self.tasks) > 1:
            shown = ", ".join(f"{tasks[task]} {share:.2f}" for task, share in self.tasks)
            lines.append(f"Recognised tasks, with probabilities: {shown}")
        lines.append(f"Number of steps: {self.horizon}")
        for name, ranked in (("First", self.first), ("Last", self.last)):
            if len(ranked) > 1:
                lines.append(f"{name} step, with probabilities: {_listed(ranked)}")
            elif ranked:
                lines.append(f"{name} step: {ranked[0][0]}")
        return lines


def _listed(ranked: Ranked) -> str:
    return ", ".join(f"{action} {share:.2f}" for action, share in ranked)


@dataclass(frozen=True)
class Request:
    """One request for a plan."""

    messages: tuple[dict[str, Any], ...]
    choices: tuple[tuple[int, ...], ...]  # [T], the allowed actions of each step
    body: Mapping[str, Any]  # the other fields that determine the answer, but for the model

    def key(self, server: str, model: str) -> str:
        """Return the SHA-256 of all that determines the answer."""
        value = [server, model, self.messages, self.body]
        return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    def again(self, answer: str, problem: str) -> Request:
        """Return the request that follows an invalid answer and says what is wrong with it."""
        said = f"This answer is invalid: {problem}. Answer again, with the JSON object alone."
        more = ("assistant", answer or "(no answer)"), ("user", said)
        messages = ({"role": role, "content": content} for role, content in more)
        return replace(self, messages=(*self.messages, *messages))


def make_request(
    facts: PromptFacts, tasks: Sequence[str], actions: Sequence[str], config: LlmConfig
) -> Request:
    """Return the request for one query's plan; `tasks` and `actions` are all names."""
    choices = facts.choices(config.told)
    steps = {
        f"step_{step}": {"type": "integer", "enum": list(allowed)}
        for step, allowed in enumerate(choices, 1)
    }
    schema = {
        "type": "object",
        "properties": steps,
        "required": list(steps),
        "additionalProperties": False,
    }
    wanted = {"name": "plan", "strict": True, "schema": schema}
    body: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": wanted}}
    body |= {"temperature": config.temperature} if config.temperature >= 0 else {}
    body |= {"seed": config.seed} if config.seed >= 0 else {}
    body |= {"extra_body": json.loads(config.extra)} if config.extra else {}
    form = ", ".join(f'"{step}": id' for step in steps)
    instructions = (
        "You plan procedures. You are told about a video in which a person carries out a task: the "
        "task, its actions as `id: name`, and how many steps lie between two moments of the video. "
        "Say which actions the steps are, in the order in which they are done; an action may "
        f"recur. {_RULES[config.told]} Answer with one JSON object of ids and nothing else: "
        f"{{{form}}}"
    )
    text = "\n".join(facts.lines(tasks, actions))
    content: Any = text
    if facts.pictures:
        urls = [f"data:image/jpeg;base64,{picture}" for picture in facts.pictures]
        shown = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        content = [{"type": "text", "text": text}, *shown]
    messages = {"role": "system", "content": instructions}, {"role": "user", "content": content}
    return Request(messages, choices, body)


class InvalidAnswerError(ValueError):
    """The answer does not have the requested form; the message is for the model."""


def parse(request: Request, content: str) -> tuple[int, ...]:
    """Return the plan of an answer that is a JSON object of exactly the requested steps."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise InvalidAnswerError("it is not valid JSON") from problem
    names = [f"step_{step}" for step in range(1, len(request.choices) + 1)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise InvalidAnswerError(f"expected an object of {', '.join(names)}")
    for name, allowed in zip(names, request.choices, strict=True):
        if type(value[name]) is not int or value[name] not in allowed:
            shown, listed = json.dumps(value[name])[:40], ", ".join(map(str, allowed))
            raise InvalidAnswerError(f"{name} is {shown}, expected one of {listed}")
    return tuple(value[name] for name in names)


def parse_end(request: Request, content: str) -> tuple[int, ...]:
    """Return the plan of the last JSON object in a text, or of ids alone in its last line."""
    text = content.strip()
    place = text.rfind("{")
    if place >= 0:
        return parse(request, text[place : text.rfind("}") + 1])
    line = _LINE.fullmatch(text.splitlines()[-1].strip() if text else "")
    steps = re.findall(r"\d+", line[1]) if line else []
    values = {f"step_{step}": int(action) for step, action in enumerate(steps, 1)}
    return parse(request, json.dumps(values))
