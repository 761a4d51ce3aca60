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

autodoc_typehints = "none"  # the docstrings give shapes and units
autodoc_member_order = "bysource"
default_role = "code"
smartquotes = False
highlight_language = "none"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "cefito"
html_copy_source = False
html_show_copyright = html_show_sphinx = False


def setup(app: Any) -> None:
    """Make links of pages of the repository's root, such as the README, links of this folder."""

    def moved(found: re.Match[str]) -> str:
        link = found[1]
        if link.startswith("docs/"):
            return f"]({link.removeprefix('docs/')})"
        return f"]({link.lower()})" if link.endswith(".md") else f"](../{link})"

    def include(_app: Any, _path: Path, _document: str, content: list[str]) -> None:
        content[0] = re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", moved, content[0])

    app.connect("include-read", include)
