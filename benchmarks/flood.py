"""How long plans wait while live sessions are flooded with rows that are an hour apart.

It starts `cefito serve RUN`. Clients, each from an address of its own, ask for plans one after the
other: alone, and then beside as many clients that each send requests of 600 lost rows, an hour
apart, to sessions. Requests that are still awaited at the end count with the time until then.

    python benchmarks/flood.py RUN --out benchmarks/results/flood.json
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.cli.console import talk
from cefito.files import write_json
from cefito.runs.run import open_run
from cefito.serve.schemas import MOST_ROWS
from serve import Server, answer, bodies, request

CLIENTS = 8  # of each kind
HOUR = 3600  # seconds of a gap
MOST = 4  # requests of a session, whose rows come before second 10⁷


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=int, default=60, help="of each measurement")
    given = parser.parse_args()
    run = open_run(given.run)
    plans = [request("/v1/plan", body) for body in bodies(run, 64)]
    result: dict[str, Any] = {
        "command": f"python benchmarks/flood.py RUN --seconds {given.seconds}",
        "clients": CLIENTS,
        "machine": common.machine(),
        "dataset": run.info.dataset.name,
    }
    server = Server(given.run)
    try:
        asyncio.run(measure(server.port, plans, 5, flooded=False))  # so that all is loaded
        for name, flooded in (("alone", False), ("flooded", True)):
            found = asyncio.run(measure(server.port, plans, given.seconds, flooded=flooded))
            result[name] = found
            talk(json.dumps({name: found}))
        busy = server.cpu_seconds()
        time.sleep(5)
        result["processor_seconds_in_5_s_afterwards"] = round(server.cpu_seconds() - busy, 2)
    finally:
        server.process.kill()
        server.process.wait()
    if given.out is not None:
        write_json(given.out, result)


async def measure(port: int, plans: list[bytes], seconds: int, *, flooded: bool) -> dict[str, Any]:
    """Return latencies and statuses of plans, and statuses of the requests that flood."""
    waited: list[float] = []
    statuses: dict[str, dict[str, int]] = {"plans": {}, "rows": {}}
    end = time.perf_counter() + seconds

    def count(kind: str, status: int | str) -> None:
        statuses[kind][str(status)] = statuses[kind].get(str(status), 0) + 1

    async def planning(client: int) -> None:
        reader, writer = await connected(port, f"127.0.1.{client + 1}")
        for number in range(client, 10**9):
            began, status = time.perf_counter(), "awaited"
            try:
                writer.write(plans[number % len(plans)])
                status = str((await answer(reader))[0])
            finally:
                waited.append(1e3 * (time.perf_counter() - began))
                count("plans", status)

    async def flooding(client: int) -> None:
        reader, writer = await connected(port, f"127.0.2.{client + 1}")
        while True:
            writer.write(request("/v1/sessions", b"{}"))
            path = f"/v1/sessions/{json.loads((await answer(reader))[1])['id']}"
            sent = [range(1), *(range(MOST_ROWS * k, MOST_ROWS * (k + 1)) for k in range(MOST))]
            for hours in sent:
                rows = [{"at": HOUR * hour, "row": None} for hour in hours]
                writer.write(request(f"{path}/rows", json.dumps({"rows": rows}).encode()))
                status = (await answer(reader))[0]
                if len(rows) > 1:
                    count("rows", status)
            writer.write(f"DELETE {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")

    clients = [planning(client) for client in range(CLIENTS)]
    clients += [flooding(client) for client in range(CLIENTS * flooded)]
    tasks = [asyncio.create_task(client) for client in clients]
    done, _ = await asyncio.wait(tasks, timeout=max(0.0, end - time.perf_counter()))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()  # no client ends by itself
    p50, p99 = np.percentile(waited, (50, 99)).round(1).tolist()
    load = round(os.getloadavg()[0], 2)  # of all programs on the machine
    found = {"plans": len(waited), "p50_ms": p50, "p99_ms": p99, "load_average": load}
    return {**found, "statuses": statuses}


async def connected(port: int, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


if __name__ == "__main__":
    main()
