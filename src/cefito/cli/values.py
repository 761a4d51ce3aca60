"""Options without a value, and `--json`; light, for quick commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from functools import wraps
from inspect import Parameter as SignatureParameter
from inspect import signature
from io import StringIO
from typing import Annotated, Any

from cyclopts import Parameter

from cefito.cli.console import print_json

Flag = Annotated[bool, Parameter(negative="")]
"""An option without a value."""

Json = Annotated[Flag, Parameter(help="Print JSON instead of a table.")]
"""Whether the output is for programs."""


def said_as_json(command: Callable[..., Any]) -> Callable[..., None]:
    """Add --json to a command that returns what it says; its tables are then left out."""

    @wraps(command)
    def answering(*given: Any, json: bool = False, **options: Any) -> None:
        with redirect_stdout(StringIO()) if json else nullcontext():
            value = command(*given, **options)
        if json:
            print_json(value)

    called = signature(command)
    flag = SignatureParameter("json", SignatureParameter.KEYWORD_ONLY, default=False)
    vars(answering)["__signature__"] = called.replace(
        parameters=[*called.parameters.values(), flag]
    )
    answering.__annotations__ = {**command.__annotations__, "json": Json}
    return answering
