"""Requests to a language model, equal to the letter for equal queries, and what answers mean.

Answers are ids, since data sets have several actions of one name. What queries of a task share
comes first, since servers keep what they have read of a common beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.files import NOT_JSON, parse_json
from cefito.planners.language_model.method import LlmConfig

_LEAST = 0.01  # probability of candidates that are told, but for the likeliest
_LINE = re.compile(r"[\[(]?\s*(\d{1,9}(?:(?:\s*(?:,|->|→)\s*|\s+)\d{1,9})*)\s*[\])]?\.?")
_ENDS = "Keep the first and the last step as they are told, and choose those between."
_RULES = {
    "task": "Nothing was recognised of the steps: choose the likeliest ones.",
    "ends": _ENDS,
    "graph": _ENDS,
    "ranked": "What was recognised may be wrong: choose every step so that the whole is likeliest.",
    "pictures": "The first picture shows the moment before the first step, the second picture the "
    "moment after the last step.",
}

Ranked = list[tuple[int, float]]
"""Ids with their probabilities, most probable first."""


def most_probable(
    probabilities: NDArray[np.floating[Any]], count: int, ids: Sequence[int] | None = None
) -> Ranked:
    """Return at most `count` ids of `probabilities` [K], the first and those of 1 % or more.

    Args:
        probabilities: Probabilities [K].
        count: Largest number of ids.
        ids: Id of each probability; by default its place.
    """
    order = np.argsort(-probabilities, kind="stable")[:count]
    kept = [place for place in order if place == order[0] or probabilities[place] >= _LEAST]
    return [(ids[place] if ids else int(place), float(probabilities[place])) for place in kept]


def _listed(ranked: Ranked, names: Sequence[str] | None = None) -> str:
    return ", ".join(f"{names[index] if names else index} {share:.2f}" for index, share in ranked)


@dataclass(frozen=True)
class Request:
    """One request for a plan."""

    texts: tuple[str, ...]  # of the system, the user, the assistant, the user, …
    choices: tuple[tuple[int, ...], ...]  # [T], the allowed actions of each step
    body: dict[str, Any]  # other fields that determine the answer, but for the model
    pictures: tuple[str, ...] = ()  # JPEG files in base64

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the chat protocol."""
        roles = ("system", *["user", "assistant"] * len(self.texts))
        messages: list[dict[str, Any]] = [
            {"role": role, "content": text} for role, text in zip(roles, self.texts, strict=False)
        ]
        if self.pictures:
            urls = [f"data:image/jpeg;base64,{picture}" for picture in self.pictures]
            shown = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            messages[1]["content"] = [{"type": "text", "text": self.texts[1]}, *shown]
        return messages

    def key(self, server: str, model: str) -> str:
        """Return the SHA-256 of all that determines the answer."""
        value = [server, model, self.messages, self.body]
        return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def make_request(
    config: LlmConfig,
    names: tuple[Sequence[str], Sequence[str]],
    *,
    actions: Iterable[int],
    horizon: int,
    tasks: Ranked,
    ends: Sequence[Ranked] = (),
    transitions: NDArray[np.float64] | None = None,
    pictures: tuple[str, ...] = (),
) -> Request:
    """Return the request for one query's plan.

    Args:
        config: Settings; `told` chooses the rule that is stated.
        names: Names of all tasks and of all actions.
        actions: Actions that a plan may contain, besides the ends.
        horizon: T.
        tasks: Candidates of the task.
        ends: Candidates of the first and of the last action, if they are told.
        transitions: Probability of each next action [K, K], if they are told.
        pictures: JPEG files in base64 of the initial observation and the goal, if they are shown.
    """
    listed = list(dict.fromkeys([*actions, *(action for end in ends for action, _ in end)]))
    lines = [f"Task: {names[0][tasks[0][0]]}", "Actions:"]
    lines += [f"{action}: {names[1][action]}" for action in listed]
    if transitions is not None:
        lines.append("What follows each action in other videos, with probabilities:")
        for action in listed:
            row = transitions[action, listed]
            if row.any():
                after = _listed(most_probable(row, config.candidates, listed))
                lines.append(f"{action} -> {after}")
    if len(tasks) > 1:
        lines.append(f"Recognised tasks, with probabilities: {_listed(tasks, names[0])}")
    lines.append(f"Number of steps: {horizon}")
    for name, end in zip(("First", "Last"), ends, strict=False):
        several = len(end) > 1
        told = f", with probabilities: {_listed(end)}" if several else f": {end[0][0]}"
        lines.append(f"{name} step{told}")
    choices = [tuple(listed)] * horizon
    if config.told in ("ends", "graph"):
        first, last = ends[0][0][0], ends[1][0][0]
        middle = choices[2:]
        choices = [(first,), *middle, (last,)] if horizon > 1 else [tuple({first, last})]
    steps = {
        f"step_{step}": {"type": "integer", "enum": list(allowed)}
        for step, allowed in enumerate(choices, 1)
    }
    form = ", ".join(f'"{step}": id' for step in steps)
    instructions = (
        "You plan procedures. You are told about a video in which a person carries out a task: the "
        "task, its actions as `id: name`, and how many steps lie between two moments of the video. "
        "Say which actions the steps are, in the order in which they are done; an action may "
        f"recur. {_RULES[config.told]} Answer with one JSON object of ids and nothing else: "
        f"{{{form}}}"
    )
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
    return Request((instructions, "\n".join(lines)), tuple(choices), body, pictures)


class InvalidAnswerError(ValueError):
    """The answer does not have the requested form; the message is for the model."""


def parse(request: Request, content: str) -> tuple[int, ...]:
    """Return the plan of an answer that is a JSON object of exactly the requested steps."""
    try:
        value = parse_json(content)
    except NOT_JSON as problem:
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
    if "{" in text:
        return parse(request, text[text.rfind("{") : text.rfind("}") + 1])
    line = _LINE.fullmatch(text.splitlines()[-1].strip() if text else "")
    steps = re.findall(r"\d+", line[1]) if line else []
    values = {f"step_{step}": int(action) for step, action in enumerate(steps, 1)}
    return parse(request, json.dumps(values))
