"""`headgate doctor`: check what a server needs of this machine, and print one report without secrets.

Each check is a generator of findings. A finding that is not ok says what to do.
"""

import math
import os
import platform
import re
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import click
import msgspec

from headgate.cli.config import CONFIG, Options, check_servers
from headgate.cli.output import exit_with_failure, format_count, print_json, printable, shorten, style
from headgate.cli.params import ADDRESS
from headgate.cli.program import installed
from headgate.config import Address, Configuration
from headgate.config.key_types import is_list_of_tables, unwrap
from headgate.config.section import UNIX, Format
from headgate.errors import ConfigurationError, reason_of
from headgate.http.conditions import as_tuple
from headgate.version import VERSION

_TIMEOUT: Final = 2.0
_MAX_SKEW: Final = 2.0
"""Seconds by which clocks may differ; Date has whole seconds."""
_SLOW_CLOCKS: Final = frozenset({"acpi_pm", "hpet", "jiffies", "pit"})
_CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SECRETS: Final = re.compile(
    r"(?<=:)[^:@/\s]+(?=@)|(?<=password=)[^&\s]+|(?<=bearer )\S+|(?<=basic )\S+", re.IGNORECASE
)
_SECRET_FILES: Final = ("key", "keys", "token")
"""How the names of keys with a secret file end."""
_WRITTEN: Final = ("log.access", "master.snapshot", "limit.snapshot")
"""Keys with a file that servers write."""
_SERVERS: Final = ("master", "router", "sidecar", "proxy")
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}
_COLOURS: Final = {"ok": "green", "warning": "yellow", "failed": "red"}


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    status: Literal["ok", "warning", "failed"]
    text: str
    advice: str = ""
    """What to do, unless the status is ok."""


Findings = Iterator[Finding]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--admin", "admins", type=ADDRESS, multiple=True, help="Admin listener to compare clocks with; repeatable."
)
@CONFIG
def doctor(*, as_json: bool, admins: tuple[str, ...], file: str | None) -> None:
    """Check what a server needs of this machine: versions, configuration, limits, ports, clocks and permissions.

    Run it as the user of the server, with its environment and configuration file. The report leaves out passwords, keys
    and tokens. Exit code: 0 if no check fails, 1 if one does.

    \b
    headgate doctor
    headgate doctor --config /etc/headgate/headgate.toml --admin 10.0.0.5:10091
    """
    found = list(
        dict.fromkeys(
            one._replace(text=_redact(one.text), advice=_redact(one.advice)) for one in _examine(file, admins)
        )
    )
    counts = {status: sum(one.status == status for one in found) for status in ("failed", "warning")}
    if as_json:
        print_json({"findings": [one._asdict() for one in found], **counts})
    else:
        for one in found:
            click.echo(f"{style(f'{one.status:<8}', fg=_COLOURS[one.status])}{one.check}: {one.text}")
            if one.advice:
                click.echo(f"{'':8}{one.advice}")
        click.echo(f"{counts['failed']} failed, {format_count(counts['warning'], 'warning')}")
    if counts["failed"]:
        exit_with_failure()


def _redact(text: str) -> str:
    return printable(_SECRETS.sub("***", text))


def _examine(file: str | None, admins: tuple[str, ...]) -> Findings:
    yield from _versions()
    yield from _clock()
    tree = Configuration()
    try:
        tree, name = Options(file).read()
        warnings = check_servers(tree)
    except ConfigurationError as error:
        yield Finding("configuration", "failed", str(error), "correct it; `headgate config check` checks it again")
    except ModuleNotFoundError as error:
        advice = "install it from the repository: pip install '.[gate]', or '.[proxy]'"
        yield Finding("configuration", "warning", f"not all is checked without the library {error.name}", advice)
    else:
        yield Finding("configuration", "ok", f"{name} is valid" if name else "no file; defaults and environment")
        for warning in warnings:
            text, _, advice = warning.removeprefix("warning: ").partition("; ")
            yield Finding("configuration", "warning", text, advice or "see `headgate config show`")
    for check in (_limits, _ports, _masters, _files):
        yield from check(tree)
    for admin in admins:
        yield _skew(Address.parse(admin))


def _versions() -> Findings:
    yield Finding("python", "ok", f"{platform.python_version()} {platform.machine()} {platform.platform(terse=True)}")
    yield Finding("headgate", "ok", VERSION)
    for title, values in installed().items():
        yield Finding(title, "ok", ", ".join(values) or "none")
    is_old = ssl.OPENSSL_VERSION_INFO < (3,)
    advice = "use a Python that is built with OpenSSL 3" if is_old else ""
    yield Finding("tls", "warning" if is_old else "ok", ssl.OPENSSL_VERSION, advice)
    with suppress(ModuleNotFoundError):
        import zmq

        has_curve = zmq.has("curve")
        advice = "" if has_curve else "keys of the bus do not work; install pyzmq from its wheel"
        yield Finding("libzmq", "ok" if has_curve else "warning", f"{zmq.zmq_version()}, CURVE: {has_curve}", advice)


def _clock() -> Findings:
    source = _CLOCK_SOURCE.read_text().strip() if _CLOCK_SOURCE.is_file() else "unknown"
    clock = time.get_clock_info("monotonic")
    text = f"{clock.implementation}, resolution {clock.resolution:g} s, source {source}"
    is_slow = source in _SLOW_CLOCKS
    advice = "each read is slow; use tsc or the clock of the hypervisor as the source" if is_slow else ""
    yield Finding("clock", "warning" if is_slow else "ok", text, advice)


def _limits(tree: Configuration) -> Findings:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{hard} open files for {tree.gate.bounds.connections} connections of each worker"
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # as servers do
    try:
        from headgate.runtime.gate_build import fit_bounds
    except ModuleNotFoundError:
        yield Finding("limits", "ok", f"{hard} open files")
        return
    notes: list[str] = []
    fit_bounds(tree.gate.bounds, notes.append)
    yield Finding("limits", "warning" if notes else "ok", text, "; ".join(notes))


def _ports(tree: Configuration) -> Findings:
    """Check that each address can be bound, or that the server of this file has it already."""
    for name, addresses, admin in _listeners(tree):
        is_running = bool(admin) and _ask(Address.parse(admin))[1] == b"alive\n"
        for key, text in addresses:
            if text.startswith(UNIX):
                folder = Path(text.removeprefix(UNIX)).absolute().parent
                yield _writable(key, folder, f"the socket {text}")
            else:
                yield _port(key, Address.parse(text), name if is_running else "")


def _listeners(tree: Configuration) -> Iterator[tuple[str, list[tuple[str, str]], str]]:
    """Yield each server of the file: its name, the keys of its addresses with these, and its admin address."""
    if tree.origins:
        yield (
            "gate",
            [*(("gate.listen", one.address) for one in tree.listeners), *_admin(tree.gate, "gate")],
            tree.gate.admin,
        )
    for name in _SERVERS:
        section = getattr(tree, name)
        if section == type(section)():
            continue
        addresses = [(f"{name}.listen", section.listen)] if hasattr(section, "listen") else []
        if name in {"master", "router"}:
            bus = Address.parse(section.listen)
            addresses.append((f"{name}.listen (control)", str(bus._replace(port=bus.port + 1 if bus.port else 0))))
        if name == "master" and section.rlqs:
            addresses.append(("master.rlqs", section.rlqs))
        yield name, [*addresses, *_admin(section, name)], section.admin


def _admin(section: Any, name: str) -> list[tuple[str, str]]:
    return [(f"{name}.admin", section.admin)] if section.admin else []


def _port(key: str, address: Address, running: str) -> Finding:
    from headgate.runtime.listen import reserve_addresses

    check = f"port of {key}"
    try:
        with reserve_addresses(key, address):
            return Finding(check, "ok", f"{address} can be bound")
    except ConfigurationError as error:
        if running:
            return Finding(check, "ok", f"{address} is in use, and a {running} of headgate answers")
        text, _, advice = str(error).partition("; ")
        return Finding(check, "failed", f"{text}; {_ask(address)[0]}", advice)


def _ask(address: Address) -> tuple[str, bytes, float]:
    """Ask for /livez; return what answers, the body, and by how many seconds its clock is ahead (NaN if unknown)."""
    connection = HTTPConnection(_LOOPBACK.get(address.host, address.host), address.port, timeout=_TIMEOUT)
    start = time.time()
    try:
        connection.request("GET", "/livez")
        response = connection.getresponse()
        body = response.read(64)
    except OSError as error:
        return f"no answer: {reason_of(error)}", b"", float("nan")
    except HTTPException:
        return "what answers there does not speak HTTP", b"", float("nan")
    finally:
        connection.close()
    ahead = float("nan")
    with suppress(TypeError, ValueError):
        ahead = parsedate_to_datetime(response.getheader("Date", "")).timestamp() + 0.5 - (start + time.time()) / 2
    return (
        f"an HTTP server answers {response.status}, Server: {shorten(response.getheader('Server', 'none'))}",
        body,
        ahead,
    )


def _skew(address: Address) -> Finding:
    text, _, ahead = _ask(address)
    check = f"clock of {address}"
    if abs(ahead) <= _MAX_SKEW:
        return Finding(check, "ok", f"within {_MAX_SKEW:g} s of this one")
    if math.isnan(ahead):
        return Finding(check, "failed", f"not compared: {text}", "name an admin listener that this machine can reach")
    return Finding(check, "failed", f"{ahead:+.0f} s ahead of this one", "synchronize both with NTP")


def _masters(tree: Configuration) -> Findings:
    for key, addresses in (
        ("gate.master", tree.gate.masters),
        ("router.master", tree.router.masters),
        ("sidecar.master", tree.sidecar.masters),
    ):
        for text in addresses:
            if text.startswith("ipc://"):
                continue
            address = Address.parse(text.removeprefix("tcp://"))
            try:
                socket.create_connection(address, _TIMEOUT).close()
            except OSError as error:
                advice = f"start the master there, open both ports in firewalls, or correct {key}"
                yield Finding(key, "failed", f"{address}: {reason_of(error)}", advice)
            else:
                yield Finding(key, "ok", f"{address} accepts connections")


def _files(table: Any, path: str = "") -> Findings:
    """Check that secret files are for few eyes, all files that the tree names are readable, and logs are writable."""
    for field in msgspec.structs.fields(table):
        value, where = getattr(table, field.name), f"{path}{field.encode_name}"
        kind, _ = unwrap(field.type)
        if isinstance(value, msgspec.Struct):
            yield from _files(value, f"{where}.")
        elif is_list_of_tables(kind):
            for index, member in enumerate(value):
                yield from _files(member, f"{where}[{index}].")
        elif "FILE" in [
            one.metavar for part in (field.type, *get_args(kind)) for one in unwrap(part)[1] if isinstance(one, Format)
        ]:
            for name in as_tuple(value):
                target = Path(name).absolute()
                if where in _WRITTEN and name not in {"", "-", "auto"}:
                    yield _writable(where, target if target.exists() else target.parent, name)
                elif where not in _WRITTEN and name:
                    yield _readable(where, name)


def _readable(path: str, name: str) -> Finding:
    try:
        with Path(name).open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
    except OSError as error:
        advice = f"name a file in {path} that the user of the server can read"
        return Finding(path, "failed", f"{name}: {reason_of(error)}", advice)
    if path.endswith(_SECRET_FILES) and mode & 0o006:
        text = f"{name}: every user of this machine can read this secret"
        return Finding(path, "warning", text, f"use: chmod 600 {name}")
    return Finding(path, "ok", f"{name} is readable")


def _writable(path: str, target: Path, name: str) -> Finding:
    if os.access(target, os.W_OK):
        return Finding(path, "ok", f"{name} can be written")
    advice = f"let the user of the server write to {target}, or change {path}"
    return Finding(path, "failed", f"{name} cannot be written", advice)
