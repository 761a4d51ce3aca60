"""The commands of docs/operate.md, and the files that it names."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from serve.live_sessions import sent
from serve.test_process import Lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(words):
    """The blocks of the page that hold some words."""
    return [block for block in BLOCKS if words in block]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_upgrade_look_and_back(run_of_lengths, tmp_path):
    (tmp_path / "runs").mkdir()
    shutil.copytree(run_of_lengths.folder, tmp_path / "runs" / "2026-11")
    second = tmp_path / "runs" / "2026-12"
    second.mkdir()
    info = run_of_lengths.info.model_copy(update={"seed": 99})
    run_of_lengths.changed(folder=second, info=info).written()
    (started,), (look,) = blocks("cefito serve current --session"), blocks("/v1/model")
    upgrade, back = blocks("kill -HUP PID")
    link, serve = started.strip().split("\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def shell(command):
        command = command.replace("PID", str(server.process.pid)).replace("8000", str(port))
        command = command.replace("9100", metrics)
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    subprocess.run(["bash", "-ec", link], cwd=tmp_path, check=True)
    words = serve.replace("9100", "0").split()
    command = [sys.executable, "-m", *words, "--port", str(port)]
    with Lines(command, cwd=tmp_path) as server:
        ready = f"serving 'current' (steps 1-4) on http://127.0.0.1:{port}"
        server.wait_for(ready)
        metrics = re.search(r"127.0.0.1:(\d+)/metrics", server.wait_for("metrics on"))[1]
        old = sent(port, "POST", "/v1/sessions", {})[1]
        seen = []
        for change in (upgrade, back):
            server.lines.clear()
            shell(change)
            server.wait_for(ready)
            model, count = shell(look).split("}# HELP", 1)
            run = json.loads(model + "}")["runs"][0]
            seen.append((run["name"], run["seed"], float(count.split()[-1])))
            assert sent(port, "GET", f"/v1/sessions/{old['id']}")[0] == 200
        assert seen == [("current", 99, 1.0), ("current", 0, 0.0)]
        assert server.end() == 0
