"""From the download of Assembly101's labels of mistakes to findings."""

import csv
import functools
import json
from http.server import SimpleHTTPRequestHandler

from assembly_files import WRONG, write_files
from cefito.data.downloads import find_places, places
from http_servers import serving


def test_download_prepare_and_verify(tmp_path, ran, call, monkeypatch):
    served, mine, table = write_files(tmp_path / "served"), tmp_path / "mine", tmp_path / "S.csv"
    monkeypatch.setenv("no_proxy", "*")
    kind = functools.partialmethod(SimpleHTTPRequestHandler.__init__, directory=str(served))
    with serving(type("Handler", (SimpleHTTPRequestHandler,), {"__init__": kind})) as server:
        for place in find_places("assembly101"):
            address = f"http://127.0.0.1:{server.server_port}/{place.file}"
            monkeypatch.setitem(places(), place.name, place.model_copy(update={"address": address}))
        ran("data", "download", "assembly101", mine)
        gone = {"address": f"http://127.0.0.1:{server.server_port}/none"}
        place = places()["assembly101-test"]
        monkeypatch.setitem(places(), place.name, place.model_copy(update=gone))
        code, _, message = call("data", "download", "assembly101-test", tmp_path / "new")
        assert code == 2
        assert "the server answers 404" in message
        assert "data/assembly101/test_split.txt of the project" in message
    counts = json.loads(ran("data", "prepare", "assembly101", mine, table, "--json").out)
    assert counts == {
        **{"out": str(table), "train videos": 1, "train steps": 2, "test videos": 1},
        **{"test steps": 2, "mistakes": 1},
    }
    with table.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [*rows[0]] == ["video", "task", "step", "start", "end", "split", "error"]
    assert [row["error"] for row in rows] == ["", "", "", "wrong order"]
    ran("data", "prepare", "assembly101", mine, table, "--whole")
    with table.open() as file:
        assert len(file.readlines()) == 1 + 2 + 4
    said = json.loads(ran("verify", table, table, "--online", "--json").out)
    assert [(video["video"], video["task"]) for video in said] == [(WRONG, "toy c07")]
