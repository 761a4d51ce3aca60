"""`cefito reproduce`: make a table or figure of the paper on a prepared data set."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.compare import finish, first_seeds, numbers
from cefito.cli.console import log_warnings, progress, talk
from cefito.cli.options import Flag, Settings, settings
from cefito.data.windows import Selection

__all__ = ["reproduce"]


def reproduce(
    table: str,
    dataset: Path,
    /,
    *,
    out: Path,
    preset: str = "small",
    seeds: int = 5,
    horizons: str | None = None,
    selection: Selection = "held-out",
    sample: int | None = None,
    costly_sample: int = 100,
    workers: int = 1,
    device: str = "auto",
    set_: Settings = (),
    json: Flag = False,
) -> int:
    """Make a table or figure of the paper: train what is missing, score, write tables and pictures.

    Repeat the command to continue after an interruption.

    Args:
        table: crosstask, coin, niv, ablation, text-encoder, negatives, classifier, oracle, runtime,
            or qualitative.
        dataset: Folder of a prepared data set.
        out: Folder for runs, results, tables and pictures.
        preset: paper, released, small, or the path of a .toml file.
        seeds: Number of seeds, from 0.
        horizons: Other numbers of actions than the paper's, separated by commas.
        selection: Windows that epochs and weights are chosen on: held-out (validation split), or
            published (test split).
        sample: Score a fixed sample of this many test windows.
        costly_sample: Size of the sample that exact search is scored on if there are many
            candidates.
        workers: Number of seeds that are worked on at the same time, each in its own process.
        device: auto, cpu or cuda.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
        json: Print the results as JSON instead of tables.
    """
    from cefito.data.prepared import open_dataset
    from cefito.study.reproduce import draw_experiment, experiment_study, find_experiment
    from cefito.study.results import gather
    from cefito.study.study import Study, check_study, missing_trials, run_study

    experiment, opened = find_experiment(table), open_dataset(dataset)
    study = experiment_study(
        table,
        Study(
            dataset=opened,
            out=out,
            rows=(),
            seeds=first_seeds(seeds),
            preset=preset,
            settings=settings(set_),
            selection=selection,
            sample=sample,
            costly_sample=costly_sample,
            device=device,
        ),
        horizons=None if horizons is None else numbers(horizons),
    )
    check_study(study, workers=workers)
    talk(
        f"{table}: {experiment.title}; {len(study.rows)} rows, T = "
        f"{', '.join(map(str, study.horizons))}, {seeds} seeds. Needs {experiment.needs}."
    )
    if experiment.dataset and not opened.name.startswith(experiment.dataset):
        talk(f"The paper's table is of {experiment.dataset}; this data set is '{opened.name}'.")
    with log_warnings():
        talk(f"{len(missing_trials(study))} of {len(study.trials)} scores are missing.")
        problems = run_study(study, workers=workers, progress=progress)
    results = gather(study)
    code = finish(
        results,
        out,
        experiment.against or None,
        problems,
        published=experiment.published,
        json=json,
    )
    with log_warnings():
        for picture in draw_experiment(table, study, results) if not problems else []:
            talk(f"drew {picture}")
    return code
