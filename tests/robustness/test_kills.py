"""SIGKILL at random moments: the same call goes on to the same bits, and no half file is taken.

Commands run in forks of this process, which have loaded the library.
"""

from __future__ import annotations

import gc
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from cefito.cli import main
from serve.live_sessions import sent
from tiny_runs import TINY_RUN, as_arguments, contents, rows_of

LONGEST = 600  # seconds that no call takes
SOMETIMES = {"train": (1, 14), "finetune": (1, 10), "verify": (2, 10), "annotate": (2, 8)}
"""Kills of each command in every run of the tests, and nightly; eight of a service, nightly."""


def forked(argv):
    """A child that calls the command line."""
    child = os.fork()
    if child:
        return child
    gc.freeze()  # decoders that other tests have left wait for threads which a child lacks
    code = 70
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = main([str(part) for part in argv])
    finally:
        os._exit(code)


def ended(child, seconds=LONGEST):
    """The exit code of a child, which is killed after so many seconds; None if it was."""
    handle = os.pidfd_open(child)
    in_time, *_ = select.select([handle], [], [], seconds)
    os.close(handle)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == -signal.SIGKILL else code


def killed(argv, kills, seed, *, check=lambda: None, again=lambda: None):
    """Call a command, kill it so many times within its time, and let the last call end.

    `check` is called after each kill, `again` once a call was quicker than its kill.
    """
    started = time.monotonic()
    assert ended(forked(argv)) == 0
    whole, generator, hits = time.monotonic() - started, np.random.default_rng(seed), 0
    again()
    for _ in range(20 * kills):
        if hits == kills:
            break
        code = ended(forked(argv), whole * float(generator.uniform(0, 1)))
        hits += code is None
        check()
        if code is not None:
            assert code in (0, 2)  # annotate refuses to write what is there
            again()
    print(f"{argv[0]}: {hits} kills within {whole:.1f} s")  # noqa: T201
    assert hits == kills
    assert ended(forked(argv)) in (0, 2)


UNLIKE = re.compile(rb'"(\w*seconds|resumed|path|folder)": [^,}\n]+')


def made(folder):
    """Files of a run without times and places; not what killed processes left, and digests."""
    return {
        name: UNLIKE.sub(b"", data) if name.endswith((".json", ".jsonl")) else data
        for name, data in contents(folder).items()
        if not Path(name).name.startswith(".") and name != "manifest.json"
    }


def often(command):
    few, many = SOMETIMES[command]
    nightly = pytest.param(many, marks=pytest.mark.nightly)
    return pytest.mark.parametrize("kills", [few, nightly], ids=["some", "many"])


@often("train")
def test_a_training(world, tmp_path, kills):
    settings = {**TINY_RUN, "training.optimiser.epochs": 3, "chain_training.optimiser.epochs": 8}
    more = ("--horizon", 3, "--method", "cefito+chain", "--preset", "small")
    call = ("train", world.folder, *more, *as_arguments(settings), "--out")
    assert main([str(part) for part in (*call, tmp_path / "whole")]) == 0
    folder = tmp_path / "killed"

    def again():
        subprocess.run(["rm", "-r", folder], check=True)

    def check():
        """A folder is a run only if it is whole."""
        record = folder / "run.json"
        if record.exists() and json.loads(record.read_text()).get("finished"):
            assert made(folder) == made(tmp_path / "whole")

    killed((*call, folder), kills, kills, check=check, again=again)
    assert made(folder) == made(tmp_path / "whole")


@often("finetune")
def test_a_finetuning(world, run_of_lengths, tmp_path, kills):
    folder = tmp_path / "killed"
    call = ("finetune", run_of_lengths.folder, world.folder, "--epochs", 4, "--out")
    assert main([str(part) for part in (*call, tmp_path / "whole")]) == 0

    def again():
        subprocess.run(["rm", "-r", folder], check=True)

    killed((*call, folder), kills, kills, again=again)
    assert made(folder) == made(tmp_path / "whole")


@often("verify")
def test_a_log_of_findings(world, run_of_lengths, tmp_path, kills):
    """Each line is whole, and the findings of a call are there together or not at all."""
    task = world.taxonomy.tasks[0]
    steps = [world.taxonomy.actions[action].name for action in task.actions]
    table, log, page = tmp_path / "steps.csv", tmp_path / "log.jsonl", tmp_path / "page.html"
    rows = [
        f'"v{video}","{task.name}","{name}",{20 * place},{20 * place + 9}\n'
        for video in range(120)
        for place, name in enumerate(np.random.default_rng(video).permutation(steps).tolist())
    ]
    table.write_text("video,task,step,start,end\n" + "".join(rows))
    one = tmp_path / "one.jsonl"
    argv = ("verify", run_of_lengths.folder, table, "--out", page, "--log")
    assert main([str(part) for part in (*argv, one)]) == 0
    expected, html = [facts(line) for line in one.read_text().splitlines()], page.read_bytes()
    assert len(one.read_bytes()) > 1 << 16
    page.unlink()

    def check():
        lines = log.read_text().splitlines() if log.exists() else []
        parts = [lines[at : at + len(expected)] for at in range(0, len(lines), len(expected))]
        assert all([facts(line) for line in part] == expected for part in parts)
        assert not page.exists() or page.read_bytes() == html

    killed((*argv, log), kills, kills, check=check)
    check()


def facts(line):
    return json.loads(line) | {"logged": ""}


@often("annotate")
def test_proposals(world, run_with_recogniser, tmp_path, kills):
    films = []
    for video in range(6):
        films.append(tmp_path / f"film{video}.npy")
        np.save(films[-1], rows_of(world, video))
    call = ("annotate", run_with_recogniser.folder, *films, "--format", "eaf", "--out")
    assert main([str(part) for part in (*call, tmp_path / "whole")]) == 0
    folder, whole = tmp_path / "killed", contents(tmp_path / "whole")

    def check():
        found = contents(folder) if folder.exists() else {}
        named = {name: data for name, data in found.items() if not name.startswith(".")}
        assert named.items() <= whole.items()

    def again():
        subprocess.run(["rm", "-r", folder], check=True)

    killed((*call, folder), kills, kills, check=check, again=again)
    check()
    assert {*whole} <= {*contents(folder)}


class Service:
    """A service in a process of its own, which begins anew after each kill."""

    def __init__(self, run, folder):
        self.argv = [sys.executable, "-m", "cefito", "serve", str(run), "--port", "0"]
        self.argv += ["--session-folder", str(folder), "--allow-unauthenticated"]
        self.begin()

    def begin(self):
        self.process = subprocess.Popen(self.argv, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("the service did not begin")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@pytest.mark.nightly
def test_sessions_of_a_service(world, run_with_recogniser, tmp_path):
    """Rows that were answered stay, others are sent again; the end is that without kills."""
    seen, kills = rows_of(world, 0)[:60], 8
    service = Service(run_with_recogniser.folder, tmp_path / "whole")
    try:
        _, state = sent(service.port, "POST", "/v1/sessions", {})
        path = f"/v1/sessions/{state['id']}"
        for at, row in enumerate(seen):
            sent(service.port, "POST", f"{path}/rows", {"rows": [{"at": at, "row": row.tolist()}]})
        _, expected = sent(service.port, "GET", path)
    finally:
        service.end()
    generator, service = np.random.default_rng(0), Service(run_with_recogniser.folder, tmp_path)
    try:
        _, state = sent(service.port, "POST", "/v1/sessions", {})
        path, at, answered = f"/v1/sessions/{state['id']}", 0, 0
        stops = sorted(generator.choice(len(seen), kills, replace=False).tolist())
        while at < len(seen):
            body = json.dumps({"rows": [{"at": at, "row": seen[at].tolist()}]})
            if stops and at == stops[0]:
                stops.pop(0)
                connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
                header = {"content-type": "application/json"}
                connection.request("POST", f"{path}/rows", body, header)
                # somewhere in the work on this request, or before or behind it
                select.select([connection.sock], [], [], float(generator.uniform(0, 0.05)))
                service.end()
                with suppress(OSError):
                    connection.close()
                service.begin()
                status, state = sent(service.port, "GET", path)
                assert (status, state["number"] in (answered, answered + 1)) == (200, True)
            status, state = sent(service.port, "POST", f"{path}/rows", json.loads(body))
            assert status == 200
            at, answered = at + 1, state["number"]
        _, found = sent(service.port, "GET", path)
    finally:
        service.end()
    for one in (expected, found):
        one.pop("id")
    assert found == expected
