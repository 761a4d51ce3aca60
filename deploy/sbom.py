"""Write a bill of materials (CycloneDX 1.6, JSON) of what pip would install.

python deploy/sbom.py REPORT OUT        # REPORT: as of pip install --report
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def bill(report: dict[str, Any]) -> dict[str, Any]:
    """Return the bill of a report: packages with licences and hashes, and what needs what."""
    entries = {canonicalize_name(entry["metadata"]["name"]): entry for entry in report["install"]}
    components = {name: _component(entry) for name, entry in entries.items()}
    application = components.pop("cefito")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**application, "type": "application"}},
        "components": list(components.values()),
        "dependencies": [
            {
                "ref": _place(entry),
                "dependsOn": [_place(entries[name]) for name in _needs(entry, entries)],
            }
            for entry in entries.values()
        ],
    }


def _component(entry: dict[str, Any]) -> dict[str, Any]:
    of = entry["metadata"]
    classified = [line for line in of.get("classifier", []) if line.startswith("License :: ")]
    names = [line.rpartition(" :: ")[2] for line in classified] or [of.get("license", "")]
    named = [{"license": {"name": name.partition("\n")[0]}} for name in names if name]
    written = of.get("license_expression") or _installed(of["name"])
    digest = entry["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    return {
        "type": "library",
        "bom-ref": _place(entry),
        "name": of["name"],
        "version": of["version"],
        "purl": _place(entry),
        "licenses": [{"expression": written}] if written else named,
        **({"hashes": [{"alg": "SHA-256", "content": digest}]} if digest else {}),
    }


def _installed(name: str) -> str | None:
    """The licence of an installed package, which reports of older versions of pip leave out."""
    with suppress(PackageNotFoundError):
        return metadata(name).get("License-Expression")
    return None


def _place(entry: dict[str, Any]) -> str:
    of = entry["metadata"]
    return f"pkg:pypi/{canonicalize_name(of['name'])}@{of['version']}"


def _needs(entry: dict[str, Any], entries: dict[str, Any]) -> list[str]:
    """Names of the packages that a package needs here, with the extras that it was asked for."""
    extras = ["", *entry.get("requested_extras", [])]
    needed = set()
    for requirement in map(Requirement, entry["metadata"].get("requires_dist", [])):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            needed.add(canonicalize_name(requirement.name))
    return sorted(needed & entries.keys())


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    text = json.dumps(bill(json.loads(source.read_text(encoding="utf-8"))), indent=1)
    target.write_text(text + "\n", encoding="utf-8")
