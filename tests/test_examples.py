"""The examples run as they stand."""

import getpass
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cefito.cli import main
from cefito.data.simulation.world import WorldKnobs, write_world

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WORLD: dict[str, Any] = {"train": 24, "val": 12, "test": 12, "dim": 8}
SETTINGS = {"training.optimiser.epochs": 1, "training.stopping.windows": 5}
SETTINGS |= {"training.negatives.count": 4, "chain_training.optimiser.epochs": 2}


@pytest.fixture
def run(tmp_path, capsys):
    """Run an example on a small world; return its lines."""

    def run(name):
        write_world(tmp_path / "data", knobs=WorldKnobs(**WORLD))
        own = {key: value for key, value in SETTINGS.items() if name != "plan.py" or "chain" in key}
        settings = [f"{key}={value}" for key, value in own.items()]
        places = str(tmp_path / "data"), str(tmp_path / "run")
        runpy.run_path(str(EXAMPLES / name))["main"](*places, *settings)
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("name", ["plan.py", "constraints.py", "table/features.py"])
@pytest.mark.parametrize("given", [[], ["--help"]])
def test_usage(name, given, monkeypatch):
    monkeypatch.setattr("sys.argv", [name, *given])
    with pytest.raises(SystemExit, match=f"python examples/{name}"):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.parametrize("given", [[], ["--help"]])
def test_usage_on_a_device(given, monkeypatch):
    pytest.importorskip("onnxruntime")
    test_usage("edge.py", given, monkeypatch)


def test_an_array_of_jobs(tmp_path):
    """Each is run as SLURM would, and the tables are made by the last command."""
    path, data, out = EXAMPLES / "compare.sbatch", tmp_path / "data", tmp_path / "out"
    asked = [line for line in path.read_text().splitlines() if line.startswith("#SBATCH ")]
    assert "#SBATCH --array=0-4" in asked
    write_world(data, knobs=WorldKnobs(**WORLD))
    given = [str(data), "--out", str(out), "--seeds", "5", "--planners", "nearest,frequent"]
    given += ["--set", "classifier_training.optimiser.epochs=1"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    jobs = [
        subprocess.Popen(
            ["bash", str(path), *given],
            env=environment | {"SLURM_ARRAY_TASK_ID": str(number)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 3)
    ]
    said = [job.communicate()[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    assert all("done here: 4 of 4 scores; missing" in words for words in said)  # T = 3 and 4
    assert not (out / "results.json").exists()
    assert main(["compare", *given]) == 0
    assert len(json.loads((out / "results.json").read_text())["trials"]) == 20


CLUSTER = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmctldPidFile={folder}/pid
SlurmUser={user}
StateSaveLocation={folder}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=3600
NodeName=node CPUs=1 RealMemory=8192 State=CLOUD
PartitionName=all Nodes=ALL Default=YES
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    None in map(shutil.which, ("sbatch", "slurmctld")),
    reason="SLURM is not installed (apt-get install slurm-client slurmctld)",
)
def test_slurm_would_take_the_array_of_jobs(tmp_path):
    """A controller of its own would; its one node, which never begins, has 8 GiB of memory."""
    path = EXAMPLES / "compare.sbatch"
    (usage,) = [line for line in path.read_text().splitlines() if line.startswith("#   sbatch ")]
    _, name, *given = usage.lstrip("# ").split()
    assert name == path.name
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = tmp_path / "slurm.conf"
    settings.write_text(CLUSTER.format(folder=tmp_path, port=port, user=getpass.getuser()))
    environment = os.environ | {"SLURM_CONF": str(settings)}

    def asked(*words):
        command = ["sbatch", "--test-only", *words, str(path), *given]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    command = ["slurmctld", "-D"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as controller:
        try:
            until = time.monotonic() + 60
            while "connect failure" in (answer := asked())[1] and time.monotonic() < until:
                time.sleep(0.1)
            refused = asked("--mem=9G")
        finally:
            controller.terminate()
    assert (answer[0], "to start at" in answer[1]) == (0, True), answer
    assert refused[0] == 1
    assert "node configuration is not available" in refused[1]


def test_plan(run):
    first, task, *plans = run("plan.py")
    assert first.startswith("synthetic world (simulated): success rate ")
    assert task.startswith("task: ")
    assert len(plans) == 5
    assert all(line.count(" → ") == 2 for line in plans)


def test_constraints(run):
    lines = run("constraints.py")
    titles = [line for line in lines if line.endswith(":")]
    assert lines[0].startswith("annotated: ")
    assert titles == ["free:", "constrained:", "several tasks:"]
    first, second, last = lines[0].removeprefix("annotated: ").split(" → ")
    constrained = lines[lines.index("constrained:") + 2 : lines.index("several tasks:") - 1]
    assert constrained
    for line in constrained:
        steps = line.split("  ")[-1].split(" → ")
        assert steps[0] == first
        assert last in steps[1:]
        assert second not in steps or steps == [first, second, last]


def cells(name):
    """The code cells of a notebook: tags and source of each."""
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return [(cell["metadata"].get("tags", []), "".join(cell["source"])) for cell in code]


def test_the_notebook(tmp_path, monkeypatch, capsys):
    """Cell after cell in one namespace, with a smaller world and shorter trainings; then again."""
    monkeypatch.chdir(tmp_path)
    small = {"knobs": WORLD, "settings": SETTINGS}
    shown = []
    for _ in range(2):
        names = {}
        for tags, source in cells("tour.ipynb"):
            exec(compile(source, "tour.ipynb", "exec"), names)
            if "parameters" in tags:
                assert small.keys() <= names.keys()
                names |= small
        shown.append(capsys.readouterr().out.splitlines())
    first = shown[0]
    assert first[0] == "synthetic world (simulated): 48 videos of 12 tasks"
    assert "chain {'success_rate': " in "\n".join(first)
    annotated = next(row for row, line in enumerate(first) if line.startswith("annotated: "))
    best, held = first[annotated + 1 : annotated + 7], first[annotated + 7 : -1]
    assert all(line.startswith("task: ") for line in (best[0], held[0]))
    assert all(" %  " in line and line.count(" → ") == 2 for line in best[1:])
    start = best[-1].split(" %  ")[1].split(" → ")[0]
    assert len(held) == 4
    assert all(line.split("  ")[-1].startswith(f"{start} → ") for line in held[1:])
    assert first[-1].startswith("loss of the chain: ")
    assert shown[1] == first  # nothing is trained twice


def test_each_example_is_tested():
    source = Path(__file__).read_text(encoding="utf-8")
    examples = [path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")]
    assert len(examples) > 2
    assert all(f'"{path.name}"' in source for path in examples)
