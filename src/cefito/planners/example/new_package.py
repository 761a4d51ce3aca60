"""A package with a planner of one's own: the example under another name, its test and metadata."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from cefito.errors import ConfigError, RunError, explained
from cefito.planners.methods import METHODS

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

# the names linear-example, linear_example and LinearExample become those of the planner
_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "cefito-linear-example"
version = "0.1.0"
description = "The planner linear-example for cefito"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["cefito", "torch"]

[project.optional-dependencies]
test = ["pytest>=9"]

[project.entry-points."cefito.planners"]
linear-example = "cefito_linear_example.planner:METHOD"
"""
_README = """\
# cefito-linear-example

The planner `linear-example` for `cefito`, in `src/cefito_linear_example/planner.py`.

```
pip install -e '.[test]'
pytest                                              # what every planner promises
cefito planners
cefito train DATA --method linear-example --horizon 3 --out RUN
cefito compare DATA --planners linear-example,frequent --horizons 3 --seeds 1 --out STUDY
```

The file begins as a network that is linear in both observations: replace network, loss and `decode`
by your own. Settings are set by their keys, as in `linear_example.training.optimiser.epochs=10`.
"""
_TEST = '''\
"""What every planner promises, checked on a small simulated world."""

from cefito.testing import PlannerContract


class TestLinearExample(PlannerContract):
    method = "linear-example"
'''


def write_package(name: str, folder: Path) -> list[Path]:
    """Write a package with a planner into a new folder, and return its files.

    Args:
        name: Name of the method, lower-case words joined by hyphens, such as "my-planner";
            underscores become hyphens.
        folder: Folder to make; it does not exist yet.

    Raises:
        ConfigError: Another name, or one that a method has.
        RunError: The folder exists or cannot be written.
    """
    name = name.replace("_", "-")
    if not _NAME.fullmatch(name) or len(name) > 40:
        raise ConfigError(f"'{name}': expected lower-case words joined by hyphens.", setting="name")
    if name in METHODS:
        raise ConfigError(f"'{name}': a method has this name. Choose another.", setting="name")
    if folder.exists():
        raise RunError(f"{folder}: exists already. Choose another folder.", setting="out")
    example = files("cefito.planners.example").joinpath("linear_example.py")
    package = Path("src", "cefito_linear_example")
    texts = {
        Path("pyproject.toml"): _PROJECT,
        Path("README.md"): _README,
        package / "__init__.py": '"""The planner linear-example."""\n',
        package / "planner.py": example.read_text(encoding="utf-8"),
        Path("tests", "test_linear_example.py"): _TEST,
    }
    written = []
    with explained(folder, "could not be written", "", OSError, error=RunError, writes=True):
        for path, text in texts.items():
            target = folder / _renamed(str(path), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(text, name), encoding="utf-8")
            written.append(target)
    return written


def _renamed(text: str, name: str) -> str:
    words = name.split("-")
    joined = "".join(map(str.capitalize, words))
    for old, new in (
        ("linear-example", name),
        ("linear_example", "_".join(words)),
        ("LinearExamplePlanner", f"{joined.removesuffix('Planner')}Planner"),
        ("LinearExample", joined),
        ("Linear example", " ".join(words).capitalize()),
        ("linear example", " ".join(words)),
    ):
        text = text.replace(old, new)
    return text
