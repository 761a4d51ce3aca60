"""Whatever a module names in `__all__` is there, once; whatever a package shows is named there."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", MODULES)
def test_every_name_exists(name):
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    missing = [entry for entry in names if not hasattr(module, entry)]
    assert not missing
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_hide_nothing_public(name):
    """A class or function that a package imports from its own modules is in its `__all__`."""
    module = importlib.import_module(name)
    shown = {
        entry
        for entry, value in vars(module).items()
        if not entry.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(name + ".")
    }
    assert shown <= set(getattr(module, "__all__", []))
