"""The site made of these pages: `make docs` builds it into dist/docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cefito

project = "cefito"
version = release = cefito.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

suppress_warnings = ["misc.highlighting_failure"]  # requests without a version of HTTP
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "description"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
default_role = "code"
smartquotes_action = "D"  # dashes alone
highlight_language = "none"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "cefito"
html_copy_source = False
html_show_copyright = html_show_sphinx = False


_ARRAY = re.compile(
    r"~?numpy\.ndarray\[tuple\[[^\[\]]+\], ~?numpy\.dtype\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\]"
)
_ACCESSIBLE = {
    r'role="heading">': 'role="heading" aria-level="2">',
    r'<th class="head[^"]*">(?:<p>)?\s*(?:</p>)?</th>': "<td></td>",
    r'<aside class="(sidebar|toc)-drawer': r'<aside aria-label="\1" class="\1-drawer',
    r"<pre>": '<pre tabindex="0">',  # wide code scrolls by keys too
    r'<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}
"""Patterns in the theme's pages that keep out screen readers or keyboards, and their remedies."""


def setup(app: Any) -> None:
    """Make links of the repository's root links of this folder; shorten types; mend the pages."""

    def moved(found: re.Match[str]) -> str:
        link = found[1]
        if link.startswith("docs/"):
            return f"]({link.removeprefix('docs/')})"
        return f"]({link.lower()})" if link.endswith(".md") else f"](../{link})"

    def include(_app: Any, _path: Path, _document: str, content: list[str]) -> None:
        content[0] = re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", moved, content[0])

    def inside(_app: Any, _document: str, content: list[str]) -> None:
        content[0] = content[0].replace("](../README.md", "](index.md")
        for name in ("CHANGELOG.md", "SECURITY.md"):
            content[0] = content[0].replace(f"](../{name}", f"]({name.lower()}")

    def shorten(app: Any, *_: Any) -> None:
        for kinds in app.env.current_document.autodoc_annotations.values():
            for name, kind in kinds.items():
                kinds[name] = _ARRAY.sub(r"~numpy.typing.NDArray[\1]", kind)

    def mend(app: Any, problem: Exception | None) -> None:
        for path in () if problem else Path(app.outdir).glob("*.html"):
            text = path.read_text(encoding="utf-8")
            for pattern, remedy in _ACCESSIBLE.items():
                text = re.sub(pattern, remedy, text)
            path.write_text(text, encoding="utf-8")

    app.connect("include-read", include)
    app.connect("source-read", inside)
    app.connect("object-description-transform", shorten, priority=400)  # before types are shown
    app.connect("build-finished", mend)
