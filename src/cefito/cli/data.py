"""`cefito data`: prepare, describe and check data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from cefito.cli.console import print_json, table, talk, wrote
from cefito.cli.download import download
from cefito.cli.options import Flag
from cefito.cli.prepare import app as prepare
from cefito.errors import ConfigError

__all__ = ["app"]

app = App(name="data", help="Prepare, describe and check data sets.")
app.command(prepare)
app.command(download)


@app.command
def info(path: Path, /, *, json: Flag = False, shared_actions: Flag = False) -> None:
    """Describe a prepared data set, or a folder with taxonomy.json and videos.jsonl.

    Args:
        path: Folder of either form.
        json: Print JSON instead of tables.
        shared_actions: Describe it in the taxonomy's shared vocabulary (CrossTask: 105 actions
            instead of 133).
    """
    from cefito.data.info import describe

    value = describe(path, shared_actions=shared_actions)
    if json:
        print_json(value)
        return
    kind = "prepared data set" if value["kind"] == "prepared" else "annotations, not prepared yet"
    facts = [
        ("name", value["name"]),
        ("kind", kind),
        *((key, value[key]) for key in ("tasks", "actions", "steps")),
        *(
            (
                f"{split} videos",
                f"{count['all']:,}"
                if count["all"] == count["in_protocol"]
                else f"{count['all']:,}, of which {count['in_protocol']:,} in the protocol",
            )
            for split, count in value["videos"].items()
        ),
        ("observation size", value["observation_dim"]),
        ("action text size", value["action_text_dim"]),
        ("observations", value.get("provenance", {}).get("observations")),
        ("fingerprint", value.get("fingerprint")),
    ]
    table(
        "Data set",
        ("what", "value"),
        [
            (what, f"{fact:,}" if isinstance(fact, int) else fact)
            for what, fact in facts
            if fact is not None
        ],
    )
    table("Windows", *_window_table(value))


@app.command(name="list")
def list_(
    path: Path,
    what: Literal["tasks", "actions", "videos"],
    /,
    *,
    task: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    json: Flag = False,
) -> None:
    """List the tasks, actions or videos of a data set, or the tasks or actions of a run.

    Args:
        path: Folder of a prepared data set, folder with taxonomy.json and videos.jsonl, or run
            folder.
        what: tasks, actions or videos.
        task: Name or id of a task: only it, its actions, or its videos.
        json: Print JSON instead of a table.
    """
    from cefito.data.listing import annotations_of, list_actions, list_tasks, list_videos
    from cefito.data.names import find_task
    from cefito.runs.folders import horizons_in
    from cefito.runs.info import RUN_FILE
    from cefito.runs.run import taxonomy_of_run

    of_run = (path / RUN_FILE).exists() or bool(horizons_in(path))
    annotations = None if of_run else annotations_of(path)
    taxonomy = taxonomy_of_run(path) if annotations is None else annotations.taxonomy
    wanted = None if task is None else find_task(taxonomy, task)
    if what == "videos":
        if annotations is None:
            raise ConfigError(
                f"{path}: a run has tasks and actions. Give its data set to list videos."
            )
        videos = list_videos(annotations, task=wanted)
        rows = [row.model_dump(mode="json") for row in videos]
        shown: list[dict[str, object]] = [
            {"id": row.id, "split": row.split, "task": row.task, "steps": len(row.steps)}
            for row in videos
        ]
    elif what == "tasks":
        rows = [row.model_dump() for row in list_tasks(taxonomy, annotations, task=wanted)]
        shown = rows
    else:
        actions = list_actions(taxonomy, annotations, task=wanted)
        rows = [row.model_dump(mode="json") for row in actions]
        shown = [
            {"id": row.id, "name": row.name, "tasks": ", ".join(row.tasks), "steps": row.steps}
            for row in actions
        ]
    if json:
        print_json(rows)
        return
    if not shown:
        talk(f"no {what}")
        return
    columns = [
        key for key in (shown[0] if shown else {}) if any(row[key] is not None for row in shown)
    ]
    table("", columns, [[_plain(row[key]) for key in columns] for row in shown])


def _plain(value: object) -> object:
    """A cell of a list; ids are to be copied, so they have no commas."""
    return str(value) if isinstance(value, int) else value


@app.command
def check(path: Path, /, *, json: Flag = False) -> None:
    """Check a prepared data set: its structure, its values and the SHA-256 of every file.

    Args:
        path: Folder of a prepared data set.
        json: Print JSON instead of a table.
    """
    from cefito.data.prepared import open_dataset

    dataset = open_dataset(path, verify=True)
    if json:
        print_json(
            {
                "ok": True,
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "files": dataset.hashes,
            }
        )
    else:
        table(
            f"{dataset.name}: whole and unchanged",
            ("file", "SHA-256"),
            sorted(dataset.hashes.items()),
        )


@app.command
def simulate(
    source: Path, target: Path, /, *, like: str = "s3d", seed: int = 0, shared_actions: Flag = False
) -> None:
    """Prepare annotated videos that have no features with SIMULATED observations.

    Args:
        source: Folder with taxonomy.json and videos.jsonl.
        target: Folder to write, which must not hold anything yet.
        like: Real features whose difficulty is matched.
        seed: Seed of the simulation.
        shared_actions: Use the taxonomy's shared vocabulary (CrossTask: 105 actions instead of
            133).
    """
    from cefito.data.simulation.simulate import simulate as run

    calibration = run(
        source, target, like=like, seed=seed, shared_actions=shared_actions, progress=talk
    )
    rows = calibration.rows()
    table(
        "Accuracy of a probe on simulated observations, per cent, beside what models read from "
        f"{like}",
        list(rows[0]),
        [list(row.values()) for row in rows],
    )
    talk(f"wrote {target}")


@app.command
def pad(source: Path, target: Path, /, *, horizon: int) -> None:
    """Repeat the first step of videos that are too short for a horizon, as PDPP, KEPP and MTID do.

    Without it they give no windows, as in the unified protocol.

    Args:
        source: Folder of a prepared data set.
        target: Folder to write, which must not hold anything yet.
        horizon: Number of actions that every video shall have at least.
    """
    from cefito.data.padding import pad_dataset
    from cefito.data.prepared import open_dataset

    dataset = pad_dataset(open_dataset(source), target, horizon=horizon)
    wrote(target, dataset)


@app.command
def world(target: Path, /, *, seed: int = 0) -> None:
    """Write the embedded world, a small SIMULATED data set to try everything on.

    Args:
        target: Folder to write, which must not hold anything yet.
        seed: Seed of the simulation.
    """
    from cefito.data.simulation.world import write_world

    dataset = write_world(target, seed=seed)
    wrote(target, dataset)


def _window_table(value: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    splits = list(value["videos"])
    held_out, candidates = value["held_out"], value["candidates"]
    columns = ["horizon", *splits]
    if held_out:
        columns += ["train after hold-out", "val held out"]
    columns += ["candidates, mean", "median"]
    rows: list[list[object]] = []
    for horizon, windows in value["windows"].items():
        held = [held_out[horizon][split] for split in ("train", "val")] if held_out else []
        numbers = candidates.get(horizon, {})
        rows.append(
            [
                int(horizon),
                *(windows[split] for split in splits),
                *held,
                numbers.get("mean"),
                numbers.get("median"),
            ]
        )
    return columns, rows
