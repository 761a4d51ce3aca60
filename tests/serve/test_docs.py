"""The examples of docs/serve.md, against a service that really listens."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from cefito.serve.app import create_app
from cefito.serve.problems import _KINDS
from cefito.serve.settings import Limits

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"
(NGINX,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_page(address, place, capsys, monkeypatch):
    monkeypatch.chdir(place.world.folder.parent)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(code.replace(ADDRESS, address).replace('"DATA"', '"world"'), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tea 3 12 tasks"
    assert len(lines) == 4


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_of_the_page(address, place, tmp_path):
    calls = [line for line in PAGE.replace("\\\n", " ").split("\n") if line.startswith("curl ")]
    assert len(calls) == 2
    for name in ("before.png", "after.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    found = []
    for call in calls:
        done = subprocess.run(
            shlex.split(call.replace(ADDRESS, address)),
            capture_output=True,
            check=True,
            text=True,
            cwd=tmp_path,
        )
        found.append(json.loads(done.stdout))
    assert len(found[0]["plans"]) == 2
    assert found[0]["truth"]
    assert found[1]["type"] == "urn:cefito:no-encoder"


def test_the_problems_of_the_page_are_those_that_there_are():
    lines = re.findall(r"^\| ([\d, ]+) \| ((?:`[\w-]+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    for kind, (status, title) in _KINDS.items():
        listed = [number for number, kinds in lines if f"`{kind}`" in kinds]
        assert any(str(status) in number for number in listed) or kind == "gone"  # seen by nobody
        assert kind != "expensive" or f'"title": "{title}"' in PAGE
    assert {kind for _, kinds in lines for kind in re.findall(r"`([\w-]+)`", kinds)} < {*_KINDS}


def test_the_tools_of_the_page_are_those_that_there_are():
    pytest.importorskip("mcp")
    from cefito.serve.mcp import TOOLS

    table = PAGE.partition("| tool | answer |\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    assert re.findall(r"`(\w+)`", " ".join(cells)) == [*TOOLS]


def test_the_limits_of_the_proxy_of_the_page_fit_those_of_the_service():
    limits, values = Limits(), dict(re.findall(r"^ *(\w+) (\d+)[ms];", NGINX, re.MULTILINE))
    assert int(values["client_max_body_size"]) == limits.upload_mib
    assert int(values["proxy_read_timeout"]) > limits.longest_seconds
    assert int(values["client_body_timeout"]) < limits.receive_seconds
    (rate,), (most,) = (re.findall(of, NGINX) for of in (r"rate=(\d+)r/s", r"connections (\d+);"))
    assert f"limits of {rate} requests a second and {most} connections" in PAGE


def nginx_in(folder):
    """The begin of a configuration by which nginx writes into a folder alone, up to `http {`."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}; " for kind in kinds)
    own = f"daemon off; pid {folder}/pid; error_log {folder}/errors;"
    return f"{own}\nevents {{}}\nhttp {{ {places}\n"


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_proxy_of_the_page(address, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="cefito.requests")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = re.sub(r"^ *ssl_.*\n", "", NGINX, flags=re.MULTILINE).replace(ADDRESS, address)
    server = server.replace("/var/log/nginx", str(tmp_path))
    secret = "ses_abcdEFGHijklMNOP-rst_v"
    listening = server.replace("443 ssl", f"127.0.0.1:{port}")
    (tmp_path / "nginx.conf").write_text(f"{nginx_in(tmp_path)}{listening}}}")
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/ready", headers={"x-forwarded-for": "1"}
    )
    with subprocess.Popen(["nginx", "-c", tmp_path / "nginx.conf"]) as nginx:
        try:
            found = None
            for _ in range(100):
                time.sleep(0.1)
                with suppress(OSError), urllib.request.urlopen(asked, timeout=10) as answer:
                    found = json.load(answer)
                    break
            path = f"http://127.0.0.1:{port}/v1/sessions/{secret}?top_k=1"
            large = urllib.request.Request(path, b"", {"content-length": "100000000"})
            for sent, status in ((path, "404"), (large, "413")):
                with pytest.raises(urllib.error.HTTPError, match=status):
                    urllib.request.urlopen(sent)
            with (
                ThreadPoolExecutor(8) as threads,
                pytest.raises(urllib.error.HTTPError, match="429"),
            ):
                list(threads.map(lambda _: urllib.request.urlopen(asked).close(), range(400)))
        finally:
            nginx.terminate()
    assert found == {"status": "ready"}
    until = time.monotonic() + 20
    while not caplog.messages and time.monotonic() < until:  # a request is logged at its end
        time.sleep(0.01)
    assert caplog.messages[0].startswith("127.0.0.1:0 - ")
    assert secret in (tmp_path / "errors").read_text("utf-8")  # whole paths
    log = (tmp_path / "cefito.log").read_text("utf-8")
    assert '"GET /v1/sessions/ses_abcd...?top_k=1 HTTP/1.1" 404 ' in log
    assert secret not in log


def test_the_routes_and_fields_of_the_page_are_those_that_there_are(place):
    document = create_app(place.settings()).openapi()
    routes = {f"{method.upper()} {path}" for path, of in document["paths"].items() for method in of}
    named = set(re.findall(r"`((?:GET|POST|DELETE) /[\w/{}]+)`", PAGE))
    assert routes == named
    fields = set(document["components"]["schemas"]["PlanRequest"]["properties"])
    first_cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    listed = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert fields <= listed
