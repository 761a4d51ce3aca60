"""`cefito compare`: planners beside each other on one data set, behind one protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, print_json, progress, talk
from cefito.cli.options import Flag, Settings, settings
from cefito.data.windows import Selection
from cefito.errors import ConfigError

if TYPE_CHECKING:
    from cefito.study.results import Results

MOST_SEEDS = 10_000
"""Most seeds of a comparison: each is a training of every planner at every horizon."""

__all__ = ["compare", "finish", "first_seeds", "numbers"]


def compare(
    dataset: Path,
    /,
    *,
    planners: str = "cefito,cefito-guided,viterbi,pdpp,pkg,pkg-beam,nearest,frequent",
    horizons: str = "3,4",
    seeds: int = 5,
    out: Path,
    preset: str = "small",
    selection: Selection = "held-out",
    sample: int | None = None,
    costly_sample: int = 100,
    workers: int = 1,
    executor: str | None = None,
    address: str | None = None,
    device: str = "auto",
    against: str | None = None,
    published: bool = True,
    set_: Settings = (),
    json: Flag = False,
) -> int:
    """Train and score planners on a prepared data set, and write their tables.

    What is there already is kept; repeat the command to go on after an interruption or a failure.
    The folder then holds results.json, and made from it tables.md, tables.tex and tables.csv.

    Args:
        dataset: Folder of a prepared data set.
        planners: Rows of the tables, with commas between, as cefito planners lists them: such as
            cefito (exact search), cefito-guided, cefito-no-energy, chain, viterbi, pdpp, pkg;
            with -true-task behind a name the true task is given. Or all (without oracles,
            ablations and, unless --set llm.model=NAME is given, language models). NAME:3 trains a
            slow one with the first three seeds only, as in all,schema:3.
        horizons: Numbers of actions, with commas between.
        seeds: How many seeds, from 0.
        out: Folder of the comparison.
        preset: paper, released, small, or the path of a .toml file.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test).
        sample: Score a fixed sample of so many test windows.
        costly_sample: Size of the sample that exact search is scored on where there are many
            candidates.
        workers: Seeds that are worked on at the same time, each in a process of its own.
        executor: serial (in this process), processes, or ray, which needs pip install cefito[ray];
            by default one worker works in this process, and several in processes of their own.
        address: Of a Ray cluster that runs, for the executor ray; by default it works on this
            machine.
        device: auto, cpu or cuda.
        against: The planner that the others are compared with; the first one by default.
        published: Show published results below the rule.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
        json: Print the results as JSON instead of tables.
    """
    from cefito.data.prepared import open_dataset
    from cefito.study.results import gather
    from cefito.study.study import Study, run_study
    from cefito.study.variants import ALL, find_rows

    changes = settings(set_)
    names, counts = _planners(planners)
    asks = ALL in names and _asks(preset, changes)
    rows = find_rows(names, language_model=asks)
    called = {row.name: row.name if row.name in names else ALL for row in rows}
    if against is not None and against not in {row.name for row in rows}:
        raise ConfigError(f"--against {against}: is not among the planners {planners}.")
    study = Study(
        dataset=open_dataset(dataset),
        out=out,
        rows=rows,
        horizons=numbers(horizons),
        seeds=first_seeds(seeds),
        fewer_seeds={row: counts[name] for row, name in called.items() if name in counts},
        preset=preset,
        settings=changes,
        selection=selection,
        sample=sample,
        costly_sample=costly_sample,
        device=device,
    )
    with log_warnings():
        problems = run_study(
            study, workers=workers, executor=executor, address=address, progress=progress
        )
    return finish(
        gather(study), out, against, problems, published="main" if published else "", json=json
    )


def finish(
    results: Results,
    out: Path,
    against: str | None,
    problems: Sequence[str],
    *,
    published: str,
    json: bool,
) -> int:
    """Write and show the results of a study.

    Args:
        results: As `gather` gives them.
        out: Folder to write into.
        against: The row that the others are compared with.
        problems: What went wrong, as `run_study` says.
        published: The published table whose rows are shown, as in `published_rows`; empty for none.
        json: Print JSON instead of tables.

    Returns:
        The exit code.
    """
    _write(results, out, against, published=published)
    if json:
        print_json(results.to_dict())
    else:
        _show(results, against, published=published)
    for problem in problems:
        talk(f"failed: {problem}", urgent=True)
    talk(f"wrote results.json, tables.md, tables.tex and tables.csv into {out}")
    return 1 if problems else 0


def _write(results: Results, out: Path, against: str | None, *, published: str) -> None:
    from cefito.files import write_text
    from cefito.study.csv_table import to_csv
    from cefito.study.rendering import latex, markdown
    from cefito.study.results import write_results
    from cefito.study.tables import result_tables

    write_results(results, out / "results.json")
    tables = result_tables(results, against=against, published=published)
    write_text(out / "tables.md", "\n".join(map(markdown, tables)))
    write_text(out / "tables.tex", "\n".join(map(latex, tables)))
    write_text(out / "tables.csv", to_csv(results))


def _show(results: Results, against: str | None, *, published: str) -> None:
    from cefito.cli.console import table
    from cefito.study.tables import result_tables

    marks = {0: "", 1: " ¹", 2: " ²"}
    for shown in result_tables(results, against=against, published=published):
        lines = [[entry.text + marks[entry.rank] for entry in line] for line in shown.lines]
        if shown.below:
            rule = ["— published —", *[""] * (len(shown.heads) - 1)]
            lines.insert(len(lines) - shown.below, rule)
        table(shown.title, shown.heads, lines)
        for note in shown.notes:
            talk(note)
        talk("")


def _asks(preset: str, changes: Mapping[str, str]) -> bool:
    """Whether a language model is named."""
    from cefito.planners.settings import load_config

    return bool(load_config(preset, method="llm-ends", overrides=changes).settings.llm.model)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _planners(text: str) -> tuple[list[str], dict[str, int]]:
    """Names of rows, and of those that have fewer seeds how many.

    Raises:
        ConfigError: Seeds that are no number.
    """
    names, counts = [], {}
    for part in _listed(text):
        name, colon, count = part.partition(":")
        names.append(name)
        if colon:
            if not count.isdecimal():
                raise ConfigError(
                    f"--planners {part}: expected a number of seeds behind the colon, as in "
                    f"{name}:3.",
                    setting="planners",
                )
            counts[name] = int(count)
    return names, counts


def first_seeds(count: int) -> tuple[int, ...]:
    """So many seeds, from 0.

    Raises:
        ConfigError: Fewer than one.
    """
    if count < 1:
        raise ConfigError(f"--seeds {count}: expected at least 1.")
    if count > MOST_SEEDS:
        raise ConfigError(f"--seeds {count}: expected at most {MOST_SEEDS:,}.")
    return tuple(range(count))


def numbers(text: str) -> tuple[int, ...]:
    """Horizons from text such as "3,4".

    Raises:
        ConfigError: Not such text.
    """
    parts = _listed(text)
    if not parts or not all(re.fullmatch(r"0*[1-9][0-9]{0,3}", part) for part in parts):
        raise ConfigError(f"--horizons {text}: expected numbers of actions, as in 3,4.")
    return tuple(int(part) for part in parts)
