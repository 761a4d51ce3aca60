"""Requests to servers that fail, refuse or answer nonsense; keys go to the right server only."""

import json
import threading

import httpx2
import openai
import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model import dialogue, server
from cefito.planners.language_model.dialogue import ask_all
from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import Names, PromptContext, first_request
from cefito.planners.language_model.server import Server, check_settings
from language_model import answered, completion

NAMES = Names.of(["tea"], ["boil", "pour", "wait", "drink"])
VALID = '{"step_1": 0, "step_2": 2, "step_3": 3}'
PLAN = (0, 2, 3)
SECRET = "sk-very-secret"


def config(**more):
    return LlmConfig(**{"model": "m", "base_url": "http://there:8000/v1", "retries": 2} | more)


def request(last=3, **more):
    context = PromptContext(task=0, task_actions=(0, 1, 2, 3), first=0, last=last)
    return first_request(context, NAMES, 3, config(**more))


REQUESTS = [request(last) for last in (0, 1, 2, 3)]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("CEFITO_LLM_BASE_URL")
    monkeypatch.setenv("CEFITO_LLM_CACHE", str(tmp_path / "answers"))
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *_: 0.0)


@pytest.fixture
def serve(monkeypatch):
    """Respond by a function of the body and the request's number; return all requests."""
    original = openai.OpenAI

    def serve(respond):
        seen, lock = [], threading.Lock()

        def handle(got):
            with lock:
                seen.append(got)
                number = len(seen) - 1
            response = respond(json.loads(got.content), number)
            if isinstance(response, Exception):
                raise response
            if isinstance(response, str):
                response = completion(response)
            return httpx2.Response(200, json=response) if isinstance(response, dict) else response

        def client(**given):
            transport = httpx2.MockTransport(handle)
            return original(http_client=httpx2.Client(transport=transport), **given)

        monkeypatch.setattr(openai, "OpenAI", client)
        return seen

    return serve


def failure(status):
    if isinstance(status, Exception):
        return status
    error = {"error": {"message": f"it is broken, {SECRET}", "type": "x"}}
    return httpx2.Response(status, json=error)


@pytest.mark.parametrize(
    "problem", [429, 503, 408, httpx2.ReadTimeout("slow"), httpx2.ConnectError("no")]
)
def test_passing_failures_are_retried(problem, serve):
    seen = serve(lambda _, number: failure(problem) if number < 2 else VALID)
    (found,) = ask_all([request()], config())
    assert (found.sequence, found.repaired, len(seen)) == (PLAN, False, 3)


@pytest.mark.parametrize(
    ("first", "finish", "problem"),
    [
        ("no JSON", "stop", "it is not valid JSON"),
        (VALID[:20], "length", "it was cut short"),
        (VALID.replace("2,", "9,"), "stop", "step_2 is 9, expected one of 0, 1, 2, 3"),
        (None, "content_filter", "it is not valid JSON"),
    ],
)
def test_invalid_answers_are_followed_by_a_repair_request(first, finish, problem, serve):
    seen = serve(lambda _, number: VALID if number else completion(first, finish=finish))
    (found,) = ask_all([request()], config())
    assert (found.sequence, found.repaired) == (PLAN, True)
    assert len(found.responses) == len(seen) == 2
    messages = json.loads(seen[1].content)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == (first or "(no answer)")
    assert messages[3]["content"].startswith(f"This answer is invalid: {problem}. Answer again")


def test_refusals_give_no_plan(serve):
    seen = serve(lambda *_: completion(None, refusal="I must not plan."))
    (found,) = ask_all([request()], config())
    assert found.sequence is None
    assert [response.refusal for response in found.responses] == ["I must not plan."] * 2
    ask_all([request()], config())
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("problem", "kind", "message", "setting"),
    [
        (401, ConfigError, "refuses access", ""),
        (404, ConfigError, "has no model 'm', or no chat completions", "llm.model"),
        (422, ConfigError, "does not take the request", "llm.extra"),
        (500, RunError, "in 3 tries. Received responses are cached: repeat the command", ""),
        (httpx2.ReadTimeout("slow"), RunError, "no answer in time (llm.timeout), in 3 tries", ""),
        (httpx2.ConnectError("nobody there"), RunError, "nobody there, in 3 tries", ""),
    ],
)
def test_lasting_failures_are_one_line_without_the_key(
    problem, kind, message, setting, serve, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there:8000/v1")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    serve(lambda *_: failure(problem))
    with pytest.raises(kind) as caught:
        ask_all([request()], config())
    text = str(caught.value)
    assert text.startswith("http://there:8000/v1: ")
    assert message in text
    assert SECRET not in text
    assert "\n" not in text
    assert caught.value.setting == setting


def test_responses_before_a_failure_are_kept(serve):
    seen = serve(lambda body, number: failure(500) if number == 2 else answered(body))
    with pytest.raises(RunError, match="repeat the command to continue"):
        ask_all(REQUESTS, config(concurrency=1, retries=0))
    assert len(seen) == 3
    found = ask_all(REQUESTS, config())
    assert [one.sequence[-1] for one in found] == [0, 1, 2, 3]
    assert len(seen) == 5


def test_equal_requests_are_made_once(serve):
    seen = serve(lambda *_: VALID)
    found = ask_all([request(), request()], config())
    assert found[0] == found[1]
    assert ask_all([request()], config()) == found[:1]
    ask_all([request()], config(base_url="http://there:9000/v1"))  # another port of the same host
    assert len(seen) == 1
    ask_all([request()], config(base_url="http://elsewhere:8000/v1"))
    assert len(seen) == 2


def test_the_budget_is_checked_first(serve, monkeypatch, caplog):
    seen = serve(lambda body, _: answered(body))
    message = "m at http://there:8000/v1 may be asked 8 times, but the budget is 7 requests"
    with pytest.raises(ConfigError, match=message) as caught:
        ask_all(REQUESTS * 2, config(budget=7))
    assert caught.value.setting == "llm.budget"
    assert seen == []
    monkeypatch.setenv("CEFITO_LLM_BUDGET", "8")
    monkeypatch.setattr(dialogue, "_WORTH_A_WARNING", 8)
    ask_all(REQUESTS, config(budget=7))
    assert "may be asked 8 times; the budget is 8 requests" in caplog.text
    assert len(seen) == 4
    ask_all(REQUESTS, config(budget=1))  # all cached


def test_stop_leaves_the_rest_unasked(serve):
    seen = serve(lambda body, _: answered(body))
    found = ask_all(REQUESTS, config(concurrency=1), stop=lambda: len(seen) >= 2)
    assert [one is None for one in found] == [False, False, True, True]
    assert ask_all(REQUESTS[2:], config(), stop=lambda: True) == [None, None]
    assert len(seen) == 2


MINE = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://mine/v1"}


@pytest.mark.parametrize(
    ("environment", "setting", "host", "key"),
    [
        ({}, "http://there/v1", "there", "none"),
        ({"OPENAI_API_KEY": SECRET}, "http://there/v1", "there", "none"),
        ({"OPENAI_API_KEY": SECRET}, "", "api.openai.com", SECRET),
        (MINE, "", "mine", SECRET),
        (MINE, "https://mine/v1", "mine", SECRET),
        (MINE, "https://mine.evil/v1", "mine.evil", "none"),
        (MINE, "http://mine/v1", "mine", "none"),
        (MINE | {"CEFITO_LLM_BASE_URL": "http://here/v1"}, "http://there/v1", "here", "none"),
        ({"OPENAI_ADMIN_KEY": SECRET}, "http://there/v1", "there", "none"),
    ],
)
def test_the_key_is_sent_to_the_server_that_the_environment_names(
    environment, setting, host, key, serve, monkeypatch
):
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seen = serve(lambda *_: VALID)
    ask_all([request()], config(base_url=setting))
    (sent,) = seen
    assert (sent.url.host, sent.headers["authorization"]) == (host, f"Bearer {key}")
    assert ("openai-organization" in sent.headers) == (key == SECRET)
    assert SECRET not in str(sent.headers).replace(f"Bearer {key}", "")


def test_no_key_is_stored_or_shown(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:word@there:8000/v1?token=word")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    serve(lambda *_: VALID)
    ask_all([request()], config(base_url=""))
    (path,) = (tmp_path / "answers").iterdir()
    for data in (path.read_bytes(), repr(Server.of(config(base_url=""))).encode()):
        assert SECRET.encode() not in data
        assert b"word" not in data
    assert Server.of(config(base_url="")).place == "http://there:8000/v1"


def test_requirements_of_asking(serve, monkeypatch):
    with pytest.raises(ConfigError, match=r"llm\.model: no language model is named") as caught:
        check_settings(config(model=" "))
    assert caught.value.setting == "llm.model"
    check_settings(config())
    serve(lambda *_: VALID)
    found = ask_all([request()], config())
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    assert ask_all([request()], config()) == found  # cached responses need no client
    for call in (lambda: ask_all([request(0)], config()), lambda: check_settings(config())):
        with pytest.raises(ConfigError, match=r"pip install 'cefito\[llm\]'"):
            call()
