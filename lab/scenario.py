"""Scenario files: what every world has, and how they are read.

Each world adds its own keys in a subclass (`lab/events/settings.py`, `lab/rates/settings.py`). A field is a key of the
file; a tuple of structs is a list of tables. Types state the limits, so that no file makes a run endless or larger
than memory, and NaN and infinity are errors. What types cannot state is checked by `check`.

A file with `[[cases]]` is several scenarios, one for each of its rows: the keys of a row replace those of the file. A
key of a table in a list names that table: `loads.visitors.load = 2.0`.
"""

import copy
import importlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from headgate.errors import ConfigurationError, fail_if, reason_of
from lab.ranges import Expectation, Section

FOLDER: Final = Path(__file__).parent / "scenarios"
"""The suites of the lab; each is a folder."""
WORLDS: Final[Mapping[str, tuple[str, str]]] = {
    "events": ("lab.events", "EventScenario"),
    "rates": ("lab.rates", "RateScenario"),
}
"""The package of each world, and the struct of its scenarios."""
MAX_SEEDS: Final = 100_000
MAX_SIMULATED_SECONDS: Final = 10_000_000.0
"""About four months."""

Name = Annotated[str, Meta(min_length=1, max_length=100)]
"""The name of a load, a group of agents, a law or a signal."""
Seconds = Annotated[float, Meta(ge=1e-6, le=MAX_SIMULATED_SECONDS)]
"""A duration of more than zero."""
SecondsOrZero = Annotated[float, Meta(ge=0.0, le=MAX_SIMULATED_SECONDS)]
"""A duration."""
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
"""A probability or a share of something."""
Rate = Annotated[float, Meta(ge=1e-6, le=1e9)]
"""Requests per second of more than zero."""
RateOrZero = Annotated[float, Meta(ge=0.0, le=1e9)]
"""Requests per second."""
Factor = Annotated[float, Meta(ge=1e-6, le=1e6)]
"""A multiple of something, such as the load as a multiple of the capacity."""
Points = Annotated[tuple[tuple[SecondsOrZero, RateOrZero], ...], Meta(min_length=1, max_length=10_000)]
"""[seconds, value] in ascending order of time, with straight lines between them; two with one time are a step."""
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Scenario(Section, frozen=True, kw_only=True):
    """What every scenario has. `name` and `folder` are set by the reader, not by the file."""

    description: Annotated[str, Meta(min_length=1, max_length=1_000)]
    """One sentence."""
    world: Literal["events", "rates"]
    """Single requests, or rates of requests over hours."""
    seeds: Annotated[int, Meta(ge=1, le=MAX_SEEDS)] | Annotated[tuple[Seed, ...], Meta(min_length=1)] = 100
    """A number, N for the seeds 0 to N-1, or a list of seeds."""
    policies: Annotated[tuple[Name, ...], Meta(max_length=32)] = ()
    """The laws to compare: names, or `file.py:Class` of your own."""
    law: str = ""
    """In place of `policies`: the only law."""
    control: str = ""
    """The law that must leave the ranges; it is run as well."""
    expect: Annotated[tuple[Expectation, ...], Meta(max_length=100)] = ()
    """The allowed ranges."""
    name: str = ""
    """The name of the row, or of the file without `.toml`."""
    folder: str = ""
    """The folder of the file, where `file.py:Class` is looked for."""

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds, in the order of the runs."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def compared(self) -> tuple[str, ...]:
        """The laws that are run, each once: `policies` or the `law`, then the `control`."""
        return tuple(dict.fromkeys((*(self.policies or (self.law,)), *([self.control] if self.control else []))))

    def check(self) -> None:
        """Raise `ConfigurationError`, which begins with the key, for values that do not go together."""
        fail_if(
            bool(self.policies) == bool(self.law),
            "policies: expected a list of policies or a `law`; set one of the two",
        )
        for expectation in self.expect:
            expectation.check()


SUITES: Final[Mapping[str, str]] = {
    "inner": "limits on concurrent requests, which act within milliseconds",
    "outer": "fractions of traffic advice, which act within minutes and hours",
}
"""What each suite of the lab is about, by name."""


def read(name: str, changes: Iterable[str] = (), *, case: str | None = None) -> list[Scenario]:
    """Read a suite of the lab, a file, or a folder of files, with `changes` (KEY=VALUE) applied to each scenario."""
    path = FOLDER / name if name in SUITES else Path(name)
    fail_if(
        path.parent != FOLDER and "/" not in name and path.suffix != ".toml",
        f"no scenario {name!r}; expected one of the names that `python -m lab` lists, or ./FILE.toml",
    )
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    fail_if(not files, f"{path}: a folder without scenarios; expected at least one .toml file")
    rows = [(file, row_name, row) for file in files for row_name, row in _rows(file)]
    chosen = [one for one in rows if case in {None, one[1]}]
    fail_if(not chosen, f"no case {case!r}; the cases are {', '.join(row_name for _, row_name, _ in rows)}")
    parsed = [_parse_change(change) for change in changes]
    return [_convert(file, row_name, row, parsed) for file, row_name, row in chosen]


def is_suite(name: str) -> bool:
    """Return whether a name or path stands for several scenarios."""
    return name in SUITES or Path(name).is_dir() or "cases" in _parse(Path(name))


def parse(text: str, path: Path = Path("scenario.toml"), changes: Iterable[str] = ()) -> Scenario:
    """Parse the text of a scenario without rows; errors name its path."""
    return _convert(path, path.stem, tomllib.loads(text), [_parse_change(change) for change in changes])


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise ConfigurationError(f"{file}: {reason}; expected a readable TOML file") from None


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the document of each scenario of a file."""
    document = _parse(file)
    rows = document.pop("cases", None)
    if rows is None:
        yield file.stem, document
        return
    for row in rows:
        if not isinstance(row, dict) or not isinstance(name := row.pop("name", None), str):
            raise ConfigurationError(f"{file}: cases: expected tables with a name")
        merged = copy.deepcopy(document)
        _merge(merged, row, str(file))
        yield name, merged


def _merge(table: Any, changes: Mapping[str, Any], where: str) -> None:
    """Replace values of a table, or of the tables of a list by their names."""
    if isinstance(table, list):
        table = {one.get("name"): one for one in table if isinstance(one, dict)}
        if unknown := [name for name in changes if name not in table]:
            names = ", ".join(map(str, table))
            raise ConfigurationError(f"{where}: no table named {unknown[0]!r}; the names are {names}")
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict | list):
            _merge(table[key], value, f"{where}: {key}")
        else:
            table[key] = value


def _parse_change(change: str) -> dict[str, Any]:
    """Parse `load=2` or `loads.visitors.load=2` into nested tables; what is not a value of TOML is text."""
    key, equals, text = change.partition("=")
    steps = key.strip().split(".")
    fail_if(
        not equals or not all(steps),
        f"--set {change!r}: expected KEY=VALUE, such as seconds=60 or loads.visitors.load=2",
    )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    for step in reversed(steps):
        value = {step: value}
    assert isinstance(value, dict)
    return value


def _convert(path: Path, name: str, document: dict[str, Any], changes: Sequence[Mapping[str, Any]]) -> Scenario:
    """Convert one scenario of a file; errors name the file and the scenario."""
    where = str(path) if name == path.stem else f"{path}: {name}"
    for change in changes:
        _merge(document, change, where)
    world: Any = document.get("world")
    fail_if(
        not isinstance(world, str) or world not in WORLDS,
        f"{where}: world: expected one of {', '.join(WORLDS)}, got {world!r}",
    )
    module, kind_name = WORLDS[world]
    kind: type[Scenario] = getattr(importlib.import_module(module), kind_name)
    document |= {"name": name, "folder": str(path.parent.absolute())}
    try:
        scenario = msgspec.convert(document, kind)
        scenario.check()
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return scenario
