"""How much memory a service holds over upgrades: versions of a run, sessions that follow them.

It serves a link to a run, has stations send rows to sessions, lets the link lead to the next
version, sends SIGHUP, opens as many sessions again and ends those of the version before.

    python benchmarks/upgrades.py RUN RUN2 --out benchmarks/results/upgrades.json
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import common
from cefito.cli.console import talk
from cefito.files import write_json
from cefito.runs.run import open_run
from cefito.serve.sessions import RELEASED
from serve import Server
from sessions import rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="versions, served in turn")
    parser.add_argument("--upgrades", type=int, default=6)
    parser.add_argument("--sessions", type=int, default=20, help="opened on each version")
    parser.add_argument("--rows", type=int, default=60, help="of each session")
    given = parser.parse_args()
    run, results = open_run(given.runs[0]), list[dict[str, Any]]()
    body = rows(run, None, brief=True)
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "current"
        link.symlink_to(given.runs[0].absolute())
        server = Server(link, "--client-sessions", "1000", "--sessions", "1000")

        def measured(what: str) -> None:
            results.append({"after": what, "mib": server.memory()})
            talk(json.dumps(results[-1]))

        def opened() -> list[str]:
            ids = [ask(server.port, "POST", "", b"{}")["id"] for _ in range(given.sessions)]
            for second in range(given.rows):
                for number, name in enumerate(ids):
                    end, data = body(number, second)
                    ask(server.port, "POST", f"/{name}/{end}", data)
            return ids

        measured("the start")
        ids = opened()
        measured(f"{given.sessions} sessions")
        for number, version in enumerate(islice(cycle(given.runs), 1, 1 + given.upgrades), 1):
            digest = served(server.port)
            link.with_name("next").symlink_to(version.absolute())
            link.with_name("next").replace(link)
            server.process.send_signal(signal.SIGHUP)
            while served(server.port) == digest:
                time.sleep(0.1)
            before, ids = ids, opened()
            measured(f"upgrade {number}, {given.sessions} further sessions")
            for name in before:
                ask(server.port, "DELETE", f"/{name}")
            time.sleep(RELEASED + 2)
            measured(f"upgrade {number}, sessions of the version before ended")
        server.end()
    options = f"--upgrades {given.upgrades} --sessions {given.sessions} --rows {given.rows}"
    if given.out:
        command = f"python benchmarks/upgrades.py RUN RUN2 {options}"
        about = {"dataset": run.info.dataset.name, "load_average": round(os.getloadavg()[0], 2)}
        write_json(
            given.out,
            {"command": command, "machine": common.machine(), **about, "results": results},
        )


def ask(port: int, method: str, end: str, body: bytes | None = None) -> Any:
    """Ask for a session; the JSON of the answer, None without a body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    path = end if end.startswith("/v1") else f"/v1/sessions{end}"
    connection.request(method, path, body, {"content-type": "application/json"})
    with connection.getresponse() as response:
        text = response.read()
        assert response.status < 300, text
    connection.close()
    return json.loads(text) if text else None


def served(port: int) -> str:
    """Digest of the version that is served."""
    return str(ask(port, "GET", "/v1/model")["runs"][0]["digest"])


if __name__ == "__main__":
    main()
