"""Scenario files: found by name or path, changed by `--set` and `--agents`, and read into the struct of their world.

Every error is a `ConfigurationError` that names the file, the key, the value and what is expected.
"""

import importlib
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.config.toml_reader import convert_document, nearest_key, parse_toml, read_text, unknown_keys
from headgate.errors import ConfigurationError
from headgate.lab.scenario import SET_BY_READER, Scenario

FOLDER: Final = Path(__file__).parent / "scenarios"
"""The scenarios of the package; a folder in it is a suite."""
WORLDS: Final[Mapping[str, tuple[str, str]]] = {
    "ticks": ("headgate.lab.ticks.settings", "TickScenario"),
    "events": ("headgate.lab.events.settings", "EventScenario"),
    "rates": ("headgate.lab.rates.settings", "RateScenario"),
}
"""The module and the struct of each world's scenarios."""


_SUITES: Final = {
    "inner": "limits on concurrent requests, which act within milliseconds",
    "outer": "fractions of traffic advice, which act within minutes and hours",
}
"""What the suites of the package are about."""


def names() -> list[str]:
    """Return the names of the scenarios and suites of the package."""
    return sorted(path.stem for path in FOLDER.iterdir() if path.suffix == ".toml" or is_suite(path))


def descriptions() -> dict[str, str]:
    """Return what each scenario and suite of the package is about, by name: scenarios first."""
    found = {name: FOLDER / f"{name}.toml" for name in names()}
    scenarios = {name: _description(path) for name, path in found.items() if path.exists()}
    suites = {
        name: f"Suite of {len(case_files(FOLDER / name))} scenarios: {_SUITES[name]}."
        for name in found
        if name not in scenarios
    }
    return scenarios | suites


def _description(path: Path) -> str:
    return str(parse_toml(read_text(path, advice="reinstall headgate"), str(path))["description"])


def is_suite(path: Path) -> bool:
    """Return whether `path` is a folder with scenario files."""
    return _is_folder(path) and any(path.glob("*.toml"))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or contains a NUL
        return False


def case_files(suite: Path, case: str | None = None) -> list[Path]:
    """Return the files of a suite in the order of their names, or only that of one `case`."""
    files = {path.stem: path for path in sorted(suite.glob("*.toml"))}
    if case is None:
        return list(files.values())
    if case not in files:
        near = nearest_key(case, list(files)).replace("the keys are", "the cases are")
        raise ConfigurationError(f"{suite.stem}: no case {case!r}; {near}")
    return [files[case]]


def find(name: str) -> Path:
    """Return the path of a scenario or suite: a name of the package, or a path (with `/`, or ending with `.toml`)."""
    if "/" in name or name.endswith(".toml"):
        return Path(name)
    for path in (FOLDER / f"{name}.toml", FOLDER / name):
        if name in names() and path.exists():
            return path
    near = nearest_key(name, [*names(), "./FILE.toml"]).replace("the keys are", "expected one of")
    raise ConfigurationError(f"no scenario {name!r}; {near}")


def read_scenario(
    path: str | Path, changes: Iterable[str] = (), *, agents: int | None = None, seeds: int | None = None
) -> Scenario:
    """Read the file at `path`, with `changes` (KEY=VALUE) applied.

    All agents are scaled to a sum of `agents`, and the seeds are 0 to `seeds` - 1, if these are given.
    """
    path = Path(path)
    if _is_folder(path):
        raise ConfigurationError(f"{path}: a folder without scenarios; a suite has at least one .toml file")
    text = read_text(path, advice="name a scenario of the package or a readable TOML file")
    return parse_scenario(text, path, changes, agents=agents, seeds=seeds)


def parse_scenario(
    text: str, path: Path, changes: Iterable[str] = (), *, agents: int | None = None, seeds: int | None = None
) -> Scenario:
    """Parse the text of the file at `path`, as `read_scenario` does; errors call it by its path."""
    document = parse_toml(text, str(path))
    for change in changes:
        _apply(document, change)
    return convert_scenario(document, path, agents=agents, seeds=seeds)


def convert_scenario(
    document: dict[str, Any], path: Path, *, agents: int | None = None, seeds: int | None = None
) -> Scenario:
    """Convert the parsed file at `path`; errors call it by its path."""
    try:
        scenario = _convert(document)
        if agents is not None:
            scenario = _scale(scenario, agents)
        if seeds is not None:
            scenario = msgspec.structs.replace(scenario, seeds=seeds)
        scenario = msgspec.structs.replace(scenario, name=path.stem, folder=str(path.parent.absolute()))
        scenario.check()
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return scenario


def _convert(document: dict[str, Any]) -> Scenario:
    world = document.get("world")
    if not isinstance(world, str) or world not in WORLDS:
        found = "the key 'world' is missing" if world is None else f"world: unknown world {world!r}"
        raise ConfigurationError(f"{found}; expected one of {', '.join(WORLDS)}")
    module, kind_name = WORLDS[world]
    kind: type[Scenario] = getattr(importlib.import_module(module), kind_name)
    hidden = ((key, key, list(kind.__struct_fields__)) for key in document if key in SET_BY_READER)
    for path, key, valid in (*hidden, *unknown_keys(document, kind)):
        near = nearest_key(key, [one for one in valid if one not in SET_BY_READER])
        raise ConfigurationError(f"{path}: unknown key; {near}")
    return convert_document(document, kind)


def _apply(document: dict[str, Any], change: str) -> None:
    """Set one key of the document: `load=2`, `agents.heavy.interval=5` (the table of the list with this name)."""
    key, equals, text = change.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise ConfigurationError(f"--set {change!r}: expected KEY=VALUE, such as load=2 or agents.heavy.interval=5")
    table: Any = document
    for depth, step in enumerate(steps[:-1]):
        table = _member(table, step, f"--set {change!r}", ".".join(steps[:depth]))
    if not isinstance(table, dict):
        path, tables = ".".join(steps[:-1]), _by_name(table)
        reason = f"a list; name one of its tables, {', '.join(tables)}" if tables else "not a table, so it has no keys"
        raise ConfigurationError(f"--set {change!r}: {path} is {reason}")
    table[steps[-1]] = _value(text)


def _member(table: Any, step: str, change: str, path: str) -> Any:
    """Return what a step of a key leads to: a key of a table, or the table of a list with this name."""
    if isinstance(table, dict):
        return table.setdefault(step, {})
    members = _by_name(table)
    if step not in members:
        found = f"its names are {', '.join(members)}" if members else "it has no tables with names"
        raise ConfigurationError(f"{change}: {path} has no table named {step!r}; {found}")
    return members[step]


def _by_name(table: Any) -> dict[str, Any]:
    """Return the tables of a list that have a name, by name."""
    members = table if isinstance(table, list) else []
    return {str(one["name"]): one for one in members if isinstance(one, dict) and "name" in one}


def _value(text: str) -> Any:
    """Return a value of TOML; the text itself if it is not one."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return document["value"] if document.keys() == {"value"} else text


def _scale(scenario: Scenario, total: int) -> Scenario:
    """Scale the counts of all agents to a sum of `total`, rounding by the largest remainder."""
    groups = getattr(scenario, "agents", ())
    count = sum(group.count for group in groups)
    if not count:
        raise ConfigurationError(f"--agents {total}: this scenario has no agents whose number could be scaled")
    shares = [group.count * total / count for group in groups]
    counts = [math.floor(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda index: counts[index] - shares[index])
    for index in by_remainder[: total - sum(counts)]:
        counts[index] += 1
    scaled = tuple(msgspec.structs.replace(group, count=new) for group, new in zip(groups, counts, strict=True))
    return msgspec.structs.replace(scenario, agents=scaled)
