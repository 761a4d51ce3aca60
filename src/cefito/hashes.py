"""SHA-256 digests of files and of JSON values, by which saved results are verified."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cefito.files import sha256

__all__ = ["SEAL", "file_digest", "unsealed", "value_digest", "value_sealed"]

SEAL = "sha256"
"""Entry of a JSON object that holds the digest of all its other entries."""
_SETTLED = 2.0
"""Seconds after which a file's time shows a change; clocks of file systems are coarse."""
_Stamp = tuple[int, int, int, int, int]
_known: dict[_Stamp, str] = {}


def file_digest(path: Path, *, anew: bool = False) -> str:
    """SHA-256 of a file's content, in hex.

    A file that is unchanged since this process hashed it is read again only if `anew`.
    """
    stamp = _stamp(path.stat())
    if not anew and stamp in _known:
        return _known[stamp]
    digest = sha256(path)
    settled = max(stamp[3:]) + _SETTLED * 1e9 < time.time_ns()
    if settled and _stamp(path.stat()) == stamp:
        _known[stamp] = digest
    return digest


def _stamp(stat: os.stat_result) -> _Stamp:
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def value_digest(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of keys and the layout of the file."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def value_sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add the digest of its entries to a JSON object."""
    entries = {name: part for name, part in value.items() if name != SEAL}
    plain = json.loads(json.dumps(entries))  # as it is read later: lists, text keys
    return {**entries, SEAL: value_digest(plain)}


def unsealed(value: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Entries of a JSON object without its digest, and whether it has one that matches them."""
    entries = {name: part for name, part in value.items() if name != SEAL}
    return entries, value.get(SEAL) == value_digest(entries)
