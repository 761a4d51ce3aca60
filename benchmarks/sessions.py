"""How fast live sessions answer rows and pictures over HTTP.

It starts `cefito serve` for each run. All clients send one row, and then one picture if the encoder
takes them, at the same moment of each second, each to its own session. A latency runs from then to
the answer. A second is missed if the answer before is still awaited, or if the service refuses.

    python benchmarks/sessions.py RUN [RUN ...] --out benchmarks/results/sessions-http.json
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.cli.console import talk
from cefito.encoders.frames import thumbnail
from cefito.files import write_json
from cefito.runs.run import Run, open_run
from serve import Server, answer, request

CLIENTS, SECONDS = 8, 60
Body = Callable[[int], tuple[str, bytes]]  # of a second: the end of its path, and the bytes


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    given = parser.parse_args()
    results = []
    for folder in given.runs:
        run, server = open_run(folder), Server(folder)
        try:
            taken = {"rows": rows(run), "pictures": pictures()}
            for kind in ["rows", *({"pictures"} & {*uploads(server.port)})]:
                about = {"dataset": run.info.dataset.name, "sent": kind}
                results.append(about | asyncio.run(measure(server, taken[kind])))
                talk(json.dumps(results[-1]))
        finally:
            server.end()
    if given.out:
        about = {"clients": CLIENTS, "seconds": SECONDS, "machine": common.machine()}
        write_json(given.out, about | {"results": results})


def uploads(port: int) -> list[str]:
    """Wait until the service is ready; what it can encode for its run."""
    address, ready = f"http://127.0.0.1:{port}", False
    while not ready:
        with suppress(urllib.error.HTTPError):
            ready = urllib.request.urlopen(f"{address}/ready").status == 200
    with urllib.request.urlopen(f"{address}/v1/model") as found:
        return list(json.load(found)["runs"][0]["uploads"])


def rows(run: Run) -> Body:
    """Return rows of a scene that changes every ten seconds."""
    drawn = np.random.default_rng(0).normal(size=(SECONDS, run.own_recogniser.width)).astype("<f4")
    packed = [base64.b64encode(row.tobytes()).decode() for row in drawn]
    return lambda at: ("rows", json.dumps({"rows": [{"at": at, "row": packed[at // 10]}]}).encode())


def pictures() -> Body:
    """Return pictures of 341 × 256 pixels, about as the page sends them."""
    noise = np.random.default_rng(0).integers(0, 256, (SECONDS, 3, 256, 341), np.uint8)
    files = [thumbnail(torch.from_numpy(one), most=1 << 20, side=341) for one in noise]
    return lambda at: (f"pictures?at={at}", files[at // 10])


async def measure(server: Server, body: Body) -> dict[str, Any]:
    latencies: list[float] = []
    begin, busy = time.perf_counter() + 3, server.cpu_seconds()  # all sessions are open then

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request("/v1/sessions", b"{}"))
        path = f"/v1/sessions/{json.loads((await answer(reader))[1])['id']}"
        for at in range(SECONDS):
            if (left := begin + at - time.perf_counter()) > 0:
                await asyncio.sleep(left)
                end, data = body(at)
                writer.write(request(f"{path}/{end}", data))
                if (await answer(reader))[0] == 200:
                    latencies.append(1e3 * (time.perf_counter() - begin - at))
        writer.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    median, late = np.percentile(latencies, (50, 95)).round(1).tolist()
    return {
        **{"median_ms": median, "p95_ms": late, "worst_ms": round(max(latencies), 1)},
        "missed": CLIENTS * SECONDS - len(latencies),
        "cpu_seconds": round(server.cpu_seconds() - busy, 1),
        "load_average": round(os.getloadavg()[0], 2),  # of all programs on the machine
    }


if __name__ == "__main__":
    main()
