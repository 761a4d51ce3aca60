"""The taxonomies that the paper's authors publish, in the form of a `taxonomy.json`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cefito.errors import DataError

_AUTHORS_TASK = re.compile(r"([0-9]+)_(?:[0-9]+_)?(.*\S.*)", re.DOTALL)
_MOST_IDS = 10_000


def is_authors_taxonomy(value: Any) -> bool:
    """Whether JSON is a taxonomy as the paper's authors write it.

    It is {"0_23521_Make Jello Shots": {"0": "pour water", …}, …}: id, the data set's own number of
    the task (CrossTask alone) and its name, and the names of its actions by their ids.
    """
    return (
        isinstance(value, dict)
        and bool(value)
        and all(_AUTHORS_TASK.fullmatch(key) for key in value)
        and all(isinstance(actions, dict) for actions in value.values())
    )


def common_form(value: dict[str, dict[str, Any]], place: str) -> dict[str, Any]:
    """Return a taxonomy in the authors' form as the content of a `taxonomy.json`.

    Ids that no task has get made-up names.
    """
    names: dict[int, str] = {}
    tasks = []
    for key, actions in value.items():
        number, name = _AUTHORS_TASK.fullmatch(key).groups()  # type: ignore[union-attr]
        for action, called in actions.items():
            if not re.fullmatch(r"[0-9]{1,4}", action) or not isinstance(called, str):
                expected = f"expected an id from 0 to {_MOST_IDS - 1:,}, and a name"
                raise DataError(f"{place}: '{key}' has the action {action!r}; {expected}.")
            if names.setdefault(int(action), called) != called:
                both = f"'{names[int(action)]}' and '{called}'"
                raise DataError(f"{place}: action {action} is {both}. Keep one name.")
        tasks.append({"id": int(number), "name": name, "actions": list(map(int, actions))})
    return {
        "dataset": Path(place).stem.partition("_taxonomy")[0],
        "tasks": tasks,
        "actions": [
            {"id": action, "name": names.get(action, f"action {action}")}
            for action in range(max(names, default=-1) + 1)
        ],
    }
