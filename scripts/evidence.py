"""Measure what docs/evidence.md states, draw its plots, and write the page: `make evidence`, or some parts by name.

The figures are written to docs/evidence/figures.json, the plots beside it. All are the same bytes for the same version,
except the part `speed`. The part `page` measures nothing: it renders the page from the figures that are there.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec

from bench.__main__ import measure as run_benchmark
from headgate.cli.output import progress
from headgate.lab.charts import CAPACITY, Level, Line, Panel, panels_over_time
from headgate.lab.plots import caption_of, draw, outages_of
from headgate.lab.processes import available_processors
from headgate.lab.ranges import Finding
from headgate.lab.results import Metrics, Result
from headgate.lab.runner import run_scenario
from headgate.lab.scenario import Scenario
from headgate.lab.scenario_file import case_files, find, read_scenario
from headgate.lab.ticks.settings import TickScenario
from scripts.evidence_page import CONDITIONS, FIGURES_FILE, FOLDER, read_figures, write_page

Figures = dict[str, Any]


class Case(NamedTuple):
    """One run of `headgate simulate`."""

    scenario: str
    seeds: int
    changes: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that prints the figures."""
        changes = "".join(f" --set {change}" for change in self.changes)
        return f"headgate simulate {self.scenario}{changes} --seeds {self.seeds} --json"

    def read(self) -> Scenario:
        """Return the scenario with the changes and seeds of this case."""
        scenario = read_scenario(find(self.scenario), self.changes)
        return msgspec.structs.replace(scenario, seeds=self.seeds)

    def run(self, *, record: bool = False) -> Result:
        """Run it on all processors, with a progress bar on a terminal."""
        return _run(self.read(), record=record)


SEEDS: Final = 100
TOURNAMENT_SEEDS: Final = 5
TOURNAMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "load_1": (),
    "load_2": ("load=2",),
    "load_4": ("load=4",),
    "load_10": ("load=10",),
    "errors": ("errors=0.05",),
    "outage": ("outage=300",),
    "outage_2": ("load=2", "outage=300"),
}
"""What is changed in the tournament under each condition."""
_SMALL: Final = ("load=2", "agents.heavy.count=50", "agents.interactive.count=450", "warmup=120", "ticks=300")
SAMPLES: Final[Mapping[str, Case]] = {
    "attack": Case("attack", 2),
    "downtime": Case("downtime", 2),
    "tournament": Case("tournament", 1, _SMALL),
}
"""Cheap runs: a test repeats them, and so notices figures that the code no longer gives."""


def _run(scenario: Scenario, *, record: bool = False) -> Result:
    with progress(scenario.name, len(scenario.compared) * len(scenario.seed_list)) as advance:
        return run_scenario(scenario, processes=available_processors(), record=record, advance=advance)


def _figures_of(case: Case, result: Result) -> Figures:
    return {"command": case.command, "seeds": result.seeds, "policies": result.policies}


def _write_plot(name: str, panels: list[Panel], *, title: str, caption: str, columns: int | None = None) -> None:
    (FOLDER / f"{name}.svg").write_bytes(draw(panels, title=title, caption=caption, columns=columns))


def _over_time(name: str, case: Case, result: Result, *, title: str, signals: tuple[str, ...]) -> None:
    """Draw some signals of a result over time."""
    _write_plot(name, _over_time_panels(case, result, signals), title=title, caption=caption_of(result))


def _over_time_panels(case: Case, result: Result, signals: tuple[str, ...]) -> list[Panel]:
    return panels_over_time(result, signals=signals, shades=outages_of(case.read()))


def _since(panel: Panel, start: float) -> Panel:
    """Return the panel without what is before `start`, and without means, which would include that."""
    lines = []
    for line in panel.lines:
        first = bisect_left(line.x, start)
        low, high = line.low[first:], line.high[first:]
        lines.append(msgspec.structs.replace(line, x=line.x[first:], y=line.y[first:], low=low, high=high, note=""))
    return msgspec.structs.replace(panel, lines=tuple(lines))


def samples() -> Figures:
    """Return the figures of the cheap runs."""
    return {name: _figures_of(case, run_scenario(case.read())) for name, case in SAMPLES.items()}


def attack() -> Figures:
    """Run `attack` and draw load and goodput."""
    case = Case("attack", SEEDS)
    result = case.run(record=True)
    title = "Throttling keeps the mean load of an attacked server below its capacity"
    _over_time("attack", case, result, title=title, signals=("load", "goodput"))
    return {"attack": _figures_of(case, result)}


def downtime() -> Figures:
    """Run `downtime` and draw the increase of each trial."""
    case = Case("downtime", SEEDS)
    scenario = case.read()
    assert isinstance(scenario, TickScenario)
    result = _run(scenario)
    requests = [trial.downtime / trial.interval for trial in scenario.trials]
    panel = Panel(
        "Increase in each of the 18 trials, and in all",
        "requests that an agent would send during the downtime (downtime ÷ interval)",
        "% more perceived downtime",
        tuple(_increase(result.policies[policy], policy, requests) for policy in ("draft", "chromium")),
        (Level(8.0, "8 % published"), Level(15.0, "15 % published")),
        x_ticks=(3, 10, 30, 100, 300, 1000, 3000),
        connected=False,
    )
    title = "Over all trials, outages seem about a tenth longer to throttled agents"
    caption = f"Mean of {case.seeds} seeds for each trial. Published for the average of all: 8 to 15 %."
    _write_plot("downtime", [panel], title=title, caption=caption)
    return {"downtime": _figures_of(case, result)}


def _increase(metrics: Metrics, policy: str, requests: list[float]) -> Line:
    """Return the increase of each trial in percent, by the requests that an agent would send during it."""
    ratios, total = metrics["trials"], metrics["perceived_downtime_ratio"]
    assert isinstance(ratios, list)
    assert isinstance(total, float)
    points = sorted(zip(requests, [ratio * 100 - 100 for ratio in ratios], strict=True))
    return Line(policy, [x for x, _ in points], [y for _, y in points], note=f"{total * 100 - 100:.1f} % in all")


def tournament() -> Figures:
    """Run the tournament under all conditions; draw it by load, over time at 2×, and through an outage."""
    cases = {key: Case("tournament", TOURNAMENT_SEEDS, changes) for key, changes in TOURNAMENT.items()}
    assert list(cases) == list(CONDITIONS)
    results = {key: case.run(record=key in ("load_2", "outage_2")) for key, case in cases.items()}
    _by_load({load: results[f"load_{load}"] for load in (1, 2, 4, 10)})
    title = "Twice the capacity: only together is the server full, and not more than full"
    signals = ("load", "goodput", "holds", "fraction")
    _over_time("load", cases["load_2"], results["load_2"], title=title, signals=signals)
    title = "After an outage of five minutes, agents that only back off come back late"
    panels = _over_time_panels(cases["outage_2"], results["outage_2"], ("load", "goodput"))
    caption = f"{_caption_of(results['outage_2'])} Offered load: twice the capacity."
    _write_plot("outage", [_since(panel, 12.0) for panel in panels], title=title, caption=caption)
    return {f"tournament_{key}": _figures_of(case, results[key]) for key, case in cases.items()}


def _by_load(results: Mapping[int, Result]) -> None:
    shown = (
        ("goodput", "Goodput: requests answered in time", "multiple of capacity", (CAPACITY,)),
        ("interactive_success", "People whose visit succeeds", "share of visits", ()),
    )
    loads = [float(load) for load in results]
    panels = []
    for metric, heading, unit, levels in shown:
        lines = []
        for policy in results[1].policies:
            values = [result.policies[policy][metric] for result in results.values()]
            lines.append(Line(policy, loads, [value for value in values if isinstance(value, float)]))
        axis = "offered load as a multiple of the capacity"
        panels.append(Panel(heading, axis, unit, tuple(lines), levels, x_ticks=tuple(loads)))
    title = "Up to ten times the capacity, all together keep the server useful"
    _write_plot("tournament", panels, title=title, caption=f"Mean of {TOURNAMENT_SEEDS} seeds.", columns=2)


def _caption_of(result: Result) -> str:
    return f"Mean of {result.recorded} seeds; bands: from 10 % to 90 % of the seeds."


SUITES: Final = {
    "inner": (
        "step-exponential",
        "At three times the capacity, a limit keeps the server useful and answers fast",
        ("offered", "goodput", "refused", "latency_p99"),
    ),
    "outer": (
        "step",
        "Ten times the capacity: the demand law settles, the ratio rings",
        ("demand", "load", "fraction", "goodput"),
    ),
}
"""Of each suite the case that is drawn, the title, and the signals."""


def suite(name: str) -> list[Figures]:
    """Run a suite, draw one case, and return for each case what its law and its control measured."""
    _draw_case(name)
    cases = []
    for path in case_files(find(name)):
        scenario = read_scenario(path)
        result = _run(scenario)
        cases.append(
            {
                "name": scenario.name,
                "as_expected": result.as_expected,
                "laws": [
                    {
                        "law": law,
                        "control": law == result.control,
                        "within": result.within(law),
                        "findings": [_finding(one) for one in result.findings.get(law, ())],
                    }
                    for law in result.policies
                ],
            }
        )
    return cases


def _draw_case(name: str) -> None:
    case, title, signals = SUITES[name]
    result = _run(read_scenario(case_files(find(name), case)[0]), record=True)
    panels = [_since(panel, 0.0) for panel in panels_over_time(result, signals=signals)]
    _write_plot(name, panels, title=title, caption=f"Case {case}. {_caption_of(result)}")


def _finding(finding: Finding) -> Figures:
    return {
        "what": str(finding.expectation),
        "range": finding.expectation.range,
        "low": min(finding.values),
        "high": max(finding.values),
        "within": finding.within,
    }


def speed() -> list[Figures]:
    """Measure the speed: the only figures that differ from run to run."""
    return [
        {"what": row.what, "context": row.context, "ratio": row.ratio, "bound": row.bound, "target": row.target}
        for row in run_benchmark("lab", rounds=3)
    ]


PARTS: Final[Mapping[str, tuple[str, Callable[[], Any]]]] = {
    "samples": ("samples", samples),
    "attack": ("runs", attack),
    "downtime": ("runs", downtime),
    "tournament": ("runs", tournament),
    "inner": ("suites", lambda: {"inner": suite("inner")}),
    "outer": ("suites", lambda: {"outer": suite("outer")}),
    "speed": ("speed", lambda: {"rows": speed()}),
}
"""What is measured for each part, and the key of figures.json under which it is kept."""


def _write_figures(figures: Figures) -> None:
    """Write the file, whatever the order of the parts; policies and metrics keep theirs."""
    ordered = {key: dict(sorted(parts.items())) for key, parts in sorted(figures.items())}
    FIGURES_FILE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@click.command()
@click.argument("parts", metavar="[PART]...", nargs=-1, type=click.Choice([*PARTS, "page"]))
def main(parts: tuple[str, ...]) -> None:
    """Measure the parts of docs/evidence.md, by default all, and write the page."""
    FOLDER.mkdir(exist_ok=True)
    figures = dict(read_figures()) if FIGURES_FILE.exists() else {}
    for name in parts or PARTS:
        if name in PARTS:
            key, measure = PARTS[name]
            figures[key] = {**figures.get(key, {}), **measure()}
            _write_figures(figures)
    write_page()


if __name__ == "__main__":
    main(prog_name="python -m scripts.evidence")
