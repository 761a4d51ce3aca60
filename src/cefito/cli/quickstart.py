"""`cefito quickstart`: the library once, in minutes, on an embedded world or on real videos."""

from __future__ import annotations

import time
from pathlib import Path

from cefito.cli.console import log_warnings, progress, table, talk
from cefito.cli.evaluate import metric_cells, metric_columns
from cefito.cli.options import Flag


def quickstart(*, real: Flag = False, out: Path | None = None, seed: int = 0) -> None:
    """Make a small simulated world, train on it, plan its test videos, write a report.

    Two simple planners are scored for comparison. Repeat it to go on after an interruption.

    Args:
        real: Download features of 383 real kitchen videos (CaptainCook4D, 5 MB), train the chain
            on them alone, plan the test videos.
        out: Folder for data set, run and report; by default runs/quickstart, with --real
            runs/quickstart-real.
        seed: Seed of world and training.
    """
    from cefito.files import user_cache
    from cefito.report import report_run, save_report
    from cefito.study.quickstart import REAL, run_quickstart, run_real_quickstart

    started = time.monotonic()
    out = out or Path("runs", "quickstart-real" if real else "quickstart")
    with log_warnings():
        if real:
            downloads = user_cache(REAL)
            talk(f"files: {downloads} (CaptainCook4D: annotations MIT, features Apache-2.0)")
            made = run_real_quickstart(out, downloads=downloads, seed=seed, progress=progress)
        else:
            made = run_quickstart(out, seed=seed, progress=progress)
        report = out / "report.html"
        save_report(report_run(made.run, frames=False, progress=progress), report)
    first, columns = made.evaluations[0], metric_columns(made.evaluations)
    rows = [
        [
            f"{evaluation.planner}, true task" if evaluation.oracle_task else evaluation.planner,
            *metric_cells(evaluation, columns),
            f"{1000 * evaluation.seconds_per_query:.1f}",
        ]
        for evaluation in made.evaluations
    ]
    table(
        f"{first.dataset}: {first.windows} test windows, T = {first.horizon}; per cent",
        ("planner", *columns.values(), "ms a query"),
        rows,
    )
    for example in made.examples:
        task = example.true_task_name
        if example.predicted_task_name != task:
            task += f" (taken for: {example.predicted_task_name})"
        lines = [
            (f"{100 * (plan.probability or 0):.1f} %", " → ".join(plan.names), mark)
            for plan in example.plans
            for mark in ["annotated" if plan.names == example.true_names else ""]
        ]
        title = f"\n{task} – {example.video}, from step {example.from_step}\n"
        title += f"  annotated: {' → '.join(example.true_names)}"
        table(title, ("probability", "plan", ""), lines)
    seconds = time.monotonic() - started
    talk(f"\nDone in {seconds:.0f} s. Everything is in {out}; look at {report}.")
    example = made.examples[0]
    talk(
        "What next:\n"
        f"  one plan          cefito plan {out}/run --video {example.video} --from-step "
        f"{example.from_step}\n"
        "  your own videos   cefito data prepare custom STEPS.csv DATA --features FOLDER, then "
        "cefito train DATA --steps 1-6 --out RUN\n"
        f"  {_LAST_REAL.format(out=out) if real else _LAST}"
    )


_LAST = "the paper's size  cefito train DATA --horizon 3 --method cefito --preset paper --out RUN"
_LAST_REAL = (
    "other planners    cefito compare {out}/data --planners all --horizons 3 --seeds 1 --out CMP"
)
