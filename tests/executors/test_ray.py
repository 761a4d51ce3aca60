"""Sentences of the documentation on clusters of Ray, on one of this machine; see make test-ray."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cefito.errors import ConfigError
from cefito.executors import Failed, make_executor
from executors import jobs
from executors.jobs import values
from serve.live_sessions import until
from serve.test_process import Lines
from tiny_runs import small_run

TOKEN = "0123456789abcdef" * 2


def test_each_job_has_a_gpu_of_the_ray_cluster(ray_cluster):
    executor = make_executor("ray", workers=2, gpus=1)
    assert {*values(executor.map(jobs.gpus, [1.0] * 4))} <= {"0", "1"}
    with pytest.raises(ConfigError, match="cluster has no GPU"):
        make_executor("ray", gpus=3).map(jobs.gpus, [0.0])


def test_a_worker_of_the_ray_cluster_that_ends_leaves_the_other_jobs(ray_cluster):
    executor = make_executor("ray", workers=2)
    first, *others = executor.map(jobs.end, [signal.SIGKILL, "a", "b"])
    assert first == Failed("its worker ended, perhaps killed because memory ran out")
    assert values(others) == ["a", "b"]


def test_machines_of_a_ray_cluster_must_see_the_same_folder(ray_cluster, tmp_path, monkeypatch):
    folder = tmp_path / "here alone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    executor = make_executor("ray")
    (outcome,) = executor.map(jobs.remove, [str(folder)])
    assert values([outcome]) == [None]
    monkeypatch.setattr(Path, "cwd", lambda: folder)
    (outcome,) = executor.map(jobs.double, [1])
    assert outcome.error == f"{folder}: is missing on a machine of the cluster. Use a shared folder"


@pytest.mark.parametrize("address", ["", "abacus", "10.0.0.5", "{x}", "10.0.0.5:port", "../x:1"])
def test_addresses_that_are_no_ray_cluster(address):
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray installs it")
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        make_executor("ray", address=address)


def test_plan_batch_on_a_running_ray_cluster_with_a_token(world, tmp_path):
    """Rows are those of this process, to the byte; without the token it says what to set."""
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray installs it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run, address = small_run(world, tmp_path / "run"), f"127.0.0.1:{port}"
    named = {"RAY_AUTH_TOKEN": TOKEN, "RAY_raylet_start_wait_time_s": "180"}
    environment = os.environ | named | {"PYTHONPATH": os.pathsep.join(sys.path)}
    begin = ["start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}"]
    begin += ["--num-cpus=2", "--include-dashboard=false"]
    script = "from ray.scripts.scripts import main; main()"
    with (
        TemporaryDirectory() as short,
        Lines(
            [sys.executable, "-c", script, *begin, f"--temp-dir={short}"],
            env=environment | {"RAY_AUTH_MODE": "token"},
            stdout=subprocess.DEVNULL,
        ) as cluster,
    ):
        try:
            call = [sys.executable, "-m", "cefito", "plan-batch", str(run.folder)]
            call += [str(world.folder), "--split", "test", "--out"]
            ours, theirs = tmp_path / "serial.jsonl", tmp_path / "ray.jsonl"
            subprocess.run([*call, str(ours)], env=environment, check=True)
            call += [str(theirs), "--executor", "ray", "--workers", "2", "--address", address]

            def planned(mode):
                return subprocess.run(
                    call,
                    env=environment | {"RAY_AUTH_MODE": mode},
                    capture_output=True,
                    text=True,
                    check=False,
                )

            def begun():
                done = planned("token")
                assert cluster.process.poll() is None, cluster.lines
                return done.returncode == 0

            until(begun, 300)
            assert theirs.read_bytes() == ours.read_bytes()
            theirs.unlink()
            refused = planned("disabled")
            assert (refused.returncode, "set RAY_AUTH_MODE=token" in refused.stderr) == (2, True)
        finally:
            cluster.process.terminate()
            cluster.process.wait(180)  # it waits for its workers
