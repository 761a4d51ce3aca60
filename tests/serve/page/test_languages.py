"""The languages of the page: each message once, in a file for each language, and none elsewhere."""

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import cefito.serve.page
from browsing import ELEMENT, parsed
from cefito.search.constraints import declared
from cefito.serve.app import create_app
from cefito.serve.page import routes
from cefito.verification.mistakes import KINDS

PAGE = Path(cefito.serve.page.__file__).parent
FILES = {path.stem: path for path in (PAGE / "static" / "messages").glob("*.json")}
MESSAGES = {code: json.loads(path.read_text("utf-8")) for code, path in FILES.items()}
DECLARED = {f"finding.{name}": kind.words for name, kind in KINDS.items()}
for _, how in declared().values():
    DECLARED[f"constraint.{how.option}"] = how.words.format("{0}", "{1}", "{2}")
    DECLARED[f"about.{how.option}"] = how.description
ENGLISH = MESSAGES["en"] | DECLARED  # a declaration's words are its messages in English
SCRIPTS = {path.name: path.read_text("utf-8") for path in (PAGE / "static").glob("*.js")}
TEMPLATES = {path.name: path.read_text("utf-8") for path in (PAGE / "templates").glob("*.j2")}
# keys of the keyboard and names of the browser, which nobody reads
NAMES = (
    "Arrow.*|Page.*|Home|End|Enter|Escape|Content-Type|Retry-After|POST|DELETE|STEPS.csv|.*Error"
)


def placeholders(text):
    return sorted(re.findall(r"\{\w*\}", text))


@pytest.mark.parametrize("code", FILES)
def test_a_language_has_all_messages_with_their_placeholders(code):
    assert [key for key in MESSAGES[code] if key not in DECLARED] == list(MESSAGES["en"])
    for key, text in MESSAGES[code].items():
        assert text.strip() == text != "", key
        assert placeholders(text) == placeholders(ENGLISH[key]), key
        assert set("{}").isdisjoint(re.sub(r"\{\w+\}", "", text)), key


def test_six_languages_are_told_apart():
    assert sorted(FILES) == ["de", "en", "es", "fr", "ja", "zh"]
    for code in set(FILES) - {"en"}:
        assert MESSAGES[code]["voice"].startswith(f"{code}-")
        same = [key for key, text in MESSAGES[code].items() if text == ENGLISH[key]]
        words = [
            key for key in same if re.search("[A-Za-z]{4}", re.sub(r"\{\w+\}", "", ENGLISH[key]))
        ]
        assert len(words) < 12, words  # "Plan", "pause", "Annotation": few are one word in both


def test_messages_are_used_and_known():
    source = "\n".join([*SCRIPTS.values(), *TEMPLATES.values(), (PAGE / "routes.py").read_text()])
    literal = {*re.findall(r'"([a-z][\w.]*)"', source)}
    begins = {*re.findall(r'"([a-z_.]+\.)"', source), "constraint.", "about.", "number.", "means."}
    ends = {*re.findall(r'"(\.[a-z.]+)"', source)}
    counted = {*re.findall(r'counted\("([a-z]+)"', source)}

    def used(key):
        return (
            key in literal
            or any(key.startswith(begin) for begin in begins)
            or any(key.removesuffix(end) in literal for end in ends if key.endswith(end))
            or key.rpartition(".")[0] in counted
        )

    assert [key for key in ENGLISH if not used(key)] == []
    asked = {*re.findall(r'\b(?:t|parts|inParts)\("([\w.]+)"', source)}
    assert {key for key in asked - {*ENGLISH} if not key.endswith(".")} == set()


def test_messages_of_what_is_declared_elsewhere_are_whole():
    """A declaration need not have messages: the page then shows its words, in English."""
    first, *others = (DECLARED.keys() & MESSAGES[code] for code in FILES if code != "en")
    assert all(keys == first for keys in others)
    for _, how in declared().values():
        keys = {f"{part}.{how.option}" for part in ("constraint", "about", "held")}
        assert len(keys & {*MESSAGES["de"]}) in (0, 3), f"messages of '{how.option}'"


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_have_no_words_of_their_own(name):
    text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "", TEMPLATES[name], flags=re.DOTALL)
    for attribute in ("aria-label", "placeholder", "title", "alt"):
        assert re.findall(rf'\b{attribute}="[^"]*[A-Za-z][^"]*"', text) == []
    shown = re.sub(r"<[^>]*>", " ", text.replace("cefito", ""))
    assert re.findall("[A-Za-z]+", shown) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_have_no_words_of_their_own(name):
    code = re.sub(r"^\s*//.*$|\s//\s.*$", "", SCRIPTS[name], flags=re.MULTILINE)
    strings = re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)
    sentences = [s for s in strings if re.search("[A-Za-z]{2,} [a-z]{2,}", s)]
    selectors = [s for s in sentences if re.search(r"[.#:>\[]", s) and not s.endswith(".")]
    assert [s for s in sentences if s not in selectors] == []
    capitals = [s for s in strings if re.match("[A-Z][a-z]", s) and not re.fullmatch(NAMES, s)]
    assert capitals == []


@pytest.fixture(scope="module")
def client(drawn):
    runs = (drawn.run.folder, drawn.lengths.folder)
    with TestClient(create_app(drawn.settings(runs=runs))) as client:
        yield client


def test_a_constraint_without_messages_is_shown_in_the_words_of_its_declaration(
    client, monkeypatch
):
    keys = [f"{part}.pin" for part in ("constraint", "about", "held")]
    fewer = {key: text for key, text in MESSAGES["de"].items() if key not in keys}
    monkeypatch.setattr(routes, "messages_in", lambda _: fewer)
    routes.constraint_forms.cache_clear()
    tree = parsed(client.get("/", headers={"accept-language": "de"}).text)
    routes.constraint_forms.cache_clear()
    (form,) = [one for one in tree.iter(f"{ELEMENT}form") if one.get("id") == "add-pin"]
    how = declared()["pinned"][1]
    assert (form.get("aria-label"), form.get("data-words")) == (how.description, how.words)
    assert [one.text for one in form.iter(f"{ELEMENT}label")] == ["action …", "at step …"]


@pytest.mark.parametrize(
    ("accepted", "chosen", "code"),
    [
        ("fr-CA, de;q=0.5", None, "fr"),
        ("nl, de;q=0.5, ja;q=0.8", None, "ja"),
        ("zh-Hant-TW", None, "zh"),
        ("de;q=0, es", None, "es"),
        ("nl", None, "en"),
        ("", None, "en"),
        ("de;q=much,*", None, "en"),
        ("fr", "ja", "ja"),
        ("fr", "../en", "fr"),
    ],
)
@pytest.mark.parametrize("address", ["/", "/session"])
def test_the_language_is_the_chosen_one_or_the_browser_s(client, address, accepted, chosen, code):
    headers = {"accept-language": accepted}
    if chosen is not None:
        headers["cookie"] = f"cefito-language={chosen}"
    answer = client.get(address, headers=headers)
    tree = parsed(answer.text)
    assert tree.get("lang") == code
    title = "title.plan" if address == "/" else "title.session"
    assert next(tree.iter(f"{ELEMENT}h1")).text == MESSAGES[code][title]
    (selected,) = [one for one in tree.iter(f"{ELEMENT}option") if one.get("selected") is not None]
    assert selected.text == MESSAGES[code]["language"]
    assert "accept-language" in answer.headers["vary"]
    assert client.get(f"/static/messages/{code}.json").json() == MESSAGES[code]
    problems = [client.post("/v1/plan", json={}, headers=one).json() for one in (headers, {})]
    assert problems[0]["detail"] == problems[1]["detail"]  # in English


def test_the_choice_of_a_language_is_kept_for_a_year(client):
    script = client.get("/static/words.js").text
    (age,) = re.findall(r'"cefito-language=".*max-age=(\d+)', script)
    assert int(age) == 365 * 24 * 3600
