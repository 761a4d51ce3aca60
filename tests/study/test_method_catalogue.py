import re

import pytest

from cefito.planners.methods import METHODS
from cefito.study.method_catalogue import listed_methods, published_sizes
from cefito.study.trials import ROWS, needs_server


@pytest.fixture(scope="module")
def listed():
    return {entry["name"]: entry for entry in listed_methods()}


def test_every_method_is_described(listed):
    assert list(listed) == list(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert re.fullmatch(r"\S.{10,85}[^.]", method.line)
        assert len({*method.needs, *method.uses}) == len(method.needs + method.uses)
        assert all(row.method == name for row in method.variants)
        sections = method.settings.model_fields
        assert ("task classifier" in method.needs) == ("classifier" in sections)
        assert ("language model server" in method.needs) == ("llm" in sections)
        if method.paper is not None:
            assert re.fullmatch(r"([A-Z]+ 20\d\d)?", method.paper.venue)
            assert re.fullmatch(r"(\d{4}\.\d{5})?", method.paper.arxiv)
    assert len({method.title for method in METHODS.values()}) == len(METHODS)
    assert {row.name for row in ROWS.values() if needs_server(row)} == {
        name for name in ROWS if name.startswith("llm-")
    }


def test_parameters_at_the_published_size(listed):
    sizes = {name: method["parameters"] for name, method in listed.items()}
    # 8.5, 5.55 and 42 million, classifiers of 7.1
    assert sizes["cefito"] == {"energy field": 8_523_013, "task classifier": 7_094_290}
    assert sizes["viterbi"] == {"ViterbiPlanNet": 5_549_602}
    # 42 million each; 219 and 28.4 million
    assert [round(size / 1e6) for size in sizes["kepp"].values()] == [42, 42]
    assert [round(size / 1e6, 1) for size in sizes["mtid"].values()] == [28.4, 219.0]
    assert sizes["pdpp"] == {"PDPP network": 42_063_255, "task classifier": 7_094_290}
    assert all(sizes[name] is None for name in ("chain", "pkg", "llm-ends", "nearest", "frequent"))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_declared_is_what_planners_have(name):
    method = METHODS[name]
    assert method.abilities == method.planner.abilities
    assert method.parameters == published_sizes(method)
