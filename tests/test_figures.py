"""Figures of the pages are those of the files of results that they name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import mean, median
from typing import Any

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


def cells_below(page: str, head: str) -> list[list[str]]:
    """The rows of the table whose head begins like this."""
    path = ROOT / ("README.md" if page == "README" else f"docs/{page}.md")
    _, table = path.read_text("utf-8").replace("**", "").split(f"\n| {head}", 1)
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


def test_the_best_of_each_column_is_bold():
    text = (ROOT / "README.md").read_text("utf-8")
    for head in ("| | IKEA ASM, 17 videos", "| | T = 3: success rate"):
        lines = text.partition(f"\n{head}")[2].partition("\n\n")[0].splitlines()[2:]
        for column in zip(*(line.split("|")[2:-1] for line in lines), strict=True):
            cells = [re.findall(r"(\**)([\d.]+)(\**)", cell) for cell in column]
            for scores in zip(*cells, strict=True):
                best = max(scores, key=lambda score: float(score[1]))
                assert [score for score in scores if "**" in score] == [best]


def test_stations():
    """Of two measurements of the same, at equal priority, the one at the lower load counts."""
    keys = ("sent", "stations", "machines", "processes")
    values = ("p50_ms", "p95_ms", "p99_ms", "missed", "load_average")
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in read("stations-valkey")["results"]:
        key = tuple(one[name] for name in keys)
        if "priority" not in one and one["load_average"] <= best.get(key, one)["load_average"]:
            best[key] = one
    expected = [
        [*map(str, key), *(f"{one[name]:.0f}" for name in values)] for key, one in best.items()
    ]
    found = [[cell.replace(",", "") for cell in row] for row in cells_below("operate", "sent |")]
    assert sorted(found) == sorted(expected)
    for row, one in zip(
        cells_below("serve", "stations |"), read("stations")["results"], strict=True
    ):
        shown = [f"{one[name]:.0f}" for name in ("stations", "processes", *values[:4])]
        assert row == [*shown, f"{one['cpu_share']:.2f}"]


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
    assert f"a million queries take {batch['cpu_seconds']['of_a_million']:.0f} s" in page
    assert f"a worker takes {each:.2f} ms of CPU time a query" in page
    main = 0.1 * min(
        one["cpu_seconds"] for one in batch["workers"] if one["executor"] == "processes"
    )
    assert f"the main process takes {main:.2f} ms a query to read" in page
    workers = round(round(each, 2) / round(main, 2))
    told = f"about {workers} workers, at {round(workers / round(each, 2))},000 queries a second"
    assert told in page


def sentences() -> Iterator[tuple[str, str]]:
    """Pages, and what they say with the figures of the files that they name."""
    yield from sentences_on_mistakes()
    yield from sentences_on_stations()
    estimates, threads = read("estimates"), read("quickstart-threads")["rows"]
    for part, of in (("planners", "at T = 3 and 4"), ("recognisers", "of eight rows")):
        (seeds,) = re.findall(r"--seeds (\d)", estimates[part]["command"])
        told = "took {seconds} seconds and was {minutes} minutes".format(**estimates[part])
        yield "compare", f"{of} with {NUMBERS[int(seeds)]} seeds {told}"
    assert estimates["recognisers"]["command"].count(",") == 7
    one, two, busy, both = (round(run["seconds"]) for run in threads)
    yield "gpu", f"{one} s on one thread and {two} s on two, or beside two busy programs {busy} and"
    yield "gpu", f"over {both} s (`quickstart-threads.json`)"
    hours = []
    for windows, batch in ((697, 32), (10_814, 128), (13_698, 128)):  # of T = 3, to train on
        step = read("training-released-32" if batch == 32 else "training-released")["float32"]
        spent = 200 * math.ceil(windows / batch) * step["cpu_seconds"] / 3600
        hours.append(float(f"{spent:.{2 - (spent < 10)}g}"))
    told = (
        "the field of one seed takes about {:.0f} hours on NIV, {:.0f} on CrossTask and {:.0f} on"
    )
    yield "reproduce", f"for 200 epochs at T = 3, {told.format(*hours)} COIN"
    released = read("training-released")
    share = released["bfloat16"]["cpu_seconds"] / released["float32"]["cpu_seconds"]
    assert 0.45 < share < 0.55  # "takes about half"
    draws = read("few-videos-ikea")["draws"]
    edits = [mean(draw[name]["edit"] for draw in draws) for name in ("asformer", "segmental")]
    assert edits[0] < edits[1]  # "with worse steps"
    rows = [mean(draw[name]["frame"] for draw in draws) for name in ("asformer", "segmental")]
    yield (
        "which-method",
        "{:.1f} % of the rows right, the default {:.1f} (`few-videos-ikea.json`)".format(*rows),
    )
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
    first, *_ = read("judged-outside")["recognition"].values()
    ours, _, theirs, *_ = first.values()
    told = "had an edit score of {}; the predictions that ED-TCN's authors stored have {}"
    yield "README", told.format(ours["edit"], theirs["edit"])
    ahead = []  # on each set
    for scored in read("judged-outside")["recognition"].values():
        rows = [row if isinstance(row, list) else [row] for row in scored.values()]
        edits = [mean(seed["edit"] for seed in row) for row in rows]
        ahead.append([name for name, edit in zip(scored, edits, strict=True) if edit > edits[0]])
    _, (former, markov), gtea, slower = ahead
    assert former.startswith("official ASFormer")
    assert markov == "hidden Markov model of 60 lines"
    assert [[name.partition(",")[0] for name in names] for names in (gtea, slower)] == [
        ["official ASFormer"]
    ] * 2
    sets = [read(f"coverage-{name}")["conditions"] for name in ("ikea", "captaincook4d")]
    sizes = [one["3 steps, goal"]["sizes"]["plans 0.9"]["median"] for one in sets]
    assert sizes[1] > 100
    yield (
        "README",
        f"T = 3 the median set has {sizes[0]:.0f} plans on IKEA ASM and over 100 on CaptainCook4D",
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
        f"after ten right films; of the other {NUMBERS[len(unfound)]} {NUMBERS[silent]} is left "
        f"open, and in {NUMBERS[len(unfound) - silent]} another step is named",
    )
    yield (
        "README",
        f"The {right} right films have {NUMBERS[whole['false']]} false findings, and {doubt} are",
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
    (run,) = read("mistakes-in-films-ikea_asm")["runs"]
    cut, swapped = run["cut"], run["exchanged"]
    alarms = round(run["hours"] * cut["said"]["alarms_an_hour"])
    films = len(read("recognition-ikea")["test_videos"])
    counts = [round(one["made"] * one["said"]["found"] / 100) for one in (cut, swapped)]
    yield (
        "README",
        f"{counts[0]} of {cut['made']} steps that were cut out and {counts[1]} of "
        f"{swapped['made']} exchanges are found by one network at "
        f"{cut['said']['alarms_an_hour']} false alarms an hour, {NUMBERS[alarms]} in {films} films",
    )


def of_each(one: dict[str, Any]) -> list[list[float]]:
    """MiB of the processes of each service."""
    mib = one["mib"]
    return mib if one["machines"] > 1 else [mib]


def sentences_on_stations() -> Iterator[tuple[str, str]]:
    for page, file in (("serve", "stations-killed"), ("operate", "stations-valkey-killed")):
        (one,) = read(file)["results"]
        assert (one["lost"], one["twice"], one["kills"]) == (0, 0, 30)
        yield page, f"With {one['stations']} stations"
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
    told = "(a load of {} to {} with one process, of {} to {} with two; the service"
    yield "serve", told.format(*loads)
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
    yield "serve", f"`sessions-http.json`) missed none of {asked}"
    busy = [max(one["missed"] for one in http if one["sent"] == sent) for sent in spent]
    yield "serve", "they missed {} with rows and {} with pictures".format(*busy)
    first, *_, last = [(one["median_ms"] / 1000, one["p95_ms"] / 1000) for one in idle]
    yield "serve", "(median latency {:.2f} s, 95 % below {:.2f} s)".format(*first)
    yield "serve", "with one picture a second each ({:.2f} s, {:.2f} s)".format(*last)
    for one in (read("serve"), read("serve-captaincook4d")):
        assert one["memory"][-1]["requests"] == 10_000
    held = [read(name)["memory"][-1]["mib"] for name in ("serve", "serve-captaincook4d")]
    told = "held {:.0f} MiB on the simulated world of `cefito quickstart` and {:.0f} MiB on"
    yield "serve", f"After 10,000 requests the service {told.format(*held)}"
    flood = read("flood")["after"]
    waits = [flood[how][key] / 1000 for how in ("flooded", "alone") for key in ("p50_ms", "p99_ms")]
    told = "waited {:.1f} s in the median (99 %: {:.1f} s; alone {:.1f} s, {:.1f} s;"
    yield "serve", told.format(*waits)
    before = read("flood")["before (ec07608a)"]["flooded"]
    plans = before["statuses"]["plans"]["200"], before["plans"]
    yield "serve", "before gaps had a closed form, {} of {} plans were answered".format(*plans)
    assert "--upgrades 6 --sessions 20 " in read("upgrades")["command"]
    yield "operate", "Over six upgrades, with 20 sessions opened on each version"
    start, *after = ((one["after"], *one["mib"]) for one in read("upgrades")["results"])
    two = [mib for what, mib in after if "further sessions" in what]
    one = [mib for what, mib in after if "further sessions" not in what]
    ends = [f"{min(held):.0f} to {max(held):.0f}" for held in (one, two)]
    told = f"held {start[1]:.0f} MiB before any session, {ends[0]} MiB with the sessions of one"
    yield "operate", told
    yield "operate", f"version, and {ends[1]} MiB with those of two"
    every = read("stations-valkey")["results"]
    rows, shown = ([one for one in every if one["sent"] == of] for of in ("rows", "pictures"))
    costs = [
        [1000 * one["cpu_share"] / one["answered_per_second"] for one in of if one["stations"] >= 8]
        for of in (
            [one for one in rows if one["machines"] == one["processes"] == 1],
            [one for one in shown if one["machines"] == one["processes"] == 1],
        )
    ]
    rate = max(one["answered_per_second"] for one in shown if one["processes"] == 1)
    yield "operate", f"one process ends at about {rate:.0f} pictures a second"
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
    yield "operate", f"Valkey, a row took {kib:.1f} KiB in the median, {kib * 3600 / 1024:.0f} MiB an"
    told = f"1,280 numbers, {min(stored[1]):.0f} to {max(stored[1]):.0f} KiB, "
    yield "operate", f"{told}{picture * 3600 / 1024:.0f} MiB an hour and station"
    raised = [one for one in every if "priority" in one]
    (valkey, files) = [[half_up(one[key], "1") for key in ("p50_ms", "p95_ms")] for one in raised]
    told = "100 stations within {} ms in the median (95 %: {} ms), and with files instead of Valkey"
    yield "operate", told.format(*valkey) + " within {} ms ({} ms)".format(*files)
    quiet = read("stations-pictures")["results"]
    assert [one["lost"] for one in quiet] == [0] * 4
    fifty, hundred, fifty2, hundred2 = quiet
    assert (fifty["missed"], fifty2["missed"]) == (0, 0)
    told = "a median of {:.0f} ms (95 %: {:.0f} ms) from one process and {:.0f} ms ({:.0f} ms) from"
    yield (
        "operate",
        told.format(*(one[key] for one in (fifty, fifty2) for key in ("p50_ms", "p95_ms"))),
    )
    told = "answered {:.0f} pictures a second and two processes {:.0f}, and no acknowledged"
    yield "operate", told.format(*(one["answered_per_second"] for one in (hundred, hundred2)))


def test_sentences():
    missing = [(page, words) for page, words in sentences() if words not in text_of(page)]
    assert missing == []


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
