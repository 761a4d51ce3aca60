import json
import re

import pytest

from cefito.planners.about import ABOUT, Paper, about, needs_of
from cefito.planners.base import Abilities, BasePlanner
from cefito.planners.registry import METHODS, Method, NoSettings
from cefito.study.methods import ListedMethod, listed_methods
from cefito.study.variants import ROWS


@pytest.fixture(scope="module")
def listed() -> dict[str, ListedMethod]:
    return {method.name: method for method in listed_methods()}


def test_every_method_is_listed_and_described(listed):
    assert list(listed) == list(METHODS)
    for name, method in listed.items():
        assert name in ABOUT, f"say what {name} is in cefito.planners.about"
        assert method.about.title
        assert re.fullmatch(r"\S.{10,85}[^.]", method.about.line)
        assert len({*method.needs, *method.about.uses}) == len(method.needs + method.about.uses)
    assert len({method.about.title for method in listed.values()}) == len(listed)


def test_papers():
    for entry in ABOUT.values():
        if entry.paper is not None:
            assert entry.paper.title
            assert re.fullmatch(r"([A-Z]+ 20\d\d)?", entry.paper.venue)
            assert re.fullmatch(r"(\d{4}\.\d{5})?", entry.paper.arxiv)
    assert ABOUT["pdpp"].paper.place == "CVPR 2023, arXiv 2303.14676"
    assert ABOUT["cefito"].paper.place == "GCPR 2026"
    assert Paper("Title").place == ""
    assert Paper("Title", "ICLR 2025").to_dict() == {
        "title": "Title",
        "venue": "ICLR 2025",
        "arxiv": None,
    }


def test_every_row_stands_with_its_method(listed):
    rows = [row.name for method in listed.values() for row in method.rows]
    assert sorted(rows) == sorted(ROWS)
    assert [row.name for row in listed["pkg"].rows] == ["pkg", "pkg-oracle-ends"]
    assert all(row.method == name for name, method in listed.items() for row in method.rows)


def test_parameters_at_the_published_size(listed):
    sizes = {name: method.parameters for name, method in listed.items()}
    # 8.5, 5.55 and 42 million, classifiers of 7.1
    assert sizes["cefito"] == {"energy field": 8_523_013, "task classifier": 7_094_290}
    assert sizes["viterbi"] == {"ViterbiPlanNet": 5_549_602}
    # 42 million each; 219 and 28.4 million
    assert [round(size / 1e6) for size in sizes["kepp"].values()] == [42, 42]
    assert [round(size / 1e6, 1) for size in sizes["mtid"].values()] == [28.4, 219.0]
    assert sizes["pdpp"] == {"PDPP network": 42_063_255, "task classifier": 7_094_290}
    assert all(sizes[name] == {} for name in ("chain", "pkg", "llm-ends", "nearest", "frequent"))


def test_what_methods_need(listed):
    assert needs_of("viterbi") == ("graph of training windows",)
    assert needs_of("frequent") == ("task classifier",)
    assert listed["cefito"].about.uses == ("text vectors of actions",)
    asking = [name for name, method in listed.items() if "language model server" in method.needs]
    assert asking == [name for name in METHODS if "llm" in METHODS[name].settings.model_fields]
    assert {row.name for method in listed.values() for row in method.rows if row.asks} == {
        name for name in ROWS if name.startswith("llm-")
    }


def test_for_json(listed):
    value = json.loads(json.dumps([method.to_dict() for method in listed.values()]))
    assert [entry["name"] for entry in value] == list(METHODS)
    entry = next(entry for entry in value if entry["name"] == "pkg")
    assert entry["can"] == ["top-k", "true ends"]
    assert entry["parameters"] is None
    assert entry["rows"][1] == {
        "name": "pkg-oracle-ends",
        "title": "PKG, true ends (oracle)",
        "oracle": True,
        "ablation": False,
    }


def test_whatever_is_registered_appears(monkeypatch):
    class Toy(BasePlanner):
        abilities = Abilities(true_task=False)

    monkeypatch.setitem(METHODS, "toy", Method(Toy, NoSettings))
    toy = listed_methods()[-1]
    assert (toy.name, toy.about, toy.can) == ("toy", about("toy"), ("top-k",))
    assert (toy.needs, toy.parameters, toy.rows) == ((), {}, ())
    assert toy.to_dict()["paper"] is None
