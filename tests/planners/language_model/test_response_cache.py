"""The response cache: shared by processes, safe against interruption."""

from contextlib import closing

import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model.prompt import Request
from cefito.planners.language_model.server import FILE, Response, ResponseCache

REQUEST = Request((("user", "a"),), ((0,),), {"model": "m"})
RESPONSE = Response(asked="2026-11-22T00:00:00+00:00", served="m", content="{}")


def test_responses_are_cached_for_all_processes(tmp_path):
    key = REQUEST.key("host")
    with closing(ResponseCache(tmp_path / "new")) as cache:
        assert cache.get(key) is None
        cache.put(REQUEST, "host", RESPONSE)
        with closing(ResponseCache(tmp_path / "new")) as other:
            assert other.get(key) == RESPONSE
            other.put(REQUEST, "host", RESPONSE.model_copy(update={"content": "later"}))
        assert cache.get(key) == RESPONSE
        assert cache.get(REQUEST.key("elsewhere")) is None


def test_unusable_folders(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="response cache cannot be made") as caught:
        ResponseCache(tmp_path / "file" / "below")
    assert caught.value.setting == "llm.cache"
    (tmp_path / FILE).write_text("no database" * 100)
    with pytest.raises(RunError, match=f"{FILE}: the response cache cannot be read or written"):
        ResponseCache(tmp_path)
