"""`cefito compare` and `reproduce`: planners beside each other, and results of the paper."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from cefito.cli.console import log_warnings, passing_progress, print_json, progress, table, talk
from cefito.cli.options import Settings, known_settings, settings
from cefito.cli.options import horizons as numbers
from cefito.cli.values import Flag
from cefito.data.folds import By
from cefito.data.prepared import open_dataset
from cefito.data.windows import Selection
from cefito.errors import ConfigError
from cefito.files import write_text
from cefito.markup import counted, csv_text
from cefito.planners.methods import SERVER, PlannerVariant, check_sections, find_method, load_config
from cefito.recognition.methods import RECOGNISERS
from cefito.runtime import pick_device
from cefito.settings import is_called
from cefito.training.trackers import TrackerName

if TYPE_CHECKING:
    from cefito.study.rendering import Table
    from cefito.study.results import Results
    from cefito.study.study import Study


MOST_SEEDS = 10_000
_OF_HORIZONS = "chain,cefito,cefito+chain,viterbi,pdpp,pkg,pkg-beam,nearest,frequent"
_ROWS = ", ".join(row for name in RECOGNISERS.shipped for row in RECOGNISERS[name].rows)
_Recognisers = Annotated[
    str | None,
    Parameter(
        help="Compare recognisers of steps in whole videos instead, separated by commas: "
        f"{_ROWS}, or of other packages (recogniser is that of a run); with --set "
        "recogniser.KEY=VALUE and the section recogniser of --preset. They have columns "
        "such as frame,edit,F1@50; a worker does one training at a time."
    ),
]
_IN_FILES = {  # columns that a terminal has no room for
    *("edit", "order SR", "bitwise mIoU", "top-5 SR", "ECE by chance", "SR at 50 %"),
    *("SR over seeds", "SR bootstrap width", "tokens/query", "parameters"),
}
_OF = {  # options of one kind of rows
    "planners": (
        *("planners", "horizons", "steps", "selection", "sample", "costly_sample"),
        "no_published",
    ),
    "recognisers": ("recognisers", "by", "folds"),
    "verifiers": ("verifiers", "graphs"),
}
_SINCE = {
    "planners": "windows of the split test are planned (cefito cross-validate has folds)",
    "recognisers": "whole videos are scored, not windows of steps",
    "verifiers": "they learn from the table alone, without seeds",
}
_OF_STUDY = ("out", "preset", "selection", "sample", "costly_sample", "device", "track")
_OF_LENGTHS = "any-length,chain,pkg,nearest,frequent"  # quick to train once for each length


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of commands that train and score planners.

    Attributes:
        out: Folder of the results.
        seeds: Number of seeds, from 0.
        seed: Work on this seed alone, as one of several jobs that share --out; the command without
            --seed and --only then makes the tables.
        only: Work on these rows alone, separated by commas, as one of several jobs.
        preset: paper, released, small, or the path of a .toml file.
        selection: Windows that epochs and weights are chosen on: held-out (validation split), or
            published (test split).
        sample: Score a fixed sample of this many test windows.
        costly_sample: Size of the sample that exact search is scored on if there are many
            candidates.
        workers: Number of seeds that are worked on at the same time, each in its own process.
        device: auto, cpu, cuda, or one of several, as cuda:1.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
        track: Program that gets the metrics of each epoch of trainings, too: tensorboard or wandb.
        columns: Columns of the tables of scores by their heads, as SR,mAcc,mIoU; by default all
            that are not empty.
        estimate: Say what the missing scores will take, if any are, and train none of them;
            --no-estimate trains them without saying it.
    """

    out: Path
    seeds: int = 5
    seed: int | None = None
    only: str | None = None
    preset: str = "small"
    selection: Selection = "held-out"
    sample: int | None = None
    costly_sample: int = 100
    workers: int = 1
    device: str = "auto"
    set_: Settings = ()
    track: TrackerName | None = None
    columns: str | None = None
    estimate: bool | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ConfigError(f"--seeds {self.seeds}: expected 1 to {MOST_SEEDS:,}.")

    @property
    def chosen_columns(self) -> list[str] | None:
        """The columns of the tables; None for all."""
        return None if self.columns is None else _names(self.columns)

    def check_columns(self) -> None:
        """Refuse columns that no table of scores has (ConfigError)."""
        from cefito.study.rendering import check_columns
        from cefito.study.tables import score_heads

        check_columns(self.chosen_columns, score_heads())

    def study(self, dataset: Path, **rest: Any) -> Study:
        """The study of these options on a data set, with the rest of its attributes."""
        from cefito.study.study import Study

        return Study(
            dataset=open_dataset(dataset),
            seeds=tuple(range(self.seeds)),
            only_seed=self.seed,
            only_rows=None if self.only is None else tuple(_names(self.only)),
            settings=settings(self.set_),
            **{name: getattr(self, name) for name in _OF_STUDY},
            **rest,
        )


def compare(
    dataset: Path,
    /,
    *,
    planners: str | None = None,
    horizons: str | None = None,
    steps: str | None = None,
    options: StudyOptions,
    executor: str | None = None,
    address: str | None = None,
    against: str | None = None,
    published: bool = True,
    recognisers: _Recognisers = None,
    verifiers: str | None = None,
    graphs: Path | None = None,
    by: By | None = None,
    folds: int | None = None,
    json: Flag = False,
) -> int:
    """Train and score planners or recognisers on a prepared data set, and write their tables.

    Args:
        dataset: Folder of a prepared data set; of verifiers, a table of steps.
        planners: Rows of the tables, separated by commas, as cefito planners lists them, or all
            (without ablations, and without language models unless --set llm.server names one);
            with -true-task behind a name the true task is given, with
            -stored-task the one that the data set stores. By default
            chain,cefito,cefito+chain,viterbi,pdpp,pkg,pkg-beam,nearest,frequent; with --steps
            any-length,chain,pkg,nearest,frequent.
        horizons: Numbers of actions, separated by commas; 3,4 by default.
        steps: Range of numbers of actions instead, as in 1-6: windows of all these lengths are
            planned without telling the length. Planners of one length are trained once for each,
            and plan the length that the any-length chain predicts.
        options: Training and scoring.
        executor: serial (in this process), processes, or ray, which needs the extra ray;
            by default one worker works in this process, and several in their own processes.
        address: Address of a running Ray cluster, for the executor ray; by default it works on this
            machine.
        against: The row that the others are compared with; the first one by default.
        published: Show published results below the rule.
        verifiers: Compare verifiers instead, which learn from the split train of a table with the
            columns split and error, and judge each step of the split test from those before it,
            separated by commas: never, always, after-first, late-step, unseen-step, unseen-pair,
            one-step-memory, count-graph, graph, ours; with --out, --columns, --graphs and --json
            alone.
        graphs: File of the right graphs of tasks, as cefito graph --out writes it, by which the
            graphs of verifiers have an F1 of edges.
        by: Score recognisers on all videos, of every split, each by one that was trained without
            its group (group), or in folds of videos (video), instead of on the split test.
        folds: Number of these folds; by default one for each group, or 5 of videos.
        json: Print the results as JSON instead of tables.
    """
    plain = vars(StudyOptions(out=options.out))
    given: dict[str, Any] = {
        **{name: value for name, value in vars(options).items() if value != plain[name]},
        **{"planners": planners, "horizons": horizons, "steps": steps, "verifiers": verifiers},
        **{"executor": executor, "address": address, "against": against, "graphs": graphs},
        **{"no_published": None if published else True, "by": by, "folds": folds},
    }
    kind = "recognisers" if recognisers else "verifiers" if verifiers else "planners"
    _check_given(kind, [name for name, value in given.items() if value is not None])
    if recognisers:
        how: dict[str, Any] = {"executor": executor, "address": address, "by": by, "folds": folds}
        return _compare_recognisers(dataset, _names(recognisers), options, json, against, how)
    if verifiers:
        from cefito.study.verifiers import compare_verifiers

        columns = options.chosen_columns
        shown, report = compare_verifiers(dataset, options.out, _names(verifiers), columns, graphs)
        _show_others([shown], report, json=json)
        talk(f"wrote verification.json, .md, .tex and .svg into {options.out}")
        return 0
    changes = known_settings(options.set_)
    options.check_columns()
    from cefito.executors import make_executor

    make_executor(executor, workers=options.workers, address=address)  # refused before it is paid
    if planners is None:
        planners = _OF_HORIZONS if steps is None else _OF_LENGTHS
    rows = _named_rows(planners, dataset, options.preset, changes)
    shortest, chosen = _lengths(horizons, steps)
    predictor = ["any-length"] * (shortest is not None)
    check_sections(changes if rows else (), [*(row.method for row in rows), *predictor])
    if against is not None and against not in {row.name for row in rows}:
        raise ConfigError(f"--against {against}: is not among the planners {planners}.")
    study = options.study(dataset, rows=rows, horizons=chosen, shortest=shortest)
    display = _Shown(options, against, "main" if published else "", json)
    return _worked_on(study, display, executor=executor, address=address)[0]


def _names(listed: str) -> list[str]:
    """Return names that are separated by commas."""
    return [name.strip() for name in listed.split(",") if name.strip()]


class _Shown(NamedTuple):
    """How results are shown."""

    options: StudyOptions
    against: str | None  # row that others are compared with
    published: str  # which published rows stand beside them
    json: bool
    ordered: bool = False  # rows as the study has them, not by success rate


def _worked_on(study: Study, shown: _Shown, **executor: Any) -> tuple[int, Results | None]:
    """Do what is missing, and show the results; return the exit code, and results of a whole study.

    If the work is interrupted, the tables are of what is scored.
    """
    from cefito.study.results import gather
    from cefito.study.running import run_study
    from cefito.study.trials import FailedTrial

    whole, workers = study.share == study.trials, shown.options.workers
    with log_warnings():
        try:
            told = _costs(study, shown.options)
            if told and shown.options.estimate:
                return 0, None
            problems = run_study(study, workers=workers, **told, **executor, progress=progress)
        except KeyboardInterrupt:
            results = gather(study)
            if whole and any(map(results.scored, results.horizons)):
                _finish(results, shown._replace(json=False), ())
            raise KeyboardInterrupt("interrupted; repeat the command to go on") from None
    if whole:
        results = gather(study)
        return _finish(results, shown, problems), results
    for problem in problems:
        talk(f"failed: {problem}", urgent=True)
    missing = sum(isinstance(trial.result, FailedTrial) for trial in study.trials)
    count, share = len(study.trials), len(study.share)
    _talk_of_share((share - len(problems), share), (count - missing, count))
    return 1 if problems else 0, None


def _talk_of_share(here: tuple[int, int], whole: tuple[int, int]) -> None:
    """Say how many scores of a job are done, of how many, and how many of the study are missing."""
    done = f"done here: {here[0]} of {counted(here[1], 'score')}"
    missing = f"missing in all: {whole[1] - whole[0]} of {whole[1]}"
    talk(f"{done}; {missing}. The command without --seed and --only makes the tables.")


def _named_rows(
    planners: str, dataset: Path, preset: str, changes: Mapping[str, Any]
) -> tuple[PlannerVariant, ...]:
    """Return rows by names that are separated by commas.

    Rows of "all" that cannot be asked are left out; those that are named are refused (ConfigError).
    """
    from cefito.planners.language_model.method import NO_PICTURES, NO_SERVER
    from cefito.study.trials import find_rows

    names = _names(planners)
    rows = find_rows(names)
    left: dict[str, list[str]] = {}
    for row in rows:
        if SERVER not in find_method(row.method).needs:
            continue
        overrides = {**changes, **row.settings}
        config = load_config(preset, method=row.method, overrides=overrides, shared=True)
        llm, problem = config.settings.llm, ""
        if not llm.address:
            problem = NO_SERVER
        elif llm.told == "pictures" and open_dataset(dataset).video_folder is None:
            problem = NO_PICTURES
        if problem and row.name in names:
            raise ConfigError(f"{row.name}: {problem}")
        if problem:
            left.setdefault(problem, []).append(row.name)
    for problem, listed in left.items():
        talk(f"left out {', '.join(listed)}: {problem}")
    gone = {name for listed in left.values() for name in listed}
    return tuple(row for row in rows if row.name not in gone)


def _check_given(kind: str, given: Sequence[str]) -> None:
    """Refuse options that have no meaning for a kind of rows (ConfigError)."""
    owner = {name: rows for rows, names in _OF.items() for name in names}
    for other in given:
        if other in _OF and other != kind:
            raise ConfigError(f"--{kind} and --{other}: give one of them.")
    wrong = [
        f"--{name.strip('_').replace('_', '-')}"
        for name in given
        if owner.get(name, "" if kind == "verifiers" else kind) != kind and name != "columns"
    ]
    if wrong:
        problem = f"{', '.join(wrong)} {'has' if len(wrong) == 1 else 'have'} no meaning, since"
        raise ConfigError(f"--{kind}: {problem} {_SINCE[kind]}.")
    if "folds" in given and "by" not in given:
        raise ConfigError("--folds is of --by group or --by video. Give it, too.")


def _compare_recognisers(
    dataset: Path,
    names: Sequence[str],
    options: StudyOptions,
    json: bool,
    against: str | None,
    how: Mapping[str, Any],
) -> int:
    """Compare recognisers, and return the exit code; `how` has the executor and folds."""
    from cefito.study.recognition import compare_recognisers
    from cefito.study.study import check_share

    only, seeds = None if options.only is None else _names(options.only), range(options.seeds)
    check_share(only, names, options.seed, seeds)
    tables, report = compare_recognisers(
        open_dataset(dataset),
        options.out,
        names,
        seeds,
        progress,
        _of_recognisers(known_settings(options.set_)),
        only=only,
        seed=options.seed,
        preset=options.preset,
        device=str(pick_device(options.device)),
        columns=options.chosen_columns,
        against=against,
        track=options.track,
        workers=options.workers,
        say=None if options.estimate is False else talk,
        estimate=options.estimate is True,
        **how,
    )
    if "videos" not in report:  # it was an estimate
        return 0
    whole = "done" not in report
    if whole:
        _show_others(tables, report, json=json)
    for problem in report["failed"]:
        talk(f"failed: {problem}", urgent=True)
    if whole:
        talk(f"wrote recognition.json, .md and .tex into {options.out}")
    else:
        _talk_of_share(*report["done"])
    return 1 if report["failed"] else 0


def _show_others(tables: Sequence[Table], report: Mapping[str, Any], *, json: bool) -> None:
    """Show what was scored of recognisers or verifiers."""
    if json:
        print_json(report)
        return
    said = set[str]()
    for shown in tables:
        _fitting(shown.title, shown.heads, [[entry.text for entry in one] for one in shown.lines])
        said = _talk_anew(shown.remarks, said)


def _talk_anew(notes: Sequence[str], said: Collection[str]) -> set[str]:
    """Say notes that earlier tables did not say; return all that were said."""
    for note in notes:
        if note not in said:
            talk(note)
    return {*said, *notes}


def _of_recognisers(changes: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the section recogniser by their names there (ConfigError)."""
    for key in changes:
        if not key.startswith("recogniser.") or key == "recogniser.method":
            problem = "expected a setting of recognisers, as recogniser.members=1"
            raise ConfigError(f"--set {key}: {problem}; rows choose the method.")
    return {key.removeprefix("recogniser."): value for key, value in changes.items()}


def _lengths(horizons: str | None, steps: str | None) -> tuple[int | None, tuple[int, ...]]:
    """The shortest length, if windows of a range are scored, and the horizons."""
    if steps is None:
        return None, numbers("3,4" if horizons is None else horizons, "--horizons")
    if horizons is not None:
        raise ConfigError(
            "expected --horizons 3,4, lengths that planners are told, or --steps 1-6, a range that "
            "they are not told, not both."
        )
    from cefito.inference.question import steps_range

    shortest, longest = steps_range(steps)
    return shortest, (longest,)


def _costs(study: Study, options: StudyOptions) -> dict[str, Any]:
    """Say what the missing scores will take, and which rows a setting does not reach.

    Return the arguments with which `run_study` estimates the time left; none if none is needed.
    """
    from cefito.study.costs import estimated_costs
    from cefito.study.results import changes_of_results
    from cefito.study.running import missing_trials
    from cefito.study.study import check_study

    check_study(study, workers=options.workers)
    for key, names in study.unreached.items():
        missed = names if len(names) < len(study.rows) else ["any row"]
        talk(f"--set {key} does not reach {', '.join(missed)}")
    trials = missing_trials(study)
    if not trials:
        return {}
    if others := [trial.label for trial in trials if trial.is_of_others]:
        listed = "; ".join(others[:3]) + "; …" * (len(others) > 3)
        talk(f"{study.out} has scores of other settings, data or code, which stay there: {listed}")
        if said := changes_of_results(study):
            talk(f"it differs in {said}")
    if options.estimate is False:
        return {}
    costs = estimated_costs(study, trials, workers=options.workers, progress=passing_progress)
    talk(costs.words)
    return costs.telling(talk, lambda trial: trial.label)


def _finish(results: Results, how: _Shown, problems: Sequence[str]) -> int:
    """Write and show the results and problems of a study, and return the exit code."""
    from cefito.study.rendering import latex, markdown
    from cefito.study.results import RESULTS
    from cefito.study.tables import result_tables, score_lines

    options, against, published, json, ordered = how
    tables = result_tables(results, against=against, published=published, ordered=ordered)
    out = options.out
    shown_heads = {head for shown in tables for head in shown.heads}
    if lacking := [head for head in options.chosen_columns or () if head not in shown_heads]:
        talk(
            f"no score has {', '.join(lacking)}: it does not apply, or is newer than the scores. "
            f"To score the runs again, remove {out}/T*/seed*/trials and repeat the command"
        )
    tables = [shown.of_columns(options.chosen_columns) for shown in tables]
    results.write(out / RESULTS)
    write_text(out / "tables.md", "\n".join(map(markdown, tables)))
    write_text(out / "tables.tex", "\n".join(map(latex, tables)))
    write_text(out / "scores.csv", csv_text(score_lines(results)))
    if json:
        print_json(results.to_dict())
    else:
        _show(tables, every=options.columns is not None)
    for problem in problems:
        talk(f"failed: {problem}", urgent=True)
    written = f"{RESULTS}, scores.csv, tables.md and tables.tex"
    talk(f"wrote {written} into {out}; the tables explain their columns")
    if problems:
        talk(f"error: {len(problems)} of {len(results.trials)} trials failed.", urgent=True)
    return 1 if problems else 0


def _fitting(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Show a table, in a terminal the first columns that it has room for."""
    fitting, width = len(heads), 1
    if sys.stdout.isatty():
        for place, column in enumerate(zip(heads, *lines, strict=True)):
            width += max(map(len, column)) + 3
            if width > shutil.get_terminal_size().columns:
                fitting = max(2, place)
                break
    table(title, heads[:fitting], [line[:fitting] for line in lines])
    if fitting < len(heads):
        talk(f"in the files, too: {', '.join(heads[fitting:])}")


def _show(tables: Sequence[Table], *, every: bool) -> None:
    marks, said = {0: "", 1: " ¹", 2: " ²"}, {""}
    for shown in tables:
        kept = [place for place, head in enumerate(shown.heads) if every or head not in _IN_FILES]
        heads = [shown.heads[place] for place in kept]
        lines = [
            [line[place].text + marks[line[place].rank] for place in kept] for line in shown.lines
        ]
        if shown.below:
            rule = ["— published —", *[""] * (len(heads) - 1)]
            lines.insert(len(lines) - shown.below, rule)
        _fitting(shown.title, heads, lines)
        if any(entry.rank for line in shown.lines for entry in line):
            talk("¹ the best of a column, ² the second best")
        said = _talk_anew([shown.legend, *shown.notes], said)
        talk("")


def reproduce(
    table: str,
    dataset: Path,
    /,
    *,
    planners: str = "",
    horizons: str | None = None,
    options: StudyOptions,
    json: Flag = False,
) -> int:
    """Make a table or figure of the paper: train what is missing, score, write tables and pictures.

    Args:
        table: crosstask, coin, niv, ablation, text-encoder, negatives, classifier, oracle, runtime,
            or qualitative.
        dataset: Folder of a prepared data set; for crosstask, coin and niv also the repository of
            the paper's authors with its features, which is prepared into OUT/data as they read it.
        planners: Further rows, as those of cefito compare, separated by commas: the paper's tables
            also list kepp, schema, mtid, p3iv, pkg, planllm and language models; all adds every
            one. Training them takes far longer than the rest. Published figures stand beside
            without it.
        horizons: Other numbers of actions than the paper's, separated by commas.
        options: Training and scoring.
        json: Print the results as JSON instead of tables.
    """
    changes = known_settings(options.set_)
    options.check_columns()
    from cefito.cli.prepare import Observed, prepare_benchmark
    from cefito.study.reproduce import experiment_study, find_experiment
    from cefito.study.running import missing_trials
    from cefito.study.study import check_study

    experiment = find_experiment(table)
    if experiment.dataset and (dataset / "dataset").is_dir():
        given, dataset = dataset, options.out / "data"
        if not dataset.exists():
            observed = Observed(beyond="rewrite")  # type: ignore[call-arg]
            prepare_benchmark(experiment.dataset, annotations=given, out=dataset, observed=observed)
    elif experiment.dataset and not (dataset / "dataset.json").exists():
        problem = "is neither a prepared data set nor the repository of the paper's authors"
        raise ConfigError(f"{dataset}: {problem}, which holds a folder 'dataset'.")
    others = None if horizons is None else numbers(horizons, "--horizons")
    further = _named_rows(planners, dataset, options.preset, changes)
    study = experiment_study(table, options.study(dataset, rows=further), horizons=others)
    check_sections(study.settings, (row.method for row in study.rows))
    check_study(study, workers=options.workers)
    talk(
        f"{table}: {experiment.title}; {counted(len(study.rows), 'row')}, T = "
        f"{', '.join(map(str, study.horizons))}, {counted(options.seeds, 'seed')}. "
        f"Needs {experiment.needs}."
    )
    name = study.dataset.name
    if experiment.dataset and not is_called(name, experiment.dataset):
        talk(f"The paper's table is of {experiment.dataset}; this data set is '{name}'.")
    talk(f"{len(missing_trials(study))} of {len(study.share)} scores are missing.")
    against, published = experiment.against or None, experiment.published
    shown = _Shown(options, against, published, json, experiment.ordered)
    code, results = _worked_on(study, shown)
    if experiment.draw and results is not None and not code:
        with log_warnings():
            for picture in experiment.draw(study, results, study.out):
                talk(f"drew {picture}")
    return code
