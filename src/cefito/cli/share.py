"""Commands that share runs: `cefito report`, `export`, and checkpoints of the authors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from cefito.cli.console import log_warnings, print_json, progress, table, talk, word
from cefito.cli.options import Device, RunFolder, check_split, given_options
from cefito.cli.values import Flag, said_as_json
from cefito.errors import ConfigError
from cefito.files import check_target
from cefito.runtime import pick_device

if TYPE_CHECKING:
    from cefito.report import ComparisonReport, RunReport


Licence = Annotated[str, Parameter(name="--license")]


_ONE_FORM = "give a zip file (with --license), --checkpoint FIELD.pth or --onnx FOLDER alone."


@said_as_json
def export(
    run: RunFolder,
    file: Path | None = None,
    /,
    *,
    license_name: Licence = "",
    checkpoint: Path | None = None,
    onnx: Path | None = None,
) -> dict[str, Any]:
    """Write the files for planning with a run into a zip file, with a model card.

    Args:
        file: Zip file to write.
        license_name: Licence of the weights, an SPDX identifier such as CC-BY-4.0, for the card.
        checkpoint: Instead of a zip file, a checkpoint (.pth) of the energy field to write, as the
            code of the paper's authors reads it, with the vectors of the actions and the task
            classifier beside it.
        onnx: Instead of a zip file, a new folder of ONNX to write (extra onnx): recogniser,
            follower, planner's scores and encoder, for devices with onnxruntime alone.
    """
    from cefito.evaluation.sharing import export_field, export_run

    if onnx is not None:
        return _export_onnx(run, onnx, alone=not (file or checkpoint or license_name))
    with log_warnings():
        if checkpoint is not None and file is None and not license_name:
            check_target(checkpoint, (".pth",), "checkpoint")
            files = export_field(run, checkpoint)
            talk(f"wrote {', '.join(map(str, files))}")
        elif file is not None and checkpoint is None:
            export_run(run, file, license_name=license_name)
            files = [file]
            size = f"{file.stat().st_size:,} bytes"
            talk(f"wrote {file}: {size}; plan with: cefito plan {word(file)} …")
        else:
            raise ConfigError(_ONE_FORM)
    return {"files": [{"file": str(path), "bytes": path.stat().st_size} for path in files]}


def _export_onnx(run: Path, folder: Path, *, alone: bool) -> dict[str, Any]:
    """Write a run as a folder of ONNX."""
    from cefito.export.folder import export_onnx
    from cefito.runs.run import open_run

    if not alone:
        raise ConfigError(_ONE_FORM)
    with log_warnings():
        exported = export_onnx(open_run(run), folder)
    rows = [(name, round(one.bytes / 2**20, 1), one.opset) for name, one in exported.files.items()]
    table("", ("file", "MiB", "opset"), rows)
    for part, reason in exported.left_out.items():
        talk(f"no {part}: {reason}")
    files = [
        {"file": str(folder / name), "bytes": one.bytes} for name, one in exported.files.items()
    ]
    return {"files": files, "left_out": exported.left_out}


@said_as_json
def import_checkpoint(
    file: Path,
    /,
    *,
    taxonomy: Path,
    action_text: Path,
    out: Path,
    classifier: Path | None = None,
    weights: Literal["ema", "raw"] = "ema",
) -> dict[str, Any]:
    """Make a run of a checkpoint of an energy field that the authors' code wrote.

    Args:
        file: The checkpoint (.pth).
        taxonomy: The taxonomy with the checkpoint's action ids, taxonomy.json or as the authors
            write it.
        action_text: Text embeddings of the action names that it was trained with, .npy [K, W], row
            = action id, or as the authors write them.
        out: New run folder.
        classifier: Checkpoint of a task classifier to go with it; without one, tasks must be given
            to plan.
        weights: ema (averaged, which the authors evaluate) or raw.
    """
    from cefito.evaluation.sharing import import_field

    with log_warnings():
        run = import_field(
            file,
            out,
            taxonomy=taxonomy,
            action_text=action_text,
            classifier=classifier,
            weights=weights,
        )
    parameters = run.info.parameters
    sizes = ", ".join(f"{title} of {count:,} parameters" for title, count in parameters.items())
    task = " --task ID" if classifier is None else ""
    asked = f"cefito plan {word(out)} --initial A.npy --goal B.npy{task}"
    talk(f"wrote {out}: T = {run.horizon}, {sizes}; plan with: {asked}")
    return {"run": str(out), "horizon": run.horizon, "parameters": parameters}


_Given = given_options("without_goal", "after_done", "with_elapsed")
_OBSERVATIONS = _Given()


def report(
    place: Path,
    /,
    *,
    out: Path | None = None,
    split: str = "test",
    given: _Given = _OBSERVATIONS,  # type: ignore[valid-type]
    sample: int | None = None,
    queries: int = 300,
    dataset: Path | None = None,
    videos: Path | None = None,
    without_frames: Flag = False,
    horizon: int | None = None,
    steps: str | None = None,
    device: Device = "auto",
    json: Flag = False,
) -> int:
    """Write a report of a run or of a comparison: one HTML file that needs no network.

    Args:
        place: Run folder, as cefito train makes it, or the folder of a comparison, as cefito
            compare makes it.
        out: The .html file to write.
        split: Of a run: train, val or test.
        sample: Of a run: score a fixed random sample of this many windows.
        queries: Of a run: how many queries the gallery shows at most, a fixed random sample.
        dataset: Of a run: where its data set is, if not where it was trained, or another one to
            score it on.
        videos: Of a run: folder of the data set's videos, found by their ids, if not where the
            data set says. The gallery then shows a frame of each query's start and end, up to 6 kB
            each and 3 MB in all.
        without_frames: Of a run: show no frames.
        horizon: Of a folder that holds runs of several: number of actions.
        steps: Of a run of several lengths: numbers of steps of the plans, one (3) or a range (2-4);
            all by default.
        json: Print the same numbers as JSON.
    """
    from cefito.report import report_comparison, report_run, save_report
    from cefito.runs.run import run_for_steps
    from cefito.study.results import RESULTS

    if out is None and not json:
        raise ConfigError("nothing to write: give --out report.html, or --json.")
    check_split(split)
    if videos is not None and without_frames:
        raise ConfigError("--videos and --without-frames exclude each other; give one.")
    if out is not None:
        check_target(out, (".html",), "target")
    with log_warnings():
        document: RunReport | ComparisonReport
        if (place / RESULTS).exists():
            document = report_comparison(place)
        elif (place / "recognition.json").exists():
            problem = "is a comparison of recognisers, whose tables are recognition.md and .tex"
            raise ConfigError(f"{place} {problem}. There are reports of planners and runs.")
        elif any(place.glob("T*/seed*/trials")):
            problem = f"is a comparison without {RESULTS}"
            remedy = "Repeat its cefito compare without --seed and --only, which writes the file"
            raise ConfigError(f"{place} {problem}. {remedy}.")
        else:
            document = report_run(
                run_for_steps(place, horizon=horizon, steps=steps, device=pick_device(device)),
                split=split,
                sample=sample,
                dataset=dataset,
                queries=queries,
                videos=videos,
                frames=not without_frames,
                progress=progress,
                **given.given(),  # type: ignore[attr-defined]
            )
    if out is not None:
        save_report(document, out)
        talk(f"wrote {out}: {document.title}, {out.stat().st_size / 1e3:,.0f} kB")
    if json:
        print_json(document.to_dict())
    return 0
