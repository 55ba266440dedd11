"""`headgate init`: write a first configuration file, from three answers or flags."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import click

from headgate.cli.config import DEFAULT_FILE
from headgate.cli.output import printable
from headgate.cli.params import ADDRESS, RULE, Parsed
from headgate.config import Address, parse
from headgate.config.origin_section import OriginUrl
from headgate.errors import explaining, fail_if

_ADMIN_PORTS: Final = (8090, 8091)
"""The port of the admin listener, and another if clients have that port."""
_TEMPLATE: Final = """\
# All keys, with their documentation: headgate config show. SIGHUP reads this file again.
[gate]
# Where requests are forwarded to.
origin = {origin}
# Where clients connect; *:80 accepts those of other machines, by IPv4 and IPv6.
listen = {listen}
# Where the dashboard, /metrics, /readyz and /api/state are, for this machine only.
admin = "127.0.0.1:{admin}"
# If clients come through proxies of yours, list them; otherwise all clients have the address of the proxy.
# trusted_proxies = ["10.0.0.0/8"]

[[domain]]
name = "default"
# For each client. Requests that come a little too early wait; others get 503 and the time to try again.
rules = [{rule}]
# "shadow" only counts what the rules would do.
mode = "enforce"

# Limits the requests in flight of all clients together:
# [limit.concurrency]
# max = "learned"
# healthy_latency = 0.2
"""


def _check_origin(text: str) -> str:
    OriginUrl.parse(text)
    return text


_ORIGIN: Final = Parsed("URL", _check_origin)
_QUESTIONS: Final[dict[str, tuple[str, str, click.ParamType[Any]]]] = {
    "origin": ("URL of the server to protect", "http://127.0.0.1:8000", _ORIGIN),
    "rule": ("Requests that one client may send", "10/s burst 20", RULE),
    "listen": ("Address for clients", "127.0.0.1:8080", ADDRESS),
}
"""The questions with their defaults, by flag."""


@click.command()
@click.option("--origin", type=_ORIGIN, help="URL of the server to protect.  [default: http://127.0.0.1:8000]")
@click.option("--rule", type=RULE, help="Requests that one client may send.  [default: 10/s burst 20]")
@click.option("--listen", type=ADDRESS, help="Address for clients.  [default: 127.0.0.1:8080]")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.argument("file", default=DEFAULT_FILE, metavar="[FILE]")
def init(*, file: str, force: bool, **answers: str | None) -> None:
    """Write a first configuration file for a gate, FILE or headgate.toml, with comments.

    In a terminal, it asks for what no flag gives; elsewhere, defaults are used.

    \b
    headgate init
    headgate init --origin http://127.0.0.1:8000 --rule '10/s burst 20' --listen 127.0.0.1:8080
    """
    path = Path(file)
    fail_if(
        not force and path.exists(),
        f"{printable(file)} exists already; add --force to overwrite it, or name another file",
    )
    asks = sys.stdin.isatty()
    for name, (question, default, kind) in _QUESTIONS.items():
        if answers[name] is None:
            answers[name] = click.prompt(question, default, type=kind, err=True) if asks else default
    address = Address.parse(str(answers["listen"]))
    values = {name: json.dumps(answer, ensure_ascii=False) for name, answer in answers.items()}
    admin = _ADMIN_PORTS[address.port == _ADMIN_PORTS[0]]
    text = _TEMPLATE.format(**values, admin=admin)
    parse(text, name=file)
    failure = f"{printable(file)} cannot be written"
    with explaining(failure, "name another file"), path.open("w" if force else "x", encoding="utf-8") as written:
        written.write(text)
    flag = "" if file == DEFAULT_FILE else f" --config {shlex.quote(file)}"
    host = address._replace(host="127.0.0.1") if address.host in {"*", "0.0.0.0", "::"} else address
    click.echo(f"{printable(file)} is written. Next:\n")
    click.echo(f"  headgate serve{flag}\n  curl -i http://{host}/\n")
    click.echo(f"Dashboard: http://127.0.0.1:{admin}/\nRules from a log of your server: headgate replay access.log")
