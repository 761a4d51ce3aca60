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

from cefito.cli import build_app
from cefito.serve.settings import Limits
from serve.live_sessions import sent
from serve.test_process import Lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


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

        def ready():
            """The digest of the version that the log says is served, in time of each line."""
            line = server.wait_for("serving 'current' (steps 1-4), digest ")
            return re.search(rf"digest (\w{{12}}) on http://127.0.0.1:{port}$", line)[1]

        digests = [ready()]
        metrics = re.search(r"127.0.0.1:(\d+)/metrics", server.wait_for("metrics on"))[1]
        old = sent(port, "POST", "/v1/sessions", {})[1]
        seen = []
        for change in (upgrade, back):
            server.lines.clear()
            shell(change)
            digests.append(ready())
            model, count = shell(look).split("}# HELP", 1)
            run = json.loads(model + "}")["runs"][0]
            seen.append((run["name"], run["seed"], float(count.split()[-1])))
            assert run["digest"].startswith(digests[-1])
            status, told = sent(port, "POST", f"/v1/sessions/{old['id']}/events", {"done": 0})
            assert (status, told["digest"]) == (200, old["digest"])
            new = sent(port, "POST", "/v1/sessions", {})[1]
            assert new["digest"] == run["digest"]
            assert sent(port, "DELETE", f"/v1/sessions/{new['id']}")[0] == 204
        assert seen == [("current", 99, 1.0), ("current", 0, 0.0)]
        assert digests[0] == digests[2] != digests[1]
        assert server.end() == 0


def options(words):
    """The arguments of a call of cefito serve, which the command line takes."""
    app = build_app()
    app.parse_args(["serve", *words], print_error=False, exit_on_error=False)
    return [word for word in words if not word.startswith("-")]


def test_the_compose_file():
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    service = content["services"]["cefito"]
    assert options(service["command"]) == ["/srv/cefito/current"]
    places = {
        volume.split(":")[-2 if volume.endswith(":ro") else -1] for volume in service["volumes"]
    }
    assert places == {"/srv/cefito", "/var/lib/cefito"}
    assert {"--session-folder=/var/lib/cefito"} < {*service["command"]}
    (network,) = content["networks"]["default"]["ipam"]["config"]
    assert f"--trusted-proxy={network['gateway']}" in service["command"]
    assert service["environment"] == ["CEFITO_STORE_PASSWORD"]
    assert {*content["volumes"]} == {"sessions"}
    assert float(service["stop_grace_period"].rstrip("s")) > Limits().drain_seconds
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (ROOT / "deploy" / service["build"] / "Dockerfile").is_file()


def test_the_image_has_its_files_and_a_call_that_is_taken():
    text = re.sub("^ *#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    steps = [line.split(" ", 1) for line in text.replace("\\\n", "").splitlines() if line]
    copied = [words.split()[:-1] for kind, words in steps if kind == "COPY" and words[0] != "-"]
    assert all((ROOT / name).exists() for names in copied for name in names)
    assert "--owner 10001 --mode 0700 /var/lib/cefito" in text
    assert "\nENV PATH=/opt/cefito/bin:" in text
    assert "'.[serve,text,valkey,video]'" in text  # pictures, films and several machines
    program, command, *given = json.loads(dict(steps)["ENTRYPOINT"])
    page = (ROOT / "docs" / "serve.md").read_text("utf-8")
    (call,) = re.findall(r"^docker run .* -v \S*:(\S+):ro\" cefito (\S+)$", page, re.MULTILINE)
    assert (program, command, call[0]) == ("cefito", "serve", options([*given, call[1]])[-1])


def test_the_unit(tmp_path):
    text = (ROOT / "deploy" / "cefito.service").read_text("utf-8")
    call = re.search(r"^ExecStart=/opt/cefito/bin/cefito serve (.*)$", text, re.MULTILINE)[1]
    assert options(call.split())[0] == "/srv/cefito/current"
    assert "--token-file /srv/cefito/" in call
    assert "--session-folder /var/lib/cefito --trusted-proxy 127.0.0.1 " in call
    assert re.search(r"^StateDirectory=cefito$", text, re.MULTILINE)  # /var/lib/cefito
    assert re.search(r"^ExecReload=\S*kill -HUP \$MAINPID$", text, re.MULTILINE)
    assert int(re.search(r"TimeoutStopSec=(\d+)", text)[1]) > Limits().drain_seconds
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "cefito.service"
    unit.write_text(text.replace("/opt/cefito/bin/cefito", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "cefito.service" in done.stderr) == (0, False), done.stderr


def test_what_is_backed_up_comes_back(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "runs").mkdir(parents=True)
    (old / "runs" / "run.json").write_text("{}")
    (old / "current").symlink_to("runs")
    new.mkdir()
    for folder in ("old-state", "new-state"):
        (tmp_path / folder).mkdir()
    (tmp_path / "old-state" / "session").write_text("opened\n")
    for begin, folder in (("tar -czf", old), ("tar -xzf", new)):
        (commands,) = blocks(begin)
        for command in commands.splitlines():
            command = command.replace("/srv/cefito", str(folder))
            words = command.replace("/var/lib/cefito", f"{folder}-state").split()
            subprocess.run(words, cwd=tmp_path, check=True)
    assert (tmp_path / "new-state" / "session").read_text() == "opened\n"
    assert (new / "current").readlink() == Path("runs")
    assert (new / "current" / "run.json").read_text() == "{}"


def test_hashes_and_the_bill_of_materials(tmp_path):
    def entry(name, needs=(), **more):
        about = {"name": name, "version": "1.0", "requires_dist": list(needs), **more}
        info = {"archive_info": {"hashes": {"sha256": "0" * 64}}}
        return {"metadata": about, "download_info": info}

    app = entry("cefito", ["Typed_One>=1", "other; extra == 'serve'", "gone; extra == 'x'"])
    app |= {"requested_extras": ["serve"], "download_info": {"dir_info": {}}}
    licence = {"classifier": ["License :: OSI Approved :: MIT License"]}
    parts = [entry("typed-one", license_expression="MIT"), entry("other", ["typed-one"], **licence)]
    for name in ("Makefile", "deploy", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in (".venv", "dist"):
        (tmp_path / name).mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    (tmp_path / "dist" / "report.json").write_text(json.dumps({"install": [app, *parts]}))
    command = ["make", "lock", "PIP=:", f"BIN={Path(sys.executable).parent}"]
    subprocess.run(command, cwd=tmp_path, check=True)
    locked = (tmp_path / "dist" / "requirements.txt").read_text().splitlines()
    hashed = f"1.0 --hash=sha256:{'0' * 64}"
    assert locked == [f"typed-one=={hashed}", f"other=={hashed}"]
    bill = json.loads((tmp_path / "dist" / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "cefito"
    first, second = bill["components"]
    assert first["licenses"] == [{"expression": "MIT"}]
    assert first["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert second["licenses"] == [{"license": {"name": "MIT License"}}]
    place = "pkg:pypi/{}@1.0".format
    needs = {of["ref"]: of["dependsOn"] for of in bill["dependencies"]}
    assert needs[place("cefito")] == [place("other"), place("typed-one")]
    assert needs[place("other")] == [place("typed-one")]
