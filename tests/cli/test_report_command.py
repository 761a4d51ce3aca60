import json
import shutil


def test_page_and_json_hold_the_same(nearest_run, ran, tmp_path):
    folder = shutil.copytree(nearest_run.folder, tmp_path / "run")
    said = ran("report", folder, "--out", tmp_path / "report.html", "--json")
    found = json.loads(said.out)
    assert found["kind"] == "run"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{found['scores']['metrics']['success_rate']:.2f}" in page
    assert f"wrote {tmp_path / 'report.html'}" in said.err
    again = ran("report", folder, "--json").out
    assert again == said.out


def test_of_a_run_of_several_lengths(run_of_lengths, ran, tmp_path):
    folder = shutil.copytree(run_of_lengths.folder, tmp_path / "run")
    options = ["--steps", "2-3", "--without-goal", "--after-done", "--queries", "0", "--json"]
    scores = json.loads(ran("report", folder, *options).out)["scores"]
    assert (scores["shortest"], scores["horizon"]) == (2, 3)
    assert scores["without_goal"]
    assert scores["after_done"]
    report = json.loads(ran("report", folder, "--with-elapsed", "--queries", "0", "--json").out)
    assert report["scores"]["with_elapsed"]
    assert "--with-elapsed" in report["commands"][1]
