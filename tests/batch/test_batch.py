"""Batches: every query once and in its place, with any executor and after interruptions."""

import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cefito.batch.batch import plan_batch
from cefito.batch.planning import PIECE, QuerySettings
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.executors import EXECUTORS, Failed, Killed
from cefito.executors.base import SerialExecutor
from cefito.files import sha256, value_sealed, write_bytes
from cefito.inference.answer import answer
from cefito.inference.query import query_from_features
from cefito.planners.base import Queries
from cefito.runs.run import open_run

from .conftest import observed


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def interrupted(nearest, tmp_path, monkeypatch):
    """A function that plans the first shard alone into plans.jsonl; the next has an outcome."""

    def plan(path, outcome):
        class Stopped(SerialExecutor):
            def map(self, function, arguments, **how):
                return [*super().map(function, [arguments[0]], **how), outcome]

        with monkeypatch.context() as patch:
            patch.setitem(EXECUTORS, "serial", Stopped)
            return plan_batch(nearest, path, tmp_path / "plans.jsonl", shard=PIECE).problems

    return plan


def left(folder, name="plans.jsonl"):
    """Files of a batch other than its plans."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(f"{name}."))


@pytest.mark.parametrize("name", EXECUTORS)
def test_rows_do_not_depend_on_the_executor(name, trained, tmp_path, request):
    """To the byte: the windows of a data set, in shards of several sizes, by every executor."""
    if name == "ray":
        request.getfixturevalue("ray_cluster")
    trained = trained.with_search(tasks=2)  # not those that it was trained with
    world, files = Path(trained.info.dataset.path), {}
    workers = 1 if name == "processes" else 2  # each has to import PyTorch
    for shard, executor in ((512, "serial"), (PIECE, name)):
        out = tmp_path / f"{shard}.jsonl"
        how: dict[str, Any] = {
            "split": "train",
            "shard": shard,
            "executor": executor,
            "workers": workers,
        }
        assert plan_batch(trained, world, out, **how).problems == ()
        files[shard] = out.read_bytes()
    assert files[512] == files[PIECE]
    with pytest.raises(RunError, match=r"a batch with run\.search\.tasks 2, not 3\."):
        plan_batch(trained.with_search(tasks=3), world, out, **how)
    windows = cut_windows(trained.dataset(), horizon=3, split="train")
    assert len(windows) > PIECE
    queries = Queries.from_windows(windows)
    rows = read(tmp_path / "512.jsonl")
    for number in (0, 1, PIECE, len(windows) - 1):
        ours = [row for row in rows if row["line"] == number + 1]
        theirs = answer(trained, queries.subset([number]))
        assert [row["rank"] for row in ours] == list(range(1, len(theirs.plans) + 1))
        for key in ("actions", "names", "task", "task_id"):
            assert [row[key] for row in ours] == [getattr(plan, key) for plan in theirs.plans]
        assert ours[0]["searched_mass"] == pytest.approx(theirs.searched_mass)
        for key in ("energy", "score", "probability"):
            found, expected = ([row[key] for row in ours], [getattr(p, key) for p in theirs.plans])
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        for key, expected in [("exact", theirs.exact), *vars(theirs.evaluated).items()]:
            assert ours[0][key] == expected, key
        video = trained.dataset().videos[windows.video[number]].video_id
        assert ours[0]["query"] == f"{video}:{windows.start[number]}"
    assert [row["line"] for row in rows] == sorted(row["line"] for row in rows)


def test_lists_of_every_form_give_the_same_plans(nearest, own, listed, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = observed(PIECE + 5)
    for row in rows:
        np.save(tmp_path / f"{row['id']}-a.npy", np.array(row["initial"], np.float32))
        np.save(tmp_path / f"{row['id']}-b.npy", np.array(row["goal"], np.float32))
    listed(rows)
    named = [
        {"id": row["id"], "initial": f"{row['id']}-a.npy", "goal": f"{row['id']}-b.npy"}
        for row in rows
    ]
    listed(named, "named.jsonl")
    lines = ["id,initial,goal", *(",".join(row.values()) for row in named)]
    (tmp_path / "named.csv").write_text("\n".join(lines) + "\n")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "inside.parquet")
    texts, tables = set(), []
    for name in ("queries.jsonl", "named.jsonl", "inside.parquet"):
        plan_batch(nearest, tmp_path / name, tmp_path / f"out-{name}.jsonl")
        texts.add((tmp_path / f"out-{name}.jsonl").read_text())
    assert len(texts) == 1
    plan_batch(nearest, tmp_path / "named.csv", tmp_path / "csv.jsonl")
    shifted = [{**row, "line": row["line"] - 1} for row in read(tmp_path / "csv.jsonl")]
    assert shifted == read(tmp_path / "out-queries.jsonl.jsonl")
    for shard in (PIECE, 2 * PIECE):  # the same to the byte as a Parquet file, too
        out = tmp_path / f"{shard}.parquet"
        plan_batch(nearest, tmp_path / "queries.jsonl", out, shard=shard)
        assert parquet.read_table(out).to_pylist() == shifted
        tables.append(out.read_bytes())
    assert tables[0] == tables[1]


def test_a_folder_of_features(nearest, own, tmp_path):
    folder = tmp_path / "features"
    shutil.copytree(own / "features", folder)
    np.savez(folder / "v2.npz", np.load(folder / "v2.npy"))
    (folder / "v2.npy").unlink()
    (folder / "w.npy").write_bytes(b"none")
    (folder / "notes.txt").write_text("no features")
    done = plan_batch(nearest, folder, tmp_path / "plans.jsonl", settings=QuerySettings(top_k=2))
    rows = read(done.plans)
    assert [row["query"] for row in rows[::2]] == [f"v{number}" for number in range(8)]
    whole = query_from_features(nearest, folder / "v2.npz", start=0, end=17)
    assert [row["actions"] for row in rows[4:6]] == [
        plan.actions for plan in answer(nearest, whole, top_k=2).plans
    ]
    (bad,) = read(done.bad)
    assert (bad["query"], bad["line"]) == ("w", 9)
    assert bad["reason"].startswith(f"{folder / 'w.npy'}: cannot be read as NumPy arrays")


def test_finished_shards_are_kept(nearest, listed, tmp_path, monkeypatch):
    """Finished shards are not planned again; truncated and missing ones are."""
    path, out = listed([*observed(5 * PIECE), "{"]), tmp_path / "plans.jsonl"
    whole = tmp_path / "whole.jsonl"
    plan_batch(nearest, path, whole)
    parts, made = tmp_path / "plans.jsonl.parts", []

    def failing(target, data):
        if target.name in ("00000001.shard", "00000004.shard"):
            raise RuntimeError("no more")
        write_bytes(target, data)

    monkeypatch.setattr("cefito.batch.shards.write_bytes", failing)
    done = plan_batch(nearest, path, out, shard=PIECE)
    assert len(done.problems) == 2
    assert done.problems[0] == "queries 65 to 128: RuntimeError: no more."
    assert not out.exists()
    assert sorted(path.name for path in parts.iterdir()) == [
        *(f"0000000{number}.shard" for number in (0, 2, 3, 5)),
        "batch.json",
    ]
    (parts / "00000002.shard").unlink()
    third = (parts / "00000003.shard").read_bytes()
    (parts / "00000003.shard").write_bytes(third[: len(third) // 2])

    def noting(target, data):
        made.append(target.name)
        write_bytes(target, data)

    monkeypatch.setattr("cefito.batch.shards.write_bytes", noting)
    done = plan_batch(nearest, path, out, shard=PIECE, workers=1)
    assert made == [f"0000000{number}.shard" for number in (1, 2, 3, 4)]
    assert done.done_before == PIECE + 1
    assert out.read_bytes() == whole.read_bytes()
    assert left(tmp_path) == ["plans.jsonl.bad.jsonl", "plans.jsonl.batch.json"]
    again = plan_batch(nearest, path, out, shard=PIECE)
    assert again.done_before == again.counts.queries == 5 * PIECE + 1
    assert (again.bad, len(made)) == (out.with_name("plans.jsonl.bad.jsonl"), 4)


@pytest.fixture
def features(own, tmp_path):
    """A folder of features whose files may be replaced."""
    return Path(shutil.copytree(own / "features", tmp_path / "features"))


def replace_features(path):
    """Other features in a file of the same size and time."""
    before = path.stat()
    np.save(path, np.load(path)[::-1].copy())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("named", ["features", "initial", "goal", "folder"])
def test_queries_whose_files_were_replaced_are_planned_again(
    named, nearest, listed, features, tmp_path, caplog
):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.arange(15, dtype=np.float32))
    ends = {"initial": "a.npy", "goal": "b.npy"}
    part = {"features": "features/v3.npy", "start": 1, "end": 12}
    rows = [*observed(PIECE), ends, part]
    path = features if named == "folder" else listed(rows)
    changed = tmp_path / ends[named] if named in ends else features / "v3.npy"
    before = {}
    for out in (tmp_path / f"plans.{ending}" for ending in ("jsonl", "csv", "md")):
        done = plan_batch(nearest, path, out, shard=PIECE)
        assert (done.done_before, done.changed) == (0, 0)
        assert plan_batch(nearest, path, out, shard=PIECE).done_before == done.counts.queries
        before[out] = out.read_bytes()
    replace_features(changed)
    for out, plans in before.items():
        done = plan_batch(nearest, path, out, shard=PIECE)
        kept = PIECE if out.suffix == ".jsonl" and named != "folder" else 0
        assert (done.done_before, done.changed) == (kept, done.counts.queries % PIECE)
        fresh = tmp_path / f"fresh{out.suffix}"
        plan_batch(nearest, path, fresh)
        assert f"files of {done.changed} queries have changed; they are pl" in caplog.text
        assert plans != out.read_bytes() == fresh.read_bytes()
        assert plan_batch(nearest, path, out, shard=PIECE).changed == 0
        assert not (tmp_path / f"{out.name}.parts").exists()


@pytest.mark.parametrize("name", EXECUTORS)
def test_shards_whose_files_were_replaced_are_planned_again(
    name, nearest, listed, features, tmp_path, interrupted, request
):
    if name == "ray":
        request.getfixturevalue("ray_cluster")
    part = {"features": "features/v3.npy", "start": 1, "end": 12}
    path, out = listed([*[part] * PIECE, *observed(1)]), tmp_path / "plans.jsonl"
    done = plan_batch(nearest, path, out, shard=PIECE, executor=name)
    assert (done.problems, done.changed) == ((), 0)
    replace_features(features / "v3.npy")
    (features / "v4.npy").unlink()  # which no query names
    done = plan_batch(nearest, path, out, shard=PIECE, executor=name)
    assert (done.done_before, done.changed) == (1, PIECE)
    out.unlink()
    assert interrupted(path, Killed(9))
    (features / "v3.npy").unlink()
    done = plan_batch(nearest, path, out, shard=PIECE, executor=name)
    assert (done.done_before, done.changed, done.counts.bad) == (0, PIECE, PIECE)
    shutil.copy(features / "v5.npy", features / "v3.npy")
    done = plan_batch(nearest, path, out, shard=PIECE, executor=name)
    assert (done.changed, done.counts.bad) == (PIECE, 0)


def changed_digit(shard):
    head, rows = shard.read_bytes().split(b"\n", 1)
    shard.write_bytes(head + b"\n" + rows.replace(b'"rank":1', b'"rank":7', 1))


def changed_count(shard):
    shard.write_bytes(shard.read_bytes().replace(b'"bad": 0', b'"bad": 1', 1))


def pipe(shard):
    shard.unlink()
    os.mkfifo(shard)


def endless(shard):
    shard.unlink()
    shard.symlink_to("/dev/zero")


def of_another_batch(shard):
    shard.with_name("batch.json").unlink()
    head, rows = shard.read_bytes().split(b"\n", 1)
    header = {**json.loads(head), "batch": "0" * 64}
    shard.write_bytes(json.dumps(value_sealed(header)).encode() + b"\n" + rows)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *((change, "has changed") for change in (changed_digit, changed_count, pipe, endless)),
        (of_another_batch, "is of other queries"),
    ],
)
def test_a_changed_shard_is_planned_again(
    change, reason, nearest, listed, tmp_path, interrupted, caplog
):
    path, out = listed(observed(PIECE + 1)), tmp_path / "plans.jsonl"
    assert interrupted(path, Killed(9))
    change(tmp_path / "plans.jsonl.parts" / "00000000.shard")
    assert plan_batch(nearest, path, out, shard=PIECE).done_before == 0
    assert f"00000000.shard {reason}" in caplog.text
    plan_batch(nearest, path, tmp_path / "whole.jsonl")
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_changed_record_is_refused(nearest, listed, tmp_path):
    path, out = listed(observed(2)), tmp_path / "plans.jsonl"
    plan_batch(nearest, path, out)
    record = tmp_path / "plans.jsonl.batch.json"
    record.write_text(record.read_text().replace('"queries": 2', '"queries": 3'))
    with pytest.raises(RunError, match=r"batch\.json: has changed"):
        plan_batch(nearest, path, out)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": QuerySettings(top_k=4)}, "is of a batch with settings.top_k 5, not 4."),
        ({"shard": 2 * PIECE}, "is of a batch with shard 64, not 128."),
        ({"threads": 2}, "is of a batch with threads 1, not 2."),
        ({"queries": "more.jsonl"}, "is of a batch with queries.queries 66, not 67."),
        ({"queries": "other.jsonl"}, "is of a batch with queries.sha256 "),
        ({"run": "frequent"}, "is of a batch with run.files "),
        ({"version": "cefito"}, "is of a batch with cefito "),
        ({"version": "torch"}, "is of a batch with torch "),
    ],
)
def test_another_batch_is_refused(
    change, message, nearest, own, listed, tmp_path, interrupted, monkeypatch
):
    rows = observed(PIECE + 2)
    path, out = listed(rows), tmp_path / "plans.jsonl"
    listed([*rows, rows[0]], "more.jsonl")
    listed(rows[::-1], "other.jsonl")
    run, asked = nearest, {"shard": PIECE, **change}
    given = tmp_path / asked.pop("queries", "queries.jsonl")
    if asked.pop("run", None):
        shutil.copytree(own / "run", tmp_path / "run")
        path_of_manifest = tmp_path / "run" / "manifest.json"
        manifest = json.loads(path_of_manifest.read_text())
        notes = tmp_path / "run" / "videos.json"
        notes.write_text(json.dumps(json.loads(notes.read_text()), indent=4))
        manifest = {"files": manifest["files"] | {"videos.json": sha256(notes)}}
        path_of_manifest.write_text(json.dumps(manifest))
        run = open_run(tmp_path / "run")
    assert interrupted(path, Failed("enough"))
    parts = tmp_path / "plans.jsonl.parts"
    kept = {entry.name: entry.read_bytes() for entry in parts.iterdir()}
    newer = asked.pop("version", None)

    def refused():
        of = lambda name: "newer" if name == newer else version(name)  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr("cefito.batch.batch.version", of)
            with pytest.raises(RunError) as caught:
                plan_batch(run, given, out, **asked)
        assert message in str(caught.value)
        return str(caught.value)

    assert refused().startswith(str(parts / "batch.json"))
    assert kept == {entry.name: entry.read_bytes() for entry in parts.iterdir()}
    assert plan_batch(nearest, path, out, shard=PIECE).done_before == PIECE
    refused()  # finished, it is refused as well


def test_other_files_are_not_overwritten(nearest, listed, tmp_path):
    path, out = listed(observed(3)), tmp_path / "plans.jsonl"
    out.write_text("mine")
    with pytest.raises(RunError, match=r"plans\.jsonl: exists already"):
        plan_batch(nearest, path, out)
    assert out.read_text() == "mine"
    out.unlink()
    (tmp_path / "plans.jsonl.parts").mkdir()
    (tmp_path / "plans.jsonl.parts" / "mine").write_text("mine")
    plan_batch(nearest, path, out)
    assert (tmp_path / "plans.jsonl.parts" / "mine").read_text() == "mine"
    with out.open("a") as file:
        file.write("more\n")
    with pytest.raises(RunError, match="has changed since it was planned"):
        plan_batch(nearest, path, out)
    out.unlink()
    assert plan_batch(nearest, path, out).done_before == 0
    record = tmp_path / "plans.jsonl.batch.json"
    record.write_text("[]")
    with pytest.raises(RunError, match="not a batch's record"):
        plan_batch(nearest, path, out)


@pytest.mark.parametrize("moment", ["plans", "record", "parts"])
def test_an_interruption_while_files_are_written(moment, nearest, listed, tmp_path, monkeypatch):
    path, out = listed([*observed(70), "{"]), tmp_path / "plans.jsonl"
    parts = tmp_path / "plans.jsonl.parts"

    def ended(*_, **__):
        raise KeyboardInterrupt

    place = {
        "plans": "cefito.batch.batch.write_atomic",
        "record": "cefito.batch.batch.BatchRecord.write",
        "parts": "pathlib.Path.iterdir",
    }[moment]
    with monkeypatch.context() as patch:
        patch.setattr(place, ended)
        with pytest.raises(KeyboardInterrupt):
            plan_batch(nearest, path, out)
    assert parts.exists()
    assert out.exists() is (moment != "plans")
    assert (tmp_path / "plans.jsonl.batch.json").exists() is (moment == "parts")
    done = plan_batch(nearest, path, out)
    assert done.done_before == done.counts.queries == 71
    assert left(tmp_path) == ["plans.jsonl.bad.jsonl", "plans.jsonl.batch.json"]
    assert len({row["line"] for row in read(out)}) == 70


def test_sources_without_queries(nearest, listed, tmp_path, own):
    out = tmp_path / "plans.jsonl"
    (tmp_path / "empty").mkdir()
    for path, message in (
        (listed(["", ""]), "holds no query"),
        (tmp_path / "empty", "holds no query, data set or features"),
        (tmp_path / "gone.jsonl", "no such file"),
        (tmp_path / "gone", "expected .jsonl, .csv or .parquet"),
    ):
        with pytest.raises((ConfigError, DataError)) as caught:
            plan_batch(nearest, path, out)
        assert message in str(caught.value)
    with pytest.raises(ConfigError, match="split 'tset': unknown"):
        plan_batch(nearest, own / "data", out, split="tset")
    assert not out.exists()
