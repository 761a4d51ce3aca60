"""The response cache: shared by processes, safe against interruption."""

import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model.prompt import Request
from cefito.planners.language_model.server import Response, ResponseCache

REQUEST = Request((("user", "a"),), ((0,),), {"model": "m"})
RESPONSE = Response(asked="2026-11-22T00:00:00+00:00", served="m", content="{}")


def test_responses_are_cached_for_all_processes(tmp_path):
    key = REQUEST.key("host")
    cache = ResponseCache(tmp_path / "new")
    assert cache.get(key) is None
    cache.put(REQUEST, "host", RESPONSE)
    assert ResponseCache(tmp_path / "new").get(key) == RESPONSE
    assert cache.get(REQUEST.key("elsewhere")) is None


def test_unusable_folders(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="below: cannot be made") as caught:
        ResponseCache(tmp_path / "file" / "below")
    assert caught.value.setting == "llm.cache"
    for text in ("{", "[]", '{"response": {"asked": ""}}'):
        (tmp_path / "key.json").write_text(text)
        with pytest.raises(RunError, match=r"key\.json: .*Remove it to ask again"):
            ResponseCache(tmp_path).get("key")
