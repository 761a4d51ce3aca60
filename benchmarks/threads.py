"""The quickstart on one and on two threads, on an idle machine and beside two busy programs.

python benchmarks/threads.py --out benchmarks/results/quickstart-threads.json
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--busy", default="0,2", help="programs that count beside it")
    parser.add_argument("--limit", type=int, default=900, help="seconds for a quickstart")
    given = parser.parse_args()
    rows = [
        {"busy": busy, "threads": threads, **timed(threads, busy, given.limit)}
        for busy in map(int, given.busy.split(","))
        for threads in map(int, given.threads.split(","))
    ]
    result = {"command": "python benchmarks/threads.py", "machine": common.machine(), "rows": rows}
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def timed(threads: int, busy: int, limit: int) -> dict[str, Any]:
    """Wall and CPU seconds of a quickstart; `done` is false if it took longer than `limit`."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    load, began, before = os.getloadavg()[0], time.monotonic(), _cpu()
    done = True
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cefito", "quickstart", "--quiet"]
        command += ["--threads", str(threads), "--out", str(Path(folder) / "out")]
        try:
            subprocess.run(command, check=True, timeout=limit, stdout=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            done = False
    wall, used = time.monotonic() - began, _cpu() - before
    for other in others:
        other.kill()
        other.wait()
    return {
        "seconds": round(wall, 1),
        "cpu_seconds": round(used, 1),
        "done": done,
        "load_before": round(load, 2),
    }


def _cpu() -> float:
    """CPU seconds of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
