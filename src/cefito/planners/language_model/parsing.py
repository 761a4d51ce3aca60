"""Read plans from answers: strictly in the requested form, or leniently."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cefito.planners.language_model.prompt import Request

__all__ = ["InvalidAnswerError", "Sequences", "parse_leniently", "parse_strictly"]

Sequences = tuple[tuple[int, ...], ...]
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
_LONGEST = 20_000  # characters at the end of an answer that lenient parsing reads


class InvalidAnswerError(ValueError):
    """The answer does not have the requested form; the message is for the model."""


def parse_strictly(request: Request, content: str) -> Sequences:
    """Return the plans of a JSON object of exactly the requested steps, best first, each once."""
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
    names = _step_names(request)
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


def _step_names(request: Request) -> list[str]:
    return [f"step_{step}" for step in range(1, len(request.choices) + 1)]


def parse_leniently(request: Request, content: str) -> Sequences:
    """Return the plans found in an invalid answer, which may be none.

    They are the JSON objects that contain all steps, however badly written (the last one, if one
    plan was requested); otherwise the T whole numbers of the last line. Every id must be allowed.
    """
    import json_repair

    text, names = content[-_LONGEST:], _step_names(request)
    try:
        objects = list(_objects(json_repair.loads(text)))
    except (ValueError, RecursionError):  # nested too deeply
        objects = []
    given = [[part[name] for name in names] for part in objects if part.keys() >= set(names)]
    found = [sequence for ids in given if (sequence := _allowed(request, ids)) is not None]
    if found:
        return tuple(dict.fromkeys(found)) if request.plans > 1 else (found[-1],)
    *_, last = ["", *(line for line in text.splitlines() if line.strip())]
    sequence = _allowed(request, re.findall(r"(?<![\w.])\d+(?!\w|\.\d)", last))
    return () if sequence is None else (sequence,)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON value, outer ones first."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _objects(part)


def _allowed(request: Request, given: list[Any]) -> tuple[int, ...] | None:
    """Return the ids as numbers if there are T and each is allowed at its step."""
    texts = [str(part).strip() for part in given]
    if len(texts) != len(request.choices) or not all(
        re.fullmatch(r"[0-9]{1,9}", text) for text in texts
    ):
        return None
    actions = tuple(map(int, texts))
    fits = all(action in row for action, row in zip(actions, request.choices, strict=True))
    return actions if fits else None
