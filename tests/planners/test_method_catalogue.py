import pytest

from cefito.planners.methods import METHODS, listed_methods, published_sizes


@pytest.fixture(scope="module")
def listed():
    return {entry["name"]: entry for entry in listed_methods()}


def test_parameters_at_the_published_size(listed):
    sizes = {name: method["parameters"] for name, method in listed.items()}
    # 8.5, 5.55 and 42 million, classifiers of 7.1
    assert sizes["cefito"] == {"energy field": 8_523_013, "task classifier": 7_094_290}
    assert sizes["viterbi"] == {"ViterbiPlanNet": 5_549_602}
    # 42 million each; 219 million
    assert [round(size / 1e6) for size in sizes["kepp"].values()] == [42, 42]
    assert [round(size / 1e6, 1) for size in sizes["mtid"].values()] == [7.1, 219.0]
    assert sizes["pdpp"] == {"PDPP network": 42_063_255, "task classifier": 7_094_290}
    assert all(sizes[name] is None for name in ("chain", "pkg", "nearest", "frequent"))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_declared_is_what_planners_have(name):
    method = METHODS[name]
    assert method.abilities == method.planner.abilities
    assert method.parameters == published_sizes(method)
