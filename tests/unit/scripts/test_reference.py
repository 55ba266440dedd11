"""The reference pages that are generated."""

import re
from pathlib import Path

import pytest

from headgate.config.proxy_section import Proxy
from scripts.reference import FOLDER, PAGES

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", PAGES)
def test_page_is_up_to_date(page):
    assert (FOLDER / page).read_text(encoding="utf-8") == PAGES[page](), "run `make reference`"


def test_pages_list_every_command_key_metric_and_class():
    pages = {name: (FOLDER / name).read_text(encoding="utf-8") for name in PAGES}
    for command in ("serve", "proxy", "bundle create", "token mint", "config check"):
        assert f"## headgate {command}\n" in pages["cli.md"]
    for key in Proxy.__struct_fields__:
        assert f"\n| `{key}` |" in pages["configuration.md"]
    metrics = re.findall(r"headgate_\w+_total", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert metrics
    for metric in metrics:
        assert f"`{metric}`" in pages["metrics.md"]
    for name in ("Courtesy", "Gatekeeper", "GatekeeperMiddleware", "Throttle", "BundleWriter"):
        assert f"### class {name}" in pages["python.md"]
