from cefito.planners.cefito.weights import NOTHING_FITTED, OBJECTIVES, PAPER, TERMS, Weights


def test_the_paper_is_the_energy_alone():
    assert vars(PAPER) == {"energy": 1.0, "prior": 0.0, "chain": 0.0, "task": 0.0}
    assert tuple(vars(PAPER)) == TERMS
    assert all(set(terms) <= set(TERMS) and "task" in terms for terms in OBJECTIVES.values())


def test_before_anything_is_fitted():
    assert NOTHING_FITTED.weights == dict.fromkeys(OBJECTIVES, PAPER)
    assert NOTHING_FITTED.guide == Weights(energy=0.0, chain=1.0, task=1.0)
    assert NOTHING_FITTED.evidence is None
    assert NOTHING_FITTED.tasks == 1
