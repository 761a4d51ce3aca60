"""The site of the documentation: built without a warning, whole, and without other servers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import html5lib
import pytest

from browsing import chromium, faults_light_and_dark

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LOADS = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src"}


# the first page, one of tables and code, that of the library, and that of the search
KINDS = ("index", "serve", "api", "search")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; a warning, such as a dead link, fails the build."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", DOCS, out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def trees(site):
    """Each built page by its name."""
    return {
        path.name: html5lib.parse(path.read_bytes(), namespaceHTMLElements=False)
        for path in site.glob("*.html")
    }


def heading(page):
    """The title of a page of Markdown; an included page has that of its source."""
    text = page.read_text(encoding="utf-8")
    if included := re.match(r":::\{include\} (\S+)", text):
        return heading(page.parent / included[1])
    return re.match(r"# (.+)", text)[1]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_every_page_is_there(page, trees):
    """Also if the builder has a page of that name, such as its search."""
    tree = trees[f"{page.stem}.html"]
    title = "".join(tree.find(".//article//h1").itertext()).rstrip("¶")
    assert title == heading(page).replace("`", "")


def test_nothing_is_loaded_from_elsewhere(site, trees):
    loaded = [
        element.get(LOADS[element.tag])
        for tree in trees.values()
        for element in tree.iter()
        if element.tag in LOADS
    ]
    assert [address for address in loaded if address and urlsplit(address).netloc] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", styles) == []


def test_no_fault_for_axe_and_nothing_wider_than_a_phone(site):
    with chromium() as browser:
        page = browser.new_page()
        for name in KINDS:
            page.goto((site / f"{name}.html").as_uri())
            page.set_viewport_size({"width": 390, "height": 800})
            wide = page.evaluate("document.documentElement.scrollWidth")
            page.set_viewport_size({"width": 1280, "height": 800})
            # further descriptions of classes and functions look like the first ones
            page.evaluate("[...document.querySelectorAll('dl.py')].slice(9).map(e => e.remove())")
            assert (name, faults_light_and_dark(page), wide) == (name, [], 390)
