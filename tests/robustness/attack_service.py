"""Generated requests, made of a running service's OpenAPI document; none may be a defect.

    python tests/robustness/attack_service.py http://127.0.0.1:8000 --examples 2000

Every answer must be of a status, type and form that the document names, and never 500 or above but
for what it names (503 and 504). Needs the package schemathesis.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from contextlib import suppress
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import checks

checks.load_all_checks()
_CHECKS = [
    checks.CHECKS.get_one(name)
    for name in (
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    )
]
ANNOUNCED = (503, 504)
"""Statuses of 500 and above that are no defects."""


def attack(schema: Any, examples: int, *, headers: dict[str, str] | None = None) -> dict[str, int]:
    """Send generated requests to every operation.

    Args:
        schema: Of schemathesis.
        examples: Requests of each kind for each operation.
        headers: Sent with each.

    Returns:
        How often each status was met, by operation and status.

    Raises:
        AssertionError: An answer that the document does not allow.
    """
    met: dict[str, int] = {}
    for result in schema.get_all_operations():
        operation = result.ok()

        settings = hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        for mode in schemathesis.GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable):  # of what has no parameters nothing can be wrong
                settings(_test(strategy, operation.label, headers, met))()
    return met


def _test(strategy: Any, title: str, headers: dict[str, str] | None, met: dict[str, int]) -> Any:
    """A test that sends what a strategy gives."""

    @hypothesis.given(case=strategy)
    def sent(case: Any) -> None:
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

    return sent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--token", default="")
    given = parser.parse_args()
    headers = {"authorization": f"Bearer {given.token}"} if given.token else {}
    request = urllib.request.Request(f"{given.address}/openapi.json", headers=headers)
    with urllib.request.urlopen(request) as response:
        document = json.load(response)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=given.address)
    met = attack(schema, given.examples, headers=headers)
    for key, count in sorted(met.items()):
        sys.stdout.write(f"{count:7,}  {key}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
