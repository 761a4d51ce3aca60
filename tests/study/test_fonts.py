"""Names in any script: fonts by what they cover, and one note where there is none."""

import logging
import warnings

import numpy as np
import pytest

from cefito.study import fonts
from cefito.study.figures import EnergyCurve, Line, PlanPanel, draw_energies, draw_plans
from cefito.study.fonts import covering, scripts


def curve(title):
    return EnergyCurve(title, np.arange(1.0, 9.0), 2)


def test_few_families_cover_as_much_as_there_is():
    families = {
        "Small": frozenset("a"),
        "Large": frozenset("abc"),
        "Other": frozenset("cd"),
        "Useless": frozenset("xyz"),
    }
    assert covering("abcd", families) == (["Large", "Other"], set())
    assert covering("dq", families) == (["Other"], {"q"})
    assert covering("", families) == ([], set())
    assert covering("q", {}) == ([], {"q"})


def test_scripts_by_their_names():
    assert scripts("茶จก粥") == ["CJK", "Thai"]
    assert scripts("क☃") == ["Devanagari", "symbols"]


def test_what_another_font_has_is_drawn_with_it(tmp_path, caplog, monkeypatch):
    """Script capitals are in a font that comes with matplotlib, though not in its usual one."""
    used = []
    chosen = fonts.covering
    monkeypatch.setattr(fonts, "covering", lambda *given: used.append(chosen(*given)) or used[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_energies([curve("tea 𝒜")], tmp_path / "energies.png")
    ((families, missing),) = used
    assert len(families) == 1
    assert missing == set()
    assert caplog.records == []


def test_what_no_font_has_is_said_once_and_warns_of_no_letter(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(fonts, "_families", lambda: {"Latin": frozenset("abc")})
    plans = [Line(score=1.0, actions=["粥を煮る", "茶"], right=[True, False])] * 5
    panel = PlanPanel(title="朝食", truth=["粥を煮る", "茶"], plans=plans)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        draw_plans([panel, panel], tmp_path / "plans.png", title="朝食")
    (record,) = caplog.records
    assert record.getMessage().startswith("no font here has the letters of CJK, Hiragana: they are")
    assert (tmp_path / "plans.png").stat().st_size > 1000


def test_names_of_the_usual_letters_look_for_no_font(tmp_path, monkeypatch):
    def refuse():
        raise AssertionError("all fonts were read")

    monkeypatch.setattr(fonts, "_families", refuse)
    draw_energies([curve("Καφές, чай, thé – $5")], tmp_path / "energies.png")


@pytest.mark.parametrize("content", [b"", b"no font"])
def test_a_file_that_is_no_font_has_no_letters(content, tmp_path):
    (tmp_path / "broken.ttf").write_bytes(content)
    assert fonts._letters(str(tmp_path / "broken.ttf")) == frozenset()
