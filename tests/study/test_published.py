import json
import re
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from cefito.errors import ConfigError
from cefito.study.tables import PublishedRow, PublishedScore, published_rows

DATASETS = ("crosstask", "coin", "niv")
TABLES = ("main", "ablation", "text-encoder", "task-classifier", "oracle", "reproduction")
SCORES = ("success_rate", "mean_accuracy", "mean_iou_bitwise", "mean_iou_own", "task_accuracy")
PLACES = {
    "tab:crosstask": ("main", ("crosstask",)),
    "tab:coin": ("main", ("coin",)),
    "tab:niv": ("main", ("niv",)),
    "tab:ablation": ("ablation", ("crosstask",)),
    "tab:text_encoder_ablation": ("text-encoder", ("crosstask",)),
    "tab:task-classification": ("task-classifier", ("crosstask", "coin")),
    "tab:oracle_comparison": ("oracle", ("crosstask", "coin")),
}


def all_rows() -> list[PublishedRow]:
    return [
        row
        for table in TABLES
        for dataset in DATASETS
        for horizon in range(1, 10)
        for row in published_rows(dataset, horizon, table)
    ]


def scores(row: PublishedRow) -> dict[str, PublishedScore]:
    return {name: score for name in SCORES if (score := getattr(row, name)) is not None}


def by_method(dataset: str, horizon: int, table: str = "main") -> dict[str, PublishedRow]:
    return {row.method: row for row in published_rows(dataset, horizon, table)}


def test_rows_by_hand():
    row = by_method("crosstask", 3)["ViterbiPlanNet"]
    assert row.success_rate == PublishedScore(38.45, 0.32)
    assert row.mean_accuracy == PublishedScore(63.07, 0.17)
    assert row.mean_iou_bitwise == PublishedScore(83.89, 0.16)
    assert row.source.endswith("Table 1")
    found = (row.table, row.dataset, row.horizon, row.protocol)
    assert found == ("main", "crosstask", 3, "unified")
    for table, dataset, horizon, method, metric, *numbers in (
        ("main", "coin", 4, "KEPP", "mean_accuracy", 33.39, 0.73),
        ("main", "niv", 3, "Gemini 2.5 Pro", "success_rate", 24.07),
        ("oracle", "coin", 3, "CEFITO (true task)", "mean_iou_bitwise", 98.15),
        ("task-classifier", "coin", 4, "CEFITO", "task_accuracy", 79.42),
        ("text-encoder", "crosstask", 4, "Random embedding", "success_rate", 21.3),
        ("reproduction", "niv", 6, "ViterbiPlanNet (reproduced)", "success_rate", 18.24),
    ):
        row = by_method(dataset, horizon, table)[method]
        assert getattr(row, metric) == PublishedScore(*numbers)


def test_every_row_is_complete():
    for row in all_rows():
        found = scores(row)
        iou = {"unified": "mean_iou_bitwise", "own": "mean_iou_own"}[row.protocol]
        assert set(found) == (
            {"task_accuracy"}
            if row.table == "task-classifier"
            else {"success_rate", "mean_accuracy", iou}
        )
        assert all(
            0 < score.value < 100 and (score.width is None or 0 < score.width < 20)
            for score in found.values()
        )
        assert len({score.width is None for score in found.values()}) == 1
        assert row.method
        assert row.source
        if row.table != "task-classifier":
            assert row.success_rate.value < row.mean_accuracy.value
    keys = [(row.table, row.dataset, row.horizon, row.method) for row in all_rows()]
    assert len(set(keys)) == len(keys)


def test_footnotes():
    assert "plan with the true task" in by_method("niv", 3)["CEFITO"].notes[1]
    split, metrics = by_method("crosstask", 3)["P3IV"].notes
    assert "98.5 % are of videos that are trained on too" in split
    assert by_method("coin", 3)["P3IV"].notes == (metrics,)
    for row in all_rows():
        assert len(set(row.notes)) == len(row.notes)
        assert all(re.fullmatch(r"[A-Z][^\n]*\.", note) for note in row.notes)


def test_every_footnote_is_of_some_row():
    text = (resources.files("cefito.study") / "published.json").read_text(encoding="utf-8")
    used = {note for row in all_rows() for note in row.notes}
    assert [note for note in json.loads(text)["footnotes"] if note["text"] not in used] == []


def test_data_sets_are_matched_by_their_name():
    assert published_rows("crosstask-simulated", 3) == published_rows("crosstask", 3)
    assert {row.dataset for row in published_rows("crosstask-simulated", 3)} == {"crosstask"}
    for dataset in ("captaincook4d", "", "cross", "my-coin", "coins of 1900", "niv2"):
        assert published_rows(dataset, 3) == []
    assert published_rows("coin", 5) == published_rows("coin", 0) == []
    assert published_rows("niv", 3, "oracle") == []


def test_there_is_no_such_table():
    with pytest.raises(ConfigError, match=r"table 'runtime'; .* ablation, main"):
        published_rows("coin", 3, "runtime")


@pytest.mark.parametrize("label", PLACES)
def test_against_the_source_of_the_paper(label, shared_data: Path):
    """The numbers of each table, each as often as it stands there."""
    path = shared_data.parent / "paper" / "cefito.tex"
    if not path.exists():
        pytest.skip(
            "the source of the paper is not at hand: paper/cefito.tex beside the real annotations"
        )
    tex = path.read_text(encoding="utf-8")
    at = tex.index(rf"\label{{{label}}}")
    if label != "tab:task-classification":  # elsewhere the label stands below
        at = tex.rindex(r"\toprule", 0, at)
    body = tex[tex.index(r"\midrule", at) : tex.index(r"\bottomrule", at)]
    table, datasets = PLACES[label]
    rows = [
        row
        for dataset in datasets
        for horizon in (3, 4)
        for row in published_rows(dataset, horizon, table)
    ]
    numbers = [
        number
        for row in rows
        for score in scores(row).values()
        for number in (score.value, score.width)
        if number is not None
    ]
    assert Counter(f"{number:.2f}" for number in numbers) == Counter(
        re.findall(r"(?<!\d)\d+\.\d\d(?!\d)", body)
    )
