"""Tables: pyarrow for Parquet, and columns made from records."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from cefito.errors import ConfigError
from cefito.files import check_target

__all__ = ["arrow_schema", "check_plan_file", "import_pyarrow"]


def check_plan_file(path: Path, setting: str) -> None:
    """Check that plans can be written into a file, before any work."""
    check_target(path, (".jsonl", ".parquet"), setting)
    if path.suffix == ".parquet":
        import_pyarrow(path, setting)


def import_pyarrow(path: Path | str, setting: str) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as problem:
        raise ConfigError(
            f"{path}: pyarrow is not installed. Run pip install cefito[table], or use .jsonl.",
            setting=setting,
        ) from problem


def arrow_schema(record: type[BaseModel]) -> Any:
    """Return a pyarrow schema with a column for each field of a record."""
    return import_module("pyarrow").schema(list(_arrow_type(record)))


def _arrow_type(kind: Any) -> Any:
    pyarrow = import_module("pyarrow")
    if get_origin(kind) is list:
        return pyarrow.list_(_arrow_type(get_args(kind)[0]))
    if isinstance(kind, UnionType):  # X | None; every column may hold nulls
        return _arrow_type(get_args(kind)[0])
    if issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        return pyarrow.struct([(name, _arrow_type(field.annotation)) for name, field in fields])
    names = {int: "int64", float: "float64", str: "string", bool: "bool"}
    return pyarrow.type_for_alias(names[kind])
