"""Commands on a full and on a read-only disk: one line of error, no half file, a repeat works."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from cefito.cli import main
from cefito.errors import RunError
from cefito.runs.corrected import CorrectedFilms, Retraining
from cefito.runs.run import open_run
from cefito.tracks.formats.label_studio import Tags
from serve.label_films import make_place
from serve.test_labels import keep
from serve.test_process import Lines
from tiny_runs import TINY_LENGTHS, as_arguments, contents, rows_of

COMMANDS = {
    "train": ("train", "{world}", "--method", "nearest", "--horizon", 2, "--out", "{to}/RUN"),
    "train of a network": (
        *("train", "{world}", "--steps", "1-3", "--out", "{to}/RUN", "--no-recogniser"),
        *as_arguments(TINY_LENGTHS),
    ),
    "plan-batch": ("plan-batch", "{run}", "{here}/queries.csv", "--out", "{to}/PLANS.jsonl"),
    "plan-batch to csv": ("plan-batch", "{run}", "{world}", "--out", "{to}/PLANS.csv"),
    "verify": (
        *("verify", "{run}", "{here}/WRONG.csv", "--log", "{to}/log.jsonl"),
        *("--min-probability", 0, "--out", "{to}/page.html"),
    ),
    "annotate": ("annotate", "{seeing}", "{here}/a.npy", "{here}/b.npy", "--out", "{to}/OUT"),
    "recognise": ("recognise", "{seeing}", "{here}/a.npy", "--out", "{to}/STEPS.csv"),
    "recognise to a folder": (
        *("recognise", "{seeing}", "{here}/a.npy", "{here}/b.npy"),
        *("--out", "{to}/OUT", "--format", "eaf"),
    ),
    "export": ("export", "{run}", "{to}/run.zip"),
    "export to onnx": ("export", "{seeing}", "--onnx", "{to}/ONNX"),
    "graph": ("graph", "{run}", "--out", "{to}/order.json"),
    "data steps": ("data", "steps", "{here}/WRONG.csv", "--out", "{to}/STEPS.csv"),
    "data prepare": (
        *("data", "prepare", "custom", "{here}/WRONG.csv", "{to}/DATA"),
        *("--features", "{here}/features"),
    ),
}
OFTEN = "verify", "plan-batch", "graph"
NIGHTLY = pytest.mark.nightly
PAGE = 1 << 12  # bytes by which such a file system grows
STEPS = ("strain tea", "boil water", "crush spices", "boil water", "pour milk")


@pytest.fixture
def called(world, run_of_lengths, request, tmp_path):
    """A function that calls a command, which writes into a folder."""
    names = [f"é{number}" for number in range(9)]
    lines = ["video,task,step,start,end"]
    for name in names:
        lines += [f"{name},Brew Spiced Tea,{step},{at},{at + 1}" for at, step in enumerate(STEPS)]
    (tmp_path / "WRONG.csv").write_text("\n".join(lines) + "\n")
    lines = ["id,task", *(f"{name},Brew Spiced Tea" for name in names)]
    (tmp_path / "queries.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "features").mkdir()
    for place, name in enumerate(["a", "b", *names]):
        folder = tmp_path if name in "ab" else tmp_path / "features"
        np.save(folder / f"{name}.npy", rows_of(world, place))
    places = {"world": world.folder, "run": run_of_lengths.folder, "here": tmp_path}

    def call(name, to):
        if "{seeing}" in COMMANDS[name]:
            places["seeing"] = request.getfixturevalue("run_with_recogniser").folder
        return main([str(part).format(to=to, **places) for part in COMMANDS[name]])

    return call


@pytest.fixture
def disk(tmp_path):
    """A function that makes a small file system, full but for some bytes, or read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", place], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems cannot be mounted")

    @contextmanager
    def without(space):
        if space is None:
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
            yield place
            subprocess.run(["mount", "-o", "remount,rw", place], check=True)
            return
        filler = place / "filler"
        with filler.open("wb", buffering=0) as file:
            with suppress(OSError):
                while file.write(bytes(PAGE)):
                    pass
            file.truncate(max(0, file.tell() - space))
        yield place
        filler.unlink()

    yield without
    subprocess.run(["umount", place], check=True)


def check_failure(code, err):
    """One line says what is wrong; plan-batch names its parts before."""
    *others, last = err.splitlines()
    assert code in (1, 2), err
    assert last.startswith("error: ")
    assert not [line for line in others if line.startswith(("error", "Traceback"))]


def check_whole(folder):
    """Files of text are whole, and none is temporary."""
    for name, data in contents(folder).items():
        assert not name.endswith(".tmp")
        if name.endswith((".jsonl", ".csv")):
            assert data == b"" or data.endswith(b"\n")
        if name.endswith(".json"):
            json.loads(data)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in OFTEN else NIGHTLY) for one in COMMANDS]
)
@pytest.mark.parametrize("space", [0, PAGE, pytest.param(8 * PAGE, marks=NIGHTLY), None])
def test_full_and_read_only_disks(name, space, called, disk, capsys):
    capsys.readouterr()
    with disk(space) as to:
        code = called(name, to)
        said = capsys.readouterr().err
        if code:
            check_failure(code, said)
            check_whole(to)
        assert code or space
    if code:
        assert called(name, to) == 0
        check_whole(to)


def test_an_audit_log_goes_on_after_a_full_disk(called, disk, tmp_path, capsys):
    log, whole = tmp_path / "disk" / "log.jsonl", tmp_path / "whole"
    whole.mkdir()
    assert called("verify", whole) == 0
    size = (whole / "log.jsonl").stat().st_size
    lines = len((whole / "log.jsonl").read_text().splitlines())
    assert size > 2 * PAGE
    for space in (0, PAGE, size // PAGE * PAGE):
        with disk(space) as to:
            assert called("verify", to) == 2
            assert log.read_bytes() == b""
        assert "log.jsonl: could not be written (No space left on dev" in capsys.readouterr().err
    log.write_text('{"logged": "20')
    assert called("verify", to) == 0
    assert "log.jsonl: its last line was not whole" in capsys.readouterr().err
    assert len([json.loads(line) for line in log.read_text().splitlines()]) == lines


def test_corrected_films_stay_when_the_disk_is_full(disk, run_with_recogniser, world, tmp_path):
    folder, tags = tmp_path / "disk" / "labels", Tags()
    data = {"video": "/data/upload/a.mp4", "task": world.taxonomy.tasks[0].name}
    value = {"ranges": [{"start": 1, "end": 48}], "timelinelabels": ["boil water"]}
    region = {"type": "timelinelabels", "from_name": "steps", "to_name": "video", "value": value}
    with disk(50 * PAGE):
        films = CorrectedFilms(folder, run_with_recogniser, world)
        films.keep_rows(data["video"], "0" * 64, rows_of(world, 0))
        films.keep("1", {"id": 1, "data": data}, {"id": 1, "result": [region]}, tags)
        before = films.corrected
        with pytest.raises(RunError, match="No space left"):
            films.keep("1", {"id": 1, "data": data}, {"id": 1, "result": [region] * 5000}, tags)
        assert (films.corrected, films.learned, films.new) == (before, {}, 1)
    films = CorrectedFilms(folder, run_with_recogniser, films.videos)
    assert (films.corrected, films.film(data["video"])) == (before, "0" * 64)


@NIGHTLY
def test_a_retraining_goes_on_after_a_full_disk_and_kills(disk, tmp_path):
    """To the weights of a training that nothing interrupted."""
    pytest.importorskip("transformers")
    truth, folder = make_place(tmp_path), tmp_path / "disk" / "labels"
    run = open_run(tmp_path / "RUN")
    films = CorrectedFilms(folder, run, run.dataset())
    for number, name in enumerate(list(truth)[:3], 1):
        keep(films, number, name, truth[name])
    assert films.prepare() == 1
    corrected, whole = films.corrected, tmp_path / "whole"
    shutil.copytree(folder, whole)
    command = [sys.executable, "-m", "cefito", "label", run.folder, "--folder", folder]
    with disk(200 * PAGE), Lines([*command, "--port", 0]) as started:
        started.wait_for("the retraining failed")
        address = re.search(r"on (http\S+)", started.wait_for("serving"))[1]
        with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
            status = json.load(answer)
        assert "No space left on device" in status["failed"]
        assert (status["model_version"], status["corrected"]) == ("cefito RUN v0", 3)
    for _ in range(3):
        trained = len(list(folder.rglob("recogniser/*.safetensors")))
        with Lines([*command, "--port", 0]) as started:
            while len(list(folder.rglob("recogniser/*.safetensors"))) == trained:
                assert started.process.poll() is None, started.lines
                time.sleep(0.01)
    assert (films.corrected, films.unfinished) == (corrected, 1)
    with Lines([*command, "--port", 0]) as started:
        started.wait_for("retrained on 3 films")
    Retraining(whole, run.folder)(1)
    weights = {name for name in contents(whole) if name.endswith(".safetensors")}
    assert "versions/1/run/recogniser.safetensors" in weights
    for name in weights:
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
