"""Render docs/evidence.md: the template docs/evidence/page.md.in with the figures of docs/evidence/figures.json.

In the template, `{{ runs.attack.policies.draft.client_success:.2f }}` is a figure by its path, with a format, and
`{{ table tournament goodput }}` is a table made by one of the functions below. Rendering runs nothing.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "docs" / "evidence"
FIGURES_FILE: Final = FOLDER / "figures.json"
TEMPLATE_FILE: Final = FOLDER / "page.md.in"
PAGE_FILE: Final = FOLDER.parent / "evidence.md"
CONDITIONS: Final[Mapping[str, str]] = {
    "load_1": "1×",
    "load_2": "2×",
    "load_4": "4×",
    "load_10": "10×",
    "errors": "5 % errors",
    "outage": "outage at 1×",
    "outage_2": "outage at 2×",
}
"""The headings of the tournament's conditions: the load as a multiple of the capacity."""
_PLACEHOLDER: Final = re.compile(r"\{\{ (.+?) \}\}")
_WIDTH: Final = 130
_MARGIN: Final = 0.005
"""Differences up to this are called equal."""

Figures = Mapping[str, Any]


def render(figures: Figures, template: str) -> str:
    """Return the page; `KeyError` for a placeholder that names no figure."""
    return "\n\n".join(_render_block(figures, block) for block in template.split("\n\n"))


def _render_block(figures: Figures, block: str) -> str:
    """Fill the placeholders of a block; a paragraph with figures inside its text is wrapped again."""
    filled = _PLACEHOLDER.sub(lambda found: _value(figures, found[1]), block)
    is_text = block[:1].isalpha() and _PLACEHOLDER.search(block)
    return fill(filled, _WIDTH, break_long_words=False, break_on_hyphens=False) if is_text else filled


def read_figures() -> Figures:
    """Return the committed figures."""
    figures: Figures = json.loads(FIGURES_FILE.read_text(encoding="utf-8"))
    return figures


def write_page() -> None:
    """Write the page from the committed figures and the template."""
    PAGE_FILE.write_text(render(read_figures(), TEMPLATE_FILE.read_text(encoding="utf-8")), encoding="utf-8")


def _value(figures: Figures, placeholder: str) -> str:
    kind, *arguments = placeholder.split()
    if kind == "table":
        return TABLES[arguments[0]](figures, *arguments[1:])
    path, _, form = kind.partition(":")
    value: Any = figures
    for name in path.split("."):
        value = value[name]
    return f"{value * 100:.0f} %" if form == "%" else format(value, form)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown: the first column to the left, the others to the right."""
    lines = [heading, ["---", *["--:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _figure(value: float) -> str:
    """Format a figure of a table: shares with three decimals, counts without."""
    if math.isnan(value):
        return "not measured"
    if not math.isfinite(value):
        return "never"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def metrics_table(figures: Figures, key: str) -> str:
    """Return a row for each metric of a run, with a column for each policy; metrics that are lists are left out."""
    policies = figures["runs"][key]["policies"]
    first = next(iter(policies.values()))
    names = [name for name, value in first.items() if not isinstance(value, list)]
    rows = [[f"`{name}`", *(_figure(of[name]) for of in policies.values())] for name in names]
    return _table(["metric (mean)", *(f"`{policy}`" for policy in policies)], rows)


def tournament_table(figures: Figures, metric: str) -> str:
    """Return a row for each policy of the tournament, with a column for each condition; the best values are bold."""
    runs = figures["runs"]
    keys = [key for key in CONDITIONS if metric in next(iter(runs[f"tournament_{key}"]["policies"].values()))]
    columns = {key: runs[f"tournament_{key}"]["policies"] for key in keys}
    rows = []
    for policy in next(iter(columns.values())):
        cells = [_marked(columns[key], policy, metric) for key in keys]
        rows.append([f"`{policy}`", *cells])
    return _table([f"`{metric}`", *(CONDITIONS[key] for key in keys)], rows)


def _marked(policies: Mapping[str, Mapping[str, float]], policy: str, metric: str) -> str:
    value = policies[policy][metric]
    if metric in ("server_load", "local_refusals"):
        return _figure(value)
    best = max(of[metric] for of in policies.values())
    return f"**{_figure(value)}**" if _figure(value) == _figure(best) else _figure(value)


def commands(figures: Figures) -> str:
    """Return the commands of the tournament."""
    return ", ".join(f"`{figures['runs'][f'tournament_{key}']['command']}`" for key in CONDITIONS)


def losses_table(figures: Figures) -> str:
    """Return where another policy has a higher value than all together."""
    rows = []
    for key, heading in CONDITIONS.items():
        policies = figures["runs"][f"tournament_{key}"]["policies"]
        for metric in ("goodput", "interactive_success", "heavy_success", "recovery_goodput"):
            ours = policies["together"].get(metric)
            if ours is None:
                continue
            better = {name: of[metric] for name, of in policies.items() if of[metric] > ours + _MARGIN}
            if better:
                others = ", ".join(f"`{name}` {_figure(value)}" for name, value in _highest_first(better))
                rows.append([heading, f"`{metric}`", _figure(ours), others])
    return _table(["condition", "metric", "`together`", "higher"], rows) if rows else "Nowhere in these figures."


def _highest_first(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])


def targets_table(figures: Figures) -> str:
    """Return what the tournament had to reach, and what it reached."""
    runs = figures["runs"]
    rows = []
    for key in ("load_2", "load_4"):
        policies = runs[f"tournament_{key}"]["policies"]
        for metric, bound in (("goodput", 0.92), ("interactive_success", 0.97)):
            rows.append(_target(f"`{metric}` of `together` at {CONDITIONS[key]}", policies["together"][metric], bound))
        others = max(of["goodput"] for name, of in policies.items() if name != "together")
        claim = f"`goodput` of `together` ÷ that of the best of the others at {CONDITIONS[key]}"
        rows.append(_target(claim, policies["together"]["goodput"] / others, 1.0))
    refusals = runs["tournament_errors"]["policies"]["together"]["local_refusals"]
    rows.append(["`local_refusals` of `together` with 5 % errors", "0", _figure(refusals), _yes(refusals == 0)])
    for key in ("outage", "outage_2"):
        policies = runs[f"tournament_{key}"]["policies"]
        ratio = policies["together"]["recovery_goodput"] / policies["draft"]["recovery_goodput"]
        rows.append(_target(f"`recovery_goodput` of `together` ÷ that of `draft`, {CONDITIONS[key]}", ratio, 3.0))
    return _table(["to reach", "at least", "found", "reached"], rows)


def _target(what: str, value: float, bound: float) -> list[str]:
    return [what, f"{bound:g}", _figure(value), _yes(value >= bound)]


def _yes(reached: bool) -> str:  # noqa: FBT001  # one value of a table
    return "yes" if reached else "**no**"


def suite_table(figures: Figures, name: str) -> str:
    """Return a row for each case of a suite: one range that its control leaves, and the values of law and control."""
    rows = []
    for case in figures["suites"][name]:
        laws = {law["control"]: law for law in case["laws"]}
        index = next((n for n, one in enumerate(laws[True]["findings"]) if not one["within"]), 0)
        law, control = (laws[is_control]["findings"][index] for is_control in (False, True))
        what = f"{law['what']} {law['range']}"
        marks = "" if case["as_expected"] else " **(not as expected)**"
        names = [f"`{laws[is_control]['law']}`" for is_control in (False, True)]
        rows.append([f"`{case['name']}`{marks}", what, f"{names[0]} {_span(law)}", f"{names[1]} {_span(control)}"])
    return _table(["case", "a range that the control leaves", "law", "control"], rows)


def _span(finding: Mapping[str, float]) -> str:
    low, high = _figure(finding["low"]), _figure(finding["high"])
    return low if low == high else f"{low} to {high}"


def cases_count(figures: Figures, name: str) -> str:
    """Return how many cases of a suite are as expected, and how many there are."""
    cases = figures["suites"][name]
    return f"{sum(case['as_expected'] for case in cases)} of {len(cases)}"


def speed_table(figures: Figures) -> str:
    """Return the rows of the benchmark, if it was run."""
    if not figures["speed"]["rows"]:
        return "Not measured."
    rows = [
        [row["what"], f"{row['bound']} {row['target']:g}", f"{row['ratio']:.3g}", row["context"]]
        for row in figures["speed"]["rows"]
    ]
    return _table(["what", "to reach", "median", "context"], rows)


TABLES: Final[Mapping[str, Callable[..., str]]] = {
    "cases": cases_count,
    "commands": commands,
    "losses": losses_table,
    "metrics": metrics_table,
    "speed": speed_table,
    "suite": suite_table,
    "targets": targets_table,
    "tournament": tournament_table,
}
"""The tables of the template by name."""
