"""`headgate sidecar`: a gatekeeper for nginx or HAProxy, and the configuration of these servers and of Envoy."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headgate.cli.config import CONFIG, LOG_KEYS, Options, config_options, given, warn
from headgate.cli.params import ADDRESS, misuse_if
from headgate.config import Address

if TYPE_CHECKING:
    from headgate.origin.sidecar.site import Site

_KEYS: Final = (
    "master",
    "domain",
    "nginx_lua",
    "auth_request",
    "socket_mode",
    "haproxy",
    "table",
    "identify",
    "max_delay",
    "rejection_status",
    "curve_key",
    "curve_server",
    "shard",
    "admin",
)
"""The keys of [sidecar] that have a flag."""
_WRITERS: Final = {
    "nginx-lua": ("nginx_conf", "lua_configuration"),
    "auth-request": ("nginx_conf", "auth_request_configuration"),
    "haproxy": ("haproxy_conf", "configuration"),
    "envoy": ("envoy_conf", "configuration"),
}
"""The module and the function that write the configuration of a server."""
_SOCKETS: Final = {
    "nginx-lua": "/run/headgate.sock",
    "auth-request": "/run/headgate.sock",
    "haproxy": "/run/haproxy/admin.sock",
    "envoy": "",
}
"""The socket in a generated configuration, unless one is given."""
_WRITTEN: Final = {
    "nginx-lua": {"domain", "identify"},
    "auth-request": {"domain", "identify"},
    "haproxy": {"domain", "identify", "table", "rejection_status"},
    "envoy": {"domain", "identify", "rejection_status"},
}
"""The keys of [sidecar] that are part of a generated configuration; all others are for the sidecar."""


@click.command()
@CONFIG
@config_options(*(f"sidecar.{name}" for name in _KEYS), *LOG_KEYS)
@click.option(
    "--print-conf",
    "server",
    type=click.Choice(list(_WRITERS)),
    help="Print a configuration for a server, and run no sidecar; needs --listen, --origin and --domain.",
)
@click.option("--listen", type=ADDRESS, metavar="HOST:PORT", help="With --print-conf: address of the server.")
@click.option("--origin", metavar="URL", help="With --print-conf: origin, such as http://127.0.0.1:8000.")
@click.option("--socket", metavar="SOCKET", help="With --print-conf: unix socket between the server and the sidecar.")
@click.option(
    "--rlqs",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="With --print-conf envoy: --rlqs of the master.  [default: 127.0.0.1:10006]",
)
def sidecar(
    *,
    file: str | None,
    server: str | None,
    listen: str | None,
    origin: str | None,
    socket: str | None,
    rlqs: str | None,
    **flags: Any,
) -> None:
    """Run a sidecar: a gatekeeper for nginx or HAProxy.

    Warning: with --auth-request, nginx opens each location that has "satisfy any" (a request that is not rejected needs
    no password). Write "auth_request off;" into each location that this finds: nginx -T | grep -E "satisfy +any"

    The sidecar obeys a master, tells its server which clients are held, and reports the requests of the server to the
    master. nginx with Lua and HAProxy then decide by themselves; nginx without Lua asks the sidecar each time.
    nginx delays or rejects requests, HAProxy rejects them. When the sidecar or the master is not running, the server
    accepts all requests, except those of clients that are held already. SIGHUP reloads the configuration file.

    Envoy needs no sidecar: it asks a master (headgate master --rlqs).

    --print-conf prints a whole configuration that runs as it is; the lines to copy into your own are marked.

    \b
    headgate sidecar --master 10.0.0.5:10004 --domain api --nginx-lua /run/headgate.sock
    headgate sidecar --master 10.0.0.5:10004 --domain api --auth-request /run/headgate.sock
    headgate sidecar --master 10.0.0.5:10004 --domain api --haproxy /run/haproxy/admin.sock
    headgate sidecar --print-conf nginx-lua --listen 127.0.0.1:8080 --origin http://127.0.0.1:8000 --domain api
    """
    options = Options(file, given(flags))
    if server is not None:
        site = _site(server, options, listen=listen, origin=origin, socket=socket, rlqs=rlqs)
        click.echo(write_configuration(server, site), nl=False)
        for key in {path.removeprefix("sidecar.") for path in options.flags} - _WRITTEN[server]:
            warn(f"warning: --{key.replace('_', '-')} changes nothing in this configuration")
        return
    for flag in given({"--listen": listen, "--origin": origin, "--socket": socket, "--rlqs": rlqs}):
        raise click.UsageError(f"{flag} is for the configuration of a server; add --print-conf, or leave {flag} out")
    from headgate.runtime.lifecycle import run_server
    from headgate.runtime.sidecar import SidecarServer

    click.get_current_context().exit(run_server(SidecarServer(options.read)))


def _site(
    server: str, options: Options, *, listen: str | None, origin: str | None, socket: str | None, rlqs: str | None
) -> "Site":
    """Return what the configuration is for; keys of [sidecar] that are not given have the values of the file.

    Raises `UsageError` for an option that is missing, or that another server has.
    """
    from headgate.origin.sidecar.site import Site
    from headgate.runtime.gatekeeping import new_rejections
    from headgate.runtime.sidecar import read_domains, read_sections

    flags = options.flags
    for key in ("nginx_lua", "auth_request", "haproxy"):
        misuse_if(
            f"sidecar.{key}" in flags, f"--{key.replace('_', '-')} runs a sidecar; with --print-conf, use --socket"
        )
    if listen is None or origin is None:
        raise click.UsageError("--print-conf needs --listen HOST:PORT and --origin URL")
    misuse_if(rlqs is not None and server != "envoy", f"--rlqs is for --print-conf envoy, not for {server}")
    misuse_if(
        socket is not None and server == "envoy", "--socket is for nginx and HAProxy; Envoy asks a master: use --rlqs"
    )
    misuse_if(
        "sidecar.table" in flags and server != "haproxy", f"--table is for --print-conf haproxy, not for {server}"
    )
    tree, _ = options.read()
    settings = tree.sidecar
    misuse_if(len(settings.domains) != 1, f"--print-conf needs one --domain NAME, got {len(settings.domains)}")
    path = socket or getattr(settings, server.replace("-", "_"), "") or _SOCKETS[server]
    # Envoys in front take 503 for a failed server, so Envoy's default is 429.
    status = flags.get("sidecar.rejection_status", 429) if server == "envoy" else settings.rejection_status
    return Site(
        listen=Address.parse(listen),
        origin=origin,
        domain=settings.domains[0],
        # The server and the sidecar may have different working directories.
        socket=str(Path(path).absolute()) if path else "",
        table=settings.table if server == "haproxy" else "",
        max_hold=settings.max_hold,
        rlqs=Address.parse(rlqs) if rlqs is not None else None,
        # Only nginx with Lua asks the sidecar how to identify clients.
        identify=flags.get("sidecar.identify") if server == "nginx-lua" else settings.identify,
        ipv6_prefix=settings.ipv6_prefix,
        rejection_status=status,
        rejections=new_rejections(read_sections(tree), read_domains(tree), status=status),
    )


def write_configuration(server: str, site: "Site") -> str:
    """Return the configuration of a server. Raises `ConfigurationError` for a value that it cannot have."""
    module, function = _WRITERS[server]
    return str(getattr(importlib.import_module(f"headgate.origin.sidecar.{module}"), function)(site))
