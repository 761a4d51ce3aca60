"""Measures of the source: lines a room, guards, names, apparatus against methods, circles.

python tests/structure.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src" / "cefito"
METHOD = (
    "data",
    "encoders",
    "field",
    "planners",
    "recognition",
    "search",
    "tracks",
    "training",
    "verification",
)
"""Rooms of what the library is for; all others are apparatus around it."""
EMPTY_NAME = re.compile(r"(found|one|part|given|known|own|every|each|rest)[_\d]*")
"""Names that do not say what they hold."""
PRIVATE = re.compile(r"([\w.]+\.)?_(?!_)\w*(\.\w+)*")
"""A name with an underscore, or a path through one."""
PATCHES = ("setattr", "delattr", "patch", "object")
"""Calls that replace what a test names."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
MANY = 3
"""Parameters from which on a public function says what each of them is."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name, packages by theirs."""
    return {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in sorted(SOURCE.rglob("*.py"))
    }


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def lines(name: str) -> int:
    return len(modules()[name].read_text(encoding="utf-8").splitlines())


def room(name: str) -> str:
    """First level below the package; top-level modules are the ground."""
    parts = name.split(".")
    folder = modules()[name].parent != SOURCE
    return parts[1] if folder else "ground"


def _imports(node: ast.AST, *, typing: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING" and not typing:
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from _imports(child, typing=typing)


@cache
def imported(name: str, *, typing: bool = True) -> frozenset[str]:
    """Modules of the package that a module imports, inside functions too.

    Args:
        name: The module.
        typing: Count imports for type checkers alone.
    """
    found = set()
    for node in _imports(tree(name), typing=typing):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & modules().keys() or {node.module}
    return frozenset(found & modules().keys() - {name})


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or not (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(imported(name)):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in modules():
        if name not in index:
            visit(name)
    return found


def guard_lines(name: str) -> int:
    """Lines that refuse: raises with their condition, handlers of errors, `Raises:` sections."""
    text = modules()[name].read_text(encoding="utf-8").splitlines()
    found: set[int] = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Raise | ast.ExceptHandler | ast.Assert) or (
            isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise) and not node.orelse
        ):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    inside = False
    for number, line in enumerate(text, 1):
        if line.strip() == "Raises:":
            inside, indent = True, len(line) - len(line.lstrip())
        elif inside and (line.strip() in ("", '"""') or len(line) - len(line.lstrip()) <= indent):
            inside = False
        if inside:
            found.add(number)
    return len(found)


def users() -> dict[str, set[str]]:
    """For each module those that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in modules():
        for other in imported(name):
            found[other].add(name)
    return found


def classes() -> Counter[str]:
    """How many modules define a public class of each name."""
    return Counter(
        node.name
        for name in modules()
        for node in tree(name).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def names_without_users() -> list[str]:
    """Names in `__all__` that no other module mentions, of packages' faces aside."""
    words = {
        name: set(re.findall(r"\w+", path.read_text("utf-8"))) for name, path in modules().items()
    }
    mentions = Counter(word for own in words.values() for word in own)
    return [
        f"{name}.{part.value}"
        for name, path in modules().items()
        if path.stem != "__init__"
        for node in tree(name).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for part in getattr(node.value, "elts", ())
        if mentions[getattr(part, "value", "")] == 1
    ]


def without_arguments() -> list[str]:
    """Public functions of three or more parameters whose docstring does not list them.

    It may name the function that does ("as of `train_run`"). A class lists those of its
    constructor. A method whose name another public class lists the parameters of follows a
    protocol; tests of contracts are no functions to call. Fields of a request have descriptions.
    """
    listed: set[str] = set()
    lacking: list[tuple[str, str]] = []
    for name in modules():
        for function, owners, doc in _public_functions(tree(name), ()):
            made = function.name == "__init__"
            if "Args:" in doc or re.search(r"\b(?:as of|as in|of|see) `", doc):
                listed |= {function.name} if owners and "Args:" in doc and not made else set()
            elif (
                _parameters(function) >= MANY
                and not function.name.startswith("test_")
                and not any(ast.unparse(way) == "override" for way in function.decorator_list)
            ):
                place = ".".join((name, *owners, function.name))
                lacking.append((place, function.name if owners else ""))
    return [place for place, method in lacking if method not in listed]


def _public_functions(
    node: ast.AST, owners: tuple[str, ...]
) -> Iterator[tuple[_Function, tuple[str, ...], str]]:
    """Yield each with the names of its classes, and its docstring; of a constructor the class's."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public_functions(child, (*owners, child.name))
        elif isinstance(child, _Function) and child.name == "__init__" and owners:
            yield child, owners, ast.get_docstring(cast("ast.ClassDef", node)) or ""
        elif isinstance(child, _Function) and not child.name.startswith("_"):
            yield child, owners, ast.get_docstring(child) or ""


def _parameters(function: _Function) -> int:
    given = function.args
    words = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    if any(word.annotation and ast.unparse(word.annotation) == "Request" for word in words):
        return 0  # of a route
    return len([word for word in words if word.arg not in ("self", "cls")])


def patched_private_names() -> list[str]:
    """Places in tests that replace a private name, as an argument of a patch or as a path."""
    places = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                words = node.args[:2] if node.func.attr in PATCHES else []
            elif isinstance(node, ast.Constant) and "cefito." in str(node.value):
                words = [node]
            names = [word.value for word in words if isinstance(word, ast.Constant)]
            if any(PRIVATE.fullmatch(name) for name in names if isinstance(name, str)):
                places.append(f"{path.relative_to(TESTS)}:{words[0].lineno}")
    return places


def bindings(name: str) -> list[str]:
    """Names bound in a module: targets of assignments and loops, arguments, caught errors."""
    names = []
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            names.append(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.append(node.name)
    return names


def main() -> None:
    """Print the measures."""
    counts = ("lines", "guards", "bindings", "empty")
    total: dict[str, Counter[str]] = {count: Counter() for count in counts}
    for name in modules():
        bound = bindings(name)
        empty = sum(bool(EMPTY_NAME.fullmatch(word)) for word in bound)
        measures = (lines(name), guard_lines(name), len(bound), empty)
        for count, number in zip(counts, measures, strict=True):
            total[count][room(name)] += number
            total[count]["all"] += number
    for place in sorted(total["lines"], key=lambda place: (place == "all", place)):
        long, guards, bound, empty = (total[count][place] for count in counts)
        print(
            f"{place:<12} {long:>6} lines, {100 * guards / long:4.1f} % guards, "
            f"{empty:>4} of {bound:>5} names say nothing ({100 * empty / bound:4.1f} %)"
        )
    whole = total["lines"]["all"]
    method = sum(total["lines"][place] for place in METHOD)
    print(f"apparatus: {100 * (whole - method) / whole:.0f} % of all lines")
    print(f"public functions without `Args:`: {len(without_arguments())}")
    for group in circles():
        print(f"circle: {' ↔ '.join(group)}")


if __name__ == "__main__":
    main()
