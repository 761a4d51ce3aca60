"""Answers are kept, whoever is killed and whoever writes at the same time."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model.response_cache import Answered, ResponseCache, open_book


def answer(key="a", content="{}"):
    return Answered(key=key, asked="2026-11-22T00:00:00+00:00", served="m", content=content)


def keep(book, key, content="{}"):
    return book.ask_once(key, lambda: (answer(key, content), [("user", "what?")]))


def refused():
    raise AssertionError("asked twice")


def test_what_was_answered_is_not_asked_again(tmp_path):
    book = open_book(tmp_path / "new", "host", "m")
    assert book.get("a") is None
    assert keep(book, "a").content == "{}"
    assert book.ask_once("a", refused) == book.get("a")
    other = ResponseCache(book.path)  # as another process has it
    other.refresh()
    assert other.get("a") == book.get("a")
    keep(other, "b")
    book.refresh()
    assert book.get("b") == other.get("b")
    (line, _) = book.path.read_text().splitlines()
    assert json.loads(line)["question"] == [["user", "what?"]]


def test_models_and_servers_have_books_of_their_own(tmp_path):
    paths = {
        open_book(tmp_path, host, model).path
        for host, model in (("h", "m"), ("h", "n"), ("i", "m"), ("h", "m/..:"), ("h", "m/.."))
    }
    assert len(paths) == 5
    assert {path.parent for path in paths} == {tmp_path}
    assert open_book(tmp_path, "h", "m") is open_book(tmp_path, "h", "m")


@pytest.mark.parametrize("end", [b'{"key": "b", "asked"', b'{"key": 3}\n', b"\xff\xfe\n", b"{}\n["])
def test_a_line_that_was_cut_short_is_passed_over(end, tmp_path):
    book = open_book(tmp_path, "host", "m")
    keep(book, "a")
    with book.path.open("ab") as file:
        file.write(end)
    book.refresh()
    keep(book, "c")
    again = ResponseCache(book.path)
    again.refresh()
    assert [again.get(key) is not None for key in "abc"] == [True, False, True]


def test_a_book_that_was_removed(tmp_path):
    book = open_book(tmp_path, "host", "m")
    keep(book, "a")
    book.path.unlink()
    assert open_book(tmp_path, "host", "m").get("a") is None
    keep(book, "b")
    assert len(book.path.read_text().splitlines()) == 1


def test_threads_ask_once(tmp_path):
    book, asked, gate = open_book(tmp_path, "host", "m"), [], threading.Barrier(8)

    def ask(key):
        gate.wait()

        def once():
            asked.append(key)
            return answer(key), []

        return book.ask_once(key, once)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, "abababab"))
    assert sorted(asked) == ["a", "b"]
    assert len(book.path.read_text().splitlines()) == 2


def test_two_writers_lose_nothing(tmp_path):
    books = [ResponseCache(tmp_path / "b.jsonl") for _ in range(4)]  # as of four processes

    def write(number):
        for place in range(25):
            keep(books[number], f"{number}-{place}", "x" * 5000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    whole = ResponseCache(tmp_path / "b.jsonl")
    whole.refresh()
    assert all(whole.get(f"{number}-{place}") for number in range(4) for place in range(25))


def test_what_fails_is_asked_again(tmp_path):
    book = open_book(tmp_path, "host", "m")

    def fails():
        raise RunError("no")

    with pytest.raises(RunError):
        book.ask_once("a", fails)
    assert keep(book, "a") == book.get("a")


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="the folder that keeps answers cannot be made") as caught:
        open_book(tmp_path / "file" / "below", "h", "m")
    assert caught.value.setting == "llm.cache"
    book = open_book(tmp_path, "h", "m")
    book.path.mkdir()
    with pytest.raises(RunError, match="an answer could not be kept"):
        keep(book, "a")
    with pytest.raises(RunError, match="cannot be read"):
        open_book(tmp_path, "h", "m")
