import pytest

from cefito.errors import ConfigError
from cefito.planners.cefito.weights import (
    NOTHING_FITTED,
    OBJECTIVES,
    PAPER,
    TERMS,
    ObjectiveFit,
    Weights,
)


def test_the_paper_is_the_energy_alone():
    assert vars(PAPER) == {"energy": 1.0, "prior": 0.0, "chain": 0.0, "task": 0.0}
    assert tuple(vars(PAPER)) == TERMS
    assert all(set(terms) <= set(TERMS) and "task" in terms for terms in OBJECTIVES.values())


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "1", None, [1.0]])
@pytest.mark.parametrize("name", TERMS)
def test_weights_that_cannot_be(name, value):
    with pytest.raises(
        ConfigError, match=f"weight of the {name} is .*expected a number of at least 0"
    ):
        Weights(**{name: value})


def test_before_anything_is_fitted():
    assert NOTHING_FITTED.weights == dict.fromkeys(OBJECTIVES, PAPER)
    assert NOTHING_FITTED.guide == Weights(energy=0.0, chain=1.0, task=1.0)
    assert NOTHING_FITTED.evidence is None
    assert NOTHING_FITTED.tasks == 1


@pytest.mark.parametrize("tasks", [0, -1])
def test_a_number_of_tasks_that_cannot_be(tasks):
    with pytest.raises(ConfigError, match=f"{tasks} tasks to search; expected at least 1"):
        ObjectiveFit(tasks=tasks)
