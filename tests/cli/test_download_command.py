import json
from pathlib import Path

from cooking import FILES, KITCHEN, ROWS, cook_values, serve_cook_files, write_cook_files


def test_a_group_of_files(tmp_path, ran, monkeypatch):
    served = write_cook_files(tmp_path / "served", cook_values(KITCHEN, ROWS))
    with serve_cook_files(monkeypatch, served):
        captured = ran("data", "download", "captaincook4d", tmp_path / "mine", "--json")
    done = json.loads(captured.out)
    assert [Path(one["file"]).name for one in done] == list(FILES.values())
    assert [one["checked"] for one in done] == [False, False, False, False, True]
    assert "captaincook4d-features: EgoVLP features of CaptainCook4D's steps" in captured.err
    for file in FILES.values():
        assert (tmp_path / "mine" / file).read_bytes() == (served / file).read_bytes()
