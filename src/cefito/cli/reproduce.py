"""`cefito reproduce`: make a table or figure of the paper on a prepared data set."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.compare import StudyOptions, finish
from cefito.cli.console import log_warnings, progress, talk
from cefito.cli.options import Flag, known_settings
from cefito.cli.options import horizons as numbers
from cefito.markup import counted

__all__ = ["reproduce"]


def reproduce(
    table: str,
    dataset: Path,
    /,
    *,
    horizons: str | None = None,
    options: StudyOptions,
    json: Flag = False,
) -> int:
    """Make a table or figure of the paper: train what is missing, score, write tables and pictures.

    Repeat the command to continue after an interruption.

    Args:
        table: crosstask, coin, niv, ablation, text-encoder, negatives, classifier, oracle, runtime,
            or qualitative.
        dataset: Folder of a prepared data set.
        horizons: Other numbers of actions than the paper's, separated by commas.
        options: Training and scoring.
        json: Print the results as JSON instead of tables.
    """
    known_settings(options.set_)
    from cefito.planners.methods import check_sections
    from cefito.study.reproduce import draw_experiment, experiment_study, find_experiment
    from cefito.study.results import gather
    from cefito.study.running import missing_trials, run_study
    from cefito.study.study import check_study

    experiment = find_experiment(table)
    others = None if horizons is None else numbers(horizons, "--horizons")
    study = experiment_study(table, options.study(dataset, rows=()), horizons=others)
    check_sections(study.settings, (row.method for row in study.rows))
    check_study(study, workers=options.workers)
    talk(
        f"{table}: {experiment.title}; {counted(len(study.rows), 'row')}, T = "
        f"{', '.join(map(str, study.horizons))}, {counted(options.seeds, 'seed')}. "
        f"Needs {experiment.needs}."
    )
    name = study.dataset.name
    if experiment.dataset and not name.startswith(experiment.dataset):
        talk(f"The paper's table is of {experiment.dataset}; this data set is '{name}'.")
    with log_warnings():
        talk(f"{len(missing_trials(study))} of {len(study.trials)} scores are missing.")
        problems = run_study(study, workers=options.workers, progress=progress)
    results, against = gather(study), experiment.against or None
    code = finish(
        results, options.out, against, problems, published=experiment.published, json=json
    )
    with log_warnings():
        for picture in draw_experiment(table, study, results) if not problems else []:
            talk(f"drew {picture}")
    return code
