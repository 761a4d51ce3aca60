import json
from pathlib import Path

from cooking import FILES, KITCHEN, ROWS, cook_values, serve_cook_files, write_cook_files


def test_a_group_of_files(tmp_path, ran, monkeypatch):
    served = write_cook_files(tmp_path / "served", cook_values(KITCHEN, ROWS))
    with serve_cook_files(monkeypatch, served):
        captured = ran("data", "download", "captaincook4d", tmp_path / "mine", "--json")
        again = ran("data", "download", "captaincook4d", tmp_path / "mine")
    done = json.loads(captured.out)
    assert [Path(one["file"]).name for one in done] == list(FILES.values())
    assert [one["checked"] for one in done] == [False, False, False, False, True]
    assert "captaincook4d-features: EgoVLP features of CaptainCook4D's steps" in captured.err
    for file in FILES.values():
        assert (tmp_path / "mine" / file).read_bytes() == (served / file).read_bytes()
    assert (again.out, again.err.count("exists already: ")) == ("", len(FILES))


def test_the_list_of_downloads(ran):
    known = json.loads(ran("data", "download", "--json").out)
    title, heads, *rows = ran("data", "download").out.splitlines()
    assert (title, heads.split()) == ("Available downloads", ["name", "what", "address", "licence"])
    assert [row.split()[0] for row in rows[: len(known)]] == [one["name"] for one in known]
    pairs = zip(known, rows, strict=False)
    assert all(one["licence"] and row.endswith(one["licence"]) for one, row in pairs)
    assert any(row.startswith("captaincook4d ") and "All 5 files" in row for row in rows)
    by_hand = [one for one in known if one["address"] is None]
    assert sum("by hand" in row for row in rows) == len(by_hand)
    features = [one["name"] for one in by_hand if "S3D" in one["what"] and "512" in one["what"]]
    assert features == ["crosstask-features", "coin-features", "niv-features"]
