"""Reading answers: strictly as they were asked for, or what can be made of them."""

from __future__ import annotations

import json
import re
from typing import Any

from cefito.planners.language_model.prompt import Request

__all__ = ["InvalidAnswerError", "Sequences", "parse_leniently", "read"]

Sequences = tuple[tuple[int, ...], ...]
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
_LONGEST = 20_000  # characters of an answer that are looked at where it is not what was asked for


class InvalidAnswerError(ValueError):
    """An answer is not what was asked for; the message says what is wrong, for the model."""


def read(request: Request, content: str) -> Sequences:
    """The plans of an answer, without repeats, the likeliest first.

    Args:
        request: What was asked.
        content: The answer.

    Raises:
        InvalidAnswerError: It is not what was asked for: no JSON object, a step that is missing or
            has an id that it may not have, or something else beside the steps.
    """
    text = content.strip()
    fenced = _FENCE.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as problem:
        raise InvalidAnswerError("it is not valid JSON") from problem
    if request.plans == 1:
        return (_sequence(request, value),)
    _check_keys(value, [f"plan_{plan}" for plan in range(1, request.plans + 1)])
    return tuple(dict.fromkeys(_sequence(request, part) for part in value.values()))


def _sequence(request: Request, value: Any) -> tuple[int, ...]:
    names = [f"step_{step}" for step in range(1, len(request.choices) + 1)]
    _check_keys(value, names)
    for name, allowed in zip(names, request.choices, strict=True):
        given = value[name]
        if type(given) is not int or given not in allowed:
            shown = json.dumps(given)[:40]
            raise InvalidAnswerError(
                f"{name} is {shown}, expected one of {', '.join(map(str, allowed))}"
            )
    return tuple(value[name] for name in names)


def _check_keys(value: Any, names: list[str]) -> None:
    if not isinstance(value, dict) or set(value) != set(names):
        raise InvalidAnswerError(f"expected an object of {', '.join(names)}")


def parse_leniently(request: Request, content: str) -> Sequences:
    """The plans that can be made of an answer that is not what was asked for; perhaps none.

    These are the last JSON object in it that holds the steps, be their ids text and other entries
    beside them; else the whole numbers of its last line, if there are T. Every id must be one that
    its step may have.

    Args:
        request: What was asked.
        content: The answer.
    """
    text, found = content[-_LONGEST:], []
    for place in [brace.start() for brace in re.finditer(r"\{", text)]:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        sequence = _loosely(request, value)
        if sequence is not None:
            found.append(sequence)
    if found:
        return tuple(dict.fromkeys(found)) if request.plans > 1 else (found[-1],)
    lines = [line for line in text.splitlines() if line.strip()]
    numbers = re.findall(r"(?<![\w.])\d+(?!\w|\.\d)", lines[-1]) if lines else []
    sequence = _allowed(request, numbers)
    return () if sequence is None else (sequence,)


def _loosely(request: Request, value: Any) -> tuple[int, ...] | None:
    names = [f"step_{step}" for step in range(1, len(request.choices) + 1)]
    if not isinstance(value, dict) or any(name not in value for name in names):
        return None
    return _allowed(request, [value[name] for name in names])


def _allowed(request: Request, given: list[Any]) -> tuple[int, ...] | None:
    """Ids, if they are T and each is one that its step may have."""
    texts = [str(part).strip() for part in given if not isinstance(part, bool)]
    if len(texts) != len(request.choices):
        return None
    if not all(re.fullmatch(r"[0-9]{1,9}", text) for text in texts):
        return None
    actions = tuple(map(int, texts))
    fitting = all(
        action in allowed for action, allowed in zip(actions, request.choices, strict=True)
    )
    return actions if fitting else None
