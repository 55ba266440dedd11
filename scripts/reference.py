"""Make the reference pages that are generated from the code: commands, configuration, metrics, Python, scenario files.

`make docs` builds them into the site; ``make reference`` writes them to build/reference, which git ignores.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import click
import msgspec
from prometheus_client.core import Metric

from headgate.cli.program import program
from headgate.config import Configuration
from headgate.config.file import field_docs
from headgate.limit.concurrency import ConcurrencyState
from headgate.link.router import RouterCounters
from headgate.observe import (
    Counters,
    gate_metrics,
    master_metrics,
    read_counters,
    router_metrics,
    sidecar_metrics,
    state,
)
from headgate.origin.gateway.meter import RequestMeter
from headgate.origin.gateway.record import FAILURES
from headgate.origin.sidecar.data_plane import SidecarCounters
from headgate.proxy.counters import Counts
from headgate.rlqs.service import QuotaCounters
from headgate.runtime.gate_server import GATE_GROUPS
from headgate.runtime.gatekeeping import GATEKEEPER_GROUPS
from headgate.runtime.master_server import MASTER_GROUPS
from headgate.runtime.prefetch_proxy_server import ProxyState, proxy_metrics
from headgate.store.redis_store import StoreCounters
from lab.events.service import Service
from lab.events.settings import Change, EventScenario, Load, Station
from lab.ranges import Expectation
from lab.rates.settings import Agents, RateScenario
from lab.scenario import Scenario

FOLDER = Path(__file__).parents[1] / "build" / "reference"
_NOTE = "This page is generated from the code.\n"
_WIDTH = 84
_KEYS = "{.keys}\n"
"""The class of a table whose last column has a line of its own (docs/_static/site.css)."""
Groups = list[tuple[str, type[msgspec.Struct]]]
_PYTHON = (
    "headgate.agent", "headgate.agent.httpx", "headgate.agent.aiohttp", "headgate.agent.requests",
    "headgate.agent.niquests", "headgate.agent.scrapy", "headgate.agent.urllib", "headgate.origin",
    "headgate.origin.asgi", "headgate.origin.wsgi", "headgate.limit", "headgate.link", "headgate.throttle",
    "headgate.advice", "headgate.advice_control", "headgate.bundle", "headgate.agent.bundle",
    "headgate.origin.bundle", "headgate.token", "headgate.release", "headgate.errors",
)  # fmt: skip
_SCENARIO_TABLES: dict[str, type[msgspec.Struct]] = {
    "Every scenario": Scenario,
    "Ranges, `[[expect]]`": Expectation,
    "World `events`: single requests": EventScenario,
    "`[station]`": Station,
    "`service`": Service,
    "`[[changes]]`": Change,
    "`[[loads]]`": Load,
    "World `rates`: rates over hours": RateScenario,
    "`[[agents]]`": Agents,
}
_TYPES = {str: "text", int: "integer", float: "number", bool: "true or false"}


def command_line() -> str:
    """Return the help of every command."""
    parts = ["# Command line\n", _NOTE]
    for path, text in commands(program, "headgate", None):
        parts.append(f"## {path}\n\n```text\n{text.strip()}\n```\n")
    return "\n".join(parts)


def commands(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """Yield each command with its help."""
    context = click.Context(
        command, parent, name, terminal_width=_WIDTH, max_content_width=_WIDTH, help_option_names=["-h", "--help"]
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for nested_name in command.list_commands(context):
            nested = command.get_command(context, nested_name)
            assert nested is not None
            yield from commands(nested, nested_name, context)


def configuration() -> str:
    """Return a table of keys for each table of the file."""
    return "\n".join(
        [
            "# Configuration: headgate.toml\n",
            _NOTE,
            "Each key has its type, its default and its meaning.\n",
            *_sections(Configuration, ""),
        ]
    )


def _sections(table: type[msgspec.Struct], path: str) -> Iterator[str]:
    docs = field_docs(table)
    fields = msgspec.structs.fields(table)
    inner = [field for field in fields if _table_of(field.type) is not None]
    if path:
        yield f"## {path}\n\n{_paragraphs(table.__doc__)}\n"
        yield f"{_KEYS}| key | type | default | meaning |\n|---|---|---|---|"
        for field in fields:
            if field not in inner:
                default = "required" if field.default is msgspec.NODEFAULT else f"`{_toml(field.default)}`"
                row = [f"`{field.name}`", _type(field.type), default, " ".join(docs[field.name].split())]
                yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        yield ""
    for field in inner:
        nested = _table_of(field.type)
        assert nested is not None
        name = f"{path.strip('[]')}.{field.name}".strip(".")
        yield from _sections(nested, f"[[{name}]]" if get_origin(field.type) is tuple else f"[{name}]")


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _type(kind: Any) -> str:
    limits = ""
    if hasattr(kind, "__metadata__"):
        metas = [extra for extra in kind.__metadata__ if isinstance(extra, msgspec.Meta)]
        limits = "".join(
            f", {sign} {bound:,}"
            for meta in metas
            for sign, bound in (("≥", meta.ge), ("≤", meta.le))
            if bound is not None
        )
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        return f"list of {_type(get_args(kind)[0])}{limits}"
    if get_origin(kind) in {Union, UnionType}:
        return " or ".join(map(_type, get_args(kind)))
    if get_origin(kind) is Literal:
        return " or ".join(f"`{_toml(value)}`" for value in get_args(kind))
    return _TYPES[kind] + limits


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def metrics() -> str:
    """Return a table of the metrics of each server that has them."""
    groups: Groups = [*GATE_GROUPS, ("store", StoreCounters)]
    master_groups: Groups = [*MASTER_GROUPS, ("store", StoreCounters), ("quota", QuotaCounters)]
    router_groups: Groups = [("router", RouterCounters)]
    sidecar_groups: Groups = [*GATEKEEPER_GROUPS, ("sidecar", SidecarCounters)]
    masters = (state.LinkedMasterState("10.0.0.5:10004"),)
    origin: Any = SimpleNamespace(name="10.0.0.9:80", failures=dict.fromkeys(FAILURES, 0))
    gate = state.GateState(
        (state.DomainState("default", ("1/s",)),),
        connections={"idle": 0},
        upstream_connections={"10.0.0.9:80": {"active": 0, "idle": 0}},
        masters=masters,
        origins={"10.0.0.9:80": state.OriginState()},
        store="up",
        concurrency=ConcurrencyState(1.0, 0, 0, "enforce"),
        counters=_zeros(groups) | read_counters(("", RequestMeter().read([], [origin]))),
        advice=(state.AdviceState("*", 1.0, 1.0, 0.0, 0.0, 1.0),),
    )
    domains, quotas = (state.MasterDomainState("default"),), state.QuotaState("127.0.0.1:10006")
    master = state.MasterState(domains, {"gate1": 0}, quotas=quotas, counters=_zeros(master_groups))
    routed = (state.RoutedMasterState("10.0.0.5:10004"),)
    router = state.RouterState(routed, gatekeepers={"gate1": 0}, counters=_zeros(router_groups))
    served = (state.DomainState("default"),)
    sidecar = state.SidecarState("nginx-lua", domains=served, masters=masters, counters=_zeros(sidecar_groups))
    servers = {
        "Every server": state.server_metrics(state.ServerState()),
        "headgate serve": gate_metrics(gate, groups),
        "headgate master": master_metrics(master, master_groups),
        "headgate router": router_metrics(router, router_groups),
        "headgate sidecar": sidecar_metrics(sidecar, sidecar_groups),
        "headgate proxy": proxy_metrics(ProxyState(Counts(), {}, 0.0)),
    }
    seen: set[str] = set()
    parts = [
        "# Metrics\n",
        _NOTE,
        "Served at `/metrics` of the admin address, in the OpenMetrics or Prometheus format.\n",
        "Each has its type, its labels and its meaning.\n",
        "A metric that several servers have stands under the first one: sidecars and masters have some of a gate's.\n",
    ]
    return "\n".join([*parts, *(f"## {title}\n\n{_metric_table(seen, found)}" for title, found in servers.items())])


def _zeros(groups: Groups) -> Counters:
    return read_counters(*((group, kind()) for group, kind in groups))


def _metric_table(seen: set[str], families: Iterator[Metric]) -> str:
    rows = [f"{_KEYS}| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in families:
        if family.name in seen:
            continue
        seen.add(family.name)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        values: dict[str, list[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, []).append(value)
        labels = [_label(name, list(dict.fromkeys(found))) for name, found in values.items()]
        rows.append(f"| `{name}` | {family.type} | {'; '.join(labels)} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def _label(name: str, values: list[str]) -> str:
    if name in {"domain", "user_agent", "origin", "master", "key", "le", "version", "python"}:
        return f"`{name}`"
    return f"`{name}`: {', '.join(f'`{value}`' if value else 'empty' for value in values)}"


def python_api() -> str:
    """Return the exported names of the public packages, with their signatures and the first sentences of their docs."""
    parts = ["# Python API\n", _NOTE]
    for name in _PYTHON:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{_first_line(module.__doc__)}\n")
        parts += [_member(module, member) for member in module.__all__]
    return "\n".join(parts)


def _member(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return f"### `{name}`\n\n`{value!r}`\n" if isinstance(value, str | int | float) else f"### `{name}`\n"
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"### `{name}`\n\n{_code(_signature(node, name))}\n\n{_paragraphs(value.__doc__)}\n"
    assert isinstance(node, ast.ClassDef)
    init = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    signature = [_code(f"class {_signature(init, name)}"), ""] if init else []
    return "\n".join([f"### `{name}`\n", *signature, _paragraphs(value.__doc__), "", *_member_rows(node)])


def _code(text: str) -> str:
    return "\n".join(["```python", *textwrap.wrap(text, _WIDTH, subsequent_indent="    "), "```"])


def _member_rows(node: ast.ClassDef) -> list[str]:
    rows = [f"* `{member}`{f': {text}' if text else ''}" for member, text in _class_members(node)]
    return [*rows, ""] if rows else []


def _class_members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the public fields, properties and methods of a class, each with the first line of its docstring."""
    for part, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id[0] != "_":
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            default = f" = {ast.unparse(part.value)}" if part.value is not None else ""
            yield f"{part.target.id}: {ast.unparse(part.annotation)}{default}", _first_line(str(text))
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name[0] != "_":
            decorators = {ast.unparse(decorator) for decorator in part.decorator_list}
            is_property = bool(decorators & {"property", "cached_property"})
            yield part.name if is_property else _signature(part, part.name), _first_line(ast.get_docstring(part))


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in {"self", "cls"}:
            del group[0]
            break
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{name}({ast.unparse(arguments)}){returns}"


def _first_line(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def _paragraphs(text: str | None) -> str:
    # "::" announces a block of code in the docstrings; its indentation is enough in Markdown.
    return inspect.cleandoc(text or "").replace("\n::\n", "")


def scenarios() -> str:
    """Return the keys of the scenario files of the lab, by table."""
    parts = ["# Scenario files of the lab\n", _NOTE, "`python -m lab FILE` reads them; see [the lab](../lab.md).\n"]
    for title, table in _SCENARIO_TABLES.items():
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
        assert isinstance(node, ast.ClassDef)
        node.body = [part for part in node.body if isinstance(part, ast.AnnAssign | ast.Expr)]
        parts += [f"## {title}\n", _paragraphs(table.__doc__), "", *_member_rows(node)]
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_line,
    "configuration.md": configuration,
    "metrics.md": metrics,
    "python.md": python_api,
    "scenarios.md": scenarios,
}
"""The pages by their file names."""


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
