"""How fast the service answers: load, memory over many requests, and refusals.

It starts `cefito serve RUN` in a process of its own and requests plans between the observations of
test windows, over connections that are kept open. It measures throughput and latency for each
number of clients, memory over all further requests, and the latency of refusals of requests that
are too large or too expensive, and how long a light client waits beside heavy ones, which ask over
several connections at a time from addresses of their own. With --compare the same load runs without
batches and with other numbers of workers, by which the default settings were chosen.

    python benchmarks/serve.py RUN --out benchmarks/results/serve.json
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.cli.console import talk
from cefito.data import cut_windows
from cefito.files import write_json
from cefito.runs.run import Run, open_run

HEAVY = 6  # clients
CONNECTIONS = 16  # of each
START = "import sys; from cefito.cli import main; sys.exit(main())"


class Server:
    """The service in a process of its own.

    Args:
        run: The run folder.
        options: Further options of `cefito serve`.
    """

    def __init__(self, run: Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        argv = ["serve", str(run), "--port", str(self.port), "--quiet", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, *argv], stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 300
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit("cefito serve did not start") from None
                time.sleep(0.1)
        raise SystemExit("cefito serve did not start")

    def mib(self) -> float:
        """Memory that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return round(int(kib) / 1024, 1)

    def children(self, parent: int | None = None) -> list[int]:
        """Ids of its processes, or of those of one of them."""
        threads = Path(f"/proc/{parent or self.process.pid}/task").glob("*/children")
        return sorted(int(pid) for thread in threads for pid in thread.read_text().split())

    def everything(self) -> list[int]:
        """Ids of it, of its processes and of theirs, which encode."""
        children = self.children()
        return [self.process.pid, *children, *(pid for of in children for pid in self.children(of))]

    def memory(self) -> list[float]:
        """MiB of it and of its processes, where what several share is divided among them."""
        return [
            round(int(line.split()[1]) / 1024, 1)
            for pid in self.everything()
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            if line.startswith("Pss:")
        ]

    def cpu_seconds(self) -> float:
        """Processor time that it and its processes have taken."""
        ticks = 0
        for pid in self.everything():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End it as its operator would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def bodies(run: Run, count: int, **asked: Any) -> list[bytes]:
    """Requests for plans between observations of test windows."""
    windows = cut_windows(run.dataset(), horizon=run.horizon, split="test").sample(count, seed=0)

    def packed(row: np.ndarray) -> str:
        return base64.b64encode(row.astype("<f4").tobytes()).decode()

    return [
        json.dumps({"observations": {"initial": packed(a), "goal": packed(b)}, **asked}).encode()
        for a, b in zip(windows.initial, windows.goal, strict=True)
    ]


def request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


async def load(port: int, requests: Sequence[bytes], clients: int, count: int) -> dict[str, Any]:
    """Have clients ask, each one request after the other, until so many were answered."""
    seconds: list[float] = []
    statuses: dict[str, int] = {}
    together: list[int] = []
    left = iter(range(count))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            began = time.perf_counter()
            writer.write(requests[number % len(requests)])
            status, body = await answer(reader)
            seconds.append(time.perf_counter() - began)
            statuses[str(status)] = statuses.get(str(status), 0) + 1
            if status == 200:
                together.append(1 + json.loads(body)["walked_with"])
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    whole = time.perf_counter() - began
    p50, p99 = np.percentile(np.array(seconds) * 1e3, (50, 99))
    return {
        "clients": clients,
        "requests": count,
        "requests_per_second": round(count / whole, 1),
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "walked_together": round(float(np.mean(together)), 2) if together else None,
        "statuses": statuses,
    }


async def share(port: int, requests: Sequence[bytes], count: int) -> dict[str, Any]:
    """How long a light client waits alone, and beside heavy ones."""
    answered = {"queries": 0, "refused": 0}

    async def light() -> list[float]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.2", 0)
        )
        seconds = []
        for number in range(count):
            began = time.perf_counter()
            writer.write(requests[number % len(requests)])
            status, _ = await answer(reader)
            assert status == 200, status
            seconds.append(1e3 * (time.perf_counter() - began))
            await asyncio.sleep(0.02)
        writer.close()
        return seconds

    async def heavy(number: int) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=(f"127.0.1.{1 + number}", 0)
        )
        for place in itertools.count():
            writer.write(requests[place % len(requests)])
            status, body = await answer(reader)
            if status == 200:
                answered["queries"] += 1
            else:
                assert status == 429, body
                answered["refused"] += 1
                await asyncio.sleep(1)  # as Retry-After says at least

    await light()  # so that all is loaded
    alone = await light()
    each = [number for number in range(HEAVY) for _ in range(CONNECTIONS)]
    tasks = [asyncio.create_task(heavy(number)) for number in each]
    await asyncio.sleep(3)
    answered.update(queries=0, refused=0)
    began = time.perf_counter()
    beside = await light()
    whole = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    row: dict[str, Any] = {"heavy_clients": HEAVY, "connections": CONNECTIONS, "requests": count}
    for name, seconds in (("alone", alone), ("beside", beside)):
        p50, p99 = np.percentile(seconds, (50, 99))
        row[name] = {"p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}
    row["times"] = round(row["beside"]["p50_ms"] / row["alone"]["p50_ms"], 2)
    row["heavy_queries_per_second"] = round(answered["queries"] / whole, 1)
    row["heavy_queries_refused"] = answered["refused"]
    return row


async def refusals(port: int, requests: dict[str, bytes], count: int) -> list[dict[str, Any]]:
    """How soon each of some requests is refused."""
    rows = []
    for title, one in requests.items():
        seconds, status, kind = [], 0, ""
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            began = time.perf_counter()
            writer.write(one)
            status, body = await answer(reader)
            seconds.append(time.perf_counter() - began)
            kind = json.loads(body)["type"]
            writer.close()
        p50, p99 = np.percentile(np.array(seconds) * 1e3, (50, 99))
        row = {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}
        rows.append({"request": title, "status": status, "type": kind, **row})
    return rows


def too_much(run: Run) -> dict[str, bytes]:
    """Requests above each limit."""
    (expensive,) = bodies(run, 1, search="exhaustive", objective="energy", tasks=1)
    (many,) = bodies(run, 1, top_k=1000)
    large = b"[" + b"0," * (3 << 20) + b"0]"
    return {
        "a search above --max-gflop": request("/v1/plan", expensive),
        "1,000 plans": request("/v1/plan", many),
        "a body of 6 MiB": request("/v1/plan", large),
    }


def about(run: Run) -> dict[str, Any]:
    """The machine and the run."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.processor() or "unknown",
            "load_average": os.getloadavg()[0],  # of other work too
        },
        "run": {
            "method": run.method,
            "horizon": run.horizon,
            "preset": run.info.preset,
            "dataset": run.info.dataset.name,
            "observation_dim": run.planner.observation_dim,
        },
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--requests", type=int, default=1000, help="for each number of clients")
    parser.add_argument("--memory", type=int, default=10_000, help="requests over which it is seen")
    parser.add_argument("--compare", action="store_true", help="other settings as well")
    parser.add_argument("--only-share", action="store_true", help="a light client beside heavy")
    given = parser.parse_args()
    run = open_run(given.run)
    asked = [request("/v1/plan", body) for body in bodies(run, 512)]
    server = Server(given.run)
    shared = asyncio.run(share(server.port, asked, min(200, given.requests)))
    server.end()
    talk(json.dumps(shared))
    if given.only_share:
        command = f"python benchmarks/serve.py RUN --only-share --requests {given.requests}"
        if given.out is not None:
            write_json(given.out, {**about(run), "command": command, "share": shared})
        return
    ways: list[tuple[str, ...]] = [()]
    if given.compare:
        ways += [
            ("--together", "1"),
            ("--workers", "1"),
            ("--workers", "1", "--together", "1"),
            ("--workers", "4", "--threads", "1"),
        ]
    rows = []
    for options in ways:
        server = Server(given.run, *options)
        asyncio.run(load(server.port, asked, 8, 100))  # so that all is loaded
        for clients in given.clients:
            before = server.cpu_seconds()
            row = asyncio.run(load(server.port, asked, clients, given.requests))
            cpu = 1e3 * (server.cpu_seconds() - before) / given.requests
            rows.append({"options": list(options), **row, "cpu_ms_per_request": round(cpu, 2)})
            talk(json.dumps(rows[-1]))
        server.end()
    server = Server(given.run)
    held = [{"requests": 0, "mib": server.mib()}]
    for until in sorted({100, given.memory // 10, given.memory // 2, given.memory}):
        asyncio.run(load(server.port, asked, 8, until - held[-1]["requests"]))
        held.append({"requests": until, "mib": server.mib()})
        talk(json.dumps(held[-1]))
    server.end()
    strict = Server(given.run, "--max-gflop", "0.0001")
    refused = asyncio.run(refusals(strict.port, too_much(run), 30))
    strict.end()
    for row in refused:
        talk(json.dumps(row))
    compare = " --compare" if given.compare else ""
    result = {
        "command": f"python benchmarks/serve.py RUN --requests {given.requests} "
        f"--memory {given.memory}{compare}",
        **about(run),
        "load": rows,
        "share": shared,
        "memory": held,
        "refusals": refused,
    }
    if given.out is not None:
        write_json(given.out, result)


if __name__ == "__main__":
    main()
