"""Requests to a language model: prompts that are equal to the letter for equal queries.

Answers are ids, since data sets have several actions of one name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.planners.language_model.method import LlmConfig

Ranked = tuple[tuple[int, float], ...]  # ids with their probabilities, most probable first


@dataclass(frozen=True, kw_only=True)
class PromptContext:
    """The facts that the prompt of one query states."""

    tasks: Ranked
    task_actions: Mapping[int, tuple[int, ...]]  # in training windows
    first: Ranked
    last: Ranked
    fixed_ends: bool  # plans must keep the first and the last action
    true_ends: bool = False  # annotated rather than recognised
    true_task: bool = False
    successors: Mapping[int, Ranked] = field(default_factory=dict)  # in training; may be unstated

    @property
    def actions(self) -> tuple[int, ...]:
        """All actions that a plan may contain, ascending: of the tasks and of the ends."""
        ends = {action for action, _ in (*self.first, *self.last)}
        return tuple(sorted(ends.union(*self.task_actions.values())))

    def choices(self, horizon: int) -> tuple[tuple[int, ...], ...]:
        """The allowed actions of each step [T]."""
        choices = [self.actions] * horizon
        if self.fixed_ends:
            choices[0], choices[-1] = (self.first[0][0],), (self.last[0][0],)
        return tuple(choices)


def most_probable(probabilities: NDArray[np.floating], count: int) -> Ranked:
    """Return the `count` most probable ids of `probabilities` [K]; ties by id."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return tuple((int(index), float(probabilities[index])) for index in order)


def probable_successors(
    transitions: NDArray[np.float64], actions: Sequence[int], count: int
) -> dict[int, Ranked]:
    """Return at most `count` successors of each listed action among them, as seen in training.

    `transitions` [K, K]: probability of each next action, rows are the earlier one.
    """
    successors = {}
    for action in actions:
        ranked = most_probable(transitions[action, list(actions)], count)
        seen = tuple((actions[place], share) for place, share in ranked if share > 0)
        if seen:
            successors[action] = seen
    return successors


PROMPT_VERSION = 1  # of the wording below; raised with every change


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


def first_request(context: PromptContext, names: Names, horizon: int, config: LlmConfig) -> Request:
    """Build the request for one query's plan of T = `horizon` actions."""
    choices = context.choices(horizon)
    body: dict[str, Any] = {"model": config.model}
    if config.temperature >= 0:
        body["temperature"] = config.temperature
    if config.seed >= 0:
        body["seed"] = config.seed
    if config.answer_format == "schema":
        schema = {"name": "plan", "strict": True, "schema": _schema(choices)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif config.answer_format == "object":
        body["response_format"] = {"type": "json_object"}
    if config.extra:
        body["extra_body"] = json.loads(config.extra)
    messages = (
        ("system", _instructions(context, horizon)),
        ("user", "\n".join(_facts(context, names, horizon))),
    )
    return Request(messages, choices, body)


def repair_request(request: Request, answer: str, problem: str) -> Request:
    """Build the request that follows an invalid answer, stating what is wrong with it."""
    more = (
        ("assistant", answer or "(no answer)"),
        ("user", f"This answer is invalid: {problem}. Answer again, with the JSON object alone."),
    )
    return replace(request, messages=(*request.messages, *more))


def _instructions(context: PromptContext, horizon: int) -> str:
    ends = (
        "Keep the first and the last step as they are given, and choose those between."
        if context.fixed_ends
        else "What is recognised may be wrong: choose every step so that the whole is likeliest."
    )
    form = "{" + ", ".join(f'"step_{step}": id' for step in range(1, horizon + 1)) + "}"
    return (
        "You plan procedures. You are told what is known of a video in which a person carries out "
        "a task: the task, its actions as `id: name`, how many steps lie between two moments of "
        "the video, and what is known of the first and the last of these steps. Say which actions "
        f"the steps are, in the order in which they are done; an action may recur. {ends} "
        f"Answer with one JSON object of ids and nothing else: {form}"
    )


def _facts(context: PromptContext, names: Names, horizon: int) -> list[str]:
    if len(context.tasks) > 1:
        lines = ["Tasks that were recognised, with their probabilities and actions:"]
        lines += [
            f"{share:.2f} {names.tasks[task]}: {_ids(context.task_actions[task])}"
            for task, share in context.tasks
        ]
    else:
        source = "given" if context.true_task else "recognised"
        lines = [f"Task ({source}): {names.tasks[context.tasks[0][0]]}"]
    lines += ["Actions:", *(f"{action}: {names.actions[action]}" for action in context.actions)]
    lines.append(f"Number of steps: {horizon}")
    source = "annotated" if context.true_ends else "recognised"
    lines.append(f"First step ({source}): {_ranked(context.first)}")
    lines.append(f"Last step ({source}): {_ranked(context.last)}")
    if context.successors:
        lines.append("What follows each action in training videos, with probabilities:")
        lines += [
            f"{action} -> " + ", ".join(f"{after} {share:.2f}" for after, share in row)
            for action, row in context.successors.items()
        ]
    return lines


def _ranked(candidates: Ranked) -> str:
    if len(candidates) == 1:
        return str(candidates[0][0])
    return ", ".join(f"{action} ({share:.2f})" for action, share in candidates)


def _ids(actions: Sequence[int]) -> str:
    return ", ".join(map(str, actions))


def _schema(choices: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the JSON schema of an answer: every step required, with its allowed ids."""
    steps = {
        f"step_{step}": {"type": "integer", "enum": list(allowed)}
        for step, allowed in enumerate(choices, 1)
    }
    return {
        "type": "object",
        "properties": steps,
        "required": list(steps),
        "additionalProperties": False,
    }
