"""Reports of runs: the numbers, against slow counting, and the page, as a parser reads it."""

import base64
import io
import re
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from PIL import Image

from browsing import ELEMENT, check_file, chromium, parsed
from cefito.data.windows import cut_windows, fitting_windows
from cefito.evaluation import evaluate_run, read_plans
from cefito.evaluation.records import RunEvaluation
from cefito.parts.folder import StartReference
from cefito.report import rendered, report_run, save_report
from cefito.report.breakdowns import confusion, gallery, loss_curves
from cefito.report.page import run_lead
from cefito.report.schema import Confusion
from cefito.runs.run import open_run
from cefito.study.tables import published_table
from cefito.training.checkpoint import MetricsLog
from tiny_runs import TINY_RUN, small_run


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    settings = TINY_RUN | {"training.optimiser.epochs": 2}
    folder = tmp_path_factory.mktemp("runs") / "run"
    return small_run(world, folder, "cefito+chain", overrides=settings)


@pytest.fixture(scope="module")
def made(trained):
    return report_run(trained)


@pytest.fixture(scope="module")
def page(made):
    return rendered(made)


@pytest.fixture(scope="module")
def tree(page):
    return parsed(page)


@pytest.fixture
def windows(trained, made):
    return read_plans(trained.folder / "plans-test.jsonl")


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def with_class(tree, tag, name):
    return [
        element
        for element in tree.iter(f"{ELEMENT}{tag}")
        if name in element.get("class", "").split()
    ]


def test_scores_are_those_of_evaluate(trained, made):
    assert made.scores == RunEvaluation.read(trained.folder / "evaluation-test.json")
    assert made.simulated  # the world is
    curves = {curve.name: curve for curve in made.curves}
    assert "chain" in curves
    assert curves["field"].epochs == [1, 2]
    assert not any(key.endswith("_seconds") for curve in made.curves for key in curve.scores)


def test_networks_of_a_recogniser_have_curves_of_their_own(made, tmp_path):
    log = MetricsLog(tmp_path, 0, network="fold-1-past/member-2")
    for step, loss in ((50, 2.0), (80, 1.5)):
        log.write({"step": step, "learning_rate": 0.1, "loss": loss, "train_seconds": 1.0})
    curves, notes = loss_curves({"recogniser": tmp_path})
    assert [(one.name, one.epochs, one.loss) for one in curves] == [
        ("recogniser: fold-1-past/member-2", [50, 80], [2.0, 1.5])
    ]
    assert notes == []
    drawn = rendered(made.model_copy(update={"curves": curves}))
    assert "recogniser: fold-1-past/member-2: loss 2.000 to 1.500 in 80 steps" in drawn


def test_groups_by_training(world, windows, made):
    train, _ = fitting_windows(world, horizon=3, selection="held-out")
    groups = {group.name: group for group in made.by_seen}
    for name, wanted in (("in training", True), ("not in training", False)):
        rows = train.actions.tolist()
        chosen = [window for window in windows if (window.true_actions in rows) == wanted]
        assert (name in groups) == bool(chosen)
        if chosen:
            group = groups[name]
            assert group.windows == len(chosen)
            assert group.videos == len({window.video for window in chosen})
            right = sum(window.success for window in chosen)
            assert group.success_rate == pytest.approx(100 * right / len(chosen))
            listed = sum(window.rank is not None for window in chosen)
            assert group.listed == pytest.approx(100 * listed / len(chosen))
            assert group.low <= group.success_rate <= group.high


def test_fewer_lengths_without_a_goal_after_steps_done(run_of_lengths, world, tmp_path):
    folder = shutil.copytree(run_of_lengths.folder, tmp_path / "run")
    made = report_run(open_run(folder).with_steps(2, 3), without_goal=True, after_done=True)
    scores = RunEvaluation.read(folder / "evaluation-test-without-goal-after-done-steps-2-3.json")
    assert made.scores == scores
    assert made.gallery_of == len(cut_windows(world, horizon=3, shortest=2, split="test"))
    train = cut_windows(world, horizon=3, shortest=2, split="train")
    seen = {tuple(row[row >= 0].tolist()) for row in train.actions}
    plans = read_plans(folder / "plans-test-without-goal-after-done-steps-2-3.jsonl")
    found = [tuple(row.true_actions) in seen for row in plans]
    counts = {group.name: group.windows for group in made.by_seen}
    assert counts == {"not in training": found.count(False), "in training": sum(found)}
    assert made.title.endswith(", T = 2-3")
    assert made.verified.videos == sum(v.split == "test" for v in world.videos)
    assert (made.verified.mistakes, made.verified.missed) == (0, ())
    assert "promised 10 false alarms an hour, kept" in made.verified.promises[-1].words
    assert "Promised 10 false alarms an hour" in rendered(made)
    labelled = made.verified.model_copy(update={"mistakes": 7, "missed": ((0, 80), (2.5, 10))})
    page = rendered(made.model_copy(update={"verified": labelled}))
    assert "Of 7 mistakes in" in page
    assert "Mistakes missed against false alarms an hour" in page
    assert "T = 2-3, predicted task, no goal, after steps done" in rendered(made)
    assert "--steps 1-4" in made.commands[0]  # it was trained for these
    assert "--steps 2-3 --without-goal --after-done" in made.commands[1]


def test_confusion_counts_every_window(windows, made):
    counted = {(true, planned): count for true, planned, count in made.confusion.pairs}
    assert counted == Counter((window.true_task, window.predicted_task) for window in windows)
    unknown = [windows[0].model_copy(update={"predicted_task": None, "predicted_task_name": None})]
    assert confusion(unknown) is None


def test_gallery(windows, made):
    assert len(made.gallery) == min(300, len(windows)) == made.gallery_of
    assert max(len(query.plans) for query in made.gallery) == 5
    for query, window in zip(made.gallery, windows, strict=True):
        wanted = "right" if window.success else "wrong" if window.rank is None else "listed"
        assert query.outcome == wanted
        assert (query.mistakes == []) == window.success
        assert query.plans == window.plans
    few = gallery(windows, 4)
    assert len(few) == 4
    assert few == gallery(windows, 4)
    places = [(query.video, query.from_step) for query in few]
    order = [(window.video, window.from_step) for window in windows]
    assert places == sorted(places, key=order.index) != order[:4]
    (query,) = gallery([windows[0].model_copy(update={"plans": [], "rank": None})], 1)
    assert (query.mistakes, query.missing) == (["missing"], [True] * 3)


def test_the_page_holds_the_numbers(made, tree):
    text = text_of(tree)
    for value in made.scores.metrics.values():
        assert all(f"{one:.2f}" in text for one in (value if isinstance(value, list) else [value]))
    assert made.dataset.fingerprint in text
    assert "simulated observations" in text
    assert "cefito train" in text
    (every,) = (one for one in tree.iter(f"{ELEMENT}details") if one.get("id") == "queries")
    queries = with_class(every, "article", "q")
    assert len(queries) == len(made.gallery)
    for element, query in zip(queries, made.gallery, strict=True):
        assert element.get("data-o") == query.outcome
        assert element.get("data-e").split() == query.mistakes
        strips = with_class(element, "ol", "s")
        assert len(strips) == 1 + len(query.plans)
        listed = [[text_of(step) for step in strip] for strip in strips]
        assert listed == [query.true_names, *(plan.names for plan in query.plans)]
        for plan in query.plans:
            percent = f"{100 * plan.probability:.1f}"
            assert f"{percent} % · E {plan.energy:.3f}" in text_of(element)
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(set(ids)) == len(ids)
    targets = [link.get("href") for link in tree.iter(f"{ELEMENT}a")]
    assert targets
    assert all(target[1:] in ids for target in targets)


def test_the_page_begins_with_a_sentence_and_examples(made, tree):
    body = tree.find(f"{ELEMENT}body")
    first = next(body.iter(f"{ELEMENT}p"))
    assert text_of(first) == run_lead(made)[0]
    sections = [one.get("aria-labelledby") for one in body.iter(f"{ELEMENT}section")]
    order = "gallery scores positions tasks confusion groups calibration training settings commands"
    assert [name for name in sections if name in order] == order.split()
    shown = next(body.iter(f"{ELEMENT}section"))
    examples = [one.get("data-o") for one in shown.findall(f"{ELEMENT}article")]
    outcomes = {query.outcome for query in made.gallery}
    assert examples == [name for name in ("right", "listed", "wrong") if name in outcomes]


def test_a_run_of_published_data_is_marked_among_published_results(made, page):
    assert 'class="own"' not in page
    scores = made.scores.model_copy(update={"dataset": "niv-simulated"})
    changes = {"published": published_table(scores), "gallery": [], "curves": []}
    tree = parsed(rendered(made.model_copy(update=changes)))
    (own,) = with_class(tree, "tr", "own")
    assert text_of(own).startswith("CEFITO + chain (this run)")


def test_the_page_asks_nothing_of_a_network(page):
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|<img|<link|\bsrc=", page)
    assert "default-src 'none'" in page


def test_kept_scores_are_used_only_with_their_plans(trained, tmp_path):
    run = open_run(shutil.copytree(trained.folder, tmp_path / "run"))
    (run.folder / "evaluation-test.json").unlink(missing_ok=True)
    evaluate_run(run, plans_file=run.folder / "plans-test.jsonl")
    kept = (run.folder / "evaluation-test.json").read_bytes()
    report_run(run)
    assert (run.folder / "evaluation-test.json").read_bytes() == kept
    plans, scores = run.folder / "plans-test.jsonl", run.folder / "evaluation-test.json"
    whole = plans.read_text()
    for path, old, new in (
        (plans, whole.splitlines(keepends=True)[-1], ""),
        (scores, '"mean_iou": ', '"mean_iou": 1'),
    ):
        text = path.read_text()
        path.write_text(text.replace(old, new, 1))
        assert path.read_text() != text
        report_run(run)
        assert plans.read_text() == whole
        assert '"mean_iou": 1' not in scores.read_text() or '"mean_iou": 1' in kept.decode()


def test_scores_and_plans_of_another_run_are_not_shown(trained, world, tmp_path):
    other = small_run(world, tmp_path / "other")
    evaluate_run(other, plans_file=other.folder / "plans-test.jsonl")
    run = open_run(shutil.copytree(trained.folder, tmp_path / "run"))
    for name in ("evaluation-test.json", "plans-test.jsonl"):
        shutil.copy(other.folder / name, run.folder)
    assert (
        report_run(run).scores.planner
        != RunEvaluation.read(other.folder / "evaluation-test.json").planner
    )


def test_a_sample_and_another_split_have_files_of_their_own(trained, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = open_run(shutil.copytree(trained.folder, "run"))
    line = {"step": 50, "learning_rate": 0.1, "loss": 2.0, "train_seconds": 1.0}
    (run.folder / "recogniser").mkdir()
    MetricsLog(run.folder / "recogniser", 0, network="whole").write(line)
    report = report_run(run, sample=5, queries=2)
    assert "recogniser: whole" in [curve.name for curve in report.curves]
    assert f"cefito report {tmp_path / 'run'} " in report.commands[-1]
    assert report.scores.windows == report.gallery_of == 5
    assert len(report.gallery) == 2
    assert (run.folder / "plans-test-sample-5.jsonl").exists()
    assert "--sample 5 --queries 2" in report.commands[-1]
    report = report_run(run, split="val", queries=0)
    assert report.scores.windows == len(cut_windows(world, horizon=3, split="val"))
    assert report.gallery == []
    parsed(rendered(report))


def test_names_are_escaped(made):
    hostile = '<img src=x onerror=alert(1)>"&\x00\ud800\u202e' + "x" * 200
    names = {"true_names": [hostile] * 3, "true_task_name": hostile, "video": hostile}
    query = made.gallery[0].model_copy(update=names)
    changes = {"title": hostile, "gallery": [query], "commands": [hostile], "curves": []}
    tree = parsed(rendered(made.model_copy(update=changes)))
    assert not list(tree.iter(f"{ELEMENT}img"))
    step = with_class(tree, "ol", "s")[0][0]  # of the only query, an example
    assert text_of(step).startswith('<img src=x onerror=alert(1)>"&\ufffd\ufffd')
    assert text_of(step).endswith("x" * 200)  # the truth is never cut


def test_a_method_without_energies_and_a_data_set_that_is_gone(world, tmp_path):
    moved = replace(world, folder=shutil.copytree(world.folder, tmp_path / "data"))
    run = small_run(moved, tmp_path / "run")
    shutil.rmtree(moved.folder)
    report = report_run(run, dataset=world.folder)
    assert (report.by_seen, report.energies) == (None, False)
    page = rendered(report)
    assert "· E " not in page
    notes = " ".join(report.notes)
    assert "data set that the run was trained on is not available" in notes
    parsed(page)


def test_a_run_that_no_single_command_trains(nearest_run, tmp_path):
    run = open_run(shutil.copytree(nearest_run.folder, tmp_path / "run"))
    began = StartReference(folder="other", dataset=run.info.dataset, seed=0, weights="")
    changes = {"imported": {"file": "x.pth"}, "selection": None, "started_from": began}
    run = replace(run, info=run.info.model_copy(update=changes))
    run.info.write(run.folder)
    made = report_run(run)
    origin = {"weights": "imported", "finetuned from": f"a run on {began.dataset.name}"}
    assert made.facts.items() >= origin.items()
    assert (made.by_seen, len(made.commands)) == (None, 1)


@pytest.mark.nightly
def test_nothing_serious_for_axe_in_a_browser(made, tmp_path):
    Image.new("RGB", (64, 48)).save(picture := io.BytesIO(), "JPEG")
    frames = (base64.b64encode(picture.getvalue()).decode(),) * 2
    more = {"video": "a_long_name_without_any_space_" * 4, "frames": frames}
    each = {query.outcome: query for query in made.gallery}  # a large page takes axe long
    gallery = [query.model_copy(update=more) for query in each.values()]
    confusion = Confusion(
        tasks={3: "make <a> " + "sandwich " * 6, 12: "切菜 $_1$" * 5},
        pairs=[(3, 3, 4), (3, 12, 1), (12, 12, 2)],
    )
    changes = {"gallery": gallery, "confusion": confusion, "curves": made.curves[:1]}
    few = made.model_copy(update=changes)
    save_report(few, tmp_path / "report.html")
    check_file(tmp_path / "report.html")


def test_the_gallery_is_filtered_and_the_page_fits_a_phone_and_is_printed(made, tmp_path):
    save_report(made, tmp_path / "report.html")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800})
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        assert asked == [(tmp_path / "report.html").as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("details", has=page.locator("#filters")).evaluate("one => one.open = true")
        shown = "all => all.filter(one => !one.closest('[hidden]')).length"
        wanted = {
            ("outcome", "right"): [query.outcome == "right" for query in made.gallery],
            ("mistake", "order"): ["order" in query.mistakes for query in made.gallery],
            ("task", str(made.gallery[0].true_task)): [
                query.true_task == made.gallery[0].true_task for query in made.gallery
            ],
        }
        articles = page.locator("#filters ~ * article.q, #filters ~ article.q")
        assert articles.evaluate_all(shown) == len(made.gallery)
        for (field, value), those in wanted.items():
            page.locator(f"#{field}").select_option(value)
            assert articles.evaluate_all(shown) == sum(those) < len(made.gallery)
            page.locator(f"#{field}").select_option("")
        assert page.pdf().startswith(b"%PDF")
