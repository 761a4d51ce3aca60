"""Runs from checkpoints of the paper's authors, see `cefito.planners.cefito.checkpoints`."""

from __future__ import annotations

from pathlib import Path

from cefito.files import new_folder, sha256
from cefito.planners.cefito.checkpoints import (
    CLASSIFIER,
    FIELD,
    Weights,
    from_checkpoint,
    with_classifier,
)
from cefito.runs.folder import DatasetReference, RunInfo, versions
from cefito.runs.run import Run, open_run, write_run


def import_field(
    checkpoint: Path,
    out: Path,
    *,
    taxonomy: Path,
    action_text: Path,
    classifier: Path | None = None,
    weights: Weights = "ema",
) -> Run:
    """Make a run folder of the authors' checkpoint of an energy field.

    The run has no data set of its own, so that its `run.json` names none. Action ids of `taxonomy`
    and of `action_text` are those of the checkpoint; both may be the authors' files.
    """
    planner, record = from_checkpoint(
        checkpoint, taxonomy=taxonomy, action_text=action_text, weights=weights
    )
    imported = {
        FIELD: record,
        "action text": {"file": action_text.name, "sha256": sha256(action_text)},
    }
    if classifier is not None:
        planner, imported[CLASSIFIER] = with_classifier(planner, classifier)
    info = RunInfo(
        format_version=1,
        method="cefito",
        dataset=DatasetReference(name=planner.taxonomy.dataset, path="", fingerprint=""),
        horizon=planner.horizon,
        seed=None,
        selection=None,
        preset="imported",
        config=planner.settings.model_dump(mode="json"),
        versions=versions(),
        finished=True,
        parameters=planner.describe().parameters,
        training={},
        tasks_without_training=(),
        imported=imported,
    )
    with new_folder(out) as folder:
        write_run(Run(folder=folder, planner=planner, info=info, taxonomy=planner.taxonomy))
    return open_run(out)
