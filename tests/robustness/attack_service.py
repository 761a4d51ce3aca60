"""Send generated requests, made from the OpenAPI document of a running service.

    python tests/robustness/attack_service.py http://127.0.0.1:8000 --examples 2000

Generated observations have the wrong number of features. So each valid request is sent once more
with observations and ids that the first run knows, to reach the search.

Every answer must have a status, type and form of the document, and no status of 500 or above except
503 and 504. Needs the package schemathesis.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from contextlib import suppress
from typing import Any
from zlib import crc32

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import checks

checks.load_all_checks()
_CHECKED = ("status_code", "content_type", "response_headers", "response_schema")
_CHECKS = [checks.CHECKS.get_one(f"{name}_conformance") for name in _CHECKED]
_LEFT_OUT = ("video", "task", "budget", "deadline_seconds")
ANNOUNCED = (503, 504)  # documented statuses of 500 and above


def attack(
    schema: Any, examples: int, *, run: dict[str, Any], headers: dict[str, str] | None = None
) -> dict[str, int]:
    """Send so many requests of each kind to every operation; count answers by it and status.

    `run` describes the service's first run.
    """
    met: dict[str, int] = {}
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable):  # no parameters, so no invalid requests
                settings(_test(strategy, operation.label, run, headers, met))()
    return met


def _test(strategy: Any, title: str, run: dict[str, Any], headers: Any, met: dict[str, int]) -> Any:
    """A test that sends generated requests, and valid ones once more with known ids."""

    def send(case: Any) -> int:
        response = case.call(headers=headers)
        key = f"{title} {response.status_code}"
        met[key] = met.get(key, 0) + 1
        assert response.status_code < 500 or response.status_code in ANNOUNCED, response.text
        if response.status_code >= 400:
            kind = str(response.headers["content-type"])
            assert "application/problem+json" in kind, kind
            problem = json.loads(response.content)
            assert problem["status"] == response.status_code
            assert "\n" not in problem["detail"]
        case.validate_response(response, checks=_CHECKS)
        return int(response.status_code)

    @hypothesis.given(case=strategy)
    def sent(case: Any) -> None:
        body = case.body if isinstance(case.body, dict) else {}
        if send(case) == 422 and title == "POST /v1/plan" and body:
            case.body = mended(body, run)
            send(case)

    return sent


def mended(body: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The query with observations and ids that a run knows."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: known(part) for key, part in value.items()}
        if isinstance(value, list):
            return [known(part) for part in value]
        if isinstance(value, bool):
            return value
        return crc32(repr(value).encode()) % len(run["actions"])

    observation = [0.25] * run["observation_dim"]
    changed = {
        **{key: part for key, part in body.items() if key not in _LEFT_OUT},
        "run": run["name"],
        "horizon": run["horizon"],
        "observations": {"initial": observation, "goal": observation[::-1]},
    }
    if type(body.get("top_k")) is int:
        changed["top_k"] = min(body["top_k"], 100)
    if isinstance(body.get("constraints"), dict):
        changed["constraints"] = known(body["constraints"])
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--token", default="")
    given = parser.parse_args()
    headers = {"authorization": f"Bearer {given.token}"} if given.token else {}

    def get(path: str) -> Any:
        request = urllib.request.Request(given.address + path, headers=headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    schema = schemathesis.openapi.from_dict(get("/openapi.json"))
    schema.config.update(base_url=given.address)
    run = get("/v1/model")["runs"][0]
    met = attack(schema, given.examples, run=run, headers=headers)
    for key, count in sorted(met.items()):
        sys.stdout.write(f"{count:7,}  {key}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
