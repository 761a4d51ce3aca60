"""The table of docs/results.md, made of the comparisons under benchmarks/results/.

python benchmarks/results_table.py            # write it into the page
python benchmarks/results_table.py FILE.json  # print all tables of a comparison
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np

from cefito.study.rendering import markdown
from cefito.study.results import Results
from cefito.study.tables import result_tables

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
DATASETS = {  # names of files, and how many seeds cells have that are not marked by *
    "captaincook4d": ("CaptainCook4D (real)", 5),
    "niv-simulated": ("NIV (simulated)", 3),
    "crosstask-simulated": ("CrossTask (simulated)", 1),
    "coin-simulated": ("COIN (simulated)", 1),
}
ROWS = {  # by the names that rows of these files have
    "cefito-guided": "CEFITO + chain",
    "chain": "chain",
    "viterbi": "ViterbiPlanNet",
    "cefito-energy-guided": "CEFITO",
    "kepp": "KEPP",
    "pkg-beam": "PKG, beam search",
    "pkg": "PKG, exact",
    "schema": "SCHEMA",
    "planllm": "PlanLLM, step decoder",
    "p3iv": "P3IV",
    "nearest": "nearest window",
    "mtid": "MTID",
    "pdpp": "PDPP",
    "frequent": "most frequent window",
    "cefito-guided-true-task": "CEFITO + chain, true task (oracle)",
    "cefito-energy-guided-true-task": "CEFITO, true task (oracle)",
}


def table() -> str:
    """Success rate / mean accuracy of all planners on all data sets, in Markdown."""
    columns = []
    for name, (title, seeds) in DATASETS.items():
        for horizon in (3, 4):
            file = ROOT / "benchmarks" / "results" / f"chain-{name}-T{horizon}.json"
            results = Results.read(file)
            cells = [_cell(results, horizon, row, seeds) for row in ROWS]
            columns.append([f"{title}, T = 3" if horizon == 3 else "T = 4", "---:", *cells])
    heads = ["planner", "---", *ROWS.values()]
    lines = zip(heads, *columns, strict=True)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(results: Results, horizon: int, row: str, seeds: int) -> str:
    trials = results.scored(horizon, row)
    if not trials:
        return "–"
    names = "success_rate", "mean_accuracy"
    means = np.mean([[trial.metrics[name] for name in names] for trial in trials], axis=0)
    return "/".join(f"{mean:.1f}" for mean in means) + "*" * (len(trials) != seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="results of a comparison")
    given = parser.parse_args()
    if given.file:
        print("\n".join(markdown(one) for one in result_tables(Results.read(given.file))))
        return
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(r"^\| planner \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: table(), page, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
