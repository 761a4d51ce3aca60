import itertools
from dataclasses import fields, make_dataclass
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.search.constraints import Constraints, Declared, EachAction, declared, with_meanings
from cefito.search.feasible import Feasible

from .conftest import satisfies

ACTIONS = (2, 3, 5, 8, 13)


def brute(
    constraints: Constraints, actions: tuple[int, ...], horizon: int
) -> list[tuple[int, ...]]:
    """Places of all valid sequences, in order."""
    return [
        places
        for places in itertools.product(range(len(actions)), repeat=horizon)
        if satisfies(tuple(actions[place] for place in places), constraints)
    ]


def prefixes_of(sequences: list[tuple[int, ...]], length: int) -> list[tuple[int, ...]]:
    return sorted({sequence[:length] for sequence in sequences})


@st.composite
def cases(draw):
    """Constraints whose mistake, if any, is only that no sequence satisfies them."""
    size = draw(st.integers(1, 5))
    actions = ACTIONS[:size]
    horizon = draw(st.integers(1, 5 if size < 5 else 4))
    action = st.sampled_from(actions)
    pinned = (
        draw(st.dictionaries(st.integers(1, horizon), action, max_size=2))
        if draw(st.booleans())
        else {}
    )
    required = draw(st.lists(action, max_size=3))
    named = {*required, *pinned.values()}
    forbidden = draw(st.lists(st.sampled_from([*(set(actions) - named), 99]), max_size=2))
    pair = st.tuples(st.sampled_from([*actions, 77]), action).filter(lambda ids: ids[0] != ids[1])
    before = draw(st.lists(pair, max_size=draw(st.sampled_from([0, 2, 8])))) if size > 1 else []
    return (
        Constraints(
            pinned=tuple(pinned.items()),
            required=tuple(required),
            forbidden=tuple(forbidden),
            before=tuple(before),
            no_repeats=draw(st.booleans()),
        ),
        actions,
        horizon,
    )


def check_against_brute_force(
    constraints: Constraints, actions: tuple[int, ...], horizon: int
) -> None:
    expected = brute(constraints, actions, horizon)
    if not expected:
        with pytest.raises(ConfigError):
            Feasible(constraints, actions, horizon)
        return
    feasible = Feasible(constraints, actions, horizon)
    everything = np.array(
        list(itertools.product(range(len(actions)), repeat=horizon)), dtype=np.int64
    )
    valid = feasible.valid(everything)
    assert valid.dtype == np.bool_
    assert [tuple(places) for places in everything[valid].tolist()] == expected
    for length in range(horizon):
        prefixes = prefixes_of(expected, length)
        longer = set(prefixes_of(expected, length + 1))
        children = feasible.children(
            np.array(prefixes, dtype=np.int64).reshape(len(prefixes), length)
        )
        assert children.dtype == np.bool_
        assert children.tolist() == [
            [(*prefix, place) in longer for place in range(len(actions))] for prefix in prefixes
        ]


@given(case=cases())
def test_everything_agrees_with_brute_force(case):
    check_against_brute_force(*case)


@pytest.mark.parametrize(
    ("constraints", "size", "horizon"),
    [
        (Constraints(required=(2,), before=((3, 2), (5, 2), (8, 2)), no_repeats=True), 4, 4),
        (Constraints(pinned=((4, 3),), before=((2, 3), (5, 2), (8, 5)), no_repeats=True), 4, 4),
        (Constraints(required=(2, 3), before=((2, 3), (5, 8), (8, 5)), no_repeats=True), 4, 3),
        (Constraints(before=((2, 3), (3, 5), (5, 8), (8, 2)), no_repeats=True), 4, 4),
        (Constraints(pinned=((1, 3), (3, 3)), required=(2,), before=((2, 3),)), 3, 3),
        (Constraints(pinned=((2, 2), (3, 3)), before=((3, 2),)), 3, 3),
        (Constraints(pinned=((2, 5),), required=(2, 3), before=((3, 5),)), 3, 3),
        (Constraints(forbidden=(2,), before=((2, 3), (3, 5), (5, 2)), no_repeats=True), 4, 3),
        (Constraints(pinned=((2, 2), (2, 2)), required=(3, 3)), 3, 3),
        (Constraints(before=((2, 3), (3, 2))), 2, 4),
    ],
)
def test_hard_cases_agree_with_brute_force(constraints, size, horizon):
    check_against_brute_force(constraints, ACTIONS[:size], horizon)


@given(
    before=st.sets(
        st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda ids: ids[0] != ids[1]),
        max_size=14,
    ),
    last=st.none() | st.integers(0, 5),
    required=st.sets(st.integers(0, 5), max_size=2),
    horizon=st.integers(3, 4),
)
def test_scarce_actions_agree_with_brute_force(before, last, required, horizon):
    """No repeats and most actions ordered: steps between required ones are hard to fill."""
    pinned = () if last is None else ((horizon, last),)
    check_against_brute_force(
        Constraints(pinned=pinned, required=tuple(required), before=tuple(before), no_repeats=True),
        tuple(range(6)),
        horizon,
    )


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(pinned=((0, 2),)), "step 0, which does not exist; .* counted from 1 to 3"),
        (Constraints(pinned=((4, 2),)), "step 4, which does not exist"),
        (Constraints(pinned=((1, 4),)), "4 is pinned .* not an action .* among 2, 3, 5, 8, 13"),
        (Constraints(required=(4,)), "4 is required but is not an action"),
        (Constraints(pinned=((1, 2), (1, 3))), "step 1 is pinned to two actions, 2 and 3"),
        (Constraints(pinned=((1, 2),), forbidden=(2,)), "action 2 at step 1; action 2 forbidden"),
        (Constraints(required=(2,), forbidden=(2,)), "action 2 required; action 2 forbidden"),
        (Constraints(required=(2, 3, 5, 8)), "no sequence of 3 of the 5 allowed actions"),
        (Constraints(forbidden=(*ACTIONS, 99)), "every allowed action is forbidden"),
        (Constraints(before=((99, 99),)), "99 cannot precede itself"),
        (
            Constraints(required=(2, 3), pinned=((1, 5),), before=((2, 3), (3, 5), (5, 2))),
            "action 2 before 3; action 3 before 5; action 5 before 2",
        ),
        (Constraints(forbidden=(2, 3, 5), no_repeats=True), "action 5 forbidden; no repeats"),
        (Constraints(pinned=((3, 2), (1, 2)), no_repeats=True), "action 2 at step 1; no repeats"),
        (
            Constraints(pinned=((1, 3), (2, 5)), required=(2, 8)),
            r"no sequence of 3 of the 5 allowed actions satisfies all constraints "
            r"\(action 3 at step 1; action 5 at step 2; action 2 required; action 8 required\); "
            r"drop or change some of them",
        ),
        (
            Constraints(
                pinned=((1, 3),), required=(2,), forbidden=(8,), before=((2, 3),), no_repeats=True
            ),
            "action 8 forbidden; action 2 before 3; no repeats",
        ),
    ],
)
def test_what_cannot_be_satisfied(constraints, message):
    with pytest.raises(ConfigError, match=message):
        Feasible(constraints, ACTIONS, 3)


def test_circles_among_actions_that_may_stay_away_are_fine():
    check_against_brute_force(Constraints(required=(2,), before=((2, 3), (3, 2))), (2, 3), 3)


def test_actions_that_are_not_allowed_may_be_forbidden_and_ordered():
    feasible = Feasible(
        Constraints(forbidden=(99,), before=((99, 2), (2, 98), (97, 96))), ACTIONS, 3
    )
    assert feasible.children(np.array([[0, 1]])).tolist() == [[True] * 5]


def small(value):
    """The value of an example with actions among the first three."""
    if isinstance(value, tuple):
        return tuple(map(small, value))
    return {3: 2, 4: 5, 17: 5}.get(value, value)


@pytest.mark.parametrize("name", [field.name for field in fields(Constraints)])
def test_every_constraint_is_whole(name):
    """A new one needs words, an example, a meaning in `satisfies`, and `Feasible`."""
    assert not Constraints()
    assert Constraints().summary() == ""
    example = Constraints(**{name: small(declared()[name][1].example)})
    others = {field.name: field.default for field in fields(Constraints) if field.name != name}
    assert all(getattr(example, other) == empty for other, empty in others.items())
    assert example
    assert example.summary(), f"give '{name}' words"
    assert 0 < len(brute(example, ACTIONS[:3], 3)) < 3**3, f"give '{name}' a meaning in `satisfies`"
    check_against_brute_force(example, ACTIONS[:3], 3)


def test_a_constraint_without_a_meaning_cannot_be_declared():
    """Else it would be taken everywhere and change no plan."""
    words = ("apart", "A,B: keep apart.", "Actions apart.", "action {} apart from {}", ((3, 17),))

    def declared_with(*meaning):
        pairs = Annotated[tuple[tuple[EachAction, EachAction], ...], *meaning]
        return with_meanings(
            make_dataclass("More", [("apart", pairs, ())], bases=(Constraints,), frozen=True)
        )

    def apart(rules, pairs):
        for first, second in pairs:
            rules.closes[[first, second], [second, first]] = True

    assert declared_with(Declared(*words, apart))
    with pytest.raises(TypeError, match="'apart' lacks its Declared"):
        declared_with("a note")
    with pytest.raises(TypeError, match="'apart' has no meaning"):
        declared_with(Declared(*words, lambda rules, pairs: None))  # noqa: ARG005
    with pytest.raises(TypeError, match="meaning"):
        Declared(*words)  # type: ignore[call-arg]
    for word, empty in itertools.product(("option", "help", "description", "words"), ("", " \n")):
        with pytest.raises(TypeError, match=f"'apart' lacks its {word}"):
            declared_with(Declared(*words, apart)._replace(**{word: empty}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("forbidden", "ab"),
        ("forbidden", None),
        ("forbidden", (True,)),
        ("required", (2.0,)),
        ("pinned", ((1, 2, 3),)),
        ("pinned", (("first", 2),)),
        ("before", (3, 17)),
        ("no_repeats", 1),
    ],
)
def test_values_of_another_type(field, value):
    with pytest.raises(ConfigError, match=f"constraints: {field} is .*; expected") as caught:
        Constraints(**{field: value})
    assert caught.value.setting == field


def test_lists_and_integers_of_numpy_are_taken():
    ours = Constraints(pinned=[[1, np.int64(2)]], forbidden=[np.int32(3)])  # type: ignore[arg-type]
    assert ours == Constraints(pinned=((1, 2),), forbidden=(3,))
    assert hash(ours) == hash(Constraints(pinned=((1, 2),), forbidden=(3,)))


def test_names_reach_no_search():
    with pytest.raises(ConfigError, match="forbidden holds 'drill hole'"):
        Feasible(Constraints(forbidden=("drill hole",)), ACTIONS, 3)  # type: ignore[arg-type]


HARD = {
    "required": Constraints(required=tuple(range(8))),
    "everything before one": Constraints(
        required=(0,), before=tuple((action, 0) for action in range(1, 40)), no_repeats=True
    ),
    "a row of orders": Constraints(
        required=(20,), before=tuple(itertools.pairwise(range(40))), no_repeats=True
    ),
    "a row to an end": Constraints(
        pinned=((8, 39),), before=tuple(itertools.pairwise(range(40))), no_repeats=True
    ),
    "all ordered": Constraints(
        pinned=((8, 35),), before=tuple(itertools.combinations(range(40), 2)), no_repeats=True
    ),
}


LONG = ("a row of orders", "a row to an end")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.nightly] * (one in LONG)) for one in HARD]
)
def test_many_prefixes_at_the_largest_size(name):
    """Random walks from the root see no further than one step, yet all of them end validly."""
    feasible = Feasible(HARD[name], range(40), 8)
    generator = np.random.default_rng(3)
    walks = np.zeros((5000, 0), dtype=np.int64)
    for _ in range(8):
        possible = feasible.children(walks)
        assert possible.any(axis=1).all()
        chosen = np.where(possible, generator.random(possible.shape, dtype=np.float32), -1).argmax(
            axis=1
        )
        walks = np.concatenate([walks, chosen[:, None]], axis=1)
    assert feasible.valid(walks).all()
    assert len(np.unique(walks, axis=0)) > 1000
