"""`cefito import-checkpoint`: weights of others as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cefito.cli.console import talk
from cefito.errors import ConfigError

__all__ = ["import_checkpoint"]


def import_checkpoint(
    file: Path,
    /,
    *,
    kind: Literal["cefito", "task-classifier"],
    out: Path,
    taxonomy: Path | None = None,
    action_text: Path | None = None,
    classifier: Path | None = None,
) -> None:
    """Make a run of a checkpoint that the authors' code wrote.

    The run plans by the energy alone over the actions that the taxonomy lists for a task. Horizon
    and sizes follow from the file. Nothing pickled is loaded.

    Args:
        file: The checkpoint (.pth).
        kind: cefito: an energy field, which makes a new run; task-classifier: put a task classifier
            into the run at --out, in the place of the one it has.
        out: Run folder: a new one for a field, an existing one for a classifier.
        taxonomy: Of a field: taxonomy.json whose action ids are those of the checkpoint.
        action_text: Of a field: .npy file of the action names' text embeddings that it was trained
            with, row = action id.
        classifier: Of a field: checkpoint of a task classifier to go with it; without one, tasks
            must be given to plan.
    """
    if kind == "cefito" and (taxonomy is None or action_text is None):
        raise ConfigError(
            "--kind cefito needs --taxonomy (taxonomy.json) and --action-text (a .npy file): a "
            "checkpoint holds neither names nor text embeddings of its actions."
        )
    if kind == "task-classifier" and any(
        given is not None for given in (taxonomy, action_text, classifier)
    ):
        raise ConfigError(
            "--kind task-classifier takes --out alone: the run there knows tasks and actions."
        )
    from cefito.planners.shared.task_model import TaskModel
    from cefito.runs.checkpoints import import_classifier, import_field

    if taxonomy is not None and action_text is not None:
        run = import_field(
            file, out, taxonomy=taxonomy, action_text=action_text, classifier=classifier
        )
    else:
        run = import_classifier(file, out)
    parameters = run.info.parameters
    sizes = ", ".join(f"{title} of {count:,} parameters" for title, count in parameters.items())
    task = "" if TaskModel.title in parameters else " --task ID"
    talk(
        f"wrote {out}: T = {run.horizon}, {sizes}; plan with: cefito plan {out} --initial A.npy "
        f"--goal B.npy{task}"
    )
