"""Calls that commands refuse: one line names what is wrong and the option, and no file changes."""

import shutil

import numpy as np
import pytest

from batch.conftest import own  # noqa: F401

VIDEO = "--video world-0036"
TRAIN = "train {data} --out out"
CEFITO = f"{TRAIN} --horizon 3 --method cefito --preset paper"
FINETUNE = "finetune {run} {data} --out out"
PLAN = f"plan {{run}} {VIDEO}"
LENGTHS = f"plan {{lengths}} {VIDEO}"
OWN = "plan {own} --features v3.npy"
BATCH = "plan-batch {own} {own_data} --out plans.jsonl"
COMPARE = "compare {data} --out out --device cpu --seeds 1"
NEAREST = f"{COMPARE} --planners nearest --horizons 2"
CASES = {
    TRAIN: "expected --horizon 3, the number of steps of every plan, or --steps 1-6, a range",
    "train {data} --horizon 3": "--out",
    "train nowhere --horizon 3 --out out": "no such file",
    f"{TRAIN} --horizon 0": "horizon 0: expected a positive number",
    f"{TRAIN} --horizon 3,3": "--horizon 3,3: expected a positive number of actions",
    f"{TRAIN} --horizon 2,90": "gives no windows of horizon 90",
    f"{CEFITO} --set training.optimiser.epochs": "expected KEY=VALUE",
    f"{CEFITO} --set training.optimiser.epoch=3": "did you mean 'training.optimiser.epochs'?",
    f"{CEFITO} --set pdpp.steps=0": "setting 'pdpp.steps': is not read by cefito. Change one of",
    f"{CEFITO} --set training.optimiser.epochs=many": "epochs': expected a whole number",
    f"{TRAIN} --horizon 3 --preset damaged.toml": "cannot be read",
    f"{CEFITO} --nonsense": "--nonsense",
    f"{CEFITO} --set field.distance=far": "unknown distance 'far'; expected one of",
    f"{CEFITO} --set field.goal_skip=true": "goal_skip needs action_encoding = 'observed'",
    f"{FINETUNE} --epochs 0": "0 epochs: expected at least 1. (--epochs)",
    f"{FINETUNE} --set field.width=32": "setting 'field.width': a finetuned run has the networks",
    "evaluate {run} --split dev": "--split dev: expected one of train, val, test",
    "evaluate {run} --sample 0": "sample of 0 windows",
    "evaluate {run} --dataset nowhere": "nowhere/dataset.json: no such file",
    "evaluate {run} --horizon 4": "plans 3 actions, not 4.",
    "evaluate {run} --search gided": "--search",
    "evaluate nowhere": "nowhere/run.json: no such file",
    "plan {run}": "give --video (with --from-step, or a file with --start and --end), --initial",
    "plan {run} --video world-9999": "world. Similar ids: 'world-0",
    f"{PLAN} --from-step 90": "(--from-step)",
    f"{PLAN} --task 12": "unknown task 12; there are 0 to 11. (--task)",
    f"{PLAN} --top-k 0": "expected at least 1 (got 0). (--top-k)",
    f"{PLAN} --top-k {10**12}": "expected a whole number of at most 1,000,000,000",
    f"{PLAN} --min-probability 2": "(--min-probability)",
    f"{PLAN} --done 1": "(--done)",
    f"{PLAN} --steps 2-4": "plans 3 steps. Train a run of several lengths",
    f"{PLAN} --goal-text tent": "needs features of CLIP's projected layer",
    f"{PLAN} --seconds 3": "--seconds: does not go with a video of a data set",
    "plan {run} --initial good.npy": "needs both observations and takes no steps done before.",
    "plan {run} --initial good.npy --goal gone.npy": "gone.npy: no such file",
    "plan {run} --initial long.npy --goal good.npy": "has 9 features; this run was trained on 8",
    "plan {lengths}": "a run of several lengths also takes one of both, or --task and --done.",
    f"{LENGTHS} --steps 3 --horizon 2": "horizon 2 and steps 3: leave out one of both.",
    f"{LENGTHS} --done 1 --after-done": "--after-done and --done both give",
    f"{LENGTHS} --goal-text tent --without-goal": "--goal-text takes the place of every",
    f"{LENGTHS} --without-goal --elapsed 9": "between which these seconds pass. (--elapsed)",
    f"{LENGTHS} --elapsed -3": "expected more than 0 (got -3.0). (--elapsed)",
    "plan {lengths} --initial a.npy --after-done": "--after-done: does not go with files of obs",
    "plan {lengths} --features a.npy --start 2 --without-goal": "--without-goal is for videos of a",
    OWN: "features needs --start and --end in seconds, or one of both: --start alone",
    f"plan {{lengths}} --video {__file__}": "a video file needs --start and --end in seconds",
    f"{OWN} --start 1": "needs both observations and takes no steps done before.",
    f"{OWN} --start 1 --end 18": "which has 17 rows. (--end)",
    f"{OWN} --start 1 --end 4 --seconds 5": "(--seconds)",
    f"{OWN} --video v3": "--features: does not go with a video of a data set",
    "plan {own} --features gone.npy --start 1 --end 4": "gone.npy: no such file",
    "plan {own} --initial row.npy --goal row.npy": "has 5 features; this run was trained on 15, wh",
    f"{BATCH} --executor abacus": "no executor 'abacus'; there are serial, processes, ray",
    f"{BATCH} --workers 0": "workers 0: expected at least 1. (--workers)",
    f"{BATCH} --shard 65": "expected a multiple of 64. (--shard)",
    f"{BATCH} --threads 0": "threads 0: expected at least 1",
    f"{BATCH} --address x --executor serial": "address x: only for the exec",
    "plan-batch {lengths} q.csv --format xml": "unknown. Choose one of jsonl",
    "plan-batch {lengths} q.csv --format csv --json": "Leave one out",
    "plan-batch {lengths} q.csv --format csv --out plans.csv": "Leave one out",
    "plan-batch {own} {own_data} --out p.txt": "in .jsonl, .csv, .md or .parquet. (--out)",
    "plan-batch {own} v3.npy --out p.jsonl --split test": "is no data set",
    f"{BATCH} --split tset": "split 'tset': unknown",
    f"{BATCH} --no-repeats": "cannot obey constraints",
    f"{BATCH} --min-probability 0.5": "(--min-probability)",
    f"{BATCH} --coverage 0.8": "given for single queries",
    f"{COMPARE} --planners nearest --horizons 3,x": "--horizons 3,x: expected a positive number",
    f"{NEAREST} --against frequent": "--against frequent: is not among the planners nearest",
    f"{NEAREST} --set field.width=8": "is not read by nearest. Leave it out.",
    "compare {data} --planners nearest --out out --seeds 0": "--seeds 0: expected 1 to 10,000",
    "compare {data}": "--out",
    "compare nowhere --planners nearest --out out": "nowhere/dataset.json: no such file",
    "reproduce classifier {data} --out out --horizons=": "--horizons : expected",
    "reproduce coin {features} --out out": "is neither a prepared data set nor the repository of",
    "data prepare custom {features}/../steps.csv out --features {features} --seconds 2": "odd numb",
    "calibrate {lengths} --dataset {own_data} --folds 2": "is not the data set that",
    "extract x --out y --run {run} --encoder s3d": "--run gives the encoder's settings. Leave",
    "report {run}": "nothing to write: give --out report.html, or --json.",
    "report {run} --out report.txt": "expected a file that ends in .html. (--out)",
    "report {run} --json --queries -1": "expected 0 or more. (--queries)",
    "report {run} --json --videos x --without-frames": "--without-frames exclude each other",
    "report {run} --json --steps 1-3": "of several lengths for this (method any-length). (--steps)",
    "report nowhere --json": "error: nowhere",
    "serve {run} {run}": "a run is given twice. Leave one of them out.",
    "serve {own} --dataset {data}": "world: no run can be used on it. ",
    "config show smal": "no preset 'smal'",
    "config show small --set chain.member=2": "did you mean 'chain.members'?",
    "config show small --method frequent --set field=1": "Change one of classifier, classifier_tr",
}


@pytest.fixture(scope="module")
def places(world, trained, run_of_lengths, own):  # noqa: F811
    named = {"data": world.folder, "run": trained, "lengths": run_of_lengths.folder}
    return named | {"own": own / "run", "own_data": own / "data", "features": own / "features"}


@pytest.mark.parametrize("argv", CASES)
def test_a_call(argv, places, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(places["features"] / "v3.npy", tmp_path)
    for name, row in (("good", np.zeros(8)), ("long", np.zeros(9)), ("row", np.zeros(5))):
        np.save(f"{name}.npy", row.astype(np.float32))
    (tmp_path / "damaged.toml").write_text("[field\n")
    assert CASES[argv] in refused(*argv.format(**places).split())
