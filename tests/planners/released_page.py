"""The authors' training as data, and the page of the documentation made of it.

Run it to write docs/released.md anew.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from cefito.settings import flattened

PAGE = Path(__file__).parents[2] / "docs" / "released.md"
TABLE: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("released.toml").read_text(encoding="utf-8")
)
SECTIONS = ("field", "training", "search", "classifier", "classifier_training")
_ABOUT = """# The authors' training, setting by setting

The preset `released` trains as the authors' public code does. A test compares its settings with the
authors' values (`tests/planners/released.toml`, which this page is generated from). `cefito config
show released --dataset crosstask --horizon 3` shows all settings.
"""


def values() -> dict[str, Any]:
    """Their values by dotted key, where no variant applies."""
    return flattened({name: TABLE[name] for name in SECTIONS})


def variants() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Data set and horizon of each of their variants, and its values by dotted key."""
    found = []
    for variant in TABLE["variant"]:
        where = {key: variant[key] for key in ("dataset", "horizon") if key in variant}
        found.append((where, flattened({k: v for k, v in variant.items() if k not in where})))
    return found


def page() -> str:
    """The page as Markdown."""
    lines = [_ABOUT, "## Settings that depend on the data set", ""]
    lines += ["| setting | value | other values |", "| --- | --- | --- |"]
    named = {"crosstask": "CrossTask", "coin": "COIN", "niv": "NIV"}
    others: dict[str, list[str]] = {}
    for where, changed in variants():
        place = named[where["dataset"]]
        place += f", T = {where['horizon']}" if "horizon" in where else ""
        for key, value in changed.items():
            others.setdefault(key, []).append(f"{place}: {_text(value)}")
    known = values()
    for key in sorted(others):
        shown = _text(known[key]) if key in known else "–"
        lines.append(f"| `{key}` | {shown} | {'; '.join(others[key])} |")
    lines += ["", "## Settings that differ", ""]
    lines += ["| setting | `released` | theirs | reason |", "| --- | --- | --- | --- |"]
    for entry in TABLE["difference"]:
        value = _text(entry["value"])
        lines.append(f"| `{entry['setting']}` | {value} | {entry['theirs']} | {entry['reason']} |")
    lines += ["", "## Other differences", ""]
    lines += [f"- **{entry['what']}.** {entry['reason']}" for entry in TABLE["apart"]]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
