"""Entries of other packages: found, imported late, and left out where they cannot be used."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cefito.encoders.frames import Sampling
from cefito.encoders.video import ENCODERS, Pictures, open_encoder
from cefito.errors import ConfigError
from cefito.evaluation.metrics import METRICS, MetricSums, metric_heads, metric_meanings
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS
from cefito.planners.base_planner import BasePlanner
from cefito.planners.methods import METHODS, Method
from cefito.plugins import Registry
from cefito.search.base import MemorySettings
from cefito.search.guided import GuidedSearch
from cefito.search.settings import SEARCHES, SearchConfig, make_search, search_settings
from cefito.study.recognition import compare_recognisers
from row_films import prepared_films

GROUP = "cefito.numbers"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs a package with entry points of a group, and its module."""

    def install(name, points, module, *, group=GROUP):
        info = tmp_path / f"{name}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        lines = [f"{point} = {place}" for point, place in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
        (tmp_path / f"{name}.py").write_text(module)
        monkeypatch.delitem(sys.modules, name, raising=False)

    monkeypatch.syspath_prepend(tmp_path)
    return install


def numbers():
    def fault(name, entry):
        return "" if isinstance(entry, int) else "it is not a number"

    return Registry(GROUP, "number", {"one": 1, "late": f"{__name__}:LATE"}, fault)


LATE = 3


def test_own_entries_are_a_mapping():
    found = numbers()
    assert dict(found) == {"one": 1, "late": 3}
    assert (len(found), "one" in found, "two" in found) == (2, True, False)
    found["two"] = 2
    del found["one"]
    assert list(found) == ["late", "two"]
    with pytest.raises(KeyError):
        found["one"]
    assert found.package("two") is found.package("none") is None


def test_entries_of_packages_are_imported_late(install):
    install("plus", {"two": "plus:TWO"}, "TWO = 2\n")
    found = numbers()
    assert "two" in found
    assert found.package("two") == ("plus", "0.1")
    assert "plus" not in sys.modules
    assert found["one"] == 1
    assert "plus" not in sys.modules
    assert dict(found) == {"one": 1, "late": 3, "two": 2}


def test_code_of_a_package_is_told_from_that_before(install, tmp_path):
    install("plus", {"two": "plus:TWO"}, "TWO = 2\n")
    install("deep", {"three": "deep.numbers:THREE"}, "")
    (tmp_path / "deep.py").unlink()
    (tmp_path / "deep/parts").mkdir(parents=True)
    for file in ("__init__.py", "numbers.py", "parts/layers.py"):
        (tmp_path / "deep" / file).write_text("THREE = 3\n")
    found = numbers()
    before = found.code("two"), found.code("three")
    assert found.code("one") == found.code("none") == ""
    assert (found.code("two"), found.code("three")) == before
    assert len({*before, ""}) == 3
    (tmp_path / "plus.py").write_text("TWO = 1 + 1\n")
    (tmp_path / "deep/parts/layers.py").write_text("THREE = 2\n")
    assert not {*before} & {found.code("two"), found.code("three")}
    assert "deep.numbers" not in sys.modules


@pytest.mark.parametrize(
    ("place", "module", "reason"),
    [
        ("bad:TWO", "import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("bad:TWO", "raise SystemError('of\\nits own')", "SystemError: of its own"),
        ("bad:TWO", "", "AttributeError: "),
        ("bad:TWO", "import sys; sys.exit()", "SystemExit: "),
        ("bad:TWO", "import pytest; pytest.skip('x', allow_module_level=True)", "Skipped: "),
        ("bad two", "TWO = 2", "AttributeError: "),
        ("bad:TWO", "TWO = 'two'", "it is not a number"),
    ],
)
def test_what_cannot_be_used_is_reported_once_and_left_out(install, caplog, place, module, reason):
    install("plus", {"four": "plus:FOUR"}, "FOUR = 4\n")
    install("bad", {"two": place}, module)
    found = numbers()
    with caplog.at_level("WARNING"):
        assert dict(found) == dict(found) == {"one": 1, "late": 3, "four": 4}
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"the number 'two' of the package bad 0.1 cannot be used ({reason}")
    assert line.endswith("update or uninstall it.")
    assert "\n" not in line
    with pytest.raises(ConfigError, match="'two' of the package bad"):
        found["two"]


def test_names_that_are_taken_are_left_out(install, caplog):
    install("bad", {"one": "bad:TWO"}, "TWO = 2\n")
    found = numbers()
    with caplog.at_level("WARNING"):
        assert dict(found) == {"one": 1, "late": 3}
    assert "the number 'one' of the package bad 0.1 is left out" in caplog.text


def again(registry, monkeypatch):
    """Let a registry look for packages again, now and after the test."""
    monkeypatch.setattr(registry, "loaded", {})
    monkeypatch.setattr(registry, "refused", {})
    monkeypatch.delitem(vars(registry), "points", raising=False)
    points = type(registry).__dict__["points"].func(registry)
    monkeypatch.setitem(vars(registry), "points", points)


def test_a_search_of_a_package(install, monkeypatch, caplog):
    code = "from test_plugins import NARROW, ODD\n"
    install("finder", {"narrow": "finder:NARROW", "odd": "finder:ODD"}, code, group=SEARCHES.group)
    again(SEARCHES, monkeypatch)
    assert isinstance(make_search(search_settings(SearchConfig(), method="narrow")), NarrowSearch)
    searches: list[Any] = [
        make_search(search_settings(SearchConfig(), method="odd:far=5,wide=7")),
        make_search(search_settings(SearchConfig(), method="odd", memory_mib=9)),
    ]
    assert [(search.far, search.wide) for search in searches] == [(5, 7), (3, 2)]
    for wrong, message in (("odd:near=1", "setting 'near': there is none"), ("odd:far=x", "'far'")):
        with pytest.raises(ConfigError, match=f"search '{wrong}': .*{message}|{message}"):
            search_settings(SearchConfig(), method=wrong)
    assert "narrow" in list(SEARCHES)


class NarrowSearch(GuidedSearch):
    pass


class OddSettings(MemorySettings):
    far: int = 3
    wide: int = 2


class OddSearch(OddSettings, GuidedSearch):
    pass


NARROW = type(SEARCHES["guided"])(NarrowSearch, SEARCHES["guided"].settings)
ODD = type(SEARCHES["guided"])(OddSearch, OddSettings)


def test_a_metric_of_a_package(install, monkeypatch, caplog):
    code = (
        "from cefito.evaluation.metrics import Metric\n"
        "LAST = Metric(lambda scored: (float((scored.best[:, -1] == scored.actual[:, -1]).sum()),\n"
        "    len(scored.actual)), 'last', 'the last step is right')\n"
    )
    code += "SAME = Metric(lambda scored: (1, 1), 'SR', 'something else')\n"
    names = {"last_step": "judge:LAST", "same": "judge:SAME", "copy": "judge:LAST"}
    install("judge", names, code, group=METRICS.group)
    again(METRICS, monkeypatch)
    assert metric_heads()["last_step"] == "last"
    assert {"same", "copy"}.isdisjoint(metric_heads())
    assert metric_meanings(["success_rate"]) == {"SR": "every step is right"}
    for head in ("SR", "last"):
        assert f"cannot be used (its head '{head}' is that of another metric)" in caplog.text
    sums = MetricSums()
    sums.add([np.array([[0, 2]]), np.array([[0, 1]])], np.array([[1, 2], [0, 2]]))
    assert sums.percents()["last_step"] == 50


def test_a_metric_of_recognisers_of_a_package(install, monkeypatch, caplog, tmp_path):
    code = (
        "from cefito.evaluation.metrics import Metric\n"
        "SHORT = Metric(lambda video: (len(video.truth) < 60, 1), 'short', 'less than a minute')\n"
        "BAD = Metric(lambda video: video.truth.fill(0), 'bad', 'changes the truth')\n"
        "BARE = Metric(lambda video: (1, 1), meaning='one')\n"
    )
    names = {"short": "judge:SHORT", "bad": "judge:BAD", "bare": "judge:BARE"}
    install("judge", names, code, group=RECOGNISER_METRICS.group)
    again(RECOGNISER_METRICS, monkeypatch)
    (tmp_path / "films").mkdir()
    films = prepared_films(tmp_path / "films")
    (table,), found = compare_recognisers(films, tmp_path / "out", ["nearest"], [0])
    short = [len(films.timeline.videos[place]) < 60 for place in range(10, 16)]
    assert found["rows"]["nearest"]["short"]["mean"] == pytest.approx(100 * np.mean(short), abs=0.1)
    assert "short" in table.heads
    assert "less than a minute" in table.meanings["short"]
    assert {"bad", "bare"}.isdisjoint(found["rows"]["nearest"])
    assert "'bare' of the package judge 0.1 cannot be used (it has no head)" in caplog.text
    assert "'bad' of the package judge 0.1 failed" in caplog.text


BAD_METRICS = {
    "raises": "1 / 0",
    "exits": "sys.exit()",
    "NaN": "(float('nan'), 1)",
    "text": "'50 %'",
    "one number": "50.0",
    "two shapes": "(np.zeros(2), 1.0)",
    "a negative divisor": "(1, -1)",
    "positions under a head": "(np.ones(2), np.ones(2))",
    "changes the plans": "scored.plans.fill(0)",
}


@pytest.mark.parametrize("body", BAD_METRICS.values(), ids=BAD_METRICS)
def test_a_metric_that_fails_is_left_out_with_its_package(install, monkeypatch, caplog, body):
    code = (
        "import sys\nimport numpy as np\nfrom cefito.evaluation.metrics import Metric\n"
        f"BAD = Metric(lambda scored: {body}, 'bad', 'bad')\n"
    )
    install("judge", {"bad": "judge:BAD"}, code, group=METRICS.group)
    again(METRICS, monkeypatch)
    sums = MetricSums()
    with caplog.at_level("WARNING"):
        for _ in range(2):
            sums.add([np.array([[0, 1]])], np.array([[0, 1]]))
    assert sums.percents()["success_rate"] == sums.percents()["mean_iou"] == 100
    assert "bad" not in sums.percents()
    assert "bad" not in metric_heads()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("the metric 'bad' of the package judge 0.1 failed (")
    assert line.endswith(") and is left out; update or uninstall it.")


def test_encoders_of_a_package(install, monkeypatch):
    points = {"grey": "sight:open_grey", "brightness": "sight:open_brightness"}
    code = "from test_plugins import open_grey, open_brightness\n"
    install("sight", points, code, group=ENCODERS.group)
    again(ENCODERS, monkeypatch)
    clips = torch.rand(2, 3, 1, 4, 4)
    grey = open_encoder("grey", frames=1)
    assert grey.sampling.frames == 1
    np.testing.assert_allclose(grey.encode(clips)[:, 0], clips.mean((1, 2, 3, 4)), rtol=1e-5)
    brightness = open_encoder("brightness", device="cpu")
    assert isinstance(brightness, Pictures)
    np.testing.assert_allclose(brightness.encode(clips), grey.encode(clips), rtol=1e-5)
    with pytest.raises(ConfigError, match="layer: the encoder grey"):
        open_encoder("grey", layer="last")
    page = (Path(__file__).resolve().parents[1] / "docs" / "encoders.md").read_text("utf-8")
    own, entries = (
        re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
        for language in ("python", "toml")
    )
    (points,) = tomllib.loads(entries)["project"]["entry-points"].values()
    install("my_package", points, own, group=ENCODERS.group)
    again(ENCODERS, monkeypatch)
    assert open_encoder("mean-colours").encode(torch.rand(2, 3, 1, 8, 8)).shape == (2, 48)


class Grey:
    def __init__(self, frames):
        self.sampling = Sampling(frames=frames, rate=1, size=None)

    def encode(self, clips):
        return clips.flatten(1).mean(dim=1, keepdim=True).numpy()

    def describe(self):
        return {"model": "grey"}


class Brightness:
    def encode(self, images):
        return images.flatten(1).mean(dim=1, keepdim=True).numpy()

    def describe(self):
        return {"model": "brightness"}


def open_grey(*, frames=1, device="cpu"):
    return Grey(frames)


def open_brightness(*, device="cpu"):
    return Brightness()


def test_a_method_that_is_no_planner_is_refused():
    kept = type("Mine", (BasePlanner,), {})
    for method, fault in (
        (Method(name="mine", planner=kept), ""),
        (Method(name="mine", planner=object), "its planner is not a Planner"),  # type: ignore[arg-type]
        (Method(name="mine", planner=kept, settings=dict), "its settings are not a class"),  # type: ignore[arg-type]
        (Method(name="other", planner=kept), "its entry point is not a Method of the name 'mine'"),
    ):
        found = METHODS.fault("mine", method)
        assert found.startswith(fault)
        assert bool(found) == bool(fault)
