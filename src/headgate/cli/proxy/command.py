"""The command: its flags, and what they mean."""

from typing import Any

import click

from headgate.cli.config import CONFIG
from headgate.cli.flags import ADDRESS, SECONDS
from headgate.cli.proxy.flags import ALPN, CIDR, COUNT, PORT, RATE, RATIO
from headgate.cli.proxy.options import Wish, require_way

__all__ = ["proxy"]


@click.command()
@CONFIG
@click.option(
    "--listen",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="Where clients connect; [::] is IPv6 alone, * both.  [default: 127.0.0.1:8443]",
)
@click.option("--cert", metavar="F", help="TLS certificate chain, PEM; with --key. SIGHUP reads both again.")
@click.option("--key", metavar="F", help="Private key of --cert, PEM.")
@click.option(
    "--self-signed",
    is_flag=True,
    default=None,
    help="Make a certificate, for trying it out; the default on loopback.",
)
@click.option("--plaintext", is_flag=True, default=None, help="No TLS, HTTP/1.1 alone; on loopback, or --insecure.")
@click.option("--insecure", is_flag=True, default=None, help="Let --plaintext listen beyond loopback.")
@click.option("--alpn", type=ALPN, metavar="h2,http/1.1", help="Protocols to offer in TLS.  [default: both]")
@click.option("--brand", metavar="NAME", help="By which advice means this proxy; its User-Agent.  [default: headgate]")
@click.option("--admin", type=ADDRESS, metavar="HOST:PORT", help="Health, metrics, state.  [default: nowhere]")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes; they share all but clients.  [default: 1]")
@click.option("--token-key", "token_keys", metavar="F", multiple=True, help="Ask for a token of this key; repeatable.")
@click.option("--token-store", metavar="URL", help="Redis that several proxies remember tokens in.")
@click.option("--client-ca", metavar="F", help="Ask clients for a certificate signed by one of these, PEM.")
@click.option("--client-rate", type=RATE, help="Of each client, in each worker: '10/s burst 20', off.  [default: off]")
@click.option("--client-tunnels", type=COUNT, metavar="N", help="Of each client, in each worker.  [default: 256]")
@click.option(
    "--client-connections",
    type=click.IntRange(0),
    metavar="N",
    help="Connections of each client, in each worker; 0 for no limit.  [default: 256]",
)
@click.option("--max-connections", type=COUNT, metavar="N", help="Of clients, in each worker.  [default: 16384]")
@click.option("--max-tunnels", type=COUNT, metavar="N", help="At once, over all workers.  [default: 16384]")
@click.option("--allow-port", "allow_ports", type=PORT, metavar="P", multiple=True, help="Beside 443; repeatable.")
@click.option("--allow-host", "allow_hosts", metavar="HOST", multiple=True, help="It and all below it, and no other.")
@click.option("--deny-host", "deny_hosts", metavar="HOST", multiple=True, help="Not it, nor anything below it.")
@click.option("--allow-address", "allow_addresses", type=CIDR, multiple=True, help="Dialled although it is not global.")
@click.option("--resolve", metavar="HOST=ADDRESS[:PORT]", multiple=True, help="Not looked up; * for every other name.")
@click.option("--advice-ca", metavar="F", help="Trust these authorities alone when asking for advice, PEM.")
@click.option(
    "--unreachable", type=click.Choice(["hold", "permit"]), help="Origins that cannot be asked.  [default: hold]"
)
@click.option("--unreachable-hold", type=SECONDS, metavar="S", help="Until they are asked again.  [default: 60]")
@click.option("--idle", type=SECONDS, metavar="S", help="Ends a tunnel that nothing moves in.  [default: 300]")
@click.option("--max-seconds", type=SECONDS, metavar="S", help="Ends every tunnel.  [default: off]")
@click.option("--max-bytes", type=click.IntRange(0), metavar="N", help="Of a tunnel, both ways.  [default: off]")
@click.option("--byte-ratio", type=RATIO, metavar="R", help="Bytes received for each one sent.  [default: off]")
@click.option("--drain", type=SECONDS, metavar="SECONDS", help="For open tunnels after SIGTERM.  [default: 30]")
@click.option("--log", type=click.Choice(["refusals", "all"]), help="Or a line for each tunnel.  [default: refusals]")
@click.option("--log-client", is_flag=True, default=None, help="Name the client's address in the log.")
@click.option("--geofeed", metavar="F", help="Where this proxy's addresses are, RFC 8805; published.")
@click.option("--geofeed-path", metavar="PATH", help="Where it is published.  [default: /geofeed.csv]")
@click.option("--conformance", is_flag=True, help="Print what is required of such a proxy and which of it is met.")
def proxy(*, file: str | None, conformance: bool, **flags: Any) -> None:
    """Relay CONNECTs to origins that want them: a prefetch proxy that asks for traffic advice before it knocks.

    A browser's prefetch comes as a CONNECT. It gets a tunnel where the origin's advice permits it, the name leads to
    global addresses alone, and there is room; else a refusal that says why, and that spoils no other origin. All flags
    can stand in the [proxy] table of a configuration file (see: headgate config show); flags override it.

    \b
    try it:       headgate proxy
                  curl --proxy-insecure --proxy https://127.0.0.1:8443 https://www.example.org/
    for a site:   headgate token new-key -o key.json
                  headgate proxy --listen 0.0.0.0:443 --cert chain.pem --key key.pem \\
                      --token-key key.json --client-rate '10/s burst 50' --workers 2 --admin 127.0.0.1:8090
    is it fit?    headgate proxy --config headgate.toml --conformance

    Refusals are lines of JSON on stderr. SIGTERM lets open tunnels end, a second one does not; SIGHUP reads the
    certificate, the token keys and the geofeed again.
    """
    given = {name: value for name, value in flags.items() if value is not None and value != ()}
    wish = Wish(file, given)
    settings, _ = wish.read()
    if conformance:
        from headgate.cli.proxy.conformance import print_conformance

        print_conformance(settings)
        return
    require_way(settings)
    from headgate.runtime.prefetch_proxy.alone import serve_alone
    from headgate.runtime.prefetch_proxy.workers import serve_with_workers

    serve = serve_alone if settings.workers == 1 else serve_with_workers
    click.get_current_context().exit(serve(wish.read))
