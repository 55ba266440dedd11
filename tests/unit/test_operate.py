"""The metrics and lines of the log that docs/how-to/operate.md names exist, with the values of labels that it names."""

import re
from pathlib import Path

from headgate.observe.admin import MetricsWriter
from headgate.observe.state import ServerState
from scripts.reference import metrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/operate.md").read_text()
NAMED = re.compile(r"\b((?:headgate|process)_[a-z0-9_]+)(?:\{([a-z]+)=\"([^\"]+)\"\})?")


def test_the_metrics_exist():
    text = metrics() + MetricsWriter().write([], ServerState())[0].decode()
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|", text, re.MULTILINE)}
    rows |= dict.fromkeys(re.findall(r"^(\w+) ", text, re.MULTILINE), "")
    named = set(NAMED.findall(PAGE))
    assert len(named) > 30
    missing = {name for name, _, _ in named if re.sub("_bucket$", "", name) not in rows}
    assert missing == set()
    assert [one for one in named if one[1] and f"`{one[2]}`" not in rows[one[0]]] == []


def test_the_lines_of_the_log_exist():
    source = "".join(path.read_text() for path in (ROOT / "src/headgate").rglob("*.py"))
    lines = [row.rsplit("|", 2)[1] for row in PAGE.splitlines() if row.startswith("| ")]
    quoted = [part for line in lines for text in re.findall("`(.+?)`", line) for part in re.split("…|4711", text)]
    assert len(quoted) > 5
    assert [part.strip() for part in quoted if part.strip() not in source] == []
