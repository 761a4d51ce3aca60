"""The response cache: shared by threads and processes, safe against interruption."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model.prompt import Request
from cefito.planners.language_model.server import FILE, Response, ResponseCache


def request(text="a"):
    return Request((("user", text),), ((0,),), 1, {"model": "m"})


def response(content="{}"):
    return Response(asked="2026-11-22T00:00:00+00:00", served="m", content=content)


def ask(cache, text, host="host"):
    return cache.get_or_ask(request(text), host, response)


@pytest.fixture
def cache(tmp_path):
    with closing(ResponseCache(tmp_path / "new")) as cache:
        yield cache


def test_responses_are_cached_for_all_processes(cache, tmp_path):
    key = request().key("host")
    assert cache.get(key) is None
    assert ask(cache, "a") == response()
    with closing(ResponseCache(tmp_path / "new")) as other:
        assert other.get(key) == response()
        other.get_or_ask(request(), "host", lambda: pytest.fail("asked twice"))
        ask(other, "b")
    assert cache.get(request("b").key("host")) == response()
    assert cache.get(request().key("elsewhere")) is None


def test_threads_ask_once(tmp_path):
    asked, gate = [], threading.Barrier(8)
    caches = [ResponseCache(tmp_path) for _ in range(2)]

    def ask(place):
        text = "ab"[place % 2]

        def once():
            asked.append(text)
            return response(text)

        gate.wait()
        return caches[place // 4].get_or_ask(request(text), "host", once).content

    with ThreadPoolExecutor(8) as pool:
        assert "".join(pool.map(ask, range(8))) == "abababab"
    assert sorted(asked) == ["a", "b"]
    for cache in caches:
        cache.close()


def test_failed_requests_are_repeated(cache):
    def fail():
        raise RunError("no")

    with pytest.raises(RunError):
        cache.get_or_ask(request(), "host", fail)
    assert ask(cache, "a") == response()


def test_unusable_folders(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="response cache cannot be made") as caught:
        ResponseCache(tmp_path / "file" / "below")
    assert caught.value.setting == "llm.cache"
    (tmp_path / FILE).write_text("no database" * 100)
    with pytest.raises(RunError, match=f"{FILE}: the response cache cannot be read or written"):
        ResponseCache(tmp_path)
