"""Processor time of whole commands, before and after a change, in pairs.

Each side is the source of a checkout, a run that it made and its data set. Commands run in turn on
a CPU; `serve` starts, answers 200 plans and a session of a film, and stops. User and system time is
counted, since wall time depends on what else runs; the first pair, which compiles modules, is not.

    python benchmarks/speed.py --before OLD/src OLD-RUN OLD-DATA --after src RUN DATA

`--commands train-recogniser` trains a recogniser, too, which takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np

import common
from cefito.evaluation.statistics import draws_interval
from cefito.runs.run import open_run
from serve import START, Server, bodies
from upgrades import ask

_SLOW = "train-recogniser"
COMMAND = "python benchmarks/speed.py --before OLD/src OLD-RUN OLD-DATA --after src RUN DATA"
FEW = "--device cpu --set any_length.members=1 --set any_length_training.optimiser.epochs=4"
COMMANDS = {
    "plan": "plan RUN --video VIDEO --steps 3",
    "plan-batch": "plan-batch RUN DATA --out OUT/plans.jsonl",
    "train": f"train DATA --method any-length --steps 1-3 --no-recogniser {FEW} --out OUT/run",
    _SLOW: f"train DATA --method any-length --steps 1-3 {FEW} --out OUT/run",
    "recognise": "recognise RUN FILM",
    "follow": "follow RUN --features FILM",
    "serve": "serve RUN",
}


def serve(run: Path, plans: list[bytes], film: Path) -> None:
    """Start a service, ask it for plans, send it the rows of a film, and stop it."""
    server = Server(run)
    for body in plans:
        ask(server.port, "POST", "/v1/plan", body)
    session = ask(server.port, "POST", "", b"{}")["id"]
    for second, row in enumerate(np.load(film).tolist(), 1):
        event = json.dumps({"rows": [{"at": second, "row": row}]}).encode()
        ask(server.port, "POST", f"/{session}/events", event)
    server.end()


def main() -> None:
    parser = common.parser(__doc__)
    for side in ("--before", "--after"):
        parser.add_argument(side, nargs=3, required=True, metavar=("SRC", "RUN", "DATA"))
    parser.add_argument("--pairs", type=int, default=5)
    fast = [name for name in COMMANDS if name != _SLOW]
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=fast)
    given = parser.parse_args()
    run = open_run(given.after[1])
    plans, dataset, load = 10 * bodies(run, 20), run.dataset(), [os.getloadavg()[0]]
    place = next(at for at, video in enumerate(dataset.videos) if video.split == "test")
    video = dataset.videos[place].video_id
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as an installation has bytecode
    seconds = np.zeros((len(given.commands), 2, given.pairs + 1))
    for pair, command, turn in np.ndindex(given.pairs + 1, len(given.commands), 2):
        side = (turn + pair) % 2
        source, own_run, data = (given.before, given.after)[side]
        os.environ["PYTHONPATH"] = str(Path(source).resolve())
        with tempfile.TemporaryDirectory() as out:
            np.save(film := Path(out) / "film.npy", dataset.timeline.videos[place])
            words = {"RUN": own_run, "DATA": data, "FILM": str(film), "VIDEO": video}
            call = COMMANDS[given.commands[command]].replace("OUT", out).split()
            began = sum(getrusage(RUSAGE_CHILDREN)[:2])  # user and system time
            if call[0] == "serve":
                serve(Path(own_run), plans, film)
            else:
                start = [sys.executable, "-c", START, *(words.get(word, word) for word in call)]
                subprocess.run(start, check=True, capture_output=True)
        seconds[command, side, pair] = sum(getrusage(RUSAGE_CHILDREN)[:2]) - began
        load.append(os.getloadavg()[0])
    del given.before, given.after  # folders
    report = common.about("speed", given, dataset) | common.machine() | {"command": COMMAND}
    report["load_average"] = {"least": round(min(load), 1), "most": round(max(load), 1)}
    for name, (before, after) in zip(given.commands, seconds[..., 1:], strict=True):
        ratios = after / before
        drawn = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
        report[name] = {
            "ratio": round(float(np.median(ratios)), 3),
            "interval": np.round(draws_interval(np.median(drawn, axis=1)), 3).tolist(),
            "seconds": np.round([np.median(before), np.median(after)], 2).tolist(),
        }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
