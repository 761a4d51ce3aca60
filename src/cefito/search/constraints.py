"""Constraints of plans: known steps, required and forbidden actions, orders of actions.

To add one, write a field of `Constraints` with its `Declared`, whose `meaning` is a function that
adds to `Rules`; a rule of a new kind is a field of `Rules` that `Feasible` follows. Options, names,
requests and the page follow from the type; the page says its words where the messages have none.
Describe it in docs/searches.md. Its test: a meaning in `satisfies` of `tests/search/conftest.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError

Step = Annotated[int, "step"]
"""A step of a plan, counted from 1."""
OneAction = Annotated[int, "one"]
"""An action id; a name in its place must be the name of one action."""
EachAction = Annotated[int, "each"]
"""An action id; a name in its place means all actions of that name."""
_LONGEST_EXAMPLE = 9  # steps


@dataclass
class Rules:
    """What all constraints together demand of sequences of T of A allowed actions.

    Rules know actions by their places among the allowed ones.
    """

    actions: Sequence[int]  # ids of the allowed actions [A]
    horizon: int  # T
    usable: NDArray[np.bool_]  # which actions may occur [A]
    closes: NDArray[np.bool_]  # [a, b]: after a, b may not come any more [A, A]
    pinned: dict[int, int] = field(default_factory=dict)  # action of a step, counted from 0
    required: set[int] = field(default_factory=set)  # actions that must occur
    once: bool = False  # whether no action may occur twice

    @classmethod
    def of(cls, constraints: Constraints, actions: Sequence[int], horizon: int) -> Self:
        """Apply the meaning of each constraint.

        Raises:
            ConfigError: An action or step does not exist, a step is pinned to two actions, an
                action is to precede itself, or no action is usable.
        """
        rules = cls.none(actions, horizon)
        for how, value in constraints.given():
            how.meaning(rules, value)
        if not rules.usable.any():
            raise ConfigError("every allowed action is forbidden; leave at least one.")
        return rules

    @classmethod
    def none(cls, actions: Sequence[int], horizon: int) -> Self:
        """Return rules that allow all sequences."""
        size = len(actions)
        return cls(actions, horizon, np.ones(size, np.bool_), np.zeros((size, size), np.bool_))

    @property
    def restrict(self) -> bool:
        """Whether some sequence is not allowed, or could not be with more actions."""
        rules = self.pinned, self.required, self.once, self.closes.any(), not self.usable.all()
        return any(map(bool, rules))

    def place(self, action: int, word: str) -> int:
        """Return the place of an action, which a message calls `word` (else ConfigError)."""
        if (place := self.places.get(action)) is None:
            raise ConfigError(
                f"action {action} is {word} but is not an action of this task; "
                f"choose among {', '.join(map(str, self.actions))}."
            )
        return place

    @cached_property
    def places(self) -> dict[int, int]:
        """Place of each action."""
        return {action: place for place, action in enumerate(self.actions)}


class Declared(NamedTuple):
    """How users give a constraint, how messages say it, and what it means."""

    option: str  # of the command line, and the field of a request
    help: str  # of the option
    description: str  # of the field of a request
    words: str  # for each entry of the value
    example: Any  # of a value
    meaning: Callable[[Rules, Any], None]  # adds what a value demands


def _pin(rules: Rules, pinned: Sequence[tuple[int, int]]) -> None:
    for step, action in pinned:
        if not 1 <= step <= rules.horizon:
            raise ConfigError(
                f"action {action} is pinned to step {step}, which does not exist; "
                f"steps are counted from 1 to {rules.horizon}."
            )
        place = rules.place(action, "pinned")
        if (other := rules.pinned.setdefault(step - 1, place)) != place:
            raise ConfigError(
                f"step {step} is pinned to two actions, {rules.actions[other]} and {action}; "
                "keep one."
            )


def _require(rules: Rules, required: Sequence[int]) -> None:
    rules.required.update(rules.place(action, "required") for action in required)


def _forbid(rules: Rules, forbidden: Sequence[int]) -> None:
    rules.usable[[rules.places[action] for action in forbidden if action in rules.places]] = False


def _order(rules: Rules, before: Sequence[tuple[int, int]]) -> None:
    for first, second in before:
        if first == second:
            raise ConfigError(
                f"action {first} cannot precede itself; name two different actions, or forbid "
                "repeats."
            )
        if {first, second} <= rules.places.keys():
            rules.closes[rules.places[second], rules.places[first]] = True


def _once(rules: Rules, no_repeats: bool) -> None:
    rules.once = no_repeats


Kind = TypeVar("Kind", bound=type)


def with_meanings(kind: Kind) -> Kind:
    """Refuse a class of constraints of which one has no meaning (TypeError)."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        how = next((how for how in get_args(hint)[1:] if isinstance(how, Declared)), None)
        if how is None:
            raise TypeError(f"the constraint '{name}' lacks its Declared.")
        words = ("option", "help", "description", "words")
        if lacking := [which for which in words if not getattr(how, which).strip()]:
            raise TypeError(f"the constraint '{name}' lacks its {', '.join(lacking)}.")
        rules = Rules.none(range(int(np.max(how.example)) + 1), _LONGEST_EXAMPLE)
        how.meaning(rules, how.example)
        if not rules.restrict:
            raise TypeError(f"the constraint '{name}' has no meaning: {how.example} adds no rule.")
    return kind


@with_meanings
@dataclass(frozen=True)
class Constraints:
    """Constraints that a plan must satisfy, by ids of actions; none by default.

    Attributes:
        pinned: Pairs of a step, counted from 1, and its action.
        required: Actions that must occur.
        forbidden: Actions that must not occur.
        before: Pairs (A, B): if both occur, every A must precede every B.
        no_repeats: Whether no action may occur twice.

    Raises:
        ConfigError: A value of another type.
    """

    pinned: Annotated[
        tuple[tuple[Step, OneAction], ...],
        Declared(
            "pin",
            "STEP=ACTION: the action of a step, counted from 1, is known; may be repeated. "
            "Actions are given by name or id.",
            "Known actions by step, counted from 1.",
            "action {1} at step {0}",
            ((1, 17),),
            _pin,
        ),
    ] = ()
    required: Annotated[
        tuple[OneAction, ...],
        Declared(
            "require",
            "An action that must occur; may be repeated.",
            "Actions that must occur.",
            "action {} required",
            (17,),
            _require,
        ),
    ] = ()
    forbidden: Annotated[
        tuple[EachAction, ...],
        Declared(
            "forbid",
            "An action that must not occur; may be repeated.",
            "Actions that must not occur.",
            "action {} forbidden",
            (4,),
            _forbid,
        ),
    ] = ()
    before: Annotated[
        tuple[tuple[EachAction, EachAction], ...],
        Declared(
            "before",
            "A,B: if actions A and B both occur, A comes first; or a file of orders, .json, as "
            "cefito graph writes it. May be repeated.",
            "Pairs [A, B]: if both occur, every A comes before every B.",
            "action {} before {}",
            ((3, 17),),
            _order,
        ),
    ] = ()
    no_repeats: Annotated[
        bool, Declared("no_repeats", *["No action may occur twice."] * 2, "no repeats", True, _once)
    ] = False

    def __post_init__(self) -> None:
        for name, (kind, how) in declared().items():
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, _checked(kind, value))
            except (TypeError, ValueError) as problem:
                raise ConfigError(
                    f"constraints: {name} is {value!r}; expected a value such as {how.example}.",
                    setting=name,
                ) from problem

    def given(self) -> Iterator[tuple[Declared, Any]]:
        """Yield the declaration and the value of each constraint that is not the default."""
        for name, (_, how) in declared().items():
            if (value := getattr(self, name)) != getattr(Constraints, name):
                yield how, value

    def __bool__(self) -> bool:
        return any(True for _ in self.given())

    def summary(self) -> str:
        """Return all constraints in words."""
        return "; ".join(
            how.words.format(*(entry if isinstance(entry, tuple) else (entry,)))
            for how, value in self.given()
            for entry in (value if isinstance(value, tuple) else (value,))
        )


@cache
def declared() -> dict[str, tuple[Any, Declared]]:
    """Return the type and the declaration of each constraint, by its field."""
    hints = get_type_hints(Constraints, include_extras=True)
    return {name: (hint.__origin__, *hint.__metadata__) for name, hint in hints.items()}


def entry_parts(kind: Any) -> tuple[Any, ...]:
    """Return the kinds of the parts of an entry; none if a constraint has one value."""
    if get_origin(kind) is not tuple:
        return ()
    entry = get_args(kind)[0]
    return get_args(entry) if get_origin(entry) is tuple else (entry,)


def by_step(kind: Any) -> bool:
    """Whether a constraint has one value for each of some steps."""
    parts = entry_parts(kind)
    return len(parts) == 2 and parts[0] == Step


def _parts(kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """Return the kind and the value of each entry of a tuple."""
    kinds = get_args(kind)
    kinds = kinds[:1] * len(value) if kinds[1:] == (...,) else kinds
    return list(zip(kinds, value, strict=True))


def _checked(kind: Any, value: Any) -> Any:
    """Return a value of a kind, lists as tuples (else TypeError or ValueError)."""
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_checked(*part) for part in _parts(kind, value))
    named = kind in (OneAction, EachAction) and isinstance(value, str)  # for `cefito.inference`
    if named or (kind is bool and isinstance(value, bool)):
        return value
    if get_origin(kind) is tuple or kind is bool or isinstance(value, bool):
        raise TypeError
    return operator.index(value)


UNCONSTRAINED = Constraints()
"""No conditions on plans."""


def check_actions(constraints: Constraints, known: int | None = None) -> None:
    """Refuse names, and ids beyond a vocabulary of `known` actions (ConfigError)."""

    def actions(kind: Any, value: Any) -> Iterator[Any]:
        if kind in (OneAction, EachAction):
            yield value
        elif get_origin(kind) is tuple:
            for part in _parts(kind, value):
                yield from actions(*part)

    most = "" if known is None else f" from 0 to {known - 1}"
    for name, (kind, _) in declared().items():
        for action in actions(kind, getattr(constraints, name)):
            if isinstance(action, str) or (known is not None and not 0 <= action < known):
                raise ConfigError(
                    f"constraints: {name} holds {action!r}; expected ids of actions{most}. "
                    "NamedConstraints of cefito.inference.constraints finds ids of names.",
                    setting=name,
                )
