"""Bad requests and their answers; `test_bad_requests.py` sends them."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

JSON = {"content-type": "application/json"}
GOOD = [0.5] * 8


@dataclass(frozen=True)
class Bad:
    """A bad request."""

    title: str
    body: dict[str, Any] | bytes | None  # changes of a good request's fields, or all bytes
    says: str  # words of the problem's detail
    status: int = 422
    path: str = "/v1/plan"
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"


def packed(*numbers: float) -> str:
    """Base64 of little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def observed(initial: Any, goal: Any = GOOD) -> dict[str, Any]:
    return {"observations": {"initial": initial, "goal": goal}}


def video(**fields: Any) -> dict[str, Any]:
    return {"observations": None, "video": fields}


def constrained(task: int | None = None, **parts: Any) -> dict[str, Any]:
    return {"task": task, "constraints": parts}


BODIES = (
    Bad("no body", b"", ""),
    Bad("not JSON", b"{not json", "the body is not JSON (", 400),
    Bad("not UTF-8", b'{"run": "\xff\xfe"}', "cannot be read", 400),
    Bad("JSON of another type", b"[1, 2]", "expected an object"),
    Bad("100,000 brackets", b"[" * 100_000, "cannot be read", 400),
    Bad("a number of 10,000 digits", b'{"top_k": ' + b"9" * 10_000 + b"}", "cannot be read", 400),
    Bad(
        "JSON sent as text",
        b"{}",
        "as 'text/plain'. Send the header 'Content-Type: application/json'",
        headers={"content-type": "text/plain"},
    ),
    Bad("an unknown field", {"nonsense": 1}, "nonsense: there is none of that name"),
    Bad("half a surrogate in a name", b'{"run": "\\ud800"}', ""),
    Bad("half a surrogate as a field", b'{"\\ud800": 1}', ""),
    Bad("a body of 5 MiB", b" " * (5 << 20), "at most 4,194,304", 413),
)
NAN = b'{"run": "tea", "observations": {"initial": [NaN], "goal": [1]}}'
SOURCES = (
    Bad("no observations", {"observations": None}, "exactly one of"),
    Bad("observations and a video", {"video": {"id": "a"}}, "exactly one of"),
    Bad("one observation", {"observations": {"initial": [1.0] * 8}}, "needs both observations"),
    Bad("neither of them", {"observations": {}}, "expected 'initial', 'goal' or both"),
    Bad("an empty list", observed([]), "a length of at least 1"),
    Bad("too few numbers", observed([1.0, 2.0]), "both must be the same"),
    Bad("both too short", observed([1, 2], [1, 2]), "have 2 features; this run was trained on 8"),
    Bad("200,000 numbers", observed([0] * 200_000), "at most 131072"),
    Bad("numbers as text", observed(["1"] * 8), "expected a number"),
    Bad("NaN", NAN, "finite number"),
    Bad("infinity", NAN.replace(b"NaN", b"1e999"), "finite number"),
    Bad("a number beyond float32", observed([1e300] * 8), "too large"),
    Bad("a number too large to compute with", observed([1e20] * 8), "too large"),
    Bad("NaN in base64", observed(packed(*[float("nan")] * 8)), "holds nan"),
    Bad("not base64", observed("!!!!"), "is not base64"),
    Bad("base64 of 3 bytes", observed("AAAA"), "base64 holds 3 bytes"),
    Bad("a path as observation", observed("/etc/passwd"), ""),
    Bad("a path as video", video(id="/etc/passwd"), "no video of id"),
    Bad("an unknown video", video(id="x"), "GET /v1/videos"),
    Bad("a step beyond the video", video(id="world-0000", step=500), "do not fit"),
    Bad("a step below 1", video(id="a", step=0), "expected at least 1 (got 0)"),
    Bad("another split", video(id="world-0000", split="test"), "no video of id"),
    Bad("an unknown split", video(id="a", split="all"), "'train', 'val' or 'test'"),
)
SEARCHES = (
    Bad("an unknown run", {"run": "x"}, "no run fits run 'x'"),
    Bad("an unknown horizon", {"horizon": 9}, "no run fits"),
    Bad("no plan wanted", {"top_k": 0}, "top_k: expected at least 1"),
    Bad("too many plans wanted", {"top_k": 101}, "at most 100 plans"),
    Bad("a billion plans wanted", {"top_k": 10**9}, "at most 100 plans"),
    Bad("a number as text", {"top_k": "5"}, "expected a whole number"),
    Bad("an unknown search", {"search": "best"}, "search: expected"),
    Bad("a budget below 0", {"search": "auto", "budget": -1}, "budget"),
    Bad("an unknown task", {"task": "x"}, "unknown task 'x'"),
    Bad("a task beyond the last", {"task": 999}, "unknown task 999"),
    Bad("an unknown objective", {"objective": "fun"}, "objective"),
    Bad("a probability of 2", {"min_probability": 2}, "min_probability"),
    Bad("a coverage of 90", {"coverage": 90}, "coverage"),
    Bad("no time", {"deadline_seconds": 0}, "deadline_seconds"),
    Bad("a microsecond", {"deadline_seconds": 1e-6}, "no plan was found before", 504),
)
CONSTRAINTS = (
    Bad("a pin of step 0", constrained(pin={"0": 1}), "pattern"),
    Bad("a pin of step 9 of 3", constrained(pin={"9": 1}), "counted from 1 to 3"),
    Bad("a pin of step 'first'", constrained(pin={"first": 1}), "pattern"),
    Bad("an unknown action", constrained(forbid=["x"]), "unknown action 'x'"),
    Bad("an action beyond the last", constrained(require=[99_999]), "unknown action 99999"),
    Bad("an action of 1,000 letters", constrained(forbid=["x" * 1000]), "at most 300 characters"),
    Bad("an action before itself", constrained(before=[[1, 1]]), "itself"),
    Bad("required and forbidden", constrained(0, require=[2], forbid=[2]), "required; action 2"),
    Bad("everything forbidden", constrained(0, forbid=list(range(8))), "every allowed action is"),
    Bad("more required than steps", constrained(0, require=[0, 2, 3, 4]), "drop or change some"),
    Bad("100 orders", constrained(before=[[1, 2]] * 100), "a length of at most 64"),
    Bad(
        "another task's action pinned", constrained(0, pin={"1": 60}), "not an action of this task"
    ),
)
NO_SESSION = "/v1/sessions/none"
SESSIONS = (
    Bad("an unknown session", None, "no such session", 404, NO_SESSION, method="GET"),
    Bad("an event of it", b'{"undo": true}', "no such session", 404, f"{NO_SESSION}/events"),
)
CROSS = {"sec-fetch-site": "cross-site"}
LONG = {"content-length": "99999999"}
ELSEWHERE = (
    Bad("an unknown path", None, "there is nothing here", 404, "/v1/nothing", method="GET"),
    Bad("a path out of the folder", None, "", 404, "/docs/..%2f..%2fsettings.py", method="GET"),
    Bad("GET instead of POST", None, "does not take this method", 405, method="GET"),
    Bad("an upload without an encoder", b"x", "no encoder for uploads", path="/v1/plan/upload"),
    Bad("a limit of 0 videos", None, "limit", path="/v1/videos?limit=0", method="GET"),
    Bad("a limit that is not a number", None, "limit", path="/v1/videos?limit=x", method="GET"),
    Bad("videos of no run", None, "Add the field 'run'", path="/v1/videos", method="GET"),
    Bad("sent by another site", {}, "another site", 403, headers=CROSS),
    Bad("a length of more than 4 MiB", b"{}", "at most 4,194,304", 413, headers=LONG),
)
TABLE = (*BODIES, *SOURCES, *SEARCHES, *CONSTRAINTS, *SESSIONS, *ELSEWHERE)


def sent(bad: Bad, good: dict[str, Any], send: Callable[..., Any]) -> Any:
    """The response to a bad request, made of a good one."""
    body = bad.body
    if isinstance(body, dict):
        merged = {name: value for name, value in {**good, **body}.items() if value is not None}
        body = json.dumps(merged).encode()
    return send(bad.method, bad.path, content=body, headers={**JSON, **bad.headers})
