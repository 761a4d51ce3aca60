"""How fast live sessions answer rows and pictures over HTTP, and whether kills lose any of them.

It starts `cefito serve` for each run and number of processes. Each station has a session and a
connection of its own and sends one row, or one picture if the encoder takes them, a second; the
moment within the second is drawn. A latency runs from that moment to the answer. A second is missed
if the answer before is still awaited, or if the service refuses. With --kill a process of the
service is killed every so many seconds: a station then connects again and repeats what was not
answered, and at the end each session is asked which rows it has. With --machines several services
share a store: each has processes and a port of its own, and a station whose connection breaks goes
to the next one.

    python benchmarks/sessions.py RUN [RUN ...] --out benchmarks/results/sessions-http.json
    python benchmarks/sessions.py RUN --data DATA --stations 1 8 25 50 100 --processes 1 2
    python benchmarks/sessions.py RUN --data DATA --stations 25 --processes 2 --kill 10
    python benchmarks/sessions.py RUN --data DATA --store valkey://127.0.0.1:6379/0 --machines 2
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.cli.console import talk
from cefito.data.prepared import open_dataset
from cefito.encoders.frames import thumbnail
from cefito.files import write_json
from cefito.runs.run import Run, open_run
from serve import Server, answer, request

Body = Callable[[int, int], tuple[str, bytes]]
"""Of a station and a second: the end of its path, and the bytes."""
_AGAIN = 0.05  # seconds until a station connects again
_BUSY = (429, 503, 504)  # statuses of a service that cannot answer now


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, help="data set of the run, for rows of test videos")
    parser.add_argument("--stations", type=int, nargs="+", default=[8])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--store", help="address of Valkey, for --session-store")
    parser.add_argument("--machines", type=int, nargs="+", default=[1], help="services, each alike")
    parser.add_argument("--sent", nargs="+", default=["rows", "pictures"], help="what is measured")
    parser.add_argument("--brief", action="store_true", help="answers without plans")
    parser.add_argument(
        "--kill", type=float, default=0.0, help="seconds between kills of processes"
    )
    parser.add_argument("--option", action="append", default=[], help="of cefito serve")
    given = parser.parse_args()
    results = []
    for folder in given.runs:
        run = open_run(folder)
        about = {"dataset": run.info.dataset.name}
        for machines, processes, stations in product(
            given.machines, given.processes, given.stations
        ):
            how = machines, processes, stations
            results += [about | row for row in served(run, folder, *how, given)]
            if given.out:
                write_json(given.out, written(given, results))


def written(given: argparse.Namespace, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the file of results holds."""
    names = ("stations", "processes", "machines", "sent")
    numbers = {name: getattr(given, name) for name in names}
    options = [f"--{name} {' '.join(map(str, many))}" for name, many in numbers.items()]
    options += [f"--seconds {given.seconds}", f"--kill {given.kill:g}"]
    options += ["--data DATA"] * (given.data is not None) + ["--brief"] * given.brief
    options += ["--store STORE"] * (given.store is not None)
    command = " ".join(["python benchmarks/sessions.py RUN", *options])
    return {"command": command, "machine": common.machine(), "results": results}


def served(
    run: Run, folder: Path, machines: int, processes: int, stations: int, given: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure rows, and pictures if they are taken, of services of their own.

    Args:
        run: The run.
        folder: Where it is.
        machines: Number of services.
        processes: Number of processes of each.
        stations: Number of stations.
        given: The options.
    """
    options = ["--client-sessions", "100", "--sessions", str(max(100, stations)), *given.option]
    if processes > 1:
        options += ["--processes", str(processes)]
    if given.store:
        options += ["--session-store", given.store]
    results, servers = [], [Server(folder, *options) for _ in range(machines)]
    try:
        taken = {"rows": rows(run, given.data, given.brief), "pictures": pictures(given.brief)}
        possible = {"rows", *(kind for server in servers for kind in uploads(server.port))}
        for kind in (kind for kind in given.sent if kind in possible):
            about: dict[str, Any] = {"machines": machines, "processes": processes}
            about |= {"stations": stations, "sent": kind}
            about |= {"store": "valkey" if given.store else "files"}
            results.append(about | asyncio.run(measure(servers, taken[kind], stations, given)))
            talk(json.dumps(results[-1]))
    finally:
        for server in servers:
            server.end()
    return results


def uploads(port: int) -> list[str]:
    """Wait until the service is ready; what it can encode for its run."""
    address, ready = f"http://127.0.0.1:{port}", False
    while not ready:
        with suppress(urllib.error.HTTPError):
            ready = urllib.request.urlopen(f"{address}/ready").status == 200
    with urllib.request.urlopen(f"{address}/v1/model") as found:
        return list(json.load(found)["runs"][0]["uploads"])


def rows(run: Run, data: Path | None, brief: bool) -> Body:
    """Return rows of test videos, or drawn ones of a scene that changes every ten seconds."""
    if data is None:
        drawn = np.random.default_rng(0).normal(size=(60, run.own_recogniser.width))
        videos = [np.repeat(drawn, 10, axis=0)]
    else:
        dataset = open_dataset(data)
        assert dataset.timeline is not None
        all_rows = zip(dataset.videos, dataset.timeline.videos, strict=True)
        videos = [rows for video, rows in all_rows if video.split == "test"]
    packed = [[base64.b64encode(row.astype("<f4").tobytes()).decode() for row in v] for v in videos]
    asked = {"brief": True} if brief else {}

    def body(station: int, second: int) -> tuple[str, bytes]:
        video = packed[station % len(packed)]
        sent = {"rows": [{"at": second, "row": video[second % len(video)]}]}
        return "rows", json.dumps(sent | asked).encode()

    return body


def pictures(brief: bool) -> Body:
    """Return pictures of 341 × 256 pixels, about as the page sends them."""
    noise = np.random.default_rng(0).integers(0, 256, (6, 3, 256, 341), np.uint8)
    files = [thumbnail(torch.from_numpy(one), most=1 << 20, side=341) for one in noise]
    asked = "&brief=true" * brief
    return lambda _, second: (f"pictures?at={second}{asked}", files[second // 10 % len(files)])


class Station:
    """A session and its connection, from an address of its own."""

    def __init__(self, ports: Sequence[int], number: int) -> None:
        self.ports, self.address = ports, f"127.0.1.{1 + number}"
        self.machine = number % len(ports)
        self.path, self.acknowledged, self.repeated = "", 0, 0
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, message: bytes) -> tuple[int, bytes]:
        """Send a request until it is answered; status and body."""
        while True:
            try:
                if self.streams is None:
                    self.streams = await asyncio.open_connection(
                        "127.0.0.1", self.ports[self.machine], local_addr=(self.address, 0)
                    )
                self.streams[1].write(message)
                return await answer(self.streams[0])
            except (OSError, asyncio.IncompleteReadError):
                self.streams, self.machine = None, (self.machine + 1) % len(self.ports)
                self.repeated += 1
                await asyncio.sleep(_AGAIN)


async def measure(
    servers: Sequence[Server], body: Body, count: int, given: argparse.Namespace
) -> dict[str, Any]:
    """Latencies of stations, missed seconds, rows that are lost, processor time and memory.

    Args:
        servers: The services.
        body: What each station sends.
        count: Number of stations.
        given: The options.
    """
    latencies: list[float] = []
    ports = [server.port for server in servers]
    stations = [Station(ports, number) for number in range(count)]
    for station in stations:
        status, opened = await station.ask(request("/v1/sessions", b"{}"))
        assert status == 201, opened
        station.path = f"/v1/sessions/{json.loads(opened)['id']}"
    await asyncio.sleep(2)
    seconds, held = given.seconds, [server.memory() for server in servers]
    refused: Counter[str] = Counter()
    begin, busy, kills = time.perf_counter() + 1, processor_time(servers), 0
    phases = np.random.default_rng(0).random(count).tolist()

    async def send(number: int, station: Station) -> None:
        for second in range(seconds):
            moment = begin + second + phases[number]
            if (left := moment - time.perf_counter()) > 0:
                await asyncio.sleep(left)
                end, data = body(number, second)
                status, _ = await station.ask(request(f"{station.path}/{end}", data))
                if status != 200:
                    refused[str(status)] += 1
                else:
                    latencies.append(1e3 * (time.perf_counter() - moment))
                    station.acknowledged += 1

    async def kill() -> None:
        nonlocal kills
        while given.kill and time.perf_counter() + given.kill < begin + seconds:
            await asyncio.sleep(given.kill)
            workers = [pid for server in servers for pid in server.children()]
            os.kill(workers[kills % len(workers)], signal.SIGKILL)
            kills += 1

    stored = store_bytes(given.store) if given.store else 0
    killing = asyncio.create_task(kill())
    await asyncio.gather(*(send(number, station) for number, station in enumerate(stations)))
    await killing
    cpu = processor_time(servers) - busy
    numbers = []
    for station in stations:
        head = f"GET {station.path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        while (answered := await station.ask(head))[0] in _BUSY:
            await asyncio.sleep(1)
        status, state = answered
        assert status == 200, state
        numbers.append(json.loads(state)["number"] - station.acknowledged)
    after = [server.memory() for server in servers]
    kib = (store_bytes(given.store) - stored) / 1024 if given.store else 0.0
    percentiles = np.percentile(latencies or [0], (50, 95, 99)).round(1).tolist()
    return {
        **dict(zip(("p50_ms", "p95_ms", "p99_ms"), percentiles, strict=True)),
        "worst_ms": round(max(latencies, default=0), 1),
        "late": sum(latency > 1e3 for latency in latencies),
        "missed": count * seconds - len(latencies),
        "refused": dict(refused),  # requests by status, which are missed
        "answered_per_second": round(len(latencies) / seconds, 1),
        "cpu_share": round(cpu / seconds, 2),  # of a core, without killed processes
        "mib": held if len(servers) > 1 else held[0],
        "mib_per_station": round((sum(map(sum, after)) - sum(map(sum, held))) / count, 2),
        **({"store_kib_per_row": round(kib / max(1, len(latencies)), 2)} if given.store else {}),
        "kills": kills,
        "acknowledged": sum(station.acknowledged for station in stations),
        "lost": -sum(min(0, number) for number in numbers),  # acknowledged, but not in the session
        "twice": sum(max(0, number) for number in numbers),
        "repeated_requests": sum(station.repeated for station in stations),
        "load_average": round(os.getloadavg()[0], 2),  # of all programs on the machine
    }


def processor_time(servers: Sequence[Server]) -> float:
    return sum(server.cpu_seconds() for server in servers)


def store_bytes(address: str) -> int:
    """Memory that Valkey uses."""
    from valkey import Valkey

    return int(Valkey.from_url(address).info("memory")["used_memory"])


if __name__ == "__main__":
    main()
