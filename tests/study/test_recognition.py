"""`cefito compare --recognisers`: scores of recognisers on whole test videos."""

import json
import re
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch

from cefito.cli import main
from cefito.data.prepared import write_dataset
from cefito.data.timeline import Timeline, row_labels
from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError, DataError
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS
from cefito.recognition.methods import RECOGNISERS, RecogniserMethod, RecogniserRow
from cefito.recognition.recogniser import BaseRecogniser, unchained
from cefito.recognition.settings import NearestConfig, OnlineConfig
from cefito.study.recognition import RecogniserScorer, compare_recognisers
from cefito.training.checkpoint import read_metrics
from row_films import SMALL, prepared_films


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return prepared_films(tmp_path_factory.mktemp("films"))


class Pauses(BaseRecogniser):
    """Says that every row is a pause."""

    taxonomy: Taxonomy
    rate: float

    @classmethod
    def fit(cls, dataset, videos, **_):
        assert len(videos) == 10
        own = cls()
        own.taxonomy, own.rate = dataset.taxonomy, 1.0
        return own

    def recognise(self, rows, **_):
        labels = np.eye(7)[np.full(len(rows), 6)] * 0.9 + 0.1 / 7
        return unchained(labels, self.taxonomy, 1.0, None)


@pytest.fixture
def pauses():
    """A row whose recogniser says that every row is a pause."""
    row = {"pauses": RecogniserRow("always a pause")}
    kind: Any = Pauses
    method = RecogniserMethod(name="pauses", recogniser=kind, settings=NearestConfig, rows=row)
    RECOGNISERS["pauses"] = method
    yield
    del RECOGNISERS["pauses"]


@pytest.mark.usefixtures("pauses")
def test_scores_of_recognisers(films, tmp_path):
    given: tuple[Any, ...]
    given = (films, tmp_path, ["recogniser", "nearest", "pauses"], [0, 1])
    small = SMALL.model_dump(exclude_unset=True)
    tables, found = compare_recognisers(*given, changes=small)
    rows, videos = found["rows"], found["videos"]
    assert rows["recogniser"]["frame"]["mean"] > 90
    assert rows["nearest"]["frame"]["mean"] > 90
    assert (rows["recogniser"]["seeds"], rows["nearest"]["seeds"]) == (2, 1)
    assert "ece" not in rows["nearest"]
    assert 0 <= rows["recogniser"]["ece"] < 10
    steps = [films.videos[place].steps for place in range(10, 16)]
    counts = [len(films.timeline.videos[place]) for place in range(10, 16)]
    labels = [row_labels(*each, 1.0, 6) for each in zip(steps, counts, strict=True)]
    pauses = 100 * (np.concatenate(labels) == 6).mean()
    assert rows["pauses"]["frame"]["mean"] == pytest.approx(pauses, abs=0.01)
    assert rows["pauses"]["edit"]["mean"] == rows["pauses"]["f1_10"]["mean"] == 0
    less = rows["pauses"]["frame"]["difference"]
    assert less["mean"] == pytest.approx(pauses - rows["recogniser"]["frame"]["mean"], abs=0.02)
    assert less["low"] < less["mean"] < less["high"] < 0
    assert "difference" not in rows["recogniser"]["frame"]
    assert "next" not in rows["pauses"]
    sums = videos["recogniser"]["0"]["sums"]
    asked = [sorted(own, key=lambda one: one.start)[-1].start for own in steps]
    assert [divisor for _, divisor in sums["next"]] == asked
    assert [divisor for _, divisor in sums["count"]] == [len(own) for own in steps]
    assert 90 < rows["recogniser"]["done"]["mean"] < 110
    assert tables[0].lines[2][0].text == "pauses (2 seeds)"
    assert tables[1].title == f"{tables[0].title}: scores less those of recogniser"
    assert [line[0].text for line in tables[1].lines] == ["nearest", "pauses"]
    assert tables[1].lines[1][1].text.startswith(f"{less['mean']:.1f} ({less['low']:.1f} to ")
    assert "ECE" not in tables[1].heads
    assert (tmp_path / "recognition.md").read_text().count("\n|") >= 9
    assert (tmp_path / "recognition.tex").read_text().count(r"\toprule") == 2
    assert tables[1].legend.endswith(" scored on the same draws.")
    assert tables[1].remarks[1:] == tables[0].notes
    *_, said, few = tables[0].notes
    assert said.startswith("Changed settings: recogniser.")
    assert all(f"recogniser.{name} = " in said for name in small)
    assert "three seeds (recogniser, pauses);" in few  # the nearest row has no seeds
    # results are kept
    RECOGNISERS["pauses"] = replace(RECOGNISERS["pauses"], recogniser="no.module:None")
    assert compare_recognisers(*given, changes=small) == (tables, found)
    turned, other = compare_recognisers(*given, changes=small, against="pauses")
    assert other["rows"]["recogniser"]["frame"]["difference"]["mean"] == -less["mean"]
    assert [line[0].text for line in turned[1].lines] == ["recogniser", "nearest"]
    # a later command of fewer rows keeps the others in the tables
    (few, less_few), _ = compare_recognisers(films, tmp_path, ["pauses"], [0, 1], changes=small)
    kept = ["pauses (2 seeds)", "recogniser (2 seeds)", "nearest (1 seed)"]
    assert [line[0].text for line in few.lines] == kept
    assert [line[0].text for line in less_few.lines] == ["recogniser", "nearest"]
    assert all(f"| {row} |" in (tmp_path / "recognition.md").read_text() for row in kept)


def test_rows_that_follow_and_tell_no_next_step(films, tmp_path, monkeypatch):
    class Short(OnlineConfig):
        epochs: int = 20

    monkeypatch.setitem(RECOGNISERS, "online", replace(RECOGNISERS["online"], settings=Short))
    names = ["tcn", "lstm", "rule"]
    (table, _), report = compare_recognisers(films, tmp_path, names, [0])
    for name in names:
        row, sums = report["rows"][name], report["videos"][name]["0"]["sums"]
        assert row["frame"]["mean"] > 80
        assert sums["current"] == sums["frame"]  # both from the rows so far
        assert sums["done"] == sums["count"]
        assert "next" not in row
    assert "now" in table.heads
    assert "next" not in table.heads  # empty in all rows


def test_the_command(films, tmp_path, capsys):
    given = ["compare", str(films.folder), "--out", str(tmp_path), "--seeds", "1"]
    assert main([*given, "--recognisers", "nearest", "--json", "--no-estimate"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["rows"]["nearest"]["frame"]["mean"] > 90
    assert "estimate" not in said.err
    assert main([*given, "--recognisers", "nearest"]) == 0
    assert "nearest (1 seed)" in capsys.readouterr().out
    for other in ("--steps=1-4", "--no-published", "--costly-sample=5", "--selection=published"):
        assert main([*given, "--recognisers", "nearest", other]) == 2
        said = f"--recognisers: {other.split('=')[0]} has no meaning, since whole videos are scored"
        assert said in capsys.readouterr().err
    assert main([*given, "--recognisers", "nearest", "--sample=9", "--horizons=3"]) == 2
    assert "--recognisers: --sample, --horizons have no meaning" in capsys.readouterr().err
    assert main([*given, "--recognisers", "nonsense"]) == 2
    assert "recognisers nonsense: expected some of recogniser" in capsys.readouterr().err
    assert main([*given, "--recognisers", "nearest,lstm", "--against", "tcn"]) == 2
    said = "against tcn: is not among the rows nearest, lstm. (--against)"
    assert said in capsys.readouterr().err


def test_columns_of_recognisers_are_chosen_and_refused_by_their_own_heads(films, tmp_path, capsys):
    given = ["compare", str(films.folder), "--out", str(tmp_path), "--recognisers", "nearest"]
    assert main([*given, "--columns", "frame,SR"]) == 2
    said = capsys.readouterr().err
    assert "no column 'SR'; there are frame, frame/video, edit, F1@10" in said
    assert "done off, detected, delay (s), ECE. (--columns)" in said
    assert not (tmp_path / "recognition.json").exists()
    assert main([*given, "--columns", "edit,frame"]) == 0
    shown = capsys.readouterr()
    assert re.split("  +", shown.out.splitlines()[1]) == ["recogniser", "frame", "edit"]
    legend = "frame: rows labelled right, of all rows. edit: 1 − edit distance / longer length."
    few = "(6 videos resampled). So few videos make the intervals themselves uncertain."
    assert f"{few} {legend}\n" in shown.err
    page = (tmp_path / "recognition.md").read_text()
    assert "| recogniser | frame | edit |" in page
    assert "F1@10" not in page + (tmp_path / "recognition.tex").read_text()
    assert "f1_10" in (tmp_path / "recognition.json").read_text()  # whole


def test_jobs_share_a_folder(films, tmp_path, capsys):
    """Each of one row or seed; the last command adds what is missing, and makes the table."""
    rows, small = ["--recognisers", "tcn,nearest"], ["--set", "recogniser.epochs=1"]
    given = ["compare", str(films.folder), "--out", str(tmp_path), "--seeds=2", *rows, *small]
    remedy = "The command without --seed and --only makes the tables.\n"
    assert main([*given, "--estimate"]) == 0
    assert "estimate for 3 scores: " in capsys.readouterr().err
    assert not (tmp_path / "recognition.json").exists()
    shares = (["--seed=1", "--only=tcn"], ["--only=nearest", "--device=cpu"], [])
    for share, missing in zip(shares, (2, 1, 0), strict=True):  # nearest has no seeds: one score
        assert main([*given, *share]) == 0
        said = capsys.readouterr()
        here = f"done here: 1 of 1 score; missing in all: {missing} of 3. {remedy}"
        assert said.err.endswith(here) == bool(share)
        assert (said.out == "", (tmp_path / "recognition.md").exists()) == (bool(share), not share)
        assert ("wrote recognition.json, .md" in said.err) == (not share)
        assert said.err.count("estimate for 1 score: under a minute. It is of a few steps") == 1
        found = json.loads((tmp_path / "recognition.json").read_text())["videos"]
    assert {name: [*seeds] for name, seeds in found.items()} == {
        "tcn": ["1", "0"],
        "nearest": ["0"],
    }
    assert "tcn (2 seeds)" in said.out
    assert said.err.count("Changed settings: recogniser.epochs = 1.") == 1  # of two tables
    assert not [*(tmp_path / "trainings").iterdir()]
    assert not (tmp_path / "costs").exists()  # of planners
    before = (tmp_path / "recognition.json").read_bytes()
    assert main(given) == 0
    assert "estimate" not in capsys.readouterr().err
    assert (tmp_path / "recognition.json").read_bytes() == before


def test_workers_score_rows_and_seeds_as_one_process_does(films, tmp_path, capsys):
    given = ["compare", str(films.folder), "--recognisers", "tcn,nearest", "--seeds", "2"]
    given += ["--set", "recogniser.epochs=1", "--json"]
    reports = []
    for how in (["--workers", "2"], ["--executor", "serial"]):
        assert main([*given, *how, "--out", str(tmp_path / how[1])]) == 0
        said = capsys.readouterr()
        reports.append(json.loads(said.out))
        assert ("comparing: 3/3" in said.err) == ("2" in how)
        assert (", by 2 workers" in said.err) == ("2" in how)
        assert (" to go, under a minute" in said.err) == ("2" not in how)
    for report in reports:  # in the order in which they were scored
        report["videos"] = {
            name: dict(sorted(own.items())) for name, own in report["videos"].items()
        }
    assert reports[0] == reports[1]
    assert {name: [*own] for name, own in reports[0]["videos"].items()} == {
        "tcn": ["0", "1"],
        "nearest": ["0"],
    }
    for option, problem in (("--workers=0", "at least 1"), ("--executor=none", "no executor")):
        assert main([*given, option, "--out", str(tmp_path / "out")]) == 2
        assert problem in capsys.readouterr().err


def test_the_section_of_a_preset_is_of_rows_that_have_its_settings(films, tmp_path, capsys):
    preset = tmp_path / "own.toml"
    preset.write_text('base = "small"\n[recogniser]\nmethod = "online"\nepochs = 1\nclip = 2.0\n')
    given = ["compare", str(films.folder), "--recognisers", "tcn,nearest", "--seeds", "1"]
    given += ["--preset", str(preset), "--set", "recogniser.epochs=2", "--json"]
    assert main([*given, "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == {"epochs": 2, "clip": 2.0}
    preset.write_text('base = "small"\n[recogniser]\nepoch = 1\n')
    assert main([*given, "--out", str(tmp_path / "other")]) == 2
    assert "epoch" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own modules
def test_metrics_of_trainings_are_tracked_and_kept(films, tmp_path):
    pytest.importorskip("tensorboard")
    changes = {"epochs": 1, "members": 2, "training_steps": 7, "folds": 2}
    how: dict[str, Any] = {"changes": changes, "track": "tensorboard"}
    compare_recognisers(films, tmp_path, ["tcn", "rows", "nearest"], [0], **how)
    for row, networks in (("tcn", {"online"}), ("rows", {f"whole/member-{n}" for n in (1, 2)})):
        files = [*(tmp_path / "trainings" / f"{row}-0").rglob("metrics.jsonl")]
        told = [(path.parent, line) for path in files for line in read_metrics(path)]
        assert networks <= {line["network"] for _, line in told}
        assert all(line["loss"] > 0 for _, line in told)
        assert all([*folder.glob(f"{line['network']}/events.*")] for folder, line in told)
    assert not [*tmp_path.rglob("*.safetensors")]


class Failing(Pauses):
    """Fails, by a defect with seed 1."""

    @classmethod
    def fit(cls, *_, **options):
        if options["seed"]:
            raise ZeroDivisionError("no rows")
        raise DataError("no video to train on.")


def test_a_row_that_fails_does_not_stop_the_others(films, tmp_path, monkeypatch, capsys, caplog):
    row, kind = {"failing": RecogniserRow("never")}, cast("Any", Failing)
    method = RecogniserMethod(name="failing", recogniser=kind, settings=NearestConfig, rows=row)
    monkeypatch.setitem(RECOGNISERS, "failing", method)
    given = ["compare", str(films.folder), "--out", str(tmp_path), "--seeds", "2"]
    assert main([*given, "--recognisers", "failing,nearest"]) == 1
    said = capsys.readouterr()
    assert "nearest (1 seed)" in said.out
    assert "failed: failing, seed 0: no video to train on.\n" in said.err
    assert "failed: failing, seed 1: ZeroDivisionError: no rows. This is a defect" in said.err
    assert "Traceback" in caplog.text
    assert [*json.loads((tmp_path / "recognition.json").read_text())["videos"]] == ["nearest"]


class Joined(Pauses):
    """Another job of another seed ends while it is trained."""

    @classmethod
    def fit(cls, dataset, videos, **options):
        if options["seed"] == 0:
            folder = options["context"].folder.parent.parent
            compare_recognisers(dataset, folder, ["pauses"], [1])
        return super().fit(dataset, videos, **options)


@pytest.mark.parametrize(("seeded", "seeds"), [(False, ["1"]), (True, ["1", "0"])])
def test_jobs_of_two_seeds_score_a_row_without_seeds_once(
    films, tmp_path, monkeypatch, seeded, seeds
):
    method = RecogniserMethod(
        name="pauses",
        recogniser=cast("Any", Joined),
        settings=NearestConfig,
        rows={"pauses": RecogniserRow("always a pause")},
        seeded=seeded,
    )
    monkeypatch.setitem(RECOGNISERS, "pauses", method)
    report = compare_recognisers(films, tmp_path, ["pauses"], [0])[1]
    assert [*report["videos"]["pauses"]] == seeds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed=2"], "seed 2: is not among the seeds 0 to 0"),
        (["--only=tcn"], "only tcn: is not among the rows nearest"),
        (["--set=recogniser.members=1"], "recognisers nearest: setting 'recogniser.members'"),
        (["--set=recogniser.membrs=1"], "did you mean 'recogniser.members'? (--set recogniser.me"),
        (["--set=members=1"], "or 'recogniser.members' or"),
        (["--set=chain.width=8"], "--set chain.width: expected a setting of recognisers"),
        (["--set=recogniser.method=hmm"], "rows choose the method"),
    ],
)
def test_shares_and_settings_that_there_are_not(films, tmp_path, capsys, options, message):
    given = ["compare", str(films.folder), "--out", str(tmp_path), "--seeds=1"]
    assert main([*given, "--recognisers=nearest", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "recognition.json").exists()


def test_networks_that_are_trained_are_kept_until_then(films, tmp_path, monkeypatch):
    """A comparison that is killed while one recogniser is scored trains none of it again."""
    changes = SMALL.model_dump(exclude_unset=True)
    fail = RECOGNISER_METRICS["frame"]

    def stop(video):
        raise KeyboardInterrupt

    monkeypatch.setitem(RECOGNISER_METRICS, "frame", replace(fail, total=stop))
    with pytest.raises(KeyboardInterrupt):
        compare_recognisers(films, tmp_path / "out", ["rows"], [0], changes=changes)
    assert len([*(tmp_path / "out" / "trainings" / "rows-0").rglob("*.safetensors")]) > 3
    monkeypatch.setitem(RECOGNISER_METRICS, "frame", fail)
    monkeypatch.setattr(torch.optim, "AdamW", None)  # nothing is trained
    again = compare_recognisers(films, tmp_path / "out", ["rows"], [0], changes=changes)[1]
    monkeypatch.undo()
    fresh = compare_recognisers(films, tmp_path / "fresh", ["rows"], [0], changes=changes)[1]
    assert again["videos"] == fresh["videos"]


def test_results_of_other_rows_are_not_kept(films, tmp_path):
    """Although steps and observations, and so the fingerprint, are the same ones."""
    first = compare_recognisers(films, tmp_path / "out", ["nearest"], [0])[1]
    for name, rows, rate in (
        ("shuffled", [own[::-1].copy() for own in films.timeline.videos], 1.0),
        ("faster", films.timeline.videos, 2.0),
    ):
        other = write_dataset(
            tmp_path / name,
            name=films.name,
            annotations=films.annotations,
            start=films.start,
            end=films.end,
            timeline=Timeline(tuple(rows), rate),
            provenance=films.provenance,
        )
        assert other.fingerprint == films.fingerprint
        with pytest.raises(ConfigError, match=r"timeline \(.* there, .* here\)"):
            compare_recognisers(other, tmp_path / "out", ["nearest"], [0])
        found = compare_recognisers(other, tmp_path / f"{name}-out", ["nearest"], [0])[1]
        assert found["rows"] != first["rows"]


def test_scores_by_other_code_of_a_package_are_refused(films, tmp_path, monkeypatch):
    for code in ("", "first", "first"):  # the first ones were made without a record of it
        monkeypatch.setattr(RECOGNISERS, "code", {"nearest": code}.get)
        compare_recognisers(films, tmp_path / (code or "old"), ["nearest"], [0])
    monkeypatch.setattr(RECOGNISERS, "code", {"nearest": "second"}.get)
    compare_recognisers(films, tmp_path / "old", ["nearest"], [0])
    with pytest.raises(ConfigError, match="nearest by other code"):
        compare_recognisers(films, tmp_path / "first", ["nearest"], [0])


def test_settings_that_differ_from_those_of_a_folder_are_named(films, tmp_path):
    compare_recognisers(films, tmp_path, ["nearest"], [0])
    message = r"asked for: recogniser.members \(none there, 1 here\). Choose another folder"
    with pytest.raises(ConfigError, match=message):
        compare_recognisers(films, tmp_path, ["nearest", "rows"], [0], changes={"members": 1})


def test_a_job_of_other_settings_is_refused_before_the_first_score(films, tmp_path, monkeypatch):
    """Not after its own trainings, which may have taken hours."""
    refused = []

    def fit(*_, **__):
        with pytest.raises(ConfigError, match="which has no score yet") as told:
            compare_recognisers(films, tmp_path, ["nearest", "rows"], [0], changes={"members": 1})
        refused.append(told)
        raise DataError("no network.")

    monkeypatch.setattr(RecogniserScorer, "fit", fit)
    assert compare_recognisers(films, tmp_path, ["nearest"], [0])[1]["failed"]
    assert len(refused) == 1


def test_what_cannot_be_compared(films, world, tmp_path):
    with pytest.raises(DataError, match="holds no rows of whole videos"):
        compare_recognisers(world, tmp_path, ["nearest"], [0])
    (tmp_path / "recognition.json").write_text('{"dataset": {}}')
    with pytest.raises(ConfigError, match=r"format_version \(none there, 2 here\)"):
        compare_recognisers(films, tmp_path, ["nearest"], [0])


class Counted(Pauses):
    """The same, of any videos, which are noted."""

    fits: ClassVar[list[set[int]]] = []

    @classmethod
    def fit(cls, dataset, videos, **_):
        cls.fits.append({*videos})
        made = cls()
        made.taxonomy, made.rate = dataset.taxonomy, 1.0
        return made


def test_each_group_is_scored_by_a_recogniser_without_it(films, tmp_path, monkeypatch):
    row, kind = {"pauses": RecogniserRow("always a pause")}, cast("Any", Counted)
    method = RecogniserMethod(name="pauses", recogniser=kind, settings=NearestConfig, rows=row)
    monkeypatch.setitem(RECOGNISERS, "pauses", method)
    monkeypatch.setattr(Counted, "fits", [])
    groups = ["anna"] * 7 + ["ben"] * 5 + ["chris"] * 4
    videos = tuple(
        replace(video, group=group) for video, group in zip(films.videos, groups, strict=True)
    )
    data = replace(films, annotations=replace(films.annotations, videos=videos))
    (table,), found = compare_recognisers(data, tmp_path / "three", ["pauses"], [0], by="group")
    without = [{groups[video] for video in fit} for fit in Counted.fits]
    assert sorted(map(sorted, without)) == [["anna", "ben"], ["anna", "chris"], ["ben", "chris"]]
    assert found["folds"] == [7, 5, 4]
    assert sorted(found["test_videos"]) == sorted(video.video_id for video in films.videos)
    labels = [
        row_labels(video.steps, len(rows), 1.0, 6)
        for video, rows in zip(films.videos, films.timeline.videos, strict=True)
    ]
    shares = np.array([100 * (own == 6).mean() for own in labels])
    scores = found["rows"]["pauses"]
    assert scores["frame"]["mean"] == pytest.approx(
        100 * (np.concatenate(labels) == 6).mean(), abs=0.01
    )
    assert scores["frame_video"]["mean"] == pytest.approx(shares.mean(), abs=0.01)
    means = [shares[np.array(groups) == name].mean() for name in sorted({*groups})]
    low, high = (scores["frame_video"][end] for end in ("low", "high"))
    assert min(means) - 0.01 <= low < scores["frame_video"]["mean"] < high <= max(means) + 0.01
    assert "held out in 3 folds" in table.title
    assert "(3 groups resampled). So few groups make the intervals" in table.legend
    two = compare_recognisers(data, tmp_path / "two", ["pauses"], [0], by="group", folds=2)[1]
    assert two["folds"] == [7, 9]
    with pytest.raises(ConfigError, match=r"\[7, 9\] there, \[7, 5, 4\]"):
        compare_recognisers(data, tmp_path / "two", ["pauses"], [0], by="group")
    with pytest.raises(ConfigError, match="not of several groups"):
        compare_recognisers(films, tmp_path / "none", ["pauses"], [0], by="group")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--recognisers", "nearest", "--folds", "2"], "--folds is of --by group"),
        (["--planners", "nearest", "--by", "group"], "(cefito cross-validate has folds)"),
        (["--verifiers", "ours", "--by", "group"], "--verifiers: --by has no meaning, since they"),
        (["--verifiers", "ours", "--seed", "0", "--workers", "2"], "--seed, --workers have no"),
    ],
)
def test_folds_are_of_recognisers(films, tmp_path, given, message, capsys):
    assert main(["compare", str(films.folder), *given, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
