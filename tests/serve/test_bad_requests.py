"""Every row of the table of bad requests gets what it says, in one line."""

from __future__ import annotations

import re

import pytest

from serve.bad_requests import TABLE, sent
from serve.test_docs import PAGE

KINDS = {  # by the table of docs/serve.md
    status: kinds
    for statuses, kinds in re.findall(r"^\| ([\d, ]+) \| (`[^|]*) \|", PAGE, re.MULTILINE)
    for status in statuses.split(", ")
}


@pytest.fixture(scope="module")
def good(place):
    return {"run": "tea", "observations": place.observations()}


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.title)
def test_it_gets_what_the_table_says(client, good, bad, place):
    response = sent(bad, good, client.request)
    assert response.status_code == bad.status, response.text
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["status"] == bad.status
    assert problem["type"].removeprefix("urn:cefito:") in KINDS[str(bad.status)]
    assert bad.says in problem["detail"]
    assert problem["detail"]
    assert "\n" not in problem["detail"]
    assert len(problem["detail"]) < 1000
    assert str(place.run.parent) not in response.text


def test_the_good_request_is_good(client, good):
    assert client.post("/v1/plan", json=good).status_code == 200
