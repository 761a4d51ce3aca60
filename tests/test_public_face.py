"""Whatever a module names in `__all__` is there, once; whatever a package shows is named there."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import cefito
from cefito.data.windows import cut_windows
from cefito.progress import silent

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "cefito").rglob("*.py")
    if path.name != "__main__.py"
)
PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in (SOURCE / "cefito").rglob("__init__.py")
)


def named(module):
    return getattr(module, "__all__", [])


def test_every_name_exists():
    modules = [importlib.import_module(name) for name in MODULES]
    missing = [(each, name) for each in modules for name in named(each) if not hasattr(each, name)]
    assert missing == []
    assert [each for each in modules if len(set(named(each))) < len(named(each))] == []


def test_packages_hide_nothing_public():
    """A class or function that a package imports from its own modules is in its `__all__`."""
    hidden = [
        f"{name}.{entry}"
        for name in PACKAGES
        for entry, value in vars(importlib.import_module(name)).items()
        if not entry.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(f"{name}.")
        and entry not in named(importlib.import_module(name))
    ]
    assert hidden == []


def test_progress_is_silent_unless_it_is_given():
    defaults = set()
    for module in map(importlib.import_module, MODULES):
        for name in named(module):
            if callable(function := getattr(module, name)) and not inspect.isbuiltin(function):
                given = inspect.signature(function).parameters.get("progress")
                defaults |= set() if given is None else {given.default}
    assert defaults - {inspect.Parameter.empty} == {silent}


def test_objects_and_the_package_say_what_they_are(tiny_dataset, nearest_run, video):
    windows = cut_windows(tiny_dataset, horizon=3, split="test")
    ends: dict[str, Any] = {"start": (video.video_id, 1), "goal": (video.video_id, 3)}
    answer = cefito.open_run(nearest_run.folder).plan(**ends, top_k=1)
    best = f"{answer.plans[0].score:.4f}  {' → '.join(answer.best)}"
    for one, said in (
        (tiny_dataset.taxonomy, "Taxonomy('tiny', 3 tasks, 8 actions)"),
        (tiny_dataset.annotations, "Annotations('tiny', 10 videos, 35 steps)"),
        (windows, "Windows(6 of 3 actions, 4 features, split 'test' of 'tiny')"),
        (cefito.Queries.from_windows(windows), "Queries(6 of 4 features, tasks unknown)"),
        (answer, f"Answer(1 plan, best {best}, task {answer.task!r}, exact)"),
    ):
        assert repr(one) == said
    assert {"open_run", "Queries"} <= {*dir(cefito)}
