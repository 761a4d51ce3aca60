"""What `cefito plan-batch` prints in every format."""


def test_formats_that_are_refused(refused, run_of_lengths, monkeypatch):
    asked = ("plan-batch", run_of_lengths.folder, "q.csv", "--format")
    assert "unknown. Choose one of jsonl" in refused(*asked, "xml")
    assert "Leave one out" in refused(*asked, "csv", "--json")
    assert "Leave one out" in refused(*asked, "csv", "--out", "plans.csv")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "is not text" in refused(*asked, "parquet")
