import copy
import random
import re
import shutil
import subprocess

import pytest

from cefito.errors import ConfigError
from cefito.evaluation.metrics import metric_heads
from cefito.evaluation.statistics import bootstrap_width, paired_difference
from cefito.study import tables
from cefito.study.rendering import (
    Entry,
    Table,
    check_columns,
    latex,
    markdown,
    resampled_text,
    signed,
    signed_interval,
)
from cefito.study.results import Results, other_features
from cefito.study.tables import published_rows, score_heads, score_lines

T2 = 6.313751514675043  # Student's t, 0.95, one degree of freedom
VIDEOS = [0, 0, 1, 1, 2, 3]


def score_table(results, horizon, **more):
    return tables.score_table(Results.model_validate(results), horizon, **more)


def difference_table(results, horizon, **more):
    return tables.difference_table(Results.model_validate(results), horizon, **more)


def result_tables(results, **more):
    return tables.result_tables(Results.model_validate(results), **more)


def cell(row, seed, success, *, accuracy=50.0, horizon=2, scored=None, task=None, **changes):
    rate = 100 * success.count("1") / len(success)
    values = {
        "success_rate": rate,
        "mean_accuracy": accuracy,
        "mean_iou": accuracy + 1,
        "mean_iou_bitwise": accuracy + 2,
        "top_5_success_rate": 90.0,
        "position_accuracy": [accuracy + step for step in range(horizon)],
    }
    if task is not None:
        values["task_accuracy"] = task
    return {
        **{"row": row, "horizon": horizon, "seed": seed, "success": success, "scored": scored},
        **{"windows": len(success), "sampled_from": len(VIDEOS), "metrics": values},
        **{"planner": row, "dataset": "made", "split": "test", "oracle_task": False},
        **{"without_plan": 0, "leaves_per_query": 0.0, "method": row, "selection": "held-out"},
        **{"training": {}, "exact": True, "parameters": {"field": 0, "other": 0}},
        **costs(0.5, 1000.0),
        **changes,
    }


def costs(seconds, tokens):
    return {"seconds_per_query": seconds, "token_forwards_per_query": tokens}


@pytest.fixture
def results():
    """Rows: a, b (seeds the other way round), sampled, told (true task), broken, half failed."""
    names = {"a": "method A", "b": "B & C_1 (50 %)"}
    names |= {name: name for name in ("sampled", "told", "broken", "half")}
    large = {"parameters": {"field": 1_234_567, "other": 0}}
    rows = [
        {"name": name, "title": title, "method": name, "settings": {}, "search": {}}
        | {"exhaustive": name == "sampled", "true_task": name == "told"}
        for name, title in names.items()
    ]
    cells = [
        cell("a", 0, "110100", accuracy=60.0, task=80.0, **large, **costs(0.25, 1500.4)),
        cell("a", 1, "111100", accuracy=70.0, task=90.0, **large, **costs(0.75, 2499.6)),
        cell("b", 1, "110000", accuracy=65.0, **costs(0.5, 0.0)),
        cell("b", 0, "100000", accuracy=65.0, **costs(0.5, 0.0)),
        cell("sampled", 0, "111", accuracy=99.0, scored=[0, 2, 5]),
        cell("sampled", 1, "110", accuracy=99.0, scored=[0, 2, 5]),
        cell("told", 0, "111111", accuracy=99.5, task=100.0),
        cell("told", 1, "111111", accuracy=99.5, task=100.0),
        {"row": "broken", "horizon": 2, "seed": 0, "error": "C:\\data{1}: 100 % ~wrong^2 #3 <$&_>"},
        {"row": "broken", "horizon": 2, "seed": 1, "error": "not scored yet. Repeat the command."},
        cell("half", 0, "000000", accuracy=10.0),
        {"row": "half", "horizon": 2, "seed": 1, "error": "killed"},
    ]
    return {
        **{"format_version": 1, "dataset": {"name": "made", "fingerprint": "f"}},
        **{"selection": "held-out", "preset": "small", "settings": {}, "sample": None},
        **{"horizons": [2], "seeds": [0, 1], "versions": {}, "rows": rows},
        "windows": {"2": {"video": VIDEOS, "start": [0, 1, 0, 1, 0, 0]}},
        "trials": cells,
    }


def column(table, head):
    place = table.heads.index(head)
    return {line[0].text: line[place] for line in table.lines}


# Scores


def test_each_number(results):
    table = score_table(results, 2)
    assert table.title == "made, T = 2, 6 test windows, preset small"
    assert ", ".join(table.heads) == (
        "planner, SR, mAcc, mIoU, bitwise mIoU, top-5 SR, task, SR bootstrap width, s/query, "
        "tokens/query, parameters, seeds"
    )
    names = ["told", "sampled (3 windows)", "method A", "B & C_1 (50 %)", "half"]  # by score
    assert [line[0].text for line in table.lines] == names
    assert table.below == 0
    width = bootstrap_width([50, 200 / 3])
    half = T2 * (200 / 3 - 50) / 2  # t s / √n, where s = difference / √2
    wide = f"{T2 * 5:.2f}"
    assert " | ".join(entry.text for entry in table.lines[2]) == (
        f"method A | 58.33 ± {half:.2f} | 65.00 ± {wide} | 66.00 ± {wide} | 67.00 ± {wide} | "
        f"90.00 ± 0.00 | 85.00 ± {wide} | {width:.2f} | 0.5 | 2,000 | 1.23 M | 2"
    )
    width = bootstrap_width([100 / 6, 200 / 6])
    assert " | ".join(entry.text for entry in table.lines[3]) == (
        f"B & C_1 (50 %) | 25.00 ± {half:.2f} | 65.00 ± 0.00 | 66.00 ± 0.00 | 67.00 ± 0.00 | "
        f"90.00 ± 0.00 | – | {width:.2f} | 0.5 | 0 | – | 2"
    )
    last = " ".join(entry.text for entry in table.lines[4])
    assert last == "half 0.00 10.00 11.00 12.00 90.00 – – 0.5 1,000 – 1"  # one seed: no ±
    assert "Warning: fewer than three seeds (all rows); another seed may" in table.notes[-1]
    resampled = score_table(results | {"intervals": {"2": {}}}, 2)
    assert column(resampled, "SR over seeds")["method A"].text == f"±{half:.2f}"


def test_rows_with_few_seeds_are_named(results):
    for row in ("a", "told"):
        results["trials"].append(cell(row, 2, "111111"))
    (note,) = (note for note in score_table(results, 2).notes if note.startswith("Warning"))
    assert "fewer than three seeds (B & C_1 (50 %), sampled, half);" in note
    results["trials"] = [entry for entry in results["trials"] if entry["row"] in ("a", "told")]
    assert not any(note.startswith("Warning") for note in score_table(results, 2).notes)


def test_notes(results):
    table = score_table(results, 2)
    first, *failed, _ = table.remarks
    assert first.startswith("Per cent; ± half the 90 % interval of the mean by Student's t over")
    assert "mAcc: steps right in their places." in first
    assert "edit:" not in first
    assert failed == [
        "broken, seed 0: C:\\data{1}: 100 % ~wrong^2 #3 <$&_>",
        "broken, seed 1: not scored yet. Repeat the command.",
        "half, seed 1: killed",
    ]
    results["settings"] = {"training.optimiser.epochs": "3", "field.width": 8}
    changed = "Changed settings: training.optimiser.epochs = 3, field.width = 8."
    assert changed in score_table(results, 2).notes
    said = latex(difference_table(results, 2))
    assert r"\item 90 \% intervals, for which both rows are scored on the same draws." in said
    assert r"\item Changed settings: training.optimiser.epochs = 3, field.width = 8." in said
    assert r"\item Warning: fewer than three seeds (method A, " in said


def test_metrics_that_a_trial_has_get_columns(results):
    for entry in results["trials"][:4]:
        entry["metrics"] |= {"edit_similarity": 40.0, "order_tolerant_success": 30.0}
    table = score_table(results, 2)
    assert table.heads[1:7] == ("SR", "mAcc", "mIoU", "edit", "order SR", "bitwise mIoU")
    shown = [entry.text for entry in column(table, "edit").values()]
    assert shown == ["–", "–", "40.00 ± 0.00", "40.00 ± 0.00", "–"]
    assert "edit: 1 − edit distance / longer length. order SR: the annotated" in table.remarks[0]


def test_best_and_second_best(results):
    table = score_table(results, 2)

    def ranks(head, table=table):
        return [entry.rank for entry in column(table, head).values()]

    assert ranks("SR") == [0, 0, 1, 2, 0]
    assert ranks("mAcc") == [0, 0, 1, 1, 2]  # a tie
    assert ranks("top-5 SR") == [0] * 5  # all are equal
    assert ranks("task") == [0] * 5  # nothing to compare with
    assert all(
        entry.rank == 0
        for head in table.heads
        for entry in column(table, head).values()
        if head not in metric_heads().values()
    )
    for row in results["rows"]:
        row |= {"true_task": False, "stored_task": row["true_task"]}
    assert ranks("SR", score_table(results, 2)) == [0, 0, 1, 2, 0]
    close = copy.deepcopy(results)
    for entry in close["trials"][2:4]:
        entry["metrics"]["mean_accuracy"] = 65.004  # what is printed alike is ranked alike
    assert ranks("mAcc", score_table(close, 2)) == [0, 0, 1, 1, 2]


def test_titles_name_sample_and_selection(results):
    for entry in results["trials"]:
        if "error" not in entry:
            entry["sampled_from"] = 4531
    results |= {"selection": "published", "preset": "/home/me/own.toml"}
    both = result_tables(results)
    assert len(both) == 2
    assert all(
        table.title.startswith("made, T = 2, 6 of 4,531 test windows, preset own, chosen on TEST")
        for table in both
    )


def test_a_horizon_without_any_score(results):
    results["horizons"].append(5)
    failed = {"horizon": 5, "seed": 0, "error": "killed"}
    results["trials"] += [{"row": row["name"], **failed} for row in results["rows"]]
    _, _, table = result_tables(results)
    assert (table.title, table.lines) == ("made, T = 5, 0 test windows, preset small", ())
    assert len(table.notes) == len(results["rows"])
    for form in (markdown, latex):
        assert "broken, seed 0: killed" in form(table)


# Differences


def test_differences_are_paired_by_seed_on_common_windows(results):
    table = difference_table(results, 2)
    title = "made, T = 2, 6 test windows, preset small: success rate less that of method A"
    assert table.title == title

    def line(name, mean, ours, theirs, videos, *rest):
        expected = paired_difference(ours, theirs, videos)
        return [name, mean, f"{expected.low:+.2f} to {expected.high:+.2f}", *rest]

    ours = [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    theirs = [[1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 0, 0]]
    few = ([[1, 1, 1], [1, 1, 0]], [[1, 0, 0], [1, 1, 0]], [0, 1, 3])
    _, sampled, first, half = ([entry.text for entry in line] for line in table.lines)
    # -33.33 with either seed
    assert first == line("B & C_1 (50 %)", "-33.33", ours, theirs, VIDEOS, "±0.00", "6")
    assert sampled == line("sampled", "+33.33", *few, f"±{T2 * 100 / 3:.2f}", "3")
    assert half == line("half", "-50.00", [[0] * 6], theirs[:1], VIDEOS, "–", "6")  # seed 0 alone


def test_the_order_of_cells_does_not_matter(results):
    shuffled = copy.deepcopy(results)
    random.Random(0).shuffle(shuffled["trials"])
    assert difference_table(shuffled, 2) == difference_table(results, 2)
    assert score_table(shuffled, 2) == score_table(results, 2)


def test_no_difference_has_no_minus(results):
    results["trials"][2]["success"], results["trials"][3]["success"] = "111100", "110100"
    lines = {line[0].text: line for line in difference_table(results, 2).lines}
    assert [*lines] == ["told", "sampled", "B & C_1 (50 %)", "half"]  # by difference
    texts = [entry.text for entry in lines["B & C_1 (50 %)"][1:4]]
    assert texts == ["+0.00", "+0.00 to +0.00", "±0.00"]
    results["trials"][2]["success"] = "111010"  # rounding leaves a negative number near nothing
    shown = [entry.text for line in difference_table(results, 2).lines for entry in line]
    assert "-0.00" not in shown


def test_differences_against_another_row(results):
    table = difference_table(results, 2, against="told")
    assert table.title.endswith("less that of told")
    assert column(table, "difference")["method A"].text == "-41.67"
    assert column(difference_table(results, 2, against="sampled"), "windows")["told"].text == "3"
    assert difference_table(results, 2, against="broken").lines == ()
    assert [table.title.split(":")[-1] for table in result_tables(results, against="b")] == [
        "made, T = 2, 6 test windows, preset small",
        " success rate less that of B & C_1 (50 %)",
    ]
    assert len(result_tables(results, against="broken")) == 1


def test_rows_without_a_common_seed_or_window(results):
    for entry in results["trials"]:
        if entry["row"] == "b":
            entry["seed"] += 7
    lines = {line[0].text: line for line in difference_table(results, 2).lines}
    line = lines["B & C_1 (50 %)"]
    assert (line[1].text, line[3].text) == ("-33.33", "–")  # nothing to pair by
    results["trials"] += [cell("broken", 0, "11", scored=[1, 3])]
    assert "broken" not in column(difference_table(results, 2, against="sampled"), "difference")


# Published rows


@pytest.fixture
def crosstask(results):
    results["dataset"]["name"], results["horizons"] = "crosstask (simulated)", [3]
    results["windows"] = {"3": results["windows"]["2"]}
    for entry in results["trials"]:
        entry["horizon"] = 3
        if "metrics" in entry:
            entry["metrics"]["position_accuracy"].append(0.0)
    return results


def test_published_rows_are_below_the_rule(crosstask):
    rows, table = published_rows("crosstask", 3), score_table(crosstask, 3)
    assert table.below == len(rows) == 20
    assert len(table.lines) == 5 + 20
    below = table.lines[5:]
    names = [re.sub(r" \[.*\]$", "", line[0].text) for line in below]
    assert names == [row.method + ", own protocol" * (row.protocol == "own") for row in rows]
    ours = below[0]
    numbers = ["39.62 ± 0.24", "64.12 ± 0.31", "–", "84.29 ± 0.21"]
    assert [entry.text for entry in ours] == ["CEFITO [a]", *numbers, *["–"] * 7]
    assert all(entry.rank == 0 for line in below for entry in line)
    assert all(len(line) == len(table.heads) for line in below)
    said = " ".join(table.notes)
    assert "of real features (S3D), the others of simulated ones: not comparable" in said
    crosstask["dataset"]["name"] = "crosstask"
    said = " ".join(score_table(crosstask, 3).notes)
    assert "Published rows: ± is" in said
    assert "not comparable" not in said
    crosstask["features"] = other_features({"features": {"model": "clip"}}, 1536)
    said = " ".join(score_table(crosstask, 3).notes)
    assert "of real features (S3D), the others of features of clip: not comparable" in said


@pytest.mark.parametrize(
    ("observed", "width", "words"),
    [
        (None, 1536, None),
        ({"features": {"model": "s3d"}}, 1536, None),
        ({"features": {"model": "efficientnet-lite0"}}, 1536, "features of efficientnet-lite0"),
        ({"features": None}, 3840, "observations of 3,840 numbers"),
    ],
)
def test_features_that_are_not_the_published_ones(observed, width, words):
    assert other_features(observed, width) == words


def test_footnotes_of_published_rows(crosstask):
    table = score_table(crosstask, 3)
    rows = published_rows("crosstask", 3)
    footnotes = {note[1]: note[4:] for note in table.notes if re.match(r"\[[a-z]\] ", note)}
    assert list(footnotes) == list("abcdefghij")
    for row, line in zip(rows, table.lines[-20:], strict=True):
        marks = re.findall(r"[a-z]", (re.search(r"\[(.*)\]$", line[0].text) or [""])[0])
        assert tuple(footnotes[mark] for mark in marks) == row.notes
    names = [line[0].text for line in table.lines[-20:]]
    (p3iv,) = (name for name in names if name.startswith("P3IV, own"))
    assert re.fullmatch(r"P3IV, own protocol \[[a-j], [a-j]\]", p3iv)
    language = [name[-4:] for name in names if re.match("Qwen|Gemini", name)]
    assert len(language) == 5
    assert len(set(language)) == 1  # one note for all of them
    for shown in (markdown(table), latex(table)):
        assert p3iv in shown
        assert re.search(r"\[[a-j]\] Its split is one of windows, not of videos", shown)
    ablation = score_table(crosstask, 3, published="ablation")
    assert ablation.lines[-1][0].text == "+ auxiliary regularization (CEFITO) [b]"


def test_other_published_tables(crosstask):
    table = score_table(crosstask, 3, published="task-classifier")
    assert [entry.text for entry in table.lines[-1]] == ["CEFITO", *["–"] * 5, "92.43", *["–"] * 5]
    plain = score_table(crosstask, 3, published="")
    assert plain.below == 0
    assert not any("published rows" in note for note in plain.notes)
    assert result_tables(crosstask, published="oracle")[0].below == 2


# Forms


def test_markdown():
    table = Table(
        title="A title",
        heads=("planner", "SR"),
        below=1,
        notes=("One.", "Two."),
        lines=(
            (Entry(text="a|b"), Entry(text="2.00", rank=1)),
            (Entry(text="c"), Entry(text="1.00", rank=2)),
            (Entry(text="d"), Entry(text="0.00")),
        ),
    )
    assert (
        markdown(table)
        == """**A title**

| planner | SR |
| --- | ---: |
| a\\|b | **2.00** |
| c | *1.00* |
| *published* |  |
| d | 0.00 |

Bold: the best of a column; italic: the second best.

One.

Two.
"""
    )


def test_names_are_escaped():
    hostile = "<script>x</script> a\\|b [c](javascript:x) &\nd_*e*_ `f` ~$g"
    table = Table(
        title=hostile, heads=(hostile,), lines=((Entry(text=hostile),),), notes=(hostile,)
    )
    escaped = (
        r"&lt;script&gt;x&lt;/script&gt; a\\\|b [c]\(javascript:x) &amp; d\_\*e\*\_ \`f\` \~\$g"
    )
    shown = markdown(table)
    assert shown.count(escaped) == 4
    assert "<" not in shown
    assert "\n{}[x] \\\\\n" in latex(table.model_copy(update={"lines": ((Entry(text="[x]"),),)}))


def test_latex():
    table = Table(
        title="50 % of {it}, T = 3: |É_é|",
        heads=("planner", "a_b"),
        below=1,
        notes=("± 3 – τ", "5–7: 1 − 2"),
        lines=(
            (Entry(text="A & B"), Entry(text="2.00 ± 0.10", rank=1)),
            (Entry(text="c#1 T-5"), Entry(text="-1 to $2", rank=2)),
            (Entry(text="C:\\x~y^z"), Entry(text="<0>")),
        ),
    )
    assert (
        latex(table)
        == r"""\begin{table}
\centering
\begin{adjustbox}{max width=\linewidth}
\begin{threeparttable}
\caption{50 \% of \{it\}, T = 3: \textbar{}É\_é\textbar{}.}
\label{tab:50-of-it-t-3-é-é}
\begin{tabular}{lr}
\toprule
planner & a\_b \\
\midrule
A \& B & \textbf{2.00 $\pm$ 0.10} \\
c\#1 T-5 & \underline{$-$1 to \$2} \\
\midrule
C:\textbackslash{}x\textasciitilde{}y\textasciicircum{}z & \textless{}0\textgreater{} \\
\bottomrule
\end{tabular}
\begin{tablenotes}\footnotesize
\item Bold: the best of a column; underlined: the second best.
\item $\pm$ 3 -- $\tau$
\item 5--7: 1 $-$ 2
\end{tablenotes}
\end{threeparttable}
\end{adjustbox}
\end{table}
"""
    )


def test_labels_of_tables_differ(results):
    tables = "".join(map(latex, result_tables(results)))
    labels = re.findall(r"^\\label\{(.*)\}$", tables, re.MULTILINE)
    assert len({*labels}) == len(labels) == tables.count(r"\caption{") > 1


def test_rows_in_the_order_of_the_study(results):
    """As those of an ablation, each of which adds something to the row before."""
    kept = ["method A", "B & C_1 (50 %)", "sampled (3 windows)", "told", "half"]
    scores, differences = result_tables(results, ordered=True)
    assert [line[0].text for line in scores.lines] == kept
    assert next(line[0].text for line in score_table(results, 2).lines) == "told"
    assert [line[0].text for line in differences.lines] == [kept[1], "sampled", "told", "half"]


def test_every_score_is_a_line(results):
    heads, *lines = score_lines(Results.model_validate(results))
    scored = [entry for entry in results["trials"] if "metrics" in entry]
    assert heads[:5] == ["row", "steps", "seed", "windows", "success_rate"]
    assert {tuple(line[:5]) for line in lines} == {
        (each["row"], str(each["horizon"]), each["seed"], each["windows"], rate)
        for each in scored
        for rate in [each["metrics"]["success_rate"]]
    }
    assert {len(line) for line in lines} == {len(heads)}


@pytest.mark.nightly
def test_latex_is_compiled(crosstask, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    tables = "\n".join(map(latex, result_tables(crosstask)))
    packages = r"\documentclass{article}\usepackage{booktabs,threeparttable,adjustbox}"
    (tmp_path / "paper.tex").write_text(
        rf"{packages}\begin{{document}}{tables}\end{{document}}", encoding="utf-8"
    )
    call = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout  # nothing is beyond the page
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")


def test_chosen_columns(crosstask):
    whole = score_table(crosstask, 3)
    table = whole.of_columns(["mAcc", "SR"])
    assert table.heads == ("planner", "SR", "mAcc")
    assert [len(line) for line in table.lines] == [3] * len(whole.lines)
    assert [line[:3] for line in whole.lines] == [*table.lines]
    assert whole.of_columns(["none of them"]) == whole
    (first, *others), *rest = whole.lines
    emptied = (first, Entry(text="–"), *others[1:]), *rest
    empty = tuple((line[0], Entry(text="–"), *line[2:]) for line in whole.lines)
    heads = whole.of_columns(None).heads
    assert whole.model_copy(update={"lines": emptied}).of_columns(None).heads == heads
    shown = whole.model_copy(update={"lines": empty})
    assert shown.of_columns(None).heads == (heads[0], *heads[2:])
    assert shown.of_columns(["SR"]).heads == ("planner", "SR")
    units = (
        "Per cent; ± half the 90 % interval of the mean by Student's t over seeds, since these "
        "scores were stored without sums by video, which could be resampled."
    )
    legend = f"{units} SR: every step is right. mAcc: steps right in their places."
    assert table.remarks == (legend, *whole.notes)
    assert f"\n{legend}\n" in markdown(table)
    notes = re.findall(r"\\item (.*)", latex(table))
    assert notes[0] == "Bold: the best of a column; underlined: the second best."
    assert notes[1] == legend.replace("±", r"$\pm$").replace("%", r"\%")
    assert len(notes) == 2 + len(whole.notes)
    assert "SR bootstrap width: full width" in whole.remarks[0]
    with pytest.raises(ConfigError, match="no column 'sr'; there are SR, mAcc"):
        check_columns(["SR", "sr"], score_heads())


SURE = {
    "expected_calibration_error": 4.0,
    "success_at_half_coverage": 40.0,
    "risk_coverage_area": 60.0,
    "mean_probability": 20.0,
    "searched_mass": None,
    "reliability": {"windows": [6], "probability": [20.0], "success": [16.0]},
    "risk_coverage": {"coverage": [100.0], "success": [16.0], "min_probability": [0.1]},
}


def test_calibration_has_columns_where_some_row_has_it(results):
    """The lower error ranks first; rows without stay empty."""
    heads = score_table(results, 2).heads
    assert "ECE" not in heads
    assert "SR at 50 %" not in heads
    for entry in results["trials"]:
        if entry["row"] in ("a", "b"):
            error = 4.0 + (entry["row"] == "b") + entry["seed"]
            scores = {"expected_calibration_error": error, "chance_calibration_error": error}
            entry["calibration"] = SURE | scores
    table = score_table(results, 2)
    column = table.heads.index("ECE")
    assert table.heads[column + 1 : column + 3] == ("ECE by chance", "SR at 50 %")
    by_row = {line[0].text: line for line in table.lines}
    ours, theirs = by_row["method A"], by_row["B & C_1 (50 %)"]
    assert ours[column] == Entry(text=f"4.50 ± {T2 * 0.5**0.5 / 2**0.5:.2f}", rank=1)
    assert (theirs[column].text[:4], theirs[column].rank) == ("5.50", 2)
    assert [line[column + 1].rank for line in (ours, theirs)] == [0, 0]  # neither is better
    assert ours[column + 2] == Entry(text="40.00 ± 0.00")
    assert by_row["told"][column] == Entry(text="–")
    assert "ECE: expected calibration error" in table.remarks[0]
    assert "ECE" not in table.of_columns(["SR", "seeds"]).remarks[0]


def test_an_end_below_zero_is_never_shown_as_above_it():
    assert signed_interval(-0.04, 13.7, 1) == "-0.0 to +13.7"
    assert signed_interval(-0.0, 0.04, 1) == "+0.0 to +0.0"
    assert signed(-0.004) == "+0.00"


def test_intervals_of_small_numbers_keep_a_digit():
    ends = {"low": 1.52, "high": 2.13}
    assert resampled_text({"mean": 1.84, **ends}, 1) == "1.8 (1.5–2.1)"
    assert resampled_text({"mean": 56.06, "low": 47.4, "high": 65.8}, 1) == "56.1 (47–66)"
    assert resampled_text({"mean": 56.06, "low": None, "high": 65.8}, 2) == "56.06"
