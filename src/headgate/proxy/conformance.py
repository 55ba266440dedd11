"""What the draft "Privacy-Preserving Prefetch Proxy Servers" (WICG, 2026) requires of a proxy, and what of it is met.

Each row is a sentence of the draft in our words, held against a configuration: whoever reads it learns what to change.
What the draft recommends, or says that one should do, does not decide whether a proxy conforms.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.config.proxy import Proxy

__all__ = ["Requirement", "conforms", "requirements"]

Level: TypeAlias = Literal["MUST", "STEP", "SHOULD", "RECOMMENDED"]
"""How much the draft insists; STEP is one of the steps that make up its protocol."""


class Requirement(NamedTuple):
    """One requirement."""

    section: str
    level: Level
    words: str
    is_met: bool
    how: str
    """How it is met, or what would meet it."""


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


def _who(proxy: Proxy) -> str:
    ways = {
        "who shows a token": proxy.token_keys,
        "who shows a certificate": proxy.client_ca,
        "to the hosts that are allowed": proxy.allow_hosts,
    }
    return f"tunnels only for {' and '.join(way for way, given in ways.items() if given)}; refusals cost no lookup"


def _unreachable(proxy: Proxy) -> str:
    agents = f'for {proxy.brand}, "prefetch-proxy" and "*"'
    if proxy.unreachable == "permit":
        return f"{agents}; an origin that cannot say what it advises is let through, unless what it said before refuses"
    return f"{agents}; an origin that cannot say what it advises is held"


_ROWS: Final = (
    _Row("2.1", "MUST", "CONNECT or CONNECT-UDP is supported", _always, _how("CONNECT")),
    _Row(
        "2.1",
        "MUST",
        "connections are protected with TLS",
        lambda proxy: not proxy.plaintext,
        _how("TLS 1.2 or 1.3 alone"),
        "leave --plaintext out, and give --cert and --key",
    ),
    _Row("2.3", "MUST", "HTTP/1.1, HTTP/2 or HTTP/3 is supported", _always, _protocols),
    _Row(
        "2.3",
        "MUST",
        "an unencrypted CONNECT is not accepted",
        lambda proxy: not proxy.plaintext,
        _how("nothing is read before TLS is agreed on"),
        "leave --plaintext out, and give --cert and --key",
    ),
    _Row(
        "2.3",
        "STEP",
        "the client's token is checked, and a wrong one is an error",
        lambda proxy: bool(proxy.token_keys),
        _how("407, with the reason; each token is good once"),
        "no token is asked for: add --token-key F",
    ),
    _Row("2.3", "STEP", "the host is resolved", _always, _how("once, and every address of it is checked")),
    _Row("2.3", "STEP", "the origin's traffic advice is looked up", _always, _how("at a checked address, or known")),
    _Row("2.3", "STEP", "a tunnel is established, or the answer is an error", _always, _how("each with its reason")),
    _Row("2.3", "STEP", "success is said, and then bytes are forwarded as RFC 9110 says", _always, _how("both ways")),
    _Row(
        "3.1",
        "MUST",
        "abuse is prevented, and the proxy is no general anonymizer",
        lambda proxy: bool(proxy.token_keys or proxy.client_ca or proxy.allow_hosts),
        _who,
        "anybody gets a tunnel to anywhere: add --token-key F, --client-ca F or --allow-host HOST",
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
        "a list of abusive addresses that are blocked",
        _never,
        _how(""),
        "no part of this program: use a firewall, and --log-client for as long as it takes to find them",
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
        "cookies and whatever identifies a client are not sent on to origins",
        _always,
        _how("of a CONNECT nothing goes on, and a question for advice says nothing of whom it is asked for"),
    ),
    _Row(
        "3.3",
        "SHOULD",
        "no more is logged than abuse is prevented by",
        lambda proxy: proxy.log == "refusals" and not proxy.log_client,
        _how("refusals without the client, and tunnels as counts"),
        "leave --log all and --log-client out",
    ),
    _Row("3.4", "MUST", '"fraction" and "disallow" are respected', _always, _unreachable),
    _Row("3.4", "SHOULD", "advice is cached as HTTP says", _always, _how("for 10 min to 48 h, and validated anew")),
)


def requirements(proxy: Proxy) -> tuple[Requirement, ...]:
    """Give every requirement, as one configuration meets it or does not."""
    return tuple(
        Requirement(row.section, row.level, row.words, met := row.is_met(proxy), row.how(proxy) if met else row.instead)
        for row in _ROWS
    )


def conforms(rows: Iterable[Requirement]) -> bool:
    """Say whether all is met that the draft insists on."""
    return all(row.is_met or row.level in {"SHOULD", "RECOMMENDED"} for row in rows)
