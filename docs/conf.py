"""Configuration of Sphinx for the documentation site; `scripts/docs.py` runs it on a copy of this folder."""

from headgate.version import VERSION

project = "Headgate"
author = copyright = "Headgate contributors"  # noqa: A001 (Sphinx reads this name)
version = ".".join(VERSION.split(".")[:2])
release = VERSION
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_templates"]
nitpicky = True

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = f"Headgate {version}"
html_static_path = ["_static", "pictures/dashboard-1280-dark.png"]  # the picture of site.css
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {"version_name": version}
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
html_permalinks_icon = "#"
pygments_style = "friendly"
pygments_dark_style = "monokai"
