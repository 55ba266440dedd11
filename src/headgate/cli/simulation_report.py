"""The report of `headgate simulate` for a person: a table of metrics, and whether they are in their ranges."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from headgate.cli.output import format_count, printable, style
from headgate.lab.ranges import Finding
from headgate.lab.results import Metric, Metrics, Result
from headgate.lab.scenario import Scenario

_WIDTH: Final = 110
"""Columns; a table that would be wider has a row for each metric instead of one for each policy."""
_OK: Final = "ok"
_OUTSIDE: Final = "OUTSIDE"


def report(scenario: Scenario, result: Result) -> Iterator[str]:
    """Yield the lines of the report: what was simulated, a table of metrics, lists, and the expected ranges."""
    yield style(f"{result.scenario}: {printable(scenario.description)}", bold=True)
    yield f"The mean of {format_count(result.seeds, 'seed')} for each {'law' if scenario.law else 'policy'}:"
    yield ""
    yield from _metric_table(result.policies)
    for name in _lists(result.policies):
        yield ""
        yield f"{name}:"
        yield from _list_table(name, result.policies, _labels(scenario, name))
    if result.findings:
        yield ""
        yield from _findings(result)


def _metric_table(policies: Mapping[str, Metrics]) -> Iterator[str]:
    metrics = list(dict.fromkeys(name for of in policies.values() for name in of if not isinstance(of[name], list)))
    rows = [["", *metrics]]
    rows += [[printable(policy), *(_cell(of.get(name)) for name in metrics)] for policy, of in policies.items()]
    wide = list(_aligned(rows))
    yield from wide if len(wide[0]) <= _WIDTH else _aligned([list(column) for column in zip(*rows, strict=True)])


def _lists(policies: Mapping[str, Metrics]) -> list[str]:
    return list(dict.fromkeys(name for of in policies.values() for name in of if isinstance(of[name], list)))


def _labels(scenario: Scenario, name: str) -> Iterator[str]:
    """Yield what each element of a list is about: the keys of the scenario's table of this name, or its number."""
    tables = getattr(scenario, name, ())
    for table in tables:
        values = msgspec.to_builtins(table).items()
        yield ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values)
    yield from map(str, count(len(tables) + 1))


def _list_table(name: str, policies: Mapping[str, Metrics], labels: Iterator[str]) -> Iterator[str]:
    """Yield a row for each element, and a column for each policy."""
    columns = {policy: value for policy, of in policies.items() if isinstance(value := of.get(name), list)}
    rows = [["", *map(printable, columns)]]
    rows += [[next(labels), *map(_cell, values)] for values in zip(*columns.values(), strict=True)]
    yield from _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines; the first column is aligned to the left, the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, others, strict=True))
        yield "  ".join([name.ljust(first), *numbers]).rstrip()


def _cell(value: Metric | None) -> str:
    """Return a number as text: four significant digits, and whole numbers in full."""
    if value is None or isinstance(value, list):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _findings(result: Result) -> Iterator[str]:
    """Yield a line for each range of each policy; the control is expected to leave one of them."""
    width = max(map(len, result.findings))
    for policy, findings in result.findings.items():
        for finding in findings:
            verdict = _verdict(finding, is_control=policy == result.control)
            yield f"{printable(policy).ljust(width)}  {verdict}  {finding}"
    if result.control in result.findings:
        yield f"{printable(result.control).ljust(width)}  {_control_verdict(result)}"


def _verdict(finding: Finding, *, is_control: bool) -> str:
    if finding.within:
        return _OK.ljust(len(_OUTSIDE))
    return style(_OUTSIDE, fg="yellow" if is_control else "red")


def _control_verdict(result: Result) -> str:
    if result.within(result.control):
        return "is the control and within all ranges, so they do not tell a good policy from a bad one"
    return "is the control, which has to be outside of a range"


def suite_report(scenarios: Sequence[Scenario], results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each scenario of a suite, with the ranges of those that are not as expected."""
    width = max(len(result.scenario) for result in results)
    for scenario, result in zip(scenarios, results, strict=True):
        verdict = style(_OK.ljust(6), fg="green") if result.as_expected else style("FAILED", fg="red")
        yield f"{verdict}  {result.scenario.ljust(width)}  {printable(scenario.description)}"
        if not result.as_expected:
            yield from (f"        {line}" for line in _findings(result))
    good = sum(result.as_expected for result in results)
    yield ""
    total = format_count(len(results), "scenario")
    yield f"{good} of {total} as expected: each law in its ranges, its control outside."


def failures(results: Sequence[Result]) -> Iterator[str]:
    """Yield a sentence for each range that does not hold, and for each control that is within its ranges."""
    for result in results:
        for policy, findings in result.findings.items():
            if policy == result.control:
                if result.within(policy):
                    yield f"{result.scenario}: {printable(policy)} {_control_verdict(result)}"
            else:
                yield from (f"{result.scenario}: {printable(policy)}: {one}" for one in findings if not one.within)
