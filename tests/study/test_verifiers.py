"""`cefito compare --verifiers`: scores of verifiers on the test videos of a table of steps."""

import json
from functools import partial

import numpy as np
import pytest

from cefito.cli import main
from cefito.errors import ConfigError, DataError
from cefito.evaluation.statistics import DRAWS, resampled
from cefito.inference.verification import open_verifier
from cefito.study.promises import missed, missed_curve
from cefito.study.rendering import NONE, resampled_legend
from cefito.study.verifiers import VERIFIERS, RightVideos, compare_verifiers, scores, summed
from cefito.tracks.document import Choices
from cefito.tracks.reading import read

HEAD = "video,task,step,start,end,split,error\n"
TOYS = {"car": ["base", "wheel", "door", "roof"], "truck": ["base", "wheel", "crane", "roof"]}


def lines(video, task, steps, split="train", wrong=()):
    return "".join(
        f"{video},{task},{step},{30 * at},{30 * at + 20},{split},{'yes' if at in wrong else 'no'}\n"
        for at, step in enumerate(steps)
    )


@pytest.fixture
def table(tmp_path):
    """Right videos of two toys; five test videos with one mistake each, one at the end."""
    rows = [lines(f"{task}{n}", task, steps) for task, steps in TOYS.items() for n in range(4)]
    rows += [
        lines("a", "car", ["base", "detach base"], "test", [1]),  # a new name
        lines("b", "car", ["wheel"], "test", [0]),  # begins no video of any task
        lines("c", "car", ["base", "wheel", "crane"], "test", [2]),  # a pair of the other toy
        lines("d", "truck", ["base", "wheel", "roof"], "test", [2]),
        lines("e", "truck", ["base", "wheel", "crane", "roof"], "test"),
    ]
    path = tmp_path / "steps.csv"
    path.write_text(HEAD + "".join(rows))
    return path


def test_each_verifier_says_what_its_line_promises(table, tmp_path):
    out = tmp_path / "OUT"
    shown, found = compare_verifiers(table, out, [*VERIFIERS])
    assert (found["mistakes"], found["steps"], found["right_videos"]) == (4, 13, 8)
    recall = {name: row["recall"] for name, row in found["rows"].items()}
    precision = {name: row["precision"] for name, row in found["rows"].items()}
    assert recall["never"] == 0
    assert (recall["always"], precision["always"]) == (100, round(400 / 13, 1))
    assert (recall["after-first"], precision["after-first"]) == (75, 37.5)  # 3 of 8 steps
    assert (recall["late-step"], precision["late-step"]) == (75, 37.5)  # from the second of 4 on
    assert (recall["unseen-step"], precision["unseen-step"]) == (25, 100)
    assert (recall["unseen-pair"], precision["unseen-pair"]) == (75, 100)
    assert (recall["one-step-memory"], precision["one-step-memory"]) == (100, 100)
    assert (recall["count-graph"], precision["count-graph"]) == (100, 100)
    assert (recall["graph"], precision["graph"]) == (100, 100)
    assert found["rows"]["always"]["f1b"] == 66.7  # on any data
    assert found["rows"]["ours"]["auc"] == 100
    training = open_verifier(table, online=True)[1].online
    chances = training.probability[training.done]  # of right videos, each judged by the others
    least = found["rows"]["ours"]["least"]
    assert (chances > least + 1e-4).sum() <= 8 <= (chances >= least - 1e-4).sum()  # one a video
    assert VERIFIERS["ours"].alarms == 1  # where many are as sure, fewer are kept
    assert found["rows"]["never"]["average_f1"] == round(100 * 18 / 22 / 2, 1)
    assert found["rows"]["one-step-memory"]["missed_1"] == 0
    assert json.loads((out / "verification.json").read_text()) == found
    assert [line[0].text for line in shown.lines] == [*VERIFIERS]
    assert "ours: cefito verify --online." in (out / "verification.md").read_text()
    picture = (out / "verification.svg").read_text()
    assert all(f"<!-- {words} -->" in picture for words in ("mistakes missed (%)", "ours"))
    assert found["rows"]["never"]["missed"][-1][1] == 100
    hourly = [one for one in found["promises"] if one["per_steps"] is None]
    assert [one["promised"] for one in hourly] == [1, 3, 10]
    assert {one["videos"] for one in hourly} == {4}  # one begins with its mistake
    assert [one["kept"] for one in hourly] == [None, None, 0]  # 8 videos of 110 s
    assert (
        "ours promised 10 false alarms an hour, kept 0.0" in (out / "verification.md").read_text()
    )
    assert "promised 1 false alarm an hour: training videos are too few" in str(shown.notes)
    table.write_text(table.read_text().replace("b,car,wheel", "b,car,door"))  # of a test video
    assert compare_verifiers(table, None, ["ours"])[1]["rows"]["ours"]["least"] == least


def test_half_of_the_steps_is_of_right_videos_of_the_task(table):
    """Of trucks, and of a task without right videos, the mean number; of cars all have four."""
    more = [lines(f"long{n}", "truck", [*"abcdefghijkl"][:n]) for n in (8, 12)]
    table.write_text(HEAD + lines("car", "car", TOYS["car"]) + "".join(more))
    right = read([table], Choices()).tracks
    judge = VERIFIERS["late-step"].learn(RightVideos(right, open_verifier(table)[1]))
    halves = [
        judge(right[-1].model_copy(update={"task": task})) for task in ("truck", "car", "bus")
    ]
    assert [[chance >= 0.5 for chance in half].index(True) for half in halves] == [4, 1, 3]
    assert halves[1][3:] == [1] * 9


def test_graphs_of_counts_and_of_likelihood(tmp_path):
    """One video of nine breaks an order, which counts drop and the likelihood keeps."""
    rows = [lines(f"v{n}", "tea", ["boil", "pour", "stir"]) for n in range(8)]
    rows += [lines("v8", "tea", ["pour", "boil", "stir"])]
    rows += [lines("t", "tea", ["pour", "boil", "stir"], "test", [0])]
    table, graphs = tmp_path / "steps.csv", tmp_path / "GRAPHS.json"
    table.write_text(HEAD + "".join(rows))
    graphs.write_text('{"tea": {"edges": [["start", "boil"], ["boil", "pour"], ["pour", "stir"]]}}')
    shown, found = compare_verifiers(table, None, ["never", "count-graph", "graph"], graphs=graphs)
    f1 = {name: row.get("graph_f1") for name, row in found["rows"].items()}
    assert f1 == {"never": None, "count-graph": 66.7, "graph": 100}  # of 5 edges 3, of 4
    recall = [found["rows"][name]["recall"] for name in ("count-graph", "graph")]
    assert recall == [0, 100]  # of "pour" before "boil"
    assert [line[-1].text for line in shown.lines] == [NONE, "66.7", "100.0"]
    assert "graph F1" not in compare_verifiers(table, None, ["graph"])[0].heads


def test_intervals_are_of_scores_of_drawn_videos():
    """Each draw has the scores of its videos side by side, one as often as it is drawn."""
    generator, videos = np.random.default_rng(1), 7
    of_video = np.repeat(np.arange(videos), 5)
    chances, wrong = generator.random(35).round(1), generator.random(35) < 0.4
    hours = generator.random(videos)
    drawn = np.random.default_rng(0).integers(videos, size=(DRAWS, videos))
    sums, levels = summed(chances, wrong, of_video, hours)
    said = int((levels >= 0.5).sum())
    resampled_scores = resampled(sums, partial(scores, said=said))
    for draw, chosen in enumerate(drawn[:20]):
        steps = np.concatenate([np.flatnonzero(of_video == video) for video in chosen])
        right, called = ~wrong[steps], chances[steps] >= 0.5
        f1 = [
            2 * (says & true).sum() / (says.sum() + true.sum())
            for says, true in ((called, ~right), (~called, right))
        ]
        above = np.sign(chances[steps][~right][:, None] - chances[steps][right])
        expected = {
            "average_f1": 50 * sum(f1),
            "auc": 50 * (1 + above.mean()),
            "missed_3": missed(chances[steps], ~right, int(3 * hours[chosen].sum())),
        }
        for name, value in expected.items():
            assert resampled_scores[name].draws[draw] == pytest.approx(value, abs=0.051)


def test_tables_show_intervals_unless_one_video_is_all(table):
    shown, report = compare_verifiers(table, None, ["after-first"], ["AUC"])
    row = report["rows"]["after-first"]
    interval = row["intervals"]["auc"]
    assert interval["low"] < row["auc"] == round(interval["mean"], 1) < interval["high"]
    ends = f"{interval['low']:.0f}–{interval['high']:.0f}"
    assert shown.lines[0][1].text == f"{row['auc']:.1f} ({ends})"
    assert row["intervals"].keys() == row.keys() - {"least", "missed", "intervals"}
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(row for row in rows if row[:2] not in ("b,", "c,", "d,", "e,")))
    shown, report = compare_verifiers(table, None, ["after-first"], ["AUC"])
    assert "intervals" not in report["rows"]["after-first"]
    assert shown.lines[0][1].text == "100.0"


def test_scores_by_hand():
    wrong = np.array([True, True, False, False, False, False])
    chances = np.array([0.9, 0.2, 0.5, 0.2, 0.1, 0.1])
    sums, levels = summed(chances, wrong, np.zeros(6, dtype=int), np.array([1.0]))
    assert levels.tolist() == [0.9, 0.5, 0.2, 0.1]
    found = {name: value.item() for name, value in scores(sums, 2).items()}  # from 0.5 on
    assert (found["precision"], found["recall"], found["f1"]) == (50, 50, 50)
    assert found["average_f1"] == (50 + 75) / 2
    assert found["f1b"] == pytest.approx(200 * (2 / 3) * 0.5 / (2 / 3 + 0.5))  # 1 / (1 + 1 · 2 / 4)
    assert found["auc"] == pytest.approx(100 * (4 + 2.5) / 8)
    assert [found[f"missed_{hourly}"] for hourly in (1, 3)] == [50, 0]
    assert [missed(chances, wrong, alarms) for alarms in (0, 1, 2, 4)] == [50, 50, 0, 0]
    assert missed_curve(chances, wrong, 2.0) == [[0, 50], [0.5, 50], [1, 0], [1.5, 0]]
    assert missed_curve(chances, np.zeros(6, dtype=bool), 2.0) == []


def test_the_command_writes_tables_and_refuses_what_is_of_planners(table, tmp_path, capsys):
    out = tmp_path / "OUT"
    asked = ["compare", str(table), "--verifiers", "never,unseen-pair", "--out", str(out)]
    assert main([*asked, "--json"]) == 0
    assert [*json.loads(capsys.readouterr().out)["rows"]] == ["never", "unseen-pair"]
    graphs = tmp_path / "GRAPHS.json"
    graphs.write_text('{"car": {"edges": [["base", "wheel"]]}}')
    assert main([*asked, "--json", "--graphs", str(graphs)]) == 0
    capsys.readouterr()
    assert main(["compare", str(table), "--graphs", str(graphs), "--out", str(out)]) == 2
    assert (
        "--planners: --graphs has no meaning, since windows of the split" in capsys.readouterr().err
    )
    assert main([*asked, "--seeds", "2"]) == 2
    said = "--verifiers: --seeds has no meaning, since they learn from the table alone"
    assert said in capsys.readouterr().err
    assert main([*asked, "--columns", "SR"]) == 2
    heads = "P, R, F1, average F1, F1b, AUC, missed at 1, missed at 3, missed at 10."
    assert f"no column 'SR'; there are {heads}" in capsys.readouterr().err
    assert main([*asked, "--columns", "R,missed at 1"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split("  ")[0] == "verifier"
    assert "90 % intervals" in said.err
    meanings = "R: recall of mistakes. missed at 1: mistakes missed at 1 false alarm an hour."
    assert said.err.splitlines()[0] == f"{resampled_legend(5, 'video')} {meanings}"
    assert "F1b" not in (out / "verification.md").read_text()
    with pytest.raises(ConfigError, match="verifiers ever: expected some of never"):
        compare_verifiers(table, out, ["ever"])
    right = tmp_path / "RIGHT.csv"
    right.write_text(table.read_text().replace(",yes", ",no"))
    with pytest.raises(DataError, match="with mistakes"):
        compare_verifiers(right, out, ["never"])
