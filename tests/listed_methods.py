"""Abilities and sizes of this package's methods, as `cefito planners` lists them.

Run it to write src/cefito/study/methods.json anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cefito.planners.methods import METHODS
from cefito.study.methods import abilities_of, published_sizes

FILE = Path(__file__).parents[1] / "src" / "cefito" / "study" / "methods.json"


def listing() -> dict[str, dict[str, Any]]:
    """Abilities in words and parameters of each network, computed, by method."""
    own = {name: method for name, method in METHODS.items() if METHODS.package(name) is None}
    return {
        name: {"can": list(abilities_of(method)), "parameters": published_sizes(method)}
        for name, method in own.items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(listing(), indent=1) + "\n", encoding="utf-8")
