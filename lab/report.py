"""Results for a person: a table of metrics, and whether they are in their ranges; and results as JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lab.results import Metric, Metrics, Result

_WIDTH: Final = 110
"""Columns; a table that would be wider has a row for each metric instead of one for each law."""


def report(result: Result) -> Iterator[str]:
    """Yield the lines of the report: what was simulated, a table of metrics, lists, and the expected ranges."""
    yield f"{result.scenario}: {result.description}"
    yield f"The mean of {result.seeds} seed{'' if result.seeds == 1 else 's'}:"
    yield ""
    lists = {name for metrics in result.policies.values() for name in metrics if isinstance(metrics[name], list)}
    yield from _metric_table(result.policies, hidden=lists)
    for name in sorted(lists):
        yield ""
        yield from _list_table(name, result.policies)
    if result.findings:
        yield ""
        yield from findings(result)


def _metric_table(policies: Mapping[str, Metrics], *, hidden: set[str]) -> Iterator[str]:
    names = list(dict.fromkeys(name for metrics in policies.values() for name in metrics if name not in hidden))
    rows = [["", *names]]
    rows += [[law, *(_cell(metrics.get(name)) for name in names)] for law, metrics in policies.items()]
    wide = list(aligned(rows))
    yield from wide if len(wide[0]) <= _WIDTH else aligned([list(column) for column in zip(*rows, strict=True)])


def _list_table(name: str, policies: Mapping[str, Metrics]) -> Iterator[str]:
    """Yield a row for each element of a list, and a column for each law."""
    columns = {law: value for law, metrics in policies.items() if isinstance(value := metrics.get(name), list)}
    rows = [[name, *columns]]
    for number, values in enumerate(zip(*columns.values(), strict=True), start=1):
        rows.append([str(number), *map(_cell, values)])
    yield from aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines; the first column is aligned to the left, the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, others, strict=True))
        yield "  ".join([name.ljust(first), *numbers]).rstrip()


def _cell(value: Metric | None) -> str:
    """Return a number as text: four significant digits, and whole numbers in full."""
    if value is None or isinstance(value, list) or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def findings(result: Result) -> Iterator[str]:
    """Yield a line for each range of each law; the control is expected to leave one of them."""
    width = max(map(len, result.findings))
    for law, of_law in result.findings.items():
        for finding in of_law:
            yield f"{law.ljust(width)}  {'ok     ' if finding.within else 'OUTSIDE'}  {finding}"
    if result.control in result.findings:
        verdict = "within all ranges, which therefore judge nothing" if result.within(result.control) else "outside"
        yield f"{result.control.ljust(width)}  is the control, and {verdict}"


def suite_report(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each scenario of a suite, with the ranges of those that are not as expected."""
    width = max(len(result.scenario) for result in results)
    for result in results:
        verdict = ("ok" if result.as_expected else "FAILED") if result.findings else "no range"
        yield f"{verdict.ljust(8)}  {result.scenario.ljust(width)}  {result.description}"
        if not result.as_expected:
            yield from (f"          {line}" for line in findings(result))


def scenario_json(result: Result) -> dict[str, Any]:
    """Return what `--json` prints of one scenario."""
    policies = {law: _numbers(metrics) for law, metrics in result.policies.items()}
    return {"scenario": result.scenario, "seeds": result.seeds, "policies": policies}


def suite_json(name: str, results: Sequence[Result]) -> dict[str, Any]:
    """Return what `--json` prints of a suite."""
    cases = [
        {
            "name": result.scenario,
            "law": law,
            "control": law == result.control,
            "metrics": _numbers(metrics),
            "within": result.within(law),
        }
        for result in results
        for law, metrics in result.policies.items()
    ]
    return {"scenario": name, "cases": cases}


def _numbers(metrics: Metrics) -> dict[str, Metric | None]:
    """Replace what was not measured by null."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in metrics.items()}
