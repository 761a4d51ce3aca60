"""Errors of the library name settings; the command line adds their options."""

import ast
import re
from pathlib import Path

import pytest

from cefito.cli import build_app
from cefito.cli.options import with_option
from cefito.errors import ConfigError

SOURCE = Path(__file__).resolve().parents[2] / "src" / "cefito"
LIBRARY = sorted(  # except reports and the template of a package, which print commands
    path
    for path in SOURCE.rglob("*.py")
    if not {"cli", "report", "example"} & set(path.relative_to(SOURCE).parts)
)
# Calls of programs, which users of the library understand as well.
CALLS = ("cefito import-checkpoint ", "cefito plan RUN ", "hf download ")


@pytest.mark.parametrize(
    ("command", "setting", "option"),
    [
        ("plan RUN", "budget_gflop", "--budget"),
        ("plan RUN", "method", "--search"),
        ("plan RUN", "from_step", "--from-step"),
        ("plan RUN", "task", "--task"),
        ("evaluate RUN", "task", "--oracle-task"),
        ("evaluate RUN", "starts", "--starts"),
        ("train DATA", "method", "--method"),
        ("train DATA", "folder", "--out"),
        ("train DATA", "dataset", ""),
        ("train DATA", "training.optimiser.epochs", "--set training.optimiser.epochs=…"),
        ("train DATA --set nonsense=3", "nonsense", "--set nonsense=…"),
        ("train DATA --set=nonsense=3", "nonsense", "--set nonsense=…"),
        ("train DATA", "nonsense", ""),
        ("data prepare custom A B", "beyond", "--beyond"),
        ("quickstart", "folder", "--out"),
        ("plan RUN", "", ""),
    ],
)
def test_the_option_of_a_setting(command, setting, option):
    message = with_option(ConfigError("wrong.", setting=setting), build_app(), command.split())
    assert message == (f"wrong. ({option})" if option else "wrong.")


def test_an_option_that_is_named_already_is_not_named_again():
    problem = ConfigError("--budget -1: wrong.", setting="budget_gflop")
    assert with_option(problem, build_app(), ["plan", "RUN"]) == str(problem)


def named_options(path):
    """Options that texts of a module name, except in docstrings and in calls of programs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        "".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant))
        for node in ast.walk(tree)
        if isinstance(node, (ast.JoinedStr, ast.Constant)) and node not in docstrings
    ]
    in_others = [text for text in texts if any(call in text for call in CALLS)]
    texts = [text for text in texts if not any(text in other for other in in_others)]
    return [text for text in texts if re.search(r"(?<![\w-])--[a-z]", text)]


def test_the_library_names_no_option():
    paths = (path for path in LIBRARY if "--" in path.read_text(encoding="utf-8"))
    assert {path.name: found for path in paths if (found := named_options(path))} == {}
