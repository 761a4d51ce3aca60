"""`cefito data`: describe, simulate and download data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from cyclopts import App

from cefito.cli.console import print_json, progress, table, talk, wrote
from cefito.cli.prepare import app as prepare
from cefito.cli.prepare import steps, subtasks
from cefito.cli.values import Json, said_as_json
from cefito.files import write_json
from cefito.inference.question import steps_range
from cefito.locks import new_folder
from cefito.markup import counted

app = App(name="data", help="Prepare and describe data sets.")
app.command(prepare)
app.command(steps)
app.command(subtasks)


@app.command
def info(path: Path, /, *, steps: str = "1-6", json: Json = False) -> None:
    """Describe a prepared data set, or a folder with taxonomy.json and videos.jsonl.

    Args:
        path: Folder of either form.
        steps: Numbers of actions of the windows that are counted: one (3) or a range (1-6).
    """
    from cefito.data.info import describe

    shortest, longest = steps_range(steps)
    value = describe(path, horizons=range(shortest, longest + 1))
    if json:
        print_json(value)
        return
    kind = "prepared data set" if value["kind"] == "prepared" else "annotations, not prepared yet"
    facts = {"name": value["name"], "kind": kind}
    facts |= {key: f"{value[key]:,}" for key in ("tasks", "actions", "steps")}
    for split, count in value["videos"].items():
        outside = count["all"] - count["in_protocol"]
        more = f", of which {count['in_protocol']:,} in the protocol" if outside else ""
        facts[f"{split} videos"] = f"{count['all']:,}{more}"
    if value["groups"]:
        few, many = (end(value["groups"].values()) for end in (min, max))
        facts["groups"] = f"{len(value['groups'])}, of {few} to {many} videos"
    facts["observation size"] = value.get("observation_dim")
    facts["action text size"] = value.get("action_text_dim")
    facts["observations"] = value.get("provenance", {}).get("observations")
    facts["fingerprint"] = value.get("fingerprint")
    rows = [(what, fact) for what, fact in facts.items() if fact is not None]
    table("Data set", ("what", "value"), rows)
    splits, held_out = list(value["videos"]), value["held_out"]
    columns = ["horizon", *splits]
    if held_out:
        columns += ["train after hold-out", "val held out"]
    windows: list[list[object]] = []
    for horizon, counts in value["windows"].items():
        held = [held_out[horizon][split] for split in ("train", "val")] if held_out else []
        numbers = value["candidates"].get(horizon, {})
        candidates = [numbers.get("mean"), numbers.get("median")]
        windows.append([int(horizon), *(counts[split] for split in splits), *held, *candidates])
    table("Windows", [*columns, "candidates, mean", "median"], windows)
    if errors := value["errors"]:
        rows = [(kind, f"{count:,}") for kind, count in errors["kinds"].items()]
        wrong, missing = counted(errors["videos"], "video"), counted(errors["missing"], "step")
        table(f"Errors: in {wrong}; {missing} left out", ["kind", "steps"], rows)


@app.command
@said_as_json
def simulate(source: Path, target: Path, /, *, seed: int = 0) -> dict[str, Any]:
    """Prepare annotated videos that have no features with SIMULATED observations.

    Args:
        source: Folder with taxonomy.json and videos.jsonl.
        target: New folder.
        seed: Seed of the simulation.
    """
    from cefito.data.simulation.observations import simulate as run

    return wrote(target, run(source, target, seed=seed))


@app.command
@said_as_json
def world(target: Path, /, *, seed: int = 0) -> dict[str, Any]:
    """Write the embedded world, a small SIMULATED data set to try everything on.

    Args:
        target: New folder.
        seed: Seed of the simulation.
    """
    from cefito.data.simulation.world import write_world

    return wrote(target, write_world(target, seed=seed))


@app.command
@said_as_json
def procedure(text: Path, target: Path, /) -> dict[str, Any]:
    """Make tasks, actions and their order of a written work instruction.

    Args:
        text: Lines "# task" and "1. step", "2. step (optional)", "3. one | another", "4. step
            (after 1, 2)"; steps of one number may come in any order.
        target: New folder, of which cefito verify takes the place of a run; order.json is for
            --order.
    """
    from cefito.data.readers.procedure import orders_value, read_procedures, taxonomy_of

    procedures = read_procedures(text)
    taxonomy = taxonomy_of(procedures, text.stem)
    with new_folder(target) as folder:
        write_json(folder / "taxonomy.json", taxonomy.to_dict())
        write_json(folder / "order.json", orders_value(procedures))
    steps = sum(len(instruction.names) for instruction in procedures)
    talk(f"wrote {target}: {counted(len(procedures), 'task')}, {counted(steps, 'step')}")
    return {"out": str(target), "tasks": len(procedures), "steps": steps}


@app.command
def download(name: str | None = None, target: Path = Path(), /, *, json: Json = False) -> None:
    """Download weights, annotations or features; without a name, list what is available.

    Args:
        name: What to download, a file or a group of files.
        target: Folder to write into.
    """
    from cefito.data import downloads

    if name is None:
        places = list(downloads.places().values())
        if json:
            print_json([place.model_dump() for place in places])
            return
        columns = ("name", "what", "address", "licence")
        rows = [(at.name, at.what, at.address or "by hand", at.licence) for at in places]
        for group in dict.fromkeys(at.group for at in places if at.group):
            count = sum(at.group == group for at in places)
            rows.append((group, f"All {count} files {group}-…", "", ""))
        table("Available downloads", columns, rows)
        return
    chosen = downloads.find_places(name)
    fetched = []
    for place in chosen:
        talk(f"{place.name}: {place.what}; licence: {place.licence}")
        done = downloads.download(place.name, target, progress=progress)
        checked = "as expected" if done.checked else "not checked: no SHA-256 is documented"
        size = f"{done.bytes:,} bytes, SHA-256 {done.sha256} ({checked})"
        talk(f"{'exists already' if done.kept else 'wrote'}: {done.path}, {size}")
        facts = asdict(done)
        fetched.append({"name": place.name, "file": str(facts.pop("path")), **facts})
    if json:
        print_json(fetched if len(chosen) > 1 else fetched[0])
