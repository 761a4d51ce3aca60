"""Figures of the pages are those of the files of results that they name."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import mean, median
from string import Formatter
from typing import Any

import numpy as np

from cefito.evaluation.statistics import DRAWS, draws_interval, paired_difference

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = "no", "one", "two", "three", "four", "five", "six", "seven", "eight"
SCORES = ("frame", "edit", "f1_50")
ROWS = {  # of whole videos in README: file, row
    "recogniser of `train` (three seeds)": ("recognition-rows", "recogniser"),
    "a transformer of ASFormer's kind (three seeds)": ("recognition-asformer", "asformer"),
    "MS-TCN++ as released, 100 epochs (three seeds)": ("recognition-mstcn-100", "mstcn"),
    "MS-TCN++, 50 epochs, ReLU before the fusion (three seeds)": ("recognition", "mstcn"),
    "nearest row": ("recognition", "nearest"),
}
PLANNERS = {  # of plans in README; None is the first comparison, with names of another day
    "chain (the default of `train`)": ("everything-words", "chain"),
    "ViterbiPlanNet": ("everything-words", "viterbi"),
    "CEFITO + chain, with an earlier chain (29.4 / 45.2 alone)": (None, "cefito-guided"),
    "CEFITO, the paper's energy; tasks by the earlier chain": (None, "cefito-energy-guided"),
    "KEPP": (None, "kepp"),
    "nearest training window": (None, "nearest"),
}
SCALED = {  # of docs/scale.md: part of the file, what grows
    "`plan-batch`, queries": ("plan-batch", "queries"),
    "plans of 512 queries, tasks of 10 actions": ("tasks, planning", "tasks"),
    "the same, each action in five tasks": ("tasks, planning, actions in common", "tasks"),
    "10 training steps of 256 windows, tasks of 10 actions": ("tasks, training", "tasks"),
    "plans of 512 queries, 24 tasks, steps of a plan": ("horizon, planning", "horizon"),
    "10 training steps, 24 tasks, steps of a plan": ("horizon, training", "horizon"),
    "one epoch of T = 3, windows": ("windows, one epoch", "windows"),
}


def read(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def text_of(page: str) -> str:
    """A page in one line, without bold letters."""
    path = ROOT / ("README.md" if page == "README" else f"docs/{page}.md")
    return " ".join(path.read_text("utf-8").replace("**", "").split())


def cells_below(page: str, head: str, *, bold: str = "") -> list[list[str]]:
    """The rows of the table whose head begins like this, with a mark of bold letters."""
    path = ROOT / ("README.md" if page == "README" else f"docs/{page}.md")
    _, table = path.read_text("utf-8").replace("**", bold).split(f"\n| {head}", 1)
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def half_up(value: float, last: str = "0.1") -> str:
    """A number of few digits, rounded as people do."""
    return str(Decimal(f"{value:.4f}").quantize(Decimal(last), ROUND_HALF_UP))


def two_digits(value: float) -> str:
    """Two significant digits, and whole numbers from ten on."""
    digits = max(0, 1 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def planned(file: str | None, row: str, horizon: int) -> str:
    """Success rate and mean accuracy on CaptainCook4D."""
    names = "success_rate", "mean_accuracy"
    if file is not None:
        scores = read(file)["scores"][f"captaincook4d, T = {horizon}"][row]
        return " / ".join(f"{scores[name][0]:.1f}" for name in names)
    trials = read(f"chain-captaincook4d-T{horizon}")["trials"]
    metrics = [trial["metrics"] for trial in trials if trial["row"] == row]
    return " / ".join(f"{mean(one[name] for one in metrics):.1f}" for name in names)


def test_whole_videos_and_plans_of_the_readme():
    sets = "ikea", "8-recipes"
    files = {(file, of): read(f"{file}-{of}")["rows"] for file, _ in ROWS.values() for of in sets}
    found = {title: cells for title, *cells in cells_below("README", "| IKEA ASM, 17 videos")}
    assert found == {
        title: [
            " / ".join(half_up(files[file, of][row][score]["mean"]) for score in SCORES)
            for of in sets
        ]
        for title, (file, row) in ROWS.items()
    }
    widest = [
        max(
            files[file, of][row][score]["high"] - files[file, of][row][score]["low"]
            for file, row in ROWS.values()
            for score in SCORES
        )
        / 2
        for of in sets
    ]
    said = "Intervals are at most ± {:.1f} and ± {:.1f}.".format(*widest)
    assert said in text_of("README")
    found = {title: cells for title, *cells in cells_below("README", "| T = 3: success rate")}
    assert found == {
        title: [planned(*row, horizon) for horizon in (3, 4)] for title, row in PLANNERS.items()
    }
    assert planned(None, "chain", 3) == "29.4 / 45.2"
    seeds = {title: files[file, "ikea"][row]["seeds"] for title, (file, row) in ROWS.items()}
    assert [title for title, count in seeds.items() if count == 3] == [*ROWS][:-1]  # it says so
    films = [len(read(f"recognition-rows-{of}")["test_videos"]) for of in sets]
    heads = "| | IKEA ASM, {} videos | 8 recipes of CaptainCook4D, {} videos |".format(*films)
    assert heads in text_of("README")


def test_bold_scores_of_the_readme_are_the_highest():
    for head in ("| IKEA ASM, 17 videos", "| T = 3: success rate"):
        _, *columns = zip(*cells_below("README", head, bold="*"), strict=True)
        for cells in columns:
            for scores in zip(*(cell.split(" / ") for cell in cells), strict=True):
                plain = [float(score.strip("*")) for score in scores]
                assert ["*" in score for score in scores] == [one == max(plain) for one in plain]


def spread(one: dict[str, Any], of: str = "mean") -> str:
    return f"{one[of]:.1f} ({one['low']:.1f} to {one['high']:.1f})"


def rates(one: dict[str, Any]) -> list[float]:
    """What is found at 1, 3 and 10 false alarms an hour."""
    return [one[f"found_at_{alarms}_an_hour"] for alarms in (1, 3, 10)]


VERIFIERS = (
    "never",
    "always",
    "after-first",
    "late-step",
    "unseen-step",
    "unseen-pair",
    "one-step-memory",
)
VERIFIERS += "count-graph", "graph", "ours", "ours, 0.5 a video", "ours, 0.75 a video"
VERIFIERS += "ours, 1.5 a video", "ours, from 0.5 on"
PROMISES = (
    *(("captaincook4d", "whole"), ("captaincook4d", "online"), ("ikea_asm", "whole")),
    ("assembly101-o", "training videos left out"),
    ("assembly101-o", "test videos up to the first mistake"),
)
"""Rows of tables of docs/verify.md in the files."""
PLAIN = "after, not on all videos"
"""Trainings of docs/performance.md in the files."""


def test_tables_of_verification():
    auc = read("verification-captaincook4d")["auc"]
    kinds = ("technique", "measurement", "preparation", "timing", "temperature")
    (row,) = cells_below("verify", f"errors of order | any | {' | '.join(kinds)} |")
    assert row == [spread(auc["order"]), spread(auc["any"]), *(f"{auc[k]['mean']}" for k in kinds)]
    assert " --horizon 3 " in read("errors-training-captaincook4d")["command"]
    trained = read("errors-training-captaincook4d")["rows"]
    for by_mode in trained.values():
        keep, *others = (by_mode[mode] for mode in ("keep", "windows", "videos"))
        assert len(keep["seeds"]) == 3
        for other in others:  # "Training without errors plans worse"
            assert all(keep["mean"][score] > value for score, value in other["mean"].items())
    for mode, *cells in cells_below("verify", "`--errors` | chain | ViterbiPlanNet |"):
        means = [trained[name][mode.strip("`")]["mean"] for name in ("chain", "viterbi")]
        assert cells == [
            "{clean_SR:.1f}/{clean_mAcc:.1f}, {wrong_SR:.1f}/{wrong_mAcc:.1f}".format(**one)
            for one in means
        ]
    rows = read("mistakes-from-tables-assembly101-o")["rows"]
    columns = ("precision", "recall", "average_f1", "f1b", "auc")
    columns += ("missed_1", "missed_3", "missed_10")
    head = "verifier | precision | recall | average F1 | F1b | AUC | missed at 1 | 3 | 10 |"
    assert [cells for _, *cells in cells_below("verify", head)] == [
        [f"{rows[row][column]:.1f}" for column in columns] for row in VERIFIERS
    ]
    labels = [label for label, *_ in cells_below("verify", head)]
    assert labels[:2] == [*VERIFIERS[:2]]
    assert [label.split()[-1] for label in labels[10:13]] == [
        row.split()[1] for row in VERIFIERS[10:13]
    ]
    assert max(row["precision"] for row in rows.values()) == rows["unseen-step"]["precision"]
    assert rows["ours"]["least"] < 0.5 == rows["ours, from 0.5 on"]["least"]
    shown = cells_below("verify", "promised | 1 an hour | 3 | 10 | 1 in 100 steps | 3 | 10 |")
    asked = [(alarms, per) for per in (None, 100) for alarms in (1, 3, 10)]
    for (label, *cells), (file, part) in zip(shown, PROMISES, strict=True):
        assert label.lower().replace(" ", "_").startswith(file)
        assert part.removesuffix("first mistake") in label
        rows = read(f"promises-{file}")["promises"][part]
        assert [(one["promised"], one["per_steps"]) for one in rows] == asked
        assert cells == ["refused" if one["kept"] is None else spread(one, "kept") for one in rows]
    up_to_the_mistake = read("promises-assembly101-o")["promises"][PROMISES[-1][1]]
    assert all(one["low"] > one["promised"] for one in up_to_the_mistake[1:3])  # "is not kept"
    written = read("written-captaincook4d")["rows"].values()
    head = "known | findings in a right recording | errors of order found | steps left out found |"
    for (_, *cells), row in zip(cells_below("verify", head), written, strict=True):
        alarms, order, missing = row["alarms"], row["order"], row["missing"]
        assert cells == [
            "{mean:.2f} ({low:.2f} to {high:.2f})".format(**alarms),
            spread(order).replace(" (", " % ("),
            f"{round(missing['of'] * missing['mean'] / 100)} of {missing['of']}",
        ]
    files = [read(f"next-films-{of}") for of in ("ikea", "8-recipes")]
    for file, judges in zip(files, (17, 14), strict=True):
        asked = file["arguments"]  # as the page says of them
        assert (asked["films"], asked["plans"], bool(asked["set"])) == (
            [5, 10, 15, 20, 30, 40],
            "quickstart",
            True,
        )
        assert (file["scores"]["draws"], file["judges"]) == (6, judges)
    sets = [file["scores"] for file in files]
    higher, fewer = list[bool](), list[list[float]]()
    for films, *cells in cells_below("recognise", "films labelled |"):
        ours = [scores[order][films] for scores in sets for order in ("random", "next")]
        shown = [f"{one['edit']:.1f} / {one['edits']:.1f} / {one['success']:.1f}" for one in ours]
        if films == "5":
            shown[1::2] = ["the same films"] * 2
        assert cells == shown
        higher += [
            after["edit"] > before["edit"]
            for before, after in zip(ours[::2], ours[1::2], strict=True)
        ]
        fewer += [one["edits_less"] for one in ours[1::2] if one["edits_less"][1] > 0]
    assert (sum(higher), len(higher) - 2) == (9, 10)  # but for the same films
    assert [one[1:] for one in fewer] == [[0.1, 2.5]] == [sets[0]["next"]["30"]["edits_less"][1:]]
    for words in (
        "(six draws, 5 labelled films at first, the test films judge, a small recogniser",
        "success rate of plans of three steps, by a chain of the preset `quickstart`",
        "The edit score of 10, 15, 20, 30 and 40 films in a random order is reached with",
        "It is higher in nine of these ten comparisons. The 95 % intervals of the differences in",
        "include 0 but for IKEA ASM at 30 films (0.1 to 2.5 fewer).",
    ):
        assert words in text_of("recognise")
    counts = [[one["films_for_edit"] for one in scores["next"].values()][1:] for scores in sets]
    told = "{}, {}, {}, {} and {}"
    saved = [told.format(*map(half_up, of, itertools.repeat("1"))) for of in reversed(counts)]
    reached = "is reached with {} films in this order on 8 recipes, and with {} on IKEA ASM"
    assert reached.format(*saved) in text_of("recognise")


MEASURED = {"CaptainCook4D": "captaincook4d", "8 recipes": "8-recipes", "IKEA ASM": "ikea"}
MEASURED |= {"simulated NIV": "niv"}  # ends of names of files


def gains(one: dict[str, Any], sign: int = 1) -> str:
    """What a change gains in success rate and log-likelihood, or with -1 what its absence loses."""
    rate, likely = (one[f"gain of {name}"] for name in ("success_rate", "log_likelihood"))
    low, high = sorted(sign * rate[end] for end in ("low", "high"))
    mean = f"{sign * rate['mean'] + 0.0:+.1f}".replace("+0.0", "0.0")
    return f"{mean} ({low:.1f} to {high:.1f}), {sign * likely['mean']:+.2f}".replace("-", "−")


def test_additions_to_the_chain_and_their_calibration():
    names = "captaincook4d", "draw", "ikea", "niv-simulated"
    shares = [read(f"all-videos-{name}")["shares"] for name in names]
    words = [read(f"words-{name}")["changes"]["without words"] for name in MEASURED.values()]
    of_plans = [[one[share]["plans"] for one in shares] for share in ("0.0", "0.5")]
    error = "{calibration_error:.1f} ({by chance:.1f})"
    assert [cells for _, *cells in cells_below("measured", "| CaptainCook4D | 8")] == [
        [gains(one["0.5"]) for one in shares],
        *([error.format(**plans) for plans in row] for row in of_plans),
        [gains(one, -1) for one in words],
    ]
    likely = []
    for name, *cells in cells_below("measured", "| validation | with factor"):
        films, steps = name.split(", T = ")
        fitted = read(f"calibration-chance-{MEASURED[films]}-T{steps}")["fitted on"]
        shown = [
            " / ".join(f"{fitted[way][of][key]:.{1 + (key == 'p')}f}" for of in ("plans", "tasks"))
            for key in ("calibration_error", "by chance", "p")
            for way in ("validation", "preset")
        ]
        assert cells == [*shown[:2], *shown[3:]]
        likely.append((fitted["preset"]["gain of log_likelihood"]["mean"], name))
    least, most = ("{:+.2f} ({})".format(*end(likely)).replace("-", "−") for end in (min, max))
    assert f"between {least} and {most.replace('simulated ', '')}." in text_of("measured")


def test_comparisons_are_those_of_the_commands():
    """Planners, their seeds, samples and settings are as docs/measured.md says of each file."""
    results = ROOT / "benchmarks" / "results"
    files = {path.stem: json.loads(path.read_text("utf-8")) for path in results.glob("*.json")}
    compared = {name: one for name, one in files.items() if "trials" in one and "rows" in one}
    assert len(compared) > 20
    for one in compared.values():
        assert {"settings", "versions"} <= one.keys()
        assert one["dataset"]["fingerprint"]
    listed = {cells[0].strip("`"): cells[1] for cells in cells_below("measured", "files | command")}

    def option(command: str, name: str) -> str | None:
        found = re.findall(rf"--{name} (\S+?)(?:`|$| )", command)
        return found[0] if found else None

    def rows(command: str) -> dict[str, int]:
        seeds, planners = option(command, "seeds"), option(command, "planners") or ""
        each = (name.partition(":") for name in planners.split(","))
        return {name: int(own or seeds or 0) for name, _, own in each}

    def trials(name: str) -> dict[str, int]:
        counted = [trial["row"] for trial in files[name]["trials"]]
        return {row["name"]: counted.count(row["name"]) for row in files[name]["rows"]}

    for name, command in listed.items():
        stem = re.escape(re.split("T3|…", name)[0])
        own = [one for one in compared if re.fullmatch(rf"{stem}.*T\d", one)]
        assert own or option(command, "planners") is None
        for one in own if option(command, "planners") else ():
            sample, setting = option(command, "sample"), option(command, "set")
            assert trials(one) == rows(command), one
            assert files[one]["sample"] == (None if sample is None else int(sample)), one
            changed = {} if setting is None else dict([setting.split("=")])
            assert files[one]["settings"] == changed, one
    whole = rows(next(command for name, command in listed.items() if name.startswith("chain-capt")))
    for steps in "34":
        niv = trials(f"chain-niv-simulated-T{steps}")
        assert niv.keys() == whole.keys()
        assert {*niv.values()} == {2, 3}
        for name in ("crosstask", "coin"):
            fewer = {*[*whole][:9], "viterbi"} - {"frequent"}
            assert trials(f"chain-{name}-simulated-T{steps}") == dict.fromkeys(fewer, 1)
            assert files[f"chain-{name}-simulated-T{steps}"]["sample"] == 600
    of_presets = [name for name in compared if name.startswith(("published-", "released-"))]
    assert len(of_presets) > 3
    for name in of_presets:
        preset, changes = files[name]["preset"], files[name]["settings"]
        stem = name.partition("-")[0]
        assert preset == f"benchmarks/{stem}.toml" or changes.get("field.width") == "384", name
        assert files[name]["seeds"] == [0], name
    assert compile(files["errors-captaincook4d"]["command"], "command", "exec")
    for name in ("captaincook4d", "8-recipes", "ikea", "niv"):
        assert files[f"words-{name}"]["arguments"]["seeds"] == 2


MEASUREMENTS = """
by five trials each, of one training at T = 3, on all 760 validation windows
predictor, batch 128, 50 negatives, T = 3, one thread with AVX512-BF16
at T = 3 and 4 (CPU seconds; a `paper`-size field, 11 actions, one thread of an AMD EPYC
for each of 1,000 queries of CaptainCook4D with a random `small` field and of 200 with a random
s by exact search (beyond T = 4 extrapolated) and
gain {lengths[0]} on 8 recipes and {lengths[1]} on IKEA ASM
a log-likelihood of {words[0]:0.01} and {words[1]:0.01} for {more[1]:1} to {more[0]:1} % more
rose by {rises[0]} points for KEPP, {rises[1]} for SCHEMA, {rises[2]} for MTID, {rises[3]} for P3IV
{probe[test][task]} %, the first action in {probe[test][first]} % and the last in
{probe[test][last]} % of test windows
S3D features: {probe[reference_test][task]:0.1},
{probe[reference_test][first]}, {probe[reference_test][last]}; `probe-crosstask
| {reference[cpu_seconds]} / {reference[peak_mib]} | {float32[cpu_seconds]} / {float32[peak_mib]} |
| {bfloat16[cpu_seconds]} / {bfloat16[peak_mib]} |
takes {library:1} ms a step on random observations of the size of CaptainCook4D and
at least {least[0]} and {least[1]:1} of them for its products; a plain implementation takes
takes {plain:1} ms (`chain-training.json`)
takes {exact[0]} and {exact[1]:1} times as long as exact search, {guided:1} times as long as guided
differ by at most {energies}e-7 of their value
{seconds[exact][0]:0.01}, {seconds[exact][1]}, {seconds[exact][2]:1} and {seconds[exact][3]:1} s by
{seconds[guided]:0.01} s by guided search at T = 3 to 6
for {right[0]} to {right[1]:1} % of windows at T = 5 and 6
"""  # words of docs/measured.md with figures of files, a piece a line


def sentences_on_measurements() -> Iterator[tuple[str, str]]:
    facts: dict[str, Any] = dict(read("training"))
    files = [read(f"all-videos-any-length-{name}") for name in ("draw", "ikea")]
    facts["lengths"] = [gains(one["shares"]["0.5"]) for one in files]
    files = [read(f"words-any-length-{name}")["shares"] for name in ("8-recipes", "ikea")]
    pairs = [(one["0.0, any_length.words=true"], one["0.0"]) for one in files]
    facts["words"] = [words["gain of log_likelihood"]["mean"] for words, _ in pairs]
    facts["more"] = [100 * (words["seconds"] / plain["seconds"] - 1) for words, plain in pairs]
    names = "kepp", "schema", "mtid", "p3iv", "pdpp", "pkg", "viterbi", "chain"
    tuned = [read(f"tune-{name}-captaincook4d-T3") for name in names]
    for one in tuned:  # "by five trials each, of one training at T = 3, on all 760 …"
        shown = [score["windows"] for trial in one["log"] for score in trial["scores"].values()]
        assert (one["trials"], one["seeds"], one["horizons"], {*shown}) == (5, 1, "3", {760})
    setting = ("batch", "negatives", "horizon", "threads", "bfloat16_by", "preset")
    expected = [128, 50, 3, 1, "AVX512-BF16", "paper"]
    assert [read("training")[name] for name in setting] == expected
    rate = "success_rate"
    facts["rises"] = rises = [one["chosen"][rate] - one["preset_has"][rate] for one in tuned]
    assert all(0 <= rise < 1 for rise in rises[4:])  # "less than a point for others"
    facts["probe"] = read("probe-crosstask-simulated")
    sets = [read("chain-training")[name] for name in ("captaincook4d", "coin")]
    facts |= {
        of: [one["milliseconds_of_a_step"][of] for one in sets] for of in ("library", "plain")
    }
    facts["least"] = [one["products"]["least_milliseconds"] for one in sets]
    quick = read("search-quick")
    assert (quick["clock"], quick["threads"]) == ("cpu", 1)
    assert [(one["horizon"], one["actions"]) for one in quick["random"]] == [(3, 11), (4, 11)]
    facts |= {of: [*own.values()] for of, own in quick["against_naive"].items()}
    same = [one for name in ("small", "paper") for one in read(f"same-plans-{name}")["rows"]]
    assert [one["same_plans"] for one in same] == [1000, 1000, 200, 200]  # as many as it says
    facts["energies"] = 1e7 * max(one["largest_energy_difference"] for one in same)
    rows = read("horizon")["rows"]
    assert [one["horizon"] for one in rows if not one["exact"]["extrapolated"]] == [3, 4]
    facts["seconds"] = {of: [one[of]["seconds"] for one in rows] for of in ("exact", "guided")}
    runs = [*read("search-trained")["trained"], *read("search-trained-both")["runs"]]
    found = [of["guided"]["argmin"] for one in runs for of in one.values() if isinstance(of, dict)]
    facts["right"] = [min(found), max(found)]
    for words in MEASUREMENTS.strip().splitlines():
        yield "measured", Figures().format(words, **facts)


def test_stations():
    """Of two measurements of the same, at equal priority, the one at the lower load counts."""
    keys = ("sent", "stations", "machines", "processes")
    values = ("p50_ms", "p95_ms", "p99_ms", "missed", "load_average")
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    twice = list[tuple[Any, ...]]()
    for one in read("stations-valkey")["results"]:
        key = tuple(one[name] for name in keys)
        twice += [key] * ("priority" not in one)
        if "priority" not in one and one["load_average"] <= best.get(key, one)["load_average"]:
            best[key] = one
    expected = [
        [*map(str, key), *(f"{one[name]:.0f}" for name in values)] for key, one in best.items()
    ]
    assert max(map(twice.count, twice)) == 2
    found = [[cell.replace(",", "") for cell in row] for row in cells_below("operate", "sent |")]
    assert sorted(found) == sorted(expected)
    for row, one in zip(
        cells_below("serve", "stations |"), read("stations")["results"], strict=True
    ):
        shown = [f"{one[name]:.0f}" for name in ("stations", "processes", *values[:4])]
        assert row == [*shown, f"{one['cpu_share']:.2f}"]


def test_tables_of_performance():
    whens, rows = ("before", "after"), list[list[str]]()
    speed, search = read("speed"), read("search-versions")["rows"]
    (run,), (field,) = speed["runs"], read("speed-field")["runs"]
    for both in zip(*(run[when]["service"] for when in whens), strict=True):
        rows.append([half_up(one["requests_per_second"], "1") for one in both])
        waits = [f"{one['p50_ms']:#.3g}".rstrip(".") for one in both]
        spent = [f"{one['cpu_ms_per_request']:.1f}" for one in both]
        rows.append([f"{wait}; {cpu}" for wait, cpu in zip(waits, spent, strict=True)])
    for of in (run, field):
        batches = [[two_digits(one["cpu_ms_per_query"]) for one in of[w]["batch"]] for w in whens]
        rows.append(["; ".join(batch) for batch in batches])
    for file in ("speed-training", "speed-training-viterbi", "speed-training-field"):
        rows += [
            ["{cpu_seconds:.0f}; {mebibytes:.0f}".format(**of[when]) for when in (whens[0], PLAIN)]
            for of in read(file)["training"].values()
        ]
    rows.append(["{plan:.2f}; {import_torch:.2f}".format(**speed["cpu_seconds"][w]) for w in whens])
    for name in ("exact", "guided"):
        both = [
            [one[w]["against_one_by_one"] for one in search if one["search"] == name] for w in whens
        ]
        rows.append(["; ".join(map(two_digits, one)) for one in both])
        gained = read("search-quick")["against_naive"][name].values()
        assert all(map(float.__lt__, both[1], gained))  # "On another processor … smaller"
    shown = cells_below("performance", "| | before |")
    assert [row[2:] for row in shown] == rows
    both = "T = {}; T = {}".format(*(one["horizon"] for one in search if one["search"] == "exact"))
    assert [row[0] for row in shown[-2:]] == [f"{of} search, {both}" for of in ("exact", "guided")]
    assert [of["workers"] for of in run["after"]["batch"]] == [1, 2]
    assert "`plan-batch`, one process; two" in [row[0] for row in shown]
    clients = [one["clients"] for one in run["after"]["service"]]
    assert [int(row[0].split()[1]) for row in shown if "client" in row[0]] == clients
    commands = (ROOT / "benchmarks" / "speed.py").read_text("utf-8")
    for given, told in (
        ("--steps 1-3", "runs of 1 to 3 steps"),
        ("epochs=4", "one network of 4 epochs"),
        ("answers 200 plans", "`serve`: start, 200 plans"),
    ):
        assert (given in commands, told in text_of("performance")) == (True, True)
    films = [read(f"recognise-{of}") for of in ("ikea", "8-recipes")]
    assert [row[1:] for row in cells_below("performance", "| IKEA ASM: 17 films")] == [
        [
            f"{two_digits(one[of]['cpu_ms_a_row'])}; "
            f"{float(format(one[of]['film_seconds_a_cpu_second'], '.2g')):,.0f}"
            for one in films
        ]
        for of in ("recognised", "with_doubt", "followed")
    ]
    heads = [f"{one['test_videos']} films, {one['rows']['count']:,} rows" for one in films]
    assert "| | IKEA ASM: {} | 8 recipes: {} |".format(*heads) in text_of("performance")
    commands = read("speed-commands") | read("speed-recogniser")
    for what, *cells in cells_below("performance", "| before, CPU seconds"):
        name = what.split("`")[1] + "-recogniser" * what.startswith("`train` with")
        (before, after), ends = commands[name]["seconds"], commands[name]["interval"]
        spent = [half_up(one, "0.01" if one < 100 else "1") for one in (before, after)]
        told = "{:.2f} ({:.2f} to {:.2f})".format(commands[name]["ratio"], *ends)
        assert cells == [*spent, told]
    quick, screened = read("search-quick")["against_naive"], read("search-screened")
    tokens = {str(of["horizon"]): of for of in screened["random"]}
    for horizon, how, *cells in cells_below("performance", "T | | with AVX512"):
        exact = how == "exhaustive"
        names = ("exact", "screened") if exact else ("guided", "guided, screened")
        gained = [quick[name][horizon] for name in names]
        names = ("exact", "exact, screened") if exact else names
        gained += [screened["against_naive"][name][horizon] for name in names]
        assert gained[3] < gained[2]  # "there screening costs time"
        one = tokens[horizon][names[1]]
        again = one["float32_token_forwards_per_query"]
        counts = [f"{one['token_forwards'] - again:,.0f}", f"{again:,.0f}"]
        assert cells == [half_up(of, "1" if of > 20 else "0.1") for of in gained] + counts


def test_what_grows_with_data():
    scale = read("scale")
    rows = cells_below("scale", "work, from")
    assert [row[0] for row in rows] == [*SCALED]
    for name, grown, seconds, memory, away in rows:
        part, unit = SCALED[name]
        first, *_, last = scale[part]["rows"]
        ends = [
            f"{first[unit]:,} → {last[unit]:,}",
            " → ".join(two_digits(one["cpu_seconds"]) for one in (first, last)),
            " → ".join(f"{one['memory_mib']:.0f}" for one in (first, last)),
            f"{scale[part]['cpu_seconds']['away']:.0%}".replace("%", " %"),
        ]
        assert [grown, seconds, memory, away] == ends
    batch, page = scale["plan-batch"], text_of("scale")
    first, *_ = scale["windows, one epoch"]["rows"]
    per_number = first["mib_of_windows"] * 2**20 / first["windows"] / scale["features"]
    assert f"Windows take {per_number:.0f} bytes a feature" in page
    each = 1000 * batch["cpu_seconds"]["each"]
    memory = batch["memory_mib"]["start"] + 1e6 * batch["memory_mib"]["each"]
    told = f"take {batch['cpu_seconds']['of_a_million']:.0f} s and {memory:.0f} MiB"
    assert f"a million queries {told}" in page
    ran = {(f"{one['queries']:,}", one["executor"], one["workers"]) for one in batch["workers"]}
    others = {("10,000", of, count) for of in ("ray", "processes") for count in (1, 2)}
    assert others | {("10,000", "serial", 1)} == ran
    told = (
        "For 10,000 queries on one and two local workers, of Ray and of processes, a worker takes"
    )
    told += f" {each:.2f} ms of CPU time a query and about two seconds to start;"
    assert told in page
    main = 0.1 * min(
        one["cpu_seconds"] for one in batch["workers"] if one["executor"] == "processes"
    )
    assert f"the main process takes {main:.2f} ms a query to read" in page
    workers = round(round(each, 2) / round(main, 2))
    told = f"about {workers} workers, at {round(workers / round(each, 2))},000 queries a second"
    assert told in page
    busy = [one for one in batch["workers"] if one["executor"] == "processes"]
    spent = {
        count: mean(one["workers_cpu_seconds"] for one in busy if one["workers"] == count)
        for count in (1, 2)
    }
    assert round(spent[2] - spent[1]) == 2
    numbers = 2 * 1536 * 4  # bytes of a query
    told = f"1,536 features ({numbers // 1000} kB each) fill a network of 1 Gbit/s at "
    assert f"{told}{NUMBERS[math.ceil(1e9 / 8 / numbers * each / 1000)]} workers" in page
    assert f"{8 * 10_000 * 1_000 // 10**6} MB for 10,000 actions in 1,000 tasks" in page


WITHOUT = "recogniser_without_temporal_network"
RECOGNISED = [  # ends of files for both sets, and their rows, by the lines of docs/results.md
    ("-rows-ikea", "-rows-8-recipes", "recogniser"),
    ("-attention-20-ikea", "-attention-20-8-recipes", "recogniser"),
    ("-attention-ikea", "-attention-30-8-recipes", "recogniser"),
    ("-mixed-ikea", "-mixed-8-recipes", "recogniser"),
    ("-asformer-ikea", "-asformer-8-recipes", "asformer"),
    ("-ikea", "-8-recipes", "recogniser"),
    ("-ikea", "-8-recipes-without-temporal", WITHOUT),
    ("-ikea", "-8-recipes", "rows"),
    ("-mstcn-100-ikea", "-mstcn-100-8-recipes", "mstcn"),
    ("-ikea", "-8-recipes", "mstcn"),
    ("-ikea", "-8-recipes", "nearest"),
]


def led_by(first: tuple[str, str], second: tuple[str, str]) -> Iterator[str]:
    """Scores of a recogniser less those of another, videos drawn anew in pairs, as text."""
    files = [read(f"recognition-{name}")["videos"][row].values() for name, row in (first, second)]
    count = len(read(f"recognition-{first[0]}")["test_videos"])
    drawn = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    for score in SCORES:
        one, other = (
            100
            * np.mean([of[drawn, 0].sum(axis=1) / of[drawn, 1].sum(axis=1) for of in sums], axis=0)
            for sums in ([np.array(seed["sums"][score]) for seed in seeds] for seeds in files)
        )
        means = [
            read(f"recognition-{name}")["rows"][row][score]["mean"] for name, row in (first, second)
        ]
        yield from (
            half_up(of).replace("-", "−")
            for of in (means[0] - means[1], *draws_interval(one - other))
        )


def test_plans_of_what_remains():
    scores = "success", "edit", "next", "success_with_present_step"
    lines = cells_below("results", "| IKEA ASM, three seeds | 8 recipes, two seeds |")
    for score, (_, *cells) in zip(scores, lines, strict=True):
        for name, seeds, cell in zip(("ikea", "8-recipes"), (3, 2), cells, strict=True):
            found = read(f"remaining-{name}")
            assert found["runs"] == seeds
            one = found["scores"][score]
            share = (half_up(one["share"][of], "1") for of in ("mean", "low", "high"))
            told = "{rows} of {boundaries}: ".format(**one) + "{} ({} to {})".format(*share)
            assert cell == told


def test_steps_of_whole_videos_of_the_results():
    lines = cells_below("results", "| IKEA ASM, 17 test videos")
    for (*files, row), (_, *cells) in zip(RECOGNISED, lines, strict=True):
        for file, cell in zip(files, cells, strict=True):
            rows = read(f"recognition{file}")["rows"]
            scores = rows.get(row, rows.get("recogniser", {}))
            told = "/".join(half_up(scores[of]["mean"]) for of in SCORES)
            assert cell.split(" (")[0] == told
            assert ("(two seeds)" in cell) == (scores["seeds"] == 2)
    expected = [
        ["0.1", "current"],
        ["0.1", "next"],
        ["1", "done"],
        ["1", "detected"],
        ["0.1", "ece"],
    ]
    for (digits, score), (_, *cells) in zip(
        expected, cells_below("results", "row by row, from"), strict=True
    ):
        for file, cell in zip(
            ("-ikea", "-rows-ikea", "-8-recipes", "-rows-8-recipes"), cells, strict=True
        ):
            scores = read(f"recognition{file}")["rows"]["recogniser"]
            one = scores[score]
            told = half_up(one if score == "ece" else one["mean"], digits)
            if score == "detected":
                told += f"; {half_up(scores['delay_seconds']['mean'])}"
            elif score != "ece" and "rows" in file:
                told += f" ({half_up(one['low'], '1')} to {half_up(one['high'], '1')})"
            assert cell == told


def sentences() -> Iterator[tuple[str, str]]:
    """Pages, and what they say with the figures of the files that they name."""
    yield from sentences_on_mistakes()
    yield from sentences_on_labelling()
    yield from sentences_on_devices()
    yield from sentences_on_stations()
    yield from sentences_on_speed()
    yield from sentences_on_verification()
    for name in ("chain-captaincook4d-T3", "words-8-recipes", "words-ikea"):
        yield "measured", f"`{read(name)['dataset']['fingerprint'][:12]}…`"
    of_models = read("language-models-captaincook4d-T3")["dataset"]["fingerprint"][:12]
    yield "measured", f"all of CaptainCook4D is then `{of_models}…`"
    yield "measured", f"by `cefito data prepare custom` (`{of_models}`)"
    windows = read("chain-captaincook4d-T3")["windows"]["3"]
    yield "measured", f"val 62, test {len({*windows['video']})}) of 24 recipes"
    most = max(run[of] for run in read("batch")["rates"] for of in ("peak_mib", "worker_peak_mib"))
    yield "plan-batch", f"each process held at most {half_up(most, '1')} MiB (`batch.json`)"
    aligned = [
        mean(trial["metrics"]["success_rate"] for trial in read(name)["trials"])
        for name in ("viterbi-alignment-sum-ikea-T3", "viterbi-alignment-mean-ikea-T3")
    ]
    yield "planners", "{:.1f} % success, as published {:.1f} ± 9.2".format(*aligned)
    surest = [
        mean(
            trial["calibration"]["success_at_half_coverage"]
            for trial in read(f"chain-captaincook4d-T{horizon}")["trials"]
            if trial["row"] == "chain"
        )
        for horizon in (3, 4)
    ]
    told = "the chain plans {} % (T = 3) and {} % (T = 4) right".format(*map(half_up, surest))
    yield "results", f"of the surer half of CaptainCook4D's windows, {told}"
    yield from sentences_on_recognition()
    yield from sentences_on_measurements()
    estimates, threads = read("estimates"), read("quickstart-threads")["rows"]
    for part, of in (("planners", "at T = 3 and 4"), ("recognisers", "of eight rows")):
        (seeds,) = re.findall(r"--seeds (\d)", estimates[part]["command"])
        told = "took {seconds} seconds and was {minutes} minutes".format(**estimates[part])
        yield "compare", f"{of} with {NUMBERS[int(seeds)]} seeds {told}"
        assert estimates[part]["dataset"] == "IKEA ASM"
    assert estimates["recognisers"]["command"].count(",") == 7
    assert "--planners" not in estimates["planners"]["command"]  # "the nine default rows"
    assert re.findall(r"--planners (\S+) --hor", text_of("compare"))[0].count(",") == 8
    one, two, busy, both = (round(run["seconds"]) for run in threads)
    yield "gpu", f"{one} s on one thread and {two} s on two, or beside two busy programs {busy} and"
    yield "gpu", f"over {both} s (`quickstart-threads.json`)"
    hours = []
    for windows, batch in ((697, 32), (10_814, 128), (13_698, 128)):  # of T = 3, to train on
        step = read("training-released-32" if batch == 32 else "training-released")["float32"]
        assert read("training-released")["threads"] == 1  # "On one CPU core"
        spent = 200 * math.ceil(windows / batch) * step["cpu_seconds"] / 3600
        hours.append(float(f"{spent:.{2 - (spent < 10)}g}"))
    told = (
        "the field of one seed takes about {:.0f} hours on NIV, {:.0f} on CrossTask and {:.0f} on"
    )
    yield "reproduce", f"for 200 epochs at T = 3, {told.format(*hours)} COIN"
    released = read("training-released")
    share = released["bfloat16"]["cpu_seconds"] / released["float32"]["cpu_seconds"]
    assert 0.45 < share < 0.55  # "takes about half"
    assert "--data ikea_asm --per-task 2 " in read("few-videos-ikea")["command"]  # as it says
    draws = read("few-videos-ikea")["draws"]
    edits = [mean(draw[name]["edit"] for draw in draws) for name in ("asformer", "segmental")]
    assert edits[0] < edits[1]  # "with worse steps"
    rows = [mean(draw[name]["frame"] for draw in draws) for name in ("asformer", "segmental")]
    yield (
        "which-method",
        "{:.1f} % of the rows right, the default {:.1f} (`few-videos-ikea.json`)".format(*rows),
    )
    for of, (file, row) in itertools.product(("ikea", "8-recipes"), ROWS.values()):
        ours, other = (
            read(f"{name}-{of}")["rows"][which]
            for name, which in (("recognition-rows", "recogniser"), (file, row))
        )  # "ahead of or level with the others"
        assert all(ours[score]["high"] >= other[score]["mean"] for score in ("edit", "f1_50"))
    assert round(read("quickstart-real")["cpu_seconds"] / 60) == 1  # "a minute of CPU time"
    causal = [read(f"recognition-causal-{of}")["rows"]["tcn"] for of in ("ikea", "8-recipes")]
    assert [one["seeds"] for one in causal] == [1, 1]  # "one seed"
    leads = [
        read(f"recognition-causal-{of}")["rows"]["tcn"]["current"]["mean"]
        - read(f"recognition-rows-{of}")["rows"]["recogniser"]["current"]["mean"]
        for of in ("ikea", "8-recipes")
    ]
    yield "which-method", "by {:.1f} (IKEA ASM) and {:.1f} points (8 recipes".format(*leads)
    chain, viterbi, energy = (
        planned(*PLANNERS[title], 3).split(" / ")[0]
        for title in [*PLANNERS][:4]
        if not title.startswith("CEFITO +")
    )
    yield "which-method", f"({chain} at T = 3; ViterbiPlanNet {viterbi})"
    yield "which-method", f"the energy alone has {energy} at T = 3"
    behind = [
        round(float(chain) - float(planned(None, row, 3)[:4])) for row in ("pkg-beam", "nearest")
    ]
    yield "which-method", "{} to {} points behind on CaptainCook4D at T = 3".format(*behind)
    rates = [
        trial["metrics"]["success_rate"]
        for name in ("captaincook4d-T3", "captaincook4d-T4", "ikea-T3", "ikea-T4")
        for trial in read(f"language-models-{name}")["trials"]
        if trial["row"].startswith("llm-")
    ]
    yield "which-method", f"SmolLM2 had at most {max(rates):.1f} % success"
    yield from sentences_on_other_results()
    outside = read("judged-outside")
    (title, first), *_ = outside["recognition"].items()
    assert title.startswith("JIGSAWS Suturing, kinematics")  # "robotic suturing"
    ours, _, theirs, *_ = first.values()
    told = "had an edit score of {}; the predictions that ED-TCN's authors stored have {}"
    (version,) = re.findall(r"version (\w+)", outside["judged"])
    yield "README", f"version `{version}` {told.format(ours['edit'], theirs['edit'])}"
    (of_plans,) = (part for name, part in outside.items() if name.startswith("planning"))
    rates = [
        [float(re.findall(r"\(([\d.]+),", row)[0]) for row in one.values()]
        for one in of_plans.values()
    ]
    won = sum(ours > theirs for ours, theirs in rates)
    yield "which-method", f"ahead on {NUMBERS[won]} of {NUMBERS[len(rates)]} [sets that nobody here"
    ahead = []  # on each set
    for scored in outside["recognition"].values():
        rows = [row if isinstance(row, list) else [row] for row in scored.values()]
        edits = [mean(seed["edit"] for seed in row) for row in rows]
        ahead.append([name for name, edit in zip(scored, edits, strict=True) if edit > edits[0]])
    _, (former, markov), gtea, slower = ahead
    assert former.startswith("official ASFormer")
    yield "README", f"one of them a {markov.removeprefix('hidden ')}, too"
    assert [[name.partition(",")[0] for name in names] for names in (gtea, slower)] == [
        ["official ASFormer"]
    ] * 2
    sets = [read(f"coverage-{name}")["conditions"] for name in ("ikea", "captaincook4d")]
    sizes = [one["3 steps, goal"]["sizes"]["plans 0.9"]["median"] for one in sets]
    assert sizes[1] > 100
    yield (
        "README",
        f"for 90 % at T = 3 the median set has {sizes[0]:.0f} plans on IKEA ASM and over 100 on "
        "CaptainCook4D",
    )
    errors = read("errors-captaincook4d")["horizons"]["3"]["rows"]
    pairs = {name: "{clean} / {wrong}".format(**row) for name, row in errors.items()}
    told = (
        "the earlier chain has {chain}, ViterbiPlanNet {viterbi}, the energy "
        "{cefito-energy-guided}, KEPP {kepp}, the nearest window {nearest} (`errors-"
    )
    yield "README", told.format(**pairs)
    words, first = read("everything-words")["arguments"], read("chain-captaincook4d-T3")
    seeds = f"{NUMBERS[words['seeds']]} to {NUMBERS[len(first['seeds'])]}"
    yield "README", f"all test windows, mean of {seeds} seeds, per cent"


def sentences_on_other_results() -> Iterator[tuple[str, str]]:
    """And the table of n-grams."""
    files = [read(f"planllm-{name}8-recipes") for name in ("", "smollm2-", "schema-")]
    trials = [trial for file in files for trial in file["trials"]]
    assert [file["seeds"] for file in files] == [[0]] * len(trials)  # "one seed"
    told = "on 8 recipes at T = {horizon}, one seed, {windows} test windows: its step decoder"
    told = told.format(**trials[0]) + " {}, with SmolLM2 in the place of Vicuna {}, SCHEMA trained"
    rates = ["{success_rate:.1f}/{mean_accuracy:.1f}".format(**one["metrics"]) for one in trials]
    yield "results", f"{told} alike {{}} (`planllm-8-recipes.json`".format(*rates)
    leads, levels = list[str](), list[str]()
    for name in ("ikea", "captaincook4d"):
        found = read(f"language-models-{name}-T3")
        right = {one["row"]: [[int(of) for of in one["success"]]] for one in found["trials"]}
        lead = paired_difference(right["pkg"], right["llm-ends"], found["windows"]["3"]["video"])
        leads += map(half_up, (lead.mean, lead.low, lead.high))
    told = (
        "PKG has {} ({} to {}; videos resampled) more right in a hundred on IKEA ASM at T = 3 and"
    )
    yield "results", f"{told} {{}} ({{}} to {{}}) on CaptainCook4D.".format(*leads)
    for name in ("ikea", "8-recipes"):
        row = read(f"recognition-{name}")["rows"]["mstcn"]
        for less in (row[score]["recogniser_less_it"] for score in SCORES):
            levels += (half_up(less[of], "0.1").replace("-", "−") for of in ("mean", "low", "high"))
    levels[12:15] = (level.partition(".")[0] for level in levels[12:15])
    told = "(frame +{}, {} to {}, edit +{}, {} to {}, F1@50 +{}, {} to {}) and ahead on the recipes"
    told += " (+{}, {} to {}, +{}, {} to {}, +{}, {} to {})."
    yield "results", told.format(*levels)
    ours, page = ("rows-ikea", "recogniser"), "results"
    told = "recogniser by {} in frame accuracy ({} to {}), {} in edit score ({} to {}) and"
    yield (
        page,
        f"{told} {{}} in F1@50 ({{}} to {{}});".format(
            *led_by(("asformer-ikea", "asformer"), ours)
        ),
    )
    theirs = ("rows-8-recipes", "recogniser"), ("asformer-8-recipes", "asformer")
    told = (
        "behind it by {} in frame accuracy ({} to {}), and ahead by {} in edit score ({} to {}) and"
    )
    frame, steps = [*led_by(*theirs[::-1])][:3], [*led_by(*theirs)][3:]
    yield page, f"{told} {{}} in F1@50 ({{}} to {{}}).".format(*frame, *steps)
    ahead = [
        *led_by(ours, ("mstcn-100-ikea", "mstcn")),
        *led_by(theirs[0], ("mstcn-100-8-recipes", "mstcn")),
    ]
    told = "{} ({} to {}), {} ({} to {}) and {} ({} to {})"
    yield page, f"of MS-TCN++ by {told}, and by {told}.".format(*ahead)
    told = "edit score is higher by {}, F1@50 by {}, the present step by {} and the next one by {},"
    found = read("pooled-changes")["differences"]
    yield page, told.format(*(spread(found[of]) for of in ("edit", "f1_50", "current", "next")))
    for step in ("first step", "next step"):
        cells = list[str]()
        for name in ("ikea", "captaincook4d"):
            rows = read(f"nothing-seen-{name}")["nothing_seen"][f"{step}, task"]
            assert [*rows] == ["run", "uniform", "unigrams", "bigrams", "trigrams"]
            scores = ("accuracy", 1), ("log_likelihood", 2)
            run = "/".join(f"{rows['run'][of]:.{digits}f}" for of, digits in scores)
            best = [max(rows[order][of] for order in [*rows][2:]) for of, _ in scores]
            cells.append(f"{run}; {best[0]:.1f}/{best[1]:.2f}".replace("-", "−"))
        yield "results", f"of {NUMBERS[3]} orders, the best by each score on these test videos"
        yield "results", f"| {step}; best n-grams | {' | '.join(cells)} |"
    ours = read("mistakes-from-tables-assembly101-o")
    rule, online = (ours["rows"][row] for row in ("unseen-step", VERIFIERS[-1]))
    hits = round(ours["mistakes"] * online["recall"] / 100)
    assert (rule["recall"], rule["precision"]) == (online["recall"], online["precision"])
    named = round(100 * hits / online["precision"])
    yield "verify", f"it names the same {named}, {hits} of them mistakes"


class Figures(Formatter):
    """Numbers of one digit, rounded as people do, or of those behind a colon; lists in words."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list):
            *first, last = (self.format_field(one, format_spec) for one in value)
            return f"{', '.join(first)} and {last}"
        whole = isinstance(value, int | str) and not format_spec
        return str(value) if whole else half_up(value, format_spec or "0.1")


LABELLED = (
    "test films (three draws; `python benchmarks/labelling.py`, `labelling-ikea.json`), with 10, 20"
    " and 40 films labelled, {touched:1} % of the steps needed an edit, and proposals saved"
    " {saved:1} %"
)
LAGS = "films is right for {0} % at once and for {1} % after one, two and five seconds."
RECOGNITION = {  # of docs/recognise.md: draws, and words with figures
    "ikea": ([3, 3, 3], LABELLED, LAGS),
    "8-recipes": (
        [2, 2, 1],
        "they saved {saved:1} % (two, two and one draw",
        "On 8 recipes it is right for {0} % at once and for {1} % later",
    ),
}


def sentences_on_recognition() -> Iterator[tuple[str, str]]:
    for file, (draws, labelled, right) in RECOGNITION.items():
        labels = read(f"labelling-{file}")["labelled"]
        assert [*labels] == ["10", "20", "40"]  # films
        found = labels.values()
        parts = {of: [one[of]["mean"] for one in found] for of in ("touched", "saved")}
        yield "recognise", Figures().format(labelled, **parts)
        assert [one["draws"] for one in found] == draws
        (run,) = read(f"lag-{file}")["runs"]
        first, *later = (run[f"right_after_{seconds}_s"] for seconds in (0, 1, 2, 5))
        yield "recognise", Figures().format(right, first, later)


VERIFICATION = """
{seeds} seeds, {known[test_videos]} test videos, intervals over videos
(the same split, T = 3, three seeds, `errors-training-captaincook4d.json`)
rows (8 recipes, four folds over training
ten right films to learn from (five of each), twenty to check, of which eight skip a step or
Of the {six} draws here
While the films of the {six} draws go on
(`workshop-3.json`, {threes} draws)
(`--world bench`, `panel` and `kitchen`, two draws each;
of four steps that were left out none is found at 1 false alarm an hour, one at 3 and three at 10;
are found at {hourly} false alarms an hour, by default
Films held out promise {hourly} false alarms an hour; the
Films held out promise {hourly}; the right
each learned from {learned} recordings
{missing:1} % of {e[missing][mistakes]} missing steps
Of {skips[0]} skips {ten[skip_named]} are named and {skips[1]} left open, of 24 exchanges
of 24 exchanges {ten[swap_found]} are found: a finding names one of both steps,
{ten[swap_named]} times as out of order, else as missing or repeated
The 72 right films have {ten[false]} false finding, and {ten[right_films_in_doubt]} a word
Of {strange} films of procedures that were not learned
six a draw), {ten[other_doubted]} are
note that mistakes may go unseen, and {notes} of the 40 of the bench
of {ikea[cut][made]} usual steps cut out of IKEA ASM's 17 test videos {cut} %
an hour, of {ikea[exchanged][made]} exchanges {swapped} %
in training {tried} were
{cut8} % of {recipes[cut][made]} cuts and {swapped8} % of {recipes[exchanged][made]} exchanges
{before} % of {before_cut} cuts of IKEA ASM and {before8} % of {before8_cut} cuts of 8 recipes
first mistake ({t[steps]} steps)
None of the {of_ten} films of learned procedures
same {x[videos]} videos (`python benchmarks/recognised_errors.py --run
of {x[order][mistakes]} errors of order, all in one video, {x[found]} at 1 and 3, and all at 10
row with {t[rows][ours][average_f1]} and {t[rows][ours][f1b]} takes a lower probability
calls no true step a mistake: F1b is {blind} with both
F1b is highest, at {called}, where every step
learned from the {t[right_videos]} right videos, asked
needs no names, has {t[rows][after-first][f1b]}:
has F1b {t[rows][always][f1b]} on any data
up to five right recordings a recipe, {written[right_videos]} in all
from the {graphs[recordings][recordings]} recordings that published graphs
the right steps of the {graphs[held_out][recordings]} recordings of the split train
row by row, {early[skip_named]} of 24 skips are named and {early[swap_found]} of 24 exchanges found
found ({early[swap_named]} as out of order), with {early[false]} findings in the 72 right films and
in the 72 right films and {early[wrong]} of other steps. Once each film is over, {late[skip_named]}
skips are named and all exchanges found in all ({late[swap_named]} as out of order), with
with {late[false]} findings in right films and {late[wrong]} of other steps.
The median delay is {delay:1} seconds
and {doubts} a word of doubt, of which {unseen} say that mistakes of one
{last[skip_named]} skips named, {last[swap_found]} exchanges found, {last[swap_named]} as out of
The other four have {other} findings
{few[0]} of 12 skips and {few[1]} of 12 exchanges are found, with {few[2]} false findings in 36
Of 16 mistakes each, {worlds[found]:1} are found and {worlds[open]:1} left open by name.
The 24 right films of each have {worlds[false]:1} false findings.
{tasks[left out][doubted]} of {tasks[left out][films]} films of the piece of furniture
{tasks[learned][doubted]} of {tasks[learned][films]} test films of the others
{cut} % are found at 1, 3 and 10 false alarms an hour, of 16 exchanges {swapped} %
{said} % are found, at {alarms[0]} false alarms an hour, and {open} % are found or left open
{ikea[unsure_an_hour]:1} steps an hour of the videos as they are ({each} a video) have at least 20 %
the right test videos ({ikea[hours]} hours) have {kept}.
finds {soon[0]} % of the cuts and {soon[1]} % of the exchanges before these films end, and {told} %
in all, at {ikea[live][alarms_an_hour]} false alarms an hour; the median delay
cuts is {ikea[live][cut][delay]} s from the start
it finds {soon8} % before the end, and {told8} % in all, at
in all, at {recipes[live][alarms_an_hour]} false alarms an hour, and {recipes[live][cut][delay]} s.
by default {said8} % at {alarms8:1}, since
{open8} % are found or left open, and {recipes[unsure_an_hour]:1} steps an hour are left open
the right test videos have {kept8}.
order have {e[films_order][auc]} ({e[films_order][low]} to {e[films_order][high]}) and any error
any error {e[films_any][auc]} ({e[films_any][low]} to {e[films_any][high]}) by the probabilities
At 1, 3 and 10 false alarms an hour, {order:1} % of {e[order][mistakes]} errors
{e[order][mistakes]} errors of order are found, and {missing:1} % of 90 missing steps
Known steps have {e[given_order][auc]} and {e[given_any][auc]}.
all proposed steps in {repairs[all_allowed]} of {repairs[asked]} cases
the chain has {folds[0]}, {folds[1]}, {folds[2]}.
{t[right_videos]} right videos of toys that are assembled, {t[test_videos]} test videos that end
intervals of {ours[f1b]} (F1b), {ours[average_f1]} (average F1) and {ours[auc]} (AUC)
seen" {named[f1b]}, {named[average_f1]} and {named[auc]}; "every step but the first" {after[f1b]},
first" {after[f1b]}, {after[average_f1]} and {after[auc]}.
AUC is {aucs[0][0]} to {aucs[0][1]} with MiniROAD's steps and {aucs[1][0]} to {aucs[1][1]} with
with OadTR's, and {first} by
average F1 {alone[0]} with MiniROAD and {alone[1]} with OadTR
its average F1 is {best}.
{second_half[auc]} by "a step of the second half", which look
"A step of the second half" has the highest average F1, {second_half[average_f1]}, and
at the threshold that is best an F1b of {second_half[highest_f1b]}
"a step of the second half", with an average F1 of {t[rows][late-step][average_f1]}:
whole videos miss {whole:1} % of the steps with an error meanwhile (1, 3 and 10 an hour), online
online {online:1} %
{r[first]} of {r[asked]} cases ({r[first_per_cent]} %, {r[low]} to {r[high]}), and {r[listed]} have
it was {b[first]} of {b[asked]} ({b[first_per_cent]} %)
({c[repair][first]} of {c[repair][asked]}, {c[before][first]} before)
undone last has {again[first]} of {again[asked]}
graphs of {written[recipes]} of CaptainCook4D's recipes
{written[test_videos]} test recordings, steps known
learned from: {g[recordings][likelihood]} by likelihood, {g[recordings][counts]} by counts
of the split train: {g[held_out][likelihood]}, and {g[held_out][counts]}.
Without the words of names, F1 is {plain}.
the others, F1 is {others}.
"""
"""Words of docs/verify.md with figures of files, a piece a line."""


def sentences_on_labelling() -> Iterator[tuple[str, str]]:
    """And the table of the films that are labelled first."""
    table, needed, learned = list[list[str]](), list[list[float]](), list[float]()
    numbers, apart = list[str](), list[float]()
    for name in ("drawn", "ikea", "drawn-default", "ikea-default"):
        found = read(f"labelling-first-films-{name}")
        drawn = {len(films) for films in found["counts"].values()}
        assert drawn == {1 if "default" in name else 3}  # "one draw", "mean of three draws"
        learned += (
            spent := [one["learn_s"] for of in found["machine"].values() for one in of.values()]
        )
        edits = [
            [one["moved"] + one["removed"] + 3 * one["added"] for one in draws["0"]]
            for draws in found["counts"].values()
        ]
        needed.append([sum(films) / len(films) for films in edits])
        films = found["counts"]["3"]["0"]
        length = mean(film["seconds"] for film in films)
        of = {"drawn": "drawn films", "ikea": "test films of IKEA ASM"}.get(name)
        if of is None:
            yield "label-studio", f" {min(spent):.0f} to {max(spent):.0f} s"
            continue
        numbers += [f"{len(films)} {of} of {length:.0f} s; none", *found["labelled"]]
        for number, row in {"": found["labelled"]["3"], **found["labelled"]}.items():
            who = [row["person"][one] for one in ("usual", "fast", "slow")]
            seconds = [one["seconds" if number else "from_nothing"]["mean"] for one in who]
            share = "{mean:.0f} % ({low:.0f} to {high:.0f})".format(**who[0]["saved"])
            told = "{:.0f} ({:.0f} to {:.0f})".format(*seconds)
            ends = [spread(row["edits"]), share] if number else [f"{row['from_nothing']}", ""]
            table.append([ends[0], told, ends[1]])
            apart.append(abs(who[2]["saved"]["mean"] - who[1]["saved"]["mean"]))
        if name == "ikea":
            yield "label-studio", f"in {min(learned):.0f} to {max(learned):.0f} s of a core"
    yield (
        "label-studio",
        f"The share saved differs by at most {math.ceil(max(apart))} points between",
    )
    rows = cells_below("label-studio", "films labelled |")
    assert [row[0] for row in rows] == numbers
    assert [row[1:] for row in rows] == table
    told = (
        "needed {2} edits of a drawn film, where the preset needed {0}, and {3} of one of IKEA ASM"
    )
    yield "label-studio", Figures().format(f"{told}, where it needed {{1}}", *needed)
    steps = [float(cells[1].split()[0]) for cells in cells_below("label-studio", "step | seconds")]
    yield "label-studio", f"first proposal: {sum(steps[:-2]) / 60:.0f} minutes"


def sentences_on_devices() -> Iterator[tuple[str, str]]:
    """And the tables of files for devices and of encoders."""
    edge, pictures, pixels = read("edge-ikea"), read("edge-drawn")["encoder"], read("pixels")
    own, kinds = edge["recogniser"], ("recogniser", "follower", "planner")
    sizes = [f"{edge['files'][f'{name}.onnx'] / 2**20:.1f}" for name in kinds]
    times = [f"{own['ms'][of]:.1f}" for of in ("whole", "library", "follower", "row")]
    table = [[sizes[0], *times[:2]], [sizes[1], *times[2:]], [sizes[2], "", ""]]
    for one in (pictures["float32"], pictures["int8"]):
        table.append([f"{one['mib']}", f"{one['ms']:.0f}", ""])
    assert [cells[1:] for cells in cells_below("edge", "| MiB")] == table
    yield "edge", f"IKEA ASM's {own['videos']} test films ({own['rows']:,} rows"
    apart = math.ceil(1e7 * own["apart"]["whole"]), math.ceil(1e6 * own["apart"]["follower"])
    yield "edge", "at most {} × 10⁻⁷ for whole films and {} × 10⁻⁶ row by row".format(*apart)
    yield "edge", f"on {pictures['pictures']} pictures of films that are drawn"
    told = "cosine of {mean:.2f} with those in float32 on average, {least:.2f} at least"
    yield "edge", told.format(**pictures["cosine"])
    seconds = {one["encoder"]: one["seconds"] for one in pixels["encoders"]}
    yield "encoders", f"without decoding ({seconds.pop('decoding'):.3f} s for films of"
    shown = {cells[0].split("`")[1]: cells[5] for cells in cells_below("encoders", "encoder |")}
    assert shown == {name: f"{spent:.{1 + (spent < 1)}f}" for name, spent in seconds.items()}
    yield "encoders", f"with {pixels['stages']['draw']['films']} drawn films"
    told = (
        "the chain plans {:.1f} % of the test windows of T = 3 right, the nearest window {:.1f} %; "
    )
    told += "on the simulated states with noise of 0.1, {:.1f} % and {:.1f} % ({} seeds"
    rates = [one["success_rate"][0] for one in pixels["scores"][:4]]
    yield "encoders", told.format(*rates, NUMBERS[pixels["arguments"]["seeds"]])


def sentences_on_verification() -> Iterator[tuple[str, str]]:
    facts: dict[str, Any] = {}
    draws, few = read("workshop-10")["draws"], read("workshop-3")["draws"]
    over = [draw["live"] for draw in draws]
    live = [draw["before_the_end"] for draw in over]
    counts = ("skip_named", "swap_found", "swap_named", "false", "wrong")
    for name, of in (("early", live), ("late", over), ("last", draws[3:])):
        facts[name] = {key: sum(one.get(key, 0) for one in of) for key in counts}
    assert facts["late"]["swap_found"] == 24  # "all"
    keys = ("skip_named", "swap_found", "swap_named", "other_doubted", "right_films_in_doubt")
    facts["ten"] = {key: sum(draw[key] for draw in draws) for key in keys}
    facts["strange"] = len(draws) * read("workshop-10")["films to check"]["other"]
    facts["ten"]["false"] = NUMBERS[sum(draw["false"] for draw in draws)]
    assert facts["last"]["false"] == sum(draw["false"] for draw in draws)  # "the false finding"
    for name in ("early", "late"):
        facts[name]["false"] = NUMBERS[facts[name]["false"]]
    facts["delay"] = median(seconds for one in over for seconds in one["delay"])
    videos = [video for draw in draws for video in draw["videos"]]
    assert all(video["said"] or video["doubt"] for video in videos if video["mistake"])
    skips = [video for video in videos if video["video"].startswith("skip")]
    open_skips = [video for video in skips if {*video["doubt"]} & {*video["mistake"]}]
    facts["skips"] = [len(skips), NUMBERS[sum(not video["said"] for video in open_skips)]]
    kinds = [video["video"][:4] for video in videos]
    assert [kinds.count(kind) for kind in ("skip", "swap", "righ")] == [24, 24, 72]
    facts["of_ten"] = len(videos)
    assert not any(draw["own_doubted"] for draw in draws)  # of the 120
    right = [video for video in videos if video["video"].startswith("right") and not video["said"]]
    doubts = [" ".join(video["doubt"]) for video in right if video["doubt"]]
    facts["doubts"] = len(doubts)
    facts["unseen"] = sum("may go unseen" in doubt for doubt in doubts)
    facts["other"] = sum(draw["other_findings"] for draw in draws)
    sums = [sum(draw[key] for draw in few) for key in ("skip_found", "swap_found", "false")]
    facts["few"] = [*sums[:2], NUMBERS[sums[2]]]
    unseen = [" ".join(video["doubt"]) for draw in few for video in draw["videos"]]
    assert all("may go unseen" in doubt for doubt in unseen)  # "each film says"
    assert read("workshop-3")["command"].endswith(" --films 3 --draws 3")
    checked = read("workshop-10")["films to check"]
    assert (checked["skip"] + checked["swap"], checked["right"]) == (8, 12)  # of twenty
    facts |= {"six": NUMBERS[len(draws)], "threes": NUMBERS[len(few)]}
    notes = []
    facts["worlds"] = worlds = {"found": [], "open": [], "false": []}
    for world in ("bench", "panel", "kitchen"):
        videos = [video for draw in read(f"workshop-{world}")["draws"] for video in draw["videos"]]
        wrong = [video for video in videos if video["mistake"]]
        named = [{name for _, name in video["said"]} & {*video["mistake"]} for video in wrong]
        left = [video for video, found in zip(wrong, named, strict=True) if not found]
        assert (len(wrong), len(videos)) == (16, 40)
        notes.append(sum("may go unseen" in " ".join(video["doubt"]) for video in videos))
        worlds["found"].append(len(wrong) - len(left))
        worlds["open"].append(sum(bool({*v["doubt"]} & {*v["mistake"]}) for v in left))
        worlds["false"].append(sum(len(v["said"]) for v in videos if not v["mistake"]))
    assert notes[1:] == [40, 40]
    facts["notes"] = notes[0]
    found, false = (sum(worlds[name]) for name in ("found", "false"))
    counts = f"{found} of 48 mistakes are found, with {false} false findings in 72 right films"
    yield "README", f"are harder: {counts}"
    facts["tasks"] = read("other-tasks-ikea")["films of tasks"]
    assert read("other-tasks-ikea")["arguments"]["left_out"] == [0]
    for name, file, end in (("ikea", "ikea_asm", ""), ("recipes", "8-recipes", "8")):
        (run,) = read(f"mistakes-in-films-{file}")["runs"]
        made = run["cut"], run["exchanged"]
        facts |= {name: run, f"cut{end}": rates(made[0]), f"swapped{end}": rates(made[1])}
        for key, of in (
            ("said", "found"),
            ("open", "found_or_unsure"),
            ("alarms", "alarms_an_hour"),
        ):
            facts[f"{key}{end}"] = [one["said"][of] for one in made]
        facts["hourly"] = [*run["promised"]]
        facts[f"kept{end}"] = [run["promised"][alarms] for alarms in ("1", "3", "10")]
        told = [run["live"][kind] for kind in ("cut", "exchanged")]
        facts[f"soon{end}"], facts[f"told{end}"] = (
            [one[of] for one in told] for of in ("before_the_end", "told")
        )
    counts = [
        sum(task[key] for task in facts["ikea"]["seen"]) for key in ("exchanged", "of_exchanged")
    ]
    facts["tried"] = "{} of {}".format(*counts)
    facts["each"] = facts["ikea"]["unsure_an_hour"] * facts["ikea"]["hours"] / 17
    _, *before = re.findall(r"better: ([\d.]+), ([\d.]+) and ([\d.]+) %", text_of("tried"))[0]
    pairs = zip(before, facts["cut8"][1:], strict=True)
    assert all(float(old) > now for old, now in pairs)  # "more cuts were found at 3 and 10"
    for key, file in (("before", "ikea_asm"), ("before8", "captaincook4d_seconds")):
        (run,) = read(f"removed-steps-{file}")["runs"]
        facts |= {key: rates(run["film"]), f"{key}_cut": run["cut"]}
    (run,) = read("recognised-errors-captaincook4d")["runs"]
    facts |= {"e": run, "order": rates(run["order"]), "missing": rates(run["missing"])}
    command = read("recognised-errors-captaincook4d")["command"]
    assert command.endswith(" --folds 4 --seeds 1")
    ends = [run["videos"] - math.ceil(run["videos"] / 4), run["videos"] - run["videos"] // 4]
    facts["learned"] = "{} or {}".format(*ends)
    (run,) = read("recognised-errors-test-8-recipes")["runs"]
    found = [
        [round(run[of]["mistakes"] * rate / 100) for rate in rates(run[of])]
        for of in ("missing", "order")
    ]
    assert found == [[0, 1, 3], [2, 2, run["order"]["mistakes"]]]  # as the page says in words
    assert run["missing"]["mistakes"] == 4
    facts["x"] = run | {"found": found[1][0]}
    known = read("verification-captaincook4d")
    facts |= {"repairs": known["repairs"], "known": known, "seeds": NUMBERS[len(known["seeds"])]}
    facts["folds"] = [
        [mean(fold[of] for fold in mode) for of in ("clean_SR", "wrong_SR")]
        for mode in read("errors-training-captaincook4d")["folds"]["rows"].values()
    ]
    table = facts["t"] = read("mistakes-from-tables-assembly101-o")
    for key, row in (("ours", "ours"), ("named", "unseen-step"), ("after", "after-first")):
        ends = table["rows"][row]["intervals"]
        facts[key] = {of: "{low:.1f}–{high:.1f}".format(**one) for of, one in ends.items()}
    seen = [
        {name: row for name, row in one.items() if isinstance(row, dict)}
        for one in table["recognised"].values()
    ]
    blind = ("never", "always", "after-first", "late-step", "unseen-step")
    facts["aucs"] = [
        [end(row["auc"] for name, row in one.items() if name not in blind) for end in (min, max)]
        for one in seen
    ]
    facts["first"] = [one["after-first"]["auc"] for one in seen]
    facts["alone"] = [one["ours"]["average_f1"] for one in seen]
    facts["best"] = [one["ours"]["highest_average_f1"] for one in seen]
    (facts["blind"],) = {one["ours"]["f1b"] for one in seen}
    assert facts["alone"] == [one["never"]["average_f1"] for one in seen]  # no step is called so
    assert [one["unseen-step"]["recall"] for one in seen] == [0, 0]  # no part that is taken off
    assert table["mistakes"] == table["test_videos"]  # each holds one: one false alarm a video
    late = [one.pop("late-step") for one in seen]
    of_late = ("auc", "average_f1", "highest_f1b")
    of_others = [[row["highest_average_f1"] for row in one.values()] for one in seen]
    for row, others in zip(late, of_others, strict=True):
        assert row["average_f1"] > max(53.5, *others)  # that of TGML, and ours
    facts["second_half"] = {of: [row[of] for row in late] for of in of_late}
    (facts["called"],) = {row["highest_f1b"] for one in seen for row in one.values()}
    promises = read("promises-captaincook4d")["promises"]
    for of in ("whole", "online"):
        facts[of] = [one["missed"] for one in promises[of][:3]]
    repairs = read("repairs-assembly101-o")
    facts["c"], measured = repairs["chosen on"], repairs["measured on"]
    facts |= {"r": measured["repair"], "b": measured["before"], "again": measured["again"]}
    facts["written"], graphs = read("written-captaincook4d"), read("graphs-captaincook4d")
    facts["graphs"] = graphs
    parts = [graphs[of] for of in ("recordings", "held_out")]
    facts["plain"] = [part["prior 1.0"]["f1"] for part in parts]
    facts["others"] = [part["left_out"] for part in parts]
    facts["g"] = {
        of: {by: [*graphs[of][by].values()] for by in ("likelihood", "counts")}
        for of in ("recordings", "held_out")
    }
    for words in VERIFICATION.strip().splitlines():
        yield "verify", Figures().format(words, **facts)


def sentences_on_mistakes() -> Iterator[tuple[str, str]]:
    workshop = read("workshop-10")
    draws, films = workshop["draws"], workshop["films to check"]
    names = ("skip_named", "skip_found", "swap_named", "swap_found", "false")
    assert workshop["command"].endswith(" --films 10 --draws 6")
    whole = {name: sum(draw[name] for draw in draws) for name in names}
    live = {name: sum(draw["live"][name] for draw in draws) for name in (*names, "wrong")}
    skips, swaps, right = (films[kind] * len(draws) for kind in ("skip", "swap", "right"))
    found = whole["skip_found"] + whole["swap_found"]
    doubt = sum(draw["right_films_in_doubt"] for draw in draws)
    yield (
        "README",
        f"of {skips + swaps} steps skipped or exchanged in six drawn workshops, [{found} are",
    )
    unfound = [
        video
        for draw in draws
        for video in draw["videos"]
        if video["mistake"] and not {step for _, step in video["said"]} & {*video["mistake"]}
    ]
    silent = [video["said"] for video in unfound].count([])
    yield (
        "README",
        f"after ten right films; of the other {NUMBERS[len(unfound)]} {NUMBERS[silent]} are left "
        f"open, and in {NUMBERS[len(unfound) - silent]} another step is named",
    )
    yield (
        "README",
        f"The {right} right films have {NUMBERS[whole['false']]} false finding, and {doubt} are",
    )
    yield (
        "README",
        f"{whole['skip_named'] + whole['swap_named']} are named as what they are, "
        f"{whole['skip_named']} of {skips} skips and {whole['swap_named']} of {swaps} exchanges",
    )
    others = {
        kind
        for draw in draws
        for video in draw["videos"]
        if video["video"].startswith("swap") and "order" not in dict(video["said"])
        for kind, _ in video["said"]
    }
    assert others == {"missing", "repeated"}  # of the other exchanges
    doubted = {whose: sum(draw[f"{whose}_doubted"] for draw in draws) for whose in ("other", "own")}
    assert doubted["own"] == 0
    yield (
        "README",
        f"Of {films['other'] * len(draws)} films of procedures that were not learned, "
        f"{doubted['other']} are said to show another task or none, and of the "
        f"{skips + swaps + right} others none",
    )
    yield (
        "README",
        f"By following the films {live['skip_found'] + live['swap_found']} are found, with "
        f"{NUMBERS[live['false']]} false findings in right films and {live['wrong']} of other",
    )
    assert read("mistakes-in-films-ikea_asm")["command"].endswith(" --seeds 1")  # "one network"
    (run,) = read("mistakes-in-films-ikea_asm")["runs"]
    cut, swapped = run["cut"], run["exchanged"]
    alarms = round(run["hours"] * cut["said"]["alarms_an_hour"])
    films = len(read("recognition-ikea")["test_videos"])
    counts, either = (
        [round(one["made"] * one["said"][of] / 100) for one in (cut, swapped)]
        for of in ("found", "found_or_unsure")
    )
    yield (
        "README",
        f"{counts[0]} of {cut['made']} steps that were cut out and {counts[1]} of "
        f"{swapped['made']} exchanges are found by one network, with {NUMBERS[alarms]} false alarm "
        f"in {films} films; {either[0]} and {either[1]} are found or left open",
    )


def of_each(one: dict[str, Any]) -> list[list[float]]:
    """MiB of the processes of each service."""
    mib = one["mib"]
    return mib if one["machines"] > 1 else [mib]


def sentences_on_stations() -> Iterator[tuple[str, str]]:
    for page, file in (("serve", "stations-killed"), ("operate", "stations-valkey-killed")):
        (one,) = read(file)["results"]
        if page == "serve":
            _, options = read(file)["command"].split(" RUN ")
            yield (
                page,
                f"ten seconds for five minutes (`{options.partition(' --data')[0]}`, `{file}",
            )
        assert (one["lost"], one["twice"], one["kills"]) == (0, 0, 30)
        told = f"With {one['stations']} stations"
        if page == "serve":
            yield page, f"stations and one of {NUMBERS[one['processes']]} processes killed every"
        if page == "operate":
            counts = one["machines"], one["processes"], one["machines"] * one["processes"]
            told += ", {} machines of {} processes each, and one of these {} killed every".format(
                *(NUMBERS[count] for count in counts)
            )
            named = re.findall(r"`(--machines [^`]*)`, `stations-valkey-killed", text_of(page))[0]
            parts = re.findall(r"--\w+ \d+", named)
            assert len(parts) == 5
            assert all(part in read(file)["command"] for part in parts)
            yield page, "ten seconds for five minutes (`--machines 2 --processes 2 --stations 25"
        yield page, told
        yield page, f"a load of {one['load_average']:.0f}), all {one['acknowledged']:,} rows that"
        yield page, f"The median was {one['p50_ms']:.0f} ms and 95 % {one['p95_ms'] / 1000:.2f} s; "
        told = f"{one['late']} answers came after more than a second, at most "
        yield page, f"{told}{one['worst_ms'] / 1000:.0f} s, and {one['missed']} rows were skipped"
    results = read("stations")["results"]
    held = [[sum(one["mib"]) for one in results if one["processes"] == n] for n in (1, 2)]
    most = max(one["stations"] for one in results if one["processes"] == 1 and not one["missed"])
    assert most == 100
    yield "operate", "One process follows a hundred stations that send rows, and"
    each = ([one["load_average"] for one in results if one["processes"] == n] for n in (1, 2))
    loads = (half_up(end(loads), "1") for loads in each for end in (min, max))
    told = f"on {NUMBERS[read('stations')['machine']['cores']]} cores which other programs used,"
    told += " too (a load of {} to {} with one process, of {} to {} with two; the service and its "
    yield "serve", told.format(*loads) + "clients had a raised priority)"
    assert "both had a raised priority" in read("stations")["note"]
    assert {one["dataset"] for one in results} == {"ikea"}
    yield "serve", "Stations that send a row of IKEA ASM a second"
    row = mean(1000 * one["cpu_share"] / one["answered_per_second"] for one in results[3:5])
    yield "serve", f"With brief answers a row took {row:.0f} ms of a core"
    each = [one["mib_per_station"] for one in results if one["stations"] >= 50]
    ends = [f"{min(one):.0f} to {half_up(max(one), '1')} MiB" for one in held]
    yield "serve", f"One process held {ends[0]}, two and their supervisor {ends[1]} together, and"
    yield "serve", f"50 or 100 stations {min(each):.1f} to {max(each):.1f} MiB each"
    _, before = read("stations")["before"]["results"]
    spent = 1000 * before["cpu_share"] / before["answered_per_second"]
    yield "serve", f"a row took {spent:.0f} ms of a core, and of {before['stations']} stations one"
    told = f"one process answered {before['answered_per_second']:.0f} rows a second, 95 % within "
    yield "serve", f"{told}{before['p95_ms'] / 1000:.1f} s (a load of {before['load_average']:.0f})"
    measured = read("sessions-http")
    http, asked = measured["results"], measured["clients"] * measured["seconds"]
    spent = {
        sent: [1000 * one["cpu_seconds"] / asked for one in http if one["sent"] == sent]
        for sent in ("rows", "pictures")
    }
    rows, shown = (f"{min(one):.0f} to {max(one):.0f} ms" for one in spent.values())
    yield "serve", f"A row of a live session took {rows} of a core, a picture {shown}."
    idle = [one for one in http if one.get("note", "").endswith("idle")]
    assert [one["missed"] for one in idle] == [0] * 3
    assert idle[0]["dataset"].startswith("ikea-asm")
    told = (
        f"`sessions-http.json`) missed none of {asked} seconds, with one row of IKEA ASM a second"
    )
    yield "serve", told
    told = f"{NUMBERS[measured['clients']].capitalize()} sessions at once on"
    yield "serve", f"{told} {NUMBERS[measured['machine']['cores']]} idle cores"
    busy = [max(one["missed"] for one in http if one["sent"] == sent) for sent in spent]
    told = f"On {NUMBERS[measured['machine']['cores']]} cores that other programs used, too, they"
    yield "serve", told + " missed {} with rows and {} with pictures".format(*busy)
    first, *_, last = [(one["median_ms"] / 1000, one["p95_ms"] / 1000) for one in idle]
    yield "serve", "(median latency {:.2f} s, 95 % below {:.2f} s)".format(*first)
    yield "serve", "with one picture a second each ({:.2f} s, {:.2f} s)".format(*last)
    for one in (read("serve"), read("serve-captaincook4d")):
        assert one["memory"][-1]["requests"] == 10_000
    held = [read(name)["memory"][-1]["mib"] for name in ("serve", "serve-captaincook4d")]
    told = "held {:.0f} MiB on the simulated world of `cefito quickstart` and {:.0f} MiB on"
    yield "serve", f"After 10,000 requests the service {told.format(*held)}"
    told = f"{NUMBERS[read('flood')['clients']].capitalize()} clients that asked for plans beside"
    yield (
        "serve",
        f"{told} eight that sent requests of {read('flood')['rows'][:3]} lost rows, an hour",
    )
    flood = read("flood")["after"]
    waits = [flood[how][key] / 1000 for how in ("flooded", "alone") for key in ("p50_ms", "p99_ms")]
    told = "waited {:.1f} s in the median (99 %: {:.1f} s; alone {:.1f} s, {:.1f} s;"
    yield "serve", told.format(*waits)
    assert "with a small recogniser; two cores" in read("flood")["run"]
    loads = (flood[how]["load_average"] for how in ("alone", "flooded"))
    told = "a small run of IKEA ASM), on two cores that other programs used, too (a load of {:.0f}"
    yield "serve", (told + " to {:.0f}); before gaps").format(*loads)
    assert "--seconds 60" in read("flood")["command"]
    before = read("flood")["before (ec07608a)"]["flooded"]
    plans = before["statuses"]["plans"]["200"], before["plans"]
    told = "before gaps had a closed form, {} of {} plans were answered in a minute."
    yield "serve", told.format(*plans)
    assert "--upgrades 6 --sessions 20 " in read("upgrades")["command"]
    assert read("upgrades")["dataset"] == "ikea"
    yield "operate", "Over six upgrades, with 20 sessions opened on each version"
    start, *after = ((one["after"], *one["mib"]) for one in read("upgrades")["results"])
    two = [mib for what, mib in after if "further sessions" in what]
    one = [mib for what, mib in after if "further sessions" not in what]
    ends = [f"{min(held):.0f} to {max(held):.0f}" for held in (one, two)]
    told = f"held {start[1]:.0f} MiB before any session, {ends[0]} MiB with the sessions of one"
    yield "operate", told
    yield "operate", f"version, and {ends[1]} MiB with those of two"
    file = read("stations-valkey")
    assert all("--brief --store STORE --seconds 20 " in one for one in file["command"])
    cores = f"{NUMBERS[file['machine']['cores']]} cores"
    yield "operate", f"20 seconds each). Valkey, services and stations shared {cores} with other"
    for words in ("Valkey, services and", "at equal priority", "IKEA ASM, 396 numbers"):
        assert words.rpartition(" services")[2] in file["note"]
        yield "operate", words
    every = file["results"]
    rows, shown = ([one for one in every if one["sent"] == of] for of in ("rows", "pictures"))
    costs = [
        [1000 * one["cpu_share"] / one["answered_per_second"] for one in of if one["stations"] >= 8]
        for of in (
            [one for one in rows if one["machines"] == one["processes"] == 1],
            [one for one in shown if one["machines"] == one["processes"] == 1],
        )
    ]
    rate, share = max(
        (one["answered_per_second"], one["cpu_share"]) for one in shown if one["processes"] == 1
    )
    told = (
        f"one process ends at about {rate:.0f} pictures a second, with {share:.2f} of a core, and"
    )
    yield "operate", f"{told} two machines on these {cores} answered no more"
    assert rate >= max(one["answered_per_second"] for one in shown if one["machines"] == 2)
    assert round(rate, -1) == 20
    yield "operate", "and about twenty that send pictures"
    told = "A row took {:.0f} to {:.0f} ms of a core, a picture {:.0f} to {:.0f} ms"
    yield "operate", told.format(*(end(of) for of in costs for end in (min, max)))
    services = [
        [service[place] for one in of if one["processes"] == 1 for service in of_each(one)]
        for of, place in ((rows, 0), (shown, 0), (shown, 2))
    ]
    ends = [f"{min(held):.0f} to {max(held):.0f} MiB" for held in services]
    each = [one["mib_per_station"] for one in rows if one["stations"] >= 8]
    told = f"held {ends[0]} and {min(each):.1f} to {max(each):.1f} MiB a station from eight"
    yield "operate", told
    yield "operate", f"one that encodes pictures {ends[1]}, and {ends[2]} for its encoder"
    stored = [
        [one["store_kib_per_row"] for one in of if one.get("store_kib_per_row")]
        for of in (rows, shown)
    ]
    kib, picture = map(median, stored)
    yield (
        "operate",
        f"Valkey, a row took {kib:.1f} KiB in the median, {kib * 3600 / 1024:.0f} MiB an",
    )
    told = f"1,280 numbers, {min(stored[1]):.0f} to {max(stored[1]):.0f} KiB, "
    yield "operate", f"{told}{picture * 3600 / 1024:.0f} MiB an hour and station"
    raised = [one for one in every if "priority" in one]
    of = [(one["priority"], one["stations"], one["processes"], one["store"]) for one in raised]
    assert of == [("raised", 100, 1, "valkey"), ("raised", 100, 1, "files")]
    (valkey, files) = [[half_up(one[key], "1") for key in ("p50_ms", "p95_ms")] for one in raised]
    told = "With a raised priority, one process answered 100 stations within {} ms in the median "
    told += "(95 %: {} ms), and with files instead of Valkey"
    yield "operate", told.format(*valkey) + " within {} ms ({} ms)".format(*files)
    quiet = read("stations-pictures")["results"]
    assert [one["lost"] for one in quiet] == [0] * 4
    fifty, hundred, fifty2, hundred2 = quiet
    of = [(one["stations"], one["processes"], one["sent"], one["store"]) for one in quiet]
    assert of == [(of, n, "pictures", "files") for n in (1, 2) for of in (50, 100)]
    cores = f"{NUMBERS[read('stations-pictures')['machine']['cores']]} cores"
    yield "operate", f"On a quiet machine of {cores} (files, `stations-pictures.json`, `--sent"
    given = "pictures --stations 50 100 --processes 1 2`), 50 stations with a picture a second had"
    assert max(one["load_average"] for one in quiet) < 2.5  # a quiet machine
    assert (fifty["missed"], fifty2["missed"]) == (0, 0)
    told = f"{given} a median of {{:.0f}} ms (95 %: {{:.0f}} ms) from one process and {{:.0f}} ms "
    told += "({:.0f} ms) from two, none missed; of 100 stations, one process answered"
    yield (
        "operate",
        told.format(*(one[key] for one in (fifty, fifty2) for key in ("p50_ms", "p95_ms"))),
    )
    told = "answered {:.0f} pictures a second and two processes {:.0f}, and no acknowledged"
    yield "operate", told.format(*(one["answered_per_second"] for one in (hundred, hundred2)))


def sentences_on_speed() -> Iterator[tuple[str, str]]:
    page, shares = "performance", dict[str, float]()
    for name in ("query", "training"):
        drawn = (ROOT / "docs" / "images" / f"flame-{name}.svg").read_text("utf-8")
        shares |= {
            of: float(one) for of, one in re.findall(r"<title>([\w.]+) \([^<]*: ([\d.]+) %", drawn)
        }
    chain = shares["CefitoPlanner._likeliest"]
    yield page, f"{chain:.0f} % is the chain, half of it scores and their sums over tasks, half the"
    parts = [shares[of] / chain for of in ("ChainModel.evidence", "likeliest_sequences")]
    of_epoch = "Tensor.backward", "ChainNetwork.forward", "SequenceScores.log_partition"
    parts += [shares[of] for of in of_epoch]
    expected = 0.5, 0.4, 50, 25, 10  # "half", "half", "half", "a quarter", "a tenth"
    assert [round(part, -1 if part > 1 else 1) for part in parts[:3]] == [*expected[:3]]
    assert [round(part / 5) * 5 for part in parts[3:]] == [*expected[3:]]
    told = "half of the time is the backward pass, a quarter the forward pass, a tenth the sums"
    yield page, f"In an epoch of the chain, {told} over"
    yield page, f"on {NUMBERS[read('speed')['cores']]} cores of an AMD EPYC with other work"
    trained = read("speed-training")["training"]
    spent = (of["after"]["cpu_seconds"] for of in trained.values())
    yield page, "the trainings of the chain take {:.0f} and {:.0f} CPU seconds.".format(*spent)
    plans = [read(name)["runs"][0]["plans"] for name in ("speed", "speed-field")]
    assert all(one["different"] == 0 and one["largest_difference"] < 1e-5 for one in plans)
    yield page, "All plans are the same; probabilities differ by less than 0.00001."
    measured = read("recognise-ikea")["machine"]
    told = "in {threads} thread on {cores} busy cores of an AMD EPYC with {bfloat16_by} (`python"
    numbers = {name: NUMBERS[measured[name]] for name in ("threads", "cores")}
    yield page, told.format(**measured | numbers)
    ends = [*read("search-quick")["against_naive"]["exact"].values()]
    yield page, "{:.1f} and {:.1f} × one by one (`search-quick".format(*ends)
    live = read("live-captaincook4d")["milliseconds_of_an_update"].values()
    ends = [end(of[f"processor_{q}"] for of in live) for q in (50, 95) for end in (min, max)]
    told = (
        "took {:.0f} to {:.0f} ms of processor time in the median (CaptainCook4D; 95 %: {:.0f} to"
    )
    yield page, f"{told} {{:.0f}};".format(*ends)
    yield page, f"[{read('edge-drawn')['encoder']['float32']['ms']:.0f} ms a picture](edge.md"
    rows = read("following-ikea")["milliseconds_a_row"]
    ends = [mean(one[of] for one in rows) for of in ("mean", "stream")]
    told = (
        f"takes {{:.1f}} ms a row in the mean of a film of {rows[-1]['rows']:,} rows, of which the"
    )
    yield page, f"{told} stream of steps alone takes {{:.1f}} (".format(*ends)
    yield page, f"benchmarks/following.py DATA RUN --rows {rows[-1]['rows']}`"
    told = "as much in its last {} rows as in its first ({:.1f} and {:.1f})"
    yield page, told.format(rows[0]["rows"], rows[-1]["mean"], rows[0]["mean"])
    most = max(one["p95"] for one in rows if one["rows"] > 400), max(one["most"] for one in rows)
    told = f"95 % take up to {math.ceil(most[0])} ms from the 400th row on, the longest of all"
    yield page, f"{told} {most[1] / 1000:.1f} s."
    for file, begin in (("commands", "turn, "), ("recogniser", "too (")):
        measured = read(f"speed-{file}")
        told = f"{begin}{NUMBERS[measured['arguments']['pairs']]} pairs"
        on = f" on {NUMBERS[measured['cores']]} cores of an AMD EPYC under a"
        yield page, told + on * (file == "commands")
        load = "load {} {least:.0f} to {most:.0f}".format(
            "of" if file == "commands" else "", **measured["load_average"]
        )
        yield page, load.replace("  ", " ")
    cases = [of for of in read("search-screened")["random"] for of in of.values()]
    cases = [of for of in cases if isinstance(of, dict) and "margin" in of]
    assert all(of["same_plans"] for of in cases)
    screened = read("search-screened")
    (actions,) = {of["actions"] for of in screened["random"]}
    told = f"with random weights, {actions} actions, {NUMBERS[screened['threads']]} thread: how"
    yield page, told
    ends = [100 * end(of["margin_over_score"] for of in cases) for end in (min, max)]
    yield page, "the margin was {:.1f} to {:.1f} % of their scores".format(*ends)
    seconds = read("speed")["cpu_seconds"]["after"]
    yield (
        page,
        f"takes {100 * seconds['import_torch'] / seconds['plan']:.0f} % of the processor time",
    )
    limits = read("search-versions")["limits"]
    yield page, f"at the {limits[0]['gflop_per_second']:.0f} GFLOP a second of the largest one"
    most = {
        of: [one["most_against_one_by_one"] for one in limits if one["search"] == of]
        for of in ("exact", "guided")
    }
    yield page, "to {:.1f} and {:.1f} and".format(*most["exact"])
    told = "guided search to {:.0f} and {:.0f} × one by one".format(*most["guided"])
    horizons = [one["horizon"] for one in limits if one["search"] == "exact"]
    yield page, f"{told} at T = {horizons[0]} and {horizons[1]} (`limits`"
    each = [
        read(file)["runs"][0]["after"]["batch"][0]["cpu_ms_per_query"]
        for file in ("speed", "speed-field")
    ]
    assert each[0] < 0.1 * each[1]  # the field takes "nearly all time"
    one, two = read("speed")["runs"][0]["after"]["batch"]
    assert two["start_cpu_seconds"] - one["start_cpu_seconds"] > 2  # "needs seconds to start"
    compiled = read("compiled")
    yield page, f"(`compiled.json`; {NUMBERS[compiled['threads']]} thread, a busy machine)"
    one, many = (compiled["chain"][f"{of} queries"] for of in (1, 64))
    spent = [one["whole"]["milliseconds"][of] for of in ("package", "now")]
    yield page, "takes {:.1f} instead of {:.1f} ms of CPU time".format(*spent)
    gain = many["whole"]["milliseconds"]
    yield page, f"a batch of 64 gains {100 * (gain['now'] / gain['package'] - 1):.0f} %, and a"
    field = compiled["paper"]["4096 tokens"]["milliseconds"]
    assert abs(field["package"] / field["now"] - 1) < 0.01  # "nothing"
    made = [
        of[part]["package"]["compile_seconds"] for of in (one, many) for part in ("scores", "best")
    ]
    yield page, f"takes {min(made):.0f} to {max(made):.0f} CPU seconds to make"
    distilled = read("distilled")
    share = 1 / distilled["time"]["tenth"]["against_float32"]
    lost = {of["lost_test"] for of in distilled["tenth"].values() if isinstance(of, dict)}
    yield page, f"takes {share:.2f} of the CPU time, but loses the best sequence of"
    yield page, f"{100 * lost.pop():.0f} % of {distilled['windows']} test windows"
    assert not lost


def test_sentences():
    missing = [(page, words) for page, words in sentences() if words not in text_of(page)]
    assert missing == []


def test_drawn_worlds_of_the_page():
    worlds = tomllib.loads((ROOT / "benchmarks" / "workshop.toml").read_text("utf-8"))
    sizes = {
        world: [len(scene.keys() - {"at first", "free"}) for scene in scenes.values()]
        for world, scenes in worlds.items()
    }
    assert (sizes["shapes"], sizes["panel"]) == ([7, 7], [12])
    assert "`): two procedures of seven steps, ten" in text_of("verify")
    told = (
        "twelve steps of one procedure at a panel of look-alikes, and dishes, one with an optional"
    )
    assert told in text_of("verify")
    free = [scene["free"].values() for scene in worlds["kitchen"].values()]
    assert [sum(share < 1 for *_, share in one) for one in free] == [1, 0]


def test_mistakes_in_the_data_of_the_page(shared_data):
    def lines(name):
        return [*map(json.loads, (shared_data / name).read_text("utf-8").splitlines())]

    folder = "captaincook4d_seconds"
    splits = {one["video_id"]: one["split"] for one in lines(f"{folder}/videos.jsonl")}
    videos = lines(f"{folder}/errors.jsonl")
    test = [one for one in videos if splits[one["video_id"]] == "test"]
    order = [sum("Order Error" in kinds for kinds in one["steps"]) for one in test]
    assert sorted(order)[-2:] == [0, 17]  # "all in one video"
    assert sum(len(one["missing"]) for one in test) == 4
    wrong = sum(bool(one["missing"]) or any(one["steps"]) for one in test)
    assert f"{len(test)} test videos, {NUMBERS[wrong]} of which hold true errors" in text_of(
        "verify"
    )
    others = [one for one in videos if one not in test]
    assert len(others) == 67
    assert sum(bool(one["missing"]) or any(one["steps"]) for one in others) > 40  # "most of them"


def test_names_that_recognisers_found(shared_data):
    folder = shared_data / "assembly101_o"
    with (folder / "steps.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    names = defaultdict(list)
    for row in rows:
        names[row["video"]].append(row["step"])
    assert not any(row["step"].startswith("detach") for row in rows if row["split"] == "train")
    found = json.loads((folder / "predicted.json").read_text())["miniROAD"]
    pairs = (zip(one["pred"], names[video], strict=False) for video, one in found.items())
    same = [a == b for a, b in itertools.chain(*pairs)]
    steps = sum(len(names[video]) for video in found)
    assert round(4 * sum(same) / steps, 1) == 1
    assert "the true step at a quarter of the places, and never a part" in text_of("verify")
    assert not any(name.startswith("detach") for one in found.values() for name in one["pred"])


def test_files_of_results_that_pages_name_are_there():
    """All but those that commands read and write."""
    there = {path.name for path in (ROOT / "benchmarks" / "results").iterdir()}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {
        name
        for page in pages
        for name in re.findall(r"`([a-z\d][a-z\d_-]+(?:-T\d)?\.json)`", page.read_text("utf-8"))
    }
    others = "results taxonomy de run onnx extract films labels manifest order verification samples"
    assert named - there == {f"{name}.json" for name in others.split()}
