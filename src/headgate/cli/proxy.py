"""`headgate proxy`: the prefetch proxy, in one process or several."""

from typing import Any, Final

import click
from msgspec.structs import replace

from headgate.cli.config import CONFIG, LOG_KEYS, Options, config_options, given
from headgate.cli.params import Parsed
from headgate.config import Address, Configuration
from headgate.config.proxy_section import Proxy
from headgate.config.section import is_loopback
from headgate.errors import fail_if

_LISTENERS: Final[dict[str, dict[str, Any]]] = {
    "cert": {"self_signed": False, "plaintext": False},
    "self_signed": {"cert": "", "key": "", "plaintext": False},
    "plaintext": {"cert": "", "key": "", "self_signed": False},
}
"""The kinds of listeners by the key that chooses one, and the keys of the file that a flag for it replaces."""


class ProxyOptions(Options):
    """The options of a proxy."""

    def start(self) -> tuple[Configuration, str | None]:
        """Return the tree of the file, without the kind of listener that flags replace."""
        tree, name = super().start()
        for key in _LISTENERS.keys() & {path.removeprefix("proxy.") for path in self.flags}:
            tree = replace(tree, proxy=replace(tree.proxy, **_LISTENERS[key]))
        return tree, name

    def finish(self, tree: Configuration) -> Configuration:
        """Return the tree; on loopback, a listener without a certificate gets a self-signed one."""
        if _has_listener(tree.proxy) or not is_loopback(Address.parse(tree.proxy.listen).host):
            return tree
        return replace(tree, proxy=replace(tree.proxy, self_signed=True))


def _has_listener(proxy: Proxy) -> bool:
    return bool(proxy.cert or proxy.self_signed or proxy.plaintext)


def _parse_cidr(text: str) -> str:
    from headgate.fetch.destinations import parse_network

    parse_network(text)
    return text


@click.command()
@CONFIG
@config_options(
    *(f"proxy.{name}" for name in Proxy.__struct_fields__ if name != "loop"),
    *LOG_KEYS,
    allow_addresses=Parsed("cidr", _parse_cidr),
)
def proxy(*, file: str | None, **flags: Any) -> None:
    """Run a prefetch proxy: a CONNECT proxy that fetches an origin's traffic advice before it connects to it.

    A browser sends a prefetch as a CONNECT request. The proxy opens a tunnel if the origin's advice permits it, the
    host resolves to global addresses only, and no limit is reached; otherwise it answers with a refusal that states
    the reason. Each flag is also a key of the [proxy] table of a configuration file (see: headgate config show); flags
    override the file.

    \b
    to try it:    headgate proxy
                  curl --proxy-insecure --proxy https://127.0.0.1:8443 https://www.example.org/
    for a site:   headgate keys new-token -o key.json
                  headgate proxy --listen 0.0.0.0:443 --cert chain.pem --key key.pem \\
                      --token-key key.json --client-rate '10/s burst 50' --workers 2 --admin 127.0.0.1:8090

    Refusals are logged as JSON lines on stderr. SIGTERM waits for open tunnels to end, a second SIGTERM stops at once;
    SIGHUP reloads the certificate and the token keys.
    """
    options = ProxyOptions(file, given(flags))
    fail_if(
        not _has_listener(options.read()[0].proxy),
        "no certificate: add --cert FILE and --key FILE, or --self-signed for a test, "
        "or --plaintext if another program on this machine terminates TLS",
    )
    from headgate.runtime.lifecycle import run_server
    from headgate.runtime.prefetch_proxy_server import ProxyServer

    click.get_current_context().exit(run_server(ProxyServer(options.read)))
