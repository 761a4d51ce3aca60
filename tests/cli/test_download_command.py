import hashlib
import http.server
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cefito.cli import main
from cefito.data.downloads import find_place, places
from cooking import FILES, KITCHEN, ROWS, cook_values, serve_cook_files, write_cook_files
from http_servers import serving

CONTENT = b"weights" * 1000
HASH = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def address(monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/weights" else 404)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)

    monkeypatch.setenv("no_proxy", "*")
    with serving(Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}/weights"
        known = find_place("s3d").model_copy(update={"address": address})
        monkeypatch.setitem(places(), "s3d", known)
        yield address


@pytest.mark.usefixtures("address")
def test_the_weights_of_s3d(tmp_path, capsys):
    path = tmp_path / "weights" / "s3d_howto100m.pth"
    argv = ["data", "download", "s3d", str(path.parent)]
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    licence, progress, wrote = captured.err.splitlines()
    assert licence.startswith("s3d: Weights of the S3D video encoder")
    assert licence.endswith("licence: Apache-2.0")
    assert progress.startswith("s3d_howto100m.pth, MiB: ")
    assert wrote.startswith(f"wrote: {path}, 7,000 bytes, SHA-256 {HASH} (not checked: no SHA-256")
    assert path.read_bytes() == CONTENT

    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        **{"name": "s3d", "file": str(path), "bytes": 7000, "sha256": HASH},
        **{"checked": False, "kept": True},
    }
    assert "exists already: " in captured.err.splitlines()[-1]


def test_without_a_name_it_lists_what_there_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "download"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Available downloads"
    names = [line.split()[0] for line in out.splitlines()]
    assert {"s3d", "coin-features", "niv-features", "captaincook4d"} <= set(names)
    assert "by hand" in out
    assert main(["data", "download", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value[0]["name"] == "s3d"
    assert value[0]["address"].endswith("/s3d_howto100m.pth")
    assert value[2]["address"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_group_of_files(tmp_path, capsys, monkeypatch):
    served = write_cook_files(tmp_path / "served", cook_values(KITCHEN, ROWS))
    argv = ["data", "download", "captaincook4d", str(tmp_path / "mine")]
    with serve_cook_files(monkeypatch, served):
        assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    done = json.loads(captured.out)
    assert [Path(one["file"]).name for one in done] == list(FILES.values())
    assert [one["checked"] for one in done] == [False, False, False, True]
    assert "captaincook4d-features: EgoVLP features of CaptainCook4D's steps" in captured.err
    for file in FILES.values():
        assert (tmp_path / "mine" / file).read_bytes() == (served / file).read_bytes()


def test_the_command_is_light():
    check = (
        "from cefito.cli import main\n"
        "assert main(['data', 'download']) == 0\n"
        "import sys\n"
        "assert not {'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    argv = [sys.executable, "-c", check]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
