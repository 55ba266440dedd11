"""`headgate ctl`: asks a running server through its admin listener, and has it act."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import urlencode

import click

from headgate.cli.config import CONFIG, Options
from headgate.cli.output import printable
from headgate.cli.params import ADDRESS
from headgate.config import Address
from headgate.config.tree import Gate
from headgate.errors import ConfigurationError, HeadgateError, reason_of

_ARGUMENTS: Final = {
    "why": ("request",),
    "holds": ("identifier",),
    "release": ("identifier",),
    "hold": ("identifier", "seconds"),
    "mode": ("domain", "mode"),
    "drain": (),
}
"""The names of the arguments of each command."""
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask a server that listens at all addresses."""
_READS: Final = ("why", "holds")
_TIMEOUT: Final = 15.0
_TIMES: Final = ("received", "until", "held_until", "release")


@click.command()
@click.argument("command", type=click.Choice(list(_ARGUMENTS)))
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1)
@click.option("--identifier", metavar="X", help="With why: the client instead of a request.")
@click.option("--admin", type=ADDRESS, help="Admin listener; by default that of the configuration file.")
@click.option("--token", metavar="FILE", help="File with the token; by default admin.token of that file.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@CONFIG
def ctl(command: str, arguments: tuple[str, ...], *, as_json: bool, **options: str | None) -> None:
    """Ask a running gate or master, or have it act, through its admin listener; that needs [admin] control = true.

    \b
    headgate ctl why ID                          why this request was refused, by its X-Request-Id
    headgate ctl why --identifier 192.0.2.7      why this client is held; its last requests
    headgate ctl holds [IDENTIFIER]              who is held longest, or until when this client is
    headgate ctl release IDENTIFIER              end the holds of a client; forget its requests
    headgate ctl hold IDENTIFIER SECONDS         hold a client in all domains, until a restart at most
    headgate ctl mode DOMAIN enforce|shadow      until the next reload or restart
    headgate ctl drain                           as SIGTERM: /readyz answers 503, then the server ends

    An IDENTIFIER is an address, the value of the header that identifies clients, or the digest that holds and
    /api/state show.

    A hold at a master reaches all of its gates. A release does not, since no message of a master can shorten a hold:
    release a client at the master first, then at each gate. At a gate with a master elsewhere, a hold and a release
    count for this gate only.

    Exit code: 0 done, 1 not found or refused, 2 wrong use.
    """
    names = _ARGUMENTS[command]
    given = dict(zip(names, arguments, strict=False))
    if command == "why" and options["identifier"] is not None:
        given, names = given | {"identifier": options["identifier"]}, ("identifier",)
    if len(arguments) > len(_ARGUMENTS[command]) or (given.keys() != set(names) and (command != "holds" or given)):
        either = " or --identifier X" if command == "why" else ""
        wanted = " ".join(map(str.upper, _ARGUMENTS[command])) or "no argument"
        raise click.UsageError(f"{command} takes {wanted}{either}")
    tree, _ = Options(options["file"]).read()
    listen = options["admin"] or (tree.master.admin if not tree.origins else "") or tree.gate.admin or Gate().admin
    answer = _ask(Address.parse(listen), command, given, options["token"] or tree.admin.token)
    if as_json:
        click.echo(json.dumps(answer))  # in ASCII: a terminal obeys some characters
    else:
        click.echo("\n".join(_lines(answer)))


def _ask(address: Address, command: str, given: dict[str, str], token_file: str) -> Any:
    from headgate.runtime.admin import read_token

    headers = {"X-Headgate-Control": "1"}
    if token_file:
        headers["Authorization"] = f"Bearer {read_token(token_file).decode()}"
    connection = HTTPConnection(_LOOPBACK.get(host := address.host.strip("[]"), host), address.port, timeout=_TIMEOUT)
    try:
        target = f"/control/{command}?{urlencode(given, errors='replace')}"
        connection.request("GET" if command in _READS else "POST", target, headers=headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, HTTPException) as error:
        why = reason_of(error) if isinstance(error, OSError) else "it does not speak HTTP"
        raise HeadgateError(f"no answer of an admin listener at {address}: {why}; name one with --admin") from None
    finally:
        connection.close()
    text, answer = printable(content.decode("utf-8", "replace").strip()), None
    with suppress(ValueError):
        answer = json.loads(content)
    if not isinstance(answer, dict) or (response.status != 200 and "error" not in answer):
        raise HeadgateError(f"{address}: {text}" + ("; is [admin] control = true?" if response.status == 404 else ""))
    if response.status != 200:
        raise (ConfigurationError if response.status == 400 else HeadgateError)(printable(answer["error"]))
    return answer


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """Write an answer as lines: a name and its value, or the names of a table below it."""
    for name, member in value.items():
        if not isinstance(member, list):
            text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(member)) if name in _TIMES else str(member)
            yield f"{indent}{name}: {printable(text)}"
            continue
        yield f"{indent}{name}:{'' if member else ' none'}"
        for number, one in enumerate(member):
            yield from [""] if number else []
            yield from _lines(one, f"{indent}  ")
