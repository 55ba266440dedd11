"""The requirements of the draft "Privacy-Preserving Prefetch Proxy Servers" (WICG, 2026).

They are checked against a configuration. Each row is a sentence of the draft in our words. Recommendations do not
decide whether a proxy conforms.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.config.tree import Proxy

Level: TypeAlias = Literal["MUST", "STEP", "SHOULD", "RECOMMENDED"]
"""The level of a requirement; STEP is one of the steps of the draft's protocol."""


class Requirement(NamedTuple):
    """One requirement."""

    section: str
    level: Level
    words: str
    is_met: bool
    how: str
    """How it is met, or how to meet it."""


class _Row(NamedTuple):
    section: str
    level: Level
    words: str
    is_met: Callable[[Proxy], bool]
    how: Callable[[Proxy], str]
    instead: str = ""


def _always(_proxy: Proxy) -> bool:
    return True


def _never(_proxy: Proxy) -> bool:
    return False


def _how(text: str) -> Callable[[Proxy], str]:
    return lambda _proxy: text


def _protocols(proxy: Proxy) -> str:
    return "HTTP/1.1" if proxy.plaintext else " and ".join(name.replace("h2", "HTTP/2").upper() for name in proxy.alpn)


def _restriction(proxy: Proxy) -> str:
    ways = {
        "with a token": proxy.token_keys,
        "with a client certificate": proxy.client_ca,
        "to allowed hosts": proxy.allow_hosts,
    }
    return f"tunnels only {' and '.join(way for way, given in ways.items() if given)}; refusals cost no lookup"


def _unreachable(proxy: Proxy) -> str:
    agents = f'for {proxy.brand}, "prefetch-proxy" and "*"'
    if proxy.unreachable == "permit":
        return f"{agents}; an unreachable origin is let through, unless its cached advice refuses"
    return f"{agents}; an unreachable origin is held"


_ROWS: Final = (
    _Row("2.1", "MUST", "CONNECT or CONNECT-UDP is supported", _always, _how("CONNECT")),
    _Row(
        "2.1",
        "MUST",
        "connections are protected with TLS",
        lambda proxy: not proxy.plaintext,
        _how("TLS 1.2 or 1.3 alone"),
        "remove --plaintext, and add --cert and --key",
    ),
    _Row("2.3", "MUST", "HTTP/1.1, HTTP/2 or HTTP/3 is supported", _always, _protocols),
    _Row(
        "2.3",
        "MUST",
        "an unencrypted CONNECT is not accepted",
        lambda proxy: not proxy.plaintext,
        _how("nothing is read before the TLS handshake"),
        "remove --plaintext, and add --cert and --key",
    ),
    _Row(
        "2.3",
        "STEP",
        "the client's token is checked, and an invalid one is an error",
        lambda proxy: bool(proxy.token_keys),
        _how("407, with the reason; each token is good once"),
        "tokens are not required: add --token-key F",
    ),
    _Row("2.3", "STEP", "the host is resolved", _always, _how("once, and every address of it is checked")),
    _Row("2.3", "STEP", "the origin's traffic advice is looked up", _always, _how("at a checked address, or known")),
    _Row("2.3", "STEP", "a tunnel is established, or the answer is an error", _always, _how("each with its reason")),
    _Row("2.3", "STEP", "a 2xx response is sent, then bytes are forwarded as in RFC 9110", _always, _how("both ways")),
    _Row(
        "3.1",
        "MUST",
        "abuse is prevented, and the proxy is not a general anonymizer",
        lambda proxy: bool(proxy.token_keys or proxy.client_ca or proxy.allow_hosts),
        _restriction,
        "any client gets a tunnel to any host: add --token-key F, --client-ca F or --allow-host HOST",
    ),
    _Row(
        "3.1",
        "RECOMMENDED",
        "tokens of the referring site",
        lambda proxy: bool(proxy.token_keys),
        _how("signed, expiring, each good once"),
        "add --token-key F",
    ),
    _Row(
        "3.1",
        "RECOMMENDED",
        "a limit to the rate of each client's address",
        lambda proxy: proxy.client_rate != "off",
        lambda proxy: proxy.client_rate,
        "add --client-rate '10/s burst 50'",
    ),
    _Row(
        "3.1",
        "RECOMMENDED",
        "a ratio of bytes, as origins send more than clients",
        lambda proxy: proxy.byte_ratio > 0,
        lambda proxy: f"{proxy.byte_ratio:g} received for each one sent",
        "add --byte-ratio 1",
    ),
    _Row(
        "3.1",
        "RECOMMENDED",
        "a limit to the duration of a session",
        lambda proxy: proxy.max_seconds > 0,
        lambda proxy: f"{proxy.max_seconds:g} s",
        "add --max-seconds 300",
    ),
    _Row(
        "3.1",
        "RECOMMENDED",
        "a limit to all connections together",
        _always,
        lambda proxy: f"{proxy.max_tunnels} tunnels, and {proxy.max_connections} connections in each worker",
    ),
    _Row(
        "3.1",
        "RECOMMENDED",
        "a blocklist of abusive addresses",
        _never,
        _how(""),
        "not part of this program: use a firewall, and --log-client while you look for them",
    ),
    _Row(
        "3.2",
        "MUST",
        "a geofeed (RFC 8805) of its addresses is published",
        lambda proxy: bool(proxy.geofeed),
        lambda proxy: f"at {proxy.geofeed_path}",
        "add --geofeed F",
    ),
    _Row(
        "3.3",
        "MUST",
        "cookies and other identifiers of clients are not sent to origins",
        _always,
        _how("no field of a CONNECT is forwarded, and a fetch of advice has nothing of the client"),
    ),
    _Row(
        "3.3",
        "SHOULD",
        "only what is needed to prevent abuse is logged",
        lambda proxy: proxy.log == "refusals" and not proxy.log_client,
        _how("refusals without the client, and tunnels as counts"),
        "remove --log all and --log-client",
    ),
    _Row("3.4", "MUST", '"fraction" and "disallow" are respected', _always, _unreachable),
    _Row("3.4", "SHOULD", "advice is cached as HTTP says", _always, _how("for 10 min to 48 h, then revalidated")),
)


def requirements(proxy: Proxy) -> tuple[Requirement, ...]:
    """Return every requirement, checked against one configuration."""
    return tuple(
        Requirement(row.section, row.level, row.words, met := row.is_met(proxy), row.how(proxy) if met else row.instead)
        for row in _ROWS
    )


def conforms(rows: Iterable[Requirement]) -> bool:
    """Return whether every MUST and STEP is met."""
    return all(row.is_met or row.level in {"SHOULD", "RECOMMENDED"} for row in rows)
