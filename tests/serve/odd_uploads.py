"""Functions of encoding processes that hang, end or wait; little is loaded for them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def behave(upload: Any) -> Any:
    """Hang, end, fail or refuse as an upload says."""
    if upload == "hang":
        time.sleep(60)
    if upload == "crash":
        os._exit(3)
    if upload == "fail":
        raise ValueError("a defect")
    if upload == "refuse":
        return "/tmp/cefito-1/initial: is damaged. Make it again."
    return os.getpid(), upload


def load_until(path: Path, upload: Any) -> str:
    """Have loaded the encoder once a file is there."""
    while upload is None and not path.exists():
        time.sleep(0.01)
    return "" if upload is None else "loaded"


def take(mib: int | None) -> Any:
    """Take so many MiB of 256 more that the process may have."""
    import torch

    from cefito.errors import is_out_of_memory
    from cefito.serve.uploads import limit_memory

    if mib is None:
        limit_memory(256 << 20)
        return ""
    try:
        return torch.ones(mib, 1 << 18).shape
    except RuntimeError as problem:
        return str(is_out_of_memory(problem))
