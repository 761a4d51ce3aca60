"""Constraints by name."""

import json
from dataclasses import fields, replace

import pytest
from pydantic import ValidationError

from cefito.data.vocabulary import Action, Taxonomy
from cefito.errors import ConfigError
from cefito.inference.constraints import NamedConstraints, parse_constraints
from cefito.search.constraints import Constraints

NAMES = ["boil", "pour", "cut, thin", "pour", "a=b"]
TAXONOMY = Taxonomy.from_names("made", [("tea", (0, 1, 2)), ("soup", (3, 4))], NAMES)


def test_ids_and_names_mean_the_same():
    pairs = {"pinned": ((1, "boil"), (3, 2)), "before": ((0, "cut, thin"),)}
    named = NamedConstraints(required=("Boil", 2), forbidden=("a=b",), no_repeats=True, **pairs)
    pairs = {"pinned": ((1, 0), (3, 2)), "before": ((0, 2),)}
    expected = Constraints(required=(0, 2), forbidden=(4,), no_repeats=True, **pairs)
    assert named.resolved(TAXONOMY) == expected
    assert NamedConstraints().resolved(TAXONOMY) == Constraints()
    again = NamedConstraints.model_validate_json(named.model_dump_json())
    assert again == named  # its form in JSON


def test_every_constraint_can_be_named():
    assert [*NamedConstraints.model_fields] == [field.name for field in fields(Constraints)]


def test_a_name_of_several_tasks():
    everywhere = NamedConstraints(forbidden=("pour", "boil", "pour"), before=(("boil", "pour"),))
    assert everywhere.resolved(TAXONOMY) == Constraints(
        forbidden=(1, 3, 0), before=((0, 1), (0, 3))
    )
    assert everywhere.resolved(TAXONOMY, task=1) == Constraints(forbidden=(3, 0), before=((0, 3),))
    one = NamedConstraints(pinned=((1, "pour"),))
    assert one.resolved(TAXONOMY, task=1) == Constraints(pinned=((1, 3),))
    for several in (one, NamedConstraints(required=("pour",))):
        with pytest.raises(ConfigError, match="1 'pour' of 'tea', 3 'pour'") as caught:
            several.resolved(TAXONOMY)
        assert caught.value.setting in ("pinned", "required")


def test_text_of_the_command_line():
    assert parse_constraints(
        TAXONOMY,
        {
            "pinned": ["1=boil", " 2 =4"],
            "required": ["cut, thin"],
            "forbidden": ["a=b"],
            "before": ["boil, cut, thin", "cut, thin,0", "0,2", "pour,boil"],
        },
        task=0,
    ).resolved(TAXONOMY, task=0) == Constraints(
        pinned=((1, 0), (2, 4)), required=(2,), forbidden=(4,), before=((0, 2), (2, 0), (1, 0))
    )


@pytest.mark.parametrize(
    ("given", "message", "setting"),
    [
        ({"pinned": ["boil"]}, "'boil': expected STEP=ACTION, such as 1=17.", "pinned"),
        ({"pinned": ["1=bial"]}, "unknown action 'bial'; similar names: 'boil'", "pinned"),
        ({"before": ["boil"]}, "'boil': expected A,B, such as 3,17.", "before"),
        ({"before": ["boil,fry"]}, "unknown action 'fry'", "before"),
        ({"before": ["cut, thin"]}, "unknown action 'cut'", "before"),
        ({"before": ["boil, fry, pour"]}, "'boil, fry, pour': expected A,B", "before"),
    ],
)
def test_text_that_says_nothing(given, message, setting):
    with pytest.raises(ConfigError) as caught:
        parse_constraints(TAXONOMY, given).resolved(TAXONOMY)
    assert message in str(caught.value)
    assert caught.value.setting == setting


def test_constraints_of_one_query_and_of_all():
    ours = NamedConstraints(pinned=((1, "boil"),), before=((0, 2),))
    theirs = NamedConstraints(pinned=((2, 2),), required=(0,), forbidden=(1,), no_repeats=True)
    expected = theirs.model_copy(update={"pinned": ((1, "boil"), (2, 2)), "before": ((0, 2),)})
    assert ours.with_more(theirs) == expected


def test_a_comma_that_can_be_read_in_two_ways():
    actions = tuple(Action(*pair) for pair in enumerate(["a", "a,b", "b,c", "c", "d"]))
    with pytest.raises(ConfigError, match="it is ambiguous, so give ids"):
        parse_constraints(replace(TAXONOMY, actions=actions), {"before": ["a,b,c"]})


@pytest.mark.parametrize(
    "value", [{"pinned": [[True, 1]]}, {"required": [1.0]}, {"no_repeats": 1}, {"nonsense": []}]
)
def test_json_that_is_refused(value):
    with pytest.raises(ValidationError):
        NamedConstraints.model_validate_json(json.dumps(value))
