"""The table of bad requests: what each is given, and what it gets.

Every row is tried by `test_bad_requests.py`; `python tests/serve/bad_requests.py` writes the table
of docs/serve.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

JSON = {"content-type": "application/json"}
PLAN = "/v1/plan"


@dataclass(frozen=True)
class Bad:
    """A bad request.

    Attributes:
        title: What is bad about it.
        status: What it gets.
        says: Words of its detail.
        body: Changes of a good request's fields, or the bytes of the body.
        path: Where it is sent.
        headers: Sent with it.
        method: How it is sent.
    """

    title: str
    status: int
    says: str
    body: dict[str, Any] | bytes | None = None
    path: str = PLAN
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"


def packed(*numbers: float) -> str:
    """Base64 of little-endian float32."""
    import struct

    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def _observed(initial: Any, goal: Any = None) -> dict[str, Any]:
    good = [0.5] * 8
    return {"observations": {"initial": initial, "goal": good if goal is None else goal}}


def _constrained(**parts: Any) -> dict[str, Any]:
    return {"constraints": parts}


BODIES = (
    Bad("no body", 422, "", b""),
    Bad("not JSON", 422, "JSON", b"{not json"),
    Bad("not UTF-8", 400, "cannot be read", b'{"run": "\xff\xfe"}'),
    Bad("JSON of another type", 422, "valid dict", b"[1, 2]"),
    Bad("null", 422, "", b"null"),
    Bad("100,000 brackets", 400, "cannot be read", b"[" * 100_000),
    Bad("a number of 10,000 digits", 400, "cannot be read", b'{"top_k": ' + b"9" * 10_000 + b"}"),
    Bad(
        "JSON sent as text",
        422,
        "",
        json.dumps({}).encode(),
        headers={"content-type": "text/plain"},
    ),
    Bad("an unknown field", 422, "nonsense: Extra inputs", {"nonsense": 1}),
    Bad("half a surrogate in a name", 422, "", b'{"run": "\\ud800"}'),
    Bad("half a surrogate as a field", 422, "", b'{"\\ud800": 1}'),
    Bad("a body of 5 MiB", 413, "at most 4,194,304", b" " * (5 << 20)),
)
SOURCES = (
    Bad("no observations", 422, "exactly one of", {"observations": None}),
    Bad("observations and a video", 422, "exactly one of", {"video": {"id": "a"}}),
    Bad(
        "one observation",
        422,
        "observations.goal: Field required",
        {"observations": {"initial": [1.0]}},
    ),
    Bad("an empty list", 422, "at least 1 item", _observed([])),
    Bad("too few numbers", 422, "'initial' has 2 numbers and 'goal' 8", _observed([1.0, 2.0])),
    Bad(
        "both too short",
        422,
        "have 2 features; this run was trained on 8",
        _observed([1, 2], [1, 2]),
    ),
    Bad("200,000 numbers", 422, "at most 131072 items", _observed([0] * 200_000)),
    Bad("numbers as text", 422, "valid number", _observed(["1"] * 8)),
    Bad("true among numbers", 422, "valid number", _observed([True] * 8)),
    Bad("null among numbers", 422, "valid number", _observed([None] * 8)),
    Bad("numbers in lists", 422, "valid number", _observed([[1.0]] * 8)),
    Bad(
        "NaN",
        422,
        "finite number",
        b'{"run": "tea", "observations": {"initial": [NaN], "goal": [1]}}',
    ),
    Bad(
        "infinity",
        422,
        "finite number",
        b'{"run": "tea", "observations": {"initial": [1e999], "goal": [1]}}',
    ),
    Bad("a number beyond float32", 422, "too large", _observed([1e300] * 8)),
    Bad("a number too large to compute with", 422, "too large", _observed([1e20] * 8)),
    Bad("NaN in base64", 422, "holds NaN", _observed(packed(*[float("nan")] * 8))),
    Bad("not base64", 422, "is not base64", _observed("!!!!")),
    Bad("base64 of 3 bytes", 422, "expected four for each", _observed("AAAA")),
    Bad("base64 of nothing", 422, "holds 0 bytes", _observed("")),
    Bad("a path as observation", 422, "", _observed("/etc/passwd")),
    Bad(
        "a path as video",
        422,
        "no video of id",
        {"observations": None, "video": {"id": "/etc/passwd"}},
    ),
    Bad(
        "an unknown video",
        422,
        "GET /v1/videos",
        {"observations": None, "video": {"id": "x"}},
    ),
    Bad(
        "a step beyond the video",
        422,
        "do not fit",
        {"observations": None, "video": {"id": "world-0000", "step": 500}},
    ),
    Bad(
        "a step below 0",
        422,
        "greater than or equal to 0",
        {"observations": None, "video": {"id": "a", "step": -1}},
    ),
    Bad(
        "another split",
        422,
        "no video of id",
        {"observations": None, "video": {"id": "world-0000", "split": "test"}},
    ),
    Bad(
        "an unknown split",
        422,
        "'train', 'val' or 'test'",
        {"observations": None, "video": {"id": "a", "split": "all"}},
    ),
)
SEARCHES = (
    Bad("an unknown run", 422, "no run fits run 'x'", {"run": "x"}),
    Bad("a path as run", 422, "no run fits", {"run": "../../tea"}),
    Bad("an unknown horizon", 422, "no run fits", {"horizon": 9}),
    Bad("no plan wanted", 422, "top_k: Input should be greater", {"top_k": 0}),
    Bad("too many plans wanted", 422, "at most 100 plans", {"top_k": 101}),
    Bad("a number as text", 422, "valid integer", {"top_k": "5"}),
    Bad("a fraction of a plan", 422, "valid integer", {"top_k": 2.5}),
    Bad("true plans", 422, "valid integer", {"top_k": True}),
    Bad("an unknown search", 422, "search: Input should be", {"search": "best"}),
    Bad("a budget for a search without one", 422, "", {"search": "beam", "budget": 1}),
    Bad("a budget below 0", 422, "budget", {"search": "auto", "budget": -1}),
    Bad("tasks below 0", 422, "tasks", {"tasks": -1}),
    Bad("an unknown task", 422, "unknown task 'x'", {"task": "x"}),
    Bad("a task beyond the last", 422, "unknown task 999", {"task": 999}),
    Bad("an unknown objective", 422, "objective", {"objective": "fun"}),
    Bad("a probability of 2", 422, "min_probability", {"min_probability": 2}),
    Bad("no time", 422, "deadline_seconds", {"deadline_seconds": 0}),
    Bad("a microsecond", 504, "no plan was found before the deadline", {"deadline_seconds": 1e-6}),
)
CONSTRAINTS = (
    Bad("a pin of step 0", 422, "pattern", _constrained(pin={"0": 1})),
    Bad("a pin of step 9 of 3", 422, "counted from 1 to 3", _constrained(pin={"9": 1})),
    Bad("a pin of step 'first'", 422, "pattern", _constrained(pin={"first": 1})),
    Bad("an unknown action", 422, "unknown action 'x'", _constrained(forbid=["x"])),
    Bad("an action beyond the last", 422, "unknown action 99999", _constrained(require=[99_999])),
    Bad("an action below 0", 422, "greater than or equal to 0", _constrained(require=[-1])),
    Bad(
        "an action of 1,000 letters",
        422,
        "at most 300 characters",
        _constrained(forbid=["x" * 1000]),
    ),
    Bad("an order of one action", 422, "at least 2 items", _constrained(before=[[1]])),
    Bad("an action before itself", 422, "before itself", _constrained(before=[[1, 1]])),
    Bad(
        "required and forbidden",
        422,
        "both required and forbidden",
        {"task": 0, **_constrained(require=[2], forbid=[2])},
    ),
    Bad(
        "everything forbidden",
        422,
        "every allowed action is forbidden",
        {"task": 0, **_constrained(forbid=list(range(8)))},
    ),
    Bad(
        "more required than steps",
        422,
        "only 3 steps",
        {"task": 0, **_constrained(require=[0, 2, 3, 4])},
    ),
    Bad("100 orders", 422, "at most 64 items", _constrained(before=[[1, 2]] * 100)),
    Bad(
        "another task's action pinned",
        422,
        "not an action of this task",
        {"task": 0, **_constrained(pin={"1": 60})},
    ),
)
BATCHES = (
    Bad("no queries", 422, "queries: Field required", b"{}", "/v1/plan/batch"),
    Bad("an empty batch", 422, "at least 1 item", b'{"queries": []}', "/v1/plan/batch"),
    Bad(
        "a batch of 65",
        422,
        "at most 64",
        json.dumps({"queries": [{}] * 65}).encode(),
        "/v1/plan/batch",
    ),
)
ELSEWHERE = (
    Bad("an unknown path", 404, "there is nothing here", None, "/v1/nothing", method="GET"),
    Bad("a path out of the folder", 404, "", None, "/docs/..%2f..%2fsettings.py", method="GET"),
    Bad("GET instead of POST", 405, "does not take this method", None, PLAN, method="GET"),
    Bad("an upload without an encoder", 422, "no encoder for uploads", b"x", "/v1/plan/upload"),
    Bad("a limit of 0 videos", 422, "limit", None, "/v1/videos?limit=0", method="GET"),
    Bad("a limit that is not a number", 422, "limit", None, "/v1/videos?limit=x", method="GET"),
    Bad("videos of no run", 422, "Add the field 'run'", None, "/v1/videos", method="GET"),
    Bad("sent by another site", 403, "another site", {}, headers={"sec-fetch-site": "cross-site"}),
    Bad(
        "a length of more than 4 MiB",
        413,
        "at most 4,194,304",
        b"{}",
        headers={"content-length": "99999999"},
    ),
)
TABLE = (*BODIES, *SOURCES, *SEARCHES, *CONSTRAINTS, *BATCHES, *ELSEWHERE)


def sent(bad: Bad, good: dict[str, Any], send: Callable[..., Any]) -> Any:
    """The response to a bad request, made of a good one."""
    body = bad.body
    if isinstance(body, dict):
        merged = {name: value for name, value in {**good, **body}.items() if value is not None}
        body = json.dumps(merged).encode()
    return send(bad.method, bad.path, content=body, headers={**JSON, **bad.headers})


def table() -> str:
    """The table of the documentation."""
    lines = ["| request | gets |", "| --- | --- |"]
    lines += [f"| {bad.title} | {bad.status} |" for bad in TABLE]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201
