"""The base of all that is kept in JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import SerializerFunctionWrapHandler, ValidationError, model_serializer

from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.hashes import unsealed, value_sealed
from cefito.settings import Record

__all__ = ["FileRecord"]


class FileRecord(Record):
    """Something that is kept in a JSON file, alone or as a part.

    Attributes:
        what: What it is called in messages.
        remedy: What to do about a file that cannot be read.
        optional: Fields that are left out of the file where they are None.
        sealed: Whether the file holds the digest of its entries too, compared when it is read.
    """

    what: ClassVar[str] = "record"
    remedy: ClassVar[str] = "Make it again."
    optional: ClassVar[frozenset[str]] = frozenset()
    sealed: ClassVar[bool] = False

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            name: value
            for name, value in handler(self).items()
            if value is not None or name not in self.optional
        }

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.model_dump(mode="json")

    def write(self, path: Path) -> None:
        """Write it into a file.

        Raises:
            RunError: The file cannot be written.
        """
        write_json(path, value_sealed(self.to_dict()) if self.sealed else self.to_dict())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file.

        Raises:
            RunError: Missing, damaged, or of another version.
        """
        return cls.parse(read_json(path, cls.remedy, RunError), path)

    @classmethod
    def parse(cls, value: Any, path: Path) -> Self:
        """The record that the content of a file holds.

        Args:
            value: The content.
            path: The file, for the message.

        Raises:
            RunError: It is no such record of this version, or has changed since it was written.
        """
        if cls.sealed and isinstance(value, dict):
            value, whole = unsealed(value)
            if not whole:
                raise RunError(
                    f"{path}: has changed since it was written (its entries differ from their own "
                    f"SHA-256). {cls.remedy}"
                )
        try:
            # as JSON: lists stand for tuples, but 3.0 for no whole number and "3" for none
            return cls.model_validate_json(json.dumps(value), strict=True)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise RunError(
                f"{path}: not a {cls.what} of this version ({reason}). {cls.remedy}"
            ) from problem
