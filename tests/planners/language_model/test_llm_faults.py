"""Servers that fail, refuse or answer nonsense; no key goes where it does not belong."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model import dialogue, server
from cefito.planners.language_model.dialogue import ask_all, expected_cost
from cefito.planners.language_model.prompt import Names, first_request
from cefito.planners.language_model.prompt_context import PromptContext
from cefito.planners.language_model.server import Server, budget, cache_folder, check_asking
from cefito.planners.language_model.settings import LlmConfig
from language_model import Told, answered, completion

NAMES = Names.of(["tea"], ["boil", "pour", "wait", "drink"])
VALID = '{"step_1": 0, "step_2": 2, "step_3": 3}'
SECRET = "sk-very-secret"


def config(**more):
    return LlmConfig(**{"model": "m", "base_url": "http://there:8000/v1", "retries": 2} | more)


def request(last=3, **more):
    sight = PromptContext(
        tasks=((0, 1.0),),
        task_actions={0: (0, 1, 2, 3)},
        first=((0, 1.0),),
        last=((last, 1.0),),
        settled=True,
    )
    return first_request(sight, NAMES, 3, config(**more))


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nothing of the environment but a folder of answers."""
    monkeypatch.delenv("CEFITO_LLM_BASE_URL")
    monkeypatch.setenv("CEFITO_LLM_CACHE", str(tmp_path / "answers"))
    monkeypatch.setattr("openai._base_client.BaseClient._calculate_retry_timeout", lambda *_: 0.0)


@pytest.fixture
def serve(monkeypatch):
    """Answer requests by a function of the body and their number; gives all requests."""

    def serve(answer):
        seen, lock = [], threading.Lock()

        def handle(got):
            with lock:
                seen.append(got)
                number = len(seen) - 1
            return answer(json.loads(got.content), number)

        transport = httpx2.MockTransport(handle)
        monkeypatch.setattr(server, "_http_client", lambda: httpx2.Client(transport=transport))
        return seen

    return serve


def says(*contents, **more):
    """Gives these contents one after the other, then the last again."""

    def answer(_, number):
        content = contents[min(number, len(contents) - 1)]
        return httpx2.Response(200, json=completion(content, **more))

    return answer


def failing(status, times, then=VALID, **more):
    def answer(_, number):
        if number < times:
            error = {"error": {"message": f"it is broken, {SECRET}", "type": "x"}}
            return httpx2.Response(status, json=error, **more)
        return httpx2.Response(200, json=completion(then))

    return answer


# What is mended


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_passing_failures_are_tried_again(status, serve):
    seen = serve(failing(status, 2))
    (asked,) = ask_all([request()], config())
    assert asked.sequences == ((0, 2, 3),)
    assert not asked.repaired
    assert len(seen) == 3


@pytest.mark.parametrize(
    "error", [httpx2.ReadTimeout("slow"), httpx2.ConnectError("no"), httpx2.ReadError("gone")]
)
def test_a_network_that_fails_for_a_moment(error, serve):
    def answer(_, number):
        if number < 2:
            raise error
        return httpx2.Response(200, json=completion(VALID))

    serve(answer)
    assert ask_all([request()], config())[0].sequences == ((0, 2, 3),)


@pytest.mark.parametrize(
    ("first", "finish", "problem"),
    [
        ("no JSON", "stop", "it is not valid JSON"),
        (VALID[:20], "length", "it was cut short"),
        (VALID.replace("2,", "9,"), "stop", "step_2 is 9, expected one of 0, 1, 2, 3"),
        (None, "content_filter", "it is not valid JSON"),
    ],
)
def test_an_invalid_answer_is_asked_for_again_with_what_is_wrong(first, finish, problem, serve):
    def answer(_, number):
        done = completion(VALID) if number else completion(first, finish=finish)
        return httpx2.Response(200, json=done)

    seen = serve(answer)
    (asked,) = ask_all([request()], config())
    assert asked.sequences == ((0, 2, 3),)
    assert asked.repaired
    assert len(asked.answers) == len(seen) == 2
    messages = json.loads(seen[1].content)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == (first or "(no answer)")
    assert messages[3]["content"].startswith(f"This answer is invalid: {problem}. Answer again")


def test_a_refusal_is_an_answer_of_no_use(serve):
    seen = serve(says(None, refusal="I must not plan."))
    (asked,) = ask_all([request()], config())
    assert asked.sequences == ()
    assert [answer.refusal for answer in asked.answers] == ["I must not plan."] * 2
    ask_all([request()], config())
    assert len(seen) == 2


def test_what_can_be_made_of_invalid_answers_is_made_at_last(serve):
    seen = serve(says(f"Here: {VALID}", "Nothing."))
    (asked,) = ask_all([request()], config())
    assert (asked.sequences, asked.repaired, len(seen)) == (((0, 2, 3),), True, 2)


def test_without_repairs_it_is_asked_once(serve):
    seen = serve(says("Nothing."))
    (asked,) = ask_all([request()], config(repairs=0))
    assert (asked.sequences, len(seen)) == ((), 1)


# What ends all


@pytest.mark.parametrize(
    ("status", "kind", "message", "setting"),
    [
        (401, ConfigError, "refuses access", ""),
        (403, ConfigError, "refuses access", ""),
        (404, ConfigError, "has no model 'm', or no chat completions", "llm.model"),
        (400, ConfigError, "does not take the request", "llm.answer_format"),
        (422, ConfigError, "does not take the request", "llm.answer_format"),
        (429, RunError, "in 3 tries. What was answered is kept: repeat the command", ""),
        (500, RunError, "in 3 tries. What was answered is kept: repeat the command", ""),
    ],
)
def test_what_cannot_be_mended_is_one_line_without_the_key(
    status, kind, message, setting, serve, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there:8000/v1")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    serve(failing(status, 99))
    with pytest.raises(kind) as caught:
        ask_all([request()], config())
    text = str(caught.value)
    assert text.startswith("http://there:8000/v1: ")
    assert message in text
    assert SECRET not in text
    assert "\n" not in text
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (httpx2.ReadTimeout("slow"), "no answer in time, in one try"),
        (httpx2.ConnectError("nobody there"), r"cannot be reached \(nobody there\)"),
    ],
)
def test_a_network_that_fails(error, message, serve):
    def answer(*_):
        raise error

    serve(answer)
    with pytest.raises(RunError, match=message):
        ask_all([request()], config(retries=0))


@pytest.mark.parametrize(
    "response",
    [
        {"json": {"choices": []}},
        {"json": {"hello": "world"}},
        {"json": []},
        {"json": {**completion(VALID), "choices": [{"index": 0}]}},
        {"text": "<html>Welcome</html>", "headers": {"Content-Type": "text/html"}},
        {"text": "{not", "headers": {"Content-Type": "application/json"}},
    ],
)
def test_a_server_that_is_none_of_chat_completions(response, serve):
    serve(lambda *_: httpx2.Response(200, **response))
    with pytest.raises(RunError, match=r"^http://there:8000/v1: answers, but not as a server of"):
        ask_all([request()], config())


def test_what_was_answered_before_a_failure_is_kept(serve):
    def answer(body, number):
        if number == 2:
            return httpx2.Response(500, json={})
        return httpx2.Response(200, json=completion(answered(body)))

    requests = [request(last) for last in (0, 1, 2, 3)]
    seen = serve(answer)
    with pytest.raises(RunError, match="repeat the command to go on"):
        ask_all(requests, config(concurrency=1, retries=0))
    assert len(seen) == 3
    found = ask_all(requests, config())
    assert [asked.sequences[0][-1] for asked in found] == [0, 1, 2, 3]
    assert len(seen) == 5


# What is asked, and how often


def test_equal_requests_are_made_once_and_answers_found_again(serve):
    seen = serve(says(VALID))
    found = ask_all([request(), request(), request()], config())
    assert len(seen) == 1
    assert ask_all([request()], config()) == found[:1]
    assert found[0] == found[2]
    assert len(seen) == 1
    ask_all([request()], config(base_url="http://there:9000/v1"))  # another port of the same host
    assert len(seen) == 1
    ask_all([request()], config(base_url="http://elsewhere:8000/v1"))
    assert len(seen) == 2


def test_no_more_requests_than_the_budget(serve, monkeypatch, caplog):
    seen = serve(lambda body, _: httpx2.Response(200, json=completion(answered(body))))
    requests = [request(last) for last in (0, 1, 2, 3)]
    assert expected_cost(requests * 2, config()).most == 8
    message = (
        "m at http://there:8000/v1 would be asked up to 8 times, but the budget is 7 requests; "
        "none was made"
    )
    with pytest.raises(ConfigError, match=message) as caught:
        ask_all(requests, config(budget=7))
    assert caught.value.setting == "llm.budget"
    assert seen == []
    monkeypatch.setenv("CEFITO_LLM_BUDGET", "8")
    monkeypatch.setattr(dialogue, "_WORTH_A_WARNING", 8)
    ask_all(requests, config(budget=7))
    assert "would be asked up to 8 times; the budget is 8 requests" in caplog.text
    assert len(seen) == 4
    cost = expected_cost([*requests, request(repairs=0, seed=3)], config(budget=3))
    assert (cost.different, cost.known, cost.most, cost.budget) == (5, 4, 2, 8)
    ask_all(requests, config(budget=1))  # all known


def test_half_a_conversation_is_counted_and_gone_on_with(serve):
    seen = serve(lambda _, number: says("Nothing.")(_, 0) if not number else failing(500, 9)(_, 0))
    with pytest.raises(RunError):
        ask_all([request()], config(retries=0))
    assert expected_cost([request()], config()).most == 1
    assert len(seen) == 2
    seen = serve(says(VALID))
    assert ask_all([request()], config())[0].repaired
    assert len(seen) == 1


def test_a_stop_leaves_the_rest_unasked(serve):
    seen = serve(lambda body, _: httpx2.Response(200, json=completion(answered(body))))
    requests = [request(last) for last in (0, 1, 2, 3)]
    found = ask_all(requests, config(concurrency=1), stop=lambda: len(seen) >= 2)
    assert [asked is None for asked in found] == [False, False, True, True]
    assert ask_all(requests[2:], config(), stop=lambda: True) == [None, None]
    assert len(seen) == 2


def test_no_more_at_a_time_than_asked_for(serve):
    now, most, lock = [0], [0], threading.Lock()
    gate = threading.Barrier(3)

    def answer(body, _):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        gate.wait(timeout=20)  # three come together, or the test fails
        with lock:
            now[0] -= 1
        return httpx2.Response(200, json=completion(answered(body)))

    serve(answer)
    ask_all(
        [request(last, seed=seed) for last in (0, 1, 2) for seed in (0, 1)], config(concurrency=3)
    )
    assert most[0] == 3


def test_threads_that_plan_at_the_same_time_share_the_answers(serve):
    seen = serve(lambda body, _: httpx2.Response(200, json=completion(answered(body))))
    requests = [request(last) for last in (0, 1, 2, 3)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ask_all(requests, config()), range(4)))
    assert found == found[:1] * 4
    assert len(seen) == 4


# Whom is asked, with which key


def sent(serve, **more):
    """The authorisation that a server gets."""
    seen = serve(says(VALID))
    ask_all([request()], config(**more))
    assert not any(SECRET in str(got.headers) for got in seen[1:])
    headers = seen[0].headers
    assert "openai-organization" not in headers or SECRET in headers["authorization"]
    return seen[0].url.host, headers["authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(
    ("environment", "setting", "host", "key"),
    [
        ({}, "http://there/v1", "there", "none"),
        ({"OPENAI_API_KEY": SECRET}, "http://there/v1", "there", "none"),
        ({"OPENAI_API_KEY": SECRET}, "", "api.openai.com", SECRET),
        (
            {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://mine/v1"},
            "",
            "mine",
            SECRET,
        ),
        (
            {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://mine/v1"},
            "https://mine/v1",
            "mine",
            SECRET,
        ),
        (
            {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://mine/v1"},
            "https://mine.evil/v1",
            "mine.evil",
            "none",
        ),
        (
            {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://mine/v1"},
            "http://mine/v1",
            "mine",
            "none",
        ),
        (
            {"OPENAI_API_KEY": SECRET, "CEFITO_LLM_BASE_URL": "http://here/v1"},
            "http://there/v1",
            "here",
            "none",
        ),
        ({"OPENAI_ADMIN_KEY": SECRET}, "http://there/v1", "there", "none"),
    ],
)
def test_the_key_goes_to_the_server_that_the_environment_names(
    environment, setting, host, key, serve, monkeypatch
):
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert sent(serve, base_url=setting) == (host, key)


def test_no_key_is_kept_or_shown(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:word@there:8000/v1?token=word")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    serve(says(VALID))
    ask_all([request()], config(base_url=""))
    (book,) = (tmp_path / "answers").iterdir()
    for text in (book.read_text(), book.name, repr(Server.of(config(base_url="")))):
        assert SECRET not in text
        assert "word" not in text
    assert Server.of(config(base_url="")).place == "http://there:8000/v1"


@pytest.mark.parametrize("url", ["there", "ftp://there/v1", "http://", "http://there:port/v1", "["])
def test_addresses_that_are_none(url):
    with pytest.raises(ConfigError, match=r"llm\.base_url: is no address") as caught:
        check_asking(config(base_url=url))
    assert caught.value.setting == "llm.base_url"


def test_a_model_has_to_be_named(monkeypatch):
    with pytest.raises(ConfigError, match=r"llm\.model: no language model is named") as caught:
        check_asking(config(model=" "))
    assert caught.value.setting == "llm.model"
    check_asking(config())
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'cefito\[llm\]'"):
        check_asking(config())


def test_what_is_known_needs_no_client(serve, monkeypatch):
    serve(says(VALID))
    found = ask_all([request()], config())
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    assert ask_all([request()], config()) == found
    with pytest.raises(ConfigError, match=r"pip install 'cefito\[llm\]'"):
        ask_all([request(0)], config())


def test_budget_and_cache_of_the_environment(monkeypatch, tmp_path):
    assert budget(config(budget=3)) == 3
    monkeypatch.setenv("CEFITO_LLM_BUDGET", "many")
    with pytest.raises(ConfigError, match="CEFITO_LLM_BUDGET=many: expected a whole number"):
        check_asking(config())
    assert cache_folder(config(cache="elsewhere")) == tmp_path / "answers"
    monkeypatch.delenv("CEFITO_LLM_CACHE")
    assert str(cache_folder(config(cache="elsewhere"))) == "elsewhere"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(config()).parts[-2:] == ("cefito", "llm")


def test_the_stand_in_reads_what_is_told():
    told = Told(request().messages[1][1])
    assert (told.actions, told.horizon, told.first, told.last) == ([0, 1, 2, 3], 3, [0], [3])
