import json
from pathlib import Path

from cefito.cli import main
from cooking import FILES, KITCHEN, ROWS, cook_values, serve_cook_files, write_cook_files


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
